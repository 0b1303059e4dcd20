"""Whether a change of ours is on the default branch, however it was merged. Reads the mirror only."""

from __future__ import annotations

from pathlib import Path

from formica.adapters.git import OBJECT_ID, Git
from formica.errors import NeedsOperator

__all__ = ["find_merge"]

_COMMITS_LIMIT = 500
_LITERAL = {"GIT_LITERAL_PATHSPECS": "1"}


async def find_merge(
    git: Git, mirror: Path, default_branch: str, *, head_sha: str, base_sha: str
) -> str | None:
    """The oldest first-parent commit of the default branch that holds the change base..head, or None: the
    commit itself, its merge, a commit with the same patch, or one with the same content in its paths."""
    if not (OBJECT_ID.fullmatch(head_sha) and OBJECT_ID.fullmatch(base_sha)) or head_sha == base_sha:
        return None
    search = _Search(git, mirror, f"refs/heads/{default_branch}", head_sha, base_sha)
    if not await search.known(head_sha) or not await search.known(base_sha):
        return None
    if await search.contains(search.tip):
        return await search.first_that_contains()
    paths = await search.paths()
    if not paths:
        return None
    candidates = await search.touching(paths)
    return await search.same_patch(candidates, paths) or await search.same_content(candidates, paths)


class _Search:
    def __init__(self, git: Git, mirror: Path, tip: str, head_sha: str, base_sha: str) -> None:
        self._git = git
        self._mirror = mirror
        self.tip = tip
        self._head = head_sha
        self._base = base_sha

    async def known(self, sha: str) -> bool:
        answer = await self._git.run(
            *("cat-file", "-e", f"{sha}^{{commit}}"),
            git_dir=self._mirror,
            doing="look for a commit",
            ok=(0, 1, 128),
        )
        return answer.code == 0

    async def contains(self, commit: str) -> bool:
        answer = await self._git.run(
            *("merge-base", "--is-ancestor", "--end-of-options", self._head, commit),
            git_dir=self._mirror,
            doing="compare two commits",
            ok=(0, 1),
        )
        return answer.code == 0

    async def first_that_contains(self) -> str:
        """Containing is monotonic along the first parents, so halving finds the first."""
        listed = await self._git.run(
            *("rev-list", "--first-parent", "--reverse", "--end-of-options", f"{self._base}..{self.tip}"),
            git_dir=self._mirror,
            doing="list the default branch",
        )
        commits = listed.text.split()
        low, high = 0, len(commits) - 1
        while low < high:
            middle = (low + high) // 2
            if await self.contains(commits[middle]):
                high = middle
            else:
                low = middle + 1
        return commits[low] if commits else self._head

    async def paths(self) -> list[str]:
        listed = await self._git.run(
            *("diff-tree", "-r", "-z", "--name-only", "--no-renames"),
            *("--end-of-options", self._base, self._head),
            git_dir=self._mirror,
            doing="list the change's paths",
        )
        return [path.decode("utf-8", "surrogateescape") for path in listed.fields]

    async def touching(self, paths: list[str]) -> list[str]:
        listed = await self._git.run(
            *("rev-list", "--first-parent", "--reverse", f"--max-count={_COMMITS_LIMIT}"),
            *("--end-of-options", f"{self._base}..{self.tip}", "--", *paths),
            git_dir=self._mirror,
            environment=_LITERAL,
            doing="list the commits that touch the change's paths",
        )
        return listed.text.split()

    async def same_patch(self, candidates: list[str], paths: list[str]) -> str | None:
        """By patch id, so that a default branch that moved in between does not matter."""
        wanted = await self._patch_id(self._base, self._head, paths)
        for commit in candidates:
            if wanted and await self._patch_id(f"{commit}^1", commit, paths) == wanted:
                return commit
        return None

    async def _patch_id(self, old: str, new: str, paths: list[str]) -> str:
        try:
            patch = await self._git.run(
                *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index", "--no-renames"),
                *("--end-of-options", old, new, "--", *paths),
                git_dir=self._mirror,
                environment=_LITERAL,
                doing="compare two commits",
                failure=NeedsOperator,
            )
        except NeedsOperator:
            return ""  # a patch too large to compare, or a commit without parent: contents decide
        answer = await self._git.run("patch-id", "--stable", stdin=patch.stdout, doing="name a patch")
        return answer.text.partition(" ")[0]

    async def same_content(self, candidates: list[str], paths: list[str]) -> str | None:
        wanted = await self._content(self._head, paths)
        for commit in candidates:
            if await self._content(commit, paths) == wanted:
                return commit
        return None

    async def _content(self, commit: str, paths: list[str]) -> bytes:
        listed = await self._git.run(
            *("ls-tree", "-r", "-z", "--full-tree", "--end-of-options", commit, "--", *paths),
            git_dir=self._mirror,
            environment=_LITERAL,
            doing="compare two commits",
        )
        return listed.stdout
