"""The command line as a person meets it: one line and an exit code for whatever is wrong. Real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.loop.harness import Project, git
from tests.servers import ROOT, PoolServer, clean_environment

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolServer]:
    with PoolServer(tmp_path_factory.mktemp("pool")) as running:
        yield running


def formica(
    *words: str, cwd: Path, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``formica WORDS`` in ``cwd``, to its end; never with a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "formica.cli", *words],
        env=clean_environment(environment) | {"PYTHONPATH": str(ROOT)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr + done.stdout
    return done


def configured(folder: Path, project: Project, url: str, **sections: dict[str, object]) -> Path:
    """A complete configuration; ``sections`` change it."""
    values: dict[str, dict[str, object]] = {
        "server": {"url": url, "key": "fk_0123456789abcdef0123456789abcdef"},
        "repository": {
            "url": str(project.remote),
            "test_command": [sys.executable, "-m", "unittest", "-q"],
        },
        "agent": {"command": [sys.executable, "-c", "pass"], "sandbox": "off"},
        "forge": {},
        "daemon": {"state": str(folder / "state")},
        "events": {"intake": "poll"},
    }
    for section, changes in sections.items():
        values[section] |= changes
    lines = []
    for section, keys in values.items():
        lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
    path = folder / "formica.toml"
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return path


def test_without_a_configuration_one_line_says_so(tmp_path: Path) -> None:
    """No file named and none here: exit 2; a formica.toml here is used."""
    done = formica("inbox", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("formica: no configuration: pass --config FILE")
    configured(tmp_path, Project(tmp_path / "p"), NOWHERE)
    done = formica("inbox", cwd=tmp_path)
    assert (done.returncode, NOWHERE in done.stderr) == (75, True)


def test_the_agents_program_and_the_state_folder_are_checked_first(tmp_path: Path) -> None:
    """A missing program and a folder that cannot be made are exit 2, before the server is asked."""
    project = Project(tmp_path / "p")
    configured(tmp_path, project, NOWHERE, agent={"command": ["no-such-agent"]})
    done = formica("run", "--once", cwd=tmp_path)
    assert (done.returncode, "agent.command: no-such-agent" in done.stderr) == (2, True)
    (tmp_path / "file").write_text("")
    configured(tmp_path, project, NOWHERE, daemon={"state": str(tmp_path / "file" / "state")})
    done = formica("run", "--once", cwd=tmp_path)
    assert (done.returncode, "daemon.state" in done.stderr) == (2, True)
    done = formica("doctor", cwd=tmp_path)
    assert (done.returncode, "FAIL state folder: daemon.state" in done.stdout) == (1, True)


def test_one_pass_without_a_server_ends(tmp_path: Path) -> None:
    """run --once gives up after about ten seconds: exit 75."""
    configured(tmp_path, Project(tmp_path / "p"), NOWHERE)
    done = formica("run", "--once", cwd=tmp_path)
    assert (done.returncode, "did not answer within 10 s" in done.stderr) == (75, True)


def test_an_unknown_issue_and_a_refused_key(tmp_path: Path, server: PoolServer) -> None:
    """Exit 1 for what does not exist, exit 2 for a key the server refuses, naming where it came from."""
    configured(tmp_path, Project(tmp_path / "p"), server.url)
    done = formica("why", "99", cwd=tmp_path)
    assert (done.returncode, "server.key" in done.stderr) == (2, True)
    done = formica("why", "99", cwd=tmp_path, environment={"FORMICA_SERVER__KEY": "fk_wrong"})
    assert (done.returncode, "FORMICA_SERVER__KEY" in done.stderr) == (2, True)
    done = formica("why", "99", cwd=tmp_path, environment={"FORMICA_SERVER__KEY": server.operator_key})
    assert (done.returncode, done.stderr) == (1, "formica: there is no issue 99\n")


def test_triage_needs_a_repository_that_exists(tmp_path: Path) -> None:
    """A wrong --repository is wrong usage."""
    (tmp_path / "r.json").write_text('{"title": "x", "body": "y"}')
    (tmp_path / "empty").mkdir()
    for wrong in ("/nope", str(tmp_path / "empty")):
        done = formica("triage", "--file", "r.json", "--repository", wrong, cwd=tmp_path)
        assert (done.returncode, "--repository" in done.stderr) == (2, True), done.stderr


def doctor_rows(tmp_path: Path, server: PoolServer) -> dict[str, dict[str, object]]:
    key = {"FORMICA_SERVER__KEY": server.operator_key}
    done = formica("doctor", "--json", cwd=tmp_path, environment=key)
    rows = {row["check"]: row for row in json.loads(done.stdout)}
    assert done.returncode == (0 if all(row["ok"] for row in rows.values()) else 1)
    return rows


def test_doctor_sees_wrong_tests_and_a_wrong_forge(tmp_path: Path, server: PoolServer) -> None:
    """A test command that cannot run and a forge that is none are failures that say what to set."""
    project = Project(tmp_path / "p")
    configured(tmp_path, project, server.url)
    rows = doctor_rows(tmp_path, server)
    assert (rows["tests"]["ok"], rows["forge"]["ok"]) == (True, True)
    assert "unittest" in str(rows["tests"]["detail"])
    for command in (
        ["no-such-runner"],
        ["./run-tests"],
        ["bash", "missing.sh"],
        [sys.executable, "-m", "nope_x"],
    ):
        configured(tmp_path, project, server.url, repository={"test_command": command})
        tests = doctor_rows(tmp_path, server)["tests"]
        assert (tests["ok"], "[repository] test_command" in str(tests["detail"])) == (False, True), command
    for forge in (str(tmp_path / "absent"), str(project.checkout), str(tmp_path)):
        configured(tmp_path, project, server.url, forge={"repository": forge})
        row = doctor_rows(tmp_path, server)["forge"]
        assert (row["ok"], "forge.repository" in str(row["detail"])) == (False, True), forge


def test_a_key_that_everybody_can_read_is_a_warning(tmp_path: Path) -> None:
    """One line on stderr of run, one row of doctor; nothing is refused for it."""
    configured(tmp_path, Project(tmp_path / "p"), NOWHERE).chmod(0o644)
    assert "warning: server.key: every user" in formica("run", "--once", cwd=tmp_path).stderr
    rows = {row["check"]: row for row in json.loads(formica("doctor", "--json", cwd=tmp_path).stdout)}
    assert (rows["secrets"]["ok"], rows["secrets"]["warning"]) == (True, True)
    assert git("--version").startswith("git")
