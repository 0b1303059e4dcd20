"""Pushing one commit to one branch of ours on the forge's repository, and reading it back.

Both ask the address the maintainer configured: the configuration they run with is written for the call, at a
place no program was told of, for one line of it could lead them to another repository.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from formica.adapters.git import OBJECT_ID, Git, Remote
from formica.adapters.items import delete_tree
from formica.adapters.trusted import new_scratch
from formica.errors import Broken, NeedsOperator, Refused, Retryable

__all__ = ["Publication"]

# The forge's repository may belong to another user of this host.
_SETTINGS = "[safe]\n\tdirectory = *\n"
_BRANCH = re.compile(r"formica/[a-z0-9]+(?:-[a-z0-9]+)*")


class Publication:
    """``push_to`` is the URL of the forge's repository, or the path of a bare one, ``state`` the daemon's
    state folder."""

    def __init__(self, git: Git, push_to: str, *, state: Path) -> None:
        self._git = git
        self._state = state
        self._push_to = push_to
        self._remote: Remote | None = None

    async def read(self, branch: str) -> str | None:
        """The branch's sha on the forge now, or None. ``Retryable`` when the forge does not answer."""
        remote = await self._find_remote()
        async with self._settings() as environment:
            listed = await self._git.run(
                *("ls-remote", "--end-of-options", remote.address, f"refs/heads/{branch}"),
                remote=remote,
                environment=environment,
                doing="read a branch of the forge",
                failure=Retryable,
            )
        rows = (row.split("\t", 1) for row in listed.text.splitlines())
        return next((sha for sha, name in rows if name == f"refs/heads/{branch}"), None)

    async def push(
        self, git_dir: Path, *, head_sha: str, branch: str, expected: str | None, default_branch: str
    ) -> None:
        """Never moves a branch that is not ours, never to anything that is not ahead of what is there.
        ``git_dir`` is a repository that no program of an agent or a project could have written."""
        if not _BRANCH.fullmatch(branch) or branch == default_branch:
            raise Broken(f"{branch!r} is not a branch formica may push")
        if not OBJECT_ID.fullmatch(head_sha):
            raise Broken("only a full object id is ever pushed")
        present = await self.read(branch)
        if present == head_sha:
            return
        if present != expected:
            raise NeedsOperator(
                f"branch {branch} was changed on the forge by somebody else; nothing was pushed"
                if present
                else f"branch {branch} was deleted on the forge; it is not pushed again"
            )
        if present is not None and not await self._is_ahead(git_dir, present, head_sha):
            raise NeedsOperator(
                f"branch {branch} would have to be rewritten; pushed commits stay as they are"
            )
        remote = await self._find_remote()
        async with self._settings() as environment:
            await self._git.run(
                *("push", "-q", "--porcelain", "--no-follow-tags", "--recurse-submodules=no"),
                f"--force-with-lease=refs/heads/{branch}:{present or ''}",
                *("--end-of-options", remote.address, f"{head_sha}:refs/heads/{branch}"),
                git_dir=git_dir,
                remote=remote,
                environment=environment,
                doing=f"push {branch}",
                failure=NeedsOperator,
            )
        if await self.read(branch) != head_sha:
            raise Retryable(f"{branch} was pushed but the forge does not show it yet")

    @asynccontextmanager
    async def _settings(self) -> AsyncIterator[dict[str, str]]:
        """The environment that puts a configuration of this one call in the place of the user's. What git is
        to do and to leave is said on the command line already."""
        scratch = await anyio.to_thread.run_sync(new_scratch, self._state)
        try:
            config = scratch / "config"
            await anyio.to_thread.run_sync(config.write_text, _SETTINGS)
            yield {"GIT_CONFIG_GLOBAL": str(config)}
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(delete_tree, scratch)

    async def _is_ahead(self, git_dir: Path, old: str, new: str) -> bool:
        answer = await self._git.run(
            *("merge-base", "--is-ancestor", "--end-of-options", old, new),
            git_dir=git_dir,
            doing="compare two commits",
            ok=(0, 1, 128),
        )
        return answer.code == 0

    async def _find_remote(self) -> Remote:
        if self._remote is None:
            here = await anyio.to_thread.run_sync(os.getcwd)
            remote = await anyio.to_thread.run_sync(_parse, self._push_to, Path(here))
            folder = remote.path
            if folder is not None and await anyio.to_thread.run_sync((folder / ".git").exists):
                raise Refused(
                    "[forge] repository is a checkout: formica pushes to a bare repository only",
                    rule="forge.repository",
                )
            self._remote = remote
        return self._remote


def _parse(text: str, folder: Path) -> Remote:
    return Remote.parse(text, relative_to=folder)
