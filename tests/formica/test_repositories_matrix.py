"""Every kind of repository either goes the whole way, byte for byte, or fails with a message of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from formica.errors import FormicaError, NeedsOperator, Refused, Retryable
from tests.fakes import sources
from tests.fakes.repositories import Project, fingerprint, git, make_project
from tests.fakes.sources import Build


def blobs(repository: Path, commit: str) -> dict[bytes, tuple[str, bytes]]:
    """Mode and bytes of every file of a commit, as plain git has them; a link to a commit has its name."""
    found = {}
    for row in git(repository, "ls-tree", "-r", "-z", commit).split("\0")[:-1]:
        facts, _, path = row.partition("\t")
        mode, kind, sha = facts.split(" ")
        content = sha.encode() if kind == "commit" else raw_blob(repository, sha)
        found[os.fsencode(path)] = (mode, content)
    return found


def raw_blob(repository: Path, sha: str) -> bytes:
    text = git(repository, "cat-file", "--batch", stdin=sha.encode() + b"\n")
    raw = text.encode("utf-8", "surrogateescape") + b"\n"
    header, _, rest = raw.partition(b"\n")
    size = int(header.rsplit(b" ", 1)[1])
    return (rest + b"\n" * 8)[:size]


def files(tree: Path) -> dict[bytes, tuple[str, bytes]]:
    """Mode and bytes of every file of a working tree."""
    found = {}
    for path in tree.rglob("*"):
        relative = os.fsencode(path.relative_to(tree))
        if path.is_symlink():
            found[relative] = ("120000", os.fsencode(path.readlink()))
        elif path.is_file() and path.name != ".git":
            found[relative] = ("100755" if path.stat().st_mode & 0o100 else "100644", path.read_bytes())
    return found


@pytest.mark.parametrize("build", sources.WORKING, ids=lambda build: build.__name__)
async def test_a_round_trip_is_byte_exact(tmp_path: Path, build: Build) -> None:
    """Prepared, changed, collected and pushed: the files the agent saw are the blobs of the base, the pushed
    commit is the base with just the change, and the source is untouched."""
    built = build(tmp_path)
    project = built.project
    untouched = project.checkout if project.checkout.exists() else project.origin
    before = fingerprint(untouched)
    repository = project.repository(built.source)
    workspace = await repository.prepare(1, commit=None)
    base = blobs(workspace.root / "repo.git", workspace.base_sha)
    plain = {path: entry for path, entry in base.items() if entry[0] != "160000"}
    assert files(workspace.tree) == plain
    assert (await repository.collect(workspace, message="Nothing")).empty
    edited = sorted(path for path, (mode, _) in plain.items() if mode.startswith("100"))[0]
    with (workspace.tree / os.fsdecode(edited)).open("ab") as file:
        file.write(b"\r\nmore\xff")
    (workspace.tree / "added \xe9").write_bytes(b"$Id$\r\nnew\n")
    change = await repository.collect(workspace, message="Change")
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    mode, content = base[edited]
    expected = base | {
        edited: (mode, content + b"\r\nmore\xff"),
        "added \xe9".encode(): ("100644", b"$Id$\r\nnew\n"),
    }
    assert blobs(project.origin, "refs/heads/formica/issue-1") == expected
    assert git(project.origin, "rev-parse", "refs/heads/formica/issue-1^") == workspace.base_sha
    assert fingerprint(untouched) == before
    await repository.dispose(1)
    assert not workspace.root.exists()


FAILING: tuple[tuple[Build, type[FormicaError], str], ...] = (
    (sources.shallow_source, NeedsOperator, r"is a shallow clone, .*git fetch --unshallow"),
    (sources.shallow_bare, NeedsOperator, r"is a shallow clone, .*git fetch --unshallow"),
    (sources.partial_source, NeedsOperator, r"is a partial clone, objects are missing"),
    (sources.empty, NeedsOperator, r"is empty: it has no commit"),
    (sources.unborn_default_branch, NeedsOperator, r"names no default branch: set .* default_branch"),
    (sources.missing, NeedsOperator, r"there is no repository at .*/nowhere"),
    (
        sources.no_repository,
        Retryable,
        r"could not reach the repository: .*not appear to be a git repository",
    ),
    (sources.corrupt, Retryable, r"could not fetch the repository"),
    (sources.several_remotes, NeedsOperator, r"several remotes and none is origin"),
    (sources.dirty_source, Refused, r"uncommitted work \('README\.md'\)"),
)


@pytest.mark.parametrize(
    ("build", "error", "said"), FAILING, ids=lambda value: getattr(value, "__name__", "")
)
async def test_what_cannot_work_says_why(
    tmp_path: Path, build: Build, error: type[FormicaError], said: str
) -> None:
    """A source that cannot be built on is named with what is wrong with it and, where there is one, the way
    out; no workspace is begun and the source is untouched."""
    built = build(tmp_path)
    before = fingerprint(tmp_path)
    with pytest.raises(error, match=said):
        await built.project.repository(built.source).prepare(1, commit=None)
    assert not (built.project.state / "items").exists()
    for folder in ("checkout", "origin.git", "shallow", "partial"):
        assert not (tmp_path / folder / "FETCH_HEAD").exists()
    left = built.project.state
    if left.exists():
        left.rename(tmp_path.parent / f"{tmp_path.name}-state")
    assert fingerprint(tmp_path) == before


async def test_a_commit_only_in_a_shallow_checkout_is_named(tmp_path: Path) -> None:
    """A commit that only the maintainer's shallow checkout has cannot be copied without its history."""
    built = sources.shallow_checkout(tmp_path)
    checkout = tmp_path / "shallow"
    git(checkout, "commit", "-q", "--allow-empty", "-m", "local")
    sha = git(checkout, "rev-parse", "HEAD")
    with pytest.raises(NeedsOperator, match="shallow clone"):
        await built.project.repository(built.source).prepare(1, commit=sha)


