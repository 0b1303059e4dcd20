"""A real project, a real daemon process, and the people around it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.servers import ROOT, PoolServer, clean_environment

Json = dict[str, Any]
WAIT_SECONDS = 45.0

STATS = '"""Statistics."""\n\n\ndef mean(values):\n    return sum(values) / len(values)\n'
TESTS = """import unittest

from tally.stats import mean


class MeanTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 3]), 2)
"""
FIXED = "sum(values) / len(values) if values else 0.0"
NEW_TEST = "\n\nclass EmptyTest(unittest.TestCase):\n    def test_empty(self):\n        self.assertEqual(mean([]), 0.0)\n"

REPORT = {
    "title": "mean([]) raises ZeroDivisionError",
    "body": (
        "Steps to reproduce: call tally.stats.mean([]).\n\n"
        "Traceback (most recent call last):\n"
        '  File "tally/stats.py", line 5, in mean\n'
        "ZeroDivisionError: division by zero\n\nExpected: 0.0"
    ),
    "kind": "bug",
    "reporter_app_version": "1.0.0",
}

AGENT_HEAD = """import contextlib, os, pathlib, subprocess, sys, time
prompt = pathlib.Path(os.environ["FORMICA_PROMPT_FILE"]).read_text()
runs = pathlib.Path({runs!r})
with contextlib.suppress(OSError), runs.open("a") as log:  # an isolated run cannot be counted so
    log.write(os.getcwd() + "\\n")
stats, tests = pathlib.Path("tally/stats.py"), pathlib.Path("tests/test_stats.py")
def fix():
    stats.write_text(stats.read_text().replace("sum(values) / len(values)", {fixed!r}))
def test():
    tests.write_text(tests.read_text() + {new_test!r})
"""


def wait_for(what: str, read: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """Poll until ``read`` gives something true."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = read()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {seconds:.0f} s")


def git(*arguments: str, cwd: Path | None = None) -> str:
    """git as a person runs it, with no configuration but ours."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Maintainer",
        "GIT_AUTHOR_EMAIL": "maintainer@example.org",
        "GIT_COMMITTER_NAME": "Maintainer",
        "GIT_COMMITTER_EMAIL": "maintainer@example.org",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout.strip()


class Project:
    """A small project with a bug, released as v1.0.0: the maintainer's checkout and its bare remote."""

    def __init__(self, folder: Path) -> None:
        self.name = f"daemon-{uuid.uuid4().hex[:12]}"
        """The name of the daemon that looks after this project: several tests share one server."""
        self.checkout = folder / "tally"
        self.remote = folder / "tally.git"
        self._scratch = folder
        for path, text in {
            "tally/__init__.py": "",
            "tally/stats.py": STATS,
            "tests/__init__.py": "",
            "tests/test_stats.py": TESTS,
            "README.md": "# tally\n",
            ".gitignore": "__pycache__/\n",
        }.items():
            (self.checkout / path).parent.mkdir(parents=True, exist_ok=True)
            (self.checkout / path).write_text(text, encoding="utf-8")
        git("init", "-q", "-b", "main", cwd=self.checkout)
        git("add", ".", cwd=self.checkout)
        git("commit", "-q", "-m", "tally 1.0.0", cwd=self.checkout)
        git("tag", "v1.0.0", cwd=self.checkout)
        git("clone", "-q", "--bare", str(self.checkout), str(self.remote))
        git("remote", "add", "origin", str(self.remote), cwd=self.checkout)

    def branches(self) -> dict[str, str]:
        """Branches of the remote and their commits."""
        rows = git("--git-dir", str(self.remote), "for-each-ref", "--format=%(refname:short) %(objectname)")
        named = dict(row.split() for row in rows.splitlines())
        return {name: sha for name, sha in named.items() if not name.startswith("v1")}

    def files(self, commit: str) -> list[str]:
        """The paths of a commit of the remote."""
        return git("--git-dir", str(self.remote), "ls-tree", "-r", "--name-only", commit).splitlines()

    def merge(self, branch: str, *, squash: bool = False) -> str:
        """Merge as a person would; the new head of main."""
        clone = self._scratch / f"merging-{branch.replace('/', '-')}"
        git("clone", "-q", str(self.remote), str(clone))
        if squash:
            git("merge", "-q", "--squash", f"origin/{branch}", cwd=clone)
            git("commit", "-q", "-m", "squashed", cwd=clone)
        else:
            git("merge", "-q", "--no-ff", "-m", "merge", f"origin/{branch}", cwd=clone)
        git("push", "-q", "origin", "main", cwd=clone)
        return git("rev-parse", "HEAD", cwd=clone)

    def commit(self, path: str, text: str, branch: str = "main") -> str:
        """One commit pushed to a branch of the remote."""
        clone = self._scratch / f"commit-{len(list(self._scratch.iterdir()))}"
        git("clone", "-q", str(self.remote), str(clone))
        if branch != "main":
            git("checkout", "-q", "-b", branch, cwd=clone)
        (clone / path).write_text(text, encoding="utf-8")
        git("add", ".", cwd=clone)
        git("commit", "-q", "-m", f"change {path}", cwd=clone)
        git("push", "-q", "origin", branch, cwd=clone)
        return git("rev-parse", "HEAD", cwd=clone)

    def fingerprint(self) -> str:
        """Every byte, mode and name of the maintainer's checkout, git's own files included."""
        digest = hashlib.sha256()
        for path in sorted(self.checkout.rglob("*")):
            status = path.lstat()
            digest.update(f"{path.relative_to(self.checkout)} {status.st_mode} {status.st_mtime_ns}".encode())
            if path.is_file() and not path.is_symlink():
                digest.update(path.read_bytes())
        return digest.hexdigest()


