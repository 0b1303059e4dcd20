"""The edges of formica, as narrow Protocols: what `worker` and `supervisor` need, and nothing more.

Adapters implement them; tests give small working fakes. Every method may raise the errors of
`formica.errors` and no others. All times are seconds, all shas full lower-case hex.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from formica.rules.facts import Change, CommitFacts, FileChange, RepositoryFacts

__all__ = [
    "AgentResult",
    "AgentSession",
    "AgentTask",
    "Change",
    "Clock",
    "CommandResult",
    "CommitFacts",
    "FileChange",
    "Forge",
    "Issues",
    "Proof",
    "PullRequest",
    "PullRequestDraft",
    "Repository",
    "RepositoryFacts",
    "StopCheck",
    "Transcript",
    "Transcripts",
    "Verifier",
    "VersionMismatch",
    "Workspace",
]

Json = dict[str, Any]
StopCheck = Callable[[], Awaitable[None]]
"""Raises `Stopped` or `LeaseLost` when the work in hand must end."""


class Clock(Protocol):
    """Server time, estimated from the last write's answer and the local monotonic clock."""

    def now(self) -> float: ...


class Issues(Protocol):
    """The pool server, as the daemon uses it. Answers are the JSON of the wire contract.

    Raises `Retryable` when unreachable or rate-limited, `Refused` on a 4xx that repeating will not change.
    ``step`` names an act on an issue: the same step twice is a replay on the server, not a second act.
    """

    async def open_issues(self) -> list[Json]:
        """Every issue that is open, in_progress or awaiting_input."""

    async def issue(self, *, issue_number: int | None = None, entity_id: str | None = None) -> Json: ...
    async def add_message(
        self, issue_number: int, body: str, *, step: str, question: Json | None = None
    ) -> Json | None:
        """The answer, or None when this step said something else before: it is said, and stays said."""

    async def update_issue(self, issue_number: int, **changes: Any) -> Json: ...
    async def resolve(self, issue_number: int, resolution: Json) -> Json: ...
    async def bulk_close(self, entity_ids: Sequence[str], resolution: Json) -> list[Json]: ...
    async def entities(self, entity_type: str) -> list[Json]: ...
    async def entity(self, entity_type: str, key: str) -> Json | None: ...
    async def entity_by_id(self, entity_id: str) -> Json | None: ...
    async def create_entity(self, entity_type: str, key: str, fields: Json) -> Json:
        """The new entity, or the existing one when the key is taken."""

    async def patch_entity(self, entity_id: str, fields: Json, *, version: int | None) -> Json:
        """Compare-and-swap, or an unconditional write when ``version`` is None.

        Raises:
            VersionMismatch: the entity moved on since it was read.
        """

    async def relate(self, source_entity_id: str, relationship_type: str, target_entity_id: str) -> None: ...


class VersionMismatch(Exception):
    """The entity moved on since it was read. Not an error: read again and decide again."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """One item's private clone and worktree below the daemon's state folder."""

    issue_number: int
    root: Path
    """`<state>/items/<issue_number>`; holds `repo.git`, `tree`, `in.git`, `run`."""
    tree: Path
    branch: str | None
    """`formica/issue-<n>`, or None for a detached worktree."""
    base_sha: str


class Repository(Protocol):
    """The maintainer's repository through our own mirror, and each item's workspace."""

    async def refresh(self) -> None:
        """Fetch the mirror from the source."""

    async def facts(self, *, sha: str | None, version: str | None, ref: str | None) -> RepositoryFacts: ...

    async def prepare(self, issue_number: int, *, commit: str | None) -> Workspace:
        """A fresh workspace: on `formica/issue-<n>` from the default branch's head, or, with `commit`,
        detached at it. An older workspace of the item is bundled to quarantine first, then replaced."""

    async def find(self, issue_number: int) -> Workspace | None:
        """The item's existing workspace on this host, whole and ours, or None."""

    async def collect(self, workspace: Workspace, *, message: str) -> Change:
        """The tree's changes (commits, uncommitted and untracked files) as one commit on the base,
        in a clean clone. git never runs in the agent's tree."""

    async def load(self, workspace: Workspace, *, base_sha: str, head_sha: str) -> Change:
        """The change collected before, by object id; raises `NeedsOperator` when it is not there."""

    async def push(self, workspace: Workspace, *, head_sha: str, branch: str, expected: str | None) -> None:
        """Push by object id to `refs/heads/<branch>` of the forge's repository. `expected` is the sha the
        branch has there now (None: absent). A foreign commit there raises `NeedsOperator`."""

    async def remote_branch(self, branch: str) -> str | None:
        """The sha of the branch on the forge's repository, read live."""

    async def merged(self, *, head_sha: str, base_sha: str) -> str | None:
        """The commit on the (fresh) default branch that contains this change, or None. Knows squashes."""

    async def behind(self, base_sha: str) -> int:
        """How many commits the default branch, fetched for this, has that the base has not."""

    async def shortage(self) -> str | None:
        """Why no workspace can be begun now for want of disk space, in one sentence, or None."""

    async def dispose(self, issue_number: int) -> None:
        """Remove the item's workspace; anything unpushed is bundled to quarantine first."""


