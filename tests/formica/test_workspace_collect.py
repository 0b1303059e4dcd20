"""What an agent leaves comes back as plain objects, whatever it planted."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from formica.errors import NeedsOperator
from formica.ports import Change, Workspace
from tests.fakes.repositories import Project, git, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(
        tmp_path,
        {
            ".gitignore": "build/\n*.log\n",
            "README.md": "hello\n",
            "crlf.bat": "@echo off\r\n",
            "old name": "moved\n",
            "src/app.py": "VALUE = 1\n",
        },
    )


async def collected(project: Project, workspace: Workspace) -> Change:
    return await project.repository().collect(workspace, message="Fix the fault")


def statuses(change: Change) -> dict[str, str]:
    return {file.path: file.status for file in change.files}


async def test_the_final_tree_is_the_change(project: Project) -> None:
    """Commits, uncommitted, untracked and deleted files become one commit of ours on the base."""
    workspace = await project.repository().prepare(1, commit=None)
    tree = workspace.tree
    (tree / "src" / "app.py").write_text("VALUE = 2\n")
    git(tree, "commit", "-q", "-am", "agent's own")
    (tree / "old name").rename(tree / "new name")
    (tree / "run.sh").write_text("#!/bin/sh\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "binary").write_bytes(b"\0\1\2")
    (tree / "link").symlink_to("README.md")
    change = await collected(project, workspace)
    assert statuses(change) == {
        "binary": "A",
        "link": "A",
        "new name": "A",
        "old name": "D",
        "run.sh": "A",
        "src/app.py": "M",
    }
    facts = {file.path: file for file in change.files}
    assert facts["run.sh"].new_mode == "100755"
    assert facts["link"].new_mode == "120000"
    assert facts["binary"].binary
    assert (facts["src/app.py"].added, facts["src/app.py"].deleted) == (1, 1)
    clean = workspace.root / "in.git"
    shown = git(clean, "--git-dir=.", "log", "--format=%an|%ae|%s|%P", change.head_sha, "-1")
    assert shown == f"formica|formica@example.com|Fix the fault|{change.base_sha}"
    plain = git(
        clean,
        "--git-dir=.",
        "diff",
        "--binary",
        "--full-index",
        "--no-renames",
        change.base_sha,
        change.head_sha,
    )
    assert change.diff_hash == hashlib.sha256(plain.encode() + b"\n").hexdigest()
    assert change.diff.startswith("diff --git a/binary b/binary\n")


async def test_collecting_again_gives_the_same_sha(project: Project) -> None:
    """A crash after collecting costs nothing: the same tree is the same commit, and it can be loaded."""
    workspace = await project.repository().prepare(1, commit=None)
    (workspace.tree / "fix").write_text("fix")
    first = await collected(project, workspace)
    os.utime(workspace.tree / "fix", (1, 1))
    assert await collected(project, workspace) == first
    loaded = await project.repository().load(workspace, base_sha=first.base_sha, head_sha=first.head_sha)
    assert loaded == first
    for base, head in ((first.base_sha, "1" * 40), (first.head_sha, first.base_sha), ("--help", "-x")):
        with pytest.raises(NeedsOperator, match="not on this host"):
            await project.repository().load(workspace, base_sha=base, head_sha=head)


async def test_an_untouched_tree_is_an_empty_change(project: Project) -> None:
    """Touching, ignored files and build artefacts are no change; line endings stay as they are."""
    workspace = await project.repository().prepare(1, commit=None)
    tree = workspace.tree
    os.utime(tree / "README.md")
    (tree / "build").mkdir()
    (tree / "build" / "out").write_text("x")
    (tree / "a.log").write_text("x")
    (tree / "src" / "__pycache__").mkdir()
    (tree / "src" / "__pycache__" / "app.pyc").write_text("x")
    (tree / "node_modules" / "p").mkdir(parents=True)
    (tree / "node_modules" / "p" / "index.js").write_text("x")
    git(tree, "add", "src", "node_modules")
    git(tree, "commit", "-q", "-m", "with artefacts")
    assert (tree / "crlf.bat").read_bytes() == b"@echo off\r\n"
    change = await collected(project, workspace)
    assert change.empty
    assert change.head_sha == change.base_sha


async def test_an_ignored_file_added_by_force_is_collected(project: Project) -> None:
    """Ignore rules hold for what the agent did not add itself; an un-ignored file is collected."""
    workspace = await project.repository().prepare(1, commit=None)
    tree = workspace.tree
    (tree / "build").mkdir()
    (tree / "build" / "wanted").write_text("x")
    (tree / "build" / "unwanted").write_text("x")
    git(tree, "add", "-f", "build/wanted")
    (tree / "kept.log").write_text("x")
    (tree / ".gitignore").write_text("build/\n*.log\n!kept.log\n")
    change = await collected(project, workspace)
    assert statuses(change) == {".gitignore": "M", "build/wanted": "A", "kept.log": "A"}


async def test_attributes_change_no_byte(project: Project) -> None:
    """`.gitattributes` of the project convert nothing: neither on checkout nor on the way back."""
    project.commit(
        {".gitattributes": "*.bat text eol=crlf\n*.txt text=auto ident\n*.lfs filter=lfs\n*.md -diff\n"}
    )
    workspace = await project.repository().prepare(1, commit=None)
    assert (await collected(project, workspace)).empty
    (workspace.tree / "win.txt").write_bytes(b"$Id$\r\n")
    (workspace.tree / "README.md").write_text("changed\n")
    change = await collected(project, workspace)
    assert statuses(change) == {"README.md": "M", "win.txt": "A"}
    assert not any(file.binary for file in change.files)
    clean = workspace.root / "in.git"
    assert git(clean, "--git-dir=.", "show", f"{change.head_sha}:win.txt") == "$Id$\r"


async def test_a_hostile_tree_fires_nothing(project: Project, tmp_path: Path) -> None:
    """Planted hooks, monitors, filters and drivers do not run when we collect, diff, push and clean up; a
    nested repository's own files come as files."""
    fired = tmp_path / "fired"
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    tree, clone = workspace.tree, workspace.root / "repo.git"
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\ntouch {fired}\ncat\n")
    program.chmod(0o755)
    (tree / ".gitattributes").write_text("* filter=evil diff=evil\n")
    (clone / "info" / "attributes").write_text("* filter=evil diff=evil\n")
    keys = (
        "filter.evil.clean",
        "filter.evil.smudge",
        "diff.evil.textconv",
        "diff.external",
        "core.fsmonitor",
    )
    for key in keys:
        git(clone, "--git-dir=.", "config", key, str(program))
    git(clone, "--git-dir=.", "config", "core.hooksPath", str(clone / "hooks"))
    (clone / "hooks").mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "reference-transaction", "pre-push", "post-index-change"):
        (clone / "hooks" / name).write_text(f"#!/bin/sh\ntouch {fired}\n")
        (clone / "hooks" / name).chmod(0o755)
    nested = tree / "vendor"
    nested.mkdir()
    git(nested, "init", "-q")
    git(nested, "config", "core.fsmonitor", str(program))
    (nested / "file").write_text("x")
    (tree / "sub").mkdir()
    (tree / "sub" / ".git").write_text(f"gitdir: {nested / '.git'}\n")
    (tree / "sub" / "file").write_text("x")
    (tree / "--upload-pack=x").write_text("x")
    (tree / ":(top)").write_text("x")
    (tree / "passwd").symlink_to("/etc/passwd")
    (tree / "out").symlink_to("/etc")
    fired.unlink(missing_ok=True)

    change = await repository.collect(workspace, message="m")
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    (tree / "more").write_text("x")
    await repository.prepare(1, commit=None)
    await repository.dispose(1)
    assert not fired.exists()
    assert set(statuses(change)) == {
        *(".gitattributes", "--upload-pack=x", ":(top)", "passwd", "out", "vendor/file", "sub/file"),
    }
    assert "root:" not in change.diff
    links = {file.path for file in change.files if file.new_mode == "120000"}
    assert links == {"passwd", "out"}


