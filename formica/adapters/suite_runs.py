"""Single runs for a proof: a fresh checkout, its set-up, one command in it, everything it printed kept."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

import anyio

from formica.adapters.checkout import Checkout, Checkouts
from formica.adapters.hooks import changed_files, tracked_state
from formica.adapters.sandbox import UNCONFINED, Sandbox, agent_environment, object_folders, run_command
from formica.adapters.setup_cache import SetupCache
from formica.ports import Change, CommandResult, FileChange, Json, StopCheck, Workspace
from formica.rules.suite_output import Suite, read_suite
from formica.rules.testfiles import is_lock_path

__all__ = ["Limits", "Run", "Runs", "ending"]

_TAIL = 4_000
_LOG_LIMIT = 20 * 1024 * 1024
_CANNOT_RUN = {126: "it is not executable", 127: "it was not found"}
# https://docs.pytest.org/en/stable/reference/exit-codes.html
_PYTEST_NO_VERDICT = {
    3: "pytest had an internal error",
    4: "pytest was used wrongly",
    5: "pytest found no tests",
}
_PYTEST_INTERRUPTED = 2
NO_TESTS = 5
Phase = Literal["setup", "test", "hook"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds for each run of a phase, and without any sign of life in any of them."""

    setup: float = 1_800
    test: float = 900
    hook: float = 300
    stall: float = 300


@dataclass(frozen=True, slots=True)
class Run:
    """The test command in one checkout. ``problem``: why it says nothing about the code, else empty."""

    problem: str = ""
    exit_code: int | None = None
    seconds: float = 0.0
    uncollected: bool = False
    """pytest could not import the tests: a failure if the same tests are fine elsewhere."""
    no_tests: bool = False
    suite: Suite | None = None

    @property
    def passed(self) -> bool:
        return not self.problem and not self.uncollected and self.exit_code == 0

    @property
    def failed(self) -> bool:
        return not self.problem and (self.uncollected or self.exit_code != 0)


