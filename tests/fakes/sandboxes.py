"""Sandboxes for tests: the real profile on this host, for programs of the interpreter the tests run with."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from formica.adapters.broker import Broker
from formica.adapters.isolation import Bubblewrap, Limits, Sandbox, find_bubblewrap
from formica.adapters.sandbox import agent_environment, run_command
from formica.adapters.toolchain import ToolchainFinder
from formica.ports import CommandResult

PATH = os.environ["PATH"]
NOWHERE = Path("/nonexistent")
BUBBLEWRAP = find_bubblewrap(PATH)
"""The host's; these tests need one, as people who run the daemon unattended do."""


async def go_on() -> None:
    return None


def confined(
    *,
    words: Sequence[str] = (),
    path: str = "/usr/bin:/bin",
    home: Path = NOWHERE,
    hidden: Sequence[Path] = (),
    limits: Limits | None = None,
    broker: Broker | None = None,
    variables: Mapping[str, tuple[int, str]] | None = None,
) -> Sandbox:
    assert isinstance(BUBBLEWRAP, Bubblewrap), BUBBLEWRAP
    finder = ToolchainFinder([sys.executable, *words], path=path, home=home, private=hidden)
    return Sandbox(
        bubblewrap=BUBBLEWRAP,
        toolchain=finder.find,
        hidden=hidden,
        limits=limits or Limits(),
        broker=broker,
        variables=variables,
    )


class Item:
    """An item's folders below a state folder, and runs in its tree."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.root = state / "items" / "7"
        self.tree = self.root / "tree"
        self.clone = self.root / "repo.git"
        for folder in (self.tree, self.clone):
            folder.mkdir(parents=True)

    async def run(self, sandbox: Sandbox, *argv: str, **changes: Any) -> CommandResult:
        options: dict[str, Any] = {
            "cwd": self.tree,
            "env": agent_environment("/usr/bin:/bin", self.root / "run" / "home"),
            "log_path": self.root / "run" / "agent.log",
            "timeout_seconds": 60,
            "stall_seconds": 60,
            "check": go_on,
            "sandbox": sandbox,
            "writable": [self.clone],
        }
        return await run_command(argv, **options | changes)

    async def python(self, sandbox: Sandbox, code: str, *argv: str, **changes: Any) -> CommandResult:
        """Run a few lines of Python inside."""
        return await self.run(sandbox, sys.executable, "-c", code, *argv, **changes)
