"""What tells a run's processes from all others: a recorded pid with its start time, and a mark in their
environment. Never a name. All functions block, but `end_marked`, which waits.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from formica.adapters.processes import LINUX, descendants, kill, read_stat
from formica.adapters.run_supervisor import MARK
from formica.errors import NeedsOperator

__all__ = ["end_marked", "forget", "is_supervisor", "read_record", "write_record"]

_RECORD = "run.json"


async def end_marked(marker: bytes, record: Mapping[str, Any] | None) -> bool:
    """KILL every process whose environment has an entry that begins with ``marker``, until none is left."""
    found = False
    if record is not None and await anyio.to_thread.run_sync(is_supervisor, record):
        for pid in [
            record["pid"],
            *await anyio.to_thread.run_sync(descendants, record["pid"]),
        ]:
            kill(pid, signal.SIGKILL)
    with anyio.move_on_after(5):
        while marked := await anyio.to_thread.run_sync(_marked, marker):
            found = True
            for pid in marked:
                kill(pid, signal.SIGKILL)
            await anyio.sleep(0.02)
        return found
    raise NeedsOperator("processes of an earlier run of this item cannot be ended")


def _marked(marker: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ") if LINUX else ():
        try:
            entries = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        pid = int(entry.parent.name)
        if pid != os.getpid() and any(value.startswith(marker) for value in entries):
            found.append(pid)
    return found


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _start_time(pid: int) -> int | None:
    stat = read_stat(pid)
    return None if stat is None or stat[0] in "ZX" else int(stat[19])


def forget(folder: Path) -> None:
    (folder / _RECORD).unlink(missing_ok=True)


def write_record(folder: Path, pid: int) -> None:
    fresh = folder / f"{_RECORD}.new"
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump({"pid": pid, "start_time": _start_time(pid), "boot_id": _boot_id()}, file)
    fresh.replace(folder / _RECORD)


def read_record(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads((folder / _RECORD).read_text())
        return record if isinstance(record["pid"], int) and record["start_time"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_supervisor(record: Mapping[str, Any]) -> bool:
    """The recorded process still runs: same boot, same pid, same start time, and a supervisor of ours."""
    pid = record["pid"]
    if record.get("boot_id") != _boot_id() or _start_time(pid) != record["start_time"]:
        return False
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return MARK.encode() in command
