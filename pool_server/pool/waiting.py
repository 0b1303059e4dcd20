"""Waiting for the log to grow: woken by our own commits, and by a slow poll for other processes' writes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

POLL_SECONDS = 1.0


class Head:
    """The newest committed seq, in memory, and everybody who waits for a newer one.

    Of all that wait, one polls the database; when it leaves, another takes over.
    """

    def __init__(self, read: Callable[[], Awaitable[int]]) -> None:
        self._read = read
        self._value = 0
        self._changed = anyio.Event()
        self._polled = False

    @property
    def value(self) -> int:
        return self._value

    def advance(self, seq: int) -> None:
        """Note a committed seq; in the event loop's thread."""
        if seq > self._value:
            self._value = seq
            self._wake()

    async def refresh(self) -> int:
        """Read the newest seq from the database."""
        self.advance(await self._read())
        return self._value

    async def beyond(self, seq: int, timeout: float) -> int:
        """The newest seq, once it is greater than ``seq`` or ``timeout`` seconds have passed."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        while self._value <= seq and clock() < deadline:
            if self._polled:
                await self._sleep(deadline - clock())
                continue
            self._polled = True
            try:
                await self._sleep(min(POLL_SECONDS, deadline - clock()))
                while self._value <= seq and clock() < deadline:
                    await self.refresh()
                    if self._value <= seq:
                        await self._sleep(min(POLL_SECONDS, deadline - clock()))
            finally:
                self._polled = False
                self._wake()
        return self._value

    async def _sleep(self, seconds: float) -> None:
        changed = self._changed
        with anyio.move_on_after(max(0.0, seconds)):
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
