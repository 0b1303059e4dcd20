"""What the process environment says: settings as ``FORMICA_SECTION__KEY``, and what programs of ours need of it.

The only module of formica that reads the environment.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from formica.settings.wrong import ConfigurationError, Known, nearest_variable

__all__ = [
    "credential",
    "credential_secrets",
    "named_secrets",
    "network_environment",
    "notify_socket",
    "search_path",
    "setting_variables",
    "state_home",
    "values",
    "variables",
]

PREFIX = "FORMICA_"
NOT_SETTINGS = {"FORMICA_PROMPT_FILE", "FORMICA_CONFIG", "FORMICA_MODEL_URL"}
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_KEY|SECRET|TOKEN|PASSWORD|PASSWD|KEY)(?:$|_)", re.IGNORECASE
)


def setting_variables(known: Known) -> dict[tuple[str, str], str]:
    """(section, key) to the variable that gives it.

    Raises:
        ConfigurationError: a variable of ours that belongs to no section.
    """
    found = {}
    for name in os.environ:
        if not name.startswith(PREFIX) or name in NOT_SETTINGS:
            continue
        section, divided, key = name[len(PREFIX) :].lower().partition("__")
        if not divided or section not in known:
            raise ConfigurationError(
                f"{name}: no such setting{nearest_variable(name, known)} "
                f"(sections are {', '.join(sorted(section.upper() for section in known))})"
            )
        found[section, key] = name
    return found


def values(given: Mapping[tuple[str, str], str], known: Known) -> dict[str, dict[str, Any]]:
    """The settings of the environment, a list as a JSON array or words split as a shell would.

    Raises:
        ConfigurationError: a list or table that is none; names the variable and not its value.
    """
    found: dict[str, dict[str, Any]] = {}
    for (section, key), name in given.items():
        shape = _shape(known[section].get(key))
        found.setdefault(section, {})[key] = _value(name, os.environ[name], shape)
    return found


def _value(name: str, text: str, shape: type | None) -> Any:
    if shape is dict or (shape is list and text.lstrip().startswith("[")):
        kind = "array" if shape is list else "object"
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, shape):
            raise ConfigurationError(f"{name}: is not a JSON {kind}")
        return value
    if shape is list:
        try:
            return shlex.split(text)
        except ValueError as error:
            raise ConfigurationError(f"{name}: cannot be split into words ({error})") from None
    return text


def _shape(annotation: Any) -> type | None:
    """``list`` or ``dict`` when the annotation is one, perhaps optional."""
    origin = get_origin(annotation)
    if origin in (list, dict):
        return list if origin is list else dict
    if origin is Annotated:
        return _shape(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return next((shape for part in get_args(annotation) if (shape := _shape(part))), None)
    return None


def variables(names: Sequence[str]) -> dict[str, str]:
    """Those of the named variables that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


def credential(name: str) -> Path | None:
    """A file of systemd's credentials folder."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder) / name if folder else None
    return path if path is not None and path.is_file() else None


def credential_secrets() -> list[str]:
    """Everything in systemd's credentials folder."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    found: list[str] = []
    if folder:
        with suppress(OSError):
            files = [path for path in Path(folder).iterdir() if path.is_file()]
            found += [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]
    return found


def named_secrets() -> list[str]:
    """The values of variables whose names say that they are secrets."""
    return [value for name, value in os.environ.items() if _SECRET_NAME.search(name) and "/" not in value[:1]]


def state_home() -> Path:
    """Where programs of this user keep their state."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def search_path() -> str:
    """The daemon's ``PATH``, for the programs it starts."""
    return os.environ.get("PATH", os.defpath)


def network_environment() -> dict[str, str]:
    """What git needs of our environment to reach another host, and nothing else of it."""
    return variables(
        (
            "SSH_AUTH_SOCK",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "HTTPS_PROXY",
            "https_proxy",
            "NO_PROXY",
            "no_proxy",
        )
    )


def notify_socket() -> str | None:
    """systemd's socket, when it started us."""
    return os.environ.get("NOTIFY_SOCKET")
