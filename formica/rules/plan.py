"""The plan: one entity per issue on the pool server, and the only memory the daemon has.

``Plan`` is the shape of its ``fields``. A write sends only the fields that change, so what a newer version
of the daemon added stays untouched. Source: daemon design, section 2.5.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from formica.errors import Broken
from formica.rules.pipeline import STATUS, State

Outcome = Literal[
    "pr_opened",
    "worktree_created",
    "input_requested",
    "answered",
    "not_reproduced",
    "already_fixed",
    "no_change",
    "abandoned",
]
WaitingFor = Literal["go", "shipit", "decision"]
Json = dict[str, Any]


def _time(value: str) -> str:
    seconds(value)
    return value


Time = Annotated[str, AfterValidator(_time)]
"""RFC 3339; a plan whose times cannot be read cannot be read at all."""


class Lease(BaseModel):
    """Who moves the plan until when, in server time."""

    model_config = ConfigDict(extra="ignore")

    id: str
    expires_at: Time


class Approval(BaseModel):
    """One ``/go`` or ``/shipit``: who said yes to exactly which bytes. Single use."""

    model_config = ConfigDict(extra="ignore")

    id: str
    kind: Literal["go", "shipit"]
    by: str
    at: Time
    expires_at: Time
    plan_hash: str
    head_sha: str | None = None
    diff_hash: str | None = None
    target: str | None = None
    used: bool = False


class AskedQuestion(BaseModel):
    """One question put to the reporter; ``needs`` names the fields it asks for."""

    model_config = ConfigDict(extra="ignore")

    needs: list[str]
    text: str
    message_id: str | None = None
    asked_at: str | None = None


class Plan(BaseModel):
    model_config = ConfigDict(extra="ignore")

    issue_entity_id: str
    issue_number: int
    name: str
    state: State = State.RECEIVED
    status: str = STATUS[State.RECEIVED]
    outcome: Outcome | None = None
    kind: str | None = None
    kind_confidence: float | None = None
    kind_reasons: list[str] = Field(default_factory=list)
    entity_type: str | None = None
    security: bool = False
    private: bool = False
    tainted: list[str] = Field(default_factory=list)
    summary: str = ""
    message_ids: list[str] = Field(default_factory=list)
    report_hash: str = ""
    dry_run: bool = False
    would_do: list[str] = Field(default_factory=list)
    questions: list[AskedQuestion] = Field(default_factory=list)
    approvals: list[Approval] = Field(default_factory=list)
    waiting_for: WaitingFor | None = None
    owner: str | None = None
    generation: int = 0
    lease: Lease | None = None
    cluster: list[str] = Field(default_factory=list)
    host: str | None = None
    home: str | None = None
    """The owner whose state folder holds the worktree: two daemons of one host are told apart."""
    transcript_hash: str | None = None
    transcript: str | None = None
    """The name of the session's record below `<state>/transcripts` of ``home``."""
    known_fixes: list[Json] = Field(default_factory=list)
    reproduction_environment_kind: str | None = None
    reproduction_environment_evidence: list[str] = Field(default_factory=list)
    git_sha: str | None = None
    git_ref: str | None = None
    app_version: str | None = None
    risk: Literal["low", "high"] | None = None
    decision_required: bool = False
    decision_blockers: list[str] = Field(default_factory=list)
    todos: list[str] = Field(default_factory=list)
    attempt: int = 0
    round: int = 0
    starts: int = 0
    faults: int = 0
    run_started_at: Time | None = None
    resume_state: State | None = None
    held: bool = False
    worktree_path: str | None = None
    branch: str | None = None
    base_sha: str | None = None
    head_sha: str | None = None
    diff_hash: str | None = None
    diff_stat: list[Json] = Field(default_factory=list)
    proof: Json | None = None
    findings: list[str] = Field(default_factory=list)
    intent: Json | None = None
    pr_url: str | None = None
    pr_state: Literal["open", "merged", "closed"] | None = None
    merged_sha: str | None = None
    fixed_in_version: str | None = None
    agent_reason: str = ""
    why_waiting: str = ""
    next_look_at: Time | None = None
    last_error: str = ""
    costs: Json = Field(default_factory=dict)


def plan_key(issue_entity_id: str, name: str) -> str:
    """The plan's unique key: one per issue and daemon name."""
    return f"{issue_entity_id}:{name}"


def readable(entity: Mapping[str, Any], name: str) -> Plan | None:
    """The plan in a plan entity, or None when it is another daemon's or nothing that this version can read:
    one spoilt plan must not hide the others."""
    fields = entity["fields"]
    if fields.get("name") != name:
        return None
    try:
        return Plan.model_validate(fields)
    except ValidationError:
        return None


def parse(entity: Mapping[str, Any]) -> Plan:
    """The plan in a plan entity.

    Raises:
        Broken: a field that this version cannot read; the message names it, and what to do.
    """
    try:
        return Plan.model_validate(entity["fields"])
    except ValidationError as unreadable:
        first = unreadable.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Broken(
            f"plan {entity['entity_id']} cannot be read: {field}: {first['msg']}; "
            f"correct the field with PATCH /entities/{entity['entity_id']}"
        ) from None


def plan_hash(plan: Plan) -> str:
    """What ``/go`` approves: the report as read, what it was taken for, and where it would be worked on."""
    covered = {
        "issue": plan.issue_entity_id,
        "report": plan.report_hash,
        "kind": plan.kind,
        "security": plan.security,
        "environment": plan.reproduction_environment_kind,
        "commit": plan.git_sha,
        "would_do": plan.would_do,
        "round": plan.round,
    }
    return _digest(covered)


def report_hash(issue: Mapping[str, Any]) -> str:
    """The reporter's side of a thread as one hash; our own messages do not change it."""
    said = [
        [message["message_id"], message["body"], message.get("reporter", {})]
        for message in issue["messages"]
        if message["author_role"] == "reporter"
    ]
    return _digest([issue["title"], issue["reporter"], said])


def moved(state: State, **changes: Any) -> Json:
    """The fields of a write that enters ``state``; ``status`` follows, and a stop clears the lease."""
    fields: Json = {"state": state.value, "status": STATUS[state], **changes}
    if state in LEASE_ENDS:
        fields.setdefault("lease", None)
        fields.setdefault("owner", None)
    return fields


LEASE_ENDS = frozenset(
    {
        State.WAITING_OPERATOR,
        State.AWAITING_INPUT,
        State.BACKING_OFF,
        State.DONE,
        State.REFUSED,
        State.FAILED,
        State.CANCELLED,
    }
)


def seconds(timestamp: str) -> float:
    """RFC 3339 to seconds since the epoch."""
    return datetime.fromisoformat(timestamp).timestamp()


def timestamp(at: float) -> str:
    """Seconds since the epoch to RFC 3339 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
