"""The configuration: `formica.toml`, then ``FORMICA_…`` of the environment, then the credentials folder.

A wrong, unknown or unbuilt key is one line naming it, before anything starts. Values stop at `app.py`.
"""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

from formica.settings.environment import (
    credential,
    credential_secrets,
    named_secrets,
    network_environment,
    notify_socket,
    search_path,
    setting_variables,
    state_home,
)
from formica.settings.environment import values as values_of
from formica.settings.environment import variables as passed
from formica.settings.sections import (
    AgentSection,
    DaemonSection,
    EventsSection,
    ForgeSection,
    PolicySection,
    RepositorySection,
    ServerSection,
    TelegramSection,
)
from formica.settings.wrong import ConfigurationError, Known, sentence

__all__ = [
    "ConfigurationError",
    "Settings",
    "config_file",
    "exposed_secrets",
    "home_folder",
    "live_secrets",
    "load",
    "network_environment",
    "notify_socket",
    "passed_variables",
    "protected_areas",
    "resource",
    "search_path",
]

DEFAULT_FILE = "formica.toml"
NO_CONFIGURATION = "no configuration: pass --config FILE, set FORMICA_CONFIG, or run formica init"
_SHORTEST_PASSED_SECRET = 16


class Settings(BaseModel):
    """Every section of ``formica.toml``; ``[server] key`` also from ``FORMICA_SERVER__KEY`` or a credential."""

    model_config = ConfigDict(extra="forbid")

    server: ServerSection = Field(default_factory=ServerSection)
    events: EventsSection = Field(default_factory=EventsSection)
    repository: RepositorySection = Field(default_factory=RepositorySection)
    agent: AgentSection = Field(default_factory=AgentSection)
    forge: ForgeSection = Field(default_factory=ForgeSection)
    telegram: TelegramSection = Field(default_factory=TelegramSection)
    policy: PolicySection = Field(default_factory=PolicySection)
    daemon: DaemonSection = Field(default_factory=DaemonSection)

    _key_from: str = PrivateAttr(default="")
    _open_files: list[str] = PrivateAttr(default_factory=list)

    @property
    def server_key(self) -> str:
        """The operator key; raises ConfigurationError when there is none to be had."""
        if self.server.key is not None and self.server.key.get_secret_value().strip():
            return _sendable("server.key", self.server.key.get_secret_value().strip())
        for path in (self.server.key_file, credential("formica-server-key")):
            if path is not None:
                return _sendable("server.key_file", _secret_file("server.key_file", path))
        raise ConfigurationError(
            "server.key is missing: set FORMICA_SERVER__KEY or [server] key_file "
            "(the pool server's first start writes operator.key into its state folder)"
        )

    @property
    def model_key(self) -> str | None:
        """The key lent to the model's endpoint; raises ConfigurationError when its file cannot be read."""
        if self.agent.model_key is not None:
            return self.agent.model_key.get_secret_value().strip() or None
        path = self.agent.model_key_file or credential("formica-model-key")
        return None if path is None else _secret_file("agent.model_key_file", path)

    @property
    def state_folder(self) -> Path:
        if self.daemon.state is not None:
            return self.daemon.state.expanduser().absolute()
        return state_home() / self.daemon.name

    @property
    def key_origin(self) -> str:
        """Where the operator key comes from, as the end of a sentence."""
        if self.server.key is not None:
            return self._key_from
        path = self.server.key_file or credential("formica-server-key")
        return f"server.key_file {path}"


def config_file(given: Path | None) -> Path | None:
    """The file to read: the one named, else `formica.toml` here, else none where the environment says enough.

    Raises:
        ConfigurationError: there is no configuration at all.
    """
    if given is not None:
        return given
    if Path(DEFAULT_FILE).is_file():
        return Path(DEFAULT_FILE)
    if {"repository", "forge"} & {section for section, _ in setting_variables(_known())}:
        return None
    raise ConfigurationError(NO_CONFIGURATION)


