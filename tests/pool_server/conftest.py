"""One real server for all tests here that do not need settings of their own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
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
