"""What a killed daemon left is put right at the next start, and nothing that is not ours is touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formica.adapters.items import ItemFolders
from formica.adapters.recovery import Recovery
from formica.errors import NeedsOperator, Retryable
from tests.fakes.repositories import Project, fingerprint, git, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def marked(folder: Path, **facts: object) -> Path:
    """A folder as formica makes them, with a file in it."""
    known = {
        "issue_number": 1,
        "base_sha": "1" * 40,
        "branch": None,
        "root": str(folder),
        "mirror": "/nowhere",
        "state": "making",
    }
    for name in ("repo.git", "tree", "run"):
        (folder / name).mkdir(parents=True)
    (folder / "tree" / "work").write_text("x")
    (folder / "formica-item.json").write_text(json.dumps(known | facts))
    return folder


def decoy(folder: Path, kind: str, outside: Path, number: int) -> None:
    """Something that is not ours to delete, in a place where ours are."""
    match kind:
        case "plain":
            folder.mkdir()
        case "file":
            folder.write_text("keep")
            return
        case "link":
            marked(outside / f"linked-{folder.parent.name}{number}", issue_number=number)
            folder.symlink_to(outside / f"linked-{folder.parent.name}{number}")
            return
        case "linked-marker":
            folder.mkdir()
            real = (
                marked(outside / f"marked-{folder.parent.name}{number}", issue_number=number)
                / "formica-item.json"
            )
            (folder / "formica-item.json").symlink_to(real)
        case "foreign-marker":
            folder.mkdir()
            (folder / "formica-item.json").write_text('{"issue_number": "x"}')
        case "wrong-number":
            marked(folder, issue_number=number + 1_000)
        case "ready":
            marked(folder, issue_number=number, state="ready")
    (folder / "precious").write_text("keep")


DECOYS = ("plain", "file", "link", "linked-marker", "foreign-marker", "wrong-number", "ready")


@settings(max_examples=60, deadline=None)
@given(
    items=st.lists(st.sampled_from([*DECOYS, "half-made"]), max_size=8),
    trash=st.lists(st.sampled_from(["plain", "file", "link", "linked-marker", "ours"]), max_size=5),
    warm=st.lists(st.sampled_from(["plain", "link", "half-made", "finished"]), max_size=4),
)
def test_only_what_is_ours_and_unowned_goes(
    tmp_path_factory: pytest.TempPathFactory, items: list[str], trash: list[str], warm: list[str]
) -> None:
    """Deleted are half-made folders and what was on its way out, with our marker, in our places. Files, links
    into other folders, folders of people, foreign markers and every workspace an agent may have used stay,
    and nothing a link inside leads to is touched."""
    folder = tmp_path_factory.mktemp("sweep")
    outside = folder / "outside"
    outside.mkdir()
    (outside / "home").write_text("keep")
    state = folder / "state"
    gone, kept = [], []
    for place, kinds in (("items", items), ("trash", trash), ("warm", warm)):
        (state / place).mkdir(parents=True)
        for number, kind in enumerate(kinds, start=1):
            path = state / place / str(number)
            if kind in ("half-made", "ours", "finished"):
                issue = 0 if place == "warm" else number
                marked(path, issue_number=issue, state="warm" if kind == "finished" else "making")
                (path / "tree" / "way-out").symlink_to(outside)
            else:
                decoy(path, kind, outside, number)
            (kept if kind in (*DECOYS, "finished") else gone).append(path)
    kept.append(outside)
    before = [fingerprint(path) for path in kept]
    folders = ItemFolders(state)
    for junk in Recovery(state, folders).run():
        folders.delete(junk)
    assert [path for path in gone if os.path.lexists(path)] == []
    assert [fingerprint(path) for path in kept] == before
    assert all(os.path.lexists(path) for path in kept)


def test_a_path_that_is_given_is_checked_again(tmp_path: Path) -> None:
    """Whatever the list says, only a marked folder of the trash itself is deleted."""
    folders = ItemFolders(tmp_path / "state")
    elsewhere = marked(tmp_path / "elsewhere")
    inside = marked(tmp_path / "state" / "items" / "1", state="ready")
    for path in (elsewhere, inside, tmp_path, tmp_path / "state" / "trash" / ".." / "items" / "1"):
        folders.delete(path)
    assert (elsewhere / "tree" / "work").exists()
    assert (inside / "tree" / "work").exists()


async def test_five_hundred_stale_trees_do_not_delay_the_start(project: Project) -> None:
    """With 500 trees to remove the daemon's first workspace is ready in less than two seconds, and they go in
    the background."""
    for number in range(250):
        marked(project.state / "items" / str(1_000 + number), issue_number=1_000 + number)
        marked(project.state / "trash" / f"t{number}")
    repository = project.repository()
    await repository.refresh()
    started = time.monotonic()
    assert await repository.recover() == 500
    async with anyio.create_task_group() as group:
        group.start_soon(repository.maintain)
        await repository.prepare(1, commit=None)
        ready = time.monotonic() - started
        with anyio.fail_after(60):
            while await anyio.to_thread.run_sync(lambda: list((project.state / "trash").iterdir())):
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert ready < 2
    assert [path.name for path in (project.state / "items").iterdir()] == ["1"]


async def test_a_crash_while_deleting_is_made_good(project: Project) -> None:
    """A folder whose deletion was cut short still carries its marker, and goes at the next start."""
    doomed = marked(project.state / "trash" / "1-x")
    (doomed / "tree" / "work").unlink()
    code = (
        "import os, sys; from pathlib import Path; from formica.adapters import items\n"
        "root = Path(sys.argv[1]); n = 0\n"
        "def audit(event, arguments):\n"
        "    global n\n"
        "    if event in ('os.remove', 'os.rmdir'):\n"
        "        n += 1\n"
        "        if n == 3: os._exit(9)\n"
        "sys.addaudithook(audit); items.delete_marked(root)\n"
    )
    argv = [sys.executable, "-c", code, str(doomed)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = await anyio.run_process(argv, env=environment, check=False)
    assert ended.returncode == 9
    assert (doomed / "formica-item.json").exists()
    repository = project.repository()
    assert await repository.recover() == 1
    await repository.clean()
    assert not doomed.exists()


async def test_a_moved_state_folder_goes_on(project: Project, tmp_path: Path) -> None:
    """After the state folder was moved its workspaces are whole again: the approved change is found, the
    agent's work is collected, and git works in the tree."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    change = await repository.collect(workspace, message="Fix")
    (workspace.tree / "more").write_text("more")
    await repository.maintain_once()
    moved = Project(project.checkout, project.origin, tmp_path / "elsewhere" / "state")
    moved.state.parent.mkdir()
    project.state.rename(moved.state)
    repository = moved.repository()
    assert await repository.find(1) is None
    await repository.recover()
    found = await repository.find(1)
    assert found is not None
    assert await repository.load(found, base_sha=change.base_sha, head_sha=change.head_sha) == change
    assert git(found.tree, "status", "--porcelain") == "?? fix\n?? more"
    again = await repository.collect(found, message="Fix")
    assert [file.path for file in again.files] == ["fix", "more"]
    await repository.push(found, head_sha=again.head_sha, branch="formica/issue-1", expected=None)
    await repository.dispose(1)
    assert not found.root.exists()


