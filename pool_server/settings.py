"""The server's settings: flags win over ``POOL_…`` variables, these over a TOML file, these over defaults.

The only reader of the environment. A setting that is wrong, unknown or not built yet is a ``SettingsError``
naming the key; values are never repeated, since some are secrets. Source: the wire contract, section 9.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

__all__ = ["Settings", "SettingsError", "default_state", "load_settings"]

PREFIX = "POOL_"
CONFIG_VARIABLE = "POOL_CONFIG"
NOT_BUILT_YET = {
    "github_token": "the GitHub mirror is not built in yet",
    "github_webhook_secret": "the GitHub mirror is not built in yet",
}

Count = Annotated[int, Field(ge=0, le=1_000_000)]
Names = Annotated[tuple[str, ...], NoDecode]


class SettingsError(Exception):
    """A wrong setting; the message is one line and names the key."""


def default_state() -> Path:
    """``$XDG_STATE_HOME/pool-server``, or below ``~/.local/state``."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state"
    return root / "pool-server"


class Settings(BaseSettings):
    """Everything the server can be told; seconds, days and counts as their names say, 0 is no limit."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)

    host: Annotated[str, Field(min_length=1, max_length=253)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8765
    """0 takes a free one; the log line ``listening`` says which."""
    state: Path = Field(default_factory=default_state)
    database: str | None = None
    """``sqlite:///PATH``; without it ``pool.sqlite3`` in the state folder."""
    allowed_hosts: Names = ()
    """Further names clients may use in ``Host``, as behind a proxy."""
    trusted_proxies: Names = ()
    """Addresses or networks whose ``X-Forwarded-For`` is believed."""

    request_timeout_seconds: Annotated[float, Field(gt=0, le=3_600)] = 30
    """For a request to arrive whole, and for a client to go on reading its answer."""
    max_connections: Count = 4_096
    """At most as many as the process may have files open, with some to spare."""
    max_connections_per_address: Count = 2_048

    product_version: Annotated[str, Field(max_length=256)] | None = None
    guest_ttl_seconds: Annotated[int, Field(ge=1, le=10 * 365 * 86_400)] = 30 * 86_400
    allow_anonymous_submit: bool = True
    event_retention_days: Annotated[int, Field(ge=1, le=36_500)] = 30

    allow_private_webhooks: bool = False
    webhook_timeout_seconds: Annotated[float, Field(gt=0, le=300)] = 10

    rate_anonymous_per_minute: Count = 30
    rate_guest_per_minute: Count = 30
    rate_posts_per_minute: Count = 10
    rate_votes_per_minute: Count = 30
    rate_joins_per_hour: Count = 10

    github_token: SecretStr | None = None
    github_webhook_secret: SecretStr | None = None

    @field_validator("allowed_hosts", "trusted_proxies", mode="before")
    @classmethod
    def _split_at_commas(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return tuple(value) if isinstance(value, list) else value

    @field_validator("trusted_proxies")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for part in value:
            try:
                ipaddress.ip_network(part)
            except ValueError:
                raise ValueError("each must be an address or a network such as 10.0.0.0/8") from None
        return value

    @field_validator("product_version")
    @classmethod
    def _blank_is_absent(cls, value: str | None) -> str | None:
        return (value or "").strip() or None

    @field_validator("state")
    @classmethod
    def _home(cls, value: Path) -> Path:
        return value.expanduser()

    @field_validator("database")
    @classmethod
    def _only_sqlite(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme.startswith("postgres"):
            raise ValueError("postgresql is not built in yet")
        if parts.scheme != "sqlite" or parts.netloc or len(parts.path) < 2:
            raise ValueError("must be a URL like sqlite:////absolute/path/pool.sqlite3")
        return value

    @property
    def database_path(self) -> Path:
        """Where SQLite keeps the pool."""
        if self.database is None:
            return self.state / "pool.sqlite3"
        return Path(urlsplit(self.database).path[1:])

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Flags, then environment, then the file that ``load_settings`` read for this call."""
        given = dict(init_settings())
        from_file = given.pop("_file", {})
        return (
            InitSettingsSource(settings_cls, init_kwargs=given),
            env_settings,
            InitSettingsSource(settings_cls, init_kwargs=from_file),
        )


def load_settings(flags: Mapping[str, Any] | None = None, config: Path | None = None) -> Settings:
    """Settings from ``flags`` (None values are absent), the environment and the TOML file.

    Raises:
        SettingsError: a wrong or unknown setting, or a file that cannot be read.
    """
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    _refuse_unknown_variables()
    named = config or (Path(os.environ[CONFIG_VARIABLE]) if os.environ.get(CONFIG_VARIABLE) else None)
    from_file = _read_file(named) if named else {}
    try:
        settings = Settings(**{**given, "_file": from_file})
    except ValidationError as invalid:
        raise SettingsError(_in_one_line(invalid, given, from_file)) from None
    for name, reason in NOT_BUILT_YET.items():
        if getattr(settings, name) is not None:
            raise SettingsError(f"{_source(name, given, from_file)}: {reason}")
    return settings


def _refuse_unknown_variables() -> None:
    for variable in os.environ:
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable.removeprefix(PREFIX).lower() not in Settings.model_fields:
            raise SettingsError(f"{variable}: no such setting")


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as unreadable:
        raise SettingsError(f"{path}: cannot be read ({unreadable.strerror})") from None
    except ValueError as malformed:
        raise SettingsError(f"{path}: not valid TOML: {malformed}") from None
    for name in content:
        if name not in Settings.model_fields:
            raise SettingsError(f"{path}: {name}: no such setting")
    return content


def _in_one_line(invalid: ValidationError, given: Mapping[str, Any], from_file: Mapping[str, Any]) -> str:
    first = invalid.errors(include_input=False, include_url=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    return f"{_source(name, given, from_file)}: {first['msg'].removeprefix('Value error, ')}"


def _source(name: str, given: Mapping[str, Any], from_file: Mapping[str, Any]) -> str:
    """How the person who set it knows it."""
    if name in given:
        return f"--{name.replace('_', '-')}"
    if os.environ.get(PREFIX + name.upper()):
        return PREFIX + name.upper()
    return name if name in from_file else PREFIX + name.upper()
