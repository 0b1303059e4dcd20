"""The unit leaves bubblewrap what it needs, and stays closed otherwise."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

UNIT = Path(__file__).parents[2] / "systemd" / "formica.service"


def settings() -> list[tuple[str, str]]:
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def test_nothing_covers_parts_of_proc() -> None:
    """A run's own /proc is refused by the kernel where the service's is covered in places."""
    given = dict(settings())
    covering = {"ProtectKernelTunables", "ProtectKernelLogs", "ProtectHostname"}
    assert {name for name in covering if given.get(name) == "yes"} == set()
    assert given.get("ProcSubset") == "all"
    assert "RestrictNamespaces" not in given


def test_the_calls_of_bubblewrap_are_allowed() -> None:
    """Mounts inside its namespace and the loopback of a run; other calls fail instead of killing a project's tests."""
    filters = [value for name, value in settings() if name == "SystemCallFilter"]
    assert filters[-1].split() == ["@mount", "capset"]
    assert ("SystemCallErrorNumber", "EPERM") in settings()
    assert any("AF_NETLINK" in value for name, value in settings() if name == "RestrictAddressFamilies")


def test_the_exposure_stays_low() -> None:
    """systemd's own judgement, where it is installed: at most 2.5."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        assert ("NoNewPrivileges", "yes") in settings()
        return
    done = subprocess.run(
        [analyze, "security", "--offline=true", "--threshold=25", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
