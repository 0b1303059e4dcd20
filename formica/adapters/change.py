"""The facts and the diff between two commits of a clean clone of ours."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, cast

import anyio

from formica.adapters.git import OUTPUT_LIMIT, Git
from formica.errors import NeedsOperator
from formica.ports import Change, FileChange
from formica.rules.diff_text import file_texts
from formica.rules.facts import FileText

__all__ = ["read_change"]

DIFF_TEXT_LIMIT = 200_000
_WHOLE_FILES_LIMIT = 16 * 1024 * 1024


async def read_change(git: Git, git_dir: Path, base_sha: str, head_sha: str) -> Change:
    """The facts and the diff between two commits of a clean clone of ours."""
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")
    facts = await git.run(
        *("diff-tree", "-r", "-z", "--raw", "--numstat", *options, "--end-of-options", base_sha, head_sha),
        git_dir=git_dir,
        doing="list the changed files",
    )
    diff = await git.run(
        *("diff", "--binary", "--full-index", *options, "--end-of-options", base_sha, head_sha),
        git_dir=git_dir,
        doing="make the diff of the change",
    )
    files = _file_changes(facts.fields)
    said = await git.run(
        *("show", "-s", "--format=%B", "--end-of-options", head_sha),
        git_dir=git_dir,
        doing="read the message of the change",
    )
    return Change(
        base_sha=base_sha,
        head_sha=head_sha,
        diff_hash=hashlib.sha256(diff.stdout).hexdigest(),
        files=files,
        diff=diff.stdout.decode("utf-8", "replace")[:DIFF_TEXT_LIMIT],
        texts=await _read_texts(git, git_dir, base_sha, head_sha, files),
        message=said.text,
    )


async def _read_texts(
    git: Git, git_dir: Path, base_sha: str, head_sha: str, files: Sequence[FileChange]
) -> Mapping[str, FileText]:
    """Each file's lines, binary ones too; with everything around them where that is not too much."""
    options = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--text", "--full-index")

    async def read(context: int, limit: int) -> bytes:
        diff = await git.run(
            *("diff", f"--unified={context}", *options, "--end-of-options", base_sha, head_sha),
            git_dir=git_dir,
            doing="read the lines of the change",
            output_limit=limit,
        )
        return diff.stdout

    try:
        text, whole = await read(_WHOLE_FILES_LIMIT, _WHOLE_FILES_LIMIT), True
    except NeedsOperator:
        text, whole = await read(3, OUTPUT_LIMIT), False
    try:
        return await anyio.to_thread.run_sync(partial(file_texts, text, files, whole=whole))
    except ValueError:
        # Nothing was read, and the gates say so of every file.
        return {}


def _file_changes(fields: Sequence[bytes]) -> tuple[FileChange, ...]:
    raw: dict[bytes, list[str]] = {}
    counts: dict[bytes, tuple[bytes, bytes]] = {}
    rest = iter(fields)
    for row in rest:
        if row.startswith(b":"):
            raw[next(rest)] = row[1:].decode("ascii").split(" ")
        else:
            added, deleted, path = row.split(b"\t", 2)
            counts[path] = (added, deleted)
    changes = []
    for path, (old_mode, new_mode, _, _, status) in raw.items():
        added, deleted = counts.get(path, (b"0", b"0"))
        changes.append(
            FileChange(
                path=path.decode("utf-8", "surrogateescape"),
                status=cast(Literal["A", "M", "D", "T"], status),
                old_mode=old_mode,
                new_mode=new_mode,
                added=0 if added == b"-" else int(added),
                deleted=0 if deleted == b"-" else int(deleted),
                binary=added == b"-",
            )
        )
    return tuple(changes)
