"""Worktrees made in advance: fast, given away once, and never in the way."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import anyio
import pytest

from formica.adapters.items import ItemFolders
from tests.fakes.repositories import Project, fingerprint, git, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def warm_folders(project: Project) -> list[Path]:
    folder = project.state / "warm"
    return sorted(folder.iterdir()) if folder.exists() else []


def shown(tree: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of every file of a tree but git's own."""
    return {
        str(path.relative_to(tree)): (
            path.lstat().st_mode,
            str(path.readlink()).encode() if path.is_symlink() else path.read_bytes(),
        )
        for path in sorted(tree.rglob("*"))
        if path.name != ".git" and (path.is_symlink() or path.is_file())
    }


async def until_warm(project: Project) -> Path:
    def usable() -> list[Path]:
        return [item.root for item in ItemFolders(project.state).warm() if item.usable]

    with anyio.fail_after(30):
        while True:
            if found := await anyio.to_thread.run_sync(usable):
                return found[0]
            await anyio.sleep(0.01)


async def test_a_warm_workspace_is_a_cold_one(project: Project) -> None:
    """Moved over added, changed, deleted, retyped and executable files, a worktree made at an older base is
    byte for byte what a cold checkout is, on its own branch with a clean status."""
    project.commit(
        {"gone": "1", "kind": "file", "deep/er/file": "2", ".gitattributes": "*.txt text eol=crlf\n"}
    )
    repository = project.repository()
    await repository.maintain_once()
    (warm,) = warm_folders(project)
    inode = (warm / "tree" / "README.md").stat().st_ino
    (project.checkout / "gone").unlink()
    (project.checkout / "kind").unlink()
    (project.checkout / "kind").symlink_to("README.md")
    (project.checkout / "src" / "app.py").chmod(0o755)
    head = project.commit({"new/file.txt": "a\r\nb\n", "deep/er/file": "3"})
    workspace = await repository.prepare(1, commit=None)
    assert warm_folders(project) == []
    assert (workspace.tree / "README.md").stat().st_ino == inode, "the warm worktree was used"
    cold = await repository.prepare(2, commit=None)
    assert shown(workspace.tree) == shown(cold.tree)
    assert workspace.base_sha == cold.base_sha == head
    assert git(workspace.tree, "status", "--porcelain", "--ignored") == ""
    assert git(workspace.tree, "symbolic-ref", "HEAD") == "refs/heads/formica/issue-1"
    assert git(workspace.tree, "rev-parse", "HEAD", "main").split() == [head, head]
    assert git(workspace.tree, "config", "user.email") == "formica@example.com"
    (workspace.tree / "fix").write_text("fix")
    change = await repository.collect(workspace, message="Fix")
    assert [file.path for file in change.files] == ["fix"]
    (cold.tree / "fix").write_text("fix")
    assert change.head_sha == (await repository.collect(cold, message="Fix")).head_sha


async def test_a_warm_worktree_serves_a_detached_commit_too(project: Project) -> None:
    """A reported commit older than the worktree made in advance is checked out exactly."""
    old = git(project.checkout, "rev-parse", "HEAD")
    project.commit({"later": "x"})
    repository = project.repository()
    await repository.maintain_once()
    workspace = await repository.prepare(1, commit=old)
    assert warm_folders(project) == []
    assert not (workspace.tree / "later").exists()
    assert git(workspace.tree, "rev-parse", "HEAD") == old
    assert git(workspace.tree, "status", "--porcelain") == ""
    assert git(workspace.tree, "rev-parse", "--abbrev-ref", "HEAD") == "HEAD"


