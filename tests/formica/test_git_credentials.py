"""A credential reaches git through a pipe and lies nowhere; a missing one fails at once instead of asking."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from formica.errors import FormicaError, NeedsOperator, Retryable
from tests.fakes.git_http import GitHttp
from tests.fakes.repositories import PATH, Project, git, make_project

TOKEN = "ghp_planted0TOKEN9value8with7enough6entropy"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def holding(folder: Path, secret: bytes) -> list[str]:
    return [
        str(path)
        for path in folder.rglob("*")
        if secret in os.fsencode(path.name) or (path.is_file() and secret in path.read_bytes())
    ]


async def test_a_token_in_the_url_lies_nowhere(
    project: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a token in the source's and the forge's URL the whole way works, and the token is in no file below
    the state folder, no process's arguments, no output and no log; nor is it after a failure."""
    caplog.set_level(logging.DEBUG)
    with GitHttp(tmp_path, user="robot", password=TOKEN) as server:
        address = server.url("origin.git", f"robot:{TOKEN}")
        repository = project.repository(address, push_to=address)
        await repository.recover()
        await repository.maintain_once()
        workspace = await repository.prepare(1, commit=None)
        (workspace.tree / "fix").write_text("fix")
        change = await repository.collect(workspace, message="Fix")
        await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
        assert await repository.remote_branch("formica/issue-1") == change.head_sha
        await repository.facts(sha=change.base_sha, version=None, ref="main")
        said = []
        for wrong in (server.url("nowhere.git", f"robot:{TOKEN}"), server.url("origin.git", f"x:{TOKEN}")):
            with pytest.raises(FormicaError) as caught:
                await (
                    Project(project.checkout, project.origin, tmp_path / "other").repository(wrong).refresh()
                )
            said += [str(caught.value), repr(caught.value)]
    assert 200 in server.answered
    assert server.argument_leaks == []
    assert holding(project.state, TOKEN.encode()) == []
    assert holding(tmp_path / "other", TOKEN.encode()) == []
    shown = capfd.readouterr()
    assert TOKEN not in "".join([*said, caplog.text, shown.out, shown.err, repr(repository)])


@pytest.mark.parametrize("credential", ["", "robot:expired"])
async def test_a_missing_or_expired_token_fails_at_once(
    project: Project, tmp_path: Path, credential: str
) -> None:
    """Where the server wants another credential nobody is asked: the call fails within five seconds, saying
    that it was the credential."""
    with GitHttp(tmp_path, user="robot", password=TOKEN) as server:
        started = time.monotonic()
        with pytest.raises(Retryable, match=r"(could not read Username|Authentication failed)"):
            await project.repository(server.url("origin.git", credential)).refresh()
        assert time.monotonic() - started < 5
    assert set(server.answered) == {401}


async def test_an_unknown_host_key_fails_at_once(project: Project, tmp_path: Path) -> None:
    """ssh is told never to ask: with anything but batch mode and strict checking this one would wait."""
    programs = tmp_path / "bin"
    programs.mkdir()
    ssh = programs / "ssh"
    ssh.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-oBatchMode=yes*-oStrictHostKeyChecking=yes*)\n'
        "  echo 'Host key verification failed.' >&2; exit 255;;\n"
        "esac\nexec sleep 60\n"
    )
    ssh.chmod(0o755)
    started = time.monotonic()
    repository = project.repository("git@example.invalid:a/b.git", path=f"{programs}:{PATH}")
    with pytest.raises(Retryable, match=r"reach the repository: .*(Host key|remote repository)"):
        await repository.refresh()
    assert time.monotonic() - started < 5


async def test_a_server_that_sends_elsewhere_is_not_followed(project: Project, tmp_path: Path) -> None:
    """Settings a source could smuggle in name no other host: a URL of another protocol in its place is not
    fetched."""
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "empty.git")
    for address in (f"ext::sh -c touch% {tmp_path}/fired", "fd::17", "-u./x"):
        with pytest.raises((FormicaError, NeedsOperator)):
            await project.repository(address).refresh()
    assert not (tmp_path / "fired").exists()


async def test_a_person_who_pushed_to_our_branch_is_never_overwritten(
    project: Project, tmp_path: Path
) -> None:
    """A commit that a person put on the branch, on top of ours or instead of it, stays; the push stops, the
    work is still here and goes to quarantine when the item is removed."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    change = await repository.collect(workspace, message="Fix")
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    git(tmp_path, "clone", "-q", "-b", "formica/issue-1", str(project.origin), "person")
    git(tmp_path / "person", "commit", "-q", "--allow-empty", "-m", "a person's")
    git(tmp_path / "person", "push", "-q", "origin", "HEAD")
    theirs = git(tmp_path / "person", "rev-parse", "HEAD")
    (workspace.tree / "fix").write_text("better")
    better = await repository.collect(workspace, message="Better")
    for expected in (None, change.head_sha, theirs):
        with pytest.raises(NeedsOperator, match=r"(somebody else|rewritten)"):
            await repository.push(
                workspace, head_sha=better.head_sha, branch="formica/issue-1", expected=expected
            )
        assert git(project.origin, "rev-parse", "refs/heads/formica/issue-1") == theirs
    await repository.dispose(1)
    (bundle,) = (project.state / "quarantine").iterdir()
    git(tmp_path / "person", "fetch", "-q", str(bundle), "refs/salvage/*:refs/salvage/*")
    names = git(tmp_path / "person", "for-each-ref", "--format=%(refname)", "refs/salvage").split()
    assert "better" in {git(tmp_path / "person", "show", f"{name}:fix") for name in names}
