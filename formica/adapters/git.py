"""One hardened way to run git: argument lists, an environment of our own, bounded time and output.

Nothing of the caller's environment, of the user's or the system's git configuration reaches git, and
what a repository's own configuration could start (hooks, fsmonitor, credential helpers, ssh commands) is
overridden on every call. It still must never be pointed at a tree an agent could write: filters named by
such a repository cannot be overridden without knowing their names.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import anyio
from anyio.abc import ByteReceiveStream, Process

from formica.adapters.bare import PLAIN_ATTRIBUTES, make_bare_repository, write_repository_settings
from formica.adapters.children import open_child
from formica.errors import Broken, FormicaError, NeedsOperator, Refused, Retryable

__all__ = [
    "OBJECT_ID",
    "PLAIN_ATTRIBUTES",
    "Git",
    "GitOutput",
    "Remote",
    "make_bare_repository",
    "redact",
    "write_repository_settings",
]

OBJECT_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
OUTPUT_LIMIT = 64 * 1024 * 1024
_CONFIG = """\
# Written by formica. Used for every git call of the daemon instead of the user's configuration.
[safe]
\tbareRepository = explicit
\tdirectory = *
[core]
\tfsmonitor = false
\tattributesFile = /dev/null
\tautocrlf = false
\tquotePath = false
[gc]
\tauto = 0
[maintenance]
\tauto = false
[transfer]
\tfsckObjects = true
[fetch]
\tfsckObjects = true
\trecurseSubmodules = false
[submodule]
\trecurse = false
[protocol]
\tallow = never
[protocol "file"]
\tallow = always
[init]
\ttemplateDir =
\tdefaultBranch = main
[credential]
\thelper =
[commit]
\tgpgSign = false
"""
# Repository configuration beats the file above; only the command scope beats a repository. It is not handed
# on to the other end of a local transport, so the forge's own receive hooks still run on a push.
_OVERRIDES = (
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("credential.helper", ""),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("commit.gpgSign", "false"),
    ("protocol.ext.allow", "never"),
    ("core.alternateRefsCommand", "true"),
)
_USERINFO = re.compile(r"(\w[\w+.-]*://)[^/\s@]*@")
_HELPER = re.compile(r"^[A-Za-z0-9][A-Za-z0-9+.-]*::")
_SCP = re.compile(r"^(?!-)[^/:\s]+:(?!//)")
_COMPLAINTS = ("fatal:", "error:", " ! ", "! ")
_ASKED = "askpass"
"""That nobody could be asked is no news; the next line says for what."""
_PROTOCOLS = ("https", "http", "ssh", "git", "file")


def redact(text: str) -> str:
    """``text`` as one printable line without the user part of any URL."""
    line = _USERINFO.sub(r"\1", text)
    return "".join(c if c.isprintable() else " " for c in line).strip()


@dataclass(frozen=True, slots=True)
class Remote:
    """Another repository: an absolute path or a URL without credentials, and the one protocol it needs."""

    address: str
    protocol: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    @property
    def path(self) -> Path | None:
        """The folder, when it is one of this host."""
        return Path(self.address) if self.protocol == "file" and self.address.startswith("/") else None

    @classmethod
    def parse(cls, text: str, *, relative_to: Path) -> Remote:
        """Anything ``git clone`` takes but remote helpers. ``Refused`` names what is wrong with it."""
        if not text or text.startswith("-") or _HELPER.match(text) or any(ord(c) < 32 for c in text):
            raise Refused(f"{redact(text)!r} is not a repository address that is allowed", rule="repository")
        if "://" in text:
            return cls._of_url(text)
        if _SCP.match(text) and not (relative_to / text).exists():
            return cls(text, "ssh")
        return cls(os.path.normpath(relative_to / Path(text).expanduser()), "file")

    @classmethod
    def _of_url(cls, text: str) -> Remote:
        parts = urlsplit(text)
        if parts.scheme not in _PROTOCOLS:
            raise Refused(f"the protocol {parts.scheme!r} is not allowed for a repository", rule="repository")
        if parts.scheme == "file":
            return cls(unquote(parts.path), "file")
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if parts.scheme == "ssh" or not user:
            return cls(text, parts.scheme)
        if any(ord(c) < 32 for c in user + password):
            raise Refused("the repository URL holds a control character", rule="repository")
        host = parts.netloc.rpartition("@")[2]
        return cls(urlunsplit(parts._replace(netloc=host)), parts.scheme, user, password)


@dataclass(frozen=True, slots=True)
class GitOutput:
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output without its last newline; bytes that are not UTF-8 are surrogate-escaped."""
        return self.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    @property
    def fields(self) -> list[bytes]:
        """Standard output of a ``-z`` command, split at the NULs."""
        return self.stdout.split(b"\0")[:-1]

    @property
    def complaint(self) -> str:
        """What git said went wrong, in one line of at most 300 characters."""
        lines = [line.strip() for line in self.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        said = [line for line in lines if line.startswith(_COMPLAINTS) and _ASKED not in line] or lines
        return redact(said[0])[:300] if said else f"exit code {self.code}"


class Git:
    """Runs git. ``state`` is the daemon's state folder, ``path`` the folders programs are found in.

    ``network`` is added to the environment of calls that reach another host only (proxy settings, the
    certificate bundle, ``SSH_AUTH_SOCK``).
    """

    def __init__(
        self,
        state: Path,
        *,
        path: str,
        network: Mapping[str, str] | None = None,
        timeout_seconds: float = 300,
    ) -> None:
        self._config = state / "git" / "config"
        self._path = path
        self._network = dict(network or {})
        self._timeout = timeout_seconds
        self._executable: str | None = None

    @property
    def config_path(self) -> Path:
        return self._config

    async def run(
        self,
        *arguments: str,
        git_dir: Path | None = None,
        doing: str,
        failure: type[FormicaError] = Broken,
        ok: Sequence[int] = (0,),
        stdin: bytes | Path | None = None,
        remote: Remote | None = None,
        settings: Sequence[tuple[str, str]] = (),
        environment: Mapping[str, str] | None = None,
        work_tree: Path | None = None,
        timeout_seconds: float | None = None,
        output_limit: int = OUTPUT_LIMIT,
    ) -> GitOutput:
        """The finished call. An exit code outside ``ok`` raises ``failure`` with ``doing`` in its message;
        a call over its time raises ``Retryable``, one over ``output_limit`` bytes ``NeedsOperator``."""
        if not all(map(_is_argument, arguments)):
            raise failure(f"git could not {doing}: an argument holds what no argument can")
        executable = await self._ready()
        argv = [executable, "--no-pager"]
        argv += [f"--git-dir={git_dir}"] if git_dir else []
        argv += [f"--work-tree={work_tree}"] if work_tree else []
        limit = self._timeout if timeout_seconds is None else timeout_seconds
        with _credential(remote) as (descriptors, helper):
            call = _Call(
                [*argv, *arguments],
                self._environment(remote, [*settings, *helper], environment or {}),
                descriptors,
                output_limit,
            )
            try:
                output = await call.run(stdin, limit)
            except OSError as error:
                raise NeedsOperator(f"git could not be started: {error.strerror}") from error
        if output is None:
            raise Retryable(f"git could not {doing} within {limit:g} seconds")
        if call.overflow:
            raise NeedsOperator(f"git had more to say than {output_limit} bytes when asked to {doing}")
        if output.code not in ok:
            raise failure(f"git could not {doing}: {output.complaint}")
        return output

    async def _ready(self) -> str:
        if self._executable is None:
            self._executable = await anyio.to_thread.run_sync(self._write_config)
        return self._executable

    def _write_config(self) -> str:
        executable = shutil.which("git", path=self._path)
        if executable is None:
            raise NeedsOperator("git is not installed in any folder of PATH")
        self._config.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._config.with_name(f"config.{os.getpid()}")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_CONFIG)
        fresh.replace(self._config)
        return executable

    def _environment(
        self, remote: Remote | None, settings: Sequence[tuple[str, str]], extra: Mapping[str, str]
    ) -> dict[str, str]:
        environment = {
            "PATH": self._path,
            "LC_ALL": "C.UTF-8",
            "HOME": "/nonexistent",
            "GIT_CONFIG_GLOBAL": str(self._config),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": remote.protocol if remote else "file",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_ASKPASS": "/bin/false",
            "SSH_ASKPASS": "/bin/false",
            "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oStrictHostKeyChecking=yes -oConnectTimeout=10",
        }
        if remote and remote.protocol != "file":
            environment |= self._network
        pairs = [*_OVERRIDES, *settings]
        environment["GIT_CONFIG_COUNT"] = str(len(pairs))
        for index, (key, value) in enumerate(pairs):
            environment[f"GIT_CONFIG_KEY_{index}"] = key
            environment[f"GIT_CONFIG_VALUE_{index}"] = value
        return environment | dict(extra)


