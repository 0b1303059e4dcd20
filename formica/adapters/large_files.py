"""Files a project keeps in Git LFS: only their pointers may be committed.

Attributes are applied by git to copies of the tree's `.gitattributes`, in a repository of ours: no filter of
theirs is known there, so none runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import anyio

from formica.adapters.git import Git, make_bare_repository
from formica.adapters.tree import Found, copy_files_named, read_start
from formica.errors import NeedsOperator

__all__ = ["refuse_large_files"]

_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_POINTER_LIMIT = 1_024


async def refuse_large_files(
    git: Git, tree: Path, files: Mapping[bytes, Found], changed: Mapping[bytes, Found], scratch: Path
) -> None:
    """``NeedsOperator`` when one of ``changed`` belongs into LFS and is no pointer. ``scratch`` is a folder of
    ours; ``files`` are all of the tree."""
    copies = scratch / "attributes"
    found = await anyio.to_thread.run_sync(copy_files_named, b".gitattributes", tree, files, copies)
    if not found or not changed:
        return
    repository = scratch / "attributes.git"
    await anyio.to_thread.run_sync(_make, repository)
    answer = await git.run(
        *("check-attr", "--stdin", "-z", "filter"),
        git_dir=repository,
        work_tree=copies,
        stdin=b"".join(b"./" + path + b"\0" for path in changed),
        doing="apply the project's attributes",
        failure=NeedsOperator,
    )
    fields = answer.fields
    for name, value in zip(fields[::3], fields[2::3], strict=True):
        path = name.removeprefix(b"./")
        if value != b"lfs" or changed[path].mode == "120000":
            continue
        start = await anyio.to_thread.run_sync(read_start, tree, path, len(_POINTER))
        if start != _POINTER or changed[path].size > _POINTER_LIMIT:
            shown = path.decode("utf-8", "replace")
            raise NeedsOperator(
                f"{shown!r} belongs into LFS, and formica commits no large files: only pointers"
            )


def _make(repository: Path) -> None:
    make_bare_repository(repository, objects=[])
    (repository / "info" / "attributes").unlink()
