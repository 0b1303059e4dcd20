"""One server for many daemons, each with a name and a project of its own; and a server of one's own to kill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.proxy import FaultProxy
from tests.loop.harness import People, Project
from tests.servers import PoolServer

SETTINGS = {"POOL_RATE_ANONYMOUS_PER_MINUTE": "0", "POOL_RATE_GUEST_PER_MINUTE": "0"}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolServer]:
    with PoolServer(tmp_path_factory.mktemp("loop-pool"), SETTINGS) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PoolServer]:
    """A server that the test may kill."""
    (tmp_path / "pool").mkdir()
    with PoolServer(tmp_path / "pool", SETTINGS) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Project:
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder)


@pytest.fixture
def people(server: PoolServer, project: Project) -> Iterator[People]:
    around = People(server, project.name)
    yield around
    around.close()


@pytest.fixture
def proxy(server: PoolServer) -> Iterator[FaultProxy]:
    with FaultProxy(server.url) as running:
        yield running
