"""The proof of a change: base with the change's tests alone fails, head passes, the project's hooks agree.

Implements `Verifier`. Every run is in a fresh checkout of ours, with the environment, supervision and time
limits of an agent's run, the same for base and head.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio

from formica.adapters.checkout import Checkouts
from formica.adapters.git import Git
from formica.adapters.sandbox import UNCONFINED, Sandbox, agent_environment, object_folders, run_command
from formica.ports import Change, CommandResult, FileChange, Json, Proof, StopCheck, Workspace
from formica.rules.testfiles import detect_test_command, is_test_path

__all__ = ["LocalVerifier"]

_TAIL = 4_000
_CANNOT_RUN = {126: "it is not executable", 127: "it was not found"}
# https://docs.pytest.org/en/stable/reference/exit-codes.html
_PYTEST_NO_VERDICT = {
    2: "pytest was interrupted, for example because a test could not be imported",
    3: "pytest had an internal error",
    4: "pytest was used wrongly",
    5: "pytest found no tests",
}
_HOOKS = (".husky/pre-commit", ".githooks/pre-commit")
_PRE_COMMIT = ".pre-commit-config.yaml"


@dataclass(frozen=True, slots=True)
class _Hook:
    argv: tuple[str, ...]
    path: str


@dataclass(slots=True)
class _Case:
    """One change being proved, and the commands run for it so far."""

    workspace: Workspace
    change: Change
    check: StopCheck
    checkouts: Checkouts
    test_command: Sequence[str]
    commands: list[Json] = field(default_factory=list)


class LocalVerifier:
    """``test_command`` and ``setup_command`` are argument lists (None: detected, nothing to set up);
    ``path`` is the PATH of every run, ``hooks_path`` the project's `core.hooksPath` inside the tree.
    Times are seconds for each run."""

    def __init__(
        self,
        git: Git,
        *,
        path: str,
        test_command: Sequence[str] | None = None,
        setup_command: Sequence[str] | None = None,
        hooks_path: str | None = None,
        timeout_seconds: float = 900,
        stall_seconds: float = 300,
        sandbox: Sandbox = UNCONFINED,
    ) -> None:
        self._git = git
        self._sandbox = sandbox
        self._path = path
        self._test_command = test_command
        self._setup_command = setup_command
        self._hook_files = (*((f"{hooks_path}/pre-commit",) if hooks_path else ()), *_HOOKS)
        self._timeout = timeout_seconds
        self._stall = stall_seconds

    async def prove(self, workspace: Workspace, change: Change, *, check: StopCheck) -> Proof:
        """Raises what ``check`` raises; everything else that goes wrong is a proof that failed."""
        tests = [file for file in change.files if is_test_path(file.path)]
        if not any(file.status != "D" for file in tests):
            return _unproved(
                "The change adds or changes no test, so nothing shows that it works.", tests=False
            )
        checkouts = Checkouts(self._git, workspace)
        command = self._test_command or await self._detect(checkouts, change.base_sha)
        if not command:
            return _unproved("No test command was found: set [repository] test_command.")
        case = _Case(workspace, change, check, checkouts, command)
        proof = await self._prove(case, tests)
        return replace(proof, commands=tuple(case.commands))

    async def _prove(self, case: _Case, tests: Sequence[FileChange]) -> Proof:
        base, problem = await self._test(case, "base with tests", only=tests)
        if base is None or problem:
            return _unproved(f"The tests could not be run on the base: {problem}.")
        if base.exit_code == 0:
            reason = "The change's tests pass on the base too, so they do not show the fault."
            return replace(_unproved(reason), base_failed=False)
        head, problem, hooks, note = await self._head(case)
        if head is None or problem:
            return replace(
                _unproved(f"The tests could not be run on the change: {problem}."), base_failed=True
            )
        if head.exit_code != 0:
            reason = f"The tests fail with the change (exit code {head.exit_code})"
            untouched, _ = await self._test(case, "base alone", only=())
            if untouched is not None and untouched.exit_code != 0:
                reason += "; they fail on the untouched base too"
            return replace(_unproved(f"{reason}."), base_failed=True, head_passed=False)
        proof = Proof(
            proved=hooks is not False,
            reason="The change's tests fail on the base and all tests pass with the change.",
            has_tests=True,
            base_failed=True,
            head_passed=True,
            hooks_passed=hooks,
        )
        return replace(proof, reason=f"{note}." if hooks is False else f"{proof.reason}{note}")

    async def _test(
        self, case: _Case, name: str, *, only: Sequence[FileChange]
    ) -> tuple[CommandResult | None, str]:
        """The test run on the base with the changes of ``only``, or what kept it from being a verdict."""
        base, head = case.change.base_sha, case.change.head_sha
        commit, chosen = (head, only) if only else (base, None)
        async with case.checkouts.open(_folder(name), commit, parent=base, only=chosen) as tree:
            home = await case.checkouts.home(base)
            return await self._set_up_and_test(case, name, tree, home)

    async def _head(self, case: _Case) -> tuple[CommandResult | None, str, bool | None, str]:
        """The test run on the head; where it passes, the hooks' answer and a note on it."""
        base, head = case.change.base_sha, case.change.head_sha
        async with case.checkouts.open("head", head, parent=base, staged=True) as tree:
            home = await case.checkouts.home(head)
            result, problem = await self._set_up_and_test(case, "head", tree, home)
            if result is None or problem or result.exit_code != 0:
                return result, problem, None, ""
            hooks, note = await self._run_hooks(case, tree, home)
            return result, "", hooks, note

    async def _set_up_and_test(
        self, case: _Case, name: str, tree: Path, home: Path
    ) -> tuple[CommandResult | None, str]:
        if self._setup_command:
            done = await self._run(case, f"setup for {name}", self._setup_command, tree, home)
            if done.exit_code != 0:
                return None, f"setup_command {_ending(done)}"
        result = await self._run(case, name, case.test_command, tree, home)
        return result, _no_verdict(case.test_command, result)

    async def _run_hooks(self, case: _Case, tree: Path, home: Path) -> tuple[bool | None, str]:
        """The project's own commit hooks, as the base has them: a change cannot remove them."""
        base = set(await case.checkouts.paths(case.change.base_sha))
        head = set(await case.checkouts.paths(case.change.head_sha))
        hooks, note = await self._hooks(case, base)
        for hook in hooks:
            if hook.path not in head:
                return False, f"The change removes the project's commit hook {hook.path}"
            done = await self._run(case, f"hook {hook.path}", hook.argv, tree, home)
            if done.exit_code != 0:
                return False, f"The project's commit hook {hook.path} {_ending(done)}"
        return (True if hooks else None), note

    async def _hooks(self, case: _Case, base: set[str]) -> tuple[list[_Hook], str]:
        hooks = []
        for path in self._hook_files:
            if path in base and await case.checkouts.executable(case.change.base_sha, path):
                hooks.append(_Hook((f"./{path}",), path))
            elif path in base and path.startswith(".husky/"):
                hooks.append(_Hook(("sh", "-e", path), path))
        if _PRE_COMMIT not in base:
            return hooks, ""
        if await anyio.to_thread.run_sync(partial(shutil.which, "pre-commit", path=self._path)) is None:
            return hooks, " Its pre-commit hooks were not run: pre-commit is not installed."
        refs = ("--from-ref", case.change.base_sha, "--to-ref", case.change.head_sha)
        return [*hooks, _Hook(("pre-commit", "run", *refs), _PRE_COMMIT)], ""

    async def _run(
        self, case: _Case, name: str, argv: Sequence[str], tree: Path, home: Path
    ) -> CommandResult:
        result = await run_command(
            argv,
            cwd=tree,
            env=agent_environment(self._path, home, {"CI": "true"}),
            log_path=case.workspace.root / "run" / f"verify-{_folder(name)}.log",
            timeout_seconds=self._timeout,
            stall_seconds=self._stall,
            check=case.check,
            sandbox=self._sandbox,
            writable=[tree.parent / "repo.git", home],
            readable=await anyio.to_thread.run_sync(object_folders, case.workspace.root / "in.git"),
        )
        case.commands.append(
            {
                "name": name,
                "argv": list(argv),
                "exit_code": result.exit_code,
                "reason": result.reason,
                "seconds": round(result.seconds, 3),
                "output_tail": result.output_tail[-_TAIL:],
            }
        )
        return result

    async def _detect(self, checkouts: Checkouts, base_sha: str) -> Sequence[str] | None:
        """From the base alone: a change does not choose what proves it."""
        paths = await checkouts.paths(base_sha)
        names = {path for path in paths if "/" not in path}
        makefile = next((name for name in ("GNUmakefile", "makefile", "Makefile") if name in names), None)
        return detect_test_command(
            paths,
            package_json=await checkouts.text(base_sha, "package.json") if "package.json" in names else "",
            makefile=await checkouts.text(base_sha, makefile) if makefile else "",
        )


