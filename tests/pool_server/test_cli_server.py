"""The command line, as a process: what it prints, where, and how it exits."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import ROOT, PoolServer, clean_environment, run_cli, submit


def test_first_start(tmp_path: Path) -> None:
    """The first start leaves an operator's key in a private file, logs where, never what; a stop is exit 0."""
    with PoolServer(tmp_path) as server:
        assert stat.S_IMODE(server.state.stat().st_mode) == 0o700
        for name in ("operator.key", "server.secret", "pool.sqlite3"):
            assert stat.S_IMODE((server.state / name).stat().st_mode) == 0o600, name
        key = server.operator_key
        assert key.startswith("fk_")
        assert key not in server.log.read_text(encoding="utf-8")
        written = [line for line in server.log_lines() if line["event"] == "operator key written"]
        assert written[0]["path"] == str(server.state / "operator.key")
        with server.client() as client:
            issue = submit(client)
        assert server.stop() == 0
        server.start()
        assert server.operator_key == key, "the second start makes no other"
        with server.client(x_guest_token=issue["guest_access_token"]) as guest:
            assert guest.get(f"/issues/{issue['issue_number']}").status_code == 200, (
                "tokens outlive a restart"
            )


def test_keys(tmp_path: Path) -> None:
    """create prints the key alone; list never shows it; revoke and set-tier find a key by its handle."""
    state = ("--state", str(tmp_path / "state"))
    made = run_cli("key", "create", "--role", "member", "--handle", "ada", "--tier", "paid", *state)
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    assert made.stdout == f"{key}\n"
    assert key.startswith("fk_")
    assert run_cli("key", "create", "--role", "member", "--handle", "ADA", *state).returncode == 1
    assert run_cli("key", "set-tier", "ada", "verified", *state).returncode == 0
    assert run_cli("key", "revoke", "nobody", *state).returncode == 1
    listed = run_cli("key", "list", "--json", *state)
    (entry,) = json.loads(listed.stdout)
    assert (entry["handle"], entry["role"], entry["tier"]) == ("ada", "member", "verified")
    assert run_cli("key", "revoke", "ada", *state).returncode == 0
    table = run_cli("key", "list", *state).stdout
    assert "ada" in table
    assert key not in table + listed.stdout


@pytest.mark.parametrize(
    ("arguments", "environment", "named"),
    [
        (("--port", "99999"), {}, "--port"),
        (("--database", "postgresql://localhost/pool"), {}, "--database"),
        ((), {"POOL_PORT": "http"}, "POOL_PORT"),
        ((), {"POOL_PROT": "1"}, "POOL_PROT"),
        ((), {"POOL_GITHUB_TOKEN": "ghp_planted"}, "POOL_GITHUB_TOKEN"),
        ((), {"POOL_GITHUB_WEBHOOK_SECRET": "planted"}, "POOL_GITHUB_WEBHOOK_SECRET"),
        ((), {"POOL_DATABASE": "postgresql://user:planted@localhost/pool"}, "POOL_DATABASE"),
        ((), {"POOL_TRUSTED_PROXIES": "planted"}, "POOL_TRUSTED_PROXIES"),
        ((), {"POOL_CONFIG": "/no/such/file.toml"}, "/no/such/file.toml"),
    ],
)
def test_wrong_settings(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], named: str
) -> None:
    """A wrong, unknown or not yet built setting is exit 2 and one line that names it, not its value."""
    done = run_cli("serve", "--state", str(tmp_path / "state"), *arguments, environment=environment)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert named in done.stderr
    assert "planted" not in done.stderr
    assert not (tmp_path / "state").exists()


def test_configuration_file(tmp_path: Path) -> None:
    """Flags win over the environment, the environment over the file; an unknown key in it is exit 2."""
    config = tmp_path / "pool.toml"
    config.write_text("prot = 1\n", encoding="utf-8")
    done = run_cli("serve", "--config", str(config))
    assert done.returncode == 2
    assert "prot" in done.stderr
    config.write_text("allow_anonymous_submit = false\nport = 1\n", encoding="utf-8")
    with (
        PoolServer(tmp_path, {"POOL_PORT": "2"}, ("--config", str(config))) as server,
        server.client() as client,
    ):
        answer = client.post("/issues/submit", json={"title": "t", "body": "b", "reporter_app_version": "1"})
        assert answer.status_code == 401


