"""Strangers' text made inert: it can be read anywhere and does nothing anywhere.

Forges turn ``@name``, ``#12``, ``GH-12`` and issue links into notifications and references, and ``Fixes #12``
into a closed issue. A plain space after the sign stops each of them, survives every later normalisation (an
invisible character would be stripped and the text live again) and does no harm to a reader.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["neutralise"]

_LIVE = (
    (re.compile(r"(?<![A-Za-z0-9])@(?=[\w-])"), "@ "),
    (re.compile(r"#(?=\d)"), "# "),
    (re.compile(r"\b(GH-)(?=\d)", re.IGNORECASE), r"\1 "),
    (re.compile(r"!(?=\d)"), "! "),
    (
        re.compile(r"(/(?:issues?|pulls?|merge_requests|discussions|commit)/)(?=[0-9a-f])", re.IGNORECASE),
        r"\1 ",
    ),
    (re.compile(r"<(?=[A-Za-z/!?])"), "< "),
    (re.compile(r"--(?=>)"), "-- "),
    (re.compile(r"&(?=#?\w{1,32};)"), "& "),
    (re.compile(r"\](?=[(\[])"), "] "),
    # What a CI reads out of a commit or a title: [skip ci], ***NO_CI***, skip-checks: true.
    (re.compile(r"\*{2,}"), ""),
    (re.compile(r"\b(skip-checks|skip-ci|ci-skip|no-ci)(?=:)", re.IGNORECASE), r"\1 "),
)
_DIRECTIVE = re.compile(r"\[([^\[\]\n]{0,60}\b(?:ci|skip|actions)\b[^\[\]\n]{0,60})\]", re.IGNORECASE)
_ELLIPSIS = "…"


def _plain(text: str) -> str:
    """Without control, invisible and private characters; line breaks and tabs stay."""
    kept = []
    for character in text:
        if character in "\n\t":
            kept.append(character)
        elif character in "\r\x0b\x0c\x85\u2028\u2029":
            kept.append("\n")
        elif unicodedata.category(character) not in ("Cc", "Cf", "Co", "Cs", "Cn"):
            kept.append(character)
    return "".join(kept)


def _cut(text: str, limit: int) -> str:
    """At most ``limit`` characters, cut between words where one is near, never inside a character."""
    if len(text) <= limit:
        return text
    end = max(limit - len(_ELLIPSIS), 0)
    space = max(text.rfind(" ", 0, end), text.rfind("\n", 0, end))
    if space > end * 0.8:
        end = space
    while end > 0 and unicodedata.combining(text[end : end + 1] or " "):
        end -= 1
    return (text[:end].rstrip() + _ELLIPSIS)[:limit]


def neutralise(text: str, *, limit: int = 4_000, lines: bool = False) -> str:
    """Text from outside, safe in a title, a message or a commit: no live mention, reference, closing
    keyword or markup. One line unless ``lines``; at most ``limit`` characters. Doing it twice changes
    nothing more."""
    text = _plain(text[: limit * 4 + 1_000])
    if lines:
        text = "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()
    else:
        text = " ".join(text.split())
    for pattern, replacement in _LIVE:
        text = pattern.sub(replacement, text)
    nested = 1
    while nested:
        text, nested = _DIRECTIVE.subn(r"(\1)", text)
    return _cut(text.replace("`", "'"), limit)
