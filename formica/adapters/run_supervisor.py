"""The process between the daemon and one program: nothing the program started outlives it.

Started with ``COMMAND``; standard library and its neighbours only. The first line on stdin is the run
as JSON (`RunSpec`); after it the pipe is the life-line: the word ``stop`` or its end means that the daemon
wants the run over, or is dead. The last thing printed on stderr is one line of JSON: the run's ``token``, which
nobody else knows, as a program of the same user may be able to write there too, ``reason``,
``exit_code`` (None when ended here, negative for a signal), ``seconds``, ``cpu_seconds``, ``max_rss_kb``,
``dropped_bytes``, ``survivors`` (pids that even SIGKILL did not end), ``error``.

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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

from formica.adapters.processes import LINUX, become_subreaper, descendants, kill, newest_change
from formica.adapters.run_launcher import REPORT_DESCRIPTOR, find_program
from formica.adapters.run_limits import LOOK_SECONDS, Watch, WatchSpec
from formica.adapters.run_log import RunLog, write_all

__all__ = ["COMMAND", "MARK", "Run", "RunSpec"]

TICK_SECONDS = 1.0
MARK = "formica.adapters.run_supervisor"
"""A word of every supervisor's command line."""
COMMAND = (
    *(sys.executable, "-I", "-S", "-c"),
    "import sys; sys.path.append(sys.argv[1]); from formica.adapters.run_supervisor import main; main()",
    *(str(Path(__file__).parents[2]), MARK),
)
_OUT_OF_MEMORY_SCORE = 500
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219}


