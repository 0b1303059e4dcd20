"""Mirror, item clones and worktrees, and what comes back from them."""

from __future__ import annotations

import json
import os
import zlib
from functools import partial
from pathlib import Path

import anyio
import pytest

from formica.errors import Broken, NeedsOperator, Refused
from tests.fakes.repositories import Project, fingerprint, git, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


async def test_a_workspace_starts_at_the_fetched_default_branch(project: Project) -> None:
    """The base is what the remote has now, not what the checkout or the mirror had."""
    repository = project.repository()
    await repository.refresh()
    head = project.commit({"README.md": "newer\n"})
    git(project.checkout, "reset", "-q", "--hard", "HEAD~1")
    workspace = await repository.prepare(7, commit=None)
    assert workspace.base_sha == head
    assert workspace.branch == "formica/issue-7"
    assert (workspace.tree / "README.md").read_text() == "newer\n"
    assert git(workspace.tree, "symbolic-ref", "HEAD") == "refs/heads/formica/issue-7"
    assert git(workspace.tree, "status", "--porcelain") == ""
    assert await repository.find(7) == workspace


async def test_a_local_commit_gets_a_detached_workspace(project: Project) -> None:
    """A commit that only the maintainer's clean checkout has can be worked on, detached."""
    (project.checkout / "only-here").write_text("x")
    git(project.checkout, "add", "-A")
    git(project.checkout, "commit", "-q", "-m", "local")
    sha = git(project.checkout, "rev-parse", "HEAD")
    (project.checkout / "README.md").write_text("uncommitted\n")
    repository = project.repository()
    facts = await repository.facts(sha=sha[:10], version=None, ref=None)
    assert facts.commit is not None
    assert facts.commit.exists
    with pytest.raises(Refused) as caught:
        await repository.prepare(3, commit=sha)
    assert caught.value.rule == "dirty_tree_policy"
    git(project.checkout, "checkout", "-q", "README.md")
    os.utime(project.checkout / "README.md")
    workspace = await repository.prepare(3, commit=sha)
    assert (workspace.branch, workspace.base_sha) == (None, sha)
    facts = await repository.facts(sha=sha, version=None, ref=None)
    assert facts.commit is not None
    assert facts.commit.exists
    assert not facts.commit.on_default_branch
    with pytest.raises(NeedsOperator, match="neither"):
        await repository.prepare(4, commit="1" * 40)


async def test_a_dirty_checkout_stops_only_what_rests_on_it(project: Project) -> None:
    """Uncommitted work is no matter where the remote is the source, and refused where the checkout is."""
    (project.checkout / "README.md").write_text("uncommitted\n")
    await project.repository().refresh()
    git(project.checkout, "remote", "remove", "origin")
    with pytest.raises(Refused, match=r"README\.md") as caught:
        await project.repository().refresh()
    assert caught.value.rule == "dirty_tree_policy"
    git(project.checkout, "checkout", "-q", "README.md")
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    assert workspace.base_sha == git(project.checkout, "rev-parse", "HEAD")


async def test_the_checkout_stays_byte_identical(project: Project, tmp_path: Path) -> None:
    """Files, index, stash, refs, logs, hooks and configuration of the checkout never change, and none of
    its hooks, filters or monitors runs, with the checkout as a pointer and as the source itself."""
    fired = tmp_path / "fired"
    (project.checkout / "README.md").write_text("stashed\n")
    git(project.checkout, "stash", "-q")
    (project.checkout / ".gitattributes").write_text("*.md filter=evil diff=evil\n")
    project.commit({})
    for key in ("filter.evil.clean", "filter.evil.smudge", "core.fsmonitor", "diff.evil.textconv"):
        git(project.checkout, "config", key, f"touch {fired}; cat")
    git(project.checkout, "config", "core.hooksPath", ".git/hooks")
    hook = project.checkout / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {fired}\n")
    hook.chmod(0o755)
    os.utime(project.checkout / "README.md")  # makes git look at the bytes, through the filter if it could
    fired.unlink(missing_ok=True)
    for remote in (True, False):
        if not remote:
            git(project.checkout, "remote", "remove", "origin")
            fired.unlink(missing_ok=True)
        before = fingerprint(project.checkout)
        repository = project.repository()
        for issue_number in (1, 2):
            workspace = await repository.prepare(issue_number, commit=None)
            (workspace.tree / "new.txt").write_text("new")
            change = await repository.collect(workspace, message="Add")
            await repository.push(
                workspace,
                head_sha=change.head_sha,
                branch=f"formica/{'a' if remote else 'b'}-{issue_number}",
                expected=None,
            )
            await repository.facts(sha=change.base_sha, version="1", ref="main")
            await repository.dispose(issue_number)
        assert fingerprint(project.checkout) == before
        assert not fired.exists()
    git(project.checkout, "status")
    assert fired.exists(), "positive control: plain git fires the plants"


