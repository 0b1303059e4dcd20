"""The processes below this one: those it started itself, and orphans that came to it.

A program of a run that killed its supervisor comes to us, as we are its next subreaper, whatever it did to its
session or environment. What we started is told from it by the session, which nobody can join from outside,
or, where it has one of its own, by being noted here. Never ``waitpid(-1)``: that would take the end of our
own children from those who wait for it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import anyio
from anyio.abc import Process

from formica.adapters.processes import (
    CLOCK_TICKS,
    LINUX,
    become_subreaper,
    below,
    kill,
    process_table,
)
from formica.errors import NeedsOperator

__all__ = ["end_orphans", "now_in_ticks", "open_child", "take_orphans"]

_SECONDS = 5.0


class _Known:
    """Children with a session of their own; ``starting`` of them are not noted yet."""

    def __init__(self) -> None:
        self.starting = 0
        self._noted: dict[int, Process] = {}

    def note(self, process: Process) -> None:
        for pid, old in list(self._noted.items()):
            if old.returncode is not None:
                del self._noted[pid]
        self._noted[process.pid] = process

    def has(self, pid: int) -> bool:
        """Its number may be another's once it ended."""
        return pid in self._noted and self._noted[pid].returncode is None


_known = _Known()


async def open_child(command: Sequence[str | os.PathLike[str]], **options: Any) -> Process:
    """`anyio.open_process` in a session of its own, noted as ours."""
    _known.starting += 1
    try:
        process = await anyio.open_process(command, start_new_session=True, **options)
        _known.note(process)
    finally:
        _known.starting -= 1
    return process


def take_orphans() -> None:
    """From now on orphans below this process come to it."""
    become_subreaper()


def now_in_ticks() -> int:
    """The present as the kernel writes start times, or just before."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * CLOCK_TICKS) - 1 if LINUX else 0


async def end_orphans(since: int, more: Iterable[tuple[int, int]] = ()) -> bool:
    """KILL all that came to us and started at ``since`` or later, with everything below it, until none is
    left; ``more`` are further processes by pid and start time. Whether there was any. ``NeedsOperator`` when
    one survives."""
    if not LINUX:
        return False
    found, quiet = False, 0
    last: list[int] = []
    with anyio.move_on_after(_SECONDS):
        while quiet < (2 if found else 1):
            last = await _orphans(since, more)
            quiet = 0 if last else quiet + 1
            if last:
                found = True
                for number in (signal.SIGSTOP, signal.SIGKILL):
                    for pid in last:
                        kill(pid, number)
                await anyio.sleep(0.01)
        return found
    if last:
        raise NeedsOperator(f"processes {sorted(last)} of a run cannot be ended, not even by SIGKILL")
    return found


async def _orphans(since: int, more: Iterable[tuple[int, int]]) -> list[int]:
    """The living ones; the dead ones are buried on the way."""
    table = await anyio.to_thread.run_sync(process_table)
    while _known.starting:
        await anyio.sleep(0.005)  # whatever the table shows of ours is noted after this
    own = os.getpid()
    roots = [
        pid
        for pid, (parent, start, *_) in table.items()
        if parent == own and start >= since and not _known.has(pid) and not _of_our_session(pid)
    ]
    _bury(pid for pid in roots if table[pid][2] == "Z")
    roots += [pid for pid, start in more if pid in table and table[pid][1] == start]
    every = {*roots, *below(table, roots)}
    return [pid for pid in every if table[pid][2] not in "ZX"]


def _of_our_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == os.getsid(0)
    except OSError:
        return True  # it is gone


def _bury(dead: Iterable[int]) -> None:
    for pid in dead:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
