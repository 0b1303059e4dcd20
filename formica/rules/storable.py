"""What enters a plan: bounded, valid Unicode, and without credentials, whatever a run or a repository held.

The server refuses a record that is too large or holds a credential, whole; an item must not be lost for that.
"""

from __future__ import annotations

import json
from typing import Any

from pool_server.contract.redaction import CREDENTIAL_KINDS, Redactor

__all__ = ["storable"]

Json = dict[str, Any]
LIMIT_BYTES = 128 * 1024
CAPS = ((4_000, 200), (1_000, 60), (300, 20), (120, 5))
"""Characters a text and entries a list may have; the first that fits is taken."""


def storable(fields: Json) -> Json:
    """``fields`` as the server takes them; texts and lists are cut, and say so."""
    redactor = Redactor(CREDENTIAL_KINDS)
    for characters, entries in CAPS:
        bounded = {name: _bounded(value, characters, entries, redactor) for name, value in fields.items()}
        if len(json.dumps(bounded)) <= LIMIT_BYTES:
            break
    return bounded


def _bounded(value: Any, characters: int, entries: int, redactor: Redactor) -> Any:
    if isinstance(value, str):
        return redactor.text(_valid(value, characters))
    if isinstance(value, list):
        kept = [_bounded(entry, characters, entries, redactor) for entry in value[:entries]]
        cut = len(value) - entries
        return (
            [*kept, f"… and {cut} more"]
            if cut > 0 and all(isinstance(entry, str) for entry in kept)
            else kept
        )
    if isinstance(value, dict):
        return {
            _valid(str(name), 120): _bounded(entry, characters, entries, redactor)
            for name, entry in list(value.items())[: max(entries, 60)]
        }
    return value


def _valid(text: str, characters: int) -> str:
    text = text[: characters + 1].replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= characters else text[: characters - 1] + "…"
