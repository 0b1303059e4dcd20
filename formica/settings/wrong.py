"""What is wrong with a configuration, in one line that names the key, where it stands and the nearest one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

__all__ = ["ConfigurationError", "Known", "nearest_variable", "sentence"]

Known = Mapping[str, Mapping[str, Any]]
"""Section to key to the key's annotation."""


class ConfigurationError(Exception):
    """``str()`` is one line that names the key and the remedy."""


def sentence(
    invalid: ValidationError, *, file: Path | None, variables: Mapping[tuple[str, str], str], known: Known
) -> str:
    """The first finding as one line; values are never echoed, they may be secrets."""
    first = invalid.errors(include_input=False, include_url=False, include_context=False)[0]
    path = [str(part) for part in first["loc"]]
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        reason = f"no such key{_nearest(path, known)}"
    more = invalid.error_count() - 1
    line = f"{'.'.join(path)}: {reason}" + (f" (and {more} more)" if more else "")
    variable = variables.get((path[0], path[1])) if len(path) > 1 else None
    if variable is not None:
        return f"{variable}: {line}"
    return line + (f" (in {file})" if file is not None else "")


def nearest_variable(name: str, known: Known) -> str:
    """ "; did you mean …?" for a variable of the environment, or nothing."""
    names = [f"FORMICA_{section}__{key}".upper() for section in known for key in known[section]]
    ending = name.removeprefix("FORMICA_")
    close = [known_name for known_name in names if known_name.partition("__")[2] == ending]
    close = close or get_close_matches(name, names, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""


def _nearest(path: list[str], known: Known) -> str:
    """ "; did you mean …?" for a key, or a section, that does not exist."""
    *sections, name = path[:2]
    elsewhere = [section for section in known if name in known[section]]
    if elsewhere:
        return f"; did you mean [{elsewhere[0]}] {name}?"
    here = known.get(sections[0], {}) if sections else known
    close = get_close_matches(name, list(here), n=1, cutoff=0.6)
    if not close:
        return ""
    return f"; did you mean {close[0]}?" if sections else f"; did you mean [{close[0]}]?"
