"""The section of `formica.toml` that says which agent works, with what, and how far it is kept apart."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationInfo,
    field_validator,
)

__all__ = ["NOT_BUILT", "AgentSection", "Command", "Section"]

NOT_BUILT = "is not built into this version"
RUN_VARIABLES = {"PATH", "HOME", "TMPDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "FORMICA_PROMPT_FILE"}


def _words(value: object) -> object:
    """An argument list, or one string split as a shell would, without a shell."""
    return shlex.split(value) if isinstance(value, str) else value


Command = Annotated[list[str], BeforeValidator(_words), Field(min_length=1)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AgentSection(Section):
    adapter: Literal["command"] = "command"
    command: Command | None = None
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 1_800.0
    stall_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    sandbox: Literal["auto", "required", "off"] = "auto"
    endpoints: list[str] = Field(default_factory=list)
    url_variables: dict[str, str] = Field(default_factory=dict)
    model_key: SecretStr | None = None
    model_key_file: Path | None = None
    model_key_header: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")] = "authorization"
    memory_mb: Annotated[int, Field(ge=64)] = 4_096
    processes: Annotated[int, Field(ge=8)] = 1_024
    disk_mb: Annotated[int, Field(ge=1)] = 4_096
    scratch_mb: Annotated[int, Field(ge=1)] = 1_024

    @field_validator("endpoints")
    @classmethod
    def _addresses(cls, endpoints: list[str]) -> list[str]:
        for url in endpoints:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or not url.isascii():
                raise ValueError("each must be an http:// or https:// URL")
            if parts.username is not None or parts.query or parts.fragment:
                raise ValueError(
                    "must hold no credentials and no query; the key goes into agent.model_key_file"
                )
        return [url.rstrip("/") for url in endpoints]

    @field_validator("url_variables")
    @classmethod
    def _below_endpoints(cls, variables: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        endpoints = info.data.get("endpoints", [])
        for name, url in variables.items():
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or name in RUN_VARIABLES:
                raise ValueError(f"{name!r} is not a variable a run can be given")
            if not any(url == endpoint or url.startswith(f"{endpoint}/") for endpoint in endpoints):
                raise ValueError(f"{name} must be one of agent.endpoints, or below one")
        return variables

    @field_validator("adapter", mode="before")
    @classmethod
    def _built(cls, adapter: object) -> object:
        if adapter != "command":
            raise ValueError(f"{adapter!r} {NOT_BUILT}: use command")
        return adapter
