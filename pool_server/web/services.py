"""What the lifespan builds and the routes use. Before it has started, and after it has stopped, a 503."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import anyio

from pool_server.contract.models import EventFilter, Input
from pool_server.errors import Unavailable
from pool_server.pool import Operation, Pool, Reply
from pool_server.rules.access import Caller

__all__ = ["EventStream", "EventStreams", "Services"]


class EventStream(Protocol):
    """One open SSE stream."""

    def frames(self) -> AsyncIterator[bytes]:
        """The bytes to send, until the stream has to end."""
        ...

    def close(self) -> None:
        """Give its place back."""
        ...


class EventStreams(Protocol):
    """All SSE streams; delivery has the one implementation."""

    def open(
        self, caller: Caller, wanted: EventFilter, *, subscription_id: str | None, after: int | None
    ) -> EventStream:
        """A stream from ``after``, or from now; the caller closes it.

        Raises:
            RateLimited: a guest has as many streams open as it may.
        """
        ...


class Services:
    """Set by the lifespan, read by every request."""

    def __init__(self) -> None:
        self._pool: Pool | None = None
        self._streams: EventStreams | None = None
        self.closing = anyio.Event()
        """Set when the process is asked to stop: streams and long polls end, requests in flight finish."""

    def start(self, pool: Pool, streams: EventStreams) -> None:
        """From now on requests are served."""
        self._pool, self._streams = pool, streams

    def stop(self) -> None:
        """From now on they are refused."""
        self._pool = self._streams = None

    @property
    def pool(self) -> Pool:
        """Raises Unavailable while there is none."""
        if self._pool is None:
            raise Unavailable("the server is starting or stopping")
        return self._pool

    @property
    def streams(self) -> EventStreams:
        """Raises Unavailable while there are none."""
        if self._streams is None:
            raise Unavailable("the server is starting or stopping")
        return self._streams

    async def call(self, operation: Operation, caller: Caller, args: Input) -> Reply:
        """``Pool.call``, but a long poll answers at once when the server is asked to stop."""
        if not getattr(args, "wait", 0):
            return await self.pool.call(operation, caller, args)
        reply: Reply | None = None
        async with anyio.create_task_group() as racing:

            async def give_up_when_closing() -> None:
                await self.closing.wait()
                racing.cancel_scope.cancel()

            racing.start_soon(give_up_when_closing)
            reply = await self.pool.call(operation, caller, args)
            racing.cancel_scope.cancel()
        if reply is None:
            without_wait = args.model_copy(update={"wait": 0})
            reply = await self.pool.call(operation, caller, without_wait)
        return reply
