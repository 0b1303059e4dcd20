"""Which files of a tree are still as we checked them out, by what the kernel says of them.

Git's index holds the change time, inode and size of each file it wrote. A copy of ours, taken before an agent
runs, spares reading a file whose data are the same: a change time cannot be set back. The copy lies beside
the tree; whoever could forge it could only hide work of their own.
"""

from __future__ import annotations

import os
import shutil
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from formica.adapters.plain_files import fresh_file, open_plain

__all__ = ["Stamp", "Stamps", "copy_index"]

_NAME = "checked-out.index"
_HEADER = struct.Struct(">4sLL")
_ENTRY = struct.Struct(">10L")
# A file changed in the same tick of the clock as the copy was made has the same change time as before.
_TICK_NANOSECONDS = 20_000_000
_LIMIT = 1 << 30
_SECOND = 1_000_000_000


class Stamp(NamedTuple):
    """What of `stat` tells a changed file; ``size`` and ``inode`` modulo 2**32, as the index has them."""

    changed_ns: int
    modified_ns: int
    inode: int
    size: int


@dataclass(frozen=True, slots=True)
class Stamps:
    """The object id of each file that was checked out, with its stamp."""

    known: dict[bytes, tuple[Stamp, str]] = field(default_factory=dict)

    def sha(self, path: bytes, stamp: Stamp) -> str | None:
        """The object id of the file's bytes, if they are the ones checked out."""
        there = self.known.get(path)
        return there[1] if there is not None and there[0] == stamp else None

    @classmethod
    def read(cls, root: Path, object_format: str) -> Stamps:
        """Those of the item at ``root``; none when there is no copy or it is of another kind; blocking."""
        try:
            with os.fdopen(open_plain(root / _NAME), "rb") as file:
                content = file.read(_LIMIT)
                taken = os.fstat(file.fileno()).st_mtime_ns
            return cls(_entries(content, taken - _TICK_NANOSECONDS, 32 if object_format == "sha256" else 20))
        except (OSError, ValueError, struct.error):
            return cls()


def copy_index(root: Path) -> None:
    """Copy the index of the worktree that was just checked out at ``root``; blocking."""
    with (
        os.fdopen(open_plain(root / "repo.git" / "worktrees" / "tree" / "index"), "rb") as index,
        os.fdopen(fresh_file(root / _NAME), "wb") as copy,
    ):
        shutil.copyfileobj(index, copy, 1 << 20)


def _entries(content: bytes, before_ns: int, sha_bytes: int) -> dict[bytes, tuple[Stamp, str]]:
    """https://git-scm.com/docs/index-format, version 2."""
    signature, version, count = _HEADER.unpack_from(content)
    if signature != b"DIRC" or version != 2:
        raise ValueError("not an index of version 2")
    known = {}
    position = _HEADER.size
    for _ in range(count):
        c_s, c_ns, m_s, m_ns, _dev, inode, _mode, _uid, _gid, size = _ENTRY.unpack_from(content, position)
        name_at = position + _ENTRY.size + sha_bytes + 2
        end = content.index(b"\0", name_at)
        stamp = Stamp(c_s * _SECOND + c_ns, m_s * _SECOND + m_ns, inode, size)
        if stamp.changed_ns < before_ns:
            sha = content[position + _ENTRY.size : position + _ENTRY.size + sha_bytes].hex()
            known[content[name_at:end]] = (stamp, sha)
        position += (end - position + 8) & ~7
    return known
