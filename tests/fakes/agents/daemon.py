"""A stand-in for the daemon: runs one command under supervision and never stops it by itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

from formica.adapters.sandbox import agent_environment, run_command


async def go_on() -> None:
    return None


async def main(folder: Path, argv: list[str]) -> None:
    run = folder / "run"
    await run_command(
        argv,
        cwd=folder,
        env=agent_environment(os.environ["PATH"], run / "home"),
        log_path=run / "agent.log",
        timeout_seconds=60,
        stall_seconds=60,
        check=go_on,
    )


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2:])
