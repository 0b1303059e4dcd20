"""Server-sent events: readers of the one event log, each with a cursor of its own."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio

from pool_server.contract.models import EventFilter
from pool_server.errors import PoolError, RateLimited
from pool_server.pool import Pool
from pool_server.rules.access import Caller

__all__ = ["GUEST_STREAMS", "EventStreams", "frame"]

GUEST_STREAMS = 3
PAGE = 200
RECHECK_SECONDS = 1.0
COMMENT_SECONDS = 15.0


def frame(event: dict[str, Any]) -> bytes:
    """One event on the wire; ``id`` is its seq."""
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"id: {event['seq']}\nevent: {event['event_type']}\ndata: {data}\n\n".encode()


class EventStreams:
    """Every open stream. ``closing`` ends them all.

    Args:
        monotonic: seconds, for the comments that keep proxies from cutting a silent stream.
    """

    def __init__(self, pool: Pool, closing: anyio.Event, *, monotonic: Callable[[], float]) -> None:
        self._pool = pool
        self._closing = closing
        self._monotonic = monotonic
        self._guests: Counter[str] = Counter()

    def open(
        self, caller: Caller, wanted: EventFilter, *, subscription_id: str | None, after: int | None
    ) -> Stream:
        """A stream from ``after``, or from now; close it.

        Raises:
            RateLimited: the guests of this thread have three open already.
        """
        guest = caller.issue_entity_id if caller.role == "guest" else None
        if guest is not None:
            if self._guests[guest] >= GUEST_STREAMS:
                raise RateLimited(f"at most {GUEST_STREAMS} streams for the guests of one issue", 5)
            self._guests[guest] += 1
        head = self._pool.head()
        cursor = head if after is None else min(after, head)
        return Stream(self, caller, wanted, subscription_id, cursor, guest)

    def _release(self, guest: str) -> None:
        self._guests[guest] -= 1
        if self._guests[guest] <= 0:
            del self._guests[guest]


class Stream:
    """One reader."""

    def __init__(
        self,
        streams: EventStreams,
        caller: Caller,
        wanted: EventFilter,
        subscription_id: str | None,
        cursor: int,
        guest: str | None,
    ) -> None:
        self._streams = streams
        self._pool = streams._pool
        self._caller = caller
        self._wanted = wanted
        self._subscription_id = subscription_id
        self._cursor = cursor
        self._guest = guest

    def close(self) -> None:
        """Give the guest's place back."""
        if self._guest is not None:
            self._streams._release(self._guest)
            self._guest = None

    async def frames(self) -> AsyncIterator[bytes]:
        """Events as they come and a comment every 15 seconds, until the right to read or the server ends."""
        try:
            async for part in self._parts():
                yield part
        except PoolError:
            # The answer has begun, so a refusal can only end it; the client resumes by its cursor.
            return

    async def _parts(self) -> AsyncIterator[bytes]:
        now = self._streams._monotonic
        yield b": open\n\n"
        last_sent = now()
        while not self._streams._closing.is_set():
            if not await self._pool.stream_allowed(self._caller, self._subscription_id):
                return
            head = self._pool.head()
            events = await self._pool.read_events(self._cursor, PAGE, self._wanted, viewer=self._caller)
            for event in events:
                yield frame(event)
                self._cursor = event["seq"]
            if len(events) == PAGE:
                continue
            # What the filter passed over need not be looked at again.
            self._cursor = max(self._cursor, head)
            if events:
                last_sent = now()
            elif now() - last_sent >= COMMENT_SECONDS:
                yield b": alive\n\n"
                last_sent = now()
            await self._next_event()

    async def _next_event(self) -> None:
        """Returns on a new event, when the server stops, or when it is time to look at the rights again."""
        async with anyio.create_task_group() as racing:

            async def give_up_when_closing() -> None:
                await self._streams._closing.wait()
                racing.cancel_scope.cancel()

            racing.start_soon(give_up_when_closing)
            await self._pool.wait_beyond(self._cursor, RECHECK_SECONDS)
            racing.cancel_scope.cancel()
