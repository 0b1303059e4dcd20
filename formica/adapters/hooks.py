"""The project's own commit hooks, as the base has them: a change cannot remove them."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio

from formica.adapters.checkout import Checkouts

__all__ = ["Hook", "changed_files", "project_hooks", "tracked_state"]

_HOOKS = (".husky/pre-commit", ".githooks/pre-commit")
_PRE_COMMIT = ".pre-commit-config.yaml"
State = dict[str, tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Hook:
    argv: tuple[str, ...]
    path: str
    """The file of the base that makes it a hook."""


async def project_hooks(
    checkouts: Checkouts, base: str, head: str, *, hooks_path: str | None, path: str
) -> tuple[list[Hook], str]:
    """The hooks of the base, and a note on those that cannot be run. ``hooks_path`` is the project's
    `core.hooksPath` inside the tree, ``path`` the PATH of the run."""
    known = set(await checkouts.paths(base))
    hooks = []
    for file in dict.fromkeys([*([f"{hooks_path}/pre-commit"] if hooks_path else []), *_HOOKS]):
        if file in known and await checkouts.executable(base, file):
            hooks.append(Hook((f"./{file}",), file))
        elif file in known and file.startswith(".husky/"):
            hooks.append(Hook(("sh", "-e", file), file))
    if _PRE_COMMIT not in known:
        return hooks, ""
    if await anyio.to_thread.run_sync(partial(shutil.which, "pre-commit", path=path)) is None:
        return hooks, " Its pre-commit hooks were not run: pre-commit is not installed."
    return [*hooks, Hook(("pre-commit", "run", "--from-ref", base, "--to-ref", head), _PRE_COMMIT)], ""


async def tracked_state(tree: Path, paths: Collection[str]) -> State:
    """Mode and content of every tracked file that is there, links as their targets."""
    return await anyio.to_thread.run_sync(partial(_state, tree, paths))


def changed_files(before: State, after: State) -> Sequence[str]:
    """The files that were modified, removed or made, sorted."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _state(tree: Path, paths: Collection[str]) -> State:
    found: State = {}
    for path in paths:
        place = tree / path
        try:
            facts = place.lstat()
            if stat.S_ISLNK(facts.st_mode):
                found[path] = (facts.st_mode, os.fsencode(place.readlink()))
            elif stat.S_ISREG(facts.st_mode):
                with place.open("rb") as file:
                    found[path] = (facts.st_mode, hashlib.file_digest(file, "sha256").digest())
        except OSError:
            continue
    return found
