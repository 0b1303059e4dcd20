"""Cleaning up loses nothing: what is removed can be restored from quarantine, and is gone where it was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import pytest

from formica.errors import NeedsOperator
from formica.ports import Workspace
from tests.fakes.repositories import Project, fingerprint, git, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path, {".gitignore": "*.local\n", "README.md": "hello\n", "src/app.py": "1\n"})


def restored(project: Project, folder: Path) -> set[bytes]:
    """The bytes of every file in every version that the quarantine holds, fetched from its bundles by plain
    git into a clone of the origin, or read where a whole folder was kept."""
    git(folder, "clone", "-q", str(project.origin), "restored")
    contents: set[bytes] = set()
    for number, kept in enumerate(sorted((project.state / "quarantine").iterdir())):
        if kept.is_dir():
            contents |= {path.read_bytes() for path in kept.rglob("*") if path.is_file()}
            continue
        git(folder / "restored", "fetch", "-q", str(kept), f"refs/salvage/*:refs/heads/salvaged-{number}/*")
    listed = git(folder / "restored", "rev-list", "--objects", "--branches=salvaged-*").split("\n")
    for sha in filter(None, (line.partition(" ")[0] for line in listed)):
        if git(folder / "restored", "cat-file", "-t", sha) == "blob":
            contents.add(git(folder / "restored", "cat-file", "blob", sha).encode() + b"\n")
    return contents


def uncommitted(tree: Path) -> None:
    (tree / "README.md").write_text("precious\n")


def untracked(tree: Path) -> None:
    (tree / "new").write_text("precious\n")


def ignored_but_wanted(tree: Path) -> None:
    (tree / "notes.local").write_text("precious\n")


def unpushed(tree: Path) -> None:
    (tree / "new").write_text("precious\n")
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", "work")
    git(tree, "rm", "-q", "new")
    git(tree, "commit", "-q", "-m", "and removed again")


def other_branch(tree: Path) -> None:
    git(tree, "checkout", "-q", "-b", "agents/own")
    unpushed(tree)
    git(tree, "checkout", "-q", "formica/issue-1")
    git(tree, "pack-refs", "--all")


def stash(tree: Path) -> None:
    for text in ("precious\n", "the newer one\n"):
        (tree / "README.md").write_text(text)
        git(tree, "stash", "-q")


def detached(tree: Path) -> None:
    git(tree, "checkout", "-q", "--detach")
    unpushed(tree)


def locked_index(tree: Path) -> None:
    """The agent's own commit fails on a lock, as when another of its commands is at work."""
    (tree / "new").write_text("precious\n")
    lock = tree.parent / "repo.git" / "worktrees" / "tree" / "index.lock"
    lock.write_text("")
    with pytest.raises(AssertionError, match=r"index\.lock"):
        git(tree, "add", "-A")


def locked_worktree(tree: Path) -> None:
    git(tree, "worktree", "lock", str(tree))
    (tree / "new").write_text("precious\n")


def own_worktree(tree: Path) -> None:
    git(tree, "worktree", "add", "-q", "-b", "second", str(tree.parent / "run" / "second"))
    unpushed(tree.parent / "run" / "second")


def nested_repository(tree: Path) -> None:
    (tree / "vendor").mkdir()
    git(tree / "vendor", "init", "-q")
    (tree / "vendor" / "file").write_text("precious\n")


def corrupted(tree: Path) -> None:
    """The agent broke its own repository."""
    (tree / "new").write_text("precious\n")
    (tree.parent / "repo.git" / "HEAD").unlink()
    (tree.parent / "repo.git" / "config").write_text("[nonsense")


def pipe_among_objects(tree: Path) -> None:
    """A pipe in the object store, on which every reader would wait for ever."""
    untracked(tree)
    os.mkfifo(tree.parent / "repo.git" / "objects" / "pack" / "pack-1.idx")


