"""Repositories made for one act of ours, from what an item's `in.git` holds and outside of the item's folder.

A program of an agent or a project can, where nothing confines it, write anything in its item's folder. So of
`in.git` only objects are taken, as plain files, and a fetch works out the name of each one again from its
bytes: no configuration, ref, hook, link or borrowed store of that folder counts. The names the act asks for
come from the plan.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import anyio

from formica.adapters.bare import make_bare_repository
from formica.adapters.collect import COLLECTED
from formica.adapters.git import Git
from formica.adapters.items import delete_tree
from formica.errors import NeedsOperator

__all__ = ["BASE", "Trusted", "bring", "format_of", "new_scratch", "remove_scratch"]

BASE = "refs/formica/base"
_CHECKED = (("transfer.fsckObjects", "true"), ("fetch.fsckObjects", "true"))
_FOLDER = "scratch"
_MIRROR = re.compile(r"[0-9a-f]{12}\.git")
_BYTES_LIMIT = 2 << 30
_LOOSE = re.compile(r"[0-9a-f]{2}/[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PACK = re.compile(r"pack/pack-[0-9a-f]+\.(?:pack|idx)")


class Trusted:
    """Makes them for the item at ``root`` (`<state>/items/<n>`), below `<state>/scratch`."""

    def __init__(self, git: Git, root: Path, *, base_sha: str, head_sha: str) -> None:
        self._git = git
        self._objects = root / "in.git" / "objects"
        self._state = root.parent.parent
        self._base = base_sha
        self._head = head_sha

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Path]:
        """A bare repository of the base and the head, with refs `BASE` and `COLLECTED`; gone afterwards.
        ``NeedsOperator`` when the head is not there or an object is not what its name says."""
        scratch = await anyio.to_thread.run_sync(new_scratch, self._state)
        try:
            mirror = await anyio.to_thread.run_sync(self._mirror_objects)
            clean = scratch / "clean.git"
            make = partial(make_bare_repository, objects=[mirror], object_format=format_of(self._base))
            await anyio.to_thread.run_sync(partial(make, clean, refs={BASE: self._base}))
            if self._head != self._base:
                loose = scratch / "loose.git"
                await anyio.to_thread.run_sync(partial(make, loose, refs={COLLECTED: self._head}))
                await anyio.to_thread.run_sync(_copy_objects, self._objects, loose / "objects")
                await bring(self._git, loose, clean, self._head)
                await anyio.to_thread.run_sync(delete_tree, loose)
            yield clean
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(delete_tree, scratch)

    def _mirror_objects(self) -> Path:
        """The one mirror of ours that `in.git` borrows from."""
        text = os.fsdecode(_read_plain(self._objects / "info" / "alternates", 10_000))
        store = Path(text.removesuffix("\n"))
        mirror = store.parent
        if store.name != "objects" or mirror.parent != self._state / "mirrors":
            raise NeedsOperator("the collected change borrows objects from a place that is not ours")
        if not _MIRROR.fullmatch(mirror.name) or mirror.is_symlink() or not store.is_dir():
            raise NeedsOperator("the collected change borrows objects from a place that is not ours")
        return store


async def bring(git: Git, source: Path, target: Path, sha: str, *, ref: str = COLLECTED) -> None:
    """Fetch a commit from one repository of ours into another, every object checked."""
    await git.run(
        *("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
        *("--end-of-options", str(source), f"+{sha}:{ref}"),
        git_dir=target,
        settings=_CHECKED,
        doing="check the objects of the collected change",
        failure=NeedsOperator,
    )


def format_of(sha: str) -> str:
    return "sha256" if len(sha) == 64 else "sha1"


def new_scratch(state: Path) -> Path:
    """An empty folder of ours that no program was told of; blocking."""
    folder = state / _FOLDER / uuid.uuid4().hex
    folder.mkdir(mode=0o700, parents=True)
    return folder


def remove_scratch(state: Path) -> None:
    """What a daemon that was killed left of them; blocking."""
    delete_tree(state / _FOLDER)


def _copy_objects(source: Path, target: Path) -> None:
    """The loose objects and packs, read as plain files: no link is followed, nothing else is looked at."""
    size = 0
    for folder in [source, *(path for path in _entries(source) if not path.is_symlink() and path.is_dir())]:
        for path in _entries(folder):
            name = str(path.relative_to(source))
            if not (_LOOSE.fullmatch(name) or _PACK.fullmatch(name)):
                continue
            with suppress(OSError):
                size += path.lstat().st_size
            if size > _BYTES_LIMIT:
                raise NeedsOperator("the collected change is larger than any that was collected")
            _copy_plain(path, target / name)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _open_plain(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    return None


def _copy_plain(source: Path, target: Path) -> None:
    descriptor = _open_plain(source)
    if descriptor is None:
        return
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with os.fdopen(descriptor, "rb") as content, target.open("xb") as out:
        shutil.copyfileobj(content, out)


def _read_plain(path: Path, limit: int) -> bytes:
    descriptor = _open_plain(path)
    if descriptor is None:
        return b""
    with os.fdopen(descriptor, "rb") as content:
        return content.read(limit)
