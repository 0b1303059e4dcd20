"""The configuration: `formica.toml`, then ``FORMICA_…`` of the environment, then the credentials folder.

The only module that reads the environment. A wrong, unknown or unbuilt key is one line naming it, before
anything starts. Values stop at `app.py`.
"""

from __future__ import annotations

import os
import re
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from formica.agent_settings import NOT_BUILT, AgentSection, Command, Section

__all__ = ["ConfigurationError", "Settings", "load", "resource"]

PREFIX = "FORMICA_"
NOT_SETTINGS = {"FORMICA_PROMPT_FILE", "FORMICA_CONFIG", "FORMICA_MODEL_URL"}
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:API_?KEY|ACCESS_KEY|SECRET|TOKEN|PASSWORD|PASSWD|KEY)(?:$|_)", re.IGNORECASE
)


class ConfigurationError(Exception):
    """``str()`` is one line that names the key and the remedy."""


class ServerSection(Section):
    url: str = "http://127.0.0.1:8765"
    key: SecretStr | None = None
    key_file: Path | None = None

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
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
        return {True: "first", False: "never"}.get(dry_run, dry_run) if isinstance(dry_run, bool) else dry_run

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


class Settings(BaseSettings):
    """Every section of ``formica.toml``; ``[server] key`` also from ``FORMICA_SERVER__KEY`` or a credential."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", env_ignore_empty=False
    )

    server: ServerSection = Field(default_factory=ServerSection)
    events: EventsSection = Field(default_factory=EventsSection)
    repository: RepositorySection = Field(default_factory=RepositorySection)
    agent: AgentSection = Field(default_factory=AgentSection)
    forge: ForgeSection = Field(default_factory=ForgeSection)
    telegram: TelegramSection = Field(default_factory=TelegramSection)
    policy: PolicySection = Field(default_factory=PolicySection)
    daemon: DaemonSection = Field(default_factory=DaemonSection)

    file_values: ClassVar[dict[str, Any]] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment wins over the file, which comes in as init values."""
        return env_settings, init_settings

    @property
    def server_key(self) -> str:
        """The operator key; raises ConfigurationError when there is none to be had."""
        if self.server.key is not None and self.server.key.get_secret_value().strip():
            return self.server.key.get_secret_value().strip()
        for path in (self.server.key_file, _credential("formica-server-key")):
            if path is not None:
                return _secret_file("server.key_file", path)
        raise ConfigurationError(
            "server.key is missing: set FORMICA_SERVER__KEY or [server] key_file "
            "(the pool server's first start writes operator.key into its state folder)"
        )

    @property
    def model_key(self) -> str | None:
        """The key lent to the model's endpoint; raises ConfigurationError when its file cannot be read."""
        if self.agent.model_key is not None:
            return self.agent.model_key.get_secret_value().strip() or None
        path = self.agent.model_key_file or _credential("formica-model-key")
        return None if path is None else _secret_file("agent.model_key_file", path)

    @property
    def state_folder(self) -> Path:
        if self.daemon.state is not None:
            return self.daemon.state.expanduser().absolute()
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return Path(base) / self.daemon.name


def load(path: Path | None) -> Settings:
    """Read and check everything.

    Raises:
        ConfigurationError: unreadable file, unknown key, wrong value, or a key of something not built.
    """
    values: dict[str, Any] = {}
    if path is not None:
        values = _toml(path)
    _refuse_unknown_environment()
    try:
        settings = Settings(**values)
    except ValidationError as invalid:
        raise ConfigurationError(_sentence(invalid)) from None
    _anchor(settings, path)
    return settings


def protected_areas(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Area to globs, from ``[policy] file`` or the ``policy.toml`` that ships with formica."""
    path = settings.policy.file or resource("config") / "policy.toml"
    areas = _toml(path).get("protected")
    if not isinstance(areas, dict) or not all(
        isinstance(globs, list) and all(isinstance(glob, str) for glob in globs) for globs in areas.values()
    ):
        raise ConfigurationError(f"{path}: [protected] must map area names to lists of globs")
    return {name: tuple(globs) for name, globs in areas.items()}


def resource(name: str) -> Path:
    """A folder that ships with formica (``skills``, ``config``): in the wheel, or beside it in a checkout."""
    packaged = Path(__file__).parent / name
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / name


def live_secrets(settings: Settings) -> list[str]:
    """Every credential this daemon holds or could be robbed of: its settings', its credentials folder's, and
    what its environment calls a secret."""
    found = [settings.server_key, settings.model_key or "", *_secret_values(settings)]
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if folder:
        with suppress(OSError):
            files = [path for path in Path(folder).iterdir() if path.is_file()]
            found += [path.read_text(encoding="utf-8", errors="replace").strip() for path in files]
    found += [
        value for name, value in os.environ.items() if _SECRET_NAME.search(name) and "/" not in value[:1]
    ]
    return [value for value in found if value]


def _secret_values(model: BaseModel) -> list[str]:
    found = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, SecretStr):
            found.append(value.get_secret_value().strip())
        elif isinstance(value, BaseModel):
            found += _secret_values(value)
    return found


def search_path() -> str:
    """The daemon's ``PATH``, for the programs it starts."""
    return os.environ.get("PATH", os.defpath)


def home_folder() -> Path:
    """The home of the user the daemon runs as."""
    return Path.home()


def network_environment() -> dict[str, str]:
    """What git needs of our environment to reach another host, and nothing else of it."""
    wanted = (
        "SSH_AUTH_SOCK",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "HTTPS_PROXY",
        "https_proxy",
        "NO_PROXY",
        "no_proxy",
    )
    return {name: os.environ[name] for name in wanted if name in os.environ}


def notify_socket() -> str | None:
    """systemd's socket, when it started us."""
    return os.environ.get("NOTIFY_SOCKET")


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not valid TOML: {error}") from None


def _refuse_unknown_environment() -> None:
    known = {name.upper() for name in Settings.model_fields}
    for name in os.environ:
        if name.startswith(PREFIX) and name not in NOT_SETTINGS:
            section = name[len(PREFIX) :].split("__", 1)[0].upper()
            if section not in known or "__" not in name:
                raise ConfigurationError(f"{name}: no such setting (sections are {', '.join(sorted(known))})")


def _sentence(invalid: ValidationError) -> str:
    """The first finding as one line; values are never echoed, they may be secrets."""
    first = invalid.errors(include_input=False, include_url=False, include_context=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        reason = "no such key"
    more = invalid.error_count() - 1
    return f"{key}: {reason}" + (f" (and {more} more)" if more else "")


def _anchor(settings: Settings, path: Path | None) -> None:
    """Relative paths of the file are relative to the file."""
    folder = path.absolute().parent if path is not None else Path.cwd()
    if settings.repository.path is not None:
        settings.repository.path = folder / settings.repository.path.expanduser()
    if settings.daemon.state is not None:
        settings.daemon.state = folder / settings.daemon.state.expanduser()
    if settings.policy.file is not None:
        settings.policy.file = folder / settings.policy.file.expanduser()
    if settings.server.key_file is not None:
        settings.server.key_file = folder / settings.server.key_file.expanduser()
    if settings.agent.model_key_file is not None:
        settings.agent.model_key_file = folder / settings.agent.model_key_file.expanduser()


def _credential(name: str) -> Path | None:
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    path = Path(folder) / name if folder else None
    return path if path is not None and path.is_file() else None


def _secret_file(key: str, path: Path) -> str:
    try:
        secret = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"{key}: {path} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{key}: {path} is not text") from None
    if not secret:
        raise ConfigurationError(f"{key}: {path} is empty")
    return secret
