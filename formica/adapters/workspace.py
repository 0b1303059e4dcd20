"""Workspaces: for each issue a clone of its own that borrows the mirror's objects, and a worktree of it.

Implements `Repository`. One lock per issue keeps two acts off one tree; the mirror has its own.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import anyio
import structlog

from formica.adapters.change import read_change
from formica.adapters.clone import Cloner
from formica.adapters.collect import Author, Collector
from formica.adapters.git import OBJECT_ID, Git, write_repository_settings
from formica.adapters.history import read_facts
from formica.adapters.items import Item, ItemFolders, Marker
from formica.adapters.merges import find_merge
from formica.adapters.mirror import Mirror
from formica.adapters.publication import Publication
from formica.adapters.recovery import Recovery
from formica.adapters.room import Room
from formica.adapters.salvage import PUSHED, Salvage
from formica.adapters.sandbox import end_leftover_run
from formica.adapters.stamps import copy_index
from formica.adapters.trusted import Trusted, new_scratch, remove_scratch
from formica.adapters.warm import WarmTrees
from formica.errors import Broken, FormicaError, NeedsOperator, Refused, Retryable
from formica.ports import Change, CommitFacts, RepositoryFacts, Workspace

__all__ = ["GitRepository"]

WATCH_SECONDS = 1.0
"""How old a fetch may be when merges are looked for."""

SHA_OR_PREFIX = re.compile(r"[0-9a-f]{7,64}")
MIN_FREE_BYTES = 2 << 30
WORKSPACE_BYTES = 10 << 30
WARM_BYTES = 1 << 30
HELD_BACK_SECONDS = 300.0
MAINTENANCE_SECONDS = 3_600.0

log = structlog.get_logger("formica.workspace")


class GitRepository:
    """The maintainer's repository.

    ``state`` is the daemon's state folder, absolute; ``source`` a URL, a bare repository or the maintainer's
    checkout, ``push_to`` the forge's repository (URL or path), ``author_name`` and ``author_email`` sign the
    commits. ``default_branch`` None means the source's HEAD. Nothing new is begun with less than
    ``min_free_bytes`` free on the disk; a workspace may hold ``workspace_bytes``.
    """

    def __init__(
        self,
        git: Git,
        *,
        state: Path,
        source: str,
        push_to: str,
        author_name: str,
        author_email: str,
        default_branch: str | None = None,
        min_free_bytes: int = MIN_FREE_BYTES,
        workspace_bytes: int = WORKSPACE_BYTES,
    ) -> None:
        if not state.is_absolute():
            raise Broken("the state folder must be an absolute path")
        self._git = git
        self._state = state
        self._author = Author(author_name, author_email)
        self._mirror = Mirror(git, state, source=source, default_branch=default_branch)
        self._folders = ItemFolders(state)
        self._recovery = Recovery(state, self._folders)
        self._cloner = Cloner(git, self._mirror, self._author)
        self._warm = WarmTrees(self._cloner, self._folders)
        self._room = Room(state, min_free_bytes, workspace_bytes)
        self._salvage = Salvage(git, self._mirror, state / "quarantine", self._author)
        self._publication = Publication(git, push_to, state=state)
        self._locks: defaultdict[int, anyio.Lock] = defaultdict(anyio.Lock)
        self._watching = anyio.Lock()
        self._watched_at = -WATCH_SECONDS
        self._not_merged_at: dict[str, str] = {}
        """Head of a change to the tip of the default branch that did not hold it."""
        self._bases = anyio.Lock()
        self._settling = anyio.Lock()
        self._maintaining = anyio.Lock()
        self._junk: list[Path] = []
        self._wanted = anyio.Event()

    async def refresh(self) -> None:
        """Fetch the mirror from the source."""
        await self._refresh()

    async def recover(self) -> int:
        """Put right what a killed daemon left, once, before the first workspace is made; how many folders are
        left for `maintain` to delete."""
        self._junk = await anyio.to_thread.run_sync(self._recovery.run)
        await anyio.to_thread.run_sync(remove_scratch, self._state)
        return len(self._junk)

    async def clean(self) -> None:
        """Delete what `recover` found."""
        while self._junk:
            await anyio.to_thread.run_sync(self._folders.delete, self._junk.pop())

    async def maintain(self) -> None:
        """In the background, until cancelled: delete what `recover` found, keep a worktree made in advance,
        tidy the mirror. Needs nothing and loses nothing when it is cut short."""
        while True:
            self._wanted = anyio.Event()
            try:
                await self.maintain_once()
            except FormicaError as problem:
                log.warning("maintenance", why=str(problem))
            with anyio.move_on_after(MAINTENANCE_SECONDS):
                await self._wanted.wait()

    async def maintain_once(self) -> None:
        """One round of `maintain`."""
        async with self._maintaining:
            await self.clean()
            await self._mirror.ensure()
            await self._release_unused()
            await self._refill()
            await self._mirror.tidy()

    async def shortage(self) -> str | None:
        """Why no workspace can be made now for want of disk space, or None."""
        return await anyio.to_thread.run_sync(self._room.shortage)

    async def behind(self, base_sha: str) -> int:
        """How many commits the default branch, fetched for this, has that ``base_sha`` has not."""
        await self._refresh()
        return await self._mirror.behind(base_sha)

    async def hooks_path(self) -> str | None:
        """`core.hooksPath` of the maintainer's checkout, when it names a folder inside the tree."""
        return await self._mirror.hooks_path()

    async def facts(self, *, sha: str | None, version: str | None, ref: str | None) -> RepositoryFacts:
        """Evidence from the mirror, fetched only when there is none yet. A commit that only the maintainer's
        checkout has exists too, on no branch."""
        await self._mirror.ensure()
        only_in_dirty_checkout = False
        if sha is not None and SHA_OR_PREFIX.fullmatch(sha):
            try:
                await self._mirror.commit(sha)
            except Refused:
                only_in_dirty_checkout = True
        facts = await anyio.to_thread.run_sync(
            lambda: read_facts(
                self._mirror.path,
                self._git.config_path,
                default_branch=self._mirror.default_branch,
                sha=sha,
                version=version,
                ref=ref,
            )
        )
        if sha is not None and only_in_dirty_checkout:
            return replace(facts, commit=CommitFacts(sha=sha, exists=True))
        return facts

    async def prepare(self, issue_number: int, *, commit: str | None) -> Workspace:
        """A fresh workspace; what an older one of the issue holds is saved first."""
        async with self._locks[issue_number]:
            await self._make_room()
            await self._refresh()
            await self._clear(issue_number)
            marker = Marker(
                issue_number=issue_number,
                base_sha="",
                branch=f"formica/issue-{issue_number}" if commit is None else None,
                root=str(self._folders.root(issue_number)),
                mirror=str(self._mirror.path),
                state="making",
            )
            async with self._bases:
                marker = replace(marker, base_sha=await self._hold(commit))
                item = await self._warm.take(marker)
                cold = item is None
                if item is None:
                    item = await anyio.to_thread.run_sync(self._folders.create, marker)
            if cold:
                await self._cloner.make(item.root, marker.base_sha, marker.branch)
            await anyio.to_thread.run_sync(copy_index, item.root)
            self._wanted.set()
            return _workspace(await anyio.to_thread.run_sync(self._folders.finish, item))

    async def find(self, issue_number: int) -> Workspace | None:
        """The issue's workspace, if it is whole; half-made and moved ones count as absent."""
        item = await anyio.to_thread.run_sync(self._folders.read, issue_number)
        whole = item is not None and await anyio.to_thread.run_sync(lambda: item.whole)
        return _workspace(item) if item is not None and whole else None

    async def collect(self, workspace: Workspace, *, message: str) -> Change:
        """The tree's final content as one commit on the base, in a fresh clean clone. The same tree and
        message give the same sha. ``NeedsOperator`` when git's checks refuse an object."""
        async with self._locks[workspace.issue_number]:
            await self._mirror.find()
            await end_leftover_run(workspace.root)
            await anyio.to_thread.run_sync(self._room.check_workspace, workspace.root, workspace.issue_number)
            scratch = await anyio.to_thread.run_sync(new_scratch, self._state)
            collector = Collector(
                self._git,
                objects=[self._mirror.path / "objects"],
                object_format=self._mirror.object_format,
                scratch=scratch,
                author=self._author,
            )
            try:
                head = await collector.commit(
                    workspace.tree,
                    workspace.base_sha,
                    message=message,
                    agent_index=workspace.root / "repo.git" / "worktrees" / "tree" / "index",
                )
                clean = await collector.check(workspace.base_sha, head)
                change = await read_change(self._git, clean, workspace.base_sha, head)
                await collector.deliver(clean, workspace.root / "in.git")
                return change
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(collector.remove)

    async def load(self, workspace: Workspace, *, base_sha: str, head_sha: str) -> Change:
        """The change collected before, as its objects' names say; ``NeedsOperator`` when it is not here any
        more, or not what it was."""
        gone = f"the change of issue {workspace.issue_number} is not on this host any more"
        if not (OBJECT_ID.fullmatch(base_sha) and OBJECT_ID.fullmatch(head_sha)):
            raise NeedsOperator(gone)
        await self._mirror.find()
        trusted = Trusted(self._git, workspace.root, base_sha=base_sha, head_sha=head_sha)
        try:
            async with trusted.open() as clean:
                if head_sha != base_sha:
                    parents = await self._git.run(
                        *("rev-list", "--parents", "-n", "1", "--end-of-options", head_sha),
                        git_dir=clean,
                        doing="read the collected change",
                    )
                    if parents.text != f"{head_sha} {base_sha}":
                        raise NeedsOperator(gone)
                return await read_change(self._git, clean, base_sha, head_sha)
        except NeedsOperator as problem:
            raise NeedsOperator(gone) from problem

    async def push(self, workspace: Workspace, *, head_sha: str, branch: str, expected: str | None) -> None:
        """Push by object id from a repository made for this push, read back what arrived, and remember it in
        the mirror."""
        await self._mirror.ensure()
        trusted = Trusted(self._git, workspace.root, base_sha=workspace.base_sha, head_sha=head_sha)
        async with trusted.open() as clean:
            await self._publication.push(
                clean,
                head_sha=head_sha,
                branch=branch,
                expected=expected,
                default_branch=self._mirror.default_branch,
            )
            await self._mirror.take(clean, head_sha, f"{PUSHED}/{head_sha}")

    async def remote_branch(self, branch: str) -> str | None:
        """The sha of the branch on the forge's repository, read live."""
        return await self._publication.read(branch)

    async def merged(self, *, head_sha: str, base_sha: str) -> str | None:
        """The commit on the default branch that brought the change in, or None.

        Many changes are watched at once: they share one fetch, and a branch that has not moved since it last
        did not hold a change is not searched again.
        """
        async with self._watching:
            if anyio.current_time() >= self._watched_at + WATCH_SECONDS:
                await self._refresh()
                self._watched_at = anyio.current_time()
            tip = await self._mirror.resolve(f"refs/heads/{self._mirror.default_branch}")
            if tip is not None and self._not_merged_at.get(head_sha) == tip:
                return None
            found = await find_merge(
                self._git,
                self._mirror.path,
                self._mirror.default_branch,
                head_sha=head_sha,
                base_sha=base_sha,
            )
            if found is None and tip is not None:
                self._not_merged_at[head_sha] = tip
            return found

    async def dispose(self, issue_number: int) -> None:
        """Remove the workspace after saving what no remote has; proves that it is gone."""
        async with self._locks[issue_number]:
            if await anyio.to_thread.run_sync(self._folders.read, issue_number) is None:
                return
            await self._mirror.find()
            await self._clear(issue_number)

    async def _clear(self, issue_number: int) -> None:
        item = await anyio.to_thread.run_sync(self._folders.read, issue_number)
        if item is None:
            return
        await end_leftover_run(item.root)
        await self._salvage.save(item)
        async with self._bases:
            await anyio.to_thread.run_sync(self._folders.remove, issue_number)
            if item.marker.base_sha not in await anyio.to_thread.run_sync(self._used_bases):
                await self._mirror.release(item.marker.base_sha)

    async def _refresh(self) -> None:
        """Fetch the mirror, by the settings we wrote: one line more could lead the fetch elsewhere."""
        if self._mirror.default_branch:
            async with self._settling:
                await anyio.to_thread.run_sync(self._settle_mirror)
        await self._mirror.refresh()

    def _settle_mirror(self) -> None:
        write_repository_settings(self._mirror.path, object_format=self._mirror.object_format)
        for name in ("alternates", "http-alternates"):
            (self._mirror.path / "objects" / "info" / name).unlink(missing_ok=True)

    async def _hold(self, commit: str | None) -> str:
        if commit is not None and not OBJECT_ID.fullmatch(commit):
            base = None
        else:
            base = await self._mirror.hold(commit)
        if base is None:
            wanted = f"commit {commit[:64]!r}" if commit else f"branch {self._mirror.default_branch!r}"
            raise NeedsOperator(f"{wanted} is neither in the repository nor in the checkout")
        return base

    async def _make_room(self) -> None:
        """Clean up when the disk is short; ``Retryable`` when it still is."""
        if await self.shortage() is None:
            return
        await self.clean()
        await self._warm.drop()
        if self._mirror.default_branch:
            await self._mirror.tidy(at_once=True)
        still = await self.shortage()
        if still is not None:
            raise Retryable(still, after_seconds=HELD_BACK_SECONDS)

    async def _release_unused(self) -> None:
        async with self._bases:
            used = await anyio.to_thread.run_sync(self._used_bases)
            for sha in await self._mirror.kept():
                if sha not in used:
                    await self._mirror.release(sha)

    async def _refill(self) -> None:
        room = await anyio.to_thread.run_sync(self._room.shortage, WARM_BYTES)
        if room is not None:
            return
        async with self._bases:
            item = await self._warm.begin(await self._hold(None))
        if item is not None:
            await self._warm.fill(item)

    def _used_bases(self) -> set[str]:
        return {item.marker.base_sha for item in [*self._folders.all(), *self._folders.warm()]}


def _workspace(item: Item) -> Workspace:
    return Workspace(
        issue_number=item.marker.issue_number,
        root=item.root,
        tree=item.root / "tree",
        branch=item.marker.branch,
        base_sha=item.marker.base_sha,
    )
