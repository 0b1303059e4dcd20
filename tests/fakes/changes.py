"""Changes made of texts, as the adapter would read them from git."""

from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any

from formica.rules.facts import Change, FileChange, FileText, Row

Pair = tuple[FileChange, FileText]


def rows_of(old: str, new: str) -> tuple[Row, ...]:
    """The line-by-line difference, with every kept line."""
    before, after = old.splitlines(), new.splitlines()
    rows: list[Row] = []
    for tag, i, i_end, j, j_end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            rows += [Row(" ", i + n + 1, j + n + 1, text) for n, text in enumerate(before[i:i_end])]
        else:
            rows += [Row("-", i + n + 1, j + 1, text) for n, text in enumerate(before[i:i_end])]
            rows += [Row("+", i_end + 1, j + n + 1, text) for n, text in enumerate(after[j:j_end])]
    return tuple(rows)


def changed(path: str, old: str | None, new: str | None, **facts: Any) -> Pair:
    """One file before and after; None where it is not there. ``facts`` override what git says of it."""
    text = FileText(rows_of(old or "", new or ""))
    status = "A" if old is None else "D" if new is None else "M"
    known: dict[str, Any] = {
        "status": status,
        "old_mode": "000000" if old is None else "100644",
        "new_mode": "000000" if new is None else "100644",
        "added": len(text.added),
        "deleted": len(text.removed),
        "binary": False,
    }
    return FileChange(path=path, **(known | facts)), text


def change(*pairs: Pair, message: str = "Fix report 1: it works") -> Change:
    return Change(
        base_sha="a" * 40,
        head_sha="b" * 40,
        diff_hash="c" * 64,
        files=tuple(file for file, _ in pairs),
        diff="",
        texts={file.path: text for file, text in pairs},
        message=message,
    )


def without_text(made: Change, path: str) -> Change:
    """The same change with one file's lines unread."""
    return replace(made, texts={name: text for name, text in made.texts.items() if name != path})
