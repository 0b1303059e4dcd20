"""`formica doctor`: every dependency, credential, right and limit, each with what to do about it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import anyio

from formica.adapters.git import Git, Remote
from formica.adapters.isolation_trial import Finding, try_isolation
from formica.adapters.mirror import Mirror
from formica.adapters.pool_client import PoolClient, ServerClock
from formica.adapters.sandbox import Sandbox
from formica.adapters.workspace import GitRepository
from formica.confinement import agent_program, missing_isolation, toolchain_of, variable_names
from formica.errors import FormicaError, NeedsOperator, Retryable
from formica.rules.testfiles import detect_test_command
from formica.settings import ConfigurationError, Settings, exposed_secrets, home_folder, search_path

__all__ = ["accepted_key", "diagnose"]

Json = dict[str, Any]
MINIMUM_FREE_BYTES = 1 << 30
CLOCK_TOLERANCE_SECONDS = 60.0
_INTERPRETERS = ("python", "sh", "bash", "dash", "zsh", "node", "ruby", "perl")
_BUILD_FILES = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "npm": ("package.json",),
    "cargo": ("Cargo.toml",),
    "go": ("go.mod", "go.work"),
    "mvn": ("pom.xml",),
}
_ELSEWHERE = ("-C", "-f", "--prefix", "--manifest-path", "--directory", "--file")


async def diagnose(
    settings: Settings,
    *,
    git: Git,
    check_runnable: Callable[[], None],
    open_repository: Callable[[], GitRepository],
    open_mirror: Callable[[], Mirror],
    forge: Callable[[], str],
    open_sandbox: Callable[[], AbstractAsyncContextManager[Sandbox]],
) -> list[Json]:
    """A row a check: {check, ok, detail}. Nothing is changed but the mirror in the state folder."""
    path = search_path()
    state = await _row("state folder", lambda: _state(settings.state_folder))
    rows = [
        await _row("configuration", lambda: _configuration(check_runnable)),
        await _row("git", partial(anyio.to_thread.run_sync, _git, path)),
        await _row("pool server", lambda: _server(settings)),
        _secrets(settings),
        await _row("agent", lambda: _agent(settings)),
        state,
    ]
    if not state["ok"]:
        skipped = "not looked at: the state folder cannot be used"
        names = ("repository", "tests", "forge", "isolation")
        return rows + [{"check": name, "ok": False, "detail": skipped} for name in names]
    repository = await _row("repository", lambda: _repository(open_repository))
    rows += [
        repository,
        await _row("tests", lambda: _tests(settings, path, git, open_mirror, repository.get("head"))),
        await _row("forge", lambda: _forge(git, forge())),
    ]
    return rows + await _isolation(settings, path, open_sandbox)


async def accepted_key(call: Awaitable[None], settings: Settings) -> None:
    """``call``, a first question to the server.

    Raises:
        ConfigurationError: the server refuses the key.
        Retryable: it does not answer; says where it was looked for.
    """
    try:
        await call
    except NeedsOperator as refused:
        raise ConfigurationError(f"server.key: {refused}; it comes from {settings.key_origin}") from None
    except Retryable as away:
        raise Retryable(f"{away}: {settings.server.url}", after_seconds=away.after_seconds) from None


async def _row(name: str, check: Callable[[], Awaitable[str | Json]]) -> Json:
    try:
        found = await check()
    except (FormicaError, ConfigurationError) as problem:
        return {"check": name, "ok": False, "detail": str(problem)}
    except OSError as problem:
        return {"check": name, "ok": False, "detail": f"{problem.filename or name}: {problem.strerror}"}
    more: Json = {"detail": found} if isinstance(found, str) else found
    return {"check": name, "ok": True, **more}


def _secrets(settings: Settings) -> Json:
    exposed = exposed_secrets(settings)
    detail = "; ".join(exposed) or "no file with a key is open to every user of this host"
    return {"check": "secrets", "ok": True, "warning": bool(exposed), "detail": detail}


async def _configuration(check_runnable: Callable[[], None]) -> str:
    await anyio.to_thread.run_sync(check_runnable)
    return "complete"


def _git(path: str) -> str:
    found = shutil.which("git", path=path)
    if found is None:
        raise ConfigurationError("git is not on the PATH: install it")
    return found


async def _server(settings: Settings) -> str:
    clock = ServerClock()
    async with PoolClient(settings.server.url, settings.server_key, settings.daemon.name, clock) as client:
        await accepted_key(client.check_key(), settings)
        state = await client.create_entity("operator_state", settings.daemon.name, {})
        await client.patch_entity(state["entity_id"], {"doctor_at": int(time.time())}, version=None)
    apart = abs(clock.now() - time.time())
    if apart > CLOCK_TOLERANCE_SECONDS:
        raise ConfigurationError(f"this host's clock is {apart:.0f} s away from the server's: set it")
    return f"{settings.server.url} answers, the key is an operator's, clocks are {apart:.1f} s apart"


async def _repository(open_repository: Callable[[], GitRepository]) -> Json:
    repository = open_repository()
    await repository.refresh()
    facts = await repository.facts(sha=None, version=None, ref=None)
    detail = f"default branch {facts.default_branch} at {facts.head_sha[:12]}"
    return {"detail": detail, "head": facts.head_sha}


async def _agent(settings: Settings) -> str:
    found = await anyio.to_thread.run_sync(agent_program, settings)
    names = ", ".join(settings.agent.pass_env)
    return f"{found}; it gets {names} of this environment, and can give it away" if names else found


async def _state(folder: Path) -> str:
    """Made, written to and measured."""

    def look() -> int:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe = folder / f".doctor-{uuid.uuid4().hex}"
        probe.touch(mode=0o600)
        probe.unlink()
        return shutil.disk_usage(folder).free

    try:
        free = await anyio.to_thread.run_sync(look)
    except OSError as error:
        raise ConfigurationError(f"daemon.state: {folder} cannot be used ({error.strerror})") from None
    if free < MINIMUM_FREE_BYTES:
        raise ConfigurationError(f"{folder}: less than 1 GiB free; make room or move daemon.state")
    return f"{folder}, {free // (1 << 30)} GiB free"


# --- the forge ----------------------------------------------------------------------------------------------


async def _forge(git: Git, address: str) -> str:
    """A bare repository that can be written."""
    remote = await anyio.to_thread.run_sync(lambda: Remote.parse(address, relative_to=Path.cwd()))
    folder = remote.path
    if folder is None:
        await git.run(
            *("ls-remote", "--heads", "--end-of-options", remote.address),
            remote=remote,
            doing="reach forge.repository",
            failure=NeedsOperator,
        )
        return f"{address} answers; whether it may be written to shows at the first push"
    await anyio.to_thread.run_sync(_check_bare, folder)
    bare = await git.run(
        "rev-parse",
        "--is-bare-repository",
        git_dir=folder,
        doing=f"read forge.repository {folder}",
        failure=NeedsOperator,
    )
    if bare.text != "true":
        raise ConfigurationError(f"forge.repository: {folder} is not a bare repository: git clone --bare")
    return f"{folder} is a bare repository that can be written"


def _check_bare(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigurationError(f"forge.repository: {folder} is not a folder")
    if (folder / ".git").exists():
        raise ConfigurationError(
            f"forge.repository: {folder} is a checkout; formica pushes to a bare repository only"
        )
    if not ((folder / "HEAD").is_file() and (folder / "objects").is_dir()):
        raise ConfigurationError(f"forge.repository: {folder} is not a git repository: git init --bare")
    for name in ("objects", "refs"):
        if not os.access(folder / name, os.W_OK | os.X_OK):
            raise ConfigurationError(f"forge.repository: {folder / name} cannot be written by this user")


# --- the tests ----------------------------------------------------------------------------------------------


async def _tests(
    settings: Settings, path: str, git: Git, open_mirror: Callable[[], Mirror], head: str | None
) -> str:
    """The exact commands of a proof, and whether their programs are here or in the checkout."""
    repository = settings.repository
    tree = await _tree(git, open_mirror, head) if head is not None else None
    command = repository.test_command or (tree.detected if tree is not None else None)
    if command is None:
        why = "no test command was recognised" if tree is not None else "the repository cannot be read"
        raise ConfigurationError(
            f"{why}: set [repository] test_command, and setup_command if something must be installed before"
        )
    prepared = repository.setup_command is not None
    lines = [f"{'configured' if repository.test_command else 'detected'}: {shlex.join(command)}"]
    try:
        found = await anyio.to_thread.run_sync(_program, command, path, tree, prepared)
    except ConfigurationError as problem:
        raise ConfigurationError(f"{lines[0]}: {problem}; set [repository] test_command") from None
    lines[0] += f" ({found})"
    if repository.setup_command is not None:
        lines.append(f"setup_command: {shlex.join(repository.setup_command)}")
        try:
            found = await anyio.to_thread.run_sync(_program, repository.setup_command, path, tree, False)
        except ConfigurationError as problem:
            raise ConfigurationError(f"{lines[1]}: {problem}; set [repository] setup_command") from None
        lines[1] += f" ({found})"
    return "; ".join(lines)


class _Tree:
    """The files of the default branch with their modes; ``detected`` is the test command they suggest."""

    def __init__(self, modes: Mapping[str, str], detected: Sequence[str] | None) -> None:
        self.modes = modes
        self.detected = detected

    def __contains__(self, path: str) -> bool:
        return str(PurePosixPath(path)) in self.modes

    def has_module(self, name: str) -> bool:
        top = name.partition(".")[0]
        return any(file == f"{top}.py" or file.startswith((f"{top}/", f"src/{top}/")) for file in self.modes)


async def _tree(git: Git, open_mirror: Callable[[], Mirror], head: str) -> _Tree:
    mirror = open_mirror()
    await mirror.find()
    listed = await git.run(
        *("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", head),
        git_dir=mirror.path,
        doing="list the files of the default branch",
        failure=NeedsOperator,
    )
    rows = (row.partition(b"\t") for row in listed.fields)
    modes = {name.decode("utf-8", "replace"): meta[:6].decode("ascii") for meta, _, name in rows}

    async def text(name: str) -> str:
        if name not in modes:
            return ""
        blob = await git.run("cat-file", "blob", f"{head}:{name}", git_dir=mirror.path, doing=f"read {name}")
        return blob.stdout.decode("utf-8", "replace")

    makefile = next((name for name in ("GNUmakefile", "makefile", "Makefile") if name in modes), "")
    return _Tree(
        modes,
        detect_test_command(
            list(modes), package_json=await text("package.json"), makefile=await text(makefile)
        ),
    )


def _program(command: Sequence[str], path: str, tree: _Tree | None, prepared: bool) -> str:
    """Where the program of a command is; ``prepared``: a set-up runs before it and may bring what is missing."""
    program = command[0]
    if "/" in program and not program.startswith("/"):
        if tree is not None and program in tree:
            if tree.modes[str(PurePosixPath(program))] == "100644":
                raise ConfigurationError(f"{program} is in the repository, but not executable there")
            return "in the repository"
        if prepared:
            return "not in the repository: setup_command has to make it"
        raise ConfigurationError(f"{program} is not in the repository")
    found = shutil.which(program, path=path)
    if found is None:
        raise ConfigurationError(f"{program} is not an executable program on the PATH of formica")
    _check_arguments(command, found, path, tree, prepared)
    return found


def _check_arguments(
    command: Sequence[str], found: str, path: str, tree: _Tree | None, prepared: bool
) -> None:
    """What an interpreter or a build tool is told to run must be there too, where that can be told."""
    name = PurePosixPath(found).name
    script = command[1] if len(command) > 1 else ""
    if tree is None or prepared:
        return
    if name.startswith("python") and script == "-m" and len(command) > 2:
        module = command[2]
        if not tree.has_module(module) and not _importable(found, module.partition(".")[0], path):
            raise ConfigurationError(f"{found} has no module {module}: install it there, or by setup_command")
    elif name.startswith(_INTERPRETERS) and script and not script.startswith("-"):
        if not (Path(script).is_file() if script.startswith("/") else script in tree):
            raise ConfigurationError(f"{script} is not in the repository")
    elif (
        name in _BUILD_FILES
        and not any(word.startswith(_ELSEWHERE) for word in command[1:])
        and not any(file in tree for file in _BUILD_FILES[name])
    ):
        raise ConfigurationError(f"the repository has no {' or '.join(_BUILD_FILES[name])}")


def _importable(interpreter: str, module: str, path: str) -> bool:
    """Whether a run's interpreter finds the module: it has no home of its own, and none of our variables."""
    program = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    environment = {"PATH": path, "HOME": "/nonexistent"}
    try:
        asked = subprocess.run(
            [interpreter, "-P", "-c", program, module],
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    return asked.returncode != 1 or b"Error" in asked.stderr


async def _isolation(
    settings: Settings, path: str, open_sandbox: Callable[[], AbstractAsyncContextManager[Sandbox]]
) -> list[Json]:
    """What keeps runs apart from this host, and each thing it was seen to stop or not. Without isolation that
    is no failure by itself, unless it is required."""
    accepted = settings.agent.sandbox != "required"
    try:
        toolchain = await anyio.to_thread.run_sync(toolchain_of(settings).find)
        async with open_sandbox() as sandbox:
            findings = await try_isolation(
                sandbox,
                state=settings.state_folder,
                home=home_folder(),
                path=path,
                shown=await anyio.to_thread.run_sync(sandbox.shown),
                variables=variable_names(settings),
            )
            isolated = sandbox.kind == "bubblewrap"
    except (FormicaError, ConfigurationError) as problem:
        return [{"check": "isolation", "ok": False, "detail": str(problem)}]
    detail = "bubblewrap" if isolated else await anyio.to_thread.run_sync(_without, settings)
    if isolated and toolchain.left_out:
        detail += f"; not shown to runs: {'; '.join(toolchain.left_out)}"
    first = {"check": "isolation", "ok": isolated or accepted, "detail": detail}
    return [first, *(_found(finding, accepted=accepted and not isolated) for finding in findings)]


def _found(finding: Finding, *, accepted: bool) -> Json:
    prefix = "" if finding.holds else "does not hold: "
    return {
        "check": f"isolation: {finding.name}",
        "ok": finding.holds or accepted,
        "holds": finding.holds,
        "detail": f"{prefix}{finding.detail}",
    }


def _without(settings: Settings) -> str:
    why = '[agent] sandbox = "off"' if settings.agent.sandbox == "off" else missing_isolation()
    return (
        f"none ({why}). git is never run in the agent's tree and publishing has its gates all the same; run "
        "formica as a user of its own"
    )
