"""From an agent's tree to one commit of ours.

git never runs in the agent's tree, nor with its repository's configuration: the files are read here, go
through `git fast-import` into a repository of ours, and from there through a fetch that checks every
object. Bytes are kept as they are; no filter or line-ending conversion applies.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio

from formica.adapters.git import Git, make_bare_repository
from formica.adapters.large_files import refuse_large_files
from formica.adapters.stamps import Stamps
from formica.adapters.tree import Found, blob_sha, copy_files_named, list_tree, write_blob
from formica.errors import NeedsOperator

__all__ = [
    "AUTHOR_DATE_FORMAT",
    "BYTES_LIMIT",
    "Author",
    "Collector",
    "quoted",
    "write_commit",
]

AUTHOR_DATE_FORMAT = "%ct"
COLLECTED = "refs/formica/collected"
BYTES_LIMIT = 200 * 1024 * 1024
_INDEX_LIMIT = 64 * 1024 * 1024
# What running or testing a project leaves behind; never wanted in a change, whatever its .gitignore says.
_ARTEFACTS = """\
__pycache__/
*.pyc
.pytest_cache/
.mypy_cache/
.ruff_cache/
.hypothesis/
.tox/
.nox/
node_modules/
.DS_Store
"""
_GITLINK = "160000"
WriteFiles = Callable[[BinaryIO], None]


@dataclass(frozen=True, slots=True)
class Author:
    name: str
    email: str

    def line(self, when: str) -> bytes:
        return f"{self.name} <{self.email}> {when} +0000".encode()


@dataclass(frozen=True, slots=True)
class _Difference:
    """What the tree has that the base has not."""

    written: dict[bytes, Found]
    deleted: tuple[bytes, ...]


class Collector:
    """Collects one tree. ``scratch`` is a folder of ours that is made and removed here."""

    def __init__(
        self,
        git: Git,
        *,
        objects: Sequence[Path],
        object_format: str,
        scratch: Path,
        author: Author,
    ) -> None:
        self._git = git
        self._objects = list(objects)
        self._format = object_format
        self._scratch = scratch
        self._author = author
        self._staging = scratch / "staging.git"

    async def commit(
        self,
        tree: Path,
        base_sha: str,
        *,
        message: str,
        agent_index: Path | None,
        ignored_too: bool = False,
        bytes_limit: int = BYTES_LIMIT,
    ) -> str:
        """The sha of the tree as one commit on ``base_sha`` in a staging repository, or ``base_sha`` when
        nothing changed. The same tree, base and message give the same sha. With ``ignored_too`` files that
        the project ignores are taken as well."""
        await self.make()
        difference = await self._difference(tree, base_sha, agent_index, ignored_too, bytes_limit)
        if not difference.written and not difference.deleted:
            return base_sha
        when = await self._git.run(
            *("show", "-s", f"--format={AUTHOR_DATE_FORMAT}", "--end-of-options", base_sha),
            git_dir=self._staging,
            doing="read the base commit",
        )

        def write_files(out: BinaryIO) -> None:
            for path in difference.deleted:
                out.write(b"D " + quoted(path) + b"\n")
            for path, found in difference.written.items():
                out.write(b"M " + found.mode.encode() + b" inline " + quoted(path) + b"\n")
                write_blob(tree, path, found, out)

        return await write_commit(
            self._git,
            self._staging,
            parent=base_sha,
            author=self._author.line(when.text),
            message=message,
            write_files=write_files,
        )

    async def make(self) -> None:
        """An empty staging repository in a fresh scratch folder."""
        await anyio.to_thread.run_sync(self._make)

    async def check(self, base_sha: str, head_sha: str) -> Path:
        """A fresh clean clone in the scratch folder that holds base and head, every new object checked."""
        fresh = self._scratch / "in.git"
        await anyio.to_thread.run_sync(self._make_clean, fresh, base_sha)
        if head_sha != base_sha:
            await self._git.run(
                *("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
                *("--end-of-options", str(self._staging), f"+{head_sha}:{COLLECTED}"),
                git_dir=fresh,
                doing="take over what the agent left",
                failure=NeedsOperator,
            )
        return fresh

    async def deliver(self, clean: Path, target: Path) -> None:
        """Put what `check` made in its place."""
        await anyio.to_thread.run_sync(self._swap, clean, target)

    @property
    def staging(self) -> Path:
        return self._staging

    def remove(self) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _make(self) -> None:
        self.remove()
        (self._scratch / "rules").mkdir(mode=0o700, parents=True)
        make_bare_repository(self._staging, objects=self._objects, object_format=self._format)
        (self._staging / "info" / "exclude").write_text(_ARTEFACTS)

    def _make_clean(self, path: Path, base_sha: str) -> None:
        make_bare_repository(
            path,
            objects=self._objects,
            object_format=self._format,
            refs={"refs/formica/base": base_sha},
        )

    def _swap(self, fresh: Path, target: Path) -> None:
        if os.path.lexists(target):
            target.rename(self._scratch / "in.old")
        fresh.rename(target)

    async def _difference(
        self, tree: Path, base_sha: str, agent_index: Path | None, ignored_too: bool, bytes_limit: int
    ) -> _Difference:
        files, folders = await anyio.to_thread.run_sync(list_tree, tree)
        base = await self._base(base_sha)
        unwanted = await self._unwanted(tree, files, base, agent_index, ignored_too)
        for path in unwanted:
            del files[path]
        populated = {parent for path in files for parent in _parents(path)}
        deleted = tuple(
            path
            for path, (mode, _) in base.items()
            if path not in files and not (mode == _GITLINK and path in folders and path not in populated)
        )
        stamps = await anyio.to_thread.run_sync(Stamps.read, tree.parent, self._format)
        written = await anyio.to_thread.run_sync(self._changed, tree, files, base, stamps, bytes_limit)
        if not ignored_too:
            await refuse_large_files(self._git, tree, files, written, self._scratch)
        return _Difference(written, deleted)

    async def _base(self, base_sha: str) -> dict[bytes, tuple[str, str]]:
        listed = await self._git.run(
            *("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", base_sha),
            git_dir=self._staging,
            doing="list the base commit",
        )
        base = {}
        for row in listed.fields:
            facts, _, path = row.partition(b"\t")
            mode, _, sha = facts.decode("ascii").split(" ")
            base[path] = (mode, sha)
        return base

    def _changed(
        self,
        tree: Path,
        files: Mapping[bytes, Found],
        base: Mapping[bytes, tuple[str, str]],
        stamps: Stamps,
        limit: int,
    ) -> dict[bytes, Found]:
        changed = {}
        size = 0
        for path, found in files.items():
            old = base.get(path)
            if old is not None and old[0] == found.mode:
                known = found.stamp and stamps.sha(path, found.stamp)
                if old[1] == (known or blob_sha(tree, path, found, self._format)):
                    continue
            changed[path] = found
            size += found.size
            if size > limit:
                raise NeedsOperator(f"the agent left more than {limit >> 20} MB of changed files")
        return changed

    async def _unwanted(
        self,
        tree: Path,
        files: Mapping[bytes, Found],
        base: Mapping[bytes, tuple[str, str]],
        agent_index: Path | None,
        ignored_too: bool,
    ) -> set[bytes]:
        """New files that the project ignores and the agent did not add by force, and artefacts."""
        new = [path for path in files if path not in base]
        if not new:
            return set()
        rules = self._scratch / "rules"
        if not ignored_too:
            await anyio.to_thread.run_sync(copy_files_named, b".gitignore", tree, files, rules)
        # "./" keeps a name like ":(top)" from being read as pathspec magic.
        answer = await self._git.run(
            *("check-ignore", "--no-index", "--stdin", "-z", "--verbose"),
            git_dir=self._staging,
            work_tree=rules,
            stdin=b"".join(b"./" + path + b"\0" for path in new),
            doing="apply the project's ignore rules",
            ok=(0, 1),
            failure=NeedsOperator,
        )
        artefacts: set[bytes] = set()
        ignored: set[bytes] = set()
        fields = answer.fields
        for source, _, pattern, name in zip(*(fields[n::4] for n in range(4)), strict=True):
            if not pattern.startswith(b"!"):
                group = artefacts if source.endswith(b"staging.git/info/exclude") else ignored
                group.add(name.removeprefix(b"./"))
        if ignored and agent_index is not None:
            ignored -= await self._added_by_agent(agent_index)
        return artefacts | ignored

    async def _added_by_agent(self, agent_index: Path) -> set[bytes]:
        """The names in a copy of the agent's index; none when it cannot be read as one."""
        copy = self._scratch / "agent-index"
        if not await anyio.to_thread.run_sync(_copy_plain_file, agent_index, copy):
            return set()
        listed = await self._git.run(
            *("ls-files", "-z", "--cached"),
            git_dir=self._staging,
            environment={"GIT_INDEX_FILE": str(copy)},
            doing="read the agent's index",
            ok=(0, 128),
        )
        return set(listed.fields) if listed.code == 0 else set()


