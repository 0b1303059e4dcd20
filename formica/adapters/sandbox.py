"""Running a program of an agent or a project: supervised, with an environment of its own, ended whole.

The supervisor of each run is `run_supervisor.py`; this side starts it, asks once a second whether the run
may go on, and proves afterwards that nothing is left. No isolation but that in this version.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import anyio
from anyio.abc import Process

from formica.adapters import run_supervisor
from formica.errors import FormicaError, NeedsOperator, Refused, Retryable
from formica.ports import CommandResult, StopCheck

__all__ = ["LOG_LIMIT", "agent_environment", "end_leftover_run", "run_command", "sandbox_mode"]

LOG_LIMIT = 20 * 1024 * 1024
GRACE_SECONDS = 3.0
CHECK_SECONDS = 1.0
_RECORD = "run.json"
_TAIL = 20_000


def sandbox_mode(setting: Literal["auto", "required", "off"]) -> Literal["none"]:
    """The isolation a run gets. ``Refused`` (rule ``agent.sandbox``) where more is asked than there is."""
    if setting == "required":
        raise Refused('[agent] sandbox = "required", but this version has no sandbox', rule="agent.sandbox")
    return "none"


def agent_environment(path: str, home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The whole environment of a run: what is named here and nothing of the daemon's own."""
    return {
        "PATH": path,
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TERM": "dumb",
    } | dict(extra or {})


