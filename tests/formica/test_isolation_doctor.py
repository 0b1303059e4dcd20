"""`formica doctor` tries out what the isolation of this host stops, and says it row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from formica.adapters.broker import Broker, Endpoint
from formica.adapters.isolation import UNCONFINED, Limits, Sandbox
from formica.adapters.isolation_trial import Finding, try_isolation
from formica.app import check_runnable, doctor
from formica.confinement import open_sandbox
from formica.errors import Broken, Refused
from formica.settings import ConfigurationError, Settings, load
from tests.fakes.sandboxes import PATH, confined

NAMES = [
    "home",
    "state folder",
    "writing elsewhere",
    "other processes",
    "environment",
    "network",
    "left-over processes",
    "new user namespaces",
    "limits",
]
# What supervision, a listed environment and the watch achieve without namespaces.
HOLDS_ANYWAY = {"environment", "left-over processes", "limits"}


async def findings(sandbox: Sandbox, tmp_path: Path, **changes: Any) -> dict[str, Finding]:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    options = {"state": tmp_path / "state", "home": home, "path": PATH, "shown": [], "variables": []}
    found = await try_isolation(sandbox, **options | changes)
    assert list((tmp_path / "state").iterdir()) == [], "the trial leaves nothing"
    return {finding.name: finding for finding in found}


async def test_bubblewrap_stops_every_try(tmp_path: Path) -> None:
    """Each thing the probe tries is stopped, and said to be."""
    found = await findings(confined(home=tmp_path / "home"), tmp_path)
    assert list(found) == NAMES
    assert [finding for finding in found.values() if not finding.holds] == []
    assert found["network"].detail == "none"


async def test_without_isolation_each_gap_is_named(tmp_path: Path) -> None:
    """The same probe gets through where nothing stops it: these rows are found, not assumed."""
    found = await findings(Sandbox(limits=Limits()), tmp_path)
    assert {name for name, finding in found.items() if finding.holds} - {
        "new user namespaces"
    } == HOLDS_ANYWAY
    assert "1 entries" in found["home"].detail
    assert "the state folder" in found["writing elsewhere"].detail
    assert "loopback" in found["network"].detail
    bare = await findings(UNCONFINED, tmp_path)
    assert not bare["limits"].holds


async def test_the_toolchain_in_home_is_said_and_no_gap(tmp_path: Path) -> None:
    """What is shown of home on purpose is named; anything else there would be a gap."""
    home = tmp_path / "home"
    tools = home / "tools"
    tools.mkdir(parents=True)
    sandbox = confined(words=[str(tools)], home=home)
    found = await findings(sandbox, tmp_path, shown=[tools])
    assert found["home"].holds
    assert str(tools) in found["home"].detail
    assert not (await findings(sandbox, tmp_path))["home"].holds


async def test_the_broker_is_tried_too(tmp_path: Path) -> None:
    """With endpoints, the run finds the model's address and still no other network."""
    variables = {"FORMICA_MODEL_URL": (0, "")}
    async with Broker([Endpoint("http://127.0.0.1:1")]) as broker:
        sandbox = confined(home=tmp_path / "home", broker=broker, variables=variables)
        found = await findings(sandbox, tmp_path, variables=list(variables))
    assert found["network"].holds
    assert "FORMICA_MODEL_URL" in found["network"].detail


async def test_a_trial_that_cannot_run_is_no_isolation(tmp_path: Path) -> None:
    """Where even the probe does not start, doctor says so instead of guessing."""
    sandbox = confined(limits=Limits(memory_bytes=1 << 20))
    with pytest.raises(Broken, match="did not run"):
        await findings(sandbox, tmp_path)


@contextmanager
def configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *, bubblewrap: bool = True
) -> Iterator[Path]:
    """A configuration file, and a PATH with or without bubblewrap."""
    tools = tmp_path / "bin"
    tools.mkdir(exist_ok=True)
    for name in ("git", "bwrap") if bubblewrap else ("git",):
        if not (tools / name).exists():
            (tools / name).symlink_to(f"/usr/bin/{name}")
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("FORMICA_SERVER__KEY", "nt_key_x")
    path = tmp_path / "formica.toml"
    path.write_text(
        f'[repository]\nurl = "{tmp_path}"\n[forge]\nrepository = "{tmp_path}"\n[daemon]\nstate = "state"\n'
        f'[server]\nurl = "http://127.0.0.1:1"\n[agent]\ncommand = ["git"]\n{text}'
    )
    yield path


