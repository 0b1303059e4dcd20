"""A report taken apart: what its author wrote, what was pasted, what a form declared.

Every later rule reads these parts and never the raw body, so a template's instructions, a ticked box
or a pasted log cannot pass for the author's own words. Everything here is linear in the length of the
text: a report is written by strangers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["ReportText", "read_report"]

_BODY_LIMIT = 32_000
_TITLE_LIMIT = 512
_LINE_LIMIT = 2_000

_CHECKBOX = re.compile(r"^[ \t]{0,8}[-*] \[[ xX]?\]")
_FENCE = re.compile(r"^[ \t]{0,8}(`{3,}|~{3,})")
_TYPE_HEADING = re.compile(
    r"^[#* \t]{0,8}(?:issue|request|ticket)?[ -]?(?:type|kind|category)\**[ \t]*(:?)\**[ \t]*(?:<b>)?[ \t]*"
    r"([^\n<*]{0,40})",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ReportText:
    title: str
    prose: str
    """The body without comments, ticked boxes and fenced blocks."""
    pasted: str
    """The fenced blocks alone."""
    full: str
    """Prose and fenced blocks in their order, without comments and boxes."""
    declared: tuple[str, ...]
    """What the form's field for the kind of issue says, lower case: ``bug``, ``feature request``."""


def _without_comments(text: str) -> str:
    kept: list[str] = []
    start = 0
    while (opened := text.find("<!--", start)) >= 0:
        kept.append(text[start:opened])
        closed = text.find("-->", opened + 4)
        if closed < 0:
            return "".join(kept)
        start = closed + 3
    kept.append(text[start:])
    return "".join(kept)


def _declared(lines: list[str]) -> tuple[str, ...]:
    values: list[str] = []
    for index, line in enumerate(lines):
        match = _TYPE_HEADING.match(line)
        if match is None:
            continue
        value = match[2].strip()
        if not value and line.lstrip().startswith("#"):
            value = next((later.strip() for later in lines[index + 1 : index + 4] if later.strip()), "")
        elif not match[1]:
            continue
        if value:
            values.append(value[:40].lower())
    return tuple(values)


def read_report(title: str, body: str) -> ReportText:
    """The parts of a report. Long bodies are read to 32,000 characters, long lines to 2,000."""
    text = _without_comments(body[:_BODY_LIMIT].replace("\r\n", "\n").replace("\r", "\n"))
    prose: list[str] = []
    pasted: list[str] = []
    full: list[str] = []
    fence = ""
    for raw in text.split("\n"):
        line = raw[:_LINE_LIMIT]
        mark = _FENCE.match(line)
        if fence:
            if mark is not None and mark[1].startswith(fence):
                fence = ""
                continue
            pasted.append(line)
            full.append(line)
        elif mark is not None:
            fence = mark[1]
        elif _CHECKBOX.match(line) is None:
            prose.append(line)
            full.append(line)
    return ReportText(
        title=" ".join(title[:_TITLE_LIMIT].split()),
        prose="\n".join(prose),
        pasted="\n".join(pasted),
        full="\n".join(full),
        declared=_declared(prose),
    )
