"""The proof of a change: base with the change's tests alone fails, head passes, the project's hooks agree.

Implements `Verifier`. Every run is in a fresh checkout of ours with an empty HOME, in the isolation, supervision
and limits of an agent's run, at the same place and with nothing that tells the base's run from the head's but
the project's own files. A result that does not repeat is no proof, and neither is a change of tests alone: base
and head would be the same files, told apart only by what has nothing to do with the change.

| the base with the tests | the base alone | the head | proof |
|---|---|---|---|
| passes, each time | | | no: the tests do not show the fault |
| fails, or cannot import what the change adds | passes | passes, each time | yes |
| fails | passes | fails, each time | no |
| fails | fails already | passes, or fails only in what failed before | yes, if the runner names a test of the change that failed and passes now |
| changes from run to run | | changes from run to run | no: flaky |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from formica.adapters.checkout import Checkouts
from formica.adapters.git import Git
from formica.adapters.hooks import changed_files, project_hooks, tracked_state
from formica.adapters.sandbox import UNCONFINED, Sandbox
from formica.adapters.setup_cache import SetupCache
from formica.adapters.suite_runs import Limits, Run, Runs, ending
from formica.ports import Change, FileChange, Proof, StopCheck, Workspace
from formica.rules.facts import shown_path
from formica.rules.testfiles import detect_test_command, is_test_path

__all__ = ["Limits", "LocalVerifier"]

RERUNS = 2
CONFIRM_SECONDS = 120.0
"""The head is repeated too where one run takes less than this."""
_SHOWN = 5


@dataclass(slots=True)
class _Stop(Exception):
    """The proof ends here, unproved."""

    reason: str
    base_failed: bool | None = None
    head_passed: bool | None = None


@dataclass(slots=True)
class _Case:
    runs: Runs
    tests: Sequence[FileChange]

    @property
    def base(self) -> str:
        return self.runs.change.base_sha

    @property
    def head(self) -> str:
        return self.runs.change.head_sha

    async def base_with_tests(self, name: str) -> Run:
        return await self.runs.test(name, self.head, only=self.tests)


class LocalVerifier:
    """``test_command`` and ``setup_command`` are argument lists (None: detected, nothing to set up);
    ``path`` is the PATH of every run, ``hooks_path`` the project's `core.hooksPath` inside the tree.
    ``reruns`` is how often an unwelcome result is tried again; 0 also leaves out the repetition of a proof."""

    def __init__(
        self,
        git: Git,
        *,
        path: str,
        test_command: Sequence[str] | None = None,
        setup_command: Sequence[str] | None = None,
        hooks_path: str | None = None,
        cache: SetupCache | None = None,
        sandbox: Sandbox = UNCONFINED,
        limits: Limits | None = None,
        reruns: int = RERUNS,
        confirm_seconds: float = CONFIRM_SECONDS,
    ) -> None:
        self._git = git
        self._path = path
        self._test_command = test_command
        self._setup_command = setup_command
        self._hooks_path = hooks_path
        self._cache = cache
        self._sandbox = sandbox
        self._limits = limits or Limits()
        self._reruns = reruns
        self._confirm_seconds = confirm_seconds
        # Base and command of suites that are known to pass without a change.
        self._sound: set[tuple[str, tuple[str, ...]]] = set()

    async def prove(self, workspace: Workspace, change: Change, *, check: StopCheck) -> Proof:
        """Raises what ``check`` raises; everything else that goes wrong is a proof that failed."""
        tests = [file for file in change.files if is_test_path(file.path)]
        if not any(file.status != "D" for file in tests):
            return _unproved(
                "The change adds or changes no test, so nothing shows that it works.", tests=False
            )
        if len(tests) == len(change.files):
            return _unproved(
                "The change touches nothing but tests, so the base with them is the head: nothing shows a fault that "
                "the change mends."
            )
        checkouts = Checkouts(self._git, workspace, base_sha=change.base_sha, head_sha=change.head_sha)
        await checkouts.look()
        command = self._test_command or await self._detect(checkouts, change.base_sha)
        if not command:
            return _unproved("No test command was found: set [repository] test_command.")
        runs = Runs(
            workspace=workspace,
            change=change,
            check=check,
            checkouts=checkouts,
            path=self._path,
            test_command=command,
            setup_command=self._setup_command,
            cache=self._cache,
            limits=self._limits,
            sandbox=self._sandbox,
        )
        await runs.forget_old_logs()
        try:
            proof = await self._prove(_Case(runs, tests))
        except _Stop as stop:
            proof = replace(
                _unproved(stop.reason), base_failed=stop.base_failed, head_passed=stop.head_passed
            )
        return replace(proof, commands=tuple(runs.commands))

    async def _prove(self, case: _Case) -> Proof:
        shown = await self._base_fails(case)
        alone = await self._base_alone(case, shown)
        head = await self._head(case, alone)
        note = _compared(case, shown, alone, head)
        await self._confirm(case, shown, head)
        hooks, said = await self._hooks(case)
        if hooks is False:
            return replace(
                _unproved(f"{said}."), base_failed=True, head_passed=head.passed, hooks_passed=False
            )
        how = "cannot even be imported on the base" if shown.uncollected else "fail on the base"
        passes = "all tests pass with the change" if head.passed else "pass with the change"
        return Proof(
            proved=True,
            reason=f"The change's tests {how} and {passes}.{note}{said}",
            has_tests=True,
            base_failed=True,
            head_passed=True if head.passed else None,
            hooks_passed=hooks,
        )

    # --- the steps --------------------------------------------------------------------------------------

    async def _base_fails(self, case: _Case) -> Run:
        """The run in which the change's tests fail on the base."""
        first = await case.base_with_tests("base with tests")
        if first.problem:
            raise _Stop(f"The tests could not be run on the base: {first.problem}.")
        if first.failed:
            return first
        for number in range(self._reruns):
            again = await case.base_with_tests(f"base with tests, run {number + 2}")
            if not again.passed:
                raise _Stop(
                    "The tests are flaky: on the base they passed first, and not when they were run again."
                )
        raise _Stop(
            "The change's tests pass on the base too, so they do not show the fault.", base_failed=False
        )

    async def _base_alone(self, case: _Case, shown: Run) -> Run:
        """The base without the change's tests: whether it was sound before."""
        known = (case.base, tuple(case.runs.test_command))
        if known in self._sound:
            return Run(exit_code=0)
        alone = await case.runs.test("base alone", case.base)
        if alone.passed or alone.no_tests:
            self._sound.add(known)
            return Run(exit_code=0)
        if alone.problem:
            raise _Stop(f"The tests could not be run on the untouched base: {alone.problem}.")
        if alone.uncollected:
            raise _Stop("The tests cannot be imported on the untouched base either.")
        if shown.suite is None or alone.suite is None:
            raise _Stop(
                f"The tests fail on the untouched base already (exit code {alone.exit_code}), and what they print does "
                "not say which: nobody can tell what the change mends.",
                base_failed=True,
            )
        return alone

    async def _head(self, case: _Case, alone: Run) -> Run:
        """The run with the change: passing, or failing only as the untouched base does."""
        head = await case.runs.test("head", case.head)
        if head.problem:
            raise _Stop(f"The tests could not be run on the change: {head.problem}.", base_failed=True)
        if head.passed or _fails_as_before(alone, head):
            return head
        for number in range(self._reruns):
            again = await case.runs.test(f"head, run {number + 2}", case.head)
            if again.passed or (not again.problem and _fails_as_before(alone, again)):
                raise _Stop(
                    f"The tests are flaky: with the change they failed first, and passed in run {number + 2}.",
                    base_failed=True,
                )
        reason = f"The tests fail with the change (exit code {head.exit_code})"
        if alone.failed:
            reason += "; they fail on the untouched base too"
        raise _Stop(f"{reason}.", base_failed=True, head_passed=False)

    async def _confirm(self, case: _Case, shown: Run, head: Run) -> None:
        """Once more, in new checkouts and the other order: what came about by chance seldom does so twice, and
        what a run left behind for the next one shows. However long it takes for the base, whose tests could
        dawdle to be spared it."""
        if not self._reruns:
            return
        again = await case.base_with_tests("base with tests, repeated")
        if again.problem or again.passed:
            raise _Stop(
                "The tests are flaky: on the base they failed first, and not when they were repeated."
            )
        if max(shown.seconds, head.seconds) > self._confirm_seconds:
            return
        again = await case.runs.test("head, repeated", case.head)
        if again.problem or not (again.passed or _same_failures(head, again)):
            raise _Stop(
                "The tests are flaky: with the change they passed first, and failed when they were repeated.",
                base_failed=True,
            )

    async def _hooks(self, case: _Case) -> tuple[bool | None, str]:
        """The hooks' answer over the staged change (None: there are none), and a note or the reason."""
        runs = case.runs
        hooks, note = await project_hooks(
            runs.checkouts, case.base, case.head, hooks_path=self._hooks_path, path=self._path
        )
        if not hooks:
            return None, note
        tracked = await runs.checkouts.paths(case.head)
        for cached in (True, False):
            async with runs.checkouts.open(case.head, parent=case.base, staged=True) as place:
                problem = await runs.set_up("hooks", place, case.head, cached=cached)
                if problem is None:
                    continue
                if problem:
                    return False, f"The project's hooks could not be run: {problem}"
                for hook in hooks:
                    if hook.path not in tracked:
                        return False, f"The change removes the project's commit hook {shown_path(hook.path)}"
                    before = await tracked_state(place.tree, tracked)
                    done = await runs.command(f"hook {hook.path}", hook.argv, place, "hook")
                    named = f"The project's commit hook {shown_path(hook.path)}"
                    if done.exit_code != 0:
                        return False, f"{named} {ending(done)}"
                    changed = changed_files(before, await tracked_state(place.tree, tracked))
                    if changed:
                        return False, f"{named} modifies {_listed([shown_path(path) for path in changed])}"
                return True, note
        raise AssertionError("a set-up without the cache is never spoilt")

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


