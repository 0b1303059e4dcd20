"""Clean checkouts for verification: made by us, from objects of ours, each with a clone of its own.

A program of the project runs in them, so each is used for one run and git is never run in it again. All of an
item's are made at the same place, one after the other: what a set-up wrote into a tree may name that place.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio

from formica.adapters.collect import AUTHOR_DATE_FORMAT, quoted, write_commit
from formica.adapters.git import Git, make_bare_repository
from formica.adapters.items import delete_tree
from formica.errors import NeedsOperator
from formica.ports import FileChange, Workspace
from formica.rules.testfiles import is_lock_path

__all__ = ["Checkout", "Checkouts"]

# What `make`, `rake`, `just` and `task` read without being told.
_BUILD_FILES = {"Makefile", "makefile", "GNUmakefile", "Rakefile", "justfile", "Justfile", "Taskfile.yml"}
_FILE_LIMIT = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Checkout:
    """One checkout: the tree, its repository, and an empty HOME of its own."""

    tree: Path
    repository: Path
    home: Path


class Checkouts:
    """Checkouts of one item's commits, below `<item>/verify`."""

    def __init__(self, git: Git, workspace: Workspace) -> None:
        self._git = git
        self._clean = workspace.root / "in.git"
        self._folder = workspace.root / "verify"

    async def paths(self, commit: str) -> list[str]:
        listed = await self._git.run(
            *("ls-tree", "-r", "-z", "--name-only", "--full-tree", "--end-of-options", commit),
            git_dir=self._clean,
            doing="list a commit",
        )
        return [path.decode("utf-8", "surrogateescape") for path in listed.fields]

    async def executable(self, commit: str, path: str) -> bool:
        listed = await self._git.run(
            *("ls-tree", "-z", "--full-tree", "--end-of-options", commit, "--", path),
            git_dir=self._clean,
            doing="look at a file",
        )
        return listed.stdout.startswith(b"100755 ")

    async def text(self, commit: str, path: str) -> str:
        """The file's text, or nothing when it is not there or larger than 1 MB."""
        shown = await self._git.run(
            *("cat-file", "blob", f"{commit}:{path}"),
            git_dir=self._clean,
            doing="read a file of a commit",
            ok=(0, 128),
            output_limit=64 * _FILE_LIMIT,
        )
        return shown.stdout.decode("utf-8", "replace") if len(shown.stdout) <= _FILE_LIMIT else ""

    async def setup_key(self, commit: str, command: Sequence[str], path: str) -> str:
        """What decides how a set-up comes out: the command, the PATH, the lock files, and the files the command
        names. sha256 hex."""
        listed = await self._git.run(
            *("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit),
            git_dir=self._clean,
            doing="read the lock files",
        )
        named = {word.removeprefix("./") for word in command}
        digest = hashlib.sha256("\0".join([path, *command]).encode("utf-8", "surrogateescape"))
        for row in listed.fields:
            name = row.rpartition(b"\t")[2].decode("utf-8", "surrogateescape")
            if is_lock_path(name) or name in named or name in _BUILD_FILES:
                digest.update(b"\0" + row)
        return digest.hexdigest()

    @asynccontextmanager
    async def open(
        self,
        commit: str,
        *,
        parent: str,
        only: Sequence[FileChange] | None = None,
        staged: bool = False,
    ) -> AsyncIterator[Checkout]:
        """A checkout of ``commit``. With ``only``, of ``parent`` with just these changes.
        With ``staged``, HEAD is ``parent`` and the change is in the index, as before a commit."""
        root = self._folder / "work"
        await anyio.to_thread.run_sync(delete_tree, root)
        try:
            clone = root / "repo.git"
            await anyio.to_thread.run_sync(self._clone, clone)
            if only is not None:
                commit = await self._partial(clone, parent, commit, only)
            tree = root / "tree"
            await self._git.run(
                *("worktree", "add", "-q", "--detach", "--end-of-options", str(tree), commit),
                git_dir=clone,
                doing="check out a commit for verification",
                failure=NeedsOperator,
                timeout_seconds=600,
            )
            if staged:
                await self._git.run(
                    *("update-ref", "--no-deref", "--end-of-options", "HEAD", parent),
                    git_dir=clone / "worktrees" / "tree",
                    doing="stage the change for the project's hooks",
                )
            yield Checkout(tree, clone, root / "home")
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(delete_tree, root)

    def _clone(self, path: Path) -> None:
        make_bare_repository(path, objects=[self._clean / "objects"], object_format=_format_of(self._clean))

    async def _partial(self, clone: Path, parent: str, commit: str, only: Sequence[FileChange]) -> str:
        """A commit on ``parent`` with the content ``commit`` has in the paths of ``only``."""
        paths = {change.path.encode("utf-8", "surrogateescape") for change in only}
        listed = await self._git.run(
            *("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit),
            git_dir=clone,
            doing="list the change's tests",
        )
        when = await self._git.run(
            *("show", "-s", f"--format={AUTHOR_DATE_FORMAT}", "--end-of-options", parent),
            git_dir=clone,
            doing="read the base commit",
        )
        present = {}
        for row in listed.fields:
            facts, _, path = row.partition(b"\t")
            if path in paths:
                mode, _, sha = facts.split(b" ")
                present[path] = mode + b" " + sha

        def write_files(out: BinaryIO) -> None:
            for path in sorted(paths - present.keys()):
                out.write(b"D " + quoted(path) + b"\n")
            for path, entry in present.items():
                out.write(b"M " + entry + b" " + quoted(path) + b"\n")

        return await write_commit(
            self._git,
            clone,
            parent=parent,
            author=f"formica <formica@localhost> {when.text} +0000".encode(),
            message="The base with the tests of the change",
            write_files=write_files,
        )


def _format_of(repository: Path) -> str:
    return "sha256" if "objectformat = sha256" in (repository / "config").read_text() else "sha1"
