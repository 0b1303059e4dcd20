"""One real server for all tests here that do not need settings of their own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from pool_server.storage.sqlite import open_store
from tests.pool_server.pools import Story, story
from tests.servers import PoolServer

NO_LIMITS = {"POOL_RATE_ANONYMOUS_PER_MINUTE": "0", "POOL_RATE_GUEST_PER_MINUTE": "0"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolServer]:
    """Defaults, but without rate limits."""
    with PoolServer(tmp_path_factory.mktemp("server"), NO_LIMITS) as running:
        yield running
        assert running.stop() == 0


@pytest.fixture(scope="session")
def member_key(server: PoolServer) -> str:
    return server.create_key("member", "--handle", "session-member")


@pytest.fixture
def anonymous(server: PoolServer) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def operator(server: PoolServer) -> Iterator[httpx.Client]:
    with server.operator() as client:
        yield client


@pytest.fixture(scope="session")
def blank_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty database to copy: migrating takes longer than most tests here."""
    path = tmp_path_factory.mktemp("blank") / "pool.sqlite3"
    asyncio.run(open_store(path).close())
    return path


@pytest.fixture
async def pool(tmp_path: Path, blank_database: Path) -> AsyncIterator[Story]:
    """A pool without HTTP over a real SQLite file, with an operator, two members and an anonymous caller."""
    path = tmp_path / "pool.sqlite3"
    shutil.copy(blank_database, path)
    async with story(path) as told:
        yield told