def _fails_as_before(alone: Run, head: Run) -> bool:
    """Whether the head fails in nothing but what fails on the untouched base, and ran at least as much."""
    if not alone.failed or alone.suite is None or head.suite is None or head.uncollected:
        return False
    return (
        bool(head.suite.failing)
        and head.suite.failing <= alone.suite.failing
        and head.suite.ran >= alone.suite.ran
    )


def _same_failures(head: Run, again: Run) -> bool:
    return (
        head.suite is not None
        and again.suite is not None
        and head.suite.failing == again.suite.failing != set()
    )


def _compared(case: _Case, shown: Run, alone: Run, head: Run) -> str:
    """A note on what failed before; raises when no test of the change failed on the base and passes now."""
    if not alone.failed or alone.suite is None or shown.suite is None:
        return ""
    before = alone.suite.failing
    still = head.suite.failing if head.suite is not None else frozenset()
    mended = {name for name in shown.suite.failing - still if name not in before or _is_of(name, case.tests)}
    if not mended:
        raise _Stop(
            f"What fails on the base fails without the change's tests too ({_listed(sorted(before))}): they show nothing.",
            base_failed=True,
            head_passed=head.passed,
        )
    fate = f", and {len(still)} still do" if still else ", and pass now"
    return f" On the untouched base {len(before)} fail already{fate}: {_listed(sorted(still or before))}."


def _is_of(name: str, tests: Sequence[FileChange]) -> bool:
    """Whether the runner's name of a test is one of these files'."""
    for file in tests:
        path = PurePosixPath(file.path)
        module = ".".join(path.with_suffix("").parts)
        if name.startswith(file.path) or module in name or f"{path.stem}." in name.partition("(")[2]:
            return True
    return False


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _unproved(reason: str, *, tests: bool = True) -> Proof:
    return Proof(
        proved=False, reason=reason, has_tests=tests, base_failed=None, head_passed=None, hooks_passed=None
    )
