"""The daemon's state folder: private, and held by one process at a time."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from formica.errors import Refused, Retryable

__all__ = ["hold", "owner_of"]


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
        return str(uuid.UUID((folder / "owner").read_text().strip()))
    except (OSError, ValueError):
        return None


def _owner(path: Path) -> str:
    try:
        return str(uuid.UUID(path.read_text().strip()))
    except (OSError, ValueError):
        fresh = str(uuid.uuid4())
        partial = path.with_suffix(".new")
        partial.write_text(fresh)
        partial.replace(path)
        return fresh
