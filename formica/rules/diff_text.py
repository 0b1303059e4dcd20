"""The lines of a diff, read back from git's own text. Pure.

git lists the files of a diff in the same order in every format, so names are taken from its raw listing, where
they cannot be confused, and only hunks are read here: by their counted lines, never by what a line looks like.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from formica.rules.facts import FileChange, FileText, Row

__all__ = ["file_texts"]

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MARKS: dict[bytes, Literal[" ", "-", "+"]] = {b" ": " ", b"-": "-", b"+": "+"}


def file_texts(diff: bytes, files: Sequence[FileChange], *, whole: bool) -> dict[str, FileText]:
    """Path to lines, from ``git diff --text --no-renames``; ``whole`` when it was made with all context.

    Raises:
        ValueError: the text is not the diff of exactly these files.
    """
    lines = diff.split(b"\n")
    if lines and lines[-1] == b"":
        lines.pop()
    reader = _Reader(lines)
    found = {}
    for file in files:
        rows = reader.section()
        if file.status == "T":
            rows += reader.section()
        found[file.path] = FileText(tuple(rows), whole)
    if not reader.done:
        raise ValueError("the diff names more files than the listing")
    return found


class _Reader:
    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at >= len(self._lines)

    def section(self) -> list[Row]:
        """The rows of the file that begins here."""
        if self.done or not self._lines[self._at].startswith(b"diff --git "):
            raise ValueError("a file's part of the diff does not begin where it should")
        self._at += 1
        rows: list[Row] = []
        while not self.done and not self._lines[self._at].startswith(b"diff --git "):
            hunk = _HUNK.match(self._lines[self._at])
            self._at += 1
            if hunk is not None:
                old, old_count, new, new_count = hunk.groups()
                rows += self._hunk(int(old), int(old_count or 1), int(new), int(new_count or 1))
        return rows

    def _hunk(self, old: int, old_count: int, new: int, new_count: int) -> list[Row]:
        old_end, new_end = old + old_count, new + new_count
        # An empty side is numbered by the line before it.
        if old_count == 0:
            old, old_end = old + 1, old_end + 1
        if new_count == 0:
            new, new_end = new + 1, new_end + 1
        rows = []
        while (old < old_end or new < new_end) and not self.done:
            line = self._lines[self._at]
            self._at += 1
            if line.startswith(b"\\"):
                continue
            mark = _MARKS.get(line[:1])
            if mark is None:
                raise ValueError("a line of the diff has no mark")
            rows.append(Row(mark, old, new, line[1:].decode("utf-8", "replace")))
            old += mark != "+"
            new += mark != "-"
        if (old, new) != (old_end, new_end):
            raise ValueError("a hunk of the diff has other lines than it says")
        if not self.done and self._lines[self._at].startswith(b"\\"):
            self._at += 1
        return rows
