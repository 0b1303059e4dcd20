"""What a reporter, a remote or a plan says never becomes an option, a pattern or a command of git."""

from __future__ import annotations

import re
import shutil
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from formica.errors import FormicaError
from tests.fakes.repositories import PATH, Project, git, make_project

NASTY = [
    *("--upload-pack=touch fired", "-u./x", "--output=fired", "--exec=touch fired", "-", "--", "--help"),
    *("HEAD", "@{-1}", "main^{/x}", ":/first", "main..main", "^main", "refs/heads/main", "*", "a b", "a\nb"),
    *(
        "$(touch fired)",
        "`touch fired`",
        ";touch fired",
        "..",
        "../../x",
        ":(top)x",
        "ext::sh -c touch% fired",
    ),
    *("deadbeef", "0" * 40, "1" * 64, "1" * 40 + "^{tree}", "formica/issue-1", "formica/--x", "ünïcode"),
]
TEXT = st.one_of(
    st.sampled_from(NASTY), st.text(max_size=40), st.from_regex(r"-{1,2}[a-z-]{1,20}(=\S{0,20})?")
)
SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# Texts of ours that stand where a remote's could: a subcommand's fixed words and patterns.
PLAIN = re.compile(r"[a-zA-Z][a-zA-Z0-9-]*")
UNMARKED: dict[str, re.Pattern[str]] = {
    # Not every subcommand of git 2.39 takes --end-of-options: these get our own words, full names and ids only.
    "config": re.compile(r"[a-zA-Z0-9.]+|\^.*\$"),
    "rev-parse": re.compile(r"--show-object-format|--git-common-dir|--path-format=absolute"),
    "for-each-ref": re.compile(r"refs/(formica/[a-z]+|heads|tags)"),
    "checkout": re.compile(rf"{SHA.pattern}|formica/issue-[0-9]+"),
    "cat-file": re.compile(rf"-e|blob|{SHA.pattern}(\^\{{commit\}})?"),
    "ls-files": re.compile("$^"),
    "diff-files": re.compile("$^"),
    "diff-index": re.compile("HEAD"),
    "fast-import": re.compile("$^"),
    "check-ignore": re.compile("$^"),
    "check-attr": re.compile("filter"),
    "patch-id": re.compile("$^"),
    "update-ref": re.compile("$^"),
    "gc": re.compile("$^"),
    "version": re.compile("$^"),
}


