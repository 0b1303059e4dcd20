"""The proof that a change does what it says."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from formica.adapters.verification import LocalVerifier
from formica.errors import Stopped
from formica.ports import Proof
from formica.rules.testfiles import detect_test_command, is_test_path
from tests.fakes.repositories import PATH, Project, make_project

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
    defaults: dict[str, Any] = {"test_command": COMMAND, "path": PATH, "timeout_seconds": 30}
    proof = await LocalVerifier(project.git(), **defaults | options).prove(workspace, change, check=check)
    left = [path.name for path in (workspace.root / "verify").glob("*") if not path.name.startswith("home-")]
    assert left == [], "checkouts are removed"
    return proof


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path, FILES)


async def test_a_fix_with_its_test_is_proved(project: Project) -> None:
    """The test alone fails on the base, everything passes on the head; both runs are kept."""
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": TEST})
    assert proof.proved
    assert (proof.has_tests, proof.base_failed, proof.head_passed, proof.hooks_passed) == (
        True,
        True,
        True,
        None,
    )
    assert [command["name"] for command in proof.commands] == ["base with tests", "head"]
    assert [command["exit_code"] for command in proof.commands] == [1, 0]
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
    assert "untouched" not in proof.reason
    project.commit({"tests/test_old.py": "assert False\n"})
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": TEST})
    assert not proof.proved
    assert "untouched base too" in proof.reason


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
        project, {"calc.py": FIXED, "tests/test_add.py": TEST}, test_command=command, timeout_seconds=3
    )
    assert (proof.proved, proof.base_failed) == (False, None)
    assert says in proof.reason


async def test_pytest_is_detected_and_its_verdict_understood(tmp_path: Path) -> None:
    """Without a configured command the base's files choose it; a change's own files do not."""
    project = make_project(
        tmp_path, {"calc.py": FILES["calc.py"], "tests/test_zero.py": "def test(): pass\n"}
    )
    path = f"{Path(sys.executable).parent}:{PATH}"
    test = "import calc\ndef test_add():\n    assert calc.add(2, 3) == 5\n"
    proof = await prove(project, {"calc.py": FIXED, "tests/test_add.py": test}, test_command=None, path=path)
    assert proof.proved, proof
    assert proof.commands[0]["argv"] == ["python3", "-m", "pytest", "-q"]


async def test_no_test_command_names_the_setting(tmp_path: Path) -> None:
    """Where nothing is configured or detected the setting to make is named."""
    project = make_project(tmp_path, {"a.txt": "1"})
    changes = {"Makefile": "test:\n\ttrue\n", "tests/check.txt": "x"}
    proof = await prove(project, changes, test_command=None)
    assert not proof.proved
    assert "[repository] test_command" in proof.reason


async def test_setup_runs_before_each_test_run(project: Project) -> None:
    """The set-up command runs in every checkout with a home shared while the lock files are the same, and
    its failure is no verdict on the code."""
    script = (
        "open('ready', 'w'); import os; home = os.environ['HOME'] + '/cache'; print(os.path.exists(home))"
    )
    script += "; open(home, 'w')"
    changes = {"calc.py": FIXED, "tests/test_add.py": TEST + "open('ready')\n"}
    proof = await prove(project, changes, setup_command=[sys.executable, "-c", script])
    assert proof.proved
    setups = [command for command in proof.commands if command["name"].startswith("setup")]
    assert [command["output_tail"] for command in setups] == ["False\n", "True\n"]
    proof = await prove(project, changes, setup_command=["false"])
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
    folders, names = seen.read_text().splitlines()[::2], seen.read_text().splitlines()[1::2]
    assert all(folder.endswith("/tree") and "/verify/" in folder for folder in folders)
    assert set(names) == {"CI HOME LANG LC_ALL PATH TERM TMPDIR"} or set(names) == {
        "CI HOME LANG LC_ALL LC_CTYPE PATH TERM TMPDIR"
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
    with pytest.raises(Stopped):
        await prove(project, {"tests/test_add.py": TEST}, test_command=hang, check=check)


@pytest.mark.parametrize(
    "path",
    [
        *("tests/test_a.py", "pkg/tests/helper.py", "a_test.py", "conftest.py", "src/a.test.ts"),
        *("src/__tests__/a.js", "a.spec.tsx", "pkg/a_test.go", "tests/it.rs", "src/test/java/A.java"),
        *(
            "src/AppTest.java",
            "spec/a_spec.rb",
            "App.Tests/A.cs",
            "ATests.cs",
            "tests/ATest.php",
            "e2e/x.txt",
        ),
    ],
)
def test_tests_are_recognised(path: str) -> None:
    """The usual places and names of tests, per ecosystem."""
    assert is_test_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *("src/app.py", "latest.py", "contest.py", "src/attest.go", "protest/a.py", "testing.md"),
        *(
            "src/Latest.java",
            "Contest.cs",
            "pytest.ini",
            "tests/pytest.ini",
            "package.json",
            "src/inspect.ts",
        ),
    ],
)
def test_other_files_are_not(path: str) -> None:
    """Names that only look alike, and files that configure how tests run."""
    assert not is_test_path(path)


def test_commands_are_detected_from_files() -> None:
    """Each ecosystem by its own sign; a package without a test script has no test command."""
    assert detect_test_command({"go.mod"}) == ["go", "test", "./..."]
    assert detect_test_command({"Cargo.toml", "src/lib.rs"}) == ["cargo", "test", "--quiet"]
    assert detect_test_command({"pom.xml"}) == ["mvn", "-q", "-B", "test"]
    scripts = '{"scripts": {"build": "x", "test": "jest"}}'
    assert detect_test_command({"package.json"}, package_json=scripts) == ["npm", "test", "--silent"]
    none = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
    assert detect_test_command({"package.json"}, package_json=none) is None
    assert detect_test_command({"Makefile"}, makefile="all:\n\ntest: all\n\t./t\n") == ["make", "test"]
    assert detect_test_command({"Makefile"}, makefile="test := x\n") is None
    assert detect_test_command({"README.md"}) is None
    assert os.sep == "/"