async def test_a_moved_item_with_planted_links_is_not_written_through(
    project: Project, tmp_path: Path
) -> None:
    """Links and hard links an agent put where our paths are written lead nowhere: what they name stays."""
    victim = tmp_path / "victim"
    victim.write_text("keep")
    repository = project.repository()
    for number in (1, 2):
        workspace = await repository.prepare(number, commit=None)
        (workspace.tree / ".git").unlink()
        if number == 1:
            (workspace.tree / ".git").hardlink_to(victim)
        else:
            info = workspace.root / "repo.git" / "objects" / "info"
            shutil.rmtree(info)
            (tmp_path / "info").mkdir()
            (tmp_path / "info" / "alternates").write_text("keep")
            info.symlink_to(tmp_path / "info")
    moved = Project(project.checkout, project.origin, tmp_path / "moved")
    project.state.rename(moved.state)
    await moved.repository().recover()
    assert victim.read_text() == "keep"
    assert (tmp_path / "info" / "alternates").read_text() == "keep"


@pytest.mark.parametrize(
    "lock", ["packed-refs.lock", "refs/heads/main.lock", "HEAD.lock", "config.lock", "packed-refs.new"]
)
async def test_locks_of_a_dead_git_do_not_stop_the_mirror(project: Project, lock: str) -> None:
    """A lock file that a killed git left in the mirror is removed at the start; a plain git would stop."""
    await project.repository().refresh()
    (mirror,) = (project.state / "mirrors").iterdir()
    (mirror / lock).parent.mkdir(parents=True, exist_ok=True)
    (mirror / lock).write_text("")
    head = project.commit({"README.md": "newer\n"})
    workspace = await project.repository().prepare(1, commit=None)
    assert workspace.base_sha == head
    assert not (mirror / lock).exists()


async def test_a_lock_in_use_is_waited_for(project: Project) -> None:
    """While a git that outlived its daemon still works in the mirror its lock stays, and the act is tried
    again later."""
    await project.repository().refresh()
    (mirror,) = (project.state / "mirrors").iterdir()
    (mirror / "packed-refs.lock").write_text("")
    argv = ["git", f"--git-dir={mirror}", "cat-file", "--batch"]
    async with await anyio.open_process(argv, stdin=subprocess.PIPE) as left:
        with pytest.raises(Retryable, match="still works"):
            await project.repository().refresh()
        assert (mirror / "packed-refs.lock").exists()
        assert left.stdin is not None
        await left.stdin.aclose()
        await left.wait()
    await project.repository().refresh()


