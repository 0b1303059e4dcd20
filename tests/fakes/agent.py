"""A coding agent in memory: leaves changes in a worktree, fails, hangs, or waits to be let go."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import anyio
import anyio.lowlevel

from formica.ports import AgentResult, AgentTask, CommandResult, FileChange, StopCheck
from tests.fakes.hooks import Hooks
from tests.fakes.repository import Trees, file_change

FIX = (file_change("src/parser.py"), file_change("tests/test_parser.py", 12, 0, "A"))


@dataclass(frozen=True, slots=True)
class Run:
    """What one run does. ``waits_for``: it works until that is set, asking ``check`` all the while."""

    leaves: tuple[FileChange, ...] = FIX
    exit_code: int | None = 0
    reason: Literal["exited", "timeout", "stalled", "stopped", "unstartable"] = "exited"
    seconds: float = 60.0
    waits_for: anyio.Event | None = None
    deaf: bool = False
    """Waits without asking ``check``."""
    turns: int = 0
    """How often it lets others run before it ends."""


@dataclass(slots=True)
class FakeAgent:
    """``script`` gives the next runs, in order; ``otherwise`` is every further one."""

    trees: Trees
    hooks: Hooks = field(default_factory=Hooks)
    script: list[Run] = field(default_factory=list)
    otherwise: Run = field(default_factory=Run)
    name: str = "fake"
    tasks: list[AgentTask] = field(default_factory=list)
    """Every run that was started."""
    at_work: list[int] = field(default_factory=list)
    """The issues that are being worked on now; agents of several daemons may share the list."""
    most_at_work: int = 0
    doubled: bool = False
    """Whether one issue was ever worked on twice at the same time."""
    started: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, task: AgentTask, *, check: StopCheck) -> CommandResult:
        number = await self.hooks.before("agent", writes=True, what=f"#{task.workspace.issue_number}")
        self.tasks.append(task)
        self.at_work.append(task.workspace.issue_number)
        self.most_at_work = max(self.most_at_work, len(self.at_work))
        self.doubled = self.doubled or len(set(self.at_work)) < len(self.at_work)
        self.started.set()
        try:
            run = self.script.pop(0) if self.script else self.otherwise
            if run.waits_for is not None and run.deaf:
                await run.waits_for.wait()
            while run.waits_for is not None and not run.waits_for.is_set():
                await check()
                await anyio.lowlevel.checkpoint()
            for _ in range(run.turns):
                await anyio.lowlevel.checkpoint()
            self.trees[task.workspace.tree] = run.leaves
        finally:
            self.at_work.remove(task.workspace.issue_number)
        await self.hooks.after("agent", number)
        return CommandResult(
            exit_code=run.exit_code,
            reason=run.reason,
            seconds=run.seconds,
            output_tail="",
            log_path=Path("/dev/null"),
            log_hash="0" * 64,
        )

    def verdict(self, result: CommandResult, *, changed: bool) -> AgentResult:
        if result.reason in ("timeout", "stalled"):
            return AgentResult("timeout" if result.reason == "timeout" else "stalled", result.reason, result)
        if result.exit_code != 0:
            return AgentResult("failed", f"the agent ended with {result.exit_code}", result)
        return AgentResult("success" if changed else "no_change", "the agent is done", result)
