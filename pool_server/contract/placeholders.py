"""What stands where a secret would: variables, dictionary words, runs, code.

A report is worth its evidence, so a value is taken for a secret only when none of these explains it.
"""

import hashlib
import re

__all__ = [
    "is_code",
    "is_placeholder",
    "is_published",
    "is_worded",
    "looks_random",
    "looks_symbolic",
    "spells_words",
]

_PLACEHOLDER_WORDS = re.compile(
    r"example|your|changeme|change[_-]me|placeholder|redacted|dummy|sample|insert|replace|todo|"
    r"xxxx|\*\*\*|\.\.\.|…|####|_here\b|not-a-real|mock[_-]|hidden|removed|masked|censored",
    re.IGNORECASE,
)
_VARIABLE = re.compile(
    r"\$\{?\{? ?[A-Za-z_0-9]|\$\(|\{\{|\{[\w.]*\}|%[\w]+%|%[sdr(]|#\{|<|\[[A-Za-z_ ]+\]$|@[A-Z_]+@$|&lt;",
    re.ASCII,
)
_EMBEDDED_VARIABLE = re.compile(
    r"\$\{\{? ?[A-Za-z_][\w.:-]* ?\}|\{\{ ?[A-Za-z_][\w.]* ?\}\}|\$[A-Z_]{3,}\b|<[a-z_ -]{3,40}>"
)
_CODE = re.compile(
    r"(?:new |await |not )?(?:[A-Za-z_]\w*(?:\.|->|::))*[A-Za-z_$]\w*[!?]?(?:\(|\[[\w'\"-]|\.[a-zA-Z_]\w*\(|->\w|::\w)"
    r"|(?:process|os|env|self|this|config|settings|secrets|vars|args|ctx|options|request|req|props|data|cfg|opts|params)"
    r"(?:\.|\[|->|$)"
    r"|(?:function|lambda|async|null|nil|none|undefined|true|false|string|str|int|bool|boolean|number|any|object)\b",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?:https?|file|s3|gs)://|(?:\.{0,2}|~)/[\w.-]+(?:/|$)|[A-Za-z]:\\|[\w./-]+\.[a-z]{2,5}$", re.IGNORECASE
)
_DIGITS, _LETTERS = "01234567890", "abcdefghijklmnopqrstuvwxyz"
_DIGIT = re.compile(r"[0-9]")
_SAME_CLASS = re.compile(r"[0-9]+|[A-Z]+|[a-z]+")
_CAMEL = re.compile(r"[A-Z](?=[a-z]{0,3}[aeiou])[a-z]{4,}")
_LETTER_RUN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_CHUNK = re.compile(r"[A-Za-z0-9]+")


def is_placeholder(value: str) -> bool:
    """Whether the value is a variable, a worded stand-in or a run such as `xxxx` or `abcdefgh…`."""
    if _VARIABLE.match(value) or _EMBEDDED_VARIABLE.search(value):
        return True
    # A long random value spells short words by chance.
    return bool(len(value) <= 64 and _PLACEHOLDER_WORDS.search(value)) or _is_run(value[-64:])


def is_code(value: str) -> bool:
    """Whether the value reads as an expression, a literal or a path rather than as text."""
    return bool(_CODE.match(value) or _PATH.match(value))


def looks_random(value: str) -> bool:
    """Whether some part of the value changes between cases and digits as generated text does."""
    chunks = _CHUNK.findall(value)
    return any(map(_is_random, chunks)) or (
        len(chunks) > 2 and len(value) >= 20 and _is_shuffled("".join(chunks))
    )


def _is_random(chunk: str) -> bool:
    size = len(chunk)
    if size < 8 or (changes := _changes(chunk)) < 3:
        return False
    if _DIGIT.search(chunk):
        return changes >= 0.12 * size
    # Letters alone: names in camel case change as often, but their words are longer.
    words = len(_LETTER_RUN.findall(chunk))
    return size < 3.5 * words if size >= 16 else size >= 12 and size < 2.5 * words


def _is_shuffled(chunk: str) -> bool:
    return _changes(chunk) >= 0.25 * len(chunk)


def _changes(chunk: str) -> int:
    return len(_SAME_CLASS.findall(chunk)) - 1


def _is_run(value: str) -> bool:
    if len(value) < 6:
        return False
    if 2 * max(map(value.count, set(value))) > len(value):
        return True
    lowered = value.lower()
    return lowered in _DIGITS or lowered in _LETTERS or _LETTERS[:16] in lowered


_ONE_WORD = r"(?:[A-Z]?[a-z]{1,32}(?:[A-Z][a-z]{2,24}){0,6}|[A-Z]{1,32})"
_WORDED = re.compile(rf"{_ONE_WORD}(?:[-_. ,/:!?'+]{{1,3}}(?:{_ONE_WORD}|\d{{1,2}})){{0,24}}[-_. ,!?]{{0,3}}")


def is_worded(value: str) -> bool:
    """Whether the value is made of words, as labels, names and prose are."""
    return bool(_WORDED.fullmatch(value[:256]))


def spells_words(value: str) -> bool:
    """Whether words in camel case make up the value, as in `PersonalAccessToken0123`."""
    words = _CAMEL.findall(value)
    return len(words) > 2 and 9 * sum(map(len, words)) >= 4 * len(value)


def looks_symbolic(value: str) -> bool:
    """Whether the value is as rich in punctuation as a generated password."""
    symbols = sum(not char.isalnum() and char not in "-_./:" for char in value)
    return symbols >= 4


# Keys their owners publish in pages and manuals, by digest so that no scanner mistakes this file for a leak.
_PUBLISHED = (
    "0b476bdf9acf2123 2037abcaffb2b777 27a9a42931dff7eb 37f8f09bdf12c2f2 3a8b61d0f636b007 "
    "3f370c9dd8225c63 49f777db995e8260 4c98242dcadc8b29 78314b11be2e5815 8731261cb72d8626 "
    "a19f89ab3555eac1 a6c814bc555ae62c dc0fcf046c61640c e4a5542bb7fd7b67 ea9bb1082cf95663 "
    "eb540d2b6ee2a0a4 f56e323494a6ffc2 "
)


def is_published(value: str) -> bool:
    """Whether the value is a key known to be public."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:16] in _PUBLISHED
