"""Running a program of an agent or a project: supervised, isolated as configured, ended whole.

The supervisor of each run is `run_supervisor.py`; this side starts it, asks once a second whether the run
may go on, and proves afterwards that nothing is left. What the program sees is up to `isolation.Sandbox`.

A program that is not isolated may do to the supervisor and to our files what we may. So its supervisor's report
carries a token, whatever it left comes to us as orphans, and its log is read back through the descriptor it
was opened with.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import Process

from formica.adapters.children import end_orphans, now_in_ticks, open_child, take_orphans
from formica.adapters.isolation import UNCONFINED, Sandbox, object_folders
from formica.adapters.plain_files import fresh_file
from formica.adapters.processes import kill
from formica.adapters.run_log import write_all
from formica.adapters.run_record import (
    end_marked,
    forget,
    is_supervisor,
    read_record,
    record_folder,
    started_below,
    write_record,
)
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
_STOP_SECONDS = 2.0
_REPORT_BYTES = 1 << 20
_LEFT_OUT_BYTES = 100


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
    raised. ``Retryable`` when the run's supervisor cannot be started or was killed, ``NeedsOperator`` when
    something stands where its folders have to be. There is one run per folder of logs at a time. The log in
    the result is a copy elsewhere when the program replaced it.

    Isolated, the program sees ``cwd`` and ``writable`` as they are, ``readable`` to read, each at its own
    path; what does not exist is left out. HOME is kept where it lies in one of ``writable`` and an empty
    folder otherwise; /tmp is the run's own.
    """
    folder = record_folder(log_path.parent)
    with _told():
        log = await anyio.to_thread.run_sync(_make_folders, env, log_path)
        try:
            async with sandbox.network(log_path.parent) as socket:
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
                    token=secrets.token_hex(16),
                    log_descriptor=log,
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
            return await anyio.to_thread.run_sync(_result, report, log, log_path, folder, log_limit)
        finally:
            os.close(log)


