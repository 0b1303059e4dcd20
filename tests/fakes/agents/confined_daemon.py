"""A stand-in for the daemon: one isolated run of the pathological agent below a state folder, never stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from tests.fakes.sandboxes import Item, confined

AGENT = Path(__file__).with_name("pathological.py")


async def main(state: Path) -> None:
    item = Item(state)
    await item.run(confined(words=[str(AGENT)]), sys.executable, str(AGENT), "escape", str(item.tree), "stay")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]))