def borrowing_elsewhere(tree: Path) -> None:
    untracked(tree)
    info = tree.parent / "repo.git" / "objects" / "info"
    (info / "alternates").write_text((info / "alternates").read_text() + "/\n")


CASES = [
    *(uncommitted, untracked, ignored_but_wanted, unpushed, other_branch, stash, detached),
    *(locked_index, locked_worktree, own_worktree, nested_repository),
    *(corrupted, pipe_among_objects, borrowing_elsewhere),
]
WHOLE = (pipe_among_objects, borrowing_elsewhere)
"""Cases whose object store is never opened: the folder itself is kept."""


@pytest.mark.parametrize("leave", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("way", ["dispose", "prepare"])
async def test_what_is_removed_can_be_restored(
    project: Project, tmp_path: Path, leave: Callable[[Path], None], way: str
) -> None:
    """Removed or replaced, a workspace's only copy of something is in quarantine, from where plain git brings
    it back; its folder, refs and registration are gone."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    leave(workspace.tree)
    if way == "dispose":
        await repository.dispose(1)
        assert not workspace.root.exists()
        (mirror,) = (project.state / "mirrors").iterdir()
        assert git(mirror, "for-each-ref", "refs/formica/keep") == ""
        assert git(mirror, "worktree", "list", "--porcelain").count("worktree ") == 1
    else:
        fresh = await repository.prepare(1, commit=None)
        assert git(fresh.tree, "status", "--porcelain", "--ignored") == ""
        assert git(fresh.tree, "stash", "list") == ""
        assert sorted(git(fresh.tree, "branch", "--format=%(refname:short)").split()) == [
            "formica/issue-1",
            "main",
        ]
    assert list((project.state / "trash").iterdir()) == []
    (kept,) = (project.state / "quarantine").iterdir()
    assert kept.is_dir() == (leave in WHOLE)
    assert b"precious\n" in restored(project, tmp_path)


async def test_a_locked_index_does_not_lose_the_agents_work(project: Project) -> None:
    """An agent that ended because its commit met a lock left its work in the tree: that is the change."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    locked_index(workspace.tree)
    change = await repository.collect(workspace, message="Fix")
    assert [(file.path, file.status) for file in change.files] == [("new", "A")]


async def test_ignored_files_of_published_work_are_kept_too(project: Project, tmp_path: Path) -> None:
    """After the change itself was pushed the small files that the project ignores still go to quarantine."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix\n")
    ignored_but_wanted(workspace.tree)
    change = await repository.collect(workspace, message="Fix")
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    await repository.dispose(1)
    assert b"precious\n" in restored(project, tmp_path)


async def test_a_process_in_the_tree_does_not_make_it_lose(project: Project, tmp_path: Path) -> None:
    """A process of somebody's that sits in the tree and holds a file open changes nothing: the work is saved
    and the folder goes."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    untracked(workspace.tree)
    code = "import sys; f = open('held', 'w'); f.write('x'); print(1, flush=True); sys.stdin.read()"
    async with await anyio.open_process(
        [sys.executable, "-c", code], cwd=workspace.tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        assert user.stdin is not None
        await user.stdout.receive()
        await repository.dispose(1)
        assert not workspace.root.exists()
        await user.stdin.aclose()
        assert await user.wait() == 0
    assert b"precious\n" in restored(project, tmp_path)


async def test_a_quarantine_that_fails_blocks_the_removal(project: Project) -> None:
    """Where nothing can be saved nothing is removed: the workspace stays, and a person is told."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    pipe_among_objects(workspace.tree)
    (project.state / "quarantine").write_text("in the way")
    with pytest.raises((NeedsOperator, OSError)):
        await repository.dispose(1)
    assert await repository.find(1) == workspace
    (project.state / "quarantine").unlink()
    await repository.dispose(1)
    (kept,) = (project.state / "quarantine").iterdir()
    assert (kept / "repo.git").is_dir()


async def test_an_unreachable_source_does_not_stop_what_is_local(project: Project) -> None:
    """Collecting and cleaning up need the mirror alone: they work while the source is away, after a restart
    too."""
    workspace = await project.repository().prepare(1, commit=None)
    untracked(workspace.tree)
    project.origin.rename(project.origin.with_name("away.git"))
    restarted = project.repository()
    assert not (await restarted.collect(workspace, message="Fix")).empty
    await restarted.dispose(1)
    assert not workspace.root.exists()
    assert len(list((project.state / "quarantine").iterdir())) == 1
    await restarted.dispose(1)


async def test_two_acts_on_one_issue_wait_for_each_other(project: Project) -> None:
    """Preparing, finding and removing one issue at the same time never meet in one tree: all succeed, and
    what is left is one whole workspace or none."""
    repository = project.repository()
    async with anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(partial(repository.prepare, 1, commit=None))
            group.start_soon(repository.dispose, 1)
    found = await repository.find(1)
    assert found is None or git(found.tree, "status", "--porcelain") == ""
    assert list((project.state / "trash").iterdir()) == []


async def test_forty_rounds_of_four(project: Project) -> None:
    """Four workspaces at a time made and removed, forty times over (`bench/git.py --rounds 500` for more): no
    failure, every one on its branch, no stray branch, nothing left anywhere."""
    repository = project.repository()
    before = git(project.origin, "for-each-ref")
    made: list[Workspace] = []

    async def make(issue_number: int) -> None:
        made.append(await repository.prepare(issue_number, commit=None))

    for _ in range(40):
        async with anyio.create_task_group() as group:
            for issue_number in range(1, 5):
                group.start_soon(make, issue_number)
        async with anyio.create_task_group() as group:
            for issue_number in range(1, 5):
                group.start_soon(repository.dispose, issue_number)
    assert [f"formica/issue-{w.issue_number}" for w in made] == [w.branch for w in made]
    assert len(made) == 160
    for folder in ("items", "trash", "quarantine"):
        assert list((project.state / folder).iterdir()) == []
    (mirror,) = (project.state / "mirrors").iterdir()
    assert git(mirror, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(project.origin, "for-each-ref") == before


async def test_a_checkout_in_use_stays_byte_identical(project: Project, tmp_path: Path) -> None:
    """With uncommitted, staged, untracked and stashed work, hooks of its own, a hooks path and a linked
    worktree, the maintainer's checkout has the same bytes, inodes and times after many runs."""
    tree = project.checkout
    (tree / "hooks").mkdir()
    for hook in (tree / "hooks" / "pre-commit", tree / ".git" / "hooks" / "post-checkout"):
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'fired'}\n")
        hook.chmod(0o755)
    stash(tree)
    git(tree, "config", "core.hooksPath", "hooks")
    git(tree, "worktree", "add", "-q", "--no-checkout", str(tmp_path / "linked"), "-b", "linked")
    (tree / "README.md").write_text("staged\n")
    git(tree, "add", "README.md")
    (tree / "README.md").write_text("uncommitted\n")
    (tree / "new").write_text("untracked\n")
    (tmp_path / "fired").unlink(missing_ok=True)
    before = fingerprint(tree)
    for round_number in range(3):
        repository = project.repository()
        await repository.recover()
        await repository.maintain_once()
        for issue_number in (1, 2):
            workspace = await repository.prepare(issue_number, commit=None)
            (workspace.tree / "fix").write_text(f"{round_number}")
            change = await repository.collect(workspace, message="Fix")
            branch = f"formica/issue-{issue_number}-{round_number}"
            await repository.push(workspace, head_sha=change.head_sha, branch=branch, expected=None)
            assert await repository.merged(head_sha=change.head_sha, base_sha=change.base_sha) is None
            await repository.facts(sha=change.base_sha, version="1", ref="linked")
            assert await repository.hooks_path() == "hooks"
            await repository.dispose(issue_number)
    assert fingerprint(tree) == before
    assert not (tmp_path / "fired").exists()
