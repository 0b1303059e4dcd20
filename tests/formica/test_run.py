"""Supervised runs: bounded, stoppable, and nothing of them left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from formica.adapters.sandbox import agent_environment, end_leftover_run, run_command
from formica.errors import LeaseLost, Stopped
from formica.ports import CommandResult

FAKES = Path(__file__).parents[1] / "fakes" / "agents"
PATHOLOGICAL = [sys.executable, str(FAKES / "pathological.py")]
BOOT_ID = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
ESCAPED = ("setsid", "double-fork", "nohup", "deaf", "closed")


async def go_on() -> None:
    return None


async def run(folder: Path, *argv: str, **changes: Any) -> CommandResult:
    options: dict[str, Any] = {
        "cwd": folder,
        "env": agent_environment(os.environ["PATH"], folder / "run" / "home"),
        "log_path": folder / "run" / "agent.log",
        "timeout_seconds": 60,
        "stall_seconds": 60,
        "check": go_on,
    }
    return await run_command([*PATHOLOGICAL, *argv], **options | changes)


@contextmanager
def daemon_with_a_run(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon of its own that runs an agent whose children escape and that never ends."""
    argv = [
        sys.executable,
        str(FAKES / "daemon.py"),
        str(folder),
        *PATHOLOGICAL,
        "escape",
        str(folder),
        "stay",
    ]
    environment = {**os.environ, "PYTHONPATH": str(FAKES.parents[2])}
    with subprocess.Popen(argv, env=environment) as daemon:
        try:
            yield daemon
        finally:
            daemon.kill()
            for pid in pids(folder).values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@contextmanager
