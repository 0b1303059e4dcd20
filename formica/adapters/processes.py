"""What the kernel says of processes and folders. Standard library only: a run's supervisor starts with it."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress

__all__ = [
    "CLOCK_TICKS",
    "LINUX",
    "become_subreaper",
    "below",
    "deleted_bytes",
    "descendants",
    "folder_bytes",
    "kill",
    "memory_bytes",
    "newest_change",
    "process_table",
    "read_stat",
    "thread_count",
]

LINUX = sys.platform.startswith("linux")
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def process_table() -> dict[int, tuple[int, int, str, float]]:
    """pid → parent pid, start time (clock ticks since boot), state letter, CPU seconds; Linux only."""
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - see read_stat
        if not name.isdigit():
            continue
        fields = read_stat(int(name))
        if fields is not None:
            cpu = sum(map(int, fields[11:15])) / CLOCK_TICKS
            table[int(name)] = (int(fields[1]), int(fields[19]), fields[0], cpu)
    return table


def read_stat(pid: int) -> list[str] | None:
    """The fields of `/proc/<pid>/stat` from the state on; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs start-up time here
            return file.read().rpartition(b")")[2].decode("ascii").split()
    except (OSError, UnicodeDecodeError):
        return None


def descendants(root: int) -> dict[int, float]:
    """Every living process below ``root`` with its CPU seconds, zombies left out."""
    if not LINUX:
        return {}
    table = process_table()
    return {pid: table[pid][3] for pid in below(table, [root]) if table[pid][2] not in "ZX"}


def below(table: Mapping[int, tuple[int, int, str, float]], roots: Iterable[int]) -> list[int]:
    """Every process of the table below ``roots``, zombies too."""
    children: dict[int, list[int]] = {}
    for pid, (parent, *_) in table.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, None] = {}
    queue = deque(roots)
    while queue:
        for pid in children.get(queue.popleft(), ()):
            if pid not in found:  # the table was not taken in one moment
                found[pid] = None
                queue.append(pid)
    return list(found)


def become_subreaper() -> None:
    """Orphans below this process come to it from now on, not to the init process."""
    if LINUX:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def newest_change(folder: str, since: float) -> bool:
    """Whether any file below ``folder`` changed after ``since`` (seconds of the epoch)."""
    queue = [folder]
    while queue:
        try:
            with os.scandir(queue.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if max(status.st_mtime, status.st_ctime) > since:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
        except OSError:
            continue
    return False


def folder_bytes(folder: str) -> int:
    """The disk space of everything below ``folder``, in bytes; links are not followed."""
    total = 0
    queue = [folder]
    while queue:
        try:
            with os.scandir(queue.pop()) as entries:
                for entry in entries:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            queue.append(entry.path)
        except OSError:
            continue
    return total


def deleted_bytes(pids: list[int]) -> int:
    """The disk space of files these processes hold open though they have no name any more, in bytes."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                with suppress(OSError):
                    status = entry.stat()
                    if status.st_nlink == 0:
                        found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(found.values())


def memory_bytes(pids: list[int]) -> int:
    """Memory of these processes that is theirs alone, and the largest share any of them has of common
    memory: counting that for each of them would count it many times."""
    private = shared = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - see read_stat
                status = file.read()
        except OSError:
            continue
        private += _kilobytes(status, b"RssAnon:")
        shared = max(shared, _kilobytes(status, b"RssShmem:"))
    return (private + shared) * 1024


def thread_count(pids: list[int]) -> int:
    """Processes and their threads, as the kernel's own limit counts them."""
    stats = [read_stat(pid) for pid in pids]
    return sum(int(stat[17]) for stat in stats if stat is not None)


def kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _kilobytes(status: bytes, name: bytes) -> int:
    _, _, after = status.partition(name)
    return int(after.split(None, 1)[0]) if after else 0
