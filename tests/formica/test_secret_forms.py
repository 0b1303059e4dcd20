"""A secret of the daemon is recognised however it is dressed up."""

from __future__ import annotations

import base64
import codecs
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formica.rules.secret_forms import LiveSecrets

SECRET = "fk_Zq7Lw2Xv9Rb4Tn6Yp1Mc3Kd5-Ja8_Hs0"
SECRETS = LiveSecrets([SECRET, "short", "  ", "0123456789abcdef0123456789abcdef"])
RAW = SECRET.encode()


def cut(text: str, by: str, every: int = 7) -> str:
    return by.join(text[at : at + every] for at in range(0, len(text), every))


FORMS = {
    "plain": SECRET,
    "quoted": f'key = "{SECRET}"',
    "upper case": SECRET.upper(),
    **{f"base64 {n}": base64.b64encode(b"x" * n + RAW + b"tail").decode() for n in range(3)},
    **{f"base64 url {n}": base64.urlsafe_b64encode(b"\xff\xfe"[:n] + RAW).decode() for n in range(3)},
    "base64 twice": base64.b64encode(base64.b64encode(b"?" + RAW)).decode(),
    "base64 wrapped": cut(base64.b64encode(RAW).decode(), "\n", 20),
    "base64 reversed": base64.b64encode(RAW).decode()[::-1],
    "base64 of reversed": base64.b64encode(RAW[::-1]).decode(),
    "base32": base64.b32encode(RAW).decode(),
    "url-encoded": "".join(f"%{byte:02X}" for byte in RAW),
    "url-encoded twice": quote("".join(f"%{byte:02x}" for byte in RAW)),
    "hex": RAW.hex(),
    "hex upper case": RAW.hex().upper(),
    "hex with colons": RAW.hex(":"),
    "hex escapes": "".join(f"\\x{byte:02x}" for byte in RAW),
    "hex numbers": ", ".join(f"0x{byte:02x}" for byte in RAW),
    "hex of base64": base64.b64encode(RAW).hex(),
    "octal escapes": "".join(f"\\{byte:03o}" for byte in RAW),
    "unicode escapes": "".join(f"\\u{byte:04x}" for byte in RAW),
    "character codes": ", ".join(str(byte) for byte in RAW),
    "html": "".join(f"&#{byte};" for byte in RAW),
    "rot13": codecs.encode(SECRET, "rot13"),
    "reversed": SECRET[::-1],
    "reversed and cut": cut(SECRET[::-1], " "),
    "cut by newlines": cut(SECRET, "\n"),
    "cut by quotes and plus": '"' + cut(SECRET, '" + "') + '"',
    "cut by quotes over lines": '("' + cut(SECRET, '"\n    "') + '")',
    "cut by zero-width": cut(SECRET, "\u200b", 1),
    "cut by spaces": cut(SECRET, " ", 1),
    "cut by dots": cut(SECRET, ".", 3),
    "in several variables": "\n".join(f"part_{n} = '{SECRET[n : n + 6]}'" for n in range(0, len(SECRET), 6)),
    "full-width": "".join(chr(ord(c) + 0xFEE0) for c in SECRET),
    "utf-16": "\0".join(SECRET),
    "as path": "/".join(SECRET[n : n + 5] for n in range(0, len(SECRET), 5)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_found(form: str) -> None:
    """Alone and in the middle of a text, and the text without it is free of it."""
    text = f"first line\n{FORMS[form]}\nlast line, with some words"
    assert SECRETS.holds(FORMS[form])
    assert SECRETS.holds(text)
    removed = SECRETS.removed(text)
    assert not SECRETS.holds(removed)
    assert "withheld" in removed
    assert removed.startswith("first line")


def test_the_place_is_that_of_the_secret() -> None:
    """From its first to its last line, also where it is cut over several."""
    lines = ["one", "two", *cut(SECRET, "\n").split("\n"), "three"]
    hit = SECRETS.find(lines)
    assert hit is not None
    assert (hit.first, hit.last) == (2, len(lines) - 2)
    assert SECRETS.find(["one", "two"]) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "short",
        "a short text",
        SECRET[: len(SECRET) // 2],
        "deadbeef" * 40,
        "eyJhbGciOiJIUzI1NiJ9",
        "fk_ " * 50,
    ],
)
def test_other_text_is_free(text: str) -> None:
    """Half of a secret, words too short to be one, and other people's encodings are not found."""
    assert not SECRETS.holds(text)
    assert SECRETS.removed(text) == text


@given(st.text(max_size=300))
def test_ordinary_text_comes_back_as_it_was(text: str) -> None:
    """What holds no secret is not changed by looking for one."""
    assert SECRETS.removed(text) == text


@given(
    st.text(alphabet="abcdefghijklmnopqrstuvwxyzABCDEFGHIJ0123456789_-", min_size=16, max_size=60),
    st.binary(max_size=5),
    st.binary(max_size=5),
)
def test_any_secret_is_found_inside_any_base64(secret: str, before: bytes, after: bytes) -> None:
    """Whatever stands around it in the encoded text."""
    encoded = base64.b64encode(before + secret.encode() + after).decode()
    assert LiveSecrets([secret]).holds(encoded) or sum(c.isalnum() for c in secret) < 16


def test_a_secret_learned_later_counts_from_then_on() -> None:
    """One that the server makes after the start is looked for too; none is ever shown."""
    secrets = LiveSecrets()
    assert not secrets.holds(SECRET)
    secrets.add(SECRET)
    assert secrets.holds(SECRET[::-1])
    assert SECRET not in repr(secrets)
