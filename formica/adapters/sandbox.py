"""Running a program of an agent or a project: supervised, isolated as configured, ended whole.

The supervisor of each run is `run_supervisor.py`; this side starts it, asks once a second whether the run
may go on, and proves afterwards that nothing is left. What the program sees is up to `isolation.Sandbox`.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from formica.adapters.isolation import UNCONFINED, Sandbox, object_folders
from formica.adapters.processes import descendants, kill
from formica.adapters.run_record import end_marked, forget, is_supervisor, read_record, write_record
from formica.adapters.run_supervisor import COMMAND, RunSpec
from formica.errors import FormicaError, NeedsOperator, Retryable
from formica.ports import CommandResult, StopCheck

__all__ = [
    "LOG_LIMIT",
    "UNCONFINED",
    "Sandbox",
    "agent_environment",
    "end_leftover_run",
    "object_folders",
    "run_command",
]

LOG_LIMIT = 20 * 1024 * 1024
GRACE_SECONDS = 3.0
CHECK_SECONDS = 1.0
_TAIL = 20_000


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
    sandbox: Sandbox = UNCONFINED,
    writable: Sequence[Path] = (),
    readable: Sequence[Path] = (),
) -> CommandResult:
    """Run a program to its end and the end of everything it started; stdin is empty.

    ``env`` is complete; its HOME and TMPDIR are made. Output of both streams goes to ``log_path``, at most
    ``log_limit`` bytes of it. What ``check`` raises ends the run within ``grace_seconds`` + 2 s and is
    raised. ``Retryable`` when the run's supervisor cannot be started or was killed. A run's record lies in
    the log's folder, so there is one run per folder at a time.

    Isolated, the program sees ``cwd`` and ``writable`` as they are, ``readable`` to read, each at its own
    path; what does not exist is left out. HOME is kept where it lies in one of ``writable`` and an empty
    folder otherwise; /tmp is the run's own.
    """
    folder = log_path.parent
    await anyio.to_thread.run_sync(_make_folders, env, log_path)
    async with sandbox.network(folder) as socket:
        started = await anyio.to_thread.run_sync(
            partial(
                sandbox.start,
                argv,
                cwd=cwd,
                env=env,
                writable=writable,
                readable=readable,
                socket=socket,
            )
        )
        spec = RunSpec(
            argv=started.argv,
            env=started.env,
            cwd=str(cwd),
            log_path=str(log_path),
            log_limit=log_limit,
            timeout_seconds=timeout_seconds,
            stall_seconds=stall_seconds,
            grace_seconds=grace_seconds,
            descriptors=started.descriptors,
            namespaced=started.namespaced,
            launched=started.launched,
            watch=started.watch,
        )
        report = await _supervise(spec, env, folder, check)
    return await anyio.to_thread.run_sync(_result, report, log_path)


async def _supervise(spec: RunSpec, env: Mapping[str, str], folder: Path, check: StopCheck) -> dict[str, Any]:
    try:
        process = await anyio.open_process(
            COMMAND,
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
        return await _Supervised(process, spec, folder, check).run()


async def end_leftover_run(item_root: Path) -> bool:
    """End what a dead daemon's run of this item left; whether there was anything. ``NeedsOperator`` when
    something survives. Known by recorded pid and start time, or by the item's own TMPDIR in its environment,
    never by name."""
    folder = item_root / "run"
    record = await anyio.to_thread.run_sync(read_record, folder)
    ended = False
    if record is not None and await anyio.to_thread.run_sync(is_supervisor, record):
        ended = True
        kill(record["pid"], signal.SIGTERM)
        with anyio.move_on_after(GRACE_SECONDS + 7):
            # no child of ours: nothing tells of its end
            while await anyio.to_thread.run_sync(is_supervisor, record):
                await anyio.sleep(0.05)
    ended = await end_marked(f"TMPDIR={folder}/".encode(), record) or ended
    await anyio.to_thread.run_sync(forget, folder)
    return ended


class _Supervised:
    """One run, seen from the daemon."""

    def __init__(self, process: Process, spec: RunSpec, folder: Path, check: StopCheck) -> None:
        self._process = process
        self._spec = spec
        self._folder = folder
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
        await anyio.to_thread.run_sync(write_record, self._folder, self._process.pid)
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
            below = await anyio.to_thread.run_sync(descendants, self._process.pid)
            if self._process.returncode is None:
                kill(self._process.pid, signal.SIGKILL)
            for pid in below:
                kill(pid, signal.SIGKILL)
            await end_marked(f"TMPDIR={self._spec['env'].get('TMPDIR', self._folder)}".encode(), None)
        await self._process.wait()
        await anyio.to_thread.run_sync(forget, self._folder)


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
