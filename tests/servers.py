"""A real ``pool-server serve`` in a process of its own, for the tests of both packages."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
START_SECONDS = 60.0
STOP_SECONDS = 20.0
POLL_SECONDS = 0.02


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without any setting of ours, plus ``extra``."""
    dropped = ("POOL_", "FORMICA_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "PYTHONPATH": str(ROOT), **(extra or {})}


def run_cli(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """``pool-server ARGUMENTS`` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "pool_server.cli", *arguments],
        env=clean_environment(environment),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=START_SECONDS,
        check=False,
    )


class PoolServer:
    """One server on its own state folder; the port is a free one, and stays the same over restarts.

    Args:
        folder: where state and log go; ``folder/state`` may already exist.
        environment: ``POOL_…`` settings.
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, arguments: tuple[str, ...] = ()
    ) -> None:
        self.state = folder / "state"
        self.log = folder / "server.log"
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self._environment = dict(environment or {})
        self._arguments = arguments
        self._port = 0

    def __enter__(self) -> PoolServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def operator_key(self) -> str:
        """The key the first start wrote."""
        return (self.state / "operator.key").read_text(encoding="utf-8").strip()

    @property
    def database(self) -> Path:
        return self.state / "pool.sqlite3"

    def start(self) -> None:
        """Returns once ``/ready`` answers 200."""
        seen = self.log.stat().st_size if self.log.exists() else 0
        command = [sys.executable, "-m", "pool_server.cli", "serve", "--port", str(self._port)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--state", str(self.state), *self._arguments],
                env=clean_environment(self._environment),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + START_SECONDS
        for line in self._lines_until(seen, deadline):
            if line.get("event") == "listening":
                self.url = str(line["url"])
                self._port = int(self.url.rpartition(":")[2])
                break
        self._wait_ready(deadline)

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)

    def restart(self) -> None:
        """A clean stop and a start on the same port."""
        self.stop()
        self.start()

    def client(self, key: str | None = None, **headers: str) -> httpx.Client:
        """An HTTP client, with a key if given."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if key is not None:
            given["x-api-key"] = key
        return httpx.Client(base_url=self.url, headers=given, timeout=30, trust_env=False)

    def operator(self) -> httpx.Client:
        """An HTTP client with the operator's key."""
        return self.client(self.operator_key)

    def create_key(self, role: str, *arguments: str) -> str:
        """A further key, made by the command line beside the running server."""
        made = run_cli("key", "create", "--role", role, "--state", str(self.state), *arguments)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def log_lines(self) -> list[dict[str, Any]]:
        """Everything logged so far."""
        found = []
        for line in self.log.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"event": "not JSON", "text": line})
        return found

    def _lines_until(self, offset: int, deadline: float) -> Iterator[dict[str, Any]]:
        while True:
            with self.log.open("rb") as log:
                log.seek(offset)
                for raw in log:
                    if not raw.endswith(b"\n"):
                        break
                    offset += len(raw)
                    try:
                        yield json.loads(raw)
                    except ValueError:
                        continue
            self._check(deadline)

    def _wait_ready(self, deadline: float) -> None:
        with httpx.Client(base_url=self.url, timeout=5, trust_env=False) as client:
            while True:
                try:
                    if client.get("/ready").status_code == 200:
                        return
                except httpx.TransportError:
                    pass
                self._check(deadline)

    def _check(self, deadline: float) -> None:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError(f"the server ended with {self.process.returncode}: {self._tail()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"the server did not become ready: {self._tail()}")
        time.sleep(POLL_SECONDS)

    def _tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]


MCP_HEADERS = {"accept": "application/json, text/event-stream"}


def call_tool(client: httpx.Client, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """One MCP tool call as raw JSON-RPC; the tool's result."""
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    answer = client.post("/mcp", json=request, headers=MCP_HEADERS)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["result"])


REPORT = {
    "title": "Crash on empty input",
    "body": "parse() raises IndexError when the file is empty.",
    "reporter_app_version": "1.4.2",
}


def submit(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    """A report filed; the answer."""
    answer = client.post("/issues/submit", json={**REPORT, **fields})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def rows(database: Path) -> dict[str, int]:
    """How many rows each table holds: what a refused call must not change."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        names = [
            str(name)
            for (name,) in connection.execute(
                "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
                " and sql not like 'create virtual%'"
            )
        ]
        return {
            name: int(connection.execute(f'select count(*) from "{name}"').fetchone()[0]) for name in names
        }


def last_seq(database: Path) -> int:
    """The newest event's seq."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
        return int(connection.execute("select coalesce(max(seq), 0) from events").fetchone()[0])
