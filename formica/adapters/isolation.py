"""How runs are kept apart from the host: decided once at the start, the same for agent, set-up, tests and hooks.

With bubblewrap a run has namespaces of its own and sees what `bubblewrap.Profile` names. Without it the
environment, the limits and the supervision still hold, and nothing else does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypedDict

from formica.adapters import run_launcher
from formica.adapters.broker import Broker
from formica.adapters.bubblewrap import ARGUMENTS_DESCRIPTOR, SCRATCH, Profile, descriptors
from formica.adapters.run_launcher import SPEC_DESCRIPTOR
from formica.adapters.run_limits import WatchSpec
from formica.adapters.toolchain import Toolchain, system_folders
from formica.errors import NeedsOperator, Refused

__all__ = [
    "UNCONFINED",
    "Bubblewrap",
    "Limits",
    "Sandbox",
    "Started",
    "choose_isolation",
    "find_bubblewrap",
    "object_folders",
]

_TRIAL_SECONDS = 20
_LAUNCHER = Path("/run/formica/launcher.py")
_SOCKET = Path("/run/formica/broker")


class NetworkSpec(TypedDict):
    """``socket`` is the broker's, absolute; ``variables`` map a name to an endpoint's number and a path."""

    socket: str
    endpoints: int
    variables: dict[str, tuple[int, str]]


class LaunchSpec(TypedDict):
    """``limits`` map names of `resource` (``RLIMIT_…``) to values, soft and hard."""

    argv: list[str]
    env: dict[str, str]
    limits: dict[str, int]
    network: NetworkSpec | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one run. ``processes`` counts threads too; ``disk_bytes`` is what it may add to its folders,
    ``scratch_bytes`` the size of HOME, /tmp and shared memory each."""

    memory_bytes: int = 4 << 30
    processes: int = 1024
    disk_bytes: int = 4 << 30
    scratch_bytes: int = 1 << 30
    open_files: int = 8192


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    program: Path
    disable_userns: bool


@dataclass(frozen=True, slots=True)
class Started:
    """What a supervisor is to start for a run; see `run_supervisor.RunSpec`."""

    argv: list[str]
    env: dict[str, str]
    descriptors: dict[str, str] = field(default_factory=dict)
    namespaced: bool = False
    launched: bool = False
    watch: WatchSpec | None = None


class Sandbox:
    """``toolchain`` is asked at each run; ``hidden`` are folders and files of ours that no run sees. Without
    ``limits`` and ``bubblewrap`` a run is only supervised."""

    def __init__(
        self,
        *,
        bubblewrap: Bubblewrap | None = None,
        toolchain: Callable[[], Toolchain] = Toolchain,
        hidden: Sequence[Path] = (),
        limits: Limits | None = None,
        broker: Broker | None = None,
        variables: Mapping[str, tuple[int, str]] | None = None,
    ) -> None:
        self.bubblewrap = bubblewrap
        self.limits = limits
        self._toolchain = toolchain
        self._hidden = hidden
        self._broker = broker
        self._variables = dict(variables or {})

    @property
    def kind(self) -> Literal["bubblewrap", "none"]:
        return "none" if self.bubblewrap is None else "bubblewrap"

    def shown(self) -> list[Path]:
        """What of the host runs see besides the system's folders and their own. Blocking."""
        return [*self._toolchain().folders, *_interpreter_folders()]

    def network(self, folder: Path) -> AbstractAsyncContextManager[Path | None]:
        """While it is open, the broker answers at the socket it gives, which lies in ``folder``."""
        return nullcontext(None) if self._broker is None else self._broker.listen(folder)

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        writable: Sequence[Path],
        readable: Sequence[Path],
        socket: Path | None,
    ) -> Started:
        """The run as a supervisor starts it. Blocking. ``NeedsOperator`` when a folder of the run is a link."""
        if self.bubblewrap is None and self.limits is None and socket is None:
            return Started(list(argv), dict(env))
        own = [cwd, *(path for path in writable if os.path.lexists(path))]
        for path in own:
            if path.is_symlink():
                raise NeedsOperator(f"{path} is a link: something was put in the place of a folder of ours")
        marker = {name: env[name] for name in ("PATH", "TMPDIR") if name in env}
        launch = self._launch(argv, env, socket)
        started = Started(
            argv=_python(Path(run_launcher.__file__)),
            env=marker,
            descriptors={str(SPEC_DESCRIPTOR): json.dumps(launch)},
            launched=True,
            watch=self._watch(own),
        )
        if self.bubblewrap is None:
            return started
        return self._isolated(started, self.bubblewrap, launch, own, cwd, readable, socket)

    def _launch(self, argv: Sequence[str], env: Mapping[str, str], socket: Path | None) -> LaunchSpec:
        network: NetworkSpec | None = None
        if socket is not None and self._broker is not None:
            network = {
                "socket": str(_SOCKET if self.bubblewrap else socket),
                "endpoints": len(self._broker.endpoints),
                "variables": self._variables,
            }
        return {"argv": list(argv), "env": dict(env), "limits": self._kernel_limits(), "network": network}

    def _isolated(
        self,
        started: Started,
        bubblewrap: Bubblewrap,
        launch: LaunchSpec,
        own: Sequence[Path],
        cwd: Path,
        readable: Sequence[Path],
        socket: Path | None,
    ) -> Started:
        toolchain = self._toolchain()
        launch["env"] |= {"TMPDIR": SCRATCH, **toolchain.variables}
        profile = Profile(
            home=Path(launch["env"]["HOME"]),
            cwd=cwd,
            system=system_folders(),
            readable=[*toolchain.folders, *_interpreter_folders(), *_existing(readable)],
            hidden_folders=[path for path in self._hidden if path.is_dir()],
            hidden_files=[path for path in self._hidden if path.is_file()],
            writable=own,
            placed={_LAUNCHER: Path(run_launcher.__file__)} | ({_SOCKET: socket} if socket else {}),
            scratch_bytes=(self.limits or Limits()).scratch_bytes,
            disable_userns=bubblewrap.disable_userns,
        )
        return Started(
            argv=[
                *(str(bubblewrap.program), "--args", str(ARGUMENTS_DESCRIPTOR), "--"),
                *_python(_LAUNCHER),
            ],
            env=started.env,
            descriptors={str(SPEC_DESCRIPTOR): json.dumps(launch), **descriptors(profile)},
            namespaced=True,
            launched=True,
            watch=started.watch,
        )

    def _kernel_limits(self) -> dict[str, int]:
        """RLIMIT_DATA rather than RLIMIT_AS: interpreters reserve far more addresses than they ever use.
        The number of processes is the user's on the whole host, except in a user namespace."""
        if self.limits is None:
            return {}
        limits = {
            "RLIMIT_CORE": 0,
            "RLIMIT_DATA": self.limits.memory_bytes,
            "RLIMIT_FSIZE": self.limits.disk_bytes,
            "RLIMIT_NOFILE": self.limits.open_files,
        }
        return limits | ({"RLIMIT_NPROC": self.limits.processes} if self.bubblewrap else {})

    def _watch(self, folders: Sequence[Path]) -> WatchSpec | None:
        if self.limits is None:
            return None
        return {
            "memory_bytes": self.limits.memory_bytes,
            "processes": self.limits.processes,
            "disk_bytes": self.limits.disk_bytes,
            "folders": [str(folder) for folder in folders],
        }


