"""Programs that turn against their supervisor; the first argument says how, the second where the pid of the one
that matters is written. Standard library only. Each ends by itself in the end, should nobody end it.

kill PID               detaches with an empty environment, kills the supervisor, lives on
kill-later PID FILE    the same, once FILE exists
forge PID              the same, after it wrote the report of a success in the supervisor's place
leave PID              detaches with an empty environment and lives on
freeze PID             stops the supervisor again and again
garbage PID            writes broken JSON in place of the report and kills the supervisor
flood PID              writes megabytes of reports in the supervisor's place and exits with 3
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

LIFE_SECONDS = 30.0
SUCCESS = {
    "reason": "exited",
    "exit_code": 0,
    "seconds": 1.0,
    "cpu_seconds": 0.0,
    "max_rss_kb": 0,
    "dropped_bytes": 0,
    "survivors": [],
    "error": "",
}


def note(path: str) -> None:
    fresh = Path(f"{path}.new")
    fresh.write_text(str(os.getpid()))
    fresh.rename(path)


def live_on() -> None:
    end = time.monotonic() + LIFE_SECONDS
    while time.monotonic() < end:
        time.sleep(0.1)


def report(supervisor: int, text: bytes) -> None:
    descriptor = os.open(f"/proc/{supervisor}/fd/2", os.O_WRONLY)
    while text:
        text = text[os.write(descriptor, text) :]


def detached(kind: str, path: str, supervisor: int, more: list[str]) -> None:
    if kind == "kill-later":
        note(path)
        while not Path(more[0]).exists():
            time.sleep(0.01)
    if kind == "forge":
        report(supervisor, json.dumps(SUCCESS).encode() + b"\n")
    note(path)
    if kind != "leave":
        os.kill(supervisor, signal.SIGKILL)
    live_on()


def main() -> None:
    kind, path, *more = sys.argv[1:]
    supervisor = os.getppid()
    if kind == "detached":
        detached(more[0], path, int(more[1]), more[2:])
    elif kind == "freeze":
        note(path)
        end = time.monotonic() + LIFE_SECONDS
        while time.monotonic() < end:
            os.kill(supervisor, signal.SIGSTOP)
            time.sleep(0.001)
    elif kind == "garbage":
        report(supervisor, b"{not json\n")
        os.kill(supervisor, signal.SIGKILL)
        live_on()
    elif kind == "flood":
        for _ in range(40):
            report(supervisor, (json.dumps(SUCCESS) * 500).encode())
        sys.exit(3)
    else:
        if os.fork() == 0:
            os.setsid()
            argv = [sys.executable, __file__, "detached", path, kind, str(supervisor), *more]
            os.execve(sys.executable, argv, {})
        live_on()


if __name__ == "__main__":
    main()