async def write_commit(
    git: Git,
    git_dir: Path,
    *,
    parent: str,
    author: bytes,
    message: str,
    write_files: WriteFiles,
) -> str:
    """One commit on ``parent`` whose file commands ``write_files`` writes for ``git fast-import``."""
    stream = git_dir / "import.stream"

    def write() -> None:
        with stream.open("wb") as out:
            text = message.rstrip().encode("utf-8", "replace") + b"\n"
            out.write(b"feature done\ncommit refs/formica/written\n")
            out.write(b"author " + author + b"\ncommitter " + author + b"\n")
            out.write(b"data %d\n%s\nfrom %s\n" % (len(text), text, parent.encode()))
            write_files(out)
            out.write(b"done\n")

    try:
        await anyio.to_thread.run_sync(write)
        await git.run(
            *("fast-import", "--quiet", "--done", "--force", "--date-format=raw"),
            git_dir=git_dir,
            stdin=stream,
            doing="write what the agent left as a commit",
            failure=NeedsOperator,
        )
    finally:
        with anyio.CancelScope(shield=True), suppress(FileNotFoundError):
            await anyio.to_thread.run_sync(stream.unlink)
    written = git_dir / "refs" / "formica" / "written"
    return (await anyio.to_thread.run_sync(written.read_text)).strip()


def quoted(path: bytes) -> bytes:
    """A path as `git fast-import` takes it, whatever bytes it holds."""
    plain = b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'
    return plain.replace(b"\0", b"")


def _parents(path: bytes) -> Iterable[bytes]:
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        yield path


def _copy_plain_file(source: Path, target: Path) -> bool:
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(_INDEX_LIMIT + 1)
    if len(content) > _INDEX_LIMIT:
        return False
    target.write_bytes(content)
    return True