async def _supervise(spec: RunSpec, env: Mapping[str, str], folder: Path, check: StopCheck) -> dict[str, Any]:
    take_orphans()
    since = now_in_ticks()
    process = await open_child(
        COMMAND,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        env={"PATH": env.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        pass_fds=[spec["log_descriptor"]],
    )
    async with process:
        return await _Supervised(process, spec, folder, check, since).run()


async def end_leftover_run(item_root: Path) -> bool:
    """End what a dead daemon's run of this item left; whether there was anything. ``NeedsOperator`` when
    something survives. Known by recorded pid and start time, or by the item's own TMPDIR in its environment,
    never by name."""
    run = item_root / "run"
    folder = record_folder(run)
    with _told():
        record = await anyio.to_thread.run_sync(read_record, folder)
        ended = False
        if record is not None and await anyio.to_thread.run_sync(is_supervisor, record):
            ended = True
            kill(record["pid"], signal.SIGTERM)
            kill(record["pid"], signal.SIGCONT)
            with anyio.move_on_after(GRACE_SECONDS + 7):
                # no child of ours: nothing tells of its end
                while await anyio.to_thread.run_sync(is_supervisor, record):
                    await anyio.sleep(0.05)
        ended = await end_marked(f"TMPDIR={run}/".encode(), record) or ended
        await anyio.to_thread.run_sync(partial(forget, folder, whole=True))
    return ended


class _Supervised:
    """One run, seen from the daemon."""

    def __init__(self, process: Process, spec: RunSpec, folder: Path, check: StopCheck, since: int) -> None:
        self._process = process
        self._spec = spec
        self._folder = folder
        self._check = check
        self._since = since
        self._below: dict[int, int] = {}
        self._verdict: FormicaError | None = None
        self._report: dict[str, Any] | None = None
        self._wait = anyio.CancelScope()

    async def run(self) -> dict[str, Any]:
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._poll)
                with self._wait:
                    self._wait.deadline = self._deadline(self._spec["timeout_seconds"] + 5)
                    await self._start()
                    await self._listen()
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._make_sure()
        if self._verdict is not None:
            raise self._verdict
        if self._report is None or self._process.returncode != 0:
            raise Retryable(f"{self._death()}; everything it had started was ended")
        if self._report["survivors"]:
            raise NeedsOperator(f"processes {self._report['survivors']} cannot be ended, not even by SIGKILL")
        return self._report

    def _death(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            return f"the supervisor of a run was killed (signal {-code})"
        return "the supervisor of a run failed"

    async def _start(self) -> None:
        await anyio.to_thread.run_sync(write_record, self._folder, self._process.pid, {})
        await self._tell(json.dumps(self._spec).encode() + b"\n")

    async def _listen(self) -> None:
        """Hear the report, or that the supervisor ended; not until the end of the pipe, which others may
        hold."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._read, group.cancel_scope)
            while self._process.returncode is None:
                await anyio.sleep(0.05)
            await anyio.sleep(1)
            group.cancel_scope.cancel()

    async def _read(self, until: anyio.CancelScope) -> None:
        assert self._process.stderr is not None
        rest = b""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for chunk in self._process.stderr:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._report = self._report or _authentic(line, self._spec["token"])
                rest = rest[-_REPORT_BYTES:]
        until.cancel()

    async def _poll(self) -> None:
        while True:
            await anyio.sleep(CHECK_SECONDS)
            try:
                await self._check()
            except FormicaError as verdict:
                self._verdict = verdict
                self._wait.deadline = self._deadline(0)
                await self._stop()
                return
            await self._note_processes()

    async def _note_processes(self) -> None:
        """For the next daemon, should both of us be killed."""
        below = await anyio.to_thread.run_sync(started_below, self._process.pid)
        if below.keys() - self._below.keys():
            self._below |= below
            with suppress(OSError):
                await anyio.to_thread.run_sync(write_record, self._folder, self._process.pid, self._below)

    def _deadline(self, seconds: float) -> float:
        """When the supervisor itself has failed."""
        return float(anyio.current_time() + seconds + self._spec["grace_seconds"] + _STOP_SECONDS)

    async def _stop(self) -> None:
        kill(self._process.pid, signal.SIGCONT)  # the program may have stopped it
        await self._tell(b"stop\n")

    async def _tell(self, text: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await self._process.stdin.send(text)

    async def _make_sure(self) -> None:
        """Whatever happened and was said: the supervisor is gone, and so is all that was below it."""
        if self._process.returncode is None:
            with anyio.CancelScope() as scope:
                scope.deadline = min(self._deadline(0), max(self._wait.deadline, anyio.current_time() + 0.2))
                await self._stop()
                while self._process.returncode is None:
                    await anyio.sleep(0.02)
        if self._process.returncode is None:
            self._below |= await anyio.to_thread.run_sync(started_below, self._process.pid)
            self._process.kill()
        try:
            await end_orphans(self._since, self._below.items())
            if self._report is None:
                await end_marked(f"TMPDIR={self._spec['env'].get('TMPDIR', self._folder)}".encode(), None)
        finally:
            while self._process.returncode is None:
                await anyio.sleep(0.02)
        await end_orphans(self._since, self._below.items())
        await anyio.to_thread.run_sync(forget, self._folder)


@contextmanager
def _told() -> Iterator[None]:
    """What the system says no to, as one sentence."""
    try:
        yield
    except OSError as error:
        what = f"a run could not be made or ended properly: {error.strerror or error}"
        if error.errno in (errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EINVAL):
            raise NeedsOperator(
                f"{what}: something was put in the place of a file or folder of ours"
            ) from error
        raise Retryable(what) from error
    except ValueError as error:
        raise NeedsOperator(f"a run could not be made: {error}") from error


def _authentic(line: bytes, token: str) -> dict[str, Any] | None:
    """The supervisor's report; others may write there too."""
    if token.encode() not in line:
        return None
    try:
        report: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and report.get("token") == token else None


def _make_folders(env: Mapping[str, str], log_path: Path) -> int:
    """The run's folders, and the open log."""
    for folder in (log_path.parent, Path(env["HOME"]), Path(env["TMPDIR"])):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return fresh_file(log_path)


def _result(
    report: Mapping[str, Any], log: int, log_path: Path, folder: Path, log_limit: int
) -> CommandResult:
    if os.fstat(log).st_size > log_limit + _LEFT_OUT_BYTES:
        os.ftruncate(log, log_limit + _LEFT_OUT_BYTES)  # it was not the supervisor who wrote that
    if not _is_at(log, log_path):
        log_path = folder / "agent.log"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    tail = b""
    os.lseek(log, 0, os.SEEK_SET)
    copy = -1 if _is_at(log, log_path) else fresh_file(log_path)
    try:
        while chunk := os.read(log, 1 << 20):
            digest.update(chunk)
            tail = (tail + chunk)[-4 * _TAIL :]
            if copy >= 0:
                write_all(copy, chunk)
    finally:
        if copy >= 0:
            os.close(copy)
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


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one at ``path``; links are not followed."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False
