"""What tells a run's processes from all others: a recorded pid with its start time, and a mark in their
environment. Never a name. All functions block, but `end_marked`, which waits.

The record of an item's run lies in `<state>/runs/<issue>/`, outside the item: what runs in the item may remove or
replace all of it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from formica.adapters.plain_files import clear, read_plain
from formica.adapters.processes import LINUX, descendants, kill, read_stat
from formica.adapters.run_supervisor import MARK
from formica.errors import NeedsOperator

__all__ = [
    "end_marked",
    "forget",
    "is_supervisor",
    "read_record",
    "record_folder",
    "started_below",
    "write_record",
]

_RECORD = "run.json"
_RECORD_BYTES = 1 << 20


def record_folder(folder: Path) -> Path:
    """Where the record of the run with its log in ``folder`` lies: for an item's run outside the item."""
    items = folder.parent.parent
    return items.parent / "runs" / folder.parent.name if items.name == "items" else folder


async def end_marked(marker: bytes, record: Mapping[str, Any] | None) -> bool:
    """KILL every process whose environment has an entry that begins with ``marker`` or that is in the record,
    until none is left."""
    found = False
    if record is not None and await anyio.to_thread.run_sync(is_supervisor, record):
        for pid in [
            record["pid"],
            *await anyio.to_thread.run_sync(descendants, record["pid"]),
        ]:
            kill(pid, signal.SIGKILL)
    with anyio.move_on_after(5):
        while marked := await anyio.to_thread.run_sync(_left, marker, record):
            found = True
            for pid in marked:
                kill(pid, signal.SIGKILL)
            await anyio.sleep(0.02)
        return found
    raise NeedsOperator("processes of an earlier run of this item cannot be ended")


def _left(marker: bytes, record: Mapping[str, Any] | None) -> list[int]:
    return [*_marked(marker), *(_recorded(record) if record is not None else ())]


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


def forget(folder: Path, *, whole: bool = False) -> None:
    """The run is over; ``whole``: neither is anything else of it wanted that lies there."""
    apart = folder.parent.name == "runs"
    clear(folder if apart and whole else folder / _RECORD)
    if apart:
        with suppress(OSError):
            folder.rmdir()


def write_record(folder: Path, pid: int, below: Mapping[int, int]) -> None:
    """``below``: the run's processes so far, by pid and start time."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f"{_RECORD}.new"
    clear(fresh)
    record = {
        "pid": pid,
        "start_time": _start_time(pid),
        "boot_id": _boot_id(),
        "below": [*below.items()],
    }
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(record, file)
    if (folder / _RECORD).is_dir():
        clear(folder / _RECORD)
    fresh.replace(folder / _RECORD)


def read_record(folder: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(read_plain(folder / _RECORD, _RECORD_BYTES))
        return record if isinstance(record["pid"], int) and record["start_time"] else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def started_below(pid: int) -> dict[int, int]:
    """The living processes below ``pid`` with their start times."""
    times = {below: _start_time(below) for below in descendants(pid)}
    return {below: time for below, time in times.items() if time is not None}


def _recorded(record: Mapping[str, Any]) -> list[int]:
    """The recorded processes below the supervisor that still run."""
    pairs = record.get("below")
    if record.get("boot_id") != _boot_id() or not isinstance(pairs, list):
        return []
    return [
        pair[0]
        for pair in pairs
        if isinstance(pair, list)
        and len(pair) == 2
        and all(type(number) is int and number > 1 for number in pair)
        and pair[0] != os.getpid()
        and _start_time(pair[0]) == pair[1]
    ]


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
