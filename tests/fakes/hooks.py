"""Fault injection for the fakes, and a clock that only tests move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

import anyio.lowlevel

__all__ = ["Act", "Call", "Crash", "Hook", "Hooks", "VirtualClock"]

Act = Callable[[], Awaitable[None] | None]


class Crash(BaseException):
    """The process dies here: nothing of ours may catch it."""


@dataclass(slots=True)
class VirtualClock:
    """Wall and monotonic time in one; stands still until moved."""

    at: float = 1_750_000_000.0

    def now(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += seconds


@dataclass(frozen=True, slots=True)
class Hook:
    """Before or after call ``number`` (from 1, of all calls since the start) of ``kind``, or of any with
    ``*``: ``act``, which may raise."""

    when: Literal["before", "after"]
    kind: str
    number: int
    act: Act


@dataclass(frozen=True, slots=True)
class Call:
    """One call that was begun; ``writes`` when it can change something outside the process."""

    kind: str
    writes: bool
    what: str


@dataclass(slots=True)
class Hooks:
    """Shared by all fakes of one world, so that calls are counted in one order. The counts go on over
    restarts; ``hooks`` may be changed at any time."""

    hooks: list[Hook] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    async def before(self, kind: str, *, writes: bool = False, what: str = "") -> int:
        """Count a call and run what is to happen before it; its number among all calls."""
        await anyio.lowlevel.checkpoint()
        self.counts[kind] += 1
        self.counts["*"] += 1
        number, overall = self.counts[kind], self.counts["*"]
        self.calls.append(Call(kind, writes, what))
        await self._run("before", kind, number, overall)
        return overall

    async def after(self, kind: str, overall: int) -> None:
        await self._run("after", kind, self.counts[kind], overall)
        await anyio.lowlevel.checkpoint()

    async def _run(self, when: str, kind: str, number: int, overall: int) -> None:
        for hook in list(self.hooks):
            due = hook.when == when and (hook.kind, hook.number) in ((kind, number), ("*", overall))
            if due:
                waits = hook.act()
                if waits is not None:
                    await waits

    def writes(self) -> list[Call]:
        """The calls so far that can change something outside the process."""
        return [call for call in self.calls if call.writes]