def _unproved(reason: str, *, tests: bool = True) -> Proof:
    return Proof(
        proved=False, reason=reason, has_tests=tests, base_failed=None, head_passed=None, hooks_passed=None
    )


def _no_verdict(argv: Sequence[str], result: CommandResult) -> str:
    """Why this run says nothing about the code, or nothing when it does."""
    if result.reason != "exited" or result.exit_code is None:
        return f"the test command {_ending(result)}"
    if result.exit_code in _CANNOT_RUN:
        return f"the test command cannot run: {_CANNOT_RUN[result.exit_code]}"
    if result.exit_code < 0:
        return f"the test command {_ending(result)}"
    if any(Path(word).name in ("pytest", "py.test") for word in argv):
        if "No module named pytest" in result.output_tail:
            return "pytest is not installed"
        return _PYTEST_NO_VERDICT.get(result.exit_code, "")
    return ""


def _ending(result: CommandResult) -> str:
    match result.reason:
        case "timeout":
            return f"was still running after {result.seconds:.0f} s"
        case "stalled":
            return "hung without output, computing or writing"
        case "unstartable":
            return result.output_tail
        case "stopped":
            return "was stopped"
        case _ if result.exit_code is not None and result.exit_code < 0:
            return f"was ended by signal {-result.exit_code}"
        case _:
            return f"failed with exit code {result.exit_code}"


def _folder(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name)
