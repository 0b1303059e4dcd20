"""The daemon's state folder: private, and held by one process at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from formica.errors import Refused, Retryable

__all__ = ["hold", "owner_of", "read_hint", "write_hint"]

HINT_BYTES = 4_096


@contextmanager
def hold(folder: Path) -> Iterator[str]:
    """Make the folder if need be, lock it, and give the UUID that owns leases from it.

    The UUID survives restarts, and the lock proves that its last bearer is gone: so a daemon that was killed
    goes on at once with the leases it left.

    Raises:
        Retryable: another process holds the folder.
        Refused: the folder cannot be made or written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Refused(
            f"daemon.state: {folder} cannot be used ({error.strerror})", rule="daemon.state"
        ) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Retryable(f"another formica holds {folder}; give this one its own [daemon] state") from None
        yield _owner(folder / "owner")
    finally:
        os.close(descriptor)


def owner_of(folder: Path) -> str | None:
    """The UUID that owns leases from the folder, or None when no daemon ever held it."""
    try:
        return str(uuid.UUID(read_hint(folder / "owner").strip()))
    except ValueError:
        return None


def _owner(path: Path) -> str:
    try:
        return str(uuid.UUID(read_hint(path).strip()))
    except ValueError:
        fresh = str(uuid.uuid4())
        write_hint(path, fresh)
        return fresh


def read_hint(path: Path) -> str:
    """A small file of ours, or nothing: what is no plain file there (a link, a pipe, a folder) says nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.read(descriptor, HINT_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def write_hint(path: Path, text: str) -> None:
    """Replace the file whole; whatever else stood in its place is taken away first."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    partial = path.with_name(f"{path.name}.new")
    partial.unlink(missing_ok=True)
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
