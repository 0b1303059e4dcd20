"""The proof that a change does what it says."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from formica.adapters.setup_cache import SetupCache
from formica.adapters.verification import Limits, LocalVerifier
from formica.errors import NeedsOperator, Stopped
from formica.ports import Proof
from tests.fakes.repositories import PATH, Project, git, make_project

# A test runner of three lines: every file of tests/ must run without an exception.
RUNNER = "import pathlib\nfor p in sorted(pathlib.Path('tests').glob('test_*')):\n    exec(p.read_text())\n"
FILES = {
    "run_tests.py": RUNNER,
    "calc.py": "def add(a, b):\n    return a - b\n",
    "tests/test_zero.py": "import sys; sys.path.insert(0, '.')\nimport calc\nassert calc.add(2, 0) == 2\n",
}
FIXED = "def add(a, b):\n    return a + b\n"
TEST = "import calc\nassert calc.add(2, 3) == 5\n"
COMMAND = [sys.executable, "-B", "run_tests.py"]
Changes = Mapping[str, str | None]


async def go_on() -> None:
    return None


async def prove(project: Project, changes: Changes, **options: Any) -> Proof:
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    for name, text in changes.items():
        path = workspace.tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if text is not None:
            path.write_text(text)
    change = await repository.collect(workspace, message="Fix")
    check: Callable[[], Any] = options.pop("check", go_on)
    defaults: dict[str, Any] = {"test_command": COMMAND, "path": PATH, "limits": Limits(test=30)}
    proof = await LocalVerifier(project.git(), **defaults | options).prove(workspace, change, check=check)
    assert list((workspace.root / "verify").glob("*")) == [], "checkouts are removed"
    for command in proof.commands:
        log = project.state / command["log"]
        assert hashlib.sha256(log.read_bytes()).hexdigest() == command["log_hash"], "its output is kept"
    return proof


def names(proof: Proof) -> list[str]:
    return [command["name"] for command in proof.commands]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path, FILES)


async def test_a_fix_with_its_test_is_proved(project: Project) -> None:
    """The test alone fails on the base, the base alone is sound, everything passes on the head; and again."""
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": TEST})
    assert proof.proved
    assert (proof.has_tests, proof.base_failed, proof.head_passed, proof.hooks_passed) == (
        True,
        True,
        True,
        None,
    )
    again = ["base with tests, repeated", "head, repeated"]
    assert names(proof) == ["base with tests", "base alone", "head", *again]
    assert [command["exit_code"] for command in proof.commands] == [1, 0, 0, 1, 0]
    assert proof.commands[0]["argv"] == COMMAND
    assert "AssertionError" in proof.commands[0]["output_tail"]


async def test_a_fix_without_a_test_is_not_proved(project: Project) -> None:
    """No test in the change, or only a removed one: nothing is run, and the reason says so."""
    for changes in ({"calc.py": FIXED}, {"calc.py": FIXED, "tests/test_zero.py": None}):
        proof = await prove(project, changes)
        assert (proof.proved, proof.has_tests, proof.commands) == (False, False, ())
        assert "no test" in proof.reason


async def test_a_test_that_passes_on_the_base_proves_nothing(project: Project) -> None:
    """A test that does not show the fault is no proof."""
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": "import calc\n"})
    assert (proof.proved, proof.base_failed) == (False, False)
    assert "pass on the base" in proof.reason


async def test_a_change_that_does_not_pass_is_not_proved(project: Project) -> None:
    """A head that fails is not published; a base that failed before anything changed is mentioned."""
    proof = await prove(project, {"calc.py": "broken = 1\n", "tests/test_add.py": TEST})
    assert (proof.proved, proof.base_failed, proof.head_passed) == (False, True, False)
    assert names(proof)[-2:] == ["head, run 2", "head, run 3"], "tried again before it is believed"
    assert "untouched" not in proof.reason
    project.commit({"tests/test_old.py": "assert False\n"})
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": TEST})
    assert not proof.proved
    assert "untouched base already" in proof.reason


async def test_renamed_and_removed_tests_belong_to_the_test_part(project: Project) -> None:
    """What the change removed from the tests is removed on the base as well."""
    moved = FILES["tests/test_zero.py"] + "assert calc.add(2, 3) == 5\n"
    proof = await prove(project, {"calc.py": FIXED, "tests/test_zero.py": None, "tests/test_all.py": moved})
    assert proof.proved


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["no-such-program"], "could not be started"),
        (["sh", "-c", "exit 127"], "not found"),
        (["sh", "-c", "exit 126"], "not executable"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], "signal 9"),
        ([sys.executable, "-m", "pytest", "-q", "--no-such-option"], "pytest was used wrongly"),
        ([sys.executable, "-m", "pytest", "-q", "-k", "nothing", "-p", "no:cacheprovider"], "pytest"),
        ([sys.executable, "-c", "while True: pass"], "still running"),
    ],
)
async def test_a_run_without_verdict_is_no_failing_test(
    project: Project, command: list[str], says: str
) -> None:
    """A test command that cannot run, finds nothing or hangs does not count as failing on the base."""
    proof = await prove(
        project, {"calc.py": FIXED, "tests/test_add.py": TEST}, test_command=command, limits=Limits(test=3)
    )
    assert (proof.proved, proof.head_passed) == (False, None)
    assert says in proof.reason


async def test_pytest_is_detected_and_its_verdict_understood(tmp_path: Path) -> None:
    """Without a configured command the base's files choose it; a change's own files do not."""
    project = make_project(
        tmp_path, {"calc.py": FILES["calc.py"], "tests/test_zero.py": "def test(): pass\n"}
    )
    path = f"{Path(sys.executable).parent}:{PATH}"
    test = "import calc\ndef test_add():\n    assert calc.add(2, 3) == 5\n"
    proof = await prove(
        project, {"calc.py": FIXED, "tests/test_add.py": test}, test_command=None, path=path, reruns=0
    )
    assert proof.proved, proof
    assert proof.commands[0]["argv"] == ["python3", "-m", "pytest", "-q"]


async def test_no_test_command_names_the_setting(tmp_path: Path) -> None:
    """Where nothing is configured or detected the setting to make is named."""
    project = make_project(tmp_path, {"a.txt": "1"})
    changes = {"Makefile": "test:\n\ttrue\n", "tests/check.txt": "x"}
    proof = await prove(project, changes, test_command=None)
    assert not proof.proved
    assert "[repository] test_command" in proof.reason


async def test_a_setup_that_fails_is_no_verdict(project: Project) -> None:
    """What the set-up could not install says nothing about the change."""
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": TEST}, setup_command=["false"])
    assert (proof.proved, proof.base_failed) == (False, None)
    assert "setup_command failed with exit code 1" in proof.reason


async def test_the_tests_run_in_a_checkout_of_ours(project: Project, tmp_path: Path) -> None:
    """Not in the agent's tree, with git at hand, no remote, and nothing of the daemon's environment."""
    seen = tmp_path / "seen"
    test = (
        "import calc, os, subprocess\n"
        f"with open({str(seen)!r}, 'a') as f:\n"
        "    f.write(os.getcwd() + '\\n' + ' '.join(sorted(os.environ)) + '\\n')\n"
        "assert subprocess.run(['git', 'rev-parse', 'HEAD'], stdout=-3).returncode == 0\n"
        "assert subprocess.run(['git', 'remote'], capture_output=True).stdout == b''\n"
        "assert calc.add(2, 3) == 5\n"
    )
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": test})
    assert proof.proved, proof.commands
    folders, rows = seen.read_text().splitlines()[::2], seen.read_text().splitlines()[1::2]
    assert all(folder.endswith("/tree") and "/verify/" in folder for folder in folders)
    assert {frozenset(row.split()) - {"LC_CTYPE"} for row in rows} == {
        frozenset(["CI", "HOME", "LANG", "LC_ALL", "PATH", "TERM", "TMPDIR"])
    }


async def test_the_projects_hooks_decide_too(project: Project) -> None:
    """A hook sees the change staged, as before a commit; its no, or its removal, is a failed verification."""
    hook = ".githooks/pre-commit"
    project.commit(
        {hook: "#!/bin/sh\ntest \"$(git diff --cached --name-only)\" = 'calc.py\ntests/test_add.py'\n"}
    )
    (project.checkout / hook).chmod(0o755)
    project.commit({})
    good = {"calc.py": FIXED, "tests/test_add.py": TEST}
    proof = await prove(project, good)
    assert (proof.proved, proof.hooks_passed) == (True, True), proof
    proof = await prove(project, {**good, "more.py": "x = 1\n"})
    assert (proof.proved, proof.head_passed, proof.hooks_passed) == (False, True, False)
    assert hook in proof.reason
    proof = await prove(project, {**good, hook: None})
    assert (proof.proved, proof.hooks_passed) == (False, False)
    assert "removes" in proof.reason


async def test_pre_commit_is_run_where_it_is_installed(project: Project, tmp_path: Path) -> None:
    """With pre-commit on PATH its hooks run over the change; without, that is said and nothing claimed."""
    project.commit({".pre-commit-config.yaml": "repos: []\n"})
    changes = {"calc.py": FIXED, "tests/test_add.py": TEST}
    proof = await prove(project, changes)
    assert (proof.proved, proof.hooks_passed) == (True, None)
    assert "pre-commit is not installed" in proof.reason
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "pre-commit").write_text('#!/bin/sh\necho "$@"\n')
    (tools / "pre-commit").chmod(0o755)
    proof = await prove(project, changes, path=f"{tools}:{PATH}")
    assert (proof.proved, proof.hooks_passed) == (True, True)
    assert proof.commands[-1]["output_tail"].startswith("run --from-ref ")


async def test_a_stop_during_verification_is_raised(project: Project) -> None:
    """The kill switch reaches the runs of a proof as well."""

    async def check() -> None:
        raise Stopped("paused")

    hang = [sys.executable, "-c", "import signal; signal.pause()"]
    changes = {"calc.py": FIXED, "tests/test_add.py": TEST}
    with pytest.raises(Stopped):
        await prove(project, changes, test_command=hang, check=check)


async def test_a_hook_that_modifies_files_is_a_failed_verification(project: Project) -> None:
    """What it would have made is not what would be published; the file is named."""
    hook = ".githooks/pre-commit"
    project.commit({hook: "#!/bin/sh\necho '# tidy' >> calc.py\n"})
    (project.checkout / hook).chmod(0o755)
    project.commit({})
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": TEST})
    assert (proof.proved, proof.hooks_passed) == (False, False)
    assert proof.reason == f"The project's commit hook {hook} modifies calc.py."


# --- forged ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verdict",
    [
        "'head' in os.getcwd()",
        "os.path.exists(mark) or bool(open(mark, 'w').close())",
    ],
)
async def test_a_change_of_tests_alone_is_no_proof(project: Project, tmp_path: Path, verdict: str) -> None:
    """Base with tests and head would be the same files: refused before anything is run, whatever it does."""
    test = f"import os, calc\nmark = {str(tmp_path / 'mark')!r}\nassert {verdict}\n"
    proof = await prove(project, {"tests/test_forged.py": test, "tests/test_zero.py": None})
    assert (proof.proved, proof.has_tests, proof.commands) == (False, True, ())
    assert "nothing but tests" in proof.reason


async def test_nothing_tells_a_test_which_run_it_is_in(project: Project, tmp_path: Path) -> None:
    """Place, environment, HOME, TMPDIR, output file, what git says and which objects there are: the same, or
    without a hint, on the base and on the head. What one run leaves in them the next does not find."""
    seen = tmp_path / "seen"
    fixed = git(project.checkout, "hash-object", "--stdin", stdin=FIXED.encode())
    test = (
        "import calc, json, os, subprocess\n"
        "def said(*argv):\n"
        "    done = subprocess.run(['git', *argv], capture_output=True, text=True)\n"
        "    return [done.returncode, done.stdout]\n"
        "folders = [os.getcwd(), os.environ['HOME'], os.environ['TMPDIR'], '..', '../repo.git']\n"
        "facts = [folders, sorted(os.environ.items()), [sorted(os.listdir(f)) for f in folders],\n"
        "    said('log', '-1', '--format=%an %ae %at %cn %ce %ct %P %B'), said('for-each-ref', '--format=%(refname)'),\n"
        "    said('status', '--short'), said('config', '--list')]\n"
        f"mine = [os.readlink('/proc/self/fd/1'), said('cat-file', '-e', {fixed!r})[0]]\n"
        f"print(json.dumps([facts, mine, calc.add(2, 3)]), file=open({str(seen)!r}, 'a'))\n"
        "for folder in folders:\n"
        "    open(os.path.join(folder, 'left'), 'w').close()\n"
        "assert calc.add(2, 3) == 5\n"
    )
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": test})
    assert proof.proved, proof.commands
    runs = [json.loads(row) for row in seen.read_text().splitlines()]
    assert [answer for _, _, answer in runs] == [-1, 5, -1, 5]
    facts = [row[0] for row in runs]
    assert facts == [facts[0]] * 4
    for _, (output, held), answer in runs:
        assert "base" not in output.rpartition("/")[2]
        assert "head" not in output.rpartition("/")[2]
        assert (held == 0) == (answer == 5), "the base's run has no object of the fix"


async def test_what_a_run_does_to_the_collected_change_forges_nothing(project: Project) -> None:
    """A test that writes into `in.git`: settings and refs there count for nothing, and with an object that is
    not what its name says there is no proof."""
    wreck = (
        "import calc, pathlib\n"
        "clean = pathlib.Path('../../../in.git')\n"
        "with open(clean / 'config', 'a') as file:\n"
        "    file.write('[core]\\n\\trepositoryformatversion = 99\\n')\n"
        "(clean / 'HEAD').write_text('nonsense')\n"
        "(clean / 'packed-refs').write_text('nonsense')\n"
        "assert calc.add(2, 3) == 5\n"
    )
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": wreck})
    assert proof.proved, (proof.reason, proof.commands)
    fixed = git(project.checkout, "hash-object", "--stdin", stdin=FIXED.encode())
    forge = (
        "import pathlib, subprocess, zlib\n"
        "clean = pathlib.Path('../../../in.git').resolve()\n"
        "for pack in (clean / 'objects/pack').glob('*.pack'):\n"
        "    pack.rename(clean / 'pack')\n"
        "    unpack = ['git', f'--git-dir={clean}', 'unpack-objects', '-q']\n"
        "    subprocess.run(unpack, stdin=open(clean / 'pack'), check=True)\n"
        f"loose = clean / 'objects' / {fixed[:2]!r} / {fixed[2:]!r}\n"
        "assert loose.exists()\n"
        "loose.unlink()\n"
        "loose.write_bytes(zlib.compress(b'blob 3\\0a=1'))\n"
        "assert False\n"
    )
    with pytest.raises(NeedsOperator, match="objects of the collected change"):
        await prove(project, {"calc.py": FIXED, "tests/test_add.py": forge})


# --- flaky -------------------------------------------------------------------------------------------------


def counting(where: Path, verdict: str) -> str:
    """A test that knows how often it ran, in whatever checkout; ``verdict`` sees that number as n."""
    return (
        f"import pathlib, calc\nfile = pathlib.Path({str(where)!r})\n"
        "n = len(file.read_text()) + 1 if file.exists() else 1\nfile.write_text('x' * n)\n"
        f"assert {verdict}\n"
    )


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        ("n != 2", "on the base they passed first"),
        ("n == 2", "with the change they passed first"),
        ("n in (3, 4) or calc.add(2, 3) == 5 and n != 2", "flaky"),
        ("n != 1", "on the base they failed first"),
        ("n not in (1, 2)", "failed first, and passed in run 2"),
        ("n not in (1, 2, 3, 5)", "failed first, and passed in run"),
        ("n not in (1, 3, 4)", "flaky"),
    ],
)
async def test_a_result_that_does_not_repeat_is_no_proof(
    project: Project, tmp_path: Path, verdict: str, says: str
) -> None:
    """On the base or on the head, failing first or passing first: it is called flaky and nothing is proved."""
    changes = {"calc.py": FIXED, "tests/test_count.py": counting(tmp_path / "count", verdict)}
    proof = await prove(project, changes)
    assert not proof.proved
    assert "flaky" in proof.reason
    assert says in proof.reason


async def test_slow_tests_are_not_spared_the_base_run_after_the_head(
    project: Project, tmp_path: Path
) -> None:
    """Where a run takes too long to repeat both, the base is repeated all the same: what the first run left
    for the next one shows."""
    good = {"calc.py": FIXED, "tests/test_add.py": TEST}
    proof = await prove(project, good, confirm_seconds=0)
    assert proof.proved
    assert names(proof)[-2:] == ["head", "base with tests, repeated"]
    marks = {"calc.py": FIXED, "tests/test_count.py": counting(tmp_path / "count", "n != 1")}
    proof = await prove(project, marks, confirm_seconds=0)
    assert (proof.proved, names(proof)[-1]) == (False, "base with tests, repeated")
    assert "flaky" in proof.reason


async def test_without_reruns_each_suite_runs_once(project: Project) -> None:
    """The number of reruns is the maintainer's choice."""
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": TEST}, reruns=0)
    assert (proof.proved, names(proof)) == (True, ["base with tests", "base alone", "head"])
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": "import calc\n"}, reruns=0)
    assert (proof.proved, names(proof)) == (False, ["base with tests"])


