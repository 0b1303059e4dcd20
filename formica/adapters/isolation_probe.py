"""A program that tries to get out of a run, and prints as JSON how far it came. Standard library only.

The one argument is JSON: ``home``, ``outside`` (a folder with the file `secret`), ``port`` (a listener of
the host's loopback), ``pid`` and ``start_time`` of a process of the host, ``token`` (marks what it leaves
behind), ``model`` (the variable that names the model's address).
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import socket
import subprocess
import sys

_NEW_USER_NAMESPACE = 0x10000000
_NOWHERE = ("192.0.2.1", 9)  # RFC 5737: no host; connecting a datagram socket sends nothing


def main() -> None:
    told = json.loads(sys.argv[1])
    folders = (told["outside"], told["home"], "/usr", "/")
    found = {
        "home": _names(told["home"]),
        "reads": _reads(f"{told['outside']}/secret"),
        "writes": [folder for folder in folders if _writes(folder)],
        "sees": _start_time(told["pid"]) == told["start_time"],
        "environment": sorted(os.environ),
        "loopback": _connects(told["port"]),
        "route": _has_route(),
        "leaves": _leave_behind(told["token"]),
        "data_limit": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "model": _reaches(os.environ.get(told["model"], "")),
        "namespaces": ctypes.CDLL(None, use_errno=True).unshare(_NEW_USER_NAMESPACE) == 0,
    }
    sys.stdout.write(json.dumps(found) + "\n")


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - no pathlib needed
    except OSError:
        return []


def _reads(path: str) -> bool:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - no pathlib needed
            return bool(file.read(1))
    except OSError:
        return False


def _writes(folder: str) -> bool:
    path = f"{folder.rstrip('/')}/.formica-probe-{os.getpid()}"
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        os.unlink(path)  # noqa: PTH108 - no pathlib needed
    except OSError:
        return False
    return True


def _start_time(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - no pathlib needed
            return int(file.read().rpartition(b")")[2].split()[19])
    except OSError:
        return None


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def _has_route() -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        try:
            datagrams.connect(_NOWHERE)
        except OSError:
            return False
    return True


def _reaches(url: str) -> bool:
    """Whether something listens where the model is said to be; nothing is asked of it."""
    port = url.rpartition(":")[2].partition("/")[0]
    return port.isdigit() and _connects(int(port))


def _leave_behind(token: str) -> bool:
    """A child that detached itself and would stay for an hour."""
    none = subprocess.DEVNULL
    sleeper = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)", token]
    subprocess.Popen(sleeper, start_new_session=True, stdin=none, stdout=none, stderr=none)
    return True


if __name__ == "__main__":
    main()
