"""A verifier in memory: says what it is told to say of a change, and keeps count."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from formica.ports import Change, Proof, StopCheck, Workspace
from tests.fakes.hooks import Hooks

PROVED = Proof(
    proved=True,
    reason="the base fails with the change's tests, the head passes",
    has_tests=True,
    base_failed=True,
    head_passed=True,
    hooks_passed=None,
)
NOT_PROVED = Proof(
    proved=False,
    reason="the base passes with the change's tests",
    has_tests=True,
    base_failed=False,
    head_passed=True,
    hooks_passed=None,
)


@dataclass(slots=True)
class FakeVerifier:
    """``judge`` is asked for the proof of each change."""

    hooks: Hooks = field(default_factory=Hooks)
    judge: Callable[[Change], Proof] = lambda _change: PROVED
    proved: list[str] = field(default_factory=list)
    """The heads that were proved, or not, in order."""

    async def prove(self, workspace: Workspace, change: Change, *, check: StopCheck) -> Proof:
        number = await self.hooks.before("prove")
        await check()
        self.proved.append(change.head_sha)
        await self.hooks.after("prove", number)
        return self.judge(change)
