"""A maintainer's repository in memory: one remote for all daemons, workspaces for each of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from formica.errors import NeedsOperator, Retryable
from formica.ports import Change, CommitFacts, FileChange, RepositoryFacts, Workspace
from formica.rules.facts import FileText, Row
from tests.fakes.hooks import Hooks

Trees = dict[Path, tuple[FileChange, ...]]
"""What an agent left in a worktree, by the path of the tree."""


def object_id(*parts: object) -> str:
    """A full sha made of anything."""
    return hashlib.sha1("\0".join(map(str, parts)).encode()).hexdigest()


def file_change(path: str, added: int = 3, deleted: int = 1, status: str = "M") -> FileChange:
    """A plain text file changed, added (``A``) or deleted (``D``)."""
    modes = {"A": ("000000", "100644"), "D": ("100644", "000000")}.get(status, ("100644", "100644"))
    kinds = {"A": "A", "D": "D", "T": "T"}
    return FileChange(path, kinds.get(status, "M"), *modes, added, deleted, binary=False)  # type: ignore[arg-type]


def file_text(file: FileChange) -> FileText:
    """As many lines as the change says, none of them remarkable."""
    removed = [Row("-", number, 1, f"was {number}") for number in range(1, file.deleted + 1)]
    added = [Row("+", file.deleted + 1, number, f"is {number}") for number in range(1, file.added + 1)]
    return FileText((*removed, *added))


@dataclass(slots=True)
class FakeRemote:
    """What people and all daemons share."""

    default_branch: str = "main"
    head_sha: str = field(default_factory=lambda: object_id("first"))
    branches: dict[str, str] = field(default_factory=dict)
    merged: dict[str, str] = field(default_factory=dict)
    """Head of a change to the commit on the default branch that has it."""
    commits: dict[str, CommitFacts] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)
    """Version to tag."""
    moved_on: int = 0
    """Commits the default branch has beyond any base."""
    pushes: list[tuple[str, str]] = field(default_factory=list)
    """(branch, sha) of every push that changed the remote."""

    def merge(self, head_sha: str) -> str:
        """A person merges a change; the new head of the default branch."""
        self.head_sha = object_id("merge", self.head_sha, head_sha)
        self.merged[head_sha] = self.head_sha
        self.commits[self.head_sha] = CommitFacts(self.head_sha, True, on_default_branch=True)
        return self.head_sha

    def release(self, tag: str) -> None:
        """A person tags the head: every commit merged so far is in that release."""
        for sha, facts in self.commits.items():
            self.commits[sha] = CommitFacts(
                sha, True, facts.on_default_branch, facts.branches, (*facts.release_tags, tag)
            )


@dataclass(slots=True)
class FakeRepository:
    """One daemon's `Repository`; ``root`` keeps the paths of daemons apart and is never made."""

    remote: FakeRemote
    hooks: Hooks = field(default_factory=Hooks)
    root: Path = Path("/state")
    trees: Trees = field(default_factory=dict)
    workspaces: dict[int, Workspace] = field(default_factory=dict)
    changes: dict[tuple[int, str], Change] = field(default_factory=dict)
    disposed: list[int] = field(default_factory=list)
    reachable: bool = True
    short_of_room: str | None = None

    async def refresh(self) -> None:
        await self._around("refresh")
        if not self.reachable:
            raise Retryable("the repository is unreachable")

    async def facts(self, *, sha: str | None, version: str | None, ref: str | None) -> RepositoryFacts:
        await self._around("facts")
        tag = self.remote.releases.get(version or "")
        commit = None
        if sha is not None:
            commit = self.remote.commits.get(sha, CommitFacts(sha, exists=False))
        return RepositoryFacts(
            default_branch=self.remote.default_branch,
            head_sha=self.remote.head_sha,
            commit=commit,
            version_tag=tag,
            version_tag_sha=object_id(tag) if tag else None,
            ref_exists=None if ref is None else ref in self.remote.branches,
            has_release_tags=bool(self.remote.releases),
        )

    async def prepare(self, issue_number: int, *, commit: str | None) -> Workspace:
        number = await self.hooks.before("prepare", writes=True, what=f"#{issue_number}")
        root = self.root / "items" / str(issue_number)
        workspace = Workspace(
            issue_number=issue_number,
            root=root,
            tree=root / "tree",
            branch=f"formica/issue-{issue_number}" if commit is None else None,
            base_sha=commit or self.remote.head_sha,
        )
        self.workspaces[issue_number] = workspace
        self.trees[workspace.tree] = ()
        self.changes = {key: change for key, change in self.changes.items() if key[0] != issue_number}
        await self.hooks.after("prepare", number)
        return workspace

    async def find(self, issue_number: int) -> Workspace | None:
        await self._around("find")
        return self.workspaces.get(issue_number)

    async def collect(self, workspace: Workspace, *, message: str) -> Change:
        number = await self.hooks.before("collect")
        files = self.trees[workspace.tree]
        text = "\n".join(f"+{file}" for file in files)
        change = Change(
            base_sha=workspace.base_sha,
            head_sha=object_id(workspace.base_sha, text, message),
            diff_hash=hashlib.sha256(text.encode()).hexdigest(),
            files=files,
            diff=text,
            texts={file.path: file_text(file) for file in files},
            message=message,
        )
        self.changes[workspace.issue_number, change.head_sha] = change
        await self.hooks.after("collect", number)
        return change

    async def load(self, workspace: Workspace, *, base_sha: str, head_sha: str) -> Change:
        await self._around("load")
        change = self.changes.get((workspace.issue_number, head_sha))
        if change is None or change.base_sha != base_sha:
            raise NeedsOperator(f"the change of issue {workspace.issue_number} is not on this host any more")
        return change

    async def push(self, workspace: Workspace, *, head_sha: str, branch: str, expected: str | None) -> None:
        number = await self.hooks.before("push", writes=True, what=f"{branch} {head_sha}")
        there = self.remote.branches.get(branch)
        if there not in (expected, head_sha) or (there is not None and there != head_sha):
            raise NeedsOperator(f"{branch} holds a commit that is not ours")
        if there != head_sha:
            self.remote.branches[branch] = head_sha
            self.remote.pushes.append((branch, head_sha))
        await self.hooks.after("push", number)

    async def remote_branch(self, branch: str) -> str | None:
        await self._around("remote_branch")
        return self.remote.branches.get(branch)

    async def merged(self, *, head_sha: str, base_sha: str) -> str | None:
        await self._around("merged")
        return self.remote.merged.get(head_sha)

    async def behind(self, base_sha: str) -> int:
        await self._around("behind")
        return self.remote.moved_on

    async def shortage(self) -> str | None:
        return self.short_of_room

    async def dispose(self, issue_number: int) -> None:
        number = await self.hooks.before("dispose")
        if self.workspaces.pop(issue_number, None) is not None:
            self.disposed.append(issue_number)
        await self.hooks.after("dispose", number)

    async def _around(self, kind: str) -> None:
        await self.hooks.after(kind, await self.hooks.before(kind))