async def test_parallel_workspaces(project: Project) -> None:
    """Four at once, five times over: all come up on their own branch and leave nothing behind."""
    repository = project.repository()
    for _ in range(5):
        async with anyio.create_task_group() as group:
            for issue_number in range(1, 5):
                group.start_soon(partial(repository.prepare, issue_number, commit=None))
        found = [await repository.find(n) for n in range(1, 5)]
        assert [w.branch for w in found if w] == [f"formica/issue-{n}" for n in range(1, 5)]
        async with anyio.create_task_group() as group:
            for issue_number in range(1, 5):
                group.start_soon(repository.dispose, issue_number)
    assert list((project.state / "items").iterdir()) == []
    assert list((project.state / "trash").iterdir()) == []
    (mirror,) = (project.state / "mirrors").iterdir()
    assert git(mirror, "for-each-ref", "refs/formica/keep") == ""
    assert not (project.state / "quarantine").exists() or not list((project.state / "quarantine").iterdir())


async def test_pruning_does_not_break_a_living_item(project: Project) -> None:
    """The base stays in the mirror while an item borrows it, though its branch is rewritten and pruned."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    git(project.checkout, "commit", "-q", "--amend", "-m", "rewritten")
    git(project.checkout, "push", "-q", "--force", "origin", "main")
    await repository.refresh()
    (mirror,) = (project.state / "mirrors").iterdir()
    git(mirror, "gc", "-q", "--prune=now")
    (workspace.tree / "a").write_text("a")
    assert (await repository.collect(workspace, message="m")).base_sha == workspace.base_sha


async def test_nothing_unpushed_is_lost(project: Project) -> None:
    """Commits, stashes, uncommitted, untracked and ignored files are in a verified bundle before a
    workspace is replaced."""
    project.commit({".gitignore": "*.local\n"})
    repository = project.repository()
    workspace = await repository.prepare(5, commit=None)
    (workspace.tree / "committed").write_text("1")
    git(workspace.tree, "add", "-A")
    git(workspace.tree, "commit", "-q", "-m", "agent's own")
    (workspace.tree / "README.md").write_text("stashed")
    git(workspace.tree, "stash", "-q")
    (workspace.tree / "untracked").write_text("2")
    (workspace.tree / "notes.local").write_text("3")
    await repository.prepare(5, commit=None)
    (bundle,) = (project.state / "quarantine").iterdir()
    git(project.checkout, "bundle", "verify", "-q", str(bundle))
    git(project.checkout, "fetch", "-q", str(bundle), "refs/salvage/*:refs/salvage/*")
    names = git(project.checkout, "for-each-ref", "--format=%(refname)", "refs/salvage").split()
    held = {file for name in names for file in git(project.checkout, "ls-tree", "--name-only", name).split()}
    assert {"committed", "untracked", "notes.local"} <= held
    assert "stashed" in {git(project.checkout, "show", f"{name}:README.md") for name in names}


async def test_published_and_untouched_workspaces_leave_no_bundle(project: Project) -> None:
    """What a remote has, or what was never changed, is not saved again."""
    repository = project.repository()
    await repository.prepare(1, commit=None)
    await repository.dispose(1)
    workspace = await repository.prepare(2, commit=None)
    (workspace.tree / "fix").write_text("fix")
    git(workspace.tree, "add", "-A")
    git(workspace.tree, "commit", "-q", "-m", "agent's own")
    change = await repository.collect(workspace, message="Fix")
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-2", expected=None)
    await repository.dispose(2)
    assert list((project.state / "quarantine").iterdir()) == []


async def test_a_workspace_that_cannot_be_bundled_is_moved_whole(project: Project) -> None:
    """Where no bundle can be made the folder itself goes to quarantine."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    (workspace.tree / ".GIT").mkdir()
    (workspace.tree / ".GIT" / "config").write_text("x")
    deep = workspace.tree
    for _ in range(220):
        deep = deep / "d"
        deep.mkdir()
    await repository.dispose(1)
    (kept,) = (project.state / "quarantine").iterdir()
    assert (kept / "tree" / "fix").read_text() == "fix"
    assert not workspace.root.exists()


