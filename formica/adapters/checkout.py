"""Clean checkouts for verification: made by us, from objects of ours, each with a clone of its own.

A program of the project runs in them, so each is used for one run and git is never run in it again. All of an
item's are made at the same place, one after the other: what a set-up wrote into a tree may name that place, and
neither it nor anything git says there tells a test which run it is in.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio

from formica.adapters.collect import quoted, write_commit
from formica.adapters.git import Git, make_bare_repository
from formica.adapters.items import delete_tree
from formica.adapters.trusted import BASE, Trusted, bring, format_of
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
    """Checkouts of one change's commits, below `<item>/verify`. What they are made of is brought anew from
    `in.git` each time: the run before could write there."""

    def __init__(self, git: Git, workspace: Workspace, *, base_sha: str, head_sha: str) -> None:
        self._git = git
        self._trusted = Trusted(git, workspace.root, base_sha=base_sha, head_sha=head_sha)
        self._base = base_sha
        self._head = head_sha
        self._folder = workspace.root / "verify"
        self._rows: dict[str, dict[str, bytes]] = {}

    async def look(self) -> None:
        """Learn the files of base and head, before anything has been run."""
        async with self._trusted.open() as clean:
            for commit in dict.fromkeys((self._base, self._head)):
                self._rows[commit] = await self._list(clean, commit)

    async def paths(self, commit: str) -> list[str]:
        return list(await self._listed(commit))

    async def executable(self, commit: str, path: str) -> bool:
        return (await self._listed(commit)).get(path, b"").startswith(b"100755 ")

    async def _listed(self, commit: str) -> dict[str, bytes]:
        if commit not in self._rows:
            await self.look()
        return self._rows[commit]

    async def _list(self, clean: Path, commit: str) -> dict[str, bytes]:
        listed = await self._git.run(
            *("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit),
            git_dir=clean,
            doing="list a commit",
        )
        return {row.partition(b"\t")[2].decode("utf-8", "surrogateescape"): row for row in listed.fields}

    async def text(self, commit: str, path: str) -> str:
        """The file's text, or nothing when it is not there or larger than 1 MB."""
        async with self._trusted.open() as clean:
            shown = await self._git.run(
                *("cat-file", "blob", f"{commit}:{path}"),
                git_dir=clean,
                doing="read a file of a commit",
                ok=(0, 128),
                output_limit=64 * _FILE_LIMIT,
            )
        return shown.stdout.decode("utf-8", "replace") if len(shown.stdout) <= _FILE_LIMIT else ""

    async def setup_key(self, commit: str, command: Sequence[str], path: str) -> str:
        """What decides how a set-up comes out: the command, the PATH, the lock files, and the files the command
        names. sha256 hex."""
        named = {word.removeprefix("./") for word in command}
        digest = hashlib.sha256("\0".join([path, *command]).encode("utf-8", "surrogateescape"))
        for name, row in (await self._listed(commit)).items():
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
        """A checkout of ``commit``. With ``only``, of ``parent`` with just these changes, in a commit that says
        what the head's says. With ``staged``, HEAD is ``parent`` and the change is in the index, as before a
        commit."""
        root = self._folder / "work"
        await anyio.to_thread.run_sync(delete_tree, root)
        try:
            clone = root / "repo.git"
            async with self._trusted.open() as clean:
                if only is not None:
                    commit = await self._partial(clean, parent, commit, only)
                await anyio.to_thread.run_sync(self._clone, clean, clone)
                if commit != self._base:
                    await bring(self._git, clean, clone, commit)
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

    def _clone(self, clean: Path, path: Path) -> None:
        """Without the objects of the change: a run has those of its own commit alone."""
        borrowed = Path(os.fsdecode((clean / "objects" / "info" / "alternates").read_bytes()).rstrip("\n"))
        refs = {BASE: self._base}
        make_bare_repository(path, objects=[borrowed], object_format=format_of(self._base), refs=refs)

    async def _partial(self, clone: Path, parent: str, commit: str, only: Sequence[FileChange]) -> str:
        """A commit on ``parent`` with the content ``commit`` has in the paths of ``only``, and else like it."""
        paths = {change.path.encode("utf-8", "surrogateescape") for change in only}
        listed = await self._git.run(
            *("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit),
            git_dir=clone,
            doing="list the change's tests",
        )
        said = await self._git.run(
            *("show", "-s", "--format=%an <%ae>%n%ct%n%B", "--end-of-options", commit),
            git_dir=clone,
            doing="read the change's commit",
        )
        author, date, message = said.text.split("\n", 2)
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
            author=f"{author} {date} +0000".encode("utf-8", "surrogateescape"),
            message=message,
            write_files=write_files,
        )
