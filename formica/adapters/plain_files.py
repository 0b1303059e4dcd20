"""Files where an agent may have been: a link, a pipe, a device or a folder in their place is an OSError, not a
wait or another file. Standard library only; all functions block, and never for ever."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

__all__ = ["clear", "fresh_file", "open_plain", "read_plain"]


def open_plain(path: Path) -> int:
    """A descriptor of the regular file at ``path``, to read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    return descriptor


def read_plain(path: Path, limit: int) -> bytes:
    """All of the regular file at ``path``; an OSError when it holds more than ``limit`` bytes."""
    with os.fdopen(open_plain(path), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, "it is too large", str(path))
    return content


def fresh_file(path: Path) -> int:
    """A descriptor of a new, empty file at ``path`` for its owner, to write and read back; what was there is
    removed."""
    clear(path)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def clear(path: Path) -> None:
    """Nothing is at ``path`` any more, whatever it was; links are not followed."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(path.lstat().st_mode):
            shutil.rmtree(path)
        else:
            path.unlink()