class RunSpec(TypedDict):
    """One run. The log is open at ``log_descriptor``. ``descriptors`` are texts the program finds open at these numbers. With ``namespaced`` the
    program is the outer process of a pid namespace that dies with it. With ``launched`` what ends first is
    not the program but its launcher, which says on ``REPORT_DESCRIPTOR`` how the program ended."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    token: str
    log_descriptor: int
    log_limit: int
    timeout_seconds: float
    stall_seconds: float
    grace_seconds: float
    descriptors: dict[str, str]
    namespaced: bool
    launched: bool
    watch: WatchSpec | None


def shut_off() -> None:
    """The run cannot look into us or open our descriptors, unless it is root, and the keys of the user's
    session do not come to it."""
    if not LINUX:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    keyctl = _KEYCTL.get(os.uname().machine)
    if keyctl is not None:
        libc.syscall(keyctl, 1, None)  # KEYCTL_JOIN_SESSION_KEYRING, a new one without a name


class Run:
    """One program from its start to the death of the last process below it."""

    def __init__(self, spec: RunSpec, lifeline: int) -> None:
        self._spec = spec
        self._lifeline = lifeline
        os.set_inheritable(spec["log_descriptor"], False)
        self._log = RunLog(spec["log_descriptor"], spec["log_limit"])
        # Once we are shut off, only root could open it.
        self._score = _open_score() if spec["watch"] is not None else None
        self._selector = selectors.DefaultSelector()
        self._main = 0
        self._exit: int | None = None
        self._exited = False
        self._reason = "exited"
        self._started = time.monotonic()
        self._progress = self._started
        self._cpu_mark: tuple[float, float, float] | None = None
        self._watch: Watch | None = None
        self._launch_report, self._launch_writer = os.pipe() if spec["launched"] else (-1, -1)

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
        self._output = reader
        try:
            self._main = self._spawn(writer)
        finally:
            os.close(writer)
            if self._spec["launched"]:
                os.close(self._launch_writer)
                os.set_blocking(self._launch_report, False)
        if self._spec["watch"] is not None:
            self._watch = Watch(self._spec["watch"], os.getpid())
        self._selector.register(reader, selectors.EVENT_READ, self._pump)
        self._selector.register(wake, selectors.EVENT_READ, self._wake)
        self._selector.register(self._lifeline, selectors.EVENT_READ, self._command)

    def _spawn(self, output: int) -> int:
        program = find_program(self._spec["argv"][0], self._spec["env"].get("PATH", ""))
        files = [(int(number), memory_file(text)) for number, text in self._spec["descriptors"].items()]
        if self._spec["launched"]:
            files.append((REPORT_DESCRIPTOR, self._launch_writer))
        with preferred_by_the_oom_killer(self._score):
            return os.posix_spawn(
                program,
                self._spec["argv"],
                self._spec["env"],
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, output, 2),
                    *((os.POSIX_SPAWN_DUP2, source, number) for number, source in files),
                ],
                setpgroup=0,
                setsigmask=[],
                setsigdef=[signal.SIGPIPE, signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP],
            )

    def finish(self) -> dict[str, Any]:
        """Wait for the end, end what is left, and say what happened."""
        tick = min(TICK_SECONDS if self._watch is None else LOOK_SECONDS, self._spec["stall_seconds"] / 4)
        while not self._exited and self._reason == "exited":
            self._turn(tick)
            self._judge()
        survivors = self._end_all(self._grace())
        self._drain()
        self._log.close()
        error = self._hear_launcher() if self._spec["launched"] else ""
        return self.report(survivors=survivors, error=error)

    def _grace(self) -> float:
        """What is left of a finished program gets little, what goes on growing gets nothing."""
        grace = self._spec["grace_seconds"]
        return {"exited": min(grace, 1.0), "memory": 0.0, "processes": 0.0, "disk": 0.0}.get(
            self._reason, grace
        )

    def _hear_launcher(self) -> str:
        """The program's own exit code in place of its launcher's; what kept it from starting, if so."""
        with suppress(BlockingIOError, ValueError):
            said = json.loads(os.read(self._launch_report, 4096).partition(b"\n")[0])
            self._exit = said.get("exit", self._exit)
            return str(said.get("error", ""))
        return ""

    def report(self, *, survivors: list[int], error: str = "") -> dict[str, Any]:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return {
            "token": self._spec["token"],
            "reason": "unstartable" if error else self._reason,
            "exit_code": self._exit if self._reason == "exited" and not error else None,
            "seconds": time.monotonic() - self._started,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "max_rss_kb": usage.ru_maxrss,
            "dropped_bytes": self._log.dropped,
            "survivors": survivors,
            "error": error,
        }

    def fail(self, error: OSError | ValueError) -> dict[str, Any]:
        self._log.close()
        reason = error.strerror if isinstance(error, OSError) else None
        return self.report(survivors=[], error=reason or "it cannot be started")

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
        if self._watch is not None and (limit := self._watch.exceeded()):
            self._end(limit)
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
        if grace:
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)
        end = time.monotonic() + grace
        while self._alive() and time.monotonic() < end:
            self._turn(0.05)
        end = time.monotonic() + 5
        if self._spec["namespaced"]:
            kill(self._main, signal.SIGKILL)  # its namespace dies at once, however fast it forks
            while not self._exited and time.monotonic() < end:
                self._turn(0.02)
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
        """The outer process of a namespace is spared: all inside would die with it, without any grace."""
        spared = self._main if self._spec["namespaced"] and number != signal.SIGKILL else 0
        if not spared:
            self._group_signalled(number)
        for pid in descendants(os.getpid()):
            if pid != spared:
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


def memory_file(text: str) -> int:
    """A descriptor that reads as ``text``."""
    descriptor = os.memfd_create("run")
    write_all(descriptor, text.encode("utf-8", "surrogateescape"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _open_score() -> int | None:
    with suppress(OSError):
        return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC) if LINUX else None
    return None


@contextmanager
def preferred_by_the_oom_killer(score: int | None) -> Iterator[None]:
    """What is started meanwhile is killed before anything of ours when the host runs out of memory."""
    if score is None:
        yield
        return
    own = os.pread(score, 32, 0)
    with suppress(OSError):
        os.pwrite(score, b"%d" % max(int(own), _OUT_OF_MEMORY_SCORE), 0)
    yield
    with suppress(OSError):
        os.pwrite(score, own, 0)


def read_spec(descriptor: int) -> RunSpec | None:
    """The run, or None when the daemon is dead or wants it over before it began."""
    line = b""
    while b"\n" not in line:
        chunk = os.read(descriptor, 1 << 16)
        if not chunk:
            return None
        line += chunk
    line, _, more = line.partition(b"\n")
    spec: RunSpec = json.loads(line)
    return None if more else spec


def main() -> None:
    become_subreaper()
    spec = read_spec(0)
    if spec is None:
        return
    run = Run(spec, os.dup(0))
    shut_off()
    try:
        run.start()
    except (OSError, ValueError) as error:
        report = run.fail(error)
    else:
        report = run.finish()
    write_all(2, b"\n" + json.dumps(report).encode() + b"\n")
