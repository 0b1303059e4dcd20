"""Repositories of every kind a maintainer may have, made with plain git."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fakes.repositories import Project, git, make_project

LFS_POINTER = (
    "version https://git-lfs.github.com/spec/v1\n"
    "oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)


@dataclass(frozen=True)
class SourceRepository:
    """What to configure as the source, and the project around it."""

    project: Project
    source: str


def _pushed(project: Project) -> SourceRepository:
    return SourceRepository(project, str(project.checkout))


def plain(folder: Path) -> SourceRepository:
    return _pushed(make_project(folder))


def bare(folder: Path) -> SourceRepository:
    project = make_project(folder)
    return SourceRepository(project, f"file://{project.origin}")


def no_remote(folder: Path) -> SourceRepository:
    """The maintainer's checkout is all there is."""
    project = make_project(folder)
    git(project.checkout, "remote", "remove", "origin")
    return _pushed(project)


def linked_worktree(folder: Path) -> SourceRepository:
    project = make_project(folder)
    git(project.checkout, "worktree", "add", "-q", "-b", "side", str(folder / "linked"))
    return SourceRepository(project, str(folder / "linked"))


def shallow_checkout(folder: Path) -> SourceRepository:
    """A shallow clone whose remote is complete."""
    project = make_project(folder)
    project.commit({"README.md": "second\n"})
    git(folder, "clone", "-q", "--depth=1", f"file://{project.origin}", "shallow")
    return SourceRepository(project, str(folder / "shallow"))


def shallow_source(folder: Path) -> SourceRepository:
    built = shallow_checkout(folder)
    git(folder / "shallow", "remote", "remove", "origin")
    return built


def shallow_bare(folder: Path) -> SourceRepository:
    built = shallow_checkout(folder)
    git(folder, "clone", "-q", "--bare", "--depth=1", f"file://{built.project.origin}", "shallow.git")
    return replace(built, source=str(folder / "shallow.git"))


def partial_checkout(folder: Path) -> SourceRepository:
    """A blobless clone whose remote is complete."""
    project = make_project(folder)
    git(project.origin, "config", "uploadpack.allowFilter", "true")
    git(folder, "clone", "-q", "--filter=blob:none", f"file://{project.origin}", "partial")
    return SourceRepository(project, str(folder / "partial"))


def partial_source(folder: Path) -> SourceRepository:
    built = partial_checkout(folder)
    git(
        folder, "clone", "-q", "--bare", "--filter=blob:none", f"file://{built.project.origin}", "partial.git"
    )
    return replace(built, source=str(folder / "partial.git"))


def sparse_checkout(folder: Path) -> SourceRepository:
    """Only one folder of the checkout is there, and the checkout is the source."""
    project = make_project(folder, {"in/a": "a\n", "out/b": "b\n"})
    git(project.checkout, "sparse-checkout", "set", "in")
    git(project.checkout, "remote", "remove", "origin")
    return _pushed(project)


def lfs(folder: Path) -> SourceRepository:
    project = make_project(folder)
    attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
    project.commit({".gitattributes": attributes, "large.bin": LFS_POINTER, "README.md": "with LFS\n"})
    for key, value in (
        ("clean", "git-lfs clean -- %f"),
        ("smudge", "git-lfs smudge -- %f"),
        ("required", "true"),
    ):
        git(project.checkout, "config", f"filter.lfs.{key}", value)
    return _pushed(project)


def submodule(folder: Path) -> SourceRepository:
    project = make_project(folder)
    inner = make_project(folder / "inner")
    git(
        project.checkout,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "-q",
        "add",
        str(inner.origin),
        "module",
    )
    project.commit({}, "submodule")
    return _pushed(project)


def nested_repository(folder: Path) -> SourceRepository:
    """A repository inside the tree, recorded as a link to a commit without being a submodule."""
    project = make_project(folder)
    inner = project.checkout / "vendor"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "file").write_text("x")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "inner")
    project.commit({}, "nested")
    return _pushed(project)


def strange_names(folder: Path) -> SourceRepository:
    """Names that are no UTF-8, in two normal forms, or hold quotes, newlines, tabs and options."""
    project = make_project(folder)
    names = [b"latin-\xe9", b"\xc3\xa9", b"e\xcc\x81", b'quote"x', b"new\nline", b"tab\tx", b"-rf", b"--help"]
    names += [b"back\\slash", b"trailing ", b"CON", b"a:b", b"$(touch x)", b";ls", b":(top)x", b"*.py"]
    for name in names:
        (project.checkout / os.fsdecode(name)).write_bytes(name)
    project.commit({}, "names")
    return _pushed(project)


def case_clash(folder: Path) -> SourceRepository:
    project = make_project(folder, {"Readme": "1\n", "README": "2\n", "src/a": "3\n", "SRC/a": "4\n"})
    return _pushed(project)