def decoy_in(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The maintainer's own agent of the same name, which is none of our business."""
    with subprocess.Popen([*PATHOLOGICAL, "silent"], cwd=folder, stdout=subprocess.DEVNULL) as decoy:
        try:
            yield decoy
        finally:
            decoy.kill()


def stat_of(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the state on."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def alive(pid: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and stat[0] not in "ZX"


def pids(folder: Path) -> dict[str, int]:
    return {path.stem: int(path.read_text()) for path in folder.glob("*.pid")}


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.01)


async def test_a_run_is_recorded_while_it_lasts_and_reported_after(tmp_path: Path) -> None:
    """Exit code, output and the log's hash come back; the record of the run is gone with it."""
    result = await run(tmp_path, "spam", "2000")
    assert (result.reason, result.exit_code) == ("exited", 0)
    assert result.output_tail.endswith("end\n")
    assert result.log_path.read_text().endswith("end\n")
    assert len(result.log_hash) == 64
    assert not (tmp_path / "run" / "run.json").exists()


async def test_escaped_children_die_with_the_run(tmp_path: Path) -> None:
    """setsid, double fork, nohup, a deaf one and one without descriptors: none outlives a run that ended."""
    started = time.monotonic()
    result = await run(tmp_path, "escape", str(tmp_path))
    assert (result.reason, result.exit_code) == ("exited", 0)
    assert set(pids(tmp_path)) == set(ESCAPED)
    assert [name for name, pid in pids(tmp_path).items() if alive(pid)] == []
    assert time.monotonic() - started < 5


async def test_a_stop_ends_everything_and_is_raised(tmp_path: Path) -> None:
    """What the check raises ends the whole tree, after a grace of three seconds, and reaches the caller."""
    for verdict in (Stopped("paused"), LeaseLost("taken over")):
        folder = tmp_path / type(verdict).__name__
        folder.mkdir()
        said: list[float] = []

        async def check(
            folder: Path = folder, verdict: Exception = verdict, said: list[float] = said
        ) -> None:
            if await anyio.Path(folder / "main.pid").exists():
                said.append(time.monotonic())
                raise verdict

        with pytest.raises(type(verdict)):
            await run(folder, "escape", str(folder), "stay", check=check)
        assert time.monotonic() - said[0] < 8
        assert len(pids(folder)) == 6
        assert [name for name, pid in pids(folder).items() if alive(pid)] == []


async def test_cancelling_ends_everything(tmp_path: Path) -> None:
    """A cancelled run leaves no process either."""
    async with anyio.create_task_group() as group:
        group.start_soon(run, tmp_path, "escape", str(tmp_path), "stay")
        await until((tmp_path / "main.pid").exists)
        group.cancel_scope.cancel()
    assert [name for name, pid in pids(tmp_path).items() if alive(pid)] == []


async def test_our_own_death_ends_everything(tmp_path: Path) -> None:
    """SIGKILL of the daemon closes the life-line, and the supervisor ends the run."""
    with daemon_with_a_run(tmp_path) as daemon:
        await until((tmp_path / "main.pid").exists)
        supervisor = json.loads((tmp_path / "run" / "run.json").read_text())["pid"]
        daemon.kill()
    await until(lambda: not any(alive(pid) for pid in [supervisor, *pids(tmp_path).values()]))


async def test_the_next_daemon_ends_what_an_old_one_left(tmp_path: Path) -> None:
    """With daemon and supervisor both killed, the run's processes are found by what we recorded; a decoy
    with the same command line lives on."""
    elsewhere = tmp_path / "decoy"
    elsewhere.mkdir()
    with (
        decoy_in(elsewhere) as decoy,
        daemon_with_a_run(tmp_path) as daemon,
    ):
        await until((tmp_path / "main.pid").exists)
        record = json.loads((tmp_path / "run" / "run.json").read_text())
        os.kill(daemon.pid, signal.SIGSTOP)
        os.kill(record["pid"], signal.SIGKILL)
        await until(lambda: not alive(record["pid"]))
        assert any(alive(pid) for pid in pids(tmp_path).values())
        daemon.kill()
        assert await end_leftover_run(tmp_path)
        assert [name for name, pid in pids(tmp_path).items() if alive(pid)] == []
        assert alive(decoy.pid)
        assert not await end_leftover_run(tmp_path)


async def test_a_record_of_a_reused_pid_ends_nobody(tmp_path: Path) -> None:
    """A pid whose start time is not the recorded one, or that is no supervisor, is left alone."""
    (tmp_path / "run").mkdir()
    with decoy_in(tmp_path) as decoy:
        stat = stat_of(decoy.pid)
        assert stat is not None
        for start_time in (int(stat[19]), 1):
            record = {"pid": decoy.pid, "start_time": start_time, "boot_id": BOOT_ID}
            (tmp_path / "run" / "run.json").write_text(json.dumps(record))
            assert not await end_leftover_run(tmp_path)
            assert alive(decoy.pid)


async def test_a_grandchild_that_holds_the_pipe_delays_nothing(tmp_path: Path) -> None:
    """The run is over when its program is, not when the last holder of the pipe is."""
    result = await run(tmp_path, "hold-pipe")
    assert result.output_tail == "done\n"
    assert result.seconds < 5


async def test_stdin_is_empty(tmp_path: Path) -> None:
    """An agent that reads stdin finds its end at once."""
    assert (await run(tmp_path, "read-stdin")).output_tail == "0 bytes\n"


async def test_the_environment_is_a_list_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Secrets and settings of the daemon are not in the program's environment, only what is named."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted")
    monkeypatch.setenv("FORMICA_FORGE__TOKEN", "planted")
    monkeypatch.setenv("CLAUDECODE", "1")
    await run(tmp_path, "environ", str(tmp_path))
    entries = dict(
        entry.split("=", 1) for entry in (tmp_path / "environ").read_text().split("\0") if "=" in entry
    )
    assert set(entries) == {"PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "TERM"}
    assert Path(entries["TMPDIR"]).is_relative_to(tmp_path)
    assert "planted" not in str(entries)


async def test_a_time_limit_ends_the_run(tmp_path: Path) -> None:
    """Work without end is ended after the limit, busy or not."""
    result = await run(tmp_path, "busy", str(tmp_path), timeout_seconds=1)
    assert (result.reason, result.exit_code) == ("timeout", None)
    assert result.seconds < 8


async def test_a_stalled_program_is_ended(tmp_path: Path) -> None:
    """No output, no computing and no file written for the limit: stalled."""
    result = await run(tmp_path, "silent", stall_seconds=2)
    assert (result.reason, result.exit_code) == ("stalled", None)
    assert result.output_tail == "Allow the tool Bash?\n"


@pytest.mark.parametrize("kind", ["busy", "write"])
async def test_silent_work_is_no_stall(tmp_path: Path, kind: str) -> None:
    """Computing, or writing files in the tree, without a word is not taken for a stall."""
    checks = 0

    async def check() -> None:
        nonlocal checks
        checks += 1
        if checks == 4:
            await anyio.Path(tmp_path / "enough").touch()

    result = await run(tmp_path, kind, str(tmp_path), stall_seconds=1, check=check)
    assert (result.reason, result.exit_code) == ("exited", 0)


async def test_the_log_is_bounded_and_keeps_the_end(tmp_path: Path) -> None:
    """Output over the limit costs neither disk nor the last words."""
    result = await run(tmp_path, "spam", "5000000", log_limit=100_000)
    assert result.log_path.stat().st_size < 101_000
    assert "bytes left out" in result.log_path.read_text()
    assert result.output_tail.endswith("end\n")


async def test_a_program_that_cannot_start_says_so(tmp_path: Path) -> None:
    """Missing, forbidden and broken programs are an outcome, not an exception."""
    broken = tmp_path / "broken"
    broken.write_text("no interpreter line\n")
    options: dict[str, Any] = {
        "cwd": tmp_path,
        "env": agent_environment(os.environ["PATH"], tmp_path / "run" / "home"),
        "log_path": tmp_path / "run" / "agent.log",
        "timeout_seconds": 10,
        "stall_seconds": 10,
        "check": go_on,
    }
    (tmp_path / "here").write_text("#!/bin/sh\n")
    (tmp_path / "here").chmod(0o755)
    for program in ("no-such-program", str(broken), str(tmp_path), "here"):
        result = await run_command([program], **options)
        assert (result.reason, result.exit_code) == ("unstartable", None)
        assert result.output_tail.startswith("could not be started")
    broken.chmod(0o755)
    assert (await run_command([str(broken)], **options)).reason == "unstartable"


async def test_an_end_by_signal_is_a_negative_code(tmp_path: Path) -> None:
    """A program that died by a signal of its own did not exit 0."""
    result = await run(tmp_path, "signal")
    assert (result.reason, result.exit_code) == ("exited", -9)
