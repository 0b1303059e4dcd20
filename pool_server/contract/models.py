"""The wire's shapes: what every operation takes and answers, on HTTP and MCP alike.

Inputs reject unknown fields and are validated strictly when they come as JSON; answers are built with only
the fields the caller may see, and serialised with ``exclude_unset`` so that an explicit null stays a null.
Timestamps are RFC 3339 in UTC. Source: the wire contract, sections 3 to 5.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

IssueKind = Literal["bug", "enhancement", "question"]
IssueStatusName = Literal["open", "in_progress", "awaiting_input", "resolved", "closed"]
Visibility = Literal["public", "private"]
Role = Literal["anonymous", "guest", "member", "operator"]
Tier = Literal["anon", "free", "paid", "verified"]
AuthorRole = Literal["reporter", "daemon", "operator", "forge"]
ResolutionKind = Literal["fixed", "answered", "duplicate", "not_reproduced", "declined"]

MAX_BODY_BYTES = 256 * 1024
MAX_FIELDS_DEPTH = 32
REPORTER_FIELDS = (
    "reporter_git_sha",
    "reporter_app_version",
    "reporter_git_ref",
    "reporter_channel",
    "reporter_ci_run_id",
    "reporter_patch_source_id",
)


def _storable_text(value: str) -> str:
    if "\x00" in value:
        raise ValueError("must not contain NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError as broken:
        raise ValueError("must be valid Unicode") from broken
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def _plain(value: Any, depth: int = 0) -> None:
    if depth > MAX_FIELDS_DEPTH:
        raise ValueError(f"must not be nested deeper than {MAX_FIELDS_DEPTH}")
    if isinstance(value, str):
        _storable_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must not contain NaN or infinity")
    elif isinstance(value, list):
        for item in value:
            _plain(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _plain(key, depth + 1)
            _plain(item, depth + 1)


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    _plain(value)
    return value


_STORABLE = AfterValidator(_storable_text)
Title = Annotated[str, StringConstraints(min_length=1, max_length=256), _STORABLE, AfterValidator(_not_blank)]
Body = Annotated[
    str, StringConstraints(min_length=1, max_length=65_536), _STORABLE, AfterValidator(_not_blank)
]
Short = Annotated[str, StringConstraints(max_length=256), _STORABLE]
Label = Annotated[str, StringConstraints(min_length=1, max_length=50), _STORABLE, AfterValidator(_not_blank)]
GitSha = Annotated[str, StringConstraints(pattern=r"^\s*([0-9a-fA-F]{7,40})?\s*$", max_length=64)]
EntityId = Annotated[str, StringConstraints(pattern=r"^ent_[0-9a-f]{24}$")]
EntityType = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
EntityKey = Annotated[str, StringConstraints(min_length=1, max_length=256), _STORABLE]
MessageId = EntityId
SubscriptionId = Annotated[str, StringConstraints(pattern=r"^sub_[0-9a-f]{24}$")]
IssueNumber = Annotated[int, Field(ge=1, le=2**53)]
Limit = Annotated[int, Field(ge=1, le=500)]
Cursor = Annotated[int, Field(ge=0, le=2**53)]


class Input(BaseModel):
    """An operation's arguments."""

    model_config = ConfigDict(extra="forbid")


class PostInput(Input):
    """A POST body: every one accepts a guest token and an idempotency key."""

    guest_access_token: Annotated[str, StringConstraints(max_length=200)] | None = None
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=128), _STORABLE] | None = None


class Output(BaseModel):
    """An operation's answer."""

    model_config = ConfigDict(extra="forbid")


# --- reporter environment -------------------------------------------------------------------------------


class ReporterFields(BaseModel):
    """The build a report is about. Blank is absent everywhere."""

    reporter_git_sha: GitSha | None = None
    reporter_app_version: Short | None = None
    reporter_git_ref: Short | None = None
    reporter_channel: Short | None = None
    reporter_ci_run_id: Short | None = None
    reporter_patch_source_id: Short | None = None

    def reporter(self) -> dict[str, str]:
        """Only the fields that say something, stripped; a sha in lower case."""
        given = ((name, (getattr(self, name) or "").strip()) for name in REPORTER_FIELDS)
        fields = {name: value for name, value in given if value}
        if "reporter_git_sha" in fields:
            fields["reporter_git_sha"] = fields["reporter_git_sha"].lower()
        return fields


class IssueRef(PostInput):
    """One issue, by entity id or number; when both are given they must agree."""

    entity_id: EntityId | None = None
    issue_number: IssueNumber | None = None

    @model_validator(mode="after")
    def _one_is_given(self) -> IssueRef:
        if self.entity_id is None and self.issue_number is None:
            raise ValueError("give entity_id or issue_number")
        return self


# --- issues ---------------------------------------------------------------------------------------------

Links = Annotated[list[EntityId], Field(max_length=50)]
Labels = Annotated[list[Label], Field(max_length=20)]


