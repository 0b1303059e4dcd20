"""Worktrees made in advance, so that a workspace is ready in the time it takes to write what changed since.

One is kept for each mirror, at the base that was newest when it was made. It is given away once, before any
agent ran in it, and a new one is made in the background.
"""

from __future__ import annotations

import anyio
import structlog

from formica.adapters.clone import Cloner
from formica.adapters.items import Item, ItemFolders, Marker
from formica.errors import FormicaError

__all__ = ["WarmTrees"]

log = structlog.get_logger("formica.warm")


class WarmTrees:
    def __init__(self, cloner: Cloner, folders: ItemFolders) -> None:
        self._cloner = cloner
        self._folders = folders
        self._giving = anyio.Lock()

    async def take(self, marker: Marker) -> Item | None:
        """The item of ``marker`` in a worktree made in advance, moved to its base; None when there is none
        that serves, and then nothing of it is left."""
        async with self._giving:
            warm = await anyio.to_thread.run_sync(self._usable)
            if warm is None:
                return None
            try:
                item = await anyio.to_thread.run_sync(self._folders.adopt, warm, marker)
            except OSError as error:
                log.warning("warm.lost", why=str(error))
                return None
        try:
            await self._cloner.move(item.root, marker.base_sha, marker.branch)
        except (FormicaError, OSError) as problem:
            log.warning("warm.useless", why=str(problem))
            await self._delete(item)
            return None
        return item

    async def begin(self, base_sha: str) -> Item | None:
        """The empty folder of a new one at ``base_sha``; None when there is one for this mirror already."""
        if await anyio.to_thread.run_sync(self._usable) is not None:
            return None
        marker = Marker(
            issue_number=0,
            base_sha=base_sha,
            branch=None,
            root=str(self._folders.new_warm_root()),
            mirror=str(self._cloner.mirror.path),
            state="making",
        )
        return await anyio.to_thread.run_sync(self._folders.create, marker)

    async def fill(self, item: Item) -> None:
        """Check the base out; from then on it can be given away. What fails leaves nothing."""
        finished = False
        try:
            await self._cloner.make(item.root, item.marker.base_sha, None)
            await anyio.to_thread.run_sync(self._folders.finish, item, "warm")
            finished = True
        finally:
            if not finished:
                with anyio.CancelScope(shield=True):
                    await self._delete(item)

    async def drop(self) -> None:
        """Give up every worktree made in advance, for their room."""
        async with self._giving:
            for item in await anyio.to_thread.run_sync(self._folders.warm):
                if item.marker.state == "warm":
                    await self._delete(item)

    async def _delete(self, item: Item) -> None:
        doomed = await anyio.to_thread.run_sync(self._folders.discard, item)
        await anyio.to_thread.run_sync(self._folders.delete, doomed)

    def _usable(self) -> Item | None:
        mirror = str(self._cloner.mirror.path)
        found = [item for item in self._folders.warm() if item.usable and item.marker.mirror == mirror]
        return found[0] if found else None
