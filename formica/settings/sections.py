"""The sections of ``formica.toml``: each key with its default and what it accepts. Pure."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

__all__ = [
    "AgentSection",
    "DaemonSection",
    "EventsSection",
    "ForgeSection",
    "PolicySection",
    "RepositorySection",
    "ServerSection",
    "TelegramSection",
]

RUN_VARIABLES = {"PATH", "HOME", "TMPDIR", "LD_PRELOAD", "LD_LIBRARY_PATH", "FORMICA_PROMPT_FILE"}
NOT_BUILT = "is not built into this version"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _words(value: object) -> object:
    """An argument list, or one string split as a shell would, without a shell."""
    return shlex.split(value) if isinstance(value, str) else value


Command = Annotated[list[str], BeforeValidator(_words), Field(min_length=1)]


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and url.isascii() and url.isprintable() and parts.port != 0
    except ValueError:
        return False


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ServerSection(Section):
    url: str = "http://127.0.0.1:8765"
    key: SecretStr | None = None
    key_file: Path | None = None

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        if not _has_host(url):
            raise ValueError("must name a host, and a port from 1 to 65535 if any")
        if "@" in url.split("//", 1)[1].split("/", 1)[0]:
            raise ValueError("must not hold credentials; the key goes into server.key or server.key_file")
        return url


class EventsSection(Section):
    intake: Literal["webhook", "poll", "sse"] = "webhook"
    listen: str = "127.0.0.1:0"
    entity_types: list[str] | None = None
    event_types: list[str] | None = None
    entity_ids: list[str] | None = None

    @field_validator("intake")
    @classmethod
    def _built(cls, intake: str) -> str:
        if intake == "sse":
            raise ValueError(f"'sse' {NOT_BUILT}: use webhook or poll")
        return intake

    @field_validator("listen")
    @classmethod
    def _host_and_port(cls, listen: str) -> str:
        host, colon, port = listen.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65_535:
            raise ValueError("must be host:port, for example 127.0.0.1:0")
        return listen


class RepositorySection(Section):
    path: Path | None = None
    url: str | None = None
    default_branch: str | None = None
    test_command: Command | None = None
    setup_command: Command | None = None


class AgentSection(Section):
    adapter: Literal["command"] = "command"
    command: Command | None = None
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 1_800.0
    stall_seconds: Annotated[float, Field(gt=0, le=86_400)] = 600.0
    sandbox: Literal["auto", "required", "off"] = "auto"
    endpoints: list[str] = Field(default_factory=list)
    url_variables: dict[str, str] = Field(default_factory=dict)
    pass_env: list[str] = Field(default_factory=list)
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
            if not _VARIABLE.fullmatch(name) or name in RUN_VARIABLES:
                raise ValueError(f"{name!r} is not a variable a run can be given")
            if not any(url == endpoint or url.startswith(f"{endpoint}/") for endpoint in endpoints):
                raise ValueError(f"{name} must be one of agent.endpoints, or below one")
        return variables

    @field_validator("pass_env")
    @classmethod
    def _not_ours(cls, names: list[str]) -> list[str]:
        for name in names:
            if not _VARIABLE.fullmatch(name):
                raise ValueError("each must be the name of a variable, not a value")
            if name in RUN_VARIABLES or name.upper().startswith(("FORMICA_", "POOL_", "LD_")):
                raise ValueError(f"{name} is never handed to a run")
        return list(dict.fromkeys(names))

    @field_validator("adapter", mode="before")
    @classmethod
    def _built(cls, adapter: object) -> object:
        if adapter != "command":
            raise ValueError(f"{adapter!r} {NOT_BUILT}: use command")
        return adapter


class ForgeSection(Section):
    kind: Literal["local"] = "local"
    repository: str | None = None
    token: SecretStr | None = None
    api_url: str | None = None

    @field_validator("kind", mode="before")
    @classmethod
    def _built(cls, kind: object) -> object:
        if kind == "github":
            raise ValueError(f"'github' {NOT_BUILT}: use local")
        return kind

    @field_validator("token", "api_url", mode="before")
    @classmethod
    def _github_only(cls, value: object) -> object:
        if value is not None:
            raise ValueError(f"{NOT_BUILT}: it belongs to the github forge")
        return value


class TelegramSection(Section):
    token: SecretStr | None = None
    approvers: list[int] | None = None
    viewers: list[int] | None = None
    base_url: str | None = None

    @field_validator("*", mode="before")
    @classmethod
    def _unbuilt(cls, value: object) -> object:
        if value is not None:
            raise ValueError(f"{NOT_BUILT}: use the command line (formica inbox, go, shipit)")
        return value


class PolicySection(Section):
    reporting_mode: Literal["off", "consent", "proactive"] = "consent"
    auto_fix: bool = False
    dry_run: Literal["first", "always", "never"] = "first"
    max_workers: Annotated[int, Field(ge=1, le=64)] = 4
    max_prs_per_hour: Annotated[int, Field(ge=0, le=1_000)] = 5
    max_open_prs: Annotated[int, Field(ge=0, le=1_000)] = 10
    dirty_tree_policy: Literal["abort"] = "abort"
    max_files: Annotated[int, Field(ge=1)] = 20
    max_lines: Annotated[int, Field(ge=1)] = 800
    max_deleted_files: Annotated[int, Field(ge=0)] = 5
    approval_hours: Annotated[float, Field(gt=0)] = 72.0
    failures_per_item: Annotated[int, Field(ge=1)] = 3
    failures_per_hour: Annotated[int, Field(ge=1)] = 10
    minutes_per_item: Annotated[float, Field(gt=0)] = 180.0
    minutes_per_day: Annotated[float, Field(gt=0)] = 1_440.0
    cost_per_run: Annotated[float, Field(ge=0)] = 0.0
    cost_per_day: Annotated[float, Field(ge=0)] = 0.0
    file: Path | None = None

    @field_validator("cost_per_day")
    @classmethod
    def _unknown_cost_counts(cls, cost_per_day: float, info: ValidationInfo) -> float:
        if cost_per_day and not info.data.get("cost_per_run", True):
            raise ValueError("needs policy.cost_per_run: what a run of unknown cost counts as")
        return cost_per_day

    @field_validator("dry_run", mode="before")
    @classmethod
    def _true_means_first(cls, dry_run: object) -> object:
        said = {True: "first", "true": "first", False: "never", "false": "never"}
        return said.get(dry_run, dry_run) if isinstance(dry_run, bool | str) else dry_run

    @field_validator("dirty_tree_policy", mode="before")
    @classmethod
    def _abort_only(cls, value: object) -> object:
        if value in ("stash", "ignore"):
            raise ValueError(f"{value!r} does not exist: a dirty source is never used, only abort")
        return value


class DaemonSection(Section):
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,31}$")] = "formica"
    state: Path | None = None
    reconcile_seconds: Annotated[float, Field(gt=0, le=3_600)] = 60.0
    lease_seconds: Annotated[float, Field(ge=1, le=3_600)] = 30.0
    drain_seconds: Annotated[float, Field(ge=0, le=600)] = 10.0
    min_free_bytes: Annotated[int, Field(ge=0)] = 2 * 1024**3
    workspace_bytes: Annotated[int, Field(ge=1024**2)] = 10 * 1024**3
    transcript_days: Annotated[float, Field(gt=0)] = 90.0
    transcript_bytes: Annotated[int, Field(ge=0)] = 1024**3
