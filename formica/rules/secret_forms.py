"""The daemon's own secrets, recognised in text in whatever form somebody tried to carry them out. Pure.

Both sides are squeezed to lower-case letters and digits, so a value cut by quotes, line ends, spaces, zero-width
characters or any other punctuation is still one piece; the values are looked for as they are, reversed, in
base64 (all three alignments), base32, hex and rot13, and one of these inside another.

Not found: a value that was encrypted, compressed, or cut into pieces with other letters between them.
"""

from __future__ import annotations

import base64
import codecs
import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote

__all__ = ["Hit", "LiveSecrets"]

SHORTEST = 8
"""Values of fewer characters are words: looking for them would find everything."""
_SHORTEST_SQUEEZED = 10
_NESTED_FROM = 16
_REMOVALS = 200
WITHHELD = "[withheld: a secret of the daemon was in here]"
_NOT_PLAIN = re.compile(r"[^a-z0-9]+")
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|([0-3][0-7]{2}))")
_LITERAL = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`([^`\n]*)`")
_NUMBERS = re.compile(
    r"(?:\b(?:0x[0-9a-fA-F]{2}|\d{2,3})\b[^0-9a-zA-Z]{1,4}){7,}(?:0x[0-9a-fA-F]{2}|\d{2,3})\b"
)
_NUMBER = re.compile(r"0x[0-9a-fA-F]{2}|\d{2,3}")


@dataclass(frozen=True, slots=True)
class Hit:
    """A secret in a text: between which lines, counted from 0; never the secret itself."""

    first: int
    last: int


class LiveSecrets:
    """Values that must never leave this host. Shorter ones than 8 characters cannot be told from words."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._plain: set[str] = set()
        self._needles: set[str] = set()
        for value in values:
            self.add(value)

    def __repr__(self) -> str:
        return f"LiveSecrets({len(self._values)} values)"

    def add(self, value: str) -> None:
        """One more secret, learned after the start."""
        value = value.strip()
        if len(value) < SHORTEST or value in self._values:
            return
        self._values.add(value)
        self._plain |= {value, value[::-1]}
        forms = _forms(value)
        if len(value) >= _NESTED_FROM:
            forms += [nested for form in _inner(value) for nested in _forms(form)]
        needles = {_squeezed(form) for form in forms}
        self._needles |= {needle for needle in needles if len(needle) >= _SHORTEST_SQUEEZED}

    def holds(self, text: str) -> bool:
        """Whether any secret is in the text, in any form."""
        if not self._values or not text:
            return False
        if any(value in text for value in self._plain):
            return True
        views = {_squeezed(view) for view in _views(text)}
        return any(needle in view for view in views for needle in self._needles)

    def find(self, lines: Sequence[str]) -> Hit | None:
        """The first place where a secret is complete."""
        if not self.holds("\n".join(lines)):
            return None
        last = _bisect(len(lines), lambda count: self.holds("\n".join(lines[:count]))) - 1
        ending = lines[: last + 1]
        first = len(ending) - _bisect(len(ending), lambda count: self.holds("\n".join(ending[-count:])))
        return Hit(first, last)

    def removed(self, text: str) -> str:
        """The text without the lines that hold a secret; a plain value is taken out of its line."""
        for value in sorted(self._plain, key=len, reverse=True):
            text = text.replace(value, WITHHELD)
        if not self.holds(text):
            return text
        lines = text.split("\n")
        for _ in range(_REMOVALS):
            hit = self.find(lines)
            if hit is None:
                return "\n".join(lines)
            if lines[hit.first : hit.last + 1] == [WITHHELD]:
                break
            lines[hit.first : hit.last + 1] = [WITHHELD]
        return WITHHELD


def _bisect(most: int, holds: Callable[[int], bool]) -> int:
    """The smallest count for which ``holds``, between 1 and ``most``, which is taken to hold."""
    low, high = 1, max(most, 1)
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _squeezed(text: str) -> str:
    return _NOT_PLAIN.sub("", text.lower())


def _forms(value: str) -> list[str]:
    data = value.encode("utf-8", "surrogateescape")
    plain = [value, data.hex(), codecs.encode(value, "rot13"), base64.b32encode(data).decode().rstrip("=")]
    plain += [_base64_inside(data, before) for before in range(3)]
    return [*plain, *(form[::-1] for form in plain)]


def _inner(value: str) -> list[str]:
    """What is dressed up once more: the usual encodings, and the value backwards."""
    data = value.encode("utf-8", "surrogateescape")
    return [value[::-1], data.hex(), *(_base64_inside(data, before) for before in range(3))]


def _base64_inside(data: bytes, before: int) -> str:
    """The part of any base64 text that ``data`` alone decides, when ``before`` bytes of another stand ahead."""
    text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
    start = (0, 2, 3)[before]
    # The last character also carries bits of what follows, unless the bytes come out even.
    end = len(text) if (before + len(data)) % 3 == 0 else len(text) - 1
    return text[start:end]


def _views(text: str) -> Iterable[str]:
    """The text as it stands, and as different readers would decode it."""
    yield text
    decoded = unquote(unquote(text)) if "%" in text else text
    decoded = html.unescape(decoded) if "&" in decoded else decoded
    decoded = _ESCAPE.sub(_unescaped, decoded) if "\\" in decoded else decoded
    if not decoded.isascii():
        decoded = unicodedata.normalize("NFKC", decoded)
    yield decoded
    yield "".join(a or b or c for a, b, c in _LITERAL.findall(text))
    if "0x" in text:
        yield text.replace("0x", "")
    yield "".join(_spelled(run) for run in _NUMBERS.findall(text))


def _unescaped(match: re.Match[str]) -> str:
    two, four, braced, octal = match.groups()
    number = int(octal, 8) if octal else int(two or four or braced, 16)
    return chr(number) if number < 0x110000 else ""


def _spelled(run: str) -> str:
    """Character codes one after the other, as characters."""
    numbers = _NUMBER.findall(run)
    return "".join(chr(int(number, 16 if number.startswith("0x") else 10)) for number in numbers)
