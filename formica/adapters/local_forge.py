"""The forge for people without one: a bare repository, and a pull-request record on the pool server.

People merge in the bare repository with git, or mark the record ``merged`` or ``closed``. The record is made
once per marker, because its entity key is unique.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from formica.ports import Issues, PullRequest, PullRequestDraft, VersionMismatch

Json = dict[str, Any]
Merged = Callable[[str, str], Awaitable[str | None]]


class LocalForge:
    """``author`` marks our records; ``merged(head_sha, base_sha)`` reads the bare repository."""

    def __init__(
        self, issues: Issues, *, repository: str, server_url: str, author: str, merged: Merged
    ) -> None:
        self.target = f"local:{repository}"
        self._issues = issues
        self._repository = repository
        self._server_url = server_url.rstrip("/")
        self._author = author
        self._merged = merged

    async def find(self, *, branch: str, marker: str) -> PullRequest | None:
        """The record of this marker, or an open one on the branch that somebody else made."""
        entity = await self._issues.entity("pull_request", marker)
        if entity is None:
            entity = next(
                (
                    record
                    for record in await self._ours(any_author=True)
                    if record["fields"]["branch"] == branch
                ),
                None,
            )
        return None if entity is None else await self._as_pull_request(entity)

    async def read(self, *, branch: str, marker: str) -> PullRequest | None:
        return await self.find(branch=branch, marker=marker)

    async def create(self, draft: PullRequestDraft) -> PullRequest:
        fields: Json = {
            "repository": self._repository,
            "author": self._author,
            "marker": draft.marker,
            "branch": draft.branch,
            "base_branch": draft.base_branch,
            "base_sha": draft.base_sha,
            "head_sha": draft.head_sha,
            "title": draft.title,
            "body": draft.body,
            "issue_number": draft.issue_number,
            "issue_entity_id": draft.issue_entity_id,
            "draft": True,
            "state": "open",
        }
        entity = await self._issues.create_entity("pull_request", draft.marker, fields)
        await self._issues.relate(entity["entity_id"], "REFERS_TO", draft.issue_entity_id)
        return await self._as_pull_request(entity)

    async def open_count(self) -> int:
        """Records still open; each is looked up in the repository, because people merge there."""
        count = 0
        for entity in await self._ours():
            count += (await self._as_pull_request(entity)).state == "open"
        return count

    async def _ours(self, *, any_author: bool = False) -> list[Json]:
        return [
            entity
            for entity in await self._issues.entities("pull_request")
            if entity["fields"].get("state") == "open"
            and entity["fields"].get("repository") == self._repository
            and (any_author or entity["fields"].get("author") == self._author)
        ]

    async def _as_pull_request(self, entity: Json) -> PullRequest:
        fields = entity["fields"]
        state: Literal["open", "merged", "closed"] = fields["state"]
        merge_sha = fields.get("merge_sha")
        if state != "closed" and merge_sha is None:
            merge_sha = await self._merged(fields["head_sha"], fields["base_sha"])
            if merge_sha is not None and state == "open":
                state = "merged"
                await self._record_merge(entity, merge_sha)
        return PullRequest(
            url=f"{self._server_url}/entities/{entity['entity_id']}",
            number=fields["issue_number"],
            branch=fields["branch"],
            head_sha=fields["head_sha"],
            state=state,
            merge_sha=merge_sha,
            raw=fields,
        )

    async def _record_merge(self, entity: Json, merge_sha: str) -> None:
        """Write down what people did in the repository; a lost race means that it is written already."""
        try:
            await self._issues.patch_entity(
                entity["entity_id"], {"state": "merged", "merge_sha": merge_sha}, version=entity["version"]
            )
        except VersionMismatch:
            return
