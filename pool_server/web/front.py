"""What every request passes before a route is looked at: host, size, header credentials; and the access log.

The order is part of the contract: a body over the cap is a 413 whoever sends it, and a wrong credential in a
header is a 401 on every route, unknown ones and ``/health`` included. On ``/mcp`` both checks on who may call
are the tool's own, since a refusal there is a tool result.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Awaitable, Callable
from typing import Any

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pool_server.contract.models import MAX_BODY_BYTES
from pool_server.errors import PoolError, TooLarge, ValidationFailed
from pool_server.pool import Presented
from pool_server.rules.access import Caller
from pool_server.web.answers import internal, refusal
from pool_server.web.auth import NOTHING_PRESENTED, presented_in_headers

__all__ = ["Authenticate", "FrontDoor", "HostGuard", "address_of", "client_of"]

# An unread body that is cut off makes the client see a reset instead of the 413.
DRAIN_LIMIT = 8 * 1024 * 1024
MCP_PATH = "/mcp"

Authenticate = Callable[[Presented, str, str], Awaitable[Caller]]
"""``(presented, address, client)`` to the caller; raises AuthInvalid."""

logger = structlog.get_logger(source="pool_server.access")


class HostGuard:
    """Which ``Host`` is ours: against web pages that point their own name at a loopback server.

    A server bound to another address is reachable under names it cannot know; then only ``allowed_hosts``,
    if given, restrict it.
    """

    def __init__(self, bound_host: str, allowed_hosts: tuple[str, ...]) -> None:
        self.names: tuple[str, ...] = ()
        if is_loopback(bound_host) or allowed_hosts:
            own = {
                "127.0.0.1",
                "localhost",
                "::1",
                bound_host.lower().strip("[]"),
                *map(str.lower, allowed_hosts),
            }
            self.names = tuple(sorted(own))

    def admits(self, host: str | None) -> bool:
        """``host`` with or without a port."""
        return not self.names or host_name(host or "") in self.names


def is_loopback(host: str) -> bool:
    """Whether binding to ``host`` stays on this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(host: str) -> str:
    """``host`` without its port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def address_of(scope: Scope) -> str:
    """The peer's address; uvicorn has already replaced it where a trusted proxy says so."""
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


def client_of(headers: Headers) -> str:
    """The user agent, whole: a token that is cut in two is not recognised any more."""
    return headers.get("user-agent", "")


class FrontDoor:
    """ASGI middleware; leaves ``presented`` and ``caller`` in ``scope["state"]``."""

    def __init__(self, app: ASGIApp, *, hosts: HostGuard, authenticate: Authenticate) -> None:
        self.app = app
        self.hosts = hosts
        self.authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.monotonic()
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._admit(scope, receive, watched)
        except ClientDisconnect:
            pass
        except Exception as bug:  # noqa: BLE001 -- the root of the web side: logged under an id, answered once
            error = internal(bug, _route_of(scope))
            if status == 0:
                await refusal(error)(scope, receive, watched)
        finally:
            logger.info(
                "request",
                method=scope["method"],
                route=_route_of(scope),
                status=status,
                ms=round((time.monotonic() - started) * 1000, 1),
            )

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        if scope["path"] == MCP_PATH:
            if scope["method"] == "GET":
                # The SDK would hold a stream open in which nothing ever comes.
                await Response(status_code=405, headers={"allow": "POST"})(scope, receive, send)
                return
        elif not self.hosts.admits(headers.get("host")):
            misnamed = ValidationFailed(
                "this server does not go by that name", {"host": "not an allowed host"}
            )
            await refusal(misnamed)(scope, receive, send)
            return
        body = await _buffered(headers, receive)
        if body is None:
            oversized = TooLarge("the body is too large", {"max_bytes": MAX_BODY_BYTES})
            await refusal(oversized)(scope, receive, send)
            return
        try:
            await self._identify(scope, headers)
        except PoolError as refused:
            await refusal(refused)(scope, receive, send)
            return
        await self.app(scope, _replayed(body, receive), send)

    async def _identify(self, scope: Scope, headers: Headers) -> None:
        presented = presented_in_headers(scope["headers"])
        state: dict[str, Any] = scope.setdefault("state", {})
        state["presented"] = presented
        state["caller"] = None
        if scope["path"] != MCP_PATH and presented is not NOTHING_PRESENTED:
            state["caller"] = await self.authenticate(presented, address_of(scope), client_of(headers))


async def _buffered(headers: Headers, receive: Receive) -> bytes | None:
    """The whole body, or None when it is over the cap."""
    declared = headers.get("content-length", "")
    too_large = declared.isascii() and declared.isdigit() and _exceeds(declared, MAX_BODY_BYTES)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        chunk = message.get("body", b"")
        size += len(chunk)
        too_large = too_large or size > MAX_BODY_BYTES
        if too_large:
            chunks.clear()
        else:
            chunks.append(chunk)
        if not message.get("more_body", False) or size > DRAIN_LIMIT:
            break
    return None if too_large else b"".join(chunks)


def _exceeds(number: str, limit: int) -> bool:
    digits = number.lstrip("0")
    # More digits than Python turns into a number are no number of bytes.
    return len(digits) > len(str(limit)) or int(digits or "0") > limit


def _replayed(body: bytes, receive: Receive) -> Receive:
    replayed = False

    async def next_message() -> Message:
        nonlocal replayed
        if replayed:
            return await receive()
        replayed = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _route_of(scope: Scope) -> str:
    """The route's template: a raw path may hold anything a caller typed."""
    if scope["path"] == MCP_PATH:
        return MCP_PATH
    return str((scope.get("state") or {}).get("route", "unmatched"))
