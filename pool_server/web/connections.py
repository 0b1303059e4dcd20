"""How many connections there may be, and how long one may take to say what it wants.

A request that has not arrived whole by its deadline is refused and its connection closed. When the places are taken,
whoever has been silent or slow for longest makes room; when every connection is being answered, a newcomer is told
so, and only the probes (``/health``, ``/ready``) are still served: these must not starve.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol

import h11
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from pool_server.errors import PoolError, Unavailable, ValidationFailed
from pool_server.web.answers import refusal

__all__ = ["Gate", "GatedProtocol"]

PROBES = frozenset(("/health", "/ready"))
SPARE = 16
"""Places for probes when all others are being answered."""
RETRY_SECONDS = 5

logger = structlog.get_logger(source="pool_server.connections")


class Connection(Protocol):
    """One connection, as the gate sees it."""

    def make_room(self) -> None:
        """Refuse what has arrived so far and close."""
        ...


class Gate:
    """The places of one server. Counts only; the clock is the event loop's.

    Args:
        places: how many there are at this moment.
        per_address: how many one address may take; 0 is no limit.
        trusted: proxies, which stand for many.
        seconds: for receiving a request whole, and for a client to go on reading its answer.
    """

    def __init__(
        self, *, places: Callable[[], int], per_address: int, trusted: Iterable[str], seconds: float
    ) -> None:
        self.seconds = seconds
        self._places = places
        self._per_address = per_address
        self._trusted = [ipaddress.ip_network(each) for each in trusted]
        self._address: dict[Connection, str] = {}
        self._count: Counter[str] = Counter()
        # Those that are not being answered, the longest waiting first.
        self._waiting: dict[Connection, None] = {}

    def enter(self, connection: Connection, address: str) -> Literal["welcome", "probes only", "full"]:
        """Give a new connection a place, if need be that of the one that has waited longest."""
        crowded = 0 < self._per_address <= self._count[address] and not self._is_trusted(address)
        if crowded or len(self._address) >= self._places():
            longest = next(
                (each for each in self._waiting if not crowded or self._address[each] == address), None
            )
            if longest is not None:
                self.leave(longest)
                longest.make_room()
            elif crowded or len(self._address) >= self._places() + SPARE:
                return "full"
        full = len(self._address) >= self._places()
        self._address[connection] = address
        self._count[address] += 1
        self._waiting[connection] = None
        return "probes only" if full else "welcome"

    def wait(self, connection: Connection) -> None:
        """It is not being answered, from now on."""
        if connection in self._address and connection not in self._waiting:
            self._waiting[connection] = None

    def answered(self, connection: Connection) -> None:
        """Its request has arrived: it keeps its place until the answer is sent."""
        self._waiting.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """Its place is free; again is no change."""
        address = self._address.pop(connection, None)
        self._waiting.pop(connection, None)
        if address is not None:
            self._count[address] -= 1
            if self._count[address] <= 0:
                del self._count[address]

    def _is_trusted(self, address: str) -> bool:
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        return any(parsed in network for network in self._trusted)


class GatedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, with a place at the gate and a deadline."""

    def __init__(self, *args: Any, gate: Gate, **more: Any) -> None:
        super().__init__(*args, **more)
        self._gate = gate
        self._deadline = _Timer(self.loop, gate.seconds, self._expired)
        self._stalled = _Timer(self.loop, gate.seconds, self._stopped_reading)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        place = self._gate.enter(self, self.client[0] if self.client else "unknown")
        if place == "full":
            self.make_room()
            return
        if place == "probes only":
            self.app = _probes_only(self.app)
        self._deadline.start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self)
        self._deadline.stop()
        self._stalled.stop()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._settle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled.stop()

    def send_400_response(self, _: str) -> None:
        """What is no HTTP gets the envelope too."""
        self.transport.write(
            _on_the_wire(ValidationFailed("not a valid HTTP request", {"request": "malformed"}))
        )
        self.transport.close()

    def make_room(self) -> None:
        self._refuse(Unavailable("too many connections", RETRY_SECONDS))

    def _settle(self) -> None:
        """Note whether a request is still to come, and until when."""
        state = self.conn.their_state
        if state not in (h11.IDLE, h11.SEND_BODY) or self.transport.is_closing():
            self._gate.answered(self)
            self._deadline.stop()
            return
        self._gate.wait(self)
        if state is h11.SEND_BODY or self.conn.trailing_data[0]:
            self._deadline.start()
        else:
            # Between two requests uvicorn's own timer runs.
            self._deadline.stop()

    def _expired(self) -> None:
        part = "body" if self.conn.their_state is h11.SEND_BODY else "request"
        self._refuse(ValidationFailed(f"the {part} did not arrive in time", {part: "did not arrive in time"}))

    def _stopped_reading(self) -> None:
        logger.warning("not read in time")
        self.transport.abort()

    def _refuse(self, error: PoolError) -> None:
        """Answer a request that is not whole, unless its answer has begun; then close."""
        partly = self.conn.their_state is h11.SEND_BODY
        begun = partly and self.cycle.response_started
        if not begun and (partly or self.conn.trailing_data[0]):
            logger.warning("refused before it was whole", error=error.error_code)
            self.transport.write(_on_the_wire(error))
        if partly:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


class _Timer:
    """Runs ``expired`` after some seconds, unless it is stopped before; starting one that runs is no change."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float, expired: Callable[[], None]) -> None:
        self._loop, self._seconds, self._expired = loop, seconds, expired
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(self._seconds, self._expired)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


def _on_the_wire(error: PoolError) -> bytes:
    """The refusal as bytes: no request stands behind it that an application could answer."""
    answer = refusal(error, {"connection": "close"})
    phrase = {400: "Bad Request", 503: "Service Unavailable"}[answer.status_code]
    head = [f"HTTP/1.1 {answer.status_code} {phrase}".encode()]
    head += [name + b": " + value for name, value in answer.raw_headers]
    return b"\r\n".join(head) + b"\r\n\r\n" + bytes(answer.body)


def _probes_only(app: ASGIApp) -> ASGIApp:
    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
            return
        full = Unavailable("too many connections", RETRY_SECONDS)
        await refusal(full, {"connection": "close"})(scope, receive, send)

    return serve