async def test_positive_control_plain_git_fires_in_the_agents_tree(project: Project, tmp_path: Path) -> None:
    """The plants of the hostile tree do work: plain git in the agent's tree runs them."""
    workspace = await project.repository().prepare(1, commit=None)
    for key, command in (("core.fsmonitor", "monitor"), ("filter.evil.clean", "filter")):
        git(workspace.tree, "config", key, f"touch {tmp_path / command}; cat")
    (workspace.root / "repo.git" / "info" / "attributes").write_text("* filter=evil\n")
    (workspace.tree / "new").write_text("x")
    git(workspace.tree, "add", "-A")
    assert (tmp_path / "filter").exists()
    assert (tmp_path / "monitor").exists()


@pytest.mark.parametrize("name", [".GIT/config", "git~1/config", ".gitmodules"])
async def test_objects_git_refuses_go_to_a_person(project: Project, name: str) -> None:
    """Names and contents that would harm whoever checks them out are refused with the reason."""
    workspace = await project.repository().prepare(1, commit=None)
    path = workspace.tree / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('[submodule "x"]\n\tpath = x\n\turl = -u./payload\n')
    with pytest.raises(NeedsOperator):
        await collected(project, workspace)


async def test_strange_names_and_files_survive(project: Project) -> None:
    """Names that are no UTF-8, hold newlines or quotes come back; sockets and pipes are left out."""
    workspace = await project.repository().prepare(1, commit=None)
    names = [
        b"latin-\xe9",
        b'quote"x',
        b"new\nline",
        b"tab\tx",
        b"back\\slash",
        b"-rf",
        b"trailing ",
        b"\xc3\xa9",
    ]
    for name in names:
        (workspace.tree / os.fsdecode(name)).write_bytes(name)
    os.mkfifo(workspace.tree / "pipe")
    server = socket.socket(socket.AF_UNIX)
    here = os.open(workspace.tree, os.O_RDONLY)
    server.bind(f"/proc/self/fd/{here}/socket")
    os.close(here)
    server.close()
    change = await collected(project, workspace)
    assert {file.path.encode("utf-8", "surrogateescape") for file in change.files} == set(names)


