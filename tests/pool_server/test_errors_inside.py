"""The rows of the error table that no caller can provoke: the web layer over a pool that fails as told."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pytest
import structlog

from pool_server.app import create_app
from pool_server.contract.models import Input, Role
from pool_server.delivery.sse import EventStreams
from pool_server.errors import ContentRejected, RateLimited, Unavailable
from pool_server.pool import Operation, Pool, Presented, Reply
from pool_server.rules.access import Caller, Surface
from pool_server.settings import Settings
from pool_server.web.services import Services
from tests.servers import REPORT


class FailingPool(Pool):
    """Raises what it was made with, whatever is called."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def authenticate(
        self, presented: Presented, *, address: str, surface: Surface, client: str
    ) -> Caller:
        return Caller("anonymous", "anonymous", "anon", address, surface, client)

    def admit(self, caller: Caller, roles: Collection[Role], *, counted: bool) -> None:
        pass

    async def call(self, operation: Operation, caller: Caller, args: Input) -> Reply:
        raise self.error


@asynccontextmanager
async def failing(error: Exception, folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    services = Services()
    pool = FailingPool(error)
    services.start(pool, EventStreams(pool, services.closing, monotonic=lambda: 0.0))
    app = await anyio.to_thread.run_sync(create_app, Settings(state=folder), services)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:1") as client:
        yield client


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContentRejected("refused", {"reasons": ["prompt_injection"]}), 422, "ERR_CONTENT_REJECTED"),
        (RateLimited("slow down", 7), 429, "ERR_RATE_LIMITED"),
        (Unavailable("busy", 7), 503, "ERR_UNAVAILABLE"),
    ],
)
async def test_refusals_of_the_pool(tmp_path: Path, error: Exception, status: int, code: str) -> None:
    """Status, code and Retry-After of what only the pool decides."""
    async with failing(error, tmp_path) as client:
        answer = await client.post("/issues/submit", json=REPORT)
        assert answer.status_code == status
        assert answer.json()["error_code"] == code
        assert answer.headers.get("retry-after") == (None if status == 422 else "7")


@pytest.fixture
def everything_logged() -> Iterator[None]:
    """Undoes, for one test, that tests log errors only."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("everything_logged")
async def test_a_bug_names_only_an_id(tmp_path: Path) -> None:
    """A 500 carries an id that is in the log; neither holds the exception's text or an argument."""
    async with failing(RuntimeError("planted-secret"), tmp_path) as client:
        with structlog.testing.capture_logs() as logged:
            answer = await client.post("/issues/submit", json={**REPORT, "title": "planted-title"})
        assert answer.status_code == 500
        assert answer.json()["error_code"] == "ERR_INTERNAL"
        entry = next(line for line in logged if line["event"] == "bug")
        assert entry["id"] == answer.json()["details"]["id"]
        assert entry["exception"] == "RuntimeError"
        everything = json.dumps([answer.json(), logged], default=str)
        assert "planted" not in everything


async def test_nothing_to_serve_yet(tmp_path: Path) -> None:
    """Before the lifespan has built the pool every operation is a 503, and health still answers."""
    app: Any = await anyio.to_thread.run_sync(create_app, Settings(state=tmp_path), Services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/issues")).status_code == 503
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).json() == {"status": "ok"}
