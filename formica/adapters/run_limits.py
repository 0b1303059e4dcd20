"""The limits of a run that no kernel limit covers whole: all its processes together, and its files on disk.

Standard library only: a run's supervisor starts with it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, TypedDict

from formica.adapters.processes import deleted_bytes, descendants, folder_bytes, memory_bytes, thread_count

__all__ = ["LOOK_SECONDS", "Exceeded", "Watch", "WatchSpec"]

LOOK_SECONDS = 0.25
_WALK_SECONDS = 5.0
# Measuring a large tree takes this share of the time at most.
_WALK_SHARE = 20
Exceeded = Literal["", "memory", "processes", "disk"]


class WatchSpec(TypedDict):
    """Bytes for memory and disk, processes and threads for ``processes``; ``folders`` are absolute."""

    memory_bytes: int
    processes: int
    disk_bytes: int
    folders: list[str]


class Watch:
    """Looks at the processes below ``root`` and at what they add to the folders since it was made."""

    def __init__(self, spec: WatchSpec, root: int) -> None:
        self._spec = spec
        self._root = root
        self._looked = 0.0
        self._walked = 0.0
        self._walk_cost = 0.0
        self._before = self._measure()
        self._free_at_walk = _free(spec["folders"])

    def exceeded(self) -> Exceeded:
        """The limit that is reached now; asked more often than it looks, it says no."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return ""
        self._looked = now
        pids = list(descendants(self._root))
        if thread_count(pids) >= self._spec["processes"]:
            return "processes"
        if memory_bytes(pids) > self._spec["memory_bytes"]:
            return "memory"
        return "disk" if self._disk_exceeded(now, pids) else ""

    def _disk_exceeded(self, now: float, pids: list[int]) -> bool:
        """Walks the folders now and then, and at once when the disk itself lost a tenth of the limit."""
        rested = now - self._walked > max(LOOK_SECONDS, _WALK_SHARE * self._walk_cost)
        lost = self._free_at_walk - _free(self._spec["folders"])
        if not rested or (lost < self._spec["disk_bytes"] / 10 and now - self._walked < _WALK_SECONDS):
            return False
        self._free_at_walk = _free(self._spec["folders"])
        added = self._measure() - self._before + deleted_bytes(pids)
        return added > self._spec["disk_bytes"]

    def _measure(self) -> int:
        started = time.monotonic()
        total = sum(folder_bytes(folder) for folder in self._spec["folders"])
        self._walked = time.monotonic()
        self._walk_cost = self._walked - started
        return total


def _free(folders: Sequence[str]) -> int:
    """Free bytes of the disk the first folder is on."""
    with suppress(OSError, IndexError):
        status = os.statvfs(folders[0])
        return status.f_bavail * status.f_frsize
    return 0