class SubmitIssue(PostInput, ReporterFields):
    title: Title
    body: Body
    kind: IssueKind | None = None
    entity_type: EntityType | None = None
    labels: Labels = Field(default_factory=list)
    visibility: Visibility = "public"
    entity_ids_to_link: Links = Field(default_factory=list)


class Question(Input):
    needs: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=64), _STORABLE]],
        Field(min_length=1, max_length=20),
    ]
    text: Body


class AddIssueMessage(IssueRef, ReporterFields):
    body: Body
    entity_ids_to_link: Links = Field(default_factory=list)
    answers: MessageId | None = None
    author_role: Literal["operator", "daemon"] | None = None
    question: Question | None = None


class GetIssueStatus(IssueRef):
    since: Cursor | None = None


class Resolution(Input):
    kind: ResolutionKind
    summary: Body
    pr_url: Annotated[str, StringConstraints(max_length=2_048), _STORABLE] | None = None
    fixed_in_sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    fixed_in_version: Short | None = None
    unit_id: Annotated[str, StringConstraints(pattern=r"^ku_[0-9a-f]{32}$")] | None = None
    verify: Annotated[str, StringConstraints(max_length=4_000), _STORABLE] | None = None


class UpdateIssue(IssueRef):
    status: IssueStatusName | None = None
    kind: IssueKind | None = None
    labels: Labels | None = None
    visibility: Visibility | None = None
    mirror: Literal[True] | None = None


class ResolveIssue(IssueRef):
    resolution: Resolution


class ReopenIssue(IssueRef):
    body: Body | None = None


class VerifyResolution(IssueRef, ReporterFields):
    worked: bool
    body: Body | None = None


class WithdrawIssue(IssueRef):
    body: Body | None = None


class RenewGuestAccess(PostInput):
    entity_id: EntityId | None = None
    issue_number: IssueNumber | None = None


class BulkCloseIssues(PostInput):
    entity_ids: Annotated[list[EntityId], Field(min_length=1, max_length=100)]
    resolution: Resolution


class ListIssues(Input):
    status: IssueStatusName | None = None
    kind: IssueKind | None = None
    label: Label | None = None
    after: Cursor | None = None
    limit: Limit = 50


class RedactionCount(Output):
    kind: str
    count: int


class Subscribable(Output):
    entity_id: str
    events_url: str


class PossibleDuplicate(Output):
    issue_number: int
    title: str
    status: IssueStatusName
    similarity: float


class KnownFix(Output):
    unit_id: str
    summary: str
    action: str
    similarity: float


class SubmittedIssue(Output):
    entity_id: str
    issue_number: int
    conversation_id: str
    status: IssueStatusName
    visibility: Visibility
    guest_access_token: str
    guest_access_expires_at: str
    redactions: list[RedactionCount]
    warnings: list[str]
    subscribe: Subscribable
    possible_duplicates: list[PossibleDuplicate]
    known_fixes: list[KnownFix]


class MirrorResult(Output):
    status: Literal["ok", "pending", "failed"]
    detail: str | None = None


class AddedMessage(Output):
    message_id: str
    conversation_id: str
    redactions: list[RedactionCount]
    warnings: list[str]
    mirror: MirrorResult | None = None


class Message(Output):
    message_id: str
    author_role: AuthorRole
    body: str
    created_at: str
    reporter: dict[str, str]
    tainted: list[str] = Field(default_factory=list, description="Operators only.")


class OpenQuestion(Output):
    message_id: str
    needs: list[str]
    text: str


class IssueStatus(Output):
    issue_number: int
    entity_id: str
    conversation_id: str
    title: str
    status: IssueStatusName
    kind: IssueKind | None
    entity_type: str | None
    labels: list[str]
    visibility: Visibility
    created_at: str
    linked_entity_ids: list[str]
    reporter: dict[str, str]
    revision: int
    changed: bool
    messages: list[Message]
    open_question: OpenQuestion | None
    resolution: dict[str, Any] | None
    mirror: dict[str, Any] | None
    tainted: list[str] = Field(default_factory=list, description="Operators only.")


class IssueList(Output):
    items: list[IssueStatus]
    next_after: int | None


class BulkCloseResult(Output):
    entity_id: str
    ok: bool
    issue_number: int | None = None
    status: IssueStatusName | None = None
    error_code: str | None = None
    message: str | None = None


class BulkCloseResults(Output):
    results: list[BulkCloseResult]


class GuestAccess(Output):
    entity_id: str
    issue_number: int
    guest_access_token: str
    guest_access_expires_at: str


# --- entities -------------------------------------------------------------------------------------------

Fields = Annotated[
    dict[Annotated[str, StringConstraints(min_length=1, max_length=128), _STORABLE], Any],
    Field(max_length=500),
    AfterValidator(_storable),
]


class GetEntity(Input):
    entity_id: EntityId


class ListEntities(Input):
    type: EntityType | None = None
    key: EntityKey | None = None
    after: EntityId | None = None
    limit: Limit = 50


class CreateEntity(PostInput):
    entity_type: EntityType
    fields: Fields
    key: EntityKey | None = None
    visibility: Visibility = "private"


