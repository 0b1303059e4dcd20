"""The working files an agent left, read without git and without following a link.

All functions block; callers run them in threads. Paths are bytes relative to the tree, as git has them.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from formica.adapters.stamps import Stamp
from formica.errors import NeedsOperator

__all__ = ["Found", "blob_sha", "copy_files_named", "list_tree", "read_start", "write_blob"]

_DEPTH_LIMIT = 200
_ENTRY_LIMIT = 1_000_000
_COPY_LIMIT = 1_000_000
_CHUNK = 1 << 20
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OPEN_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC


class Found(NamedTuple):
    """A file or link of the tree: git's mode for it, and its size in bytes."""

    mode: str
    size: int
    stamp: Stamp | None = None


def list_tree(root: Path) -> tuple[dict[bytes, Found], set[bytes]]:
    """All files and links, and all folders, but nothing named `.git`. Sockets and the like are left out."""
    files: dict[bytes, Found] = {}
    folders: set[bytes] = set()

    def walk(descriptor: int, prefix: bytes, depth: int) -> None:
        if depth > _DEPTH_LIMIT:
            raise NeedsOperator(f"the agent left folders nested deeper than {_DEPTH_LIMIT}")
        with os.scandir(descriptor) as entries:
            found = [(os.fsencode(entry.name), entry.stat(follow_symlinks=False)) for entry in entries]
        for name, status in found:
            if name == b".git":
                continue
            path = prefix + name
            if stat.S_ISDIR(status.st_mode):
                folders.add(path)
                with _opened(name, _OPEN_FOLDER, descriptor) as inner:
                    walk(inner, path + b"/", depth + 1)
            elif stat.S_ISLNK(status.st_mode):
                files[path] = Found("120000", status.st_size, _stamp(status))
            elif stat.S_ISREG(status.st_mode):
                mode = "100755" if status.st_mode & 0o100 else "100644"
                files[path] = Found(mode, status.st_size, _stamp(status))
        if len(files) + len(folders) > _ENTRY_LIMIT:
            raise NeedsOperator(f"the agent left more than {_ENTRY_LIMIT} files")

    with _opened(os.fsencode(root), _OPEN_FOLDER, None) as top:
        walk(top, b"", 0)
    return files, folders


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(
        status.st_ctime_ns, status.st_mtime_ns, status.st_ino & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF
    )


def blob_sha(root: Path, path: bytes, found: Found, object_format: str) -> str:
    """The object id git would give the file's bytes as they are."""
    with _content(root, path, found) as (size, chunks):
        digest = hashlib.new(object_format, b"blob %d\0" % size, usedforsecurity=False)
        for chunk in chunks:
            digest.update(chunk)
    return digest.hexdigest()


def write_blob(root: Path, path: bytes, found: Found, out: BinaryIO) -> None:
    """``data <size>`` and the file's bytes, as ``git fast-import`` reads them."""
    with _content(root, path, found) as (size, chunks):
        out.write(b"data %d\n" % size)
        for chunk in chunks:
            out.write(chunk)
    out.write(b"\n")


def copy_files_named(name: bytes, root: Path, files: Mapping[bytes, Found], target: Path) -> int:
    """Copy the tree's files of that name, and nothing else, to a folder of ours; how many there were."""
    copied = 0
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, found in files.items():
        if path.rpartition(b"/")[2] != name or found.mode == "120000" or found.size > _COPY_LIMIT:
            continue
        copied += 1
        copy = target / os.fsdecode(path)
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _content(root, path, found) as (_, chunks), copy.open("wb") as file:
            for chunk in chunks:
                file.write(chunk)
    return copied


def read_start(root: Path, path: bytes, size: int) -> bytes:
    """The first bytes of a file."""
    with _parent(root, path) as (folder, name), _opened(name, _OPEN_FILE, folder) as descriptor:
        return os.read(descriptor, size)


@contextmanager
def _opened(name: bytes, flags: int, folder: int | None) -> Iterator[int]:
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        shown = name.decode("utf-8", "replace")
        raise NeedsOperator(f"{shown!r} in the agent's tree cannot be read: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _parent(root: Path, path: bytes) -> Iterator[tuple[int, bytes]]:
    """The folder that holds ``path``, opened one step at a time so that no link is ever followed."""
    *folders, name = path.split(b"/")
    with _opened(os.fsencode(root), _OPEN_FOLDER, None) as top:
        descriptor = os.dup(top)
    try:
        for folder in folders:
            with _opened(folder, _OPEN_FOLDER, descriptor) as inner:
                os.close(descriptor)
                descriptor = os.dup(inner)
        yield descriptor, name
    finally:
        os.close(descriptor)


@contextmanager
def _content(root: Path, path: bytes, found: Found) -> Iterator[tuple[int, Iterator[bytes]]]:
    """Size and bytes of a file, or of a link's target text."""
    with _parent(root, path) as (folder, name):
        if found.mode == "120000":
            target = os.readlink(name, dir_fd=folder)
            yield len(target), iter([target])
            return
        with _opened(name, _OPEN_FILE, folder) as descriptor:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise NeedsOperator("the agent's tree changed while it was read")
            yield status.st_size, _chunks(descriptor, status.st_size)


def _chunks(descriptor: int, size: int) -> Iterator[bytes]:
    left = size
    while left:
        chunk = os.read(descriptor, min(left, _CHUNK))
        if not chunk:
            raise NeedsOperator("the agent's tree changed while it was read")
        left -= len(chunk)
        yield chunk
