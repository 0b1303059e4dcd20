"""What the edges report and the rules judge: facts about commits and changes. Shas are full lower-case hex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Change", "CommitFacts", "FileChange", "RepositoryFacts"]


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What the mirror knows of one commit the reporter named."""

    sha: str
    exists: bool
    on_default_branch: bool = False
    branches: tuple[str, ...] = ()
    release_tags: tuple[str, ...] = ()
    """Release tags that contain the commit, oldest first."""
    ambiguous: bool = False
    """An abbreviated sha that more than one commit begins with."""


@dataclass(frozen=True, slots=True)
class RepositoryFacts:
    """Evidence for the environment check, read from the mirror only."""

    default_branch: str
    head_sha: str
    commit: CommitFacts | None
    version_tag: str | None
    """The tag that the reported version names, if there is one."""
    version_tag_sha: str | None
    ref_exists: bool | None
    """Whether the reported ref is a branch or tag of the repository; None when none was reported."""
    has_release_tags: bool


@dataclass(frozen=True, slots=True)
class FileChange:
    path: str
    """Relative, `/`-separated; bytes that are not UTF-8 are surrogate-escaped."""
    status: Literal["A", "M", "D", "T"]
    old_mode: str
    new_mode: str
    added: int
    deleted: int
    binary: bool


@dataclass(frozen=True, slots=True)
class Change:
    """What came back from an agent, as objects in a clean clone of ours."""

    base_sha: str
    head_sha: str
    diff_hash: str
    """sha256 hex of the full-index binary diff base..head."""
    files: tuple[FileChange, ...]
    diff: str
    """The diff as text for people, cut at 200,000 characters."""

    @property
    def empty(self) -> bool:
        return not self.files