@pytest.mark.parametrize(
    ("text", "bubblewrap", "rule"),
    [
        ('[policy]\nreporting_mode = "proactive"\nauto_fix = true\n', True, None),
        ('[policy]\nreporting_mode = "proactive"\n', False, "policy.reporting_mode"),
        ("[policy]\nauto_fix = true\n", False, "policy.auto_fix"),
        ('sandbox = "off"\n[policy]\nauto_fix = true\n', False, None),
        ('sandbox = "off"\n[policy]\nauto_fix = true\n', True, None),
        ('sandbox = "required"\n', True, None),
        ('sandbox = "required"\n', False, "agent.sandbox"),
        ("", False, None),
    ],
)
def test_unattended_work_needs_isolation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, bubblewrap: bool, rule: str | None
) -> None:
    """auto means bubblewrap where it is; without it proactive and auto_fix refuse; required refuses; off accepts."""
    with configured(tmp_path, monkeypatch, text, bubblewrap=bubblewrap) as path:
        if rule is None:
            check_runnable(load(path))
            return
        with pytest.raises(Refused, match="bubblewrap") as caught:
            check_runnable(load(path))
        assert caught.value.rule == rule


@pytest.mark.parametrize(("sandbox", "ok"), [("auto", True), ("off", True), ("required", False)])
def test_doctor_without_bubblewrap_says_what_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandbox: str, ok: bool
) -> None:
    """A failure only where isolation is required; every gap is a row all the same."""
    with configured(tmp_path, monkeypatch, f'sandbox = "{sandbox}"\n', bubblewrap=False) as path:
        rows = {row["check"]: row for row in anyio.run(doctor, load(path))}
    assert rows["isolation"]["ok"] is ok
    if ok:
        assert rows["isolation"]["detail"].startswith("none")
        assert rows["isolation: state folder"]["holds"] is False
        assert rows["isolation: state folder"]["detail"].startswith("does not hold")
        assert all(rows[f"isolation: {name}"]["ok"] for name in NAMES)


def test_doctor_with_bubblewrap_shows_every_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the profile the configuration gives, with the daemon's own PATH and toolchain."""
    with configured(tmp_path, monkeypatch, "") as path:
        rows = {row["check"]: row for row in anyio.run(doctor, load(path))}
    assert rows["isolation"]["detail"].startswith("bubblewrap")
    assert [rows[f"isolation: {name}"]["holds"] for name in NAMES] == [True] * len(NAMES)


def test_settings_become_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits, endpoints and key come from the configuration; the key is in nothing a run is started with."""
    (tmp_path / "model.key").write_text("sk-from-a-file\n")
    text = (
        'model_key_file = "model.key"\nmodel_key_header = "X-Api-Key"\nprocesses = 77\nmemory_mb = 128\n'
        'endpoints = ["https://model.example.com/", "https://model.example.com/other"]\n'
        'url_variables = { BASE_URL = "https://model.example.com/other/v1" }\n'
    )
    with configured(tmp_path, monkeypatch, text) as path:
        settings = load(path)
        sandbox = anyio.run(opened, settings)
    started = sandbox.start(
        ["git"], cwd=tmp_path, env={"HOME": "/h"}, writable=[], readable=[], socket=tmp_path / "s"
    )
    assert sandbox.limits == Limits(memory_bytes=128 << 20, processes=77)
    assert "sk-from-a-file" not in repr(started)
    assert '"variables": {"FORMICA_MODEL_URL": [0, ""], "BASE_URL": [1, "/v1"]}' in repr(started)
    assert settings.model_key == "sk-from-a-file"


async def opened(settings: Settings) -> Sandbox:
    async with open_sandbox(settings) as sandbox:
        return sandbox


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('endpoints = ["model.example.com"]', "agent.endpoints"),
        ('endpoints = ["https://u:p@model.example.com"]', "credentials"),
        ('endpoints = ["https://m"]\nurl_variables = { BASE = "https://n" }', "agent.url_variables"),
        ('endpoints = ["https://m"]\nurl_variables = { PATH = "https://m" }', "PATH"),
        ('model_key_header = "a b"', "agent.model_key_header"),
        ("memory_mb = 1", "agent.memory_mb"),
    ],
)
def test_a_wrong_setting_is_one_line_naming_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    """Addresses, variables, header and limits are checked before anything starts."""
    with configured(tmp_path, monkeypatch, text) as path, pytest.raises(ConfigurationError) as caught:
        load(path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_key_file_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key and the remedy, without a traceback."""
    with (
        configured(tmp_path, monkeypatch, 'model_key_file = "missing"') as path,
        pytest.raises(ConfigurationError, match=r"agent.model_key_file"),
    ):
        _ = load(path).model_key