def _is_argument(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


@contextmanager
def _credential(remote: Remote | None) -> Iterator[tuple[tuple[int, ...], list[tuple[str, str]]]]:
    """A pipe that holds the remote's credential, and the helper that reads it: no argument, no file."""
    if remote is None or not remote.username:
        yield (), []
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        os.write(writer, f"username={remote.username}\npassword={remote.password}\n".encode())
        os.close(writer)
        yield (reader,), [("credential.helper", f'!f() {{ test "$1" = get && cat /dev/fd/{reader}; }}; f')]
    finally:
        os.close(reader)


class _Call:
    """One running git, its children in a session of their own."""

    def __init__(self, argv: list[str], environment: dict[str, str], keep: tuple[int, ...], limit: int):
        self._argv, self._environment, self._keep, self._limit = argv, environment, keep, limit
        self._size = 0
        self._parts: tuple[list[bytes], list[bytes]] = ([], [])
        self.overflow = False

    async def run(self, stdin: bytes | Path | None, timeout_seconds: float) -> GitOutput | None:
        """None when it ran out of time."""
        source: int | None = subprocess.PIPE if isinstance(stdin, bytes) else subprocess.DEVNULL
        if isinstance(stdin, Path):
            source = await anyio.to_thread.run_sync(os.open, stdin, os.O_RDONLY)
        try:
            # Cancelled half way, a start leaves a process that nobody ends.
            with anyio.CancelScope(shield=True):
                process = await open_child(
                    self._argv,
                    stdin=source,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    env=self._environment,
                    pass_fds=self._keep,
                )
        finally:
            if isinstance(stdin, Path) and source is not None:
                os.close(source)
        async with process:
            try:
                with anyio.move_on_after(timeout_seconds) as scope:
                    await self._talk(process, stdin if isinstance(stdin, bytes) else None)
            finally:
                if process.returncode is None:
                    _kill(process)
        if scope.cancelled_caught:
            return None
        code = process.returncode
        return GitOutput(-1 if code is None else code, b"".join(self._parts[0]), b"".join(self._parts[1]))

    async def _talk(self, process: Process, stdin: bytes | None) -> None:
        async with anyio.create_task_group() as readers:
            for stream, parts in zip((process.stdout, process.stderr), self._parts, strict=True):
                if stream is not None:
                    readers.start_soon(self._read, process, stream, parts)
            if stdin is not None and process.stdin is not None:
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await process.stdin.send(stdin)
                await process.stdin.aclose()
            await process.wait()
            # A child that outlives git may hold the pipes: what is in them is read, their end not awaited.
            readers.cancel_scope.deadline = anyio.current_time() + 2

    async def _read(self, process: Process, stream: ByteReceiveStream, parts: list[bytes]) -> None:
        async for chunk in stream:
            self._size += len(chunk)
            if self._size > self._limit:
                self.overflow = True
                _kill(process)
                return
            parts.append(chunk)


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
