"""Real git repositories for tests: a maintainer's checkout with a bare origin, made with plain git."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from formica.adapters.git import Git
from formica.adapters.workspace import GitRepository

PATH = os.environ["PATH"]


def git(folder: Path, *arguments: str, stdin: bytes | None = None) -> str:
    """Plain git as a person would run it, with an identity and nothing of the test's own settings."""
    environment = {
        "PATH": PATH,
        "HOME": "/nonexistent",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Maintainer",
        "GIT_AUTHOR_EMAIL": "maintainer@example.com",
        "GIT_COMMITTER_NAME": "Maintainer",
        "GIT_COMMITTER_EMAIL": "maintainer@example.com",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=environment, input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, (arguments, done.stderr.decode(errors="replace"))
    return done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")


@dataclass(frozen=True)
class Project:
    """A checkout, its bare origin, and the state folder of a daemon that works for it."""

    checkout: Path
    origin: Path
    state: Path

    def repository(self, source: Path | str | None = None, **changes: Any) -> GitRepository:
        options: dict[str, Any] = {
            "state": self.state,
            "source": str(source or self.checkout),
            "push_to": str(self.origin),
            "author_name": "formica",
            "author_email": "formica@example.com",
            "min_free_bytes": 0,
        }
        return GitRepository(self.git(changes.pop("path", PATH)), **options | changes)

    def git(self, path: str = PATH) -> Git:
        return Git(self.state, path=path)

    def commit(self, files: Mapping[str, str], message: str = "change") -> str:
        """Write, commit and push on the checkout's branch; the new sha."""
        for name, text in files.items():
            path = self.checkout / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        git(self.checkout, "add", "-A")
        git(self.checkout, "commit", "-q", "-m", message)
        if git(self.checkout, "remote"):
            git(self.checkout, "push", "-q", "origin", "HEAD")
        return git(self.checkout, "rev-parse", "HEAD")


def make_project(folder: Path, files: Mapping[str, str] | None = None) -> Project:
    project = Project(folder / "checkout", folder / "origin.git", folder / "state")
    project.checkout.mkdir(parents=True)
    git(project.checkout, "init", "-q", "-b", "main")
    git(folder, "init", "-q", "--bare", "-b", "main", str(project.origin))
    git(project.checkout, "remote", "add", "origin", str(project.origin))
    project.commit(files or {"README.md": "hello\n", "src/app.py": "VALUE = 1\n"}, "first")
    return project


def fingerprint(folder: Path) -> str:
    """Every path below ``folder`` with its kind, mode, size, times and bytes."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        digest.update(
            os.fsencode(f"{path} {status.st_mode} {status.st_size} {status.st_mtime_ns} {status.st_ino}")
        )
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()))
        elif path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()