UNCONFINED = Sandbox()
"""Supervision alone."""


def find_bubblewrap(path: str) -> Bubblewrap | str:
    """bubblewrap on ``path``, tried out on this host, or one sentence on why there is none. Blocking."""
    found = shutil.which("bwrap", path=path)
    if found is None:
        return "bubblewrap is not installed: install the package bubblewrap (the program bwrap)"
    program = Path(found).absolute()
    problem = ""
    for disable_userns in (True, False):
        problem = _try(Bubblewrap(program, disable_userns))
        if not problem:
            return Bubblewrap(program, disable_userns)
    return f"{program} does not work here: {problem}"


def choose_isolation(
    setting: Literal["auto", "required", "off"], found: Bubblewrap | str
) -> Bubblewrap | None:
    """The isolation runs get. ``Refused`` (rule ``agent.sandbox``) where more is asked than there is."""
    if setting == "off":
        return None
    if isinstance(found, Bubblewrap):
        return found
    if setting == "required":
        raise Refused(f'[agent] sandbox = "required", but {found}', rule="agent.sandbox")
    return None


def object_folders(repository: Path) -> list[Path]:
    """The folder of objects of a repository that no agent can write, and all it borrows from. Blocking."""
    found: list[Path] = []
    waiting = [repository / "objects"]
    while waiting:
        folder = waiting.pop()
        if folder in found or not folder.is_dir():
            continue
        found.append(folder)
        alternates = folder / "info" / "alternates"
        if alternates.is_file():
            names = os.fsdecode(alternates.read_bytes()).splitlines()
            waiting += [folder / name for name in names if name and not name.startswith("#")]
    return found


def _try(bubblewrap: Bubblewrap) -> str:
    """What keeps a profile from being set up here, or nothing."""
    home = Path("/home/agent")
    profile = Profile(home=home, cwd=home, system=system_folders(), disable_userns=bubblewrap.disable_userns)
    words = [word for word in descriptors(profile)[str(ARGUMENTS_DESCRIPTOR)].split("\0") if word]
    while "--file" in words:  # their texts are not open here
        at = words.index("--file")
        del words[at - 2 : at + 3]
    try:
        done = subprocess.run(
            [bubblewrap.program, *words, "--", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_SECONDS,
            env={"PATH": "/usr/bin:/bin"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode == 0 else (said[-1] if said else f"exit code {done.returncode}")


def _python(script: Path) -> list[str]:
    return [os.path.realpath(sys.executable), "-I", "-S", str(script)]


def _interpreter_folders() -> list[Path]:
    """What the launcher's interpreter needs, where it is not the system's."""
    base = Path(os.path.realpath(sys.base_prefix))
    return [] if base.is_relative_to("/usr") or base == Path("/") else [base, Path(_python(base)[0])]


def _existing(paths: Sequence[Path]) -> list[Path]:
    return [path for path in paths if os.path.lexists(path)]
