"""The server's answers are checked before they are believed."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from formica.adapters.pool_client import PoolClient, ServerClock
from formica.errors import NeedsOperator, Refused, Retryable
from formica.ports import VersionMismatch


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            return

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = _answer

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


Call = Callable[[PoolClient], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "entities": lambda client: client.entities("daemon_config"),
    "entity": lambda client: client.entity("plan", "k"),
    "entity_by_id": lambda client: client.entity_by_id("ent_" + "0" * 24),
    "patch": lambda client: client.patch_entity("ent_" + "0" * 24, {}, version=1),
    "open_issues": lambda client: client.open_issues(),
    "issue": lambda client: client.issue(issue_number=1),
    "message": lambda client: client.add_message(1, "x", step="s"),
    "bulk_close": lambda client: client.bulk_close([], {}),
    "events": lambda client: client.events(0, 0, {}),
    "subscribe": lambda client: client.subscribe("http://127.0.0.1:9/", {}),
    "subscription": lambda client: client.subscription_active("sub_" + "0" * 24),
}
ODD = [
    b"{}",
    b'{"items": 5, "next_after": null}',
    b'{"items": [{}], "next_after": 1}',
    b"[]",
    b"<html>",
    b"\xff",
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("call", CALLS)
async def test_an_odd_answer_is_a_passing_fault_of_the_server(call: str, odd: bytes) -> None:
    """Another shape than the contract's never reaches the daemon's decisions."""
    with answering(200, odd) as url:
        async with PoolClient(url, "fk_x", "formica", ServerClock()) as client:
            if call == "events" and odd.startswith(b'{"items": [{}]'):
                return  # a page of the log: each event is a hint, and judged where it is taken
            with pytest.raises(Retryable):
                await CALLS[call](client)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (400, "ERR_VALIDATION", Refused),
        (401, "ERR_AUTH_INVALID", NeedsOperator),
        (403, "ERR_FORBIDDEN", NeedsOperator),
        (404, "ERR_NOT_FOUND", Refused),
        (409, "ERR_CONFLICT", Refused),
        (412, "ERR_VERSION_MISMATCH", VersionMismatch),
        (413, "ERR_TOO_LARGE", Refused),
        (429, "ERR_RATE_LIMITED", Retryable),
        (500, "ERR_INTERNAL", Retryable),
        (503, "ERR_UNAVAILABLE", Retryable),
    ],
)
async def test_each_refusal_says_what_to_do_next(status: int, code: str, error: type[Exception]) -> None:
    """One mapping from the wire's errors to the daemon's."""
    body = {"error_code": code, "message": "no", "details": {}, "timestamp": "2026-01-01T00:00:00Z"}
    with answering(status, json.dumps(body).encode(), retry_after="7") as url:
        async with PoolClient(url, "fk_x", "formica", ServerClock()) as client:
            with pytest.raises(error) as raised:
                await client.patch_entity("ent_" + "0" * 24, {}, version=1)
    if isinstance(raised.value, Retryable):
        assert raised.value.after_seconds == 7.0
    assert "fk_x" not in str(raised.value)


async def test_an_unreachable_server_is_tried_again_later() -> None:
    """No connection is a passing fault too."""
    with answering(200, b"{}") as url:
        pass
    async with PoolClient(url, "fk_x", "formica", ServerClock()) as client:
        with pytest.raises(Retryable, match="unreachable"):
            await client.issue(issue_number=1)