@dataclass(frozen=True, slots=True)
class AgentTask:
    workspace: Workspace
    prompt: str
    timeout_seconds: float
    stall_seconds: float


@dataclass(frozen=True, slots=True)
class CommandResult:
    """One supervised run of a program and everything it started."""

    exit_code: int | None
    """None when it was ended by us."""
    reason: Literal["exited", "timeout", "stalled", "stopped", "unstartable", "memory", "processes", "disk"]
    """How it ended; the last three are limits of ours that it reached."""
    seconds: float
    output_tail: str
    """The last 20,000 characters of what it printed."""
    log_path: Path
    log_hash: str
    """sha256 hex of the log file."""


@dataclass(frozen=True, slots=True)
class AgentResult:
    verdict: Literal["success", "no_change", "failed", "timeout", "stalled"]
    reason: str
    """One sentence for people."""
    command: CommandResult


class AgentSession(Protocol):
    """A coding agent. `run` ends with everything it started dead; raises what `check` raises."""

    name: str

    async def run(self, task: AgentTask, *, check: StopCheck) -> CommandResult: ...

    def verdict(self, result: CommandResult, *, changed: bool) -> AgentResult:
        """Pure: no proof of success is not success."""


class Transcripts(Protocol):
    """The record of each agent run on this host; it outlives the workspace."""

    async def keep(self, issue_number: int, run_id: str, *, prompt: str, log_path: Path) -> Transcript | None:
        """Store prompt and log, redacted; None when the disk would not have it."""


@dataclass(frozen=True, slots=True)
class Transcript:
    name: str
    """Its file's name below `<state>/transcripts`."""
    hash: str
    """sha256 hex of the stored file."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Base with the test part of the diff alone must fail, head must pass."""

    proved: bool
    reason: str
    """One sentence for people: what was proved, or why not."""
    has_tests: bool
    base_failed: bool | None
    head_passed: bool | None
    hooks_passed: bool | None
    """None: the project has no hooks that run on commit."""
    commands: tuple[Json, ...] = ()
    """Each command run: name, argv, exit_code, reason, seconds, output_tail, log (the path of all it printed,
    relative to the state folder) and log_hash (its sha256)."""


class Verifier(Protocol):
    async def prove(self, workspace: Workspace, change: Change, *, check: StopCheck) -> Proof: ...


@dataclass(frozen=True, slots=True)
class PullRequestDraft:
    issue_number: int
    issue_entity_id: str
    branch: str
    base_branch: str
    base_sha: str
    head_sha: str
    diff_hash: str
    title: str
    body: str
    marker: str
    """The text by which a pull request of this item is recognised again."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    url: str
    number: int
    branch: str
    head_sha: str
    state: Literal["open", "merged", "closed"]
    merge_sha: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)


class Forge(Protocol):
    """Where pull requests live. Nothing here can merge, approve, close or tag."""

    target: str
    """Names the repository pull requests go to; part of what `/shipit` approves."""

    async def find(self, *, branch: str, marker: str) -> PullRequest | None: ...
    async def create(self, draft: PullRequestDraft) -> PullRequest: ...
    async def read(self, *, branch: str, marker: str) -> PullRequest | None: ...
    async def open_count(self) -> int:
        """Open pull requests of ours, by author and marker; raises when unreadable."""