async def test_each_is_given_away_once_and_replaced(project: Project) -> None:
    """Of four workspaces at once one gets the warm worktree, the others are cold, and the background makes
    another; an agent's tree never comes back."""
    repository = project.repository()
    async with anyio.create_task_group() as group:
        group.start_soon(repository.maintain)
        first = await until_warm(project)
        inode = (first / "tree").stat().st_ino
        async with anyio.create_task_group() as makers:
            for number in range(1, 5):
                makers.start_soon(partial(repository.prepare, number, commit=None))
        workspaces = [await repository.find(number) for number in range(1, 5)]
        assert [w.tree.stat().st_ino for w in workspaces if w].count(inode) == 1
        assert len({w.tree.stat().st_ino for w in workspaces if w}) == 4
        second = await until_warm(project)
        assert second != first
        for workspace in workspaces:
            assert workspace is not None
            (workspace.tree / "planted").write_text("by an agent")
            await repository.dispose(workspace.issue_number)
        fresh = await repository.prepare(9, commit=None)
        assert not (fresh.tree / "planted").exists()
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    "damage", ["tree", "repo.git/worktrees", "repo.git/objects/info/alternates", "marker"]
)
async def test_a_damaged_one_costs_nothing_but_time(project: Project, damage: str) -> None:
    """A worktree made in advance that does not serve is given up, and the workspace is made cold."""
    repository = project.repository()
    await repository.maintain_once()
    (warm,) = warm_folders(project)
    if damage == "marker":
        (warm / "formica-item.json").write_text("{}")
    else:
        (warm / damage).rename(warm / "elsewhere")
    head = project.commit({"README.md": "newer\n"})
    workspace = await repository.prepare(1, commit=None)
    assert git(workspace.tree, "rev-parse", "HEAD") == head
    assert (workspace.tree / "README.md").read_text() == "newer\n"
    assert git(workspace.tree, "status", "--porcelain") == ""


async def test_settings_planted_in_one_are_gone_before_git_runs(project: Project, tmp_path: Path) -> None:
    """Where there is no isolation somebody could write there: filters, monitors and hooks planted in a
    worktree made in advance do not fire when it is moved."""
    project.commit({".gitattributes": "* filter=evil\n"})
    repository = project.repository()
    await repository.maintain_once()
    (warm,) = warm_folders(project)
    for key in ("filter.evil.smudge", "filter.evil.clean", "core.fsmonitor", "core.sshCommand"):
        git(warm / "repo.git", "config", key, f"touch {tmp_path / 'fired'}; cat")
    (warm / "repo.git" / "info" / "attributes").write_text("* filter=evil\n")
    hook = warm / "repo.git" / "hooks" / "post-checkout"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'fired'}\n")
    hook.chmod(0o755)
    project.commit({"README.md": "newer\n"})
    await repository.prepare(1, commit=None)
    assert not (tmp_path / "fired").exists()
    assert warm_folders(project) == []


@pytest.mark.parametrize("moment", ["filling", "giving"])
async def test_a_crash_at_any_moment_leaves_nothing(project: Project, moment: str) -> None:
    """A worktree half made, or half given away, is removed by the next start and never used."""
    repository = project.repository()
    await repository.maintain_once()
    (warm,) = warm_folders(project)
    marker = warm / "formica-item.json"
    known = json.loads(marker.read_text())
    known["state"] = "making"
    if moment == "giving":
        known |= {"issue_number": 4, "root": str(project.state / "items" / "4"), "branch": "formica/issue-4"}
    marker.write_text(json.dumps(known))
    if moment == "giving":
        (project.state / "items").mkdir(exist_ok=True)
        warm.rename(project.state / "items" / "4")
    restarted = project.repository()
    assert await restarted.recover() == 1
    assert await restarted.find(4) is None
    await restarted.maintain_once()
    assert list((project.state / "trash").iterdir()) == []
    assert not list((project.state / "items").glob("*"))
    (fresh,) = warm_folders(project)
    assert fresh != warm


async def test_a_finished_one_survives_a_restart(project: Project) -> None:
    """A daemon that starts again uses the worktree it made before, after its base was rewritten upstream."""
    repository = project.repository()
    await repository.maintain_once()
    (warm,) = warm_folders(project)
    before = fingerprint(warm / "tree")
    git(project.checkout, "commit", "-q", "--amend", "-m", "rewritten")
    git(project.checkout, "push", "-q", "--force", "origin", "main")
    restarted = project.repository()
    assert await restarted.recover() == 0
    assert fingerprint(warm / "tree") == before
    await restarted.refresh()
    (mirror,) = (project.state / "mirrors").iterdir()
    git(mirror, "gc", "-q", "--prune=now")
    inode = (warm / "tree").stat().st_ino
    workspace = await restarted.prepare(1, commit=None)
    assert workspace.tree.stat().st_ino == inode
    assert workspace.base_sha == git(project.checkout, "rev-parse", "HEAD")
