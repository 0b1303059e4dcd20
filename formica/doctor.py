"""`formica doctor`: every dependency, credential, right and limit, each with what to do about it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from formica.adapters.isolation_trial import Finding, try_isolation
from formica.adapters.pool_client import PoolClient, ServerClock
from formica.adapters.sandbox import Sandbox
from formica.adapters.workspace import GitRepository
from formica.confinement import missing_isolation, toolchain_of, variable_names
from formica.errors import FormicaError
from formica.settings import ConfigurationError, Settings, home_folder

__all__ = ["diagnose"]

Json = dict[str, Any]
MINIMUM_FREE_BYTES = 1 << 30
CLOCK_TOLERANCE_SECONDS = 60.0


async def diagnose(
    settings: Settings,
    *,
    path: str,
    check_runnable: Callable[[], None],
    open_repository: Callable[[], GitRepository],
    open_sandbox: Callable[[], AbstractAsyncContextManager[Sandbox]],
) -> list[Json]:
    """A row a check: {check, ok, detail}. Nothing is changed but the mirror in the state folder."""
    rows = [
        await _row("configuration", lambda: _configuration(check_runnable)),
        await _row("git", partial(anyio.to_thread.run_sync, _git, path)),
        await _row("pool server", lambda: _server(settings)),
        await _row("repository", lambda: _repository(open_repository)),
        await _row("agent", partial(anyio.to_thread.run_sync, _agent, settings, path)),
        await _row("state folder", partial(anyio.to_thread.run_sync, _state, settings.state_folder)),
    ]
    return rows + await _isolation(settings, path, open_sandbox)


async def _row(name: str, check: Callable[[], Awaitable[str]]) -> Json:
    try:
        return {"check": name, "ok": True, "detail": await check()}
    except (FormicaError, ConfigurationError) as problem:
        return {"check": name, "ok": False, "detail": str(problem)}


async def _configuration(check_runnable: Callable[[], None]) -> str:
    await anyio.to_thread.run_sync(check_runnable)
    return "complete"


def _git(path: str) -> str:
    found = shutil.which("git", path=path)
    if found is None:
        raise ConfigurationError("git is not on the PATH: install it")
    return found


async def _server(settings: Settings) -> str:
    clock = ServerClock()
    async with PoolClient(settings.server.url, settings.server_key, settings.daemon.name, clock) as client:
        await client.check_key()
        state = await client.create_entity("operator_state", settings.daemon.name, {})
        await client.patch_entity(state["entity_id"], {"doctor_at": int(time.time())}, version=None)
    apart = abs(clock.now() - time.time())
    if apart > CLOCK_TOLERANCE_SECONDS:
        raise ConfigurationError(f"this host's clock is {apart:.0f} s away from the server's: set it")
    return f"{settings.server.url} answers, the key is an operator's, clocks are {apart:.1f} s apart"


async def _repository(open_repository: Callable[[], GitRepository]) -> str:
    repository = open_repository()
    await repository.refresh()
    facts = await repository.facts(sha=None, version=None, ref=None)
    return f"default branch {facts.default_branch} at {facts.head_sha[:12]}"


def _agent(settings: Settings, path: str) -> str:
    command = settings.agent.command
    if command is None:
        raise ConfigurationError("agent.command is missing: the program that works in the tree")
    found = shutil.which(command[0], path=path)
    if found is None:
        raise ConfigurationError(f"agent.command: {command[0]} is not an executable on the PATH")
    return found


def _state(folder: Path) -> str:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < MINIMUM_FREE_BYTES:
        raise ConfigurationError(f"{folder}: less than 1 GiB free; make room or move daemon.state")
    return f"{folder}, {free // (1 << 30)} GiB free"


async def _isolation(
    settings: Settings, path: str, open_sandbox: Callable[[], AbstractAsyncContextManager[Sandbox]]
) -> list[Json]:
    """What keeps runs apart from this host, and each thing it was seen to stop or not. Without isolation that
    is no failure by itself, unless it is required."""
    accepted = settings.agent.sandbox != "required"
    try:
        toolchain = await anyio.to_thread.run_sync(toolchain_of(settings).find)
        async with open_sandbox() as sandbox:
            findings = await try_isolation(
                sandbox,
                state=settings.state_folder,
                home=home_folder(),
                path=path,
                shown=await anyio.to_thread.run_sync(sandbox.shown),
                variables=variable_names(settings),
            )
            isolated = sandbox.kind == "bubblewrap"
    except (FormicaError, ConfigurationError) as problem:
        return [{"check": "isolation", "ok": False, "detail": str(problem)}]
    detail = "bubblewrap" if isolated else await anyio.to_thread.run_sync(_without, settings)
    if isolated and toolchain.left_out:
        detail += f"; not shown to runs: {'; '.join(toolchain.left_out)}"
    first = {"check": "isolation", "ok": isolated or accepted, "detail": detail}
    return [first, *(_found(finding, accepted=accepted and not isolated) for finding in findings)]


def _found(finding: Finding, *, accepted: bool) -> Json:
    prefix = "" if finding.holds else "does not hold: "
    return {
        "check": f"isolation: {finding.name}",
        "ok": finding.holds or accepted,
        "holds": finding.holds,
        "detail": f"{prefix}{finding.detail}",
    }


def _without(settings: Settings) -> str:
    why = '[agent] sandbox = "off"' if settings.agent.sandbox == "off" else missing_isolation()
    return (
        f"none ({why}). git is never run in the agent's tree and publishing has its gates all the same; run "
        "formica as a user of its own"
    )
