"""Whether a report tells of a vulnerability. Recall first: private until a person has looked."""

from __future__ import annotations

import re

from formica.rules.report_text import ReportText
from formica.rules.security_lookalikes import LOOKALIKES
from formica.rules.security_signs import LEAKING, SENSITIVE, SIGNS, Sign

__all__ = ["recognise"]

_ENOUGH = 2.0
_TEXT_LIMIT = 10_000


def _compiled(signs: tuple[Sign, ...]) -> tuple[tuple[Sign, re.Pattern[str]], ...]:
    return tuple(
        (
            sign,
            re.compile(
                sign.pattern.replace("<SECRET>", SENSITIVE).replace("<LEAKS>", LEAKING), re.IGNORECASE
            ),
        )
        for sign in signs
    )


_SIGNS = _compiled(SIGNS)
_LOOKALIKES = _compiled(LOOKALIKES)
_LABELS = {"security", "vulnerability", "cve", "type: security", "kind/security", "area/security"}


def recognise(report: ReportText, labels: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The reasons to treat a report as a security report; empty when it is not one."""
    text = f"{report.title}\n{report.prose}"[:_TEXT_LIMIT]
    found = [sign for sign, pattern in _SIGNS if pattern.search(text)]
    reasons = [sign.reason for sign in found]
    total = sum(sign.weight for sign in found)
    against = [sign for sign, pattern in _LOOKALIKES if pattern.search(text)]
    total += sum(sign.weight for sign in against)
    if any(label.strip().lower() in _LABELS for label in labels):
        return ("its label says security", *reasons)
    if total < _ENOUGH:
        return ()
    return (*reasons, *(f"although: {sign.reason}" for sign in against))
