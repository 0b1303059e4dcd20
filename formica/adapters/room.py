"""Disk space: the floor below which nothing new is begun, and what one workspace may hold. All blocking."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from formica.errors import NeedsOperator

__all__ = ["Room"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Room:
    """``min_free_bytes`` stay free on the disk of ``state``; a workspace holds at most ``workspace_bytes``."""

    state: Path
    min_free_bytes: int
    workspace_bytes: int

    def shortage(self, wanted: int = 0) -> str | None:
        """Why nothing that takes ``wanted`` more bytes is begun now, in one sentence, or None."""
        there = next(folder for folder in (self.state, *self.state.parents) if folder.exists())
        free = shutil.disk_usage(there).free
        if free - wanted >= self.min_free_bytes:
            return None
        return (
            f"held back: {free // _MIB} MiB are free on the disk of {self.state}, and "
            f"{(self.min_free_bytes + wanted) // _MIB} MiB must be"
        )

    def check_workspace(self, root: Path, issue_number: int) -> None:
        """``NeedsOperator`` when the item's folder holds more than it may."""
        held = 0
        for size in _sizes(root):
            held += size
            if held > self.workspace_bytes:
                raise NeedsOperator(
                    f"the workspace of issue {issue_number} holds more than {self.workspace_bytes // _MIB} MiB"
                )


def _sizes(root: Path) -> Iterator[int]:
    """Bytes on disk of every file below ``root``; links are not followed, closed folders not entered."""
    folders = [os.fspath(root)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        folders.append(entry.path)
                    else:
                        yield status.st_blocks * 512
        except OSError:
            continue
