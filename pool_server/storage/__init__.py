"""The storage port. Services are sync functions of a connection; the store runs them in its threads.

Disk full, I/O errors and locks that do not clear are ``errors.Unavailable``; nothing is half-written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection

__all__ = ["Connection", "StorageError", "Store"]

T = TypeVar("T")


class StorageError(RuntimeError):
    """The database cannot be opened; the message is a sentence for the person who runs the server."""


class Store(Protocol):
    """One database: many readers, one writer that commits waiting transactions together."""

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run ``fn`` in a read-only transaction, in a thread."""
        ...

    async def write(
        self, fn: Callable[[Connection], T], *, on_commit: Callable[[T], None] | None = None
    ) -> T:
        """Run ``fn`` in a transaction of its own and return once it is durable.

        ``on_commit`` is called with the result in the writer's thread, after the commit and before this
        returns; it must not raise. A cancelled caller does not stop ``fn``: it may still commit.
        """
        ...

    async def prove(self) -> None:
        """Return if writes are durable at this moment: by a commit a moment ago, or by one now.

        Raises:
            Unavailable: they are not.
        """
        ...

    async def close(self) -> None:
        """Finish what is queued, then close; writes after this are ``Unavailable``."""
        ...