class Daemon:
    """`formica run` as a process, and the operator's words beside it."""

    def __init__(
        self,
        folder: Path,
        project: Project,
        server: PoolServer,
        script: str,
        /,
        *,
        url: str | None = None,
        path: str | None = None,
        **options: Any,
    ) -> None:
        self.folder = folder
        self.path = path or os.environ["PATH"]
        self.project = project
        self.server = server
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.runs_file = folder / "runs.txt"
        self.agent_file = folder / "agent.py"
        self.state = folder / "state"
        self.log = folder / "formica.log"
        self.config = folder / "formica.toml"
        self.write_agent(script)
        self._write_config(url or server.url, options)

    def write_agent(self, script: str) -> None:
        """The agent's program: `fix()` and `test()` are there for it, each run is counted."""
        head = AGENT_HEAD.format(runs=str(self.runs_file), fixed=FIXED, new_test=NEW_TEST)
        self.agent_file.write_text(head + script, encoding="utf-8")

    def _write_config(self, url: str, options: Json) -> None:
        sections: dict[str, Json] = {
            "server": {"url": url},
            "repository": {
                "url": str(self.project.remote),
                "test_command": [sys.executable, "-m", "unittest", "-q"],
            },
            "agent": {
                "command": [sys.executable, str(self.agent_file)],
                "timeout_seconds": 60,
                "sandbox": "off",
            },
            "forge": {"repository": str(self.project.remote)},
            "policy": {},
            "events": {},
            "daemon": {
                "name": self.project.name,
                "state": str(self.state),
                "reconcile_seconds": 1,
                "lease_seconds": 6,
                "drain_seconds": 2,
            },
        }
        for section, values in options.items():
            sections[section] |= values
        sections["repository"] = {
            key: value for key, value in sections["repository"].items() if value is not None
        }
        lines = []
        for section, values in sections.items():
            lines.append(f"[{section}]")
            lines.extend(f"{key} = {json.dumps(value)}" for key, value in values.items())
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def environment(self) -> dict[str, str]:
        return clean_environment({"FORMICA_SERVER__KEY": self.server.operator_key, "PATH": self.path})

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "formica.cli", "run", "--config", str(self.config)],
                env=self.environment(),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if error is not None:
            print(self.log.read_text(encoding="utf-8", errors="replace")[-6000:])

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(40)

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(20)

    def word(self, *words: str) -> subprocess.CompletedProcess[str]:
        """One operator command to its end."""
        return subprocess.run(
            [sys.executable, "-m", "formica.cli", *words, "--config", str(self.config)],
            env=self.environment(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def say(self, *words: str) -> str:
        """One operator command that must succeed."""
        done = self.word(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def runs(self) -> list[str]:
        """The folders the agent was started in, one a run."""
        return self.runs_file.read_text().splitlines() if self.runs_file.exists() else []


class People:
    """The reporter and the operator, over HTTP."""

    def __init__(self, server: PoolServer, name: str) -> None:
        self.server = server
        self.name = name
        self.reporter = server.client()
        self.operator = server.operator()

    def close(self) -> None:
        """Leave nothing open for the next daemon on this server."""
        for status in ("open", "in_progress", "awaiting_input"):
            items = self.operator.get("/issues", params={"status": status, "limit": 100}).json()["items"]
            if items:
                ids = [item["entity_id"] for item in items]
                self.post(
                    "/issues/bulk_close",
                    {"entity_ids": ids, "resolution": {"kind": "declined", "summary": "the test is over"}},
                )
        self.reporter.close()
        self.operator.close()

    def report(self, **changes: Any) -> Json:
        body = {**REPORT, **changes}
        answer = self.reporter.post(
            "/issues/submit", json={key: value for key, value in body.items() if value is not None}
        )
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def post(self, path: str, body: Json, *, operator: bool = True) -> Json:
        client = self.operator if operator else self.reporter
        answer = client.post(path, json=body)
        assert answer.is_success, answer.text
        return dict(answer.json())

    def status(self, number: int) -> Json:
        return dict(self.operator.get(f"/issues/{number}").json())

    def entities(self, entity_type: str) -> list[Json]:
        answer = self.operator.get("/entities", params={"type": entity_type, "limit": 500})
        return list(answer.json()["items"])

    def plans(self) -> list[Json]:
        """The fields of every plan of our daemon's name."""
        return [
            {**entity["fields"], "entity_id": entity["entity_id"]}
            for entity in self.entities("plan")
            if entity["fields"].get("name") == self.name
        ]

    def plan(self, number: int) -> Json:
        """The plan's fields, empty while there is none."""
        return next((plan for plan in self.plans() if plan.get("issue_number") == number), {})

    def wait_state(self, number: int, *states: str, seconds: float = WAIT_SECONDS) -> Json:
        """The plan, once it is in one of these states."""

        def read() -> Json | None:
            plan = self.plan(number)
            return plan if plan.get("state") in states else None

        try:
            found: Json = wait_for(f"#{number} in {states}", read, seconds)
        except AssertionError as late:
            plan = self.plan(number)
            raise AssertionError(f"{late}: it is {plan.get('state')}: {plan.get('why_waiting')}") from None
        return found

    def pull_requests(self) -> list[Json]:
        return [
            entity["fields"]
            for entity in self.entities("pull_request")
            if entity["fields"]["author"] == self.name
        ]

    def set_active(self, active: bool) -> None:
        """The kill switch, as one write of somebody else."""
        entity = next(entity for entity in self.entities("daemon_config") if entity["key"] == "default")
        answer = self.operator.patch(
            f"/entities/{entity['entity_id']}", json={"fields": {"active": active}}, headers={"If-Match": "*"}
        )
        assert answer.is_success, answer.text


def unattended(**policy: Any) -> dict[str, Json]:
    """Options under which the whole pipeline runs without a word."""
    return {
        "policy": {"reporting_mode": "proactive", "dry_run": "never", "auto_fix": True, **policy},
        "agent": {"sandbox": "off"},
    }


__all__ = ["FIXED", "REPORT", "Daemon", "Json", "People", "Project", "git", "unattended", "wait_for"]
