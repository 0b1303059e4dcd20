"""What the whole must keep: who imports whom, what importing does, and that texts tell the truth."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from blockbuster import BlockingError

import formica
import pool_server
from formica.rules.pipeline import diagram
from formica.settings import load
from pool_server.settings import Settings as ServerSettings

ROOT = Path(__file__).parents[1]
RUN_BY_OTHERS = {"pool_server.storage.migrations.env"}
"""alembic executes it; it is no module of anybody's."""

IMPORT_EVERYTHING = """
import json, logging, sys, threading

root, done = sys.argv[1], []
WRITING = set("wax+")

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path, mode = str(arguments[0]), arguments[1] or ""
        ours = path.startswith(root) and not path.endswith((".py", ".pyc"))
        if ours or (path.startswith("/") and WRITING & set(mode)):
            done.append([event, path, mode])
    elif event.startswith(("socket.", "subprocess.", "os.system", "os.mkdir", "os.remove", "shutil.", "sqlite3.connect")):
        if event != "socket.gethostname":
            done.append([event, str(arguments)[:200]])

import asyncio, ctypes.util, http.server, multiprocessing, platform, uuid
platform.uname()
import importlib
libraries = sys.argv[3].split(",")
for name in libraries:
    importlib.import_module(name)
threads, handlers, level = threading.active_count(), list(logging.root.handlers), logging.root.level
sys.addaudithook(watch)
for name in sys.argv[2].split(","):
    importlib.import_module(name)
import structlog
if threading.active_count() != threads:
    done.append(["threads", [thread.name for thread in threading.enumerate()]])
if logging.root.handlers != handlers or logging.root.level != level:
    done.append(["logging", str(logging.root.handlers)])
if structlog.is_configured():
    done.append(["structlog", "configured"])
print(json.dumps(done))
"""


def modules() -> list[str]:
    """Every module of both packages."""
    found = [
        module.name
        for package in (formica, pool_server)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    return [name for name in found if name not in RUN_BY_OTHERS]


def test_nobody_imports_whom_they_should_not() -> None:
    """Every import contract of pyproject.toml is kept, and there are some."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    names = {contract["name"] for contract in contracts}
    assert {"formica layers", "pool_server layers", "rules and contract do no I/O"} <= names
    script = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run(
        [script, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False
    )
    assert run.returncode == 0, run.stdout[-4_000:]
    assert f"Contracts: {len(contracts)} kept, 0 broken." in run.stdout


def test_importing_a_package_does_nothing() -> None:
    """In a fresh interpreter no module of ours opens a file or socket, starts a thread, or configures logging."""
    libraries = [
        "fastapi",
        "httpx",
        "anyio",
        "structlog",
        "pydantic_settings",
        "typer",
        "uvicorn",
        "alembic",
        "mcp",
    ]
    libraries += [
        "sqlalchemy",
        "detect_secrets",
        "phonenumbers",
        "cryptography",
        "git",
        "mcp.server.lowlevel",
    ]
    command = [sys.executable, "-c", IMPORT_EVERYTHING, str(ROOT), ",".join(modules()), ",".join(libraries)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        command, env=environment, cwd="/", capture_output=True, text=True, timeout=110, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]", run.stdout
    assert run.stderr == ""


def test_the_diagram_equals_the_table() -> None:
    """The drawing in ARCHITECTURE.md is what the pipeline prints."""
    blocks = re.findall(r"```mermaid\n(.*?)\n```", (ROOT / "ARCHITECTURE.md").read_text(), re.DOTALL)
    drawn = [block for block in blocks if block.startswith("stateDiagram")]
    assert drawn == [diagram()]


def shown(path: Path) -> dict[str, object]:
    """A commented reference with every key in force."""
    lines = [re.sub(r"^# (?=[a-z_]+ = )", "", line) for line in path.read_text().splitlines()]
    return tomllib.loads("\n".join(lines))


def test_every_setting_of_the_server_is_in_the_reference() -> None:
    """config/pool.toml shows each key of the server that works, and no other."""
    unbuilt = {name for name in ServerSettings.model_fields if name.startswith("github_")}
    assert set(shown(ROOT / "config" / "pool.toml")) == set(ServerSettings.model_fields) - unbuilt


def test_the_environment_is_read_in_one_module_of_each_package() -> None:
    """Only the settings know that there are environment variables, and programs of ours that run inside runs."""
    readers = {
        str(path.relative_to(ROOT))
        for package in ("formica", "pool_server")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"\bos\.(environ|getenv)\b|\bfrom os import .*environ", path.read_text())
    }
    inside_runs = {"formica/adapters/isolation_probe.py"}
    """Started in the sandbox by itself, with the standard library alone: it looks at the run's environment."""
    assert readers - inside_runs <= {"formica/settings/environment.py", "pool_server/settings.py"}


def test_nothing_is_run_through_a_shell() -> None:
    """No module of ours hands a command to a shell."""
    for package in ("formica", "pool_server"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                assert not (isinstance(node, ast.keyword) and node.arg == "shell"), path
                assert not (
                    isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.system", "os.popen")
                ), path


async def test_a_blocked_loop_fails(tmp_path: Path) -> None:
    """Code of ours that reads a file on the event loop is caught by the fixture of every test."""
    path = tmp_path / "formica.toml"
    path.write_text("")
    with pytest.raises(BlockingError):
        load(path)
