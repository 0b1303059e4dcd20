"""Session records in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from formica.ports import Transcript


@dataclass(slots=True)
class FakeTranscripts:
    """``full``: the disk will not have it."""

    kept: dict[str, str] = field(default_factory=dict)
    """Name to prompt."""
    full: bool = False

    async def keep(self, issue_number: int, run_id: str, *, prompt: str, log_path: Path) -> Transcript | None:
        if self.full:
            return None
        name = f"{issue_number}-{run_id}.log"
        self.kept[name] = prompt
        return Transcript(name, "0" * 64)
