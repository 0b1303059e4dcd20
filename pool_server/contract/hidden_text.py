"""Characters a reader cannot see: found, counted and removed.

Unicode's own names: Bidi_Control, the tag block, and the zero-width format characters (UAX #9, UTS #51).
"""

import re

__all__ = ["HIDDEN_KINDS", "normalise"]

HIDDEN_KINDS = ("BIDI_CONTROL", "TAG_CHARACTER", "ZERO_WIDTH")

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_TAG = "\U000e0000-\U000e007f"
_ZERO_WIDTH = "\u00ad\u034f\u180e\u200b-\u200d\u2060-\u2065\u206a-\u206f\ufeff"
_VARIATION = "\ufe00-\ufe0f\U000e0100-\U000e01ef"

# The three flags that Unicode recommends for interchange; any other tag sequence can carry a hidden message.
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
_HIDDEN = re.compile(
    f"(?P<flag>{_FLAGS})|(?P<BIDI_CONTROL>[{_BIDI}])|(?P<TAG_CHARACTER>[{_TAG}])"
    f"|(?P<ZERO_WIDTH>[{_ZERO_WIDTH}]|(?<=[{_VARIATION}])[{_VARIATION}])"
)
_ZWNJ, _ZWJ = "\u200c", "\u200d"
_EMOJI = re.compile("[\u00a9\u00ae\u2190-\u2bff\u3030\u303d\u3297\u3299\ufe0e\ufe0f\U0001f000-\U0001faff]")
_CURSIVE = re.compile("[\u0600-\u08ff\u1800-\u18af\ufb50-\ufdff\ufe70-\ufefc]")
_INDIC = re.compile("[\u0900-\u0dff\u0f00-\u109f\u1700-\u17ff\u1a20-\u1b7f]")


def normalise(text: str) -> tuple[str, dict[str, int]]:
    """The text without its hidden characters, and how many of each of `HIDDEN_KINDS` were removed.

    Joiners stay inside emoji and in scripts whose spelling needs them.
    """
    counts: dict[str, int] = {}
    if text.isascii():
        return text, counts

    def remove(match: re.Match[str]) -> str:
        kind = match.lastgroup
        if kind is None or kind == "flag" or _joins(text, match.start()):
            return match.group()
        counts[kind] = counts.get(kind, 0) + 1
        return ""

    return _HIDDEN.sub(remove, text), counts


def _joins(text: str, at: int) -> bool:
    if text[at] not in (_ZWNJ, _ZWJ):
        return False
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    if _INDIC.match(before):
        return True
    if _CURSIVE.match(before):
        return bool(_CURSIVE.match(after))
    return text[at] == _ZWJ and bool(_EMOJI.match(before) and _EMOJI.match(after))
