"""Pushing one commit to one branch of ours on the forge's repository, and reading it back."""

from __future__ import annotations

import os
import re
from pathlib import Path

import anyio

from formica.adapters.git import OBJECT_ID, Git, Remote
from formica.errors import Broken, NeedsOperator, Refused, Retryable

__all__ = ["Publication"]

_BRANCH = re.compile(r"formica/[a-z0-9]+(?:-[a-z0-9]+)*")


class Publication:
    """``push_to`` is the URL of the forge's repository, or the path of a bare one."""

    def __init__(self, git: Git, push_to: str) -> None:
        self._git = git
        self._push_to = push_to
        self._remote: Remote | None = None

    async def read(self, branch: str) -> str | None:
        """The branch's sha on the forge now, or None. ``Retryable`` when the forge does not answer."""
        remote = await self._find_remote()
        listed = await self._git.run(
            *("ls-remote", "--end-of-options", remote.address, f"refs/heads/{branch}"),
            remote=remote,
            doing="read a branch of the forge",
            failure=Retryable,
        )
        rows = (row.split("\t", 1) for row in listed.text.splitlines())
        return next((sha for sha, name in rows if name == f"refs/heads/{branch}"), None)

    async def push(
        self, git_dir: Path, *, head_sha: str, branch: str, expected: str | None, default_branch: str
    ) -> None:
        """Never moves a branch that is not ours, never to anything that is not ahead of what is there."""
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
        await self._git.run(
            *("push", "-q", "--porcelain", "--no-follow-tags", "--recurse-submodules=no"),
            f"--force-with-lease=refs/heads/{branch}:{present or ''}",
            *("--end-of-options", remote.address, f"{head_sha}:refs/heads/{branch}"),
            git_dir=git_dir,
            remote=remote,
            doing=f"push {branch}",
            failure=NeedsOperator,
        )
        if await self.read(branch) != head_sha:
            raise Retryable(f"{branch} was pushed but the forge does not show it yet")

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
