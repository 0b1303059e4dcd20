"""Takes credentials and personal data out of text before anything is stored (contract §7).

`find` says where they are; a `Redactor` replaces them by `<KIND:n>`, and a home directory by `~`, so that one
submission's equal values stay recognisable as equal. Text without findings comes back as it was.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TypeAlias

from .assignments import (
    credential_kind,
    find_assigned,
    is_credential_number,
    is_credential_value,
    names_value,
)
from .detectors import find_provider_tokens
from .findings import ALL_KINDS, CREDENTIAL_KINDS, KIND_ORDER, Finding, Kind
from .hidden_text import HIDDEN_KINDS, normalise
from .personal import find_cards, find_emails, find_home_paths, find_ips, find_phones, find_url_credentials

__all__ = ["ALL_KINDS", "CREDENTIAL_KINDS", "JSON", "Finding", "Kind", "Redactor", "find", "normalise"]

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"

_PLACEHOLDER = re.compile(rf"<({'|'.join(KIND_ORDER)}):([0-9]{{1,9}})>")
# Replacing one value can make its neighbour stand free; texts settle in two rounds.
_ROUNDS = 4
# Credentials looked for again: how many, from which size, and from which size also inside longer words.
_REPEATS = 64
_REPEAT_SIZE = 8
_REPEAT_INSIDE = 16


def _lowered(text: str) -> str:
    # U+0130 alone grows when lowered; spans must stay those of `text`.
    return text.replace("\u0130", "I").lower()


def _assigned(text: str) -> Iterator[Finding]:
    return find_assigned(text, _lowered(text))


# Earlier rows name the kind where findings meet.
_FINDERS: tuple[tuple[Callable[[str], Iterator[Finding]], frozenset[Kind]], ...] = (
    (find_url_credentials, frozenset({"URL_CREDENTIAL"})),
    (_assigned, frozenset({"TOKEN", "KEY", "PASSWORD"})),
    (find_emails, frozenset({"EMAIL"})),
    (find_cards, frozenset({"CARD"})),
    (find_phones, frozenset({"PHONE"})),
    (find_ips, frozenset({"IP"})),
    (find_home_paths, frozenset({"HOME_PATH"})),
)


def find(text: str, kinds: frozenset[Kind] = ALL_KINDS) -> list[Finding]:
    """Private text of the wanted kinds: spans that do not overlap, in ascending order."""
    return _find(text, kinds, {})


def _find(text: str, kinds: frozenset[Kind], known: dict[str, Kind], beside: str = "") -> list[Finding]:
    found = list(find_provider_tokens(text, beside)) if kinds & CREDENTIAL_KINDS else []
    for finder, made in _FINDERS:
        if made & kinds:
            found += finder(text)
    found = [finding for finding in found if finding.kind in kinds]
    for finding in found:
        value = text[finding.start : finding.end]
        if finding.kind in CREDENTIAL_KINDS and len(value) >= _REPEAT_SIZE and len(known) < _REPEATS:
            known.setdefault(value, finding.kind)
    found += [again for value, kind in known.items() for again in _occurrences(text, value, kind)]
    return _merge(_clear_of_placeholders(text, found)) if found else found


def _occurrences(text: str, value: str, kind: Kind) -> Iterator[Finding]:
    """A credential already recognised, also where no shape or name gives it away."""
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if len(value) >= _REPEAT_INSIDE or not (text[at - 1 : at].isalnum() or text[end : end + 1].isalnum()):
            yield Finding(kind, at, end)
        at = text.find(value, end)


def _clear_of_placeholders(text: str, found: list[Finding]) -> list[Finding]:
    taken = [match.span() for match in _PLACEHOLDER.finditer(text)]
    if not taken:
        return found
    ends = [end for _, end in taken]

    def is_clear(finding: Finding) -> bool:
        after = bisect_right(ends, finding.start)
        return after == len(taken) or taken[after][0] >= finding.end

    return [finding for finding in found if is_clear(finding)]


def _merge(found: list[Finding]) -> list[Finding]:
    """Overlapping findings become one that covers them all and carries the kind found first."""
    merged: list[tuple[int, Finding]] = []
    for order, finding in sorted(enumerate(found), key=lambda each: each[1].start):
        if merged and finding.start < merged[-1][1].end:
            first, last = merged[-1]
            kind = last.kind if first <= order else finding.kind
            merged[-1] = min(first, order), Finding(kind, last.start, max(last.end, finding.end))
        else:
            merged.append((order, finding))
    return [finding for _, finding in merged]


def _holds_credential(name: str, kind: Kind, value: JSON) -> bool:
    """Whether what `name` announces as a secret holds one, at any depth."""
    if isinstance(value, str):
        return is_credential_value(name, kind, normalise(value)[0])
    if isinstance(value, list):
        return any(_holds_credential(name, kind, item) for item in value)
    if isinstance(value, dict):
        return any(_holds_credential(name, kind, item) for key, item in value.items() if names_value(key))
    return (
        not isinstance(value, bool) and isinstance(value, int | float) and is_credential_number(kind, value)
    )


class Redactor:
    """Redacts the texts of one submission, numbering equal values equally across all of them."""

    def __init__(self, kinds: frozenset[Kind] = ALL_KINDS) -> None:
        self._kinds = kinds
        self._numbers: dict[tuple[Kind, str], int] = {}
        self._used: dict[str, set[int]] = {}
        self._latest: dict[Kind, int] = {}
        self._credentials: dict[str, Kind] = {}
        self._counts: dict[str, int] = {}

    def text(self, text: str) -> str:
        """`text` without hidden characters, its private parts replaced."""
        text, hidden = normalise(text)
        for kind, count in hidden.items():
            self._count(kind, count)
        found = _find(text, self._kinds, self._credentials)
        for _ in range(_ROUNDS):
            if not found:
                break
            text = self._replace(text, found)
            found = _find(text, self._kinds, self._credentials, beside="<~")
        return text

    def value(self, value: JSON) -> JSON:
        """`value` with every text in it, keys too, redacted; what a key calls a credential is taken whole."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self._member(key, item) for key, item in value.items()}
        return value

    def counts(self) -> list[dict[str, str | int]]:
        """How many replacements of each kind were made, as the contract's `redactions`."""
        order = (*KIND_ORDER, *HIDDEN_KINDS)
        return [{"kind": kind, "count": self._counts[kind]} for kind in order if kind in self._counts]

    def _member(self, key: str, value: JSON) -> JSON:
        kind = credential_kind(key)
        if kind in self._kinds and kind is not None and _holds_credential(key, kind, value):
            return self._mark(kind, value if isinstance(value, str) else json.dumps(value, sort_keys=True))
        return self.value(value)

    def _replace(self, text: str, found: list[Finding]) -> str:
        for kind, number in _PLACEHOLDER.findall(text):
            self._used.setdefault(kind, set()).add(int(number))
        parts, done = [], 0
        for finding in found:
            parts += [text[done : finding.start], self._mark(finding.kind, text[finding.start : finding.end])]
            done = finding.end
        return "".join([*parts, text[done:]])

    def _mark(self, kind: Kind, value: str) -> str:
        self._count(kind, 1)
        if kind == "HOME_PATH":
            return "~"
        number = self._numbers.get((kind, value))
        if number is None:
            number = self._next_number(kind)
            self._numbers[kind, value] = number
        return f"<{kind}:{number}>"

    def _next_number(self, kind: Kind) -> int:
        number = self._latest.get(kind, 0) + 1
        while number in self._used.get(kind, ()):
            number += 1
        self._latest[kind] = number
        return number

    def _count(self, kind: str, count: int) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + count
