"""From settings to the sandbox every run gets: which isolation, which toolchain, which limits, which way out."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from formica.adapters.broker import Broker, Endpoint
from formica.adapters.isolation import Bubblewrap, Limits, Sandbox, Started, choose_isolation, find_bubblewrap
from formica.adapters.toolchain import ToolchainFinder
from formica.settings import (
    ConfigurationError,
    Settings,
    home_folder,
    network_environment,
    passed_variables,
    search_path,
)

__all__ = [
    "agent_program",
    "isolation_of",
    "missing_isolation",
    "open_sandbox",
    "open_sandboxes",
    "toolchain_of",
    "variable_names",
]

MODEL_URL = "FORMICA_MODEL_URL"


def isolation_of(settings: Settings) -> Bubblewrap | None:
    """What keeps runs apart from this host, tried out. Blocking. ``Refused`` where more is asked than there is."""
    if settings.agent.sandbox == "off":
        return None
    return choose_isolation(settings.agent.sandbox, find_bubblewrap(search_path()))


def missing_isolation() -> str:
    """Why there is no isolation on this host, or nothing. Blocking."""
    found = find_bubblewrap(search_path())
    return found if isinstance(found, str) else ""


def variable_names(settings: Settings) -> list[str]:
    """The variables a run finds its endpoints in, the model's first."""
    return list(_variables(settings))


def agent_program(settings: Settings) -> str:
    """The program of ``[agent] command``, as it would be started. Blocking.

    Raises:
        ConfigurationError: it is not set, is not there, or cannot be executed.
    """
    command = settings.agent.command
    if command is None:
        raise ConfigurationError("agent.command is missing: the program that works in the tree")
    found = shutil.which(command[0], path=search_path())
    if found is None:
        where = f"in {Path.cwd()}" if "/" in command[0] and not command[0].startswith("/") else "on the PATH"
        where = "there" if command[0].startswith("/") else where
        raise ConfigurationError(f"agent.command: {command[0]} is not an executable program {where}")
    return found


class _Passing(Sandbox):
    """The sandbox of agents: ``passed`` is added to the environment, and wins over nothing in it."""

    def __init__(self, passed: Mapping[str, str], **same: Any) -> None:
        super().__init__(**same)
        self._passed = passed

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        writable: Sequence[Path],
        readable: Sequence[Path],
        socket: Path | None,
    ) -> Started:
        return super().start(
            argv,
            cwd=cwd,
            env={**self._passed, **env},
            writable=writable,
            readable=readable,
            socket=socket,
        )


@asynccontextmanager
async def open_sandbox(settings: Settings) -> AsyncIterator[Sandbox]:
    """The sandbox of everything but agents."""
    async with open_sandboxes(settings, {}) as (sandbox, _):
        yield sandbox


@asynccontextmanager
async def open_sandboxes(
    settings: Settings, passed: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Sandbox, Sandbox]]:
    """The sandbox of proofs, and that of agents, which get `passed_variables` too; the broker they share,
    where endpoints are set, lives as long as this is open."""
    bubblewrap = await anyio.to_thread.run_sync(isolation_of, settings)
    limits = settings.agent
    async with AsyncExitStack() as stack:
        broker = await anyio.to_thread.run_sync(_broker, settings)
        if broker is not None:
            await stack.enter_async_context(broker)
        same: dict[str, Any] = {
            "bubblewrap": bubblewrap,
            "toolchain": toolchain_of(settings).find,
            "hidden": _private(settings),
            "limits": Limits(
                memory_bytes=limits.memory_mb << 20,
                processes=limits.processes,
                disk_bytes=limits.disk_mb << 20,
                scratch_bytes=limits.scratch_mb << 20,
            ),
            "broker": broker,
            "variables": _variables(settings),
        }
        handed = passed_variables(settings) if passed is None else passed
        yield Sandbox(**same), _Passing(handed, **same)


def toolchain_of(settings: Settings) -> ToolchainFinder:
    """What the configured commands need of this host."""
    repository = settings.repository
    command = list(settings.agent.command or [])
    if command and "/" in command[0]:
        command[0] = os.path.abspath(command[0])  # noqa: PTH100 - must not follow a link
    return ToolchainFinder(
        [*command, *(repository.test_command or []), *(repository.setup_command or [])],
        path=search_path(),
        home=home_folder(),
        private=[path for path in _private(settings) if path != repository.path],
    )


def _private(settings: Settings) -> list[Path]:
    """What no run sees, even where a folder above it is shown."""
    candidates = (
        settings.state_folder,
        settings.repository.path,
        settings.server.key_file,
        settings.agent.model_key_file,
    )
    return [path for path in candidates if path is not None]


def _broker(settings: Settings) -> Broker | None:
    agent = settings.agent
    if not agent.endpoints:
        return None
    key = settings.model_key
    header = agent.model_key_header.lower()
    value = f"Bearer {key}" if header == "authorization" else key or ""
    model, *others = agent.endpoints
    network = network_environment()
    return Broker(
        [
            Endpoint(model, header, value, key) if key else Endpoint(model),
            *(Endpoint(url) for url in others),
        ],
        proxy=network.get("HTTPS_PROXY") or network.get("https_proxy"),
        certificates=network.get("SSL_CERT_FILE"),
    )


def _variables(settings: Settings) -> dict[str, tuple[int, str]]:
    """Name to endpoint and the path below it."""
    endpoints = settings.agent.endpoints
    if not endpoints:
        return {}
    found = {MODEL_URL: (0, "")}
    for name, url in settings.agent.url_variables.items():
        index = max(
            (index for index, base in enumerate(endpoints) if url == base or url.startswith(f"{base}/")),
            key=lambda index: len(endpoints[index]),
        )
        found[name] = (index, url.removeprefix(endpoints[index]))
    return found
