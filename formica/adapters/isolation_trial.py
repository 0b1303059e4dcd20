"""What the present isolation stops and what not, found out by a program that tries it in the real profile."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import SocketAttribute

from formica.adapters import isolation_probe
from formica.adapters.isolation import Sandbox
from formica.adapters.items import delete_tree
from formica.adapters.processes import read_stat
from formica.adapters.sandbox import agent_environment, run_command
from formica.errors import Broken

__all__ = ["Finding", "try_isolation"]

_SECONDS = 60.0
_OURS = {"FORMICA_PROMPT_FILE", "RUSTUP_HOME", "PWD", "LC_CTYPE", "SHLVL", "_"}


@dataclass(frozen=True, slots=True)
class Finding:
    """``holds``: the isolation stops it. ``detail`` is one sentence for people."""

    name: str
    holds: bool
    detail: str


async def try_isolation(
    sandbox: Sandbox, *, state: Path, home: Path, path: str, shown: Sequence[Path], variables: Sequence[str]
) -> list[Finding]:
    """Run the probe as an agent is run, below ``state``. ``shown`` is the toolchain, ``variables`` the names
    a run is given besides the usual ones, the model's address first. ``Broken`` when the probe does not run."""
    root = state / f"trial-{uuid.uuid4().hex}"
    token = f"formica-trial-{uuid.uuid4().hex}"
    try:
        await anyio.to_thread.run_sync(_lay_out, root)
        async with _loopback_listener() as port:
            told = {
                "home": str(home),
                "outside": str(root / "outside"),
                "port": port,
                "pid": os.getpid(),
                "start_time": await anyio.to_thread.run_sync(_start_time, os.getpid()),
                "token": token,
                "model": variables[0] if variables else "",
            }
            said = await _run(sandbox, root, path, told)
        left = await anyio.to_thread.run_sync(_with_word, token.encode())
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(delete_tree, root)
    usual = {*agent_environment("", Path("/")), *_OURS, *variables}
    return [
        _home(said, home, shown),
        _Row("state folder", "cannot be read", "can be read").judged(not said["reads"]),
        _writes(said, root / "outside"),
        _Row("other processes", "cannot be seen", "can be seen, and their environment read").judged(
            not said["sees"]
        ),
        _environment(set(said["environment"]) - usual),
        _network(said, variables),
        _Row("left-over processes", "end with the run", "outlive the run").judged(
            said["leaves"] and not left
        ),
        _Row("new user namespaces", "are refused", "can be made").judged(not said["namespaces"]),
        _limits(said, sandbox),
    ]


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    stopped: str
    open: str

    def judged(self, holds: bool) -> Finding:
        return Finding(self.name, holds, self.stopped if holds else self.open)


async def _run(sandbox: Sandbox, root: Path, path: str, told: dict[str, Any]) -> dict[str, Any]:
    async def go_on() -> None:
        return None

    script = Path(isolation_probe.__file__)
    interpreter = await anyio.to_thread.run_sync(os.path.realpath, sys.executable)
    result = await run_command(
        [interpreter, "-I", "-S", str(script), json.dumps(told)],
        cwd=root / "tree",
        env=agent_environment(path, root / "run" / "home"),
        log_path=root / "run" / "trial.log",
        timeout_seconds=_SECONDS,
        stall_seconds=_SECONDS,
        check=go_on,
        sandbox=sandbox,
        readable=[script],
    )
    last = result.output_tail.strip().rpartition("\n")[2]
    if result.exit_code != 0 or not last.startswith("{"):
        raise Broken(f"the trial of the isolation did not run ({result.reason}): {last[:200]}")
    said: dict[str, Any] = json.loads(last)
    return said


def _home(said: dict[str, Any], home: Path, shown: Sequence[Path]) -> Finding:
    toolchain = {
        path.relative_to(home).parts[0] for path in shown if path.is_relative_to(home) and path != home
    }
    others = [name for name in said["home"] if name not in toolchain]
    if others:
        return Finding("home", False, f"{home} can be read: {len(others)} entries besides the toolchain")
    names = ", ".join(str(path) for path in shown if path.is_relative_to(home))
    return Finding(
        "home", True, f"nothing of {home} is visible" + (f" but the toolchain: {names}" if names else "")
    )


def _writes(said: dict[str, Any], outside: Path) -> Finding:
    places = ["the state folder" if folder == str(outside) else folder for folder in said["writes"]]
    if places:
        return Finding("writing elsewhere", False, f"possible in {', '.join(places)}")
    return Finding("writing elsewhere", True, "refused in the state folder, home, /usr and /")


def _environment(others: set[str]) -> Finding:
    if others:
        return Finding("environment", False, f"holds {', '.join(sorted(others))}")
    return Finding("environment", True, "holds only what is listed for it, no secret of the daemon")


def _network(said: dict[str, Any], variables: Sequence[str]) -> Finding:
    if said["loopback"] or said["route"]:
        where = " and ".join(
            name
            for name, open_ in (("this host's loopback", said["loopback"]), ("others", said["route"]))
            if open_
        )
        return Finding("network", False, f"reaches {where}")
    if not variables:
        return Finding("network", True, "none")
    if not said["model"]:
        return Finding("network", False, f"the broker does not answer at {variables[0]}")
    return Finding("network", True, f"none but the configured endpoints: {', '.join(variables)}")


def _limits(said: dict[str, Any], sandbox: Sandbox) -> Finding:
    limits = sandbox.limits
    if limits is None or said["data_limit"] != limits.memory_bytes:
        return Finding("limits", False, "none on memory, processes and disk")
    kernel = "kernel and watch" if sandbox.kind == "bubblewrap" and os.getuid() != 0 else "watch"
    return Finding(
        "limits",
        True,
        f"{limits.memory_bytes >> 20} MB of memory, {limits.processes} processes and threads ({kernel}), "
        f"{limits.disk_bytes >> 20} MB added to its folders, {limits.scratch_bytes >> 20} MB each of /tmp and home",
    )


def _lay_out(root: Path) -> None:
    for name in ("tree", "run", "outside"):
        (root / name).mkdir(mode=0o700, parents=True)
    (root / "outside" / "secret").write_text("a file of the host\n")


def _start_time(pid: int) -> int | None:
    stat = read_stat(pid)
    return None if stat is None else int(stat[19])


def _with_word(word: bytes) -> list[int]:
    """Living processes that carry ``word`` in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


@asynccontextmanager
async def _loopback_listener() -> AsyncIterator[int]:
    """A port of this host that the kernel answers at."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        yield int(listener.extra(SocketAttribute.local_port))  # noqa: S610 - anyio, not Django