async def test_a_large_file_that_lfs_would_keep_is_not_committed(tmp_path: Path) -> None:
    """Where the project keeps files in LFS only pointers may be committed: a file's own bytes in such a place
    go to a person, a changed pointer does not."""
    built = sources.lfs(tmp_path)
    repository = built.project.repository(built.source)
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "large.bin").write_text(sources.LFS_POINTER.replace("12345", "54321"))
    assert not (await repository.collect(workspace, message="Pointer")).empty
    (workspace.tree / "other.bin").write_bytes(b"\0" * 1000)
    with pytest.raises(NeedsOperator, match=r"'other\.bin' belongs into LFS"):
        await repository.collect(workspace, message="Bytes")


async def test_too_large_a_change_is_named(tmp_path: Path) -> None:
    """More changed bytes than a change may have go to a person, before they are read."""
    project = make_project(tmp_path)
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    with (workspace.tree / "huge").open("wb") as file:
        file.truncate(300 << 20)
    with pytest.raises(NeedsOperator, match="more than 200 MB"):
        await repository.collect(workspace, message="Huge")


async def test_a_renamed_default_branch_is_followed(tmp_path: Path) -> None:
    """When upstream renames its default branch, the next workspace starts from the new one; a configured
    branch that is gone is said."""
    project = make_project(tmp_path)
    repository = project.repository()
    await repository.prepare(1, commit=None)
    git(project.checkout, "checkout", "-q", "-b", "trunk")
    head = project.commit({"README.md": "trunk\n"})
    git(project.origin, "symbolic-ref", "HEAD", "refs/heads/trunk")
    git(project.origin, "update-ref", "-d", "refs/heads/main")
    workspace = await repository.prepare(2, commit=None)
    assert workspace.base_sha == head
    assert (await repository.facts(sha=None, version=None, ref=None)).default_branch == "trunk"
    with pytest.raises(NeedsOperator, match=r"no branch 'main'; set \[repository\] default_branch"):
        await project.repository(default_branch="main").prepare(3, commit=None)
    named = await project.repository(default_branch="trunk").prepare(3, commit=None)
    assert named.base_sha == head


async def test_branches_that_become_folders_are_followed(tmp_path: Path) -> None:
    """A branch replaced upstream by one below its name, and back, is no stop."""
    project = make_project(tmp_path)
    repository = project.repository()
    git(project.checkout, "push", "-q", "origin", "main:refs/heads/topic")
    await repository.refresh()
    git(project.checkout, "push", "-q", "origin", ":topic")
    git(project.checkout, "push", "-q", "origin", "main:refs/heads/topic/one")
    await repository.refresh()
    facts = await repository.facts(sha=None, version=None, ref="topic/one")
    assert facts.ref_exists


async def test_a_repository_that_took_anothers_place_is_noticed(tmp_path: Path) -> None:
    """A source that was made again with other object names is not mixed into the old mirror."""
    project = make_project(tmp_path)
    await project.repository(str(project.origin)).refresh()
    project.origin.rename(tmp_path / "old.git")
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "--object-format=sha256", str(project.origin))
    other = Project(tmp_path / "new", project.origin, project.state)
    other.checkout.mkdir()
    git(other.checkout, "init", "-q", "-b", "main", "--object-format=sha256")
    git(other.checkout, "remote", "add", "origin", str(other.origin))
    other.commit({"a": "1"})
    with pytest.raises(NeedsOperator, match="another repository took its place"):
        await other.repository(str(other.origin)).refresh()


async def test_the_base_is_the_recorded_one_whatever_the_agent_did(tmp_path: Path) -> None:
    """The diff is against the base of the workspace though the agent switched branches, rewrote history or
    made an orphan: never the whole history, never a guess of a merge base."""
    project = make_project(tmp_path, {f"file{number}": "x\n" for number in range(50)})
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    git(workspace.tree, "checkout", "-q", "--orphan", "own")
    (workspace.tree / "file0").write_text("y\n")
    git(workspace.tree, "commit", "-q", "-am", "everything anew")
    git(workspace.tree, "branch", "-q", "-f", "main", "own")
    git(workspace.tree, "branch", "-q", "-D", "formica/issue-1")
    change = await repository.collect(workspace, message="Fix")
    assert [(file.path, file.added, file.deleted) for file in change.files] == [("file0", 1, 1)]
    assert (
        git(workspace.root / "in.git", "--git-dir=.", "rev-parse", f"{change.head_sha}^")
        == workspace.base_sha
    )


async def test_a_base_that_moved_is_counted(tmp_path: Path) -> None:
    """How many commits the default branch has moved on is read live, across merges and rewrites."""
    project = make_project(tmp_path)
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    assert await repository.behind(workspace.base_sha) == 0
    project.commit({"a": "1"})
    project.commit({"b": "1"})
    assert await repository.behind(workspace.base_sha) == 2
    git(project.checkout, "commit", "-q", "--amend", "-m", "rewritten")
    git(project.checkout, "push", "-q", "--force", "origin", "main")
    assert await repository.behind(workspace.base_sha) == 2
    with pytest.raises(NeedsOperator):
        await repository.behind("1" * 40)
