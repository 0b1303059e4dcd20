"""Which protected areas a path belongs to, whatever tricks its name plays. Pure.

A name is compared as the most forgiving file system and the most forgiving reader would take it: compatibility
forms and case folded, look-alike letters made Latin, invisible characters, trailing dots and spaces, and stream
names gone, either slash a separator.
"""

from __future__ import annotations

import fnmatch
import unicodedata
from collections.abc import Mapping

__all__ = ["areas", "is_disguised", "plain_path"]

# Letters of other scripts that common fonts draw like Latin ones, by the Latin one (Unicode confusables.txt).
_DRAWN_ALIKE = {
    "a": "АΑаӑạαɑ",
    "b": "ВΒЬвƄ",
    "c": "СϹсϲⅽ",
    "d": "ԁⅾ",
    "e": "ЕΕеёє℮",
    "f": "Ϝſƒ",
    "g": "Ԍɡցƍԍ",
    "h": "НΗһհн",
    "i": "ІΙӀіїιıɩӏ",
    "j": "ЈјϳͿ",
    "k": "КΚкκ",
    "l": "ⅼℓƖ",
    "m": "МΜмⅿ",
    "n": "Νոռη",
    "o": "ОΟОоοσօ০ߋ",
    "p": "РΡрρ",
    "q": "Ԛԛզ",
    "r": "гᴦʀ",
    "s": "ЅѕՏꜱ",
    "t": "ТΤтτ",
    "u": "Սսυʋ",
    "v": "Ѵѵνⅴ",
    "w": "Ԝԝωш",
    "x": "ХΧхχ",
    "y": "УΥҮуүγʏ",
    "z": "Ζᴢ",
    "-": "‐‑‒–—−",
    ".": "․‚。",
    "/": "⁄∕",
    "_": "ˍ＿",
}
_LOOKALIKES = {
    ord(other): latin for latin, others in _DRAWN_ALIKE.items() for other in others if not other.isascii()
}
_IGNORED = {"Cf", "Cc", "Mn", "Me", "Co", "Cn"}


def areas(path: str, protected: Mapping[str, tuple[str, ...]]) -> list[str]:
    """The areas (name to globs) that the path belongs to."""
    plain = plain_path(path)
    return [
        area
        for area, globs in protected.items()
        if any(_matches(plain, pattern.casefold()) for pattern in globs)
    ]


def plain_path(path: str) -> str:
    """The path without disguise: equal for all names that some file system or reader takes for the same."""
    text = unicodedata.normalize("NFKC", path).translate(_LOOKALIKES).casefold().translate(_LOOKALIKES)
    text = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in text if unicodedata.category(c) not in _IGNORED)
    parts = [part.partition(":")[0].strip(" ").rstrip(". ") for part in text.replace("\\", "/").split("/")]
    return "/".join(part for part in parts if part)


def is_disguised(path: str) -> bool:
    """Whether the name is drawn like another one, or holds what cannot be seen. Plain accents are no disguise."""
    composed = unicodedata.normalize("NFC", path)
    hidden = any(unicodedata.category(c) in ("Cf", "Cc", "Co", "Cs") for c in composed)
    parts = composed.replace("\\", "/").split("/")
    edges = any(part != part.strip() or part.endswith(".") for part in parts) or "\\" in composed
    mixed = any(c.isascii() and c.isalpha() for c in composed) and composed.translate(_LOOKALIKES) != composed
    return hidden or edges or mixed or unicodedata.normalize("NFKC", composed) != composed


def _matches(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(path, pattern[3:]) or fnmatch.fnmatchcase(path, f"*/{pattern[3:]}")
    return fnmatch.fnmatchcase(path, pattern)