class Recorder:
    """A `git` on the PATH that writes down its arguments and goes on as the real one."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._record = folder / "record"
        real = shutil.which("git", path=PATH)
        (folder / "git").write_text(
            f'#!/bin/sh\n{{ printf "%s\\0" "$@"; printf "\\1\\0"; }} >> {self._record}\nexec {real} "$@"\n'
        )
        (folder / "git").chmod(0o755)
        self.path = f"{folder}:{PATH}"

    def calls(self) -> Iterator[list[str]]:
        """The arguments of each call since the last time, from its subcommand on."""
        text = self._record.read_bytes().decode("utf-8", "surrogateescape") if self._record.exists() else ""
        self._record.unlink(missing_ok=True)
        for call in text.split("\0\1\0")[:-1]:
            words = call.split("\0")
            first = next(number for number, word in enumerate(words) if not word.startswith("--"))
            yield words[first:]


def unsafe(call: list[str]) -> list[str]:
    """The words of a call that could have come from outside and that nothing keeps from being options."""
    command, words = call[0], call[1:]
    if command in ("worktree", "bundle"):
        words = words[1:]
    if "--end-of-options" in words:
        words = words[: words.index("--end-of-options")]
        previous = ["", *words]
        return [
            word
            for word, before in zip(words, previous, strict=False)
            if not word.startswith("-") and before not in ("-b", "-n") and not PLAIN.fullmatch(word)
        ]
    allowed = UNMARKED.get(command)
    values = [word for word in words if not word.startswith("-")]
    if allowed is None:
        return [command, *values]
    return [value for value in values if not allowed.fullmatch(value)]


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorder]:
    """In front on our own PATH too, which is where GitPython looks."""
    made = Recorder(tmp_path_factory.mktemp("recorder") / "bin")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PATH", made.path)
        yield made


async def whole_way(project: Project, recorder: Recorder) -> None:
    repository = project.repository(path=recorder.path)
    await repository.recover()
    await repository.maintain_once()
    await repository.hooks_path()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    (workspace.tree / "--output=x").write_text("fix")
    git(workspace.tree, "add", "fix")
    git(workspace.tree, "commit", "-q", "-m", "own")
    change = await repository.collect(workspace, message="--Fix")
    await repository.load(workspace, base_sha=change.base_sha, head_sha=change.head_sha)
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    await repository.merged(head_sha=change.head_sha, base_sha=change.base_sha)
    await repository.behind(change.base_sha)
    facts = await repository.facts(sha=change.base_sha[:9], version="1.0", ref="main")
    assert facts.commit is not None
    (workspace.tree / "more").write_text("more")
    await repository.dispose(1)
    project.commit({"later": "x"})
    await repository.maintain_once()
    await repository.prepare(2, commit=change.base_sha)
    await project.repository(path=recorder.path, min_free_bytes=0).dispose(2)


async def test_every_call_of_the_whole_way_is_marked(tmp_path: Path, recorder: Recorder) -> None:
    """Every git command we run either says where its options end before anything from outside, or gets full
    object ids and names of ours alone; nothing is run that this test does not know."""
    project = make_project(tmp_path)
    list(recorder.calls())
    await whole_way(project, recorder)
    calls = list(recorder.calls())
    assert {"fetch", "push", "worktree", "checkout", "bundle", "diff", "fast-import"} <= {c[0] for c in calls}
    assert [(call, found) for call in calls if (found := unsafe(call))] == []
    pushed = [word for call in calls if call[0] == "push" for word in call[call.index("--end-of-options") :]]
    assert all(re.fullmatch(rf"{SHA.pattern}:refs/heads/formica/issue-1", word) for word in pushed[2:])


async def test_the_recorder_would_tell(tmp_path: Path) -> None:
    """Positive control: a call with a foreign word among its options is seen."""
    assert unsafe(["fetch", "-q", "origin", "--upload-pack=x"]) != []
    assert unsafe(["rev-parse", "--verify", "HEAD"]) == ["HEAD"]
    assert unsafe(["log", "main", "--end-of-options"]) == []
    assert unsafe(["push", "$(x)", "--end-of-options"]) == ["$(x)"]
    assert unsafe(["diff", "-q", "--end-of-options", "--output=x"]) == []


@settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(texts=st.lists(TEXT, min_size=8, max_size=8))
def test_whatever_is_said_stays_data(project: Project, recorder: Recorder, texts: list[str]) -> None:
    """Shas, versions, refs, branches and addresses of any text are looked up or refused: no call has them
    among its options, no program of theirs runs, no file appears and no ref moves."""
    before = git(project.origin, "for-each-ref")
    sha, version, ref, branch, base, head, expected, address = texts
    list(recorder.calls())
    anyio.run(say, project, recorder, (sha, version, ref, branch, base, head, expected, address))
    assert [(call, found) for call in recorder.calls() if (found := unsafe(call))] == []
    assert git(project.origin, "for-each-ref") == before
    for folder in (Path("/"), Path.cwd(), project.state, project.checkout):
        assert not (folder / "fired").exists()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """One with a workspace."""
    made = make_project(tmp_path_factory.mktemp("arguments"))
    anyio.run(partial(made.repository().prepare, 1, commit=None))
    return made


async def say(project: Project, recorder: Recorder, texts: tuple[str, ...]) -> None:
    sha, version, ref, branch, base, head, expected, address = texts
    repository = project.repository(path=recorder.path)
    workspace = await repository.find(1)
    assert workspace is not None
    acts: list[Callable[[], Awaitable[object]]] = [
        lambda: repository.prepare(7, commit=sha),
        lambda: repository.load(workspace, base_sha=base, head_sha=head),
        lambda: repository.push(workspace, head_sha=head, branch=branch, expected=expected),
        lambda: repository.remote_branch(branch),
        lambda: repository.merged(head_sha=head, base_sha=base),
        lambda: repository.behind(base),
        lambda: project.repository(address, path=recorder.path).refresh(),
        lambda: project.repository(default_branch=branch, path=recorder.path).refresh(),
        lambda: repository.facts(sha=sha, version=version, ref=ref),
    ]
    for act in acts:
        try:
            await act()
        except FormicaError:
            continue
    await repository.dispose(7)