async def test_half_made_and_moved_workspaces_are_replaced(project: Project) -> None:
    """An unfinished folder, a missing tree or clone and a moved state folder all end in a whole workspace."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    marker = workspace.root / "formica-item.json"
    known = json.loads(marker.read_text())
    for damage in ({"state": "making"}, {"root": "/elsewhere"}):
        marker.write_text(json.dumps(known | damage))
        assert await repository.find(1) is None
        await repository.prepare(1, commit=None)
        assert await repository.find(1) is not None
    for folder in ("tree", "repo.git"):
        (workspace.root / folder).rename(workspace.root / "gone")
        assert await repository.find(1) is None
        await repository.prepare(1, commit=None)
        assert await repository.find(1) is not None


async def test_only_our_own_folders_are_removed(project: Project, tmp_path: Path) -> None:
    """A folder without our marker, with another item's marker, or a link in an item's place is left alone."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    decoy = tmp_path / "precious"
    decoy.mkdir()
    (decoy / "work").write_text("keep me")
    items = project.state / "items"
    (items / "2").symlink_to(decoy)
    (items / "3").mkdir()
    (items / "3" / "work").write_text("keep me")
    (items / "4").mkdir()
    (items / "4" / "formica-item.json").write_bytes((workspace.root / "formica-item.json").read_bytes())
    for issue_number in (2, 3, 4):
        with pytest.raises(NeedsOperator, match="not a folder formica made"):
            await repository.dispose(issue_number)
    (workspace.tree / "out").symlink_to(decoy)
    await repository.dispose(1)
    assert not workspace.root.exists()
    assert (decoy / "work").read_text() == "keep me"
    assert (items / "3" / "work").exists()


