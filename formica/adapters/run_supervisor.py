"""The process between the daemon and one program: nothing the program started outlives it.

Run as ``python -I -S run_supervisor.py``; standard library only, imports nothing of ours. The first line on
stdin is the run as JSON (see ``Spec``); after it the pipe is the life-line: the word ``stop`` or its end
means that the daemon wants the run over, or is dead. The last thing printed on stderr is one line of JSON:
``reason``, ``exit_code`` (None when ended here, negative for a signal), ``seconds``, ``cpu_seconds``,
``max_rss_kb``, ``dropped_bytes``, ``survivors`` (pids that even SIGKILL did not end), ``error``.

On Linux it is the subreaper of the run, so that a child that detached itself still hangs below it. Elsewhere
only the process group can be ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

TICK_SECONDS = 1.0
LINUX = sys.platform.startswith("linux")
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def process_table() -> dict[int, tuple[int, int, str, float]]:
    """pid → parent pid, start time (clock ticks since boot), state letter, CPU seconds; Linux only."""
    table = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - see read_stat
        if not name.isdigit():
            continue
        fields = read_stat(int(name))
        if fields is not None:
            cpu = sum(map(int, fields[11:15])) / _CLOCK_TICKS
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
    children: dict[int, list[int]] = {}
    for pid, (parent, *_) in table.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, float] = {}
    queue = deque(children.get(root, ()))
    while queue:
        pid = queue.popleft()
        queue.extend(children.get(pid, ()))
        if table[pid][2] not in "ZX":
            found[pid] = table[pid][3]
    return found


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


def become_subreaper() -> None:
    if LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


class Log:
    """A file of bounded size: its beginning as it comes, then only the newest bytes, kept in memory."""

    def __init__(self, path: str, limit: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._tail_limit = min(1 << 20, limit // 4)
        self._left = limit - self._tail_limit
        self._tail = bytearray()
        self.dropped = 0

    def write(self, chunk: bytes) -> None:
        head, rest = chunk[: self._left], chunk[self._left :]
        self._left -= len(head)
        write_all(self._file, head)
        self._tail += rest
        if len(self._tail) > 2 * self._tail_limit:
            self._trim()

    def close(self) -> None:
        self._trim()
        if self.dropped:
            write_all(self._file, b"\n[%d bytes left out]\n" % self.dropped)
        write_all(self._file, bytes(self._tail))
        os.close(self._file)

    def _trim(self) -> None:
        over = max(0, len(self._tail) - self._tail_limit)
        self.dropped += over
        del self._tail[:over]


def write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class Run:
    """One program from its start to the death of the last process below it."""

    def __init__(self, spec: dict[str, Any], lifeline: int) -> None:
        self._spec = spec
        self._lifeline = lifeline
        self._log = Log(spec["log_path"], spec["log_limit"])
        self._selector = selectors.DefaultSelector()
        self._main = 0
        self._exit: int | None = None
        self._exited = False
        self._reason = "exited"
        self._started = time.monotonic()
        self._progress = self._started
        self._cpu_mark: tuple[float, float, float] | None = None

    def start(self) -> None:
        """Raises OSError when the program cannot be started."""
        os.chdir(self._spec["cwd"])
        reader, writer = os.pipe()
        wake, woken = os.pipe()
        for descriptor in (reader, wake, woken):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for stopping in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(stopping, lambda *_: self._end("stopped"))
        program = find_program(self._spec["argv"][0], self._spec["env"].get("PATH", ""))
        try:
            self._main = os.posix_spawn(
                program,
                self._spec["argv"],
                self._spec["env"],
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, writer, 1),
                    (os.POSIX_SPAWN_DUP2, writer, 2),
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
            )
        finally:
            os.close(writer)
        self._output = reader
        self._selector.register(reader, selectors.EVENT_READ, self._pump)
        self._selector.register(wake, selectors.EVENT_READ, self._wake)
        self._selector.register(self._lifeline, selectors.EVENT_READ, self._command)

    def finish(self) -> dict[str, Any]:
        """Wait for the end, end what is left, and say what happened."""
        while not self._exited and self._reason == "exited":
            self._turn(min(TICK_SECONDS, self._spec["stall_seconds"] / 4))
            self._judge()
        grace = self._spec["grace_seconds"]
        survivors = self._end_all(min(grace, 1.0) if self._reason == "exited" else grace)
        self._drain()
        self._log.close()
        return self.report(survivors=survivors)

    def report(self, *, survivors: list[int], error: str = "") -> dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "reason": "unstartable" if error else self._reason,
            "exit_code": self._exit if self._reason == "exited" and not error else None,
            "seconds": time.monotonic() - self._started,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "max_rss_kb": usage.ru_maxrss,
            "dropped_bytes": self._log.dropped,
            "survivors": survivors,
            "error": error,
        }

    def fail(self, error: OSError) -> dict[str, Any]:
        self._log.close()
        return self.report(survivors=[], error=error.strerror or "it cannot be started")

    def _turn(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            key.data(key.fd)
        self._reap()

    def _wake(self, descriptor: int) -> None:
        os.read(descriptor, 4096)

    def _command(self, descriptor: int) -> None:
        """Anything on the life-line, its end too, means stop."""
        self._selector.unregister(descriptor)
        os.read(descriptor, 4096)
        self._end("stopped")

    def _pump(self, descriptor: int) -> None:
        chunk = os.read(descriptor, 1 << 16)
        if chunk:
            self._log.write(chunk)
            self._progress = time.monotonic()
        else:
            self._selector.unregister(descriptor)

    def _end(self, reason: str) -> None:
        if not self._exited and self._reason == "exited":
            self._reason = reason

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._main:
                self._exited = True
                self._exit = os.waitstatus_to_exitcode(status)

    def _judge(self) -> None:
        now = time.monotonic()
        if now - self._started > self._spec["timeout_seconds"]:
            self._end("timeout")
        idle = self._spec["stall_seconds"]
        # Half-way through is early enough to look at CPU time, and costs nothing while output flows.
        if now - self._progress > idle / 2:
            self._note_cpu(now)
        watched = self._cpu_mark is not None and now - self._cpu_mark[1] >= idle / 4
        if now - self._progress > idle and watched:
            self._note_files(now, idle)

    def _note_cpu(self, now: float) -> None:
        """CPU time is progress when it is more than the odd timer of a program that waits for ever."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = usage.ru_utime + usage.ru_stime + sum(descendants(os.getpid()).values())
        if self._cpu_mark is None or self._cpu_mark[0] != self._progress:
            self._cpu_mark = (self._progress, now, total)
        elif total - self._cpu_mark[2] > max(0.05, 0.01 * (now - self._cpu_mark[1])):
            self._progress = now

    def _note_files(self, now: float, idle: float) -> None:
        if newest_change(self._spec["cwd"], time.time() - idle):
            self._progress = now - idle / 2
        else:
            self._end("stalled")

    def _end_all(self, grace: float) -> list[int]:
        """TERM, the grace, then KILL until none is left; the pids that survived even five seconds of it."""
        self._signal(signal.SIGTERM)
        self._signal(signal.SIGCONT)
        end = time.monotonic() + grace
        while self._alive() and time.monotonic() < end:
            self._turn(0.05)
        end = time.monotonic() + 5
        while self._alive() and time.monotonic() < end:
            self._freeze()
            self._signal(signal.SIGKILL)
            self._turn(0.02)
        self._reap()
        return sorted(descendants(os.getpid()))

    def _alive(self) -> bool:
        if not self._exited:
            return True
        return bool(descendants(os.getpid())) if LINUX else self._group_signalled(0)

    def _freeze(self) -> None:
        """Stop all before killing any, so that none is replaced by a child of another in between."""
        seen: set[int] = set()
        for _ in range(20):
            fresh = set(descendants(os.getpid())) - seen
            if not fresh:
                return
            seen |= fresh
            for pid in fresh:
                kill(pid, signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        self._group_signalled(number)
        for pid in descendants(os.getpid()):
            kill(pid, number)

    def _group_signalled(self, number: int) -> bool:
        try:
            os.killpg(self._main, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def _drain(self) -> None:
        """What is still in the pipe; its end is not awaited, somebody else may hold it."""
        with suppress(BlockingIOError):
            while chunk := os.read(self._output, 1 << 16):
                self._log.write(chunk)


def kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def find_program(name: str, path: str) -> str:
    """The file ``name`` means, looked up in ``path`` alone, never in the folder of the run."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = f"{folder}/{name}"
        if folder.startswith("/") and os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113 - see read_stat
            return candidate
    raise FileNotFoundError(2, "No such program in PATH")


def read_line(descriptor: int) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            return b""
        line += byte
    return bytes(line)


def main() -> None:
    become_subreaper()
    line = read_line(0)
    if not line:
        return  # the daemon died before it said what to run
    lifeline = os.dup(0)
    run = Run(json.loads(line), lifeline)
    try:
        run.start()
    except OSError as error:
        report = run.fail(error)
    else:
        report = run.finish()
    write_all(2, json.dumps(report).encode() + b"\n")


if __name__ == "__main__":
    main()