def line_endings(folder: Path) -> SourceRepository:
    """autocrlf in the checkout, attributes in the project, and both endings in what is committed."""
    project = make_project(folder)
    git(project.checkout, "config", "core.autocrlf", "true")
    for name, content in (("dos.txt", b"a\r\nb\r\n"), ("unix.txt", b"a\nb\n"), ("mixed.txt", b"a\r\nb\n")):
        sha = git(project.checkout, "hash-object", "-w", "--stdin", "--no-filters", stdin=content)
        git(project.checkout, "update-index", "--add", "--cacheinfo", f"100644,{sha},{name}")
    (project.checkout / ".gitattributes").write_text("*.txt text\n*.c text eol=crlf ident\n")
    git(project.checkout, "add", ".gitattributes")
    git(project.checkout, "commit", "-q", "-m", "endings")
    git(project.checkout, "push", "-q", "origin", "HEAD")
    return _pushed(project)


def object_format(folder: Path) -> SourceRepository:
    """A repository that names its objects by SHA-256."""
    project = Project(folder / "checkout", folder / "origin.git", folder / "state")
    project.checkout.mkdir(parents=True)
    git(project.checkout, "init", "-q", "-b", "main", "--object-format=sha256")
    git(folder, "init", "-q", "--bare", "-b", "main", "--object-format=sha256", str(project.origin))
    git(project.checkout, "remote", "add", "origin", str(project.origin))
    project.commit({"README.md": "1\n"})
    return _pushed(project)


def huge_file(folder: Path) -> SourceRepository:
    """A file of 16 MB that does not compress, and a line of 3 MB."""
    project = make_project(folder)
    (project.checkout / "huge").write_bytes(os.urandom(1 << 20) * 16)
    project.commit({"line": "a" * 3_000_000})
    return _pushed(project)


def links_and_modes(folder: Path) -> SourceRepository:
    project = make_project(folder)
    (project.checkout / "link").symlink_to("README.md")
    (project.checkout / "dangling").symlink_to("../../../nowhere")
    (project.checkout / "run.sh").write_text("#!/bin/sh\n")
    (project.checkout / "run.sh").chmod(0o755)
    project.commit({}, "links")
    return _pushed(project)


def deep_tree(folder: Path) -> SourceRepository:
    return _pushed(make_project(folder, {"d/" * 100 + "leaf": "x\n"}))


def odd_default_branch(folder: Path) -> SourceRepository:
    """A default branch with slashes, and a tag and branches named to confuse."""
    project = make_project(folder)
    git(project.checkout, "checkout", "-q", "-b", "release/next")
    project.commit({"README.md": "next\n"})
    sha = git(project.checkout, "rev-parse", "HEAD~1")
    for name in ("refs/tags/release/next", "refs/tags/main", "refs/heads/HEAD", "refs/heads/--upload-pack=x"):
        git(project.origin, "update-ref", name, sha)
    git(project.origin, "symbolic-ref", "HEAD", "refs/heads/release/next")
    return _pushed(project)


def empty(folder: Path) -> SourceRepository:
    project = Project(folder / "checkout", folder / "origin.git", folder / "state")
    git(folder, "init", "-q", "--bare", "-b", "main", str(project.origin))
    return SourceRepository(project, str(project.origin))


def unborn_default_branch(folder: Path) -> SourceRepository:
    project = make_project(folder)
    git(project.origin, "symbolic-ref", "HEAD", "refs/heads/gone")
    return _pushed(project)


def missing(folder: Path) -> SourceRepository:
    project = make_project(folder)
    return SourceRepository(project, str(folder / "nowhere"))


def no_repository(folder: Path) -> SourceRepository:
    project = make_project(folder)
    (folder / "folder").mkdir()
    return SourceRepository(project, str(folder / "folder"))


def corrupt(folder: Path) -> SourceRepository:
    """An object of the history is missing."""
    project = make_project(folder)
    tree = git(project.origin, "rev-parse", "main^{tree}")
    (project.origin / "objects" / tree[:2] / tree[2:]).unlink()
    return _pushed(project)


def several_remotes(folder: Path) -> SourceRepository:
    project = make_project(folder)
    git(project.checkout, "remote", "rename", "origin", "one")
    git(project.checkout, "remote", "add", "two", str(project.origin))
    return _pushed(project)


def dirty_source(folder: Path) -> SourceRepository:
    built = no_remote(folder)
    (built.project.checkout / "README.md").write_text("uncommitted\n")
    return built


Build = Callable[[Path], SourceRepository]
WORKING: tuple[Build, ...] = (
    *(plain, bare, no_remote, linked_worktree, shallow_checkout, partial_checkout, sparse_checkout),
    *(lfs, submodule, nested_repository, strange_names, case_clash, line_endings, object_format),
    *(huge_file, links_and_modes, deep_tree, odd_default_branch),
)
