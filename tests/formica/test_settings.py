"""The configuration: file, then environment, then credentials; a wrong key is one line that names it."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from formica import settings
from formica.settings import ConfigurationError, Settings, load, protected_areas

REFERENCE = Path(__file__).parents[2] / "config" / "formica.toml"
SECRET = "fk_verysecretverysecretverysecret"


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("FORMICA_") or name == "CREDENTIALS_DIRECTORY":
            monkeypatch.delenv(name)


def written(folder: Path, text: str) -> Path:
    path = folder / "formica.toml"
    path.write_text(text)
    return path


def refusal(folder: Path, text: str) -> str:
    """The one line that a configuration is refused with."""
    with pytest.raises(ConfigurationError) as refused:
        load(written(folder, text))
    return str(refused.value)


def keys() -> dict[str, set[str]]:
    """Every section with its keys."""
    sections = {name: field.annotation for name, field in Settings.model_fields.items()}
    return {
        name: set(section.model_fields)
        for name, section in sections.items()
        if isinstance(section, type) and issubclass(section, BaseModel)
    }


# --- the reference ----------------------------------------------------------------------------------------


def uncommented() -> str:
    """config/formica.toml with every example in force."""
    lines = REFERENCE.read_text().splitlines()
    return "\n".join(re.sub(r"^# (?=[a-z_]+ = )", "", line) for line in lines)


def test_every_setting_is_in_the_reference() -> None:
    """config/formica.toml shows each key that works, and no other."""
    shown = tomllib.loads(uncommented())
    unbuilt = {
        "telegram": keys()["telegram"],
        "forge": {"token", "api_url"},
        "server": {"key"},
        "agent": {"model_key"},
    }
    for section, known in keys().items():
        expected = known - unbuilt.get(section, set())
        assert set(shown.get(section, {})) == expected, section


def test_the_reference_as_shipped_is_the_defaults(tmp_path: Path) -> None:
    """With everything commented out the file changes nothing."""
    assert load(written(tmp_path, REFERENCE.read_text())) == load(None)


def test_the_reference_says_the_true_defaults() -> None:
    """A value shown in the reference is the default, or an example where there is none."""
    examples = {
        "server.key_file",
        "repository.path",
        "repository.url",
        "repository.default_branch",
        "repository.test_command",
        "repository.setup_command",
        "agent.command",
        "agent.model_key_file",
        "forge.repository",
        "policy.file",
        "daemon.state",
        "events.entity_types",
        "events.event_types",
        "events.entity_ids",
    }
    defaults = load(None).model_dump()
    for section, values in tomllib.loads(uncommented()).items():
        for name, value in values.items():
            if f"{section}.{name}" not in examples:
                assert value == defaults[section][name], f"{section}.{name}"


def test_the_defaults_are_the_safe_ones() -> None:
    """Out of the box nothing runs or is published without a person."""
    policy = load(None).policy
    assert (policy.reporting_mode, policy.auto_fix, policy.dry_run) == ("consent", False, "first")
    assert (policy.max_workers, policy.max_prs_per_hour, policy.max_open_prs) == (4, 5, 10)
    assert (load(None).events.intake, load(None).events.listen) == ("webhook", "127.0.0.1:0")
    assert (load(None).agent.sandbox, load(None).daemon.lease_seconds) == ("auto", 30.0)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[policy]\nmax_wrokers = 3", "policy.max_wrokers"),
        ("[polices]\nx = 1", "polices"),
        ("[policy]\nmax_workers = 0", "policy.max_workers"),
        ('[policy]\nmax_workers = "four"', "policy.max_workers"),
        ('[policy]\nreporting_mode = "yolo"', "policy.reporting_mode"),
        ('[policy]\ndirty_tree_policy = "stash"', "policy.dirty_tree_policy"),
        ('[policy]\ndirty_tree_policy = "ignore"', "policy.dirty_tree_policy"),
        ("[policy]\ncost_per_day = 5.0", "policy.cost_per_day"),
        ('[server]\nurl = "ftp://x"', "server.url"),
        ('[server]\nurl = "http://key@host"', "server.url"),
        ('[events]\nlisten = "8080"', "events.listen"),
        ('[events]\nlisten = "host:99999"', "events.listen"),
        ("[agent]\ncommand = []", "agent.command"),
        ('[agent]\ncommand = ""', "agent.command"),
        ("[agent]\ncommand = 'unbalanced \"quote'", "agent.command"),
        ("[agent]\ntimeout_seconds = 0", "agent.timeout_seconds"),
        ('[daemon]\nname = "../x"', "daemon.name"),
        ("[daemon]\nlease_seconds = 0", "daemon.lease_seconds"),
    ],
)
def test_a_wrong_key_or_value_is_one_line_that_names_it(tmp_path: Path, text: str, key: str) -> None:
    """Unknown keys and wrong values are refused before anything starts, by name."""
    line = refusal(tmp_path, text)
    assert line.startswith(f"{key}: ")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[events]\nintake = "sse"', "events.intake"),
        ('[forge]\nkind = "github"', "forge.kind"),
        ('[forge]\ntoken = "ghp_x"', "forge.token"),
        ('[forge]\napi_url = "https://x"', "forge.api_url"),
        ('[telegram]\ntoken = "1:x"', "telegram.token"),
        ("[telegram]\napprovers = [1]", "telegram.approvers"),
        ('[agent]\nadapter = "claude"', "agent.adapter"),
    ],
)
def test_a_key_of_something_not_built_is_refused_by_name(tmp_path: Path, text: str, key: str) -> None:
    """What this version cannot do is not silently ignored."""
    line = refusal(tmp_path, text)
    assert line.startswith(f"{key}: ")
    assert "not built" in line or "is not built" in line


def test_a_secret_is_never_echoed(tmp_path: Path) -> None:
    """Neither a refusal nor a printed configuration shows a key."""
    text = f'[server]\nkey = "{SECRET}"\nkey_flie = "{SECRET}"\n[telegram]\ntoken = "{SECRET}"'
    assert SECRET not in refusal(tmp_path, text)
    loaded = load(written(tmp_path, f'[server]\nkey = "{SECRET}"'))
    assert SECRET not in repr(loaded) + str(loaded)
    assert loaded.server_key == SECRET


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """A missing file, one that is no TOML and one that is no text are one line each."""
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(ConfigurationError, match=re.escape(str(path))):
            load(path)
    assert "not valid TOML" in refusal(tmp_path, "[policy")
    (tmp_path / "formica.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        load(tmp_path / "formica.toml")


# --- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"), [("true", "first"), ("false", "never"), ('"always"', "always"), ('"first"', "first")]
)
def test_dry_run_true_means_first(tmp_path: Path, given: str, meant: str) -> None:
    """A plain yes is the first of each type, a plain no is never."""
    assert load(written(tmp_path, f"[policy]\ndry_run = {given}")).policy.dry_run == meant


@pytest.mark.parametrize("given", ["""["a b", "--c"]""", """'"a b" --c'"""])
def test_a_command_is_words_or_a_line_split_without_a_shell(tmp_path: Path, given: str) -> None:
    """A list is taken as it is, a string is split as by shlex."""
    loaded = load(written(tmp_path, f"[agent]\ncommand = {given}\n[repository]\ntest_command = {given}"))
    assert loaded.agent.command == loaded.repository.test_command == ["a b", "--c"]


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """The file can be used from anywhere."""
    text = '[repository]\npath = "code"\n[daemon]\nstate = "state"\n[policy]\nfile = "policy.toml"\n[server]\nkey_file = "key"'
    loaded = load(written(tmp_path, text))
    assert loaded.repository.path == tmp_path / "code"
    assert loaded.state_folder == tmp_path / "state"
    assert loaded.policy.file == tmp_path / "policy.toml"
    assert loaded.server.key_file == tmp_path / "key"


def test_the_maintainers_own_policy_replaces_the_shipped_one(tmp_path: Path) -> None:
    """[policy] file is read, and a wrong one is refused by its path."""
    (tmp_path / "policy.toml").write_text('[protected]\nmine = ["src/core/*"]')
    loaded = load(written(tmp_path, '[policy]\nfile = "policy.toml"'))
    assert protected_areas(loaded) == {"mine": ("src/core/*",)}
    for wrong in ("", "protected = 3", '[protected]\nmine = "src/*"', "[protected]\nmine = [1]"):
        (tmp_path / "policy.toml").write_text(wrong)
        with pytest.raises(ConfigurationError, match=r"policy\.toml"):
            protected_areas(loaded)


# --- the environment --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "section", "key", "meant"),
    [
        ("FORMICA_POLICY__MAX_WORKERS", "7", "policy", "max_workers", 7),
        ("FORMICA_POLICY__AUTO_FIX", "true", "policy", "auto_fix", True),
        (
            "FORMICA_AGENT__COMMAND",
            "my-agent --headless 'a b'",
            "agent",
            "command",
            ["my-agent", "--headless", "a b"],
        ),
        ("FORMICA_AGENT__COMMAND", '["my-agent", "a b"]', "agent", "command", ["my-agent", "a b"]),
        ("FORMICA_REPOSITORY__TEST_COMMAND", "pytest -q", "repository", "test_command", ["pytest", "-q"]),
        ("FORMICA_EVENTS__ENTITY_TYPES", '["issue"]', "events", "entity_types", ["issue"]),
    ],
)
def test_the_environment_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, section: str, key: str, meant: Any
) -> None:
    """Every key can come from FORMICA_SECTION__KEY, in the same forms, and beats the file."""
    monkeypatch.setenv(name, value)
    loaded = load(written(tmp_path, '[policy]\nmax_workers = 2\nmax_files = 3\n[agent]\ncommand = "other"'))
    assert getattr(getattr(loaded, section), key) == meant
    assert loaded.policy.max_files == 3


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("FORMICA_POLCIY__MAX_WORKERS", "7", "FORMICA_POLCIY__MAX_WORKERS"),
        ("FORMICA_MAX_WORKERS", "7", "FORMICA_MAX_WORKERS"),
        ("FORMICA_POLICY__MAX_WROKERS", "7", "policy.max_wrokers"),
        ("FORMICA_POLICY__MAX_WORKERS", "many", "policy.max_workers"),
        ("FORMICA_TELEGRAM__TOKEN", SECRET, "telegram.token"),
        ("FORMICA_EVENTS__ENTITY_TYPES", "[", "events.entity_types"),
        ("FORMICA_TELEGRAM__APPROVERS", "not json", "telegram.approvers"),
    ],
)
def test_a_wrong_variable_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, named: str
) -> None:
    """A misspelt or wrong variable is refused, and its value is not shown."""
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        load(None)
    line = str(refused.value)
    assert line.lower().startswith(named.lower()) or named.upper().replace(".", "__") in line.upper()
    assert "\n" not in line
    assert SECRET not in line


def test_the_prompt_file_of_an_agent_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What formica gives its agents does not keep a formica inside an agent from starting."""
    monkeypatch.setenv("FORMICA_PROMPT_FILE", "/x")
    monkeypatch.setenv("FORMICA_CONFIG", "/y")
    load(None)