async def test_a_half_made_mirror_and_planted_settings_are_put_right(
    project: Project, tmp_path: Path
) -> None:
    """A mirror that was never finished is made again; settings and alternates somebody wrote into it are
    replaced by ours before git runs there."""
    await project.repository().refresh()
    (mirror,) = (project.state / "mirrors").iterdir()
    (mirror / "HEAD").unlink()
    await project.repository().refresh()
    git(mirror, "config", "core.alternateRefsCommand", f"touch {tmp_path / 'fired'}; true")
    git(mirror, "config", "url./elsewhere.insteadOf", str(project.origin))
    git(tmp_path, "init", "-q", "--bare", "other.git")
    (mirror / "objects" / "info" / "alternates").write_text(f"{tmp_path}/other.git/objects\n")
    await project.repository().prepare(1, commit=None)
    assert not (tmp_path / "fired").exists()
    assert not (mirror / "objects" / "info" / "alternates").exists()


async def test_bases_nobody_borrows_are_released(project: Project) -> None:
    """A base kept for an item that a crash removed is released; those of living items stay."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (mirror,) = (project.state / "mirrors").iterdir()
    stale = git(mirror, "commit-tree", "-m", "stale", f"{workspace.base_sha}^{{tree}}")
    git(mirror, "update-ref", f"refs/formica/keep/{stale}", stale)
    restarted = project.repository()
    await restarted.recover()
    await restarted.maintain_once()
    kept = git(mirror, "for-each-ref", "--format=%(objectname)", "refs/formica/keep").split()
    assert kept == [workspace.base_sha]


async def test_below_the_floor_nothing_new_is_begun(project: Project) -> None:
    """Short of disk space a clean pass comes first; when that is not enough, no workspace is made, the reason
    and the numbers are said, and it is tried again later. What exists can still be collected."""
    plenty = project.repository()
    workspace = await plenty.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    await plenty.maintain_once()
    marked(project.state / "trash" / "left")
    free = shutil.disk_usage(project.state).free
    short = project.repository(min_free_bytes=free * 2)
    await short.recover()
    with pytest.raises(Retryable, match=r"held back: \d+ MiB are free .* must be") as caught:
        await short.prepare(2, commit=None)
    assert caught.value.after_seconds == 300
    assert "held back" in (await short.shortage() or "")
    assert not (project.state / "items" / "2").exists()
    assert list((project.state / "trash").iterdir()) == []
    assert list((project.state / "warm").iterdir()) == []
    assert not (await short.collect(workspace, message="Fix")).empty


async def test_a_clean_pass_that_suffices_goes_unnoticed(project: Project, tmp_path: Path) -> None:
    """When deleting what was left makes enough room, the workspace is made."""
    big = marked(project.state / "trash" / "left") / "big"
    size = 64 << 20
    with big.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    free = shutil.disk_usage(project.state).free
    repository = project.repository(min_free_bytes=free + size // 2)
    await repository.recover()
    if await repository.shortage() is None:
        pytest.skip("other programs freed disk space meanwhile")
    await repository.prepare(1, commit=None)
    assert not big.exists()


async def test_a_workspace_has_a_quota(project: Project) -> None:
    """An item that holds more than it may is not collected, and a person is told its number and the limit."""
    repository = project.repository(workspace_bytes=8 << 20)
    workspace = await repository.prepare(7, commit=None)
    (workspace.tree / "fix").write_text("fix")
    await repository.collect(workspace, message="Fix")
    (workspace.root / "repo.git" / "objects" / "junk").write_bytes(b"x" * (9 << 20))
    with pytest.raises(NeedsOperator, match="issue 7 holds more than 8 MiB"):
        await repository.collect(workspace, message="Fix")


async def test_tidying_the_mirror_breaks_no_living_item(project: Project) -> None:
    """Pruned at once, with everything upstream rewritten, the mirror still serves what a living item and its
    collected change borrow."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    change = await repository.collect(workspace, message="Fix")
    git(project.checkout, "commit", "-q", "--amend", "-m", "rewritten")
    git(project.checkout, "push", "-q", "--force", "origin", "main")
    restarted = project.repository(min_free_bytes=1 << 60)
    await restarted.refresh()
    with pytest.raises(Retryable):
        await restarted.prepare(2, commit=None)
    repository = project.repository()
    assert await repository.load(workspace, base_sha=change.base_sha, head_sha=change.head_sha) == change
    assert git(workspace.tree, "fsck", "--connectivity-only", "--no-dangling") == ""
    assert git(workspace.tree, "log", "--format=%H", "main") == workspace.base_sha
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