async def test_push_moves_only_what_is_ours(project: Project) -> None:
    """Same again is no act; a foreign commit, a deleted branch, the default branch and a checkout are not
    touched."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    change = await repository.collect(workspace, message="Fix")
    head, branch = change.head_sha, "formica/issue-1"
    await repository.push(workspace, head_sha=head, branch=branch, expected=None)
    await repository.push(workspace, head_sha=head, branch=branch, expected=None)
    assert await repository.remote_branch(branch) == head
    assert git(project.origin, "log", "-1", "--format=%an %ae %s", head) == "formica formica@example.com Fix"

    foreign = git(project.checkout, "rev-parse", "HEAD")
    git(project.origin, "update-ref", f"refs/heads/{branch}", foreign)
    with pytest.raises(NeedsOperator, match="somebody else"):
        await repository.push(workspace, head_sha=head, branch=branch, expected=None)
    assert await repository.remote_branch(branch) == foreign
    (workspace.tree / "fix").write_text("better")
    other = await repository.collect(workspace, message="Fix")
    git(project.origin, "update-ref", f"refs/heads/{branch}", head)
    with pytest.raises(NeedsOperator, match="rewritten"):
        await repository.push(workspace, head_sha=other.head_sha, branch=branch, expected=head)
    git(project.origin, "update-ref", "-d", f"refs/heads/{branch}")
    with pytest.raises(NeedsOperator, match="deleted"):
        await repository.push(workspace, head_sha=head, branch=branch, expected=head)
    for forbidden in ("main", "formica/../main", "formica/x:main", "refs/heads/main", "+formica/x"):
        with pytest.raises(Broken):
            await repository.push(workspace, head_sha=head, branch=forbidden, expected=None)
    careless = project.repository(push_to=str(project.checkout))
    with pytest.raises(Refused, match="bare"):
        await careless.push(workspace, head_sha=head, branch=branch, expected=None)


async def test_a_push_goes_to_the_forge_whatever_a_program_wrote(project: Project, tmp_path: Path) -> None:
    """Settings, hooks, refs and a borrowed store planted in the item's folder, in the mirror and in our own
    settings after the change was collected: the approved branch arrives at the configured address, and
    nothing anywhere else."""
    evil = tmp_path / "evil.git"
    git(tmp_path, "clone", "-q", "--bare", str(project.origin), str(evil))
    before = git(evil, "for-each-ref")
    fired = tmp_path / "fired"
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    change = await repository.collect(workspace, message="Fix")
    clean = workspace.root / "in.git"
    (mirror,) = (project.state / "mirrors").iterdir()
    elsewhere = (
        f'[url "{evil}"]\n\tpushInsteadOf = {project.origin}\n\tinsteadOf = {project.origin}\n'
        f"[core]\n\thooksPath = {clean}/hooks\n"
    )
    for config in (clean / "config", mirror / "config", project.state / "git" / "config"):
        with config.open("a") as file:
            file.write(elsewhere)
    (clean / "hooks").mkdir()
    (clean / "hooks" / "pre-push").write_text(f"#!/bin/sh\ntouch {fired}\n")
    (clean / "hooks" / "pre-push").chmod(0o755)
    (clean / "packed-refs").write_text(f"{change.base_sha} refs/formica/collected\n")
    loaded = await repository.load(workspace, base_sha=change.base_sha, head_sha=change.head_sha)
    assert loaded == change
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    assert git(project.origin, "rev-parse", "refs/heads/formica/issue-1") == change.head_sha
    assert git(evil, "for-each-ref") == before
    assert not fired.exists()
    assert await repository.remote_branch("formica/issue-1") == change.head_sha
    assert not list((project.state / "scratch").iterdir()), "what was made for the act is gone"


async def test_the_mirror_is_fetched_from_the_source_alone(project: Project, tmp_path: Path) -> None:
    """A program that reached the mirror's settings does not choose where the next base comes from."""
    evil = tmp_path / "evil.git"
    git(tmp_path, "clone", "-q", "--bare", str(project.origin), str(evil))
    repository = project.repository()
    await repository.refresh()
    newest = project.commit({"README.md": "newest\n"})
    (mirror,) = (project.state / "mirrors").iterdir()
    with (mirror / "config").open("a") as file:
        file.write(f'[url "{evil}"]\n\tinsteadOf = {project.origin}\n')
    assert (await repository.prepare(1, commit=None)).base_sha == newest


