"""Characters a reader cannot see: found, counted and removed.

Unicode's own names: Bidi_Control, the tag block, and what shows nothing: Default_Ignorable_Code_Point (UAX #44),
the interlinear marks and the blanks that are letters or symbols. One of them inside a token would hide it from
every pattern. They stay where a script or an emoji is spelled with them (UAX #9, UTS #51, UTS #37).
"""

import re

__all__ = ["HIDDEN_CLASS", "HIDDEN_KINDS", "normalise"]

HIDDEN_KINDS = ("BIDI_CONTROL", "TAG_CHARACTER", "ZERO_WIDTH")

_BIDI = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_TAG = r"\U000e0000-\U000e007f"
_VARIATION = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
# Spelled with: joiners, the variation selectors of Mongolian, the fillers of old Korean syllables.
_SPELLING = r"\u115f\u1160\u180b-\u180d\u180f\u200c\u200d"
_NOTHING_SHOWN = (
    r"\u00ad\u034f\u17b4\u17b5\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e00ff\U000e01f0-\U000e0fff"
)
_BRAILLE, _BLANK_BRAILLE = r"\u2800-\u28ff", "\u2800"

HIDDEN_CLASS = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
)
"""The same within four hexadecimal digits, for the character class of a JSON Schema's pattern."""

# The three flags that Unicode recommends for interchange; any other tag sequence can carry a hidden message.
_FLAGS = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
_HIDDEN = re.compile(
    f"(?P<flag>{_FLAGS})|(?P<keycap>[0-9#*]\ufe0f\u20e3)|(?P<braille>[{_BRAILLE}]+)"
    f"|(?P<BIDI_CONTROL>[{_BIDI}])|(?P<TAG_CHARACTER>[{_TAG}])"
    f"|(?P<ZERO_WIDTH>[{_NOTHING_SHOWN}{_VARIATION}{_SPELLING}])"
)
_ZWNJ, _ZWJ = "\u200c", "\u200d"
_EMOJI = re.compile(
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299\ufe0e\ufe0f\U0001f000-\U0001faff]"
)
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_CURSIVE = re.compile("[\u0600-\u08ff\u1800-\u180a\u1810-\u18af\ufb50-\ufdff\ufe70-\ufefc]")
_INDIC = re.compile("[\u0900-\u0dff\u0f00-\u109f\u1700-\u17b3\u17b6-\u17ff\u1a20-\u1b7f]")
_MONGOLIAN = re.compile("[\u1810-\u18af]")
_JAMO = re.compile("[\u1100-\u115e\u1161-\u11ff\ua960-\ua97c\ud7b0-\ud7fb]")


def normalise(text: str) -> tuple[str, dict[str, int]]:
    """The text without its hidden characters, and how many of each of `HIDDEN_KINDS` were removed.

    What remains has none that would be removed.
    """
    counts: dict[str, int] = {}
    if text.isascii():
        return text, counts

    def remove(match: re.Match[str]) -> str:
        kind, found = match.lastgroup, match[0]
        if kind in (None, "flag", "keycap") or _spells(text, match):
            return found
        if kind == "braille":
            if found.strip(_BLANK_BRAILLE):
                return found
            kind = "ZERO_WIDTH"
        counts[str(kind)] = counts.get(str(kind), 0) + len(found)
        return ""

    while (shorter := _HIDDEN.sub(remove, text)) != text:
        # What a removed one stood beside may have been its reason to stay.
        text = shorter
    return text, counts


def _spells(text: str, match: re.Match[str]) -> bool:
    """Whether the character belongs to how its neighbours are written."""
    char, at = match[0], match.start()
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    if char in (_ZWNJ, _ZWJ):
        if _INDIC.match(before):
            return True
        if _CURSIVE.match(before):
            return bool(_CURSIVE.match(after))
        return char == _ZWJ and bool(_EMOJI.match(before) and _EMOJI.match(after))
    if "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":
        # The class of emoji has two selectors in it, for the joiner after them.
        varied = _IDEOGRAPH.match(before) or (_EMOJI.match(before) and not "\ufe00" <= before <= "\ufe0f")
        return bool(varied or _INDIC.match(before))
    if "\u180b" <= char <= "\u180f" and char != "\u180e":
        return bool(_MONGOLIAN.match(before))
    return char in "\u115f\u1160" and bool(_JAMO.match(before) or _JAMO.match(after))
