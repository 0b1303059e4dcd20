"""What a gate found in a change: the rule, the place, and one sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from formica.rules.facts import shown_path

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """``path`` is empty for the change as a whole; ``line`` counts from 1 in the new file, None for all of it.

    ``str()`` is `path:line: detail`, in one printable line; it never holds what was found if that is secret.
    """

    rule: str
    path: str
    line: int | None
    detail: str

    def __str__(self) -> str:
        place = shown_path(self.path) + (f":{self.line}" if self.line is not None else "")
        return f"{place}: {self.detail}" if self.path else self.detail