class UpdateEntity(PostInput):
    """``if_match``: the version read, or ``"*"``; on HTTP it comes from the ``If-Match`` header."""

    entity_id: EntityId
    fields: Fields
    if_match: int | Literal["*"] | None = None


class GetHistory(Input):
    entity_id: EntityId
    after: Cursor | None = None
    limit: Limit = 50


class ListRelationships(Input):
    entity_id: EntityId | None = None
    relationship_type: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")] | None = None
    after: Cursor | None = None
    limit: Limit = 50


class CreateRelationship(PostInput):
    relationship_type: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
    source_entity_id: EntityId
    target_entity_id: EntityId


class Entity(Output):
    entity_id: str
    entity_type: str
    key: str | None
    version: int
    fields: dict[str, Any]
    visibility: Visibility
    created_at: str
    updated_at: str


class EntityList(Output):
    items: list[Entity]
    next_after: str | None


class HistoryEntry(Output):
    version: int
    action: Literal["created", "updated", "deleted", "restored"]
    actor: dict[str, Any]
    at: str
    fields_changed: list[str]
    fields: dict[str, Any]


class History(Output):
    items: list[HistoryEntry]
    next_after: int | None


class Relationship(Output):
    relationship_id: int
    relationship_type: str
    source_entity_id: str
    target_entity_id: str
    created_at: str


class RelationshipList(Output):
    items: list[Relationship]
    next_after: int | None


# --- events and subscriptions ---------------------------------------------------------------------------

EventType = Literal[
    "entity.created",
    "entity.updated",
    "entity.deleted",
    "entity.restored",
    "relationship.created",
    "relationship.deleted",
    "observation.created",
    "knowledge.posted",
    "knowledge.confirmed",
    "knowledge.flagged",
]


class EventFilter(Input):
    """At least one list for a subscription; all given must match. ``entity_ids`` matches the event's
    entity or anything in ``related``."""

    entity_types: Annotated[list[EntityType], Field(min_length=1, max_length=50)] | None = None
    entity_ids: Annotated[list[EntityId], Field(min_length=1, max_length=100)] | None = None
    event_types: Annotated[list[EventType], Field(min_length=1, max_length=20)] | None = None


class Subscribe(PostInput, EventFilter):
    delivery_method: Literal["webhook", "sse"]
    webhook_url: Annotated[str, StringConstraints(min_length=1, max_length=2_048), _STORABLE] | None = None
    secret: Annotated[str, StringConstraints(min_length=1, max_length=200), _STORABLE] | None = None
    max_failures: Annotated[int, Field(ge=1, le=1_000)] = 10


class SubscriptionRef(PostInput):
    subscription_id: SubscriptionId


class GetSubscription(Input):
    subscription_id: SubscriptionId


class ListSubscriptions(Input):
    after: Cursor | None = None
    limit: Limit = 50


class ListEvents(EventFilter):
    after: Cursor = 0
    limit: Limit = 50
    wait: Annotated[float, Field(ge=0, le=60)] = 0


class Event(Output):
    seq: int
    event_id: str
    event_type: EventType
    entity_id: str
    entity_type: str
    action: str
    actor: dict[str, Any]
    at: str
    fields_changed: list[str]
    related: list[str]


class EventList(Output):
    items: list[Event]
    next_after: int
    oldest: int | None
    gap: bool


class DeliveryFailure(Output):
    event_id: str
    at: str
    reason: str


class Subscription(Output):
    subscription_id: str
    delivery_method: Literal["webhook", "sse"]
    webhook_url: str | None
    entity_types: list[str] | None
    entity_ids: list[str] | None
    event_types: list[str] | None
    max_failures: int
    active: bool
    inactive_reason: str | None
    delivered: int
    failed: int
    consecutive_failures: int
    last_failure: DeliveryFailure | None
    failures: list[DeliveryFailure]
    created_at: str
    secret: str = Field(default="", description="Once, in the answer to subscribe and rotate.")


class SubscriptionList(Output):
    items: list[Subscription]
    next_after: int | None


class Unsubscribed(Output):
    subscription_id: str
    active: Literal[False]


# --- errors ---------------------------------------------------------------------------------------------

ErrorCode = Literal[
    "ERR_VALIDATION",
    "ERR_UNKNOWN_FIELD",
    "ERR_REPORTER_ENVIRONMENT_REQUIRED",
    "ERR_AUTH_REQUIRED",
    "ERR_AUTH_INVALID",
    "ERR_FORBIDDEN",
    "ERR_NOT_FOUND",
    "ERR_METHOD",
    "ERR_MEDIA_TYPE",
    "ERR_IDEMPOTENCY_MISMATCH",
    "ERR_CONFLICT",
    "ERR_VERSION_MISMATCH",
    "ERR_IF_MATCH_REQUIRED",
    "ERR_TOO_LARGE",
    "ERR_CONTENT_REJECTED",
    "ERR_RATE_LIMITED",
    "ERR_UNAVAILABLE",
    "ERR_INTERNAL",
]


class ErrorBody(Output):
    error_code: ErrorCode
    message: str
    details: dict[str, Any]
    timestamp: str