# --- pytest and unittest -----------------------------------------------------------------------------------

PYTEST = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
UNITTEST = [sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", "."]
OLD_TEST = "from calc import add\n\ndef test_zero():\n    assert add(2, 0) == 2\n"
NEW_TEST = "from calc import add\n\ndef test_add():\n    assert add(2, 3) == 5\n"
BROKEN = "def test_broken():\n    assert False\n"


@pytest.fixture
def pytest_project(tmp_path: Path) -> Project:
    return make_project(tmp_path, {"calc.py": FILES["calc.py"], "tests/test_zero.py": OLD_TEST})


async def test_a_test_that_imports_what_the_change_adds_fails_on_the_base(pytest_project: Project) -> None:
    """pytest cannot collect it there: that counts, because the base alone collects fine and the head passes."""
    new = "from calc import double\n\ndef test_double():\n    assert double(4) == 8\n"
    changes = {
        "calc.py": FILES["calc.py"] + "\ndef double(a):\n    return 2 * a\n",
        "tests/test_double.py": new,
    }
    proof = await prove(pytest_project, changes, test_command=PYTEST, reruns=0)
    assert (proof.proved, proof.base_failed, proof.head_passed) == (True, True, True), proof.reason
    assert proof.commands[0]["exit_code"] == 2
    assert "cannot even be imported" in proof.reason


async def test_tests_that_nothing_can_import_prove_nothing(pytest_project: Project) -> None:
    """A base whose own tests cannot be collected shows nothing, and neither does a head that cannot be."""
    bad = "import no_such_module\n"
    proof = await prove(
        pytest_project, {"calc.py": FIXED, "tests/test_bad.py": bad}, test_command=PYTEST, reruns=0
    )
    assert (proof.proved, proof.head_passed) == (False, False)
    pytest_project.commit({"tests/test_bad.py": bad})
    proof = await prove(
        pytest_project, {"calc.py": FIXED, "tests/test_add.py": NEW_TEST}, test_command=PYTEST
    )
    assert not proof.proved
    assert "untouched base either" in proof.reason


async def test_what_failed_before_is_told_from_what_the_change_mends(pytest_project: Project) -> None:
    """A base with a failing test of its own: the runner's names decide, and the reason names what still fails."""
    pytest_project.commit({"tests/test_broken.py": BROKEN})
    proof = await prove(
        pytest_project, {"calc.py": FIXED, "tests/test_add.py": NEW_TEST}, test_command=PYTEST
    )
    assert (proof.proved, proof.base_failed, proof.head_passed) == (True, True, None), proof.reason
    assert "1 fail already, and 1 still do: tests/test_broken.py::test_broken" in proof.reason
    shows_nothing = {"calc.py": FIXED, "tests/test_more.py": "def test_more():\n    assert True\n"}
    proof = await prove(pytest_project, shows_nothing, test_command=PYTEST, reruns=0)
    assert not proof.proved
    assert "fails without the change's tests too" in proof.reason
    worse = {"calc.py": FIXED, "tests/test_add.py": NEW_TEST, "tests/test_zero.py": OLD_TEST + BROKEN}
    proof = await prove(pytest_project, worse, test_command=PYTEST, reruns=0)
    assert (proof.proved, proof.head_passed) == (False, False)


async def test_a_failing_test_that_was_there_already_may_be_the_one_that_is_mended(
    pytest_project: Project,
) -> None:
    """The change touches the very test that fails on the base, and it passes with the change."""
    pytest_project.commit({"tests/test_add.py": NEW_TEST})
    changes = {"calc.py": FIXED, "tests/test_add.py": NEW_TEST + "    assert add(1, 1) == 2\n"}
    proof = await prove(pytest_project, changes, test_command=PYTEST, reruns=0)
    assert (proof.proved, proof.head_passed) == (True, True), proof.reason
    assert "1 fail already, and pass now" in proof.reason


async def test_unittest_names_its_failures_too(tmp_path: Path) -> None:
    """The same comparison with the standard library's runner."""
    case = "import unittest\nfrom calc import add\n\nclass {}(unittest.TestCase):\n    def test_it(self):\n        {}\n"
    files = {
        "calc.py": FILES["calc.py"],
        "tests/__init__.py": "",
        "tests/test_old.py": case.format("Old", "self.assertEqual(1, 2)"),
    }
    project = make_project(tmp_path, files)
    new = case.format("New", "self.assertEqual(add(2, 3), 5)")
    proof = await prove(
        project, {"calc.py": FIXED, "tests/test_new.py": new}, test_command=UNITTEST, reruns=0
    )
    assert (proof.proved, proof.head_passed) == (True, None), proof.reason
    assert "tests.test_old.Old" in proof.reason


async def test_a_base_without_tests_is_sound(tmp_path: Path) -> None:
    """The first test of a project can be proved: there is nothing that failed before."""
    project = make_project(tmp_path, {"calc.py": FILES["calc.py"]})
    proof = await prove(
        project, {"calc.py": FIXED, "tests/test_add.py": NEW_TEST}, test_command=PYTEST, reruns=0
    )
    assert proof.proved, proof.reason


# --- set-up ------------------------------------------------------------------------------------------------

SETUP = (
    "import os, pathlib, sys\n"
    "pathlib.Path('node_modules/tool').mkdir(parents=True)\n"
    "pathlib.Path('node_modules/tool/index').write_text('ready')\n"
    "os.symlink('tool', 'node_modules/alias')\n"
    "pathlib.Path(os.environ['HOME'], 'cache').write_text('warm')\n"
    "{more}\n"
    "open(sys.argv[1], 'a').write('x')\n"
)
NEEDS = (
    "import calc, os, pathlib\n"
    "assert pathlib.Path('node_modules/alias/index').read_text() == 'ready'\n"
    "assert pathlib.Path(os.environ['HOME'], 'cache').read_text() == 'warm'\n"
    "assert not pathlib.Path('left').exists()\n"
    "pathlib.Path('left').touch(); pathlib.Path('node_modules/left').touch()\n"
    "assert calc.add(2, 3) == 5\n"
)


class SetUp:
    """A set-up that counts its runs, and a cache of its own."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.count = folder / "setups"
        self.cache = SetupCache(folder / "cache", leave_free=0)
        self.command = [sys.executable, "-B", "-c", SETUP.format(more=more), str(self.count)]

    @property
    def times(self) -> int:
        return len(self.count.read_text()) if self.count.exists() else 0

    async def prove(self, project: Project, changes: Changes) -> Proof:
        return await prove(project, changes, setup_command=self.command, cache=self.cache)


async def test_the_setup_runs_once_for_each_state_of_the_lock_files(project: Project, tmp_path: Path) -> None:
    """Base, head, reruns and later proofs share what it made, each in a copy of its own."""
    setup = SetUp(tmp_path)
    good = {"calc.py": FIXED, "tests/test_add.py": NEEDS}
    proof = await setup.prove(project, good)
    assert proof.proved, (proof.reason, proof.commands)
    assert setup.times == 1
    assert (await setup.prove(project, good)).proved
    assert setup.times == 1
    proof = await setup.prove(project, {**good, "package-lock.json": "{}"})
    assert proof.proved
    assert setup.times == 3, (
        "a head with other lock files is set up by itself each time: once, and to confirm"
    )
    project.commit({"package-lock.json": '{"a": 1}'})
    assert (await setup.prove(project, good)).proved
    assert setup.times == 4


async def test_a_setup_that_names_its_place_serves_that_place(project: Project, tmp_path: Path) -> None:
    """What holds the path of its checkout is not put elsewhere; there it is used again."""
    setup = SetUp(tmp_path, "pathlib.Path('node_modules/where').write_text(os.getcwd())")
    good = {"calc.py": FIXED, "tests/test_add.py": NEEDS}
    assert (await setup.prove(project, good)).proved
    assert (await setup.prove(project, good)).proved
    assert setup.times == 1
    (kept,) = (tmp_path / "cache").iterdir()
    tree = tmp_path / "elsewhere"
    tree.mkdir()
    key = kept.name.rpartition("-")[0]
    assert await setup.cache.restore(key, tree, tmp_path / "home") == "none"


async def test_a_setup_that_changes_the_projects_files_is_not_kept(project: Project, tmp_path: Path) -> None:
    """A copy without that change would be another set-up; so it runs each time."""
    setup = SetUp(tmp_path, "open('calc.py', 'a').write('# touched')")
    proof = await setup.prove(project, {"calc.py": FIXED, "tests/test_add.py": NEEDS})
    assert proof.proved
    assert setup.times == 5


async def test_a_change_cannot_lead_a_kept_setup_out_of_its_tree(project: Project, tmp_path: Path) -> None:
    """A link where the set-up's folder goes: nothing is written through it, the set-up runs instead."""
    setup = SetUp(tmp_path)
    assert (await setup.prove(project, {"calc.py": FIXED, "tests/test_add.py": NEEDS})).proved
    outside = tmp_path / "outside"
    outside.mkdir()
    repository = project.repository()
    workspace = await repository.prepare(2, commit=None)
    (workspace.tree / "node_modules").symlink_to(outside)
    key = next((tmp_path / "cache").iterdir()).name
    assert await setup.cache.restore(key, workspace.tree, tmp_path / "home") == "spoilt"
    assert list(outside.iterdir()) == []


async def test_old_setups_go(tmp_path: Path) -> None:
    """At most so many are kept, the newest; one that is too large is not kept at all."""
    cache = SetupCache(tmp_path / "cache", keep=2, bytes_limit=1_000, leave_free=0)
    tree, home = tmp_path / "tree", tmp_path / "home"
    home.mkdir()
    (tree / "src").mkdir(parents=True)
    (tree / "src/a.py").write_text("a")
    (tree / "src/made").write_text("m")
    for number, key in enumerate(("a", "b", "c")):
        assert await cache.store(key, tree, home, {"src/a.py"})
        os.utime(tmp_path / "cache" / key, (number, number))
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["b", "c"]
    fresh = tmp_path / "fresh"
    (fresh / "src").mkdir(parents=True)
    assert await cache.restore("c", fresh, tmp_path / "home2") == "restored"
    assert [path.name for path in (fresh / "src").iterdir()] == ["made"]
    nothing_left = SetupCache(tmp_path / "cache", leave_free=2**60)
    assert not await nothing_left.store("e", tree, home, {"src/a.py"})
    (tree / "large").write_text("x" * 2_000)
    assert not await cache.store("d", tree, home, {"src/a.py"})
    assert await cache.restore("d", fresh, tmp_path / "home3") == "none"
