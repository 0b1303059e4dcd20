"""A forge in memory. It does not stop anybody from opening two pull requests: only the daemon does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from formica.errors import Retryable
from formica.ports import PullRequest, PullRequestDraft
from tests.fakes.hooks import Hooks
from tests.fakes.repository import FakeRemote


@dataclass(slots=True)
class FakeForge:
    """``merge`` and ``close`` are what people do."""

    remote: FakeRemote
    hooks: Hooks = field(default_factory=Hooks)
    target: str = "fake:project"
    drafts: list[PullRequestDraft] = field(default_factory=list)
    pulls: list[PullRequest] = field(default_factory=list)
    countable: bool = True
    """False: the number of open pull requests cannot be read."""
    foreign_open: int = 0
    """Open pull requests of ours that some other item made."""

    async def find(self, *, branch: str, marker: str) -> PullRequest | None:
        number = await self.hooks.before("find_pull")
        found = self._found(branch, marker)
        await self.hooks.after("find_pull", number)
        return found

    async def read(self, *, branch: str, marker: str) -> PullRequest | None:
        number = await self.hooks.before("read_pull")
        found = self._found(branch, marker)
        await self.hooks.after("read_pull", number)
        return found

    async def create(self, draft: PullRequestDraft) -> PullRequest:
        number = await self.hooks.before("create_pull", writes=True, what=f"#{draft.issue_number}")
        pull = PullRequest(
            url=f"https://forge.example/pulls/{len(self.pulls) + 1}",
            number=len(self.pulls) + 1,
            branch=draft.branch,
            head_sha=draft.head_sha,
            state="open",
            raw={"marker": draft.marker, "body": draft.body, "title": draft.title},
        )
        self.drafts.append(draft)
        self.pulls.append(pull)
        await self.hooks.after("create_pull", number)
        return pull

    async def open_count(self) -> int:
        number = await self.hooks.before("open_count")
        if not self.countable:
            raise Retryable("the forge did not answer")
        await self.hooks.after("open_count", number)
        return self.foreign_open + sum(pull.state == "open" for pull in self.pulls)

    def merge(self, number: int) -> str:
        """A person merges pull request ``number``; the merge commit."""
        pull = self.pulls[number - 1]
        sha = self.remote.merge(pull.head_sha)
        self.pulls[number - 1] = replace(pull, state="merged", merge_sha=sha)
        return sha

    def close(self, number: int) -> None:
        """A person closes pull request ``number`` without merging it."""
        self.pulls[number - 1] = replace(self.pulls[number - 1], state="closed")

    def _found(self, branch: str, marker: str) -> PullRequest | None:
        for pull in self.pulls:
            if marker in str(pull.raw["body"]) or (pull.branch == branch and pull.state == "open"):
                return pull
        return None