@pytest.mark.parametrize("way", ["other bytes", "fifo", "link", "gone", "borrowed"])
async def test_a_change_that_is_not_what_was_collected_is_not_used(
    project: Project, tmp_path: Path, way: str
) -> None:
    """An object with other content, something that is no file, or a store borrowed from elsewhere: neither
    shown nor pushed, and nothing hangs."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    change = await repository.collect(workspace, message="Fix")
    objects = workspace.root / "in.git" / "objects"
    for pack in (objects / "pack").glob("*.pack"):
        content = pack.read_bytes()
        pack.unlink()
        git(workspace.root / "in.git", "--git-dir=.", "unpack-objects", "-q", stdin=content)
    assert await repository.load(workspace, base_sha=change.base_sha, head_sha=change.head_sha) == change
    blob = git(project.checkout, "hash-object", "--stdin", stdin=b"fix")
    loose = objects / blob[:2] / blob[2:]
    content = loose.read_bytes()
    loose.unlink()
    match way:
        case "other bytes":
            loose.write_bytes(zlib.compress(b"blob 4\0evil"))
        case "fifo":
            os.mkfifo(loose)
        case "link":
            (tmp_path / "blob").write_bytes(content)
            loose.symlink_to(tmp_path / "blob")
        case "borrowed":
            loose.write_bytes(content)
            (objects / "info" / "alternates").write_text(f"{project.origin}/objects\n")
    with pytest.raises(NeedsOperator, match="not on this host"):
        await repository.load(workspace, base_sha=change.base_sha, head_sha=change.head_sha)
    with pytest.raises(NeedsOperator):
        await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    assert await repository.remote_branch("formica/issue-1") is None


async def test_the_forges_own_hook_still_decides(project: Project) -> None:
    """A pre-receive hook of the forge runs on our push, and its no is the operator's business."""
    hook = project.origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    change = await repository.collect(workspace, message="Fix")
    with pytest.raises(NeedsOperator, match="push"):
        await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)


@pytest.mark.parametrize("way", ["forward", "merge", "squash", "squash-edited", "not"])
async def test_a_merge_is_recognised(project: Project, way: str) -> None:
    """Fast-forward, merge commit, squash on a moved branch and a squash with other edits are all found."""
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "src" / "app.py").write_text("VALUE = 2\n")
    change = await repository.collect(workspace, message="Fix")
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    await repository.dispose(1)
    git(project.checkout, "fetch", "-q", "origin")
    if way != "forward":
        project.commit({"other": "moved on\n"})
    match way:
        case "forward":
            git(project.checkout, "merge", "-q", "--ff-only", change.head_sha)
        case "merge":
            git(project.checkout, "merge", "-q", "--no-ff", "-m", "Merge", change.head_sha)
        case "squash" | "squash-edited":
            git(project.checkout, "merge", "-q", "--squash", change.head_sha)
            if way == "squash-edited":
                (project.checkout / "CHANGES").write_text("fixed\n")
                git(project.checkout, "add", "-A")
            git(project.checkout, "commit", "-q", "-m", "Squashed")
    expected = git(project.checkout, "rev-parse", "HEAD")
    if way != "forward":
        project.commit({"later": "moved on\n"})
    git(project.checkout, "push", "-q", "origin", "main", ":formica/issue-1")
    found = await repository.merged(head_sha=change.head_sha, base_sha=change.base_sha)
    assert found == (None if way == "not" else expected)


async def test_facts_are_verified_against_the_mirror(project: Project) -> None:
    """Commits, abbreviations, release tags, versions and refs are looked up, never believed."""
    first = git(project.checkout, "rev-parse", "HEAD")
    git(project.checkout, "tag", "-a", "v1.2.0", "-m", "release")
    git(project.checkout, "tag", "nightly")
    git(project.checkout, "push", "-q", "--tags", "origin")
    second = project.commit({"README.md": "2\n"})
    git(project.checkout, "push", "-q", "origin", "HEAD:refs/heads/topic")
    repository = project.repository()
    facts = await repository.facts(sha=first[:9], version="1.2.0", ref="origin/topic")
    assert facts.head_sha == second
    assert facts.default_branch == "main"
    assert (facts.version_tag, facts.version_tag_sha) == ("v1.2.0", first)
    assert facts.ref_exists
    assert facts.has_release_tags
    assert facts.commit is not None
    assert (facts.commit.sha, facts.commit.release_tags) == (first, ("v1.2.0",))
    assert facts.commit.on_default_branch
    assert set(facts.commit.branches) == {"main", "topic"}
    nothing = await repository.facts(sha="--upload-pack=x", version="9.9", ref="--help")
    assert nothing.commit is not None
    assert not nothing.commit.exists
    assert nothing.version_tag is None
    assert nothing.ref_exists is False