async def run_command(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log_path: Path,
    timeout_seconds: float,
    stall_seconds: float,
    check: StopCheck,
    grace_seconds: float = GRACE_SECONDS,
    log_limit: int = LOG_LIMIT,
) -> CommandResult:
    """Run a program to its end and the end of everything it started; stdin is empty.

    ``env`` is complete; its HOME and TMPDIR are made. Output of both streams goes to ``log_path``, at most
    ``log_limit`` bytes of it. What ``check`` raises ends the run within ``grace_seconds`` + 2 s and is
    raised. ``Retryable`` when the run's supervisor cannot be started or was killed. A run's record lies in
    the log's folder, so there is one run per folder at a time.
    """
    spec = {
        "argv": list(argv),
        "cwd": str(cwd),
        "env": dict(env),
        "log_path": str(log_path),
        "log_limit": log_limit,
        "timeout_seconds": timeout_seconds,
        "stall_seconds": stall_seconds,
        "grace_seconds": grace_seconds,
    }
    await anyio.to_thread.run_sync(_make_folders, env, log_path)
    try:
        process = await anyio.open_process(
            [sys.executable, "-I", "-S", run_supervisor.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd="/",
            env={"PATH": env.get("PATH", ""), "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
    except OSError as error:
        raise Retryable(f"a run could not be started: {error.strerror}") from error
    async with process:
        report = await _Supervised(process, spec, log_path, check).run()
    return await anyio.to_thread.run_sync(_result, report, log_path)


async def end_leftover_run(item_root: Path) -> bool:
    """End what a dead daemon's run of this item left; whether there was anything. ``NeedsOperator`` when
    something survives. Known by recorded pid and start time, or by the item's own TMPDIR in its environment,
    never by name."""
    folder = item_root / "run"
    record = await anyio.to_thread.run_sync(_read_record, folder)
    ended = False
    if record is not None and await anyio.to_thread.run_sync(_is_supervisor, record):
        ended = True
        _kill(record["pid"], signal.SIGTERM)
        with anyio.move_on_after(GRACE_SECONDS + 7):
            # no child of ours: nothing tells of its end
            while await anyio.to_thread.run_sync(_is_supervisor, record):
                await anyio.sleep(0.05)
    ended = await _end_marked(f"TMPDIR={folder}/".encode(), record) or ended
    await anyio.to_thread.run_sync(lambda: (folder / _RECORD).unlink(missing_ok=True))
    return ended


class _Supervised:
    """One run, seen from the daemon."""

    def __init__(self, process: Process, spec: Mapping[str, Any], log_path: Path, check: StopCheck) -> None:
        self._process = process
        self._spec = spec
        self._folder = log_path.parent
        self._check = check
        self._verdict: FormicaError | None = None
        self._wait = anyio.CancelScope()

    async def run(self) -> dict[str, Any]:
        said = b""
        try:
            await self._start()
            async with anyio.create_task_group() as group:
                group.start_soon(self._poll)
                with self._wait:
                    self._wait.deadline = self._deadline(self._spec["timeout_seconds"])
                    said = await self._listen()
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._make_sure(reported=bool(said))
        if self._verdict is not None:
            raise self._verdict
        if not said:
            raise Retryable("the supervisor of a run was killed; everything it had started was ended")
        report: dict[str, Any] = json.loads(said)
        if report["survivors"]:
            raise NeedsOperator(f"processes {report['survivors']} cannot be ended, not even by SIGKILL")
        return report

    async def _start(self) -> None:
        await anyio.to_thread.run_sync(_write_record, self._folder, self._process.pid)
        await self._tell(json.dumps(self._spec).encode() + b"\n")

    async def _listen(self) -> bytes:
        """The report, or nothing when the supervisor ended without one."""
        assert self._process.stderr is not None
        said = b""
        async for chunk in self._process.stderr:
            said += chunk
        last = said.rstrip(b"\n").rpartition(b"\n")[2]
        return last if last.startswith(b"{") else b""

    async def _poll(self) -> None:
        while True:
            await anyio.sleep(CHECK_SECONDS)
            try:
                await self._check()
            except FormicaError as verdict:
                self._verdict = verdict
                self._wait.deadline = self._deadline(0)
                await self._tell(b"stop\n")
                return

    def _deadline(self, seconds: float) -> float:
        """When the supervisor itself has failed: its grace, its five seconds of KILL, and some more."""
        return float(anyio.current_time() + seconds + self._spec["grace_seconds"] + 7)

    async def _tell(self, text: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._process.stdin.send(text)

    async def _make_sure(self, *, reported: bool) -> None:
        """Whatever happened: the supervisor is gone, and so is all that was below it."""
        if not reported:
            await self._tell(b"stop\n")
            with anyio.move_on_after(self._spec["grace_seconds"] + 7):
                await self._process.wait()
            below = await anyio.to_thread.run_sync(run_supervisor.descendants, self._process.pid)
            if self._process.returncode is None:
                _kill(self._process.pid, signal.SIGKILL)
            for pid in below:
                _kill(pid, signal.SIGKILL)
            await _end_marked(f"TMPDIR={self._spec['env'].get('TMPDIR', self._folder)}".encode(), None)
        await self._process.wait()
        await anyio.to_thread.run_sync(lambda: (self._folder / _RECORD).unlink(missing_ok=True))


async def _end_marked(marker: bytes, record: Mapping[str, Any] | None) -> bool:
    """KILL every process whose environment has an entry that begins with ``marker``, until none is left."""
    found = False
    if record is not None and await anyio.to_thread.run_sync(_is_supervisor, record):
        for pid in [
            record["pid"],
            *await anyio.to_thread.run_sync(run_supervisor.descendants, record["pid"]),
        ]:
            _kill(pid, signal.SIGKILL)
    with anyio.move_on_after(5):
        while marked := await anyio.to_thread.run_sync(_marked, marker):
            found = True
            for pid in marked:
                _kill(pid, signal.SIGKILL)
            await anyio.sleep(0.02)
        return found
    raise NeedsOperator("processes of an earlier run of this item cannot be ended")


def _marked(marker: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ") if run_supervisor.LINUX else ():
        try:
            entries = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        pid = int(entry.parent.name)
        if pid != os.getpid() and any(value.startswith(marker) for value in entries):
            found.append(pid)
    return found


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    stat = run_supervisor.read_stat(pid)
    return None if stat is None or stat[0] in "ZX" else int(stat[19])


def _write_record(folder: Path, pid: int) -> None:
    fresh = folder / f"{_RECORD}.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"pid": pid, "start_time": _start_time(pid), "boot_id": _boot_id()}, file)
    fresh.replace(folder / _RECORD)


def _read_record(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((folder / _RECORD).read_text())
        return record if isinstance(record["pid"], int) and record["start_time"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_supervisor(record: Mapping[str, Any]) -> bool:
    """The recorded process still runs: same boot, same pid, same start time, and a supervisor of ours."""
    pid = record["pid"]
    if record.get("boot_id") != _boot_id() or _start_time(pid) != record["start_time"]:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.endswith(b"/run_supervisor.py") for word in command)


def _make_folders(env: Mapping[str, str], log_path: Path) -> None:
    for folder in (log_path.parent, Path(env["HOME"]), Path(env["TMPDIR"])):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _result(report: Mapping[str, Any], log_path: Path) -> CommandResult:
    digest = hashlib.sha256()
    tail = b""
    with log_path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            tail = (tail + chunk)[-4 * _TAIL :]
    text = tail.decode("utf-8", "replace")[-_TAIL:]
    if report["reason"] == "unstartable":
        text = f"could not be started: {report['error']}"
    return CommandResult(
        exit_code=report["exit_code"],
        reason=report["reason"],
        seconds=report["seconds"],
        output_tail=text,
        log_path=log_path,
        log_hash=digest.hexdigest(),
    )
