"""Small programs that misbehave as real agents did; the first argument says how. Standard library only.

escape FOLDER [stay]   starts children that detach in every usual way and writes `<name>.pid` for each
hold-pipe              leaves a child that holds the output pipe, and exits
read-stdin             reads stdin to its end, prints how many bytes came
environ FOLDER         writes its environment to `environ`
spam BYTES             prints so many bytes, then the word `end`
silent                 prints one line and then does nothing
busy FOLDER            computes in silence until the file `enough` appears
write FOLDER           writes files in silence until the file `enough` appears
signal                 ends itself by SIGKILL
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def note(folder: Path, name: str) -> None:
    fresh = folder / f"{name}.new"
    fresh.write_text(str(os.getpid()))
    fresh.rename(folder / f"{name}.pid")


def linger(folder: Path, name: str, *, deaf: bool = False) -> None:
    if deaf:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    note(folder, name)
    while True:
        signal.pause()


def escape(folder: Path, stay: bool) -> None:
    if os.fork() == 0:
        os.setsid()
        linger(folder, "setsid")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            linger(folder, "double-fork")
        os._exit(0)
    if os.fork() == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        linger(folder, "nohup")
    if os.fork() == 0:
        os.setsid()
        linger(folder, "deaf", deaf=True)
    if os.fork() == 0:
        os.setsid()
        for descriptor in range(3):
            os.close(descriptor)
        linger(folder, "closed", deaf=True)
    while len(list(folder.glob("*.pid"))) < 5:
        time.sleep(0.01)
    if stay:
        linger(folder, "main", deaf=True)


def main() -> None:
    kind, *rest = sys.argv[1:]
    if kind == "escape":
        escape(Path(rest[0]), "stay" in rest)
    elif kind == "hold-pipe":
        if os.fork() == 0:
            os.setsid()
            signal.pause()
        print("done", flush=True)
    elif kind == "read-stdin":
        print(len(sys.stdin.buffer.read()), "bytes")
    elif kind == "environ":
        (Path(rest[0]) / "environ").write_bytes(Path("/proc/self/environ").read_bytes())
    elif kind == "spam":
        left = int(rest[0])
        while left > 0:
            left -= sys.stdout.write("x" * 999 + "\n")
        print("end")
    elif kind == "silent":
        print("Allow the tool Bash?", flush=True)
        signal.pause()
    elif kind == "busy":
        while not (Path(rest[0]) / "enough").exists():
            sum(range(10_000))
    elif kind == "write":
        folder = Path(rest[0])
        while not (folder / "enough").exists():
            (folder / "progress").write_text(str(time.time()))
            time.sleep(0.2)
    elif kind == "signal":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
