"""What `setup_command` made, kept for every checkout with the same lock files.

A snapshot is made only from a base commit, the maintainer's own code, and lies outside of everything a run can
write. It holds the files that the setup added to the tree and to HOME. Where they name the place they were made
in (a virtual environment does), the snapshot serves that place alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import time
import uuid
from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import anyio

from formica.adapters.items import delete_tree
from formica.errors import NeedsOperator

__all__ = ["SetupCache"]

_READ = 1 << 20
_DAY = 86_400.0
_NOT_KEPT = {".git"}
_TEMPORARY = "tmp"


@dataclass(frozen=True, slots=True)
class _Made:
    """What a setup added: paths below the tree and HOME, their size in bytes, whether they name their place."""

    tree: list[str]
    home: list[str]
    size: int
    bound: bool


class SetupCache:
    """Snapshots below ``folder``: at most ``keep`` of them, none larger than ``bytes_limit``, and none that would
    leave less than ``leave_free`` bytes on the disk."""

    def __init__(
        self, folder: Path, *, keep: int = 4, bytes_limit: int = 2 * 1024**3, leave_free: int = 4 * 1024**3
    ) -> None:
        self._folder = folder
        self._keep = keep
        self._limit = bytes_limit
        self._leave_free = leave_free

    async def restore(self, key: str, tree: Path, home: Path) -> Literal["restored", "none", "spoilt"]:
        """Put the snapshot of ``key`` into a fresh checkout. ``none``: there is none that fits; ``spoilt``: it
        could not be put there, and the checkout may hold a part of it."""
        return await anyio.to_thread.run_sync(partial(self._restore, key, tree, home))

    async def store(self, key: str, tree: Path, home: Path, tracked: Set[str]) -> bool:
        """Keep what is in the tree beyond the ``tracked`` paths, and HOME. False: it cannot be kept."""
        return await anyio.to_thread.run_sync(partial(self._store, key, tree, home, tracked))

    def _restore(self, key: str, tree: Path, home: Path) -> Literal["restored", "none", "spoilt"]:
        for name in (key, _bound(key, tree)):
            folder = self._folder / name
            with _shared(folder) as held:
                if not held:
                    continue
                try:
                    os.utime(folder)
                    _copy(folder / "tree", tree)
                    _copy(folder / "home", home)
                except (OSError, shutil.Error):
                    return "spoilt"
                return "restored"
        return "none"

    def _store(self, key: str, tree: Path, home: Path, tracked: Set[str]) -> bool:
        partial_folder = self._folder / f"new-{uuid.uuid4().hex}"
        try:
            made = _made(tree, home, tracked)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if made.size > self._limit or shutil.disk_usage(self._folder).free - made.size < self._leave_free:
                return False
            partial_folder.mkdir(mode=0o700)
            _take(tree, made.tree, partial_folder / "tree")
            _take(home, made.home, partial_folder / "home")
            (partial_folder / "lock").touch(mode=0o600)
            partial_folder.rename(self._folder / (_bound(key, tree) if made.bound else key))
        except (OSError, shutil.Error):
            return False
        finally:
            with suppress(NeedsOperator):
                delete_tree(partial_folder)
        self._prune()
        return True

    def _prune(self) -> None:
        """Beyond ``keep`` the longest unused go, and what a crash left half made."""
        for path in [*self._folder.glob("new-*"), *self._folder.glob("old-*")]:
            if time.time() - _modified(path) > _DAY:
                with suppress(NeedsOperator):
                    delete_tree(path)
        found = [
            path
            for path in self._folder.iterdir()
            if (path / "lock").is_file() and not path.name.startswith(("new-", "old-"))
        ]
        for path in sorted(found, key=_modified, reverse=True)[self._keep :]:
            with _exclusive(path) as held, suppress(OSError, NeedsOperator):
                if held:
                    doomed = self._folder / f"old-{uuid.uuid4().hex}"
                    path.rename(doomed)
                    delete_tree(doomed)


def _bound(key: str, tree: Path) -> str:
    return f"{key}-{hashlib.sha256(os.fsencode(tree)).hexdigest()[:16]}"


def _modified(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def _shared(folder: Path) -> AbstractContextManager[bool]:
    return _locked(folder, fcntl.LOCK_SH)


def _exclusive(folder: Path) -> AbstractContextManager[bool]:
    return _locked(folder, fcntl.LOCK_EX)


def _made(tree: Path, home: Path, tracked: Set[str]) -> _Made:
    folders = {
        "/".join(path.split("/")[:depth]) for path in tracked for depth in range(1, path.count("/") + 1)
    }
    added = list(_added(tree, "", tracked, folders))
    kept = [entry.name for entry in home.iterdir() if entry.name != _TEMPORARY] if home.is_dir() else []
    places = (os.fsencode(tree), os.fsencode(home))
    size, bound = 0, False
    for top in [*(tree / name for name in added), *(home / name for name in kept)]:
        for path in _files(top):
            size += path.lstat().st_size
            bound = bound or _names(path, places)
    return _Made(added, kept, size, bound)


def _added(tree: Path, below: str, tracked: Set[str], folders: Set[str]) -> Iterator[str]:
    """The topmost paths that no commit holds."""
    for entry in sorted(os.scandir(tree / below), key=lambda entry: entry.name):
        path = f"{below}/{entry.name}" if below else entry.name
        if path in _NOT_KEPT or path in tracked:
            continue
        if path in folders and entry.is_dir(follow_symlinks=False):
            yield from _added(tree, path, tracked, folders)
        else:
            yield path


def _files(top: Path) -> Iterator[Path]:
    if top.is_symlink() or not top.is_dir():
        yield top
        return
    for folder, folders, files in os.walk(top):
        for name in [*files, *(name for name in folders if (Path(folder) / name).is_symlink())]:
            yield Path(folder) / name


def _names(path: Path, places: Sequence[bytes]) -> bool:
    """Whether a file, or the target of a link, names one of the places."""
    if path.is_symlink():
        return any(place in os.fsencode(path.readlink()) for place in places)
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(f"{path.name} is no file")
    longest = max(map(len, places))
    with path.open("rb") as file:
        rest = b""
        while chunk := file.read(_READ):
            rest += chunk
            if any(place in rest for place in places):
                return True
            rest = rest[-longest:]
    return False


def _take(source: Path, names: Sequence[str], target: Path) -> None:
    target.mkdir(mode=0o700)
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        _copy_one(source / name, target / name)


def _copy(source: Path, target: Path) -> None:
    """Everything in ``source`` into ``target``, through real folders only and over nothing that is there."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for entry in list(os.scandir(source)):
        place = target / entry.name
        if not os.path.lexists(place):
            _copy_one(Path(entry.path), place)
        elif entry.is_dir(follow_symlinks=False) and stat.S_ISDIR(place.lstat().st_mode):
            _copy(Path(entry.path), place)
        else:
            raise OSError(f"{entry.name} is there already")


def _copy_one(source: Path, target: Path) -> None:
    if source.is_symlink() or not source.is_dir():
        shutil.copy2(source, target, follow_symlinks=False)
    else:
        shutil.copytree(source, target, symlinks=True)