def test_the_key_comes_from_the_variable_the_file_or_the_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order; without any, the line says where to get one."""
    with pytest.raises(ConfigurationError, match=r"server\.key is missing.*key_file"):
        _ = load(None).server_key
    (tmp_path / "formica-server-key").write_text("fk_credential\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert load(None).server_key == "fk_credential"
    (tmp_path / "key").write_text("fk_file\n")
    loaded = load(written(tmp_path, '[server]\nkey_file = "key"'))
    assert loaded.server_key == "fk_file"
    monkeypatch.setenv("FORMICA_SERVER__KEY", SECRET)
    assert load(tmp_path / "formica.toml").server_key == SECRET
    monkeypatch.delenv("FORMICA_SERVER__KEY")
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigurationError, match=r"server\.key_file"):
        _ = loaded.server_key


def test_an_empty_key_is_none(tmp_path: Path) -> None:
    """A blank key or key file is not sent as a key."""
    (tmp_path / "key").write_text("\n")
    for text in ('[server]\nkey = " "', '[server]\nkey_file = "key"'):
        with pytest.raises(ConfigurationError, match=r"server\.key"):
            _ = load(written(tmp_path, text)).server_key


def test_the_state_folder_has_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset, it is the XDG state folder, by the daemon's name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert load(None).state_folder == tmp_path / "formica"
    assert load(written(tmp_path, '[daemon]\nname = "night"')).state_folder == tmp_path / "night"


def test_what_ships_with_formica_is_found() -> None:
    """Skills and config are beside the package or in it."""
    assert (settings.resource("config") / "policy.toml").is_file()
    assert (settings.resource("skills") / "process-issues").is_dir()


# --- what the line helps with -----------------------------------------------------------------------------


def test_the_line_names_the_file_and_the_nearest_key(tmp_path: Path) -> None:
    """A misspelt key is answered with the one that was meant, wherever it belongs."""
    for text, helps in (
        ('[server]\nkey_flie = "x"', "server.key_flie: no such key; did you mean key_file?"),
        ("[polciy]\nx = 1", "polciy: no such key; did you mean [policy]?"),
        ("max_workers = 3", "max_workers: no such key; did you mean [policy] max_workers?"),
        ('[agent]\ntest_command = "x"', "did you mean [repository] test_command?"),
    ):
        line = refusal(tmp_path, text)
        assert helps in line
        assert line.endswith(f"(in {tmp_path / 'formica.toml'})")


@pytest.mark.parametrize(
    ("name", "value", "section", "key", "meant"),
    [
        ("FORMICA_REPOSITORY__SETUP_COMMAND", "false", "repository", "setup_command", ["false"]),
        ("FORMICA_EVENTS__ENTITY_TYPES", "issue plan", "events", "entity_types", ["issue", "plan"]),
        ("FORMICA_AGENT__ENDPOINTS", "https://a.example", "agent", "endpoints", ["https://a.example"]),
        ("FORMICA_POLICY__DRY_RUN", "true", "policy", "dry_run", "first"),
    ],
)
def test_words_of_the_environment_are_words(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, section: str, key: str, meant: object
) -> None:
    """A command called false is a command; a list is JSON or words."""
    monkeypatch.setenv(name, value)
    assert getattr(getattr(load(None), section), key) == meant


def test_only_named_variables_are_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None by default; never ours, never the operator key."""
    monkeypatch.setenv("LICENCE_FOR_AGENT", "abc")
    text = f'[server]\nkey = "{SECRET}"\n[agent]\npass_env = ["LICENCE_FOR_AGENT"]'
    assert settings.passed_variables(load(written(tmp_path, text))) == {"LICENCE_FOR_AGENT": "abc"}
    monkeypatch.setenv("LICENCE_FOR_AGENT", SECRET)
    with pytest.raises(ConfigurationError, match="holds the operator key"):
        settings.passed_variables(load(tmp_path / "formica.toml"))
    for name in ("FORMICA_SERVER__KEY", "POOL_STATE", "PATH", "A=b"):
        assert refusal(tmp_path, f'[agent]\npass_env = ["{name}"]').startswith("agent.pass_env: ")
