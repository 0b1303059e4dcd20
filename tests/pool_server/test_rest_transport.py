"""What callers notice of the connection itself."""

from __future__ import annotations

import statistics
import time

import httpx

from tests.servers import PoolServer, submit


def test_answers_are_not_held_back(anonymous: httpx.Client) -> None:
    """On a kept connection an answer comes at once, not after the 40 ms of a delayed acknowledgement."""
    taken = []
    for _ in range(30):
        started = time.monotonic()
        assert anonymous.get("/health").json() == {"status": "ok"}
        taken.append(time.monotonic() - started)
    assert statistics.median(taken) < 0.03


def test_health_and_ready(anonymous: httpx.Client) -> None:
    """Both answer without a credential."""
    assert anonymous.get("/health").json() == {"status": "ok"}
    assert anonymous.get("/ready").json() == {"status": "ready"}


def test_answers_are_not_cached(anonymous: httpx.Client) -> None:
    """An answer may carry a token: no cache keeps it."""
    issue = submit(anonymous)
    for path in (f"/issues/{issue['issue_number']}", "/issues", "/nothing"):
        answer = anonymous.get(path)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-type"] == "application/json"


def test_a_connection_outlives_a_refusal(server: PoolServer) -> None:
    """After a 413, a 415 and a 401 the same connection still serves."""
    with server.client() as client:
        json_type = {"content-type": "application/json"}
        assert client.post("/issues/submit", content=b"x" * 400_000, headers=json_type).status_code == 413
        assert client.post("/issues/submit", content=b"x").status_code == 415
        assert client.get("/issues", headers={"x-api-key": "fk_wrong"}).status_code == 401
        assert client.get("/issues").status_code == 200