@dataclass(slots=True)
class Runs:
    """All runs for one change; ``commands`` says what was run, in order."""

    workspace: Workspace
    change: Change
    check: StopCheck
    checkouts: Checkouts
    path: str
    test_command: Sequence[str]
    setup_command: Sequence[str] | None
    cache: SetupCache | None
    limits: Limits
    sandbox: Sandbox = UNCONFINED
    commands: list[Json] = field(default_factory=list)

    async def test(self, name: str, commit: str, *, only: Sequence[FileChange] | None = None) -> Run:
        """The test command on ``commit``; with ``only``, on the base with these changes of ``commit``."""
        setup_from = commit if only is None else self.change.base_sha
        # A test part that brings lock files of its own needs a set-up of its own.
        usual = not any(is_lock_path(file.path) for file in only or ())
        for cached in (usual, False):
            async with self.checkouts.open(commit, parent=self.change.base_sha, only=only) as place:
                problem = await self.set_up(name, place, setup_from, cached=cached, keep=usual)
                if problem is None:
                    continue
                if problem:
                    return Run(problem=problem)
                return await self._tested(name, place)
        raise AssertionError("a set-up without the cache is never spoilt")

    async def _tested(self, name: str, place: Checkout) -> Run:
        result = await self.command(name, self.test_command, place, "test")
        problem = _no_verdict(self.test_command, result)
        suite = None if problem else await anyio.to_thread.run_sync(_read, result.log_path)
        return Run(
            problem=problem,
            exit_code=result.exit_code,
            seconds=result.seconds,
            uncollected=_is_pytest(self.test_command) and result.exit_code == _PYTEST_INTERRUPTED,
            no_tests=_runner(self.test_command) and result.exit_code == NO_TESTS,
            suite=suite,
        )

    async def set_up(
        self, name: str, place: Checkout, commit: str, *, cached: bool = True, keep: bool = True
    ) -> str | None:
        """Make the checkout ready: nothing on success, else the problem. None: a kept set-up could not be put
        there, the checkout is spoilt. ``commit`` says which lock files count; only the base's is kept."""
        if not self.setup_command:
            return ""
        key = await self.checkouts.setup_key(commit, self.setup_command, self.path)
        if self.cache is not None and cached:
            restored = await self.cache.restore(key, place.tree, place.home)
            if restored != "none":
                return "" if restored == "restored" else None
        tracked = await self.checkouts.paths(commit)
        before = await tracked_state(place.tree, tracked)
        done = await self.command(f"setup for {name}", self.setup_command, place, "setup")
        if done.exit_code != 0:
            return f"setup_command {ending(done)}"
        untouched = not changed_files(before, await tracked_state(place.tree, tracked))
        if self.cache is not None and keep and commit == self.change.base_sha and untouched:
            listed = set(tracked) | {file.path for file in self.change.files}
            await self.cache.store(key, place.tree, place.home, listed)
        return ""

    async def command(self, name: str, argv: Sequence[str], place: Checkout, phase: Phase) -> CommandResult:
        """One command in a checkout, recorded. Raises what ``check`` raises."""
        folder = self.workspace.root / "run"
        # While it runs a log has a name that tells a test nothing of the run.
        log = folder / f"verify-{len(self.commands) + 1:02d}-{_slug(name)}.log"
        unnamed = folder / f"verify-{uuid.uuid4().hex}.log"
        result = await run_command(
            argv,
            cwd=place.tree,
            env=agent_environment(self.path, place.home, {"CI": "true"}),
            log_path=unnamed,
            timeout_seconds=getattr(self.limits, phase),
            stall_seconds=self.limits.stall,
            check=self.check,
            sandbox=self.sandbox,
            writable=[place.repository, place.home],
            readable=await anyio.to_thread.run_sync(partial(object_folders, place.repository)),
        )
        await anyio.to_thread.run_sync(unnamed.rename, log)
        result = replace(result, log_path=log)
        self.commands.append(
            {
                "name": name,
                "argv": list(argv),
                "exit_code": result.exit_code,
                "reason": result.reason,
                "seconds": round(result.seconds, 3),
                "output_tail": result.output_tail[-_TAIL:],
                "log": str(log.relative_to(self.workspace.root.parent.parent)),
                "log_hash": result.log_hash,
            }
        )
        return result

    async def forget_old_logs(self) -> None:
        """Remove what an earlier proof of the item left."""
        await anyio.to_thread.run_sync(_remove_logs, self.workspace.root / "run")


def ending(result: CommandResult) -> str:
    """How a run ended, as the end of a sentence."""
    match result.reason:
        case "timeout":
            return f"was still running after {result.seconds:.0f} s"
        case "stalled":
            return "hung without output, computing or writing"
        case "unstartable":
            return result.output_tail
        case "stopped":
            return "was stopped"
        case "exited" if result.exit_code is not None and result.exit_code < 0:
            return f"was ended by signal {-result.exit_code}"
        case "exited":
            return f"failed with exit code {result.exit_code}"
        case limit:
            return f"was ended at its limit of {limit}"


def _no_verdict(argv: Sequence[str], result: CommandResult) -> str:
    """Why this run says nothing about the code, or nothing when it does."""
    if result.reason != "exited" or result.exit_code is None or result.exit_code < 0:
        return f"the test command {ending(result)}"
    if result.exit_code in _CANNOT_RUN:
        return f"the test command cannot run: {_CANNOT_RUN[result.exit_code]}"
    if _is_pytest(argv):
        if "No module named pytest" in result.output_tail:
            return "pytest is not installed"
        return _PYTEST_NO_VERDICT.get(result.exit_code, "")
    if "unittest" in argv and result.exit_code == NO_TESTS:
        return "unittest found no tests"
    return ""


def _is_pytest(argv: Sequence[str]) -> bool:
    return any(Path(word).name in ("pytest", "py.test") for word in argv)


def _runner(argv: Sequence[str]) -> bool:
    return _is_pytest(argv) or "unittest" in argv


def _read(log: Path) -> Suite | None:
    """The failing tests; nothing is told from a log that was cut."""
    if log.stat().st_size >= _LOG_LIMIT:
        return None
    return read_suite(log.read_bytes().decode("utf-8", "replace"))


def _remove_logs(folder: Path) -> None:
    for path in folder.glob("verify-*.log"):
        with suppress(OSError):
            path.unlink()


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)[:60]
