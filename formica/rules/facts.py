"""What the edges report and the rules judge: facts about commits and changes. Shas are full lower-case hex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Change", "CommitFacts", "FileChange", "FileText", "RepositoryFacts", "Row", "shown_path"]


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
class Row:
    """One line of a diff: kept (`` ``), removed (``-``) or added (``+``), with its numbers from 1."""

    mark: Literal[" ", "-", "+"]
    old: int
    """Its number in the old file; for an added line that of the next old line."""
    new: int
    """Its number in the new file; for a removed line that of the next new line."""
    text: str


@dataclass(frozen=True, slots=True)
class FileText:
    """A changed file as text, binary or not; a link's text is its target."""

    rows: tuple[Row, ...]
    whole: bool = True
    """Whether all kept lines are among the rows, not only those near a change."""

    @property
    def added(self) -> list[Row]:
        return [row for row in self.rows if row.mark == "+"]

    @property
    def removed(self) -> list[Row]:
        return [row for row in self.rows if row.mark == "-"]

    @property
    def old(self) -> list[Row]:
        return [row for row in self.rows if row.mark != "+"]

    @property
    def new(self) -> list[Row]:
        return [row for row in self.rows if row.mark != "-"]


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
    texts: Mapping[str, FileText] = field(default_factory=dict)
    """Path to every line of that file's diff, uncut; a path of ``files`` that is missing could not be read."""
    message: str = ""
    """The head's commit message."""

    @property
    def empty(self) -> bool:
        return not self.files


def shown_path(path: str) -> str:
    """The path as people may see it anywhere: one line, printable, valid UTF-8."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
