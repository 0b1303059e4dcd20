"""The record of each agent session: what it was told and what it printed, redacted, apart from its workspace.

Implements `Transcripts`. Files lie in `<state>/transcripts/<issue>-<run id>.log`, for their owner only; the
plan holds their sha256. The oldest go when they are too old or too much together.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import anyio

from formica.adapters.plain_files import open_plain, read_plain
from formica.ports import Transcript
from formica.rules.secret_forms import LiveSecrets
from pool_server.contract.redaction import CREDENTIAL_KINDS, Redactor

__all__ = ["TranscriptFolder", "read_transcript"]

DAYS = 90.0
TOTAL_BYTES = 1024 * 1024 * 1024
_DAY = 86_400.0
_PIECE = 512 * 1024
_PIECE_LIMIT = 4 * 1024 * 1024
# More than any log of ours is long: one that is longer was made so.
_LOG_BYTES = 64 * 1024 * 1024
_NAME = re.compile(r"\d{1,12}-[0-9A-Za-z-]{1,64}\.log")


class TranscriptFolder:
    """``secrets`` are taken out in every form, credentials by their shape. ``days`` and ``total_bytes`` bound
    what is kept; ``wall_clock`` gives seconds since the epoch, as the file system does."""

    def __init__(
        self,
        folder: Path,
        secrets: LiveSecrets,
        *,
        days: float = DAYS,
        total_bytes: int = TOTAL_BYTES,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._secrets = secrets
        self._days = days
        self._total_bytes = total_bytes
        self._wall_clock = wall_clock

    async def keep(self, issue_number: int, run_id: str, *, prompt: str, log_path: Path) -> Transcript | None:
        """Store one session; the same run again replaces its record. None when it cannot be written."""
        name = f"{issue_number}-{run_id}.log"
        if not _NAME.fullmatch(name):
            raise ValueError("a run id is letters, digits and dashes")
        try:
            digest = await anyio.to_thread.run_sync(partial(self._write, name, prompt, log_path))
        except OSError:
            return None
        return Transcript(name, digest)

    def _write(self, name: str, prompt: str, log_path: Path) -> str:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._folder / f"{name}.new"
        fresh.unlink(missing_ok=True)
        digest = hashlib.sha256()
        redactor = Redactor(CREDENTIAL_KINDS)
        try:
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                for text in self._parts(prompt, log_path):
                    data = self._secrets.removed(redactor.text(text)).encode("utf-8", "replace")
                    digest.update(data)
                    out.write(data)
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(self._folder / name)
        finally:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
        self._forget(keep=name)
        return digest.hexdigest()

    def _parts(self, prompt: str, log_path: Path) -> Iterator[str]:
        yield "=== prompt ===\n"
        yield prompt if prompt.endswith("\n") else f"{prompt}\n"
        yield "=== output of the agent ===\n"
        try:
            descriptor = open_plain(log_path)
        except OSError as error:
            yield f"(its log could not be read: {error.strerror})\n"
            return
        with os.fdopen(descriptor, "rb") as log:
            yield from _pieces(log)

    def _forget(self, *, keep: str) -> None:
        """Remove what is too old, then the oldest until the rest is small enough; never the one just made."""
        found = []
        for path in self._folder.iterdir():
            with suppress(OSError):
                facts = path.lstat()
                if _NAME.fullmatch(path.name) and stat.S_ISREG(facts.st_mode):
                    found.append((facts.st_mtime, facts.st_size, path))
        total = sum(size for _, size, _ in found)
        for modified, size, path in sorted(found):
            old = self._wall_clock() - modified > self._days * _DAY
            if path.name != keep and (old or total > self._total_bytes):
                total -= size
                with suppress(OSError):
                    path.unlink()


def _pieces(log: BinaryIO) -> Iterator[str]:
    """The log in pieces that end with a line, so that nothing is cut in two."""
    rest = b""
    left = _LOG_BYTES
    while chunk := log.read(min(_PIECE, left)):
        left -= len(chunk)
        rest += chunk
        whole, newline, tail = rest.rpartition(b"\n")
        if newline and len(tail) < _PIECE_LIMIT:
            yield (whole + newline).decode("utf-8", "replace")
            rest = tail
        elif len(rest) > _PIECE_LIMIT:
            yield rest.decode("utf-8", "replace")
            rest = b""
    if rest:
        yield rest.decode("utf-8", "replace")


def read_transcript(folder: Path, name: str) -> tuple[str, str] | None:
    """Text and sha256 hex of a stored record, or None when it is not there."""
    if not _NAME.fullmatch(name):
        return None
    try:
        data = read_plain(folder / name, 2 * _LOG_BYTES)
    except OSError:
        return None
    return data.decode("utf-8", "replace"), hashlib.sha256(data).hexdigest()