async def test_files_and_folders_change_places(project: Project) -> None:
    """A folder that became a file, a link or the other way round is a deletion and an addition."""
    workspace = await project.repository().prepare(1, commit=None)
    tree = workspace.tree
    (tree / "src" / "app.py").unlink()
    (tree / "src").rmdir()
    (tree / "src").symlink_to("/etc")
    (tree / "README.md").unlink()
    (tree / "README.md").mkdir()
    (tree / "README.md" / "inside").write_text("x")
    change = await collected(project, workspace)
    assert statuses(change) == {"README.md": "D", "README.md/inside": "A", "src": "A", "src/app.py": "D"}


async def test_a_submodule_stays_what_it_is(project: Project) -> None:
    """The empty folder of a submodule is no change; files put into it, or its removal, are."""
    sha = git(project.checkout, "rev-parse", "HEAD")
    git(project.checkout, "update-index", "--add", "--cacheinfo", f"160000,{sha},module")
    git(project.checkout, "commit", "-q", "-m", "module")
    git(project.checkout, "push", "-q", "origin", "main")
    workspace = await project.repository().prepare(1, commit=None)
    assert (workspace.tree / "module").is_dir()
    assert (await collected(project, workspace)).empty
    (workspace.tree / "module" / "file").write_text("x")
    assert statuses(await collected(project, workspace)) == {"module": "D", "module/file": "A"}


async def test_sha256_repositories_work(tmp_path: Path) -> None:
    """A repository with the new object format goes the same way."""
    project = Project(tmp_path / "c", tmp_path / "o.git", tmp_path / "state")
    project.checkout.mkdir()
    git(project.checkout, "init", "-q", "-b", "main", "--object-format=sha256")
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "--object-format=sha256", str(project.origin))
    git(project.checkout, "remote", "add", "origin", str(project.origin))
    project.commit({"a": "1"})
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "a").write_text("2")
    change = await repository.collect(workspace, message="m")
    await repository.push(workspace, head_sha=change.head_sha, branch="formica/issue-1", expected=None)
    assert len(change.head_sha) == 64
    assert await repository.remote_branch("formica/issue-1") == change.head_sha
