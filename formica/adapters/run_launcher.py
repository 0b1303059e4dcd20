"""The first process inside a run: takes on the limits, opens the way to the broker, starts the program.

Run as ``python -I -S run_launcher.py``; one file of the standard library, so that nothing else of ours has
to be where the program is. ``SPEC_DESCRIPTOR`` holds a `LaunchSpec` as JSON; ``REPORT_DESCRIPTOR`` takes
one line of JSON: ``exit`` (negative for a signal) or ``error``.

Each endpoint has a port on loopback here. What is sent to it goes to the broker's socket, after a line with
the endpoint's number; the broker alone knows where it leads and with which key.
"""

from __future__ import annotations

import json
import os
import resource
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost every run its time
    import socket

    from formica.adapters.isolation import LaunchSpec, NetworkSpec

__all__ = ["REPORT_DESCRIPTOR", "SPEC_DESCRIPTOR", "find_program"]

SPEC_DESCRIPTOR = 100
REPORT_DESCRIPTOR = 101
_DEFAULTS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)


def find_program(name: str, path: str) -> str:
    """The file ``name`` means, looked up in ``path`` alone, never in the folder of the run."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = f"{folder}/{name}"
        if folder.startswith("/") and os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113 - pathlib costs start-up time here
            return candidate
    raise FileNotFoundError(2, "No such program in PATH")


def main() -> None:
    os.set_inheritable(REPORT_DESCRIPTOR, False)
    with open(SPEC_DESCRIPTOR, "rb") as file:
        spec: LaunchSpec = json.loads(file.read())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the program gets its grace, and this process ends with it
    environment = dict(spec["env"])
    listeners = _listen(spec["network"], environment) if spec["network"] is not None else []
    program = os.fork()
    if program == 0:
        _become(spec, environment)
    if spec["network"] is not None:
        _serve(listeners, spec["network"]["socket"])
    _, status = os.waitpid(program, 0)
    report("exit", os.waitstatus_to_exitcode(status))
    os._exit(0)


def report(name: str, value: int | str) -> None:
    os.write(REPORT_DESCRIPTOR, json.dumps({name: value}).encode() + b"\n")


def _become(spec: LaunchSpec, environment: dict[str, str]) -> None:
    try:
        for number in _DEFAULTS:
            signal.signal(number, signal.SIG_DFL)
        program = find_program(spec["argv"][0], environment.get("PATH", ""))
        for name, limit in spec["limits"].items():
            _limit(getattr(resource, name), limit)
        os.execve(program, spec["argv"], environment)  # noqa: S606 - it becomes the program
    except OSError as error:
        report("error", error.strerror or "it cannot be started")
    finally:
        os._exit(127)


def _limit(which: int, value: int) -> None:
    """As low as asked, or as the host already has it."""
    _, hard = resource.getrlimit(which)
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (lowest, lowest))


def _listen(network: NetworkSpec, environment: dict[str, str]) -> list[socket.socket]:
    import socket

    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(network["endpoints"])]
    for name, (index, path) in network["variables"].items():
        port = listeners[index].getsockname()[1]
        environment[name] = f"http://127.0.0.1:{port}{path}"
    return listeners


def _serve(listeners: list[socket.socket], broker: str) -> None:
    import threading

    folder, _, name = broker.rpartition("/")
    os.chdir(folder)  # a socket's path is limited to some hundred bytes, a folder's is not
    for index, listener in enumerate(listeners):
        threading.Thread(target=_accept, args=(listener, index, name), daemon=True).start()


def _accept(listener: socket.socket, index: int, broker: str) -> None:
    import socket
    import threading

    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(broker)
            far.sendall(b"%d\n" % index)
        except OSError:
            near.close()
            far.close()
            continue
        for source, target in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(source, target), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    import socket

    try:
        while chunk := source.recv(1 << 16):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            end.close()


if __name__ == "__main__":
    main()
