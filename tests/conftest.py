"""For every test: quiet logs, and a blocked event loop fails.

`blockbuster` raises `BlockingError` in the task that blocks: a file, socket, lock or sleep in our own code on
the event loop. Only calls that come from ``formica`` or ``pool_server`` count: tests may read a file.
asyncio is the one backend; ``asyncio_mode = "auto"`` runs every coroutine test and fixture on it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator

import pytest
import structlog
from blockbuster import blockbuster_ctx

SCANNED = ["formica", "pool_server"]
ISOLATED = ("test_isolation", "test_isolated", "test_broker")
"""Modules that run programs in bubblewrap. scripts/setup installs it where it may; elsewhere they say so."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if shutil.which("bwrap") is not None:
        return
    missing = pytest.mark.skip(reason="bubblewrap is not installed")
    for item in items:
        if item.path.name.startswith(ISOLATED):
            item.add_marker(missing)


@pytest.fixture(scope="session", autouse=True)
def quiet() -> None:
    """Errors only: a run of many faults would spend its time on printing warnings."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


@pytest.fixture(autouse=True)
def blocked_loop_fails() -> Iterator[None]:
    with blockbuster_ctx(SCANNED):
        yield