def load(path: Path | None) -> Settings:
    """Read and check everything.

    Raises:
        ConfigurationError: unreadable file, unknown key, wrong value, or a key of something not built.
    """
    values: dict[str, Any] = _toml(path) if path is not None else {}
    known = _known()
    variables = setting_variables(known)
    merged = dict(values)
    for section, given in values_of(variables, known).items():
        in_file = values.get(section)
        merged[section] = {**(in_file if isinstance(in_file, dict) else {}), **given}
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as invalid:
        raise ConfigurationError(sentence(invalid, file=path, variables=variables, known=known)) from None
    _anchor(settings, path)
    _remember(settings, path, variables)
    return settings


def _known() -> Known:
    sections = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: {key: field.annotation for key, field in section.model_fields.items()}
        for name, section in sections.items()
        if section is not None
    }


def _remember(settings: Settings, path: Path | None, variables: Mapping[tuple[str, str], str]) -> None:
    """Where the operator key came from, and which files with secrets everybody on this host can read."""
    if settings.server.key is not None:
        settings._key_from = variables.get(("server", "key")) or f"server.key in {path}"
    files: dict[str, Path | None] = {
        "server.key_file": settings.server.key_file,
        "agent.model_key_file": settings.agent.model_key_file,
    }
    for section, key in (("server", "key"), ("agent", "model_key")):
        if getattr(getattr(settings, section), key) is not None and (section, key) not in variables:
            files[f"{section}.{key}"] = path
    settings._open_files = [
        f"{key}: every user of this host can read {file}: chmod 600 {file}"
        for key, file in files.items()
        if file is not None and _open_to_all(file)
    ]


def exposed_secrets(settings: Settings) -> list[str]:
    """A sentence for each file with a secret that every user of this host could read when it was loaded."""
    return list(settings._open_files)


def passed_variables(settings: Settings) -> dict[str, str]:
    """The variables of our environment that ``[agent] pass_env`` hands to the agent.

    Raises:
        ConfigurationError: one of them is not set, or holds the operator key.
    """
    found = passed(settings.agent.pass_env)
    for name in settings.agent.pass_env:
        if name not in found:
            raise ConfigurationError(f"agent.pass_env: {name} is not set in the environment of formica")
        if settings.server_key in found[name]:
            raise ConfigurationError(f"agent.pass_env: {name} holds the operator key, which no run is given")
    return found


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
    package = Path(__file__).parents[1]
    return package / name if (package / name).is_dir() else package.parent / name


def live_secrets(settings: Settings) -> list[str]:
    """Every credential this daemon holds or could be robbed of: its settings', its credentials folder's, and
    what its environment calls a secret."""
    found = [settings.server_key, settings.model_key or "", *_secret_values(settings)]
    found += [
        value
        for value in passed(settings.agent.pass_env).values()
        if len(value) >= _SHORTEST_PASSED_SECRET and value.isascii() and not set(value) & set(" /")
    ]
    return [value for value in (*found, *credential_secrets(), *named_secrets()) if value]


def _secret_values(model: BaseModel) -> list[str]:
    found = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, SecretStr):
            found.append(value.get_secret_value().strip())
        elif isinstance(value, BaseModel):
            found += _secret_values(value)
    return found


def home_folder() -> Path:
    """The home of the user the daemon runs as."""
    return Path.home()


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not valid TOML: {error}") from None


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
    if settings.forge.repository is not None:
        settings.forge.repository = _local(folder, settings.forge.repository)
    if settings.repository.url is not None:
        settings.repository.url = _local(folder, settings.repository.url)


def _local(folder: Path, address: str) -> str:
    """A plain path as an absolute one; anything else git takes as it is."""
    if not address or ":" in address:
        return address
    return str(folder / Path(address).expanduser())


def _open_to_all(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH))
    except OSError:
        return False


def _sendable(key: str, secret: str) -> str:
    if not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise ConfigurationError(f"{key}: holds more than one key, or something that is none")
    return secret


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
