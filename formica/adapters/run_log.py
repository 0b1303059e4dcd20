"""The log of a run: bounded, and never without its end. Standard library only."""

from __future__ import annotations

import os

__all__ = ["RunLog", "write_all"]


class RunLog:
    """A file of bounded size: its beginning as it comes, then only the newest bytes, kept in memory. It is
    opened by whoever started us: a path is whatever the program makes of it meanwhile."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self._file = descriptor
        self._tail_limit = min(1 << 20, limit // 4)
        self._left = limit - self._tail_limit
        self._tail = bytearray()
        self.dropped = 0

    def write(self, chunk: bytes) -> None:
        head, rest = chunk[: self._left], chunk[self._left :]
        self._left -= len(head)
        write_all(self._file, head)
        self._tail += rest
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    def close(self) -> None:
        self._trim()
        if self.dropped:
            write_all(self._file, b"\n[%d bytes left out]\n" % self.dropped)
        write_all(self._file, bytes(self._tail))
        os.close(self._file)

    def _trim(self) -> None:
        over = max(0, len(self._tail) - self._tail_limit)
        self.dropped += over
        del self._tail[:over]


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
