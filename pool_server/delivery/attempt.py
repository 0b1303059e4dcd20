"""One attempt to hand one event to one URL, on an address that was checked for this very connection."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import anyio
import anyio.to_thread
import httpx

from pool_server.contract.events import envelope
from pool_server.contract.signing import signed
from pool_server.pool import Outcome, Target
from pool_server.rules.targets import refuse_reason, split_target
from pool_server.rules.timestamps import timestamp

__all__ = ["Sender"]

USER_AGENT = "formica-pool"
READ_AT_MOST = 16 * 1024
READ_SECONDS = 0.5
ADDRESSES = 4


class Sender:
    """Sends to one target.

    Args:
        verify: the TLS context, shared since it is slow to build.
        timeout: seconds for the whole attempt, name resolution included.
        clock: the time of an attempt, aware.
    """

    def __init__(
        self,
        *,
        verify: ssl.SSLContext,
        timeout: float,
        private_allowed: bool,
        clock: Callable[[], datetime],
    ) -> None:
        self._timeout = timeout
        self._private_allowed = private_allowed
        self._clock = clock
        # Name resolution cannot be cancelled: threads of its own, so that a hanging one holds up nobody else.
        self._resolvers = anyio.CapacityLimiter(2)
        self._client = httpx.AsyncClient(
            verify=verify,
            trust_env=False,
            follow_redirects=False,
            timeout=None,  # noqa: S113 -- one limit for the whole attempt, below
            headers={"user-agent": USER_AGENT},
        )

    async def close(self) -> None:
        """Closes its connections."""
        await self._client.aclose()

    async def attempt(self, target: Target, event: dict[str, Any]) -> Outcome:
        """What came of it; only cancellation is raised."""
        now = self._clock()
        reason, gone = "", False
        try:
            with anyio.fail_after(self._timeout):
                status = await self._post(target, event, now)
        except TimeoutError:
            reason = f"no answer within {self._timeout:g} s"
        except _TargetRefused as refused:
            reason = str(refused)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as failed:
            reason = f"not reached: {type(failed).__name__}"
        except ValueError as malformed:
            reason = f"not sent: {malformed}"
        else:
            reason, gone = _verdict(status)
        return Outcome(event["event_id"], timestamp(now), delivered=not reason, reason=reason, gone=gone)

    def cut_off(self, event: dict[str, Any]) -> Outcome:
        """For an attempt that was cancelled: whether it arrived is unknown."""
        reason = "cut off: the subscription ended or the server stopped"
        return Outcome(event["event_id"], timestamp(self._clock()), delivered=False, reason=reason)

    async def _post(self, target: Target, event: dict[str, Any], now: datetime) -> int:
        host, port = split_target(target.url)
        addresses = await self._addresses(host, port, target)
        body = json.dumps(envelope(event), ensure_ascii=False, separators=(",", ":"))
        headers = {**_signatures(target, event["event_id"], now, body), "content-type": "application/json"}
        unreachable: httpx.ConnectError | None = None
        for address in addresses[:ADDRESSES]:
            try:
                return await self._send(target.url, address, headers, body)
            except httpx.ConnectError as failed:
                # Nothing was sent yet: another address of the same name is still the same attempt.
                unreachable = failed
        raise unreachable or _TargetRefused("the name has no address")

    async def _send(self, url: str, address: str, headers: dict[str, str], body: str) -> int:
        parts = urlsplit(url)
        host, port = split_target(url)
        name = host if host.isascii() else host.encode("idna").decode("ascii")
        suffix = "" if parts.port is None else f":{parts.port}"
        pinned = urlunsplit((parts.scheme, f"{_bracketed(address)}:{port}", parts.path, parts.query, ""))
        request = self._client.build_request(
            "POST",
            pinned,
            content=body.encode(),
            headers={**headers, "host": _bracketed(name) + suffix},
            extensions={"sni_hostname": name},
        )
        response = await self._client.send(request, stream=True)
        try:
            # Only so that the connection can be used again; the answer is in the status.
            with anyio.move_on_after(READ_SECONDS):
                read = 0
                async for chunk in response.aiter_raw():
                    read += len(chunk)
                    if read > READ_AT_MOST:
                        break
        finally:
            await response.aclose()
        return response.status_code

    async def _addresses(self, host: str, port: int, target: Target) -> list[str]:
        """The addresses of ``host``; one that is not allowed refuses the whole target."""

        def resolve() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(entry[4][0]) for entry in found))

        addresses = await anyio.to_thread.run_sync(resolve, abandon_on_cancel=True, limiter=self._resolvers)
        for address in addresses:
            refused = refuse_reason(
                address, loopback_allowed=target.loopback_allowed, private_allowed=self._private_allowed
            )
            if refused is not None:
                raise _TargetRefused(f"the target is refused: {refused}")
        return addresses


class _TargetRefused(Exception):
    """The name leads nowhere, or to where no delivery may go."""


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _verdict(status: int) -> tuple[str, bool]:
    """Reason (empty for success) and whether the target is gone."""
    if 200 <= status < 300:
        return "", False
    if status == 410:
        return "HTTP 410", True
    return f"HTTP {status}" + (" (redirects are not followed)" if 300 <= status < 400 else ""), False


def _signatures(target: Target, event_id: str, now: datetime, body: str) -> dict[str, str]:
    """While a secret is being rotated every one signs, as Standard Webhooks has it."""
    headers = [signed(secret, event_id, now, body) for secret in target.secrets]
    return {**headers[0], "webhook-signature": " ".join(each["webhook-signature"] for each in headers)}