def test_the_reference_is_complete() -> None:
    """config/pool.toml names every setting that is built, with its default."""
    import tomllib

    from pool_server.settings import NOT_BUILT_YET, Settings

    lines = (ROOT / "config" / "pool.toml").read_text(encoding="utf-8").splitlines()
    shown = tomllib.loads("\n".join(line[2:] for line in lines if line.startswith("# ") and " = " in line))
    assert set(shown) == set(Settings.model_fields) - set(NOT_BUILT_YET)
    examples = {"state", "database", "product_version"}
    for name, value in shown.items():
        if name not in examples:
            default = Settings.model_fields[name].default
            assert value == (list(default) if isinstance(default, tuple) else default), name


def test_port_in_use(tmp_path: Path) -> None:
    """An occupied port is exit 1 and a line that names it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run_cli("serve", "--port", str(port), "--state", str(tmp_path / "state"))
    assert done.returncode == 1
    assert f"127.0.0.1:{port}" in done.stderr.splitlines()[-1]


def test_another_address_needs_an_operator_key(tmp_path: Path) -> None:
    """Binding beyond loopback without an operator's key is exit 3; with one it serves."""
    state = ("--state", str(tmp_path / "state"))
    done = run_cli("serve", "--host", "0.0.0.0", "--port", "0", *state)
    assert done.returncode == 3
    assert "0.0.0.0" in done.stderr
    assert "key create" in done.stderr
    assert not (tmp_path / "state" / "operator.key").exists()
    assert run_cli("key", "create", "--role", "operator", *state).returncode == 0
    server = PoolServer(tmp_path, arguments=("--host", "0.0.0.0"))
    with server:
        with server.client(host="pool.example.org") as client:
            assert client.get("/health").status_code == 200, "its public name is not known to it"
        assert server.stop() == 0


def test_one_server_for_a_state_folder(tmp_path: Path) -> None:
    """A second server on the same folder is told to try later; a crash leaves nothing that blocks the next."""
    with PoolServer(tmp_path) as server:
        done = run_cli("serve", "--port", "0", "--state", str(server.state))
        assert done.returncode == 75
        assert str(server.state) in done.stderr
        server.kill()
        server.start()


def test_help_and_version() -> None:
    """Help has examples and exit codes; the version is printed."""
    assert "75 try later" in run_cli("--help").stdout
    assert "Example:" in run_cli("serve", "--help").stdout
    assert run_cli("--version").stdout.startswith("pool-server ")
    assert run_cli("nonsense").returncode == 2


@pytest.mark.parametrize("agent", ["claude", "codex", "curl"])
def test_connect(agent: str) -> None:
    """The reporter's set-up names the server, and the curl examples are what the server takes."""
    done = run_cli("connect", agent, "--url", "https://pool.example.org/")
    assert done.returncode == 0
    assert "https://pool.example.org/" in done.stdout
    assert "org//" not in done.stdout


def test_curl_examples_work(server: PoolServer, tmp_path: Path) -> None:
    """The printed commands, pasted into a shell, file a report and read it."""
    printed = run_cli("connect", "curl", "--url", server.url).stdout
    first = printed.split("\n\n")[0]
    filed = subprocess.run(["/bin/sh", "-c", first], capture_output=True, text=True, timeout=30, check=True)
    issue = json.loads(filed.stdout)
    rest = printed.partition("\n\n")[2].replace(
        '"issue_number": 1', f'"issue_number": {issue["issue_number"]}'
    )
    environment = {**clean_environment(), "TOKEN": issue["guest_access_token"]}
    done = subprocess.run(
        ["/bin/sh", "-c", rest], capture_output=True, text=True, timeout=30, check=True, env=environment
    )
    assert '"status":"open"' in done.stdout
    assert '"message_id"' in done.stdout


def test_importing_does_nothing() -> None:
    """Importing the package configures no logging and opens nothing."""
    program = (
        "import logging, pool_server.cli, structlog;"
        "assert not logging.getLogger().handlers; assert not structlog.is_configured()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
