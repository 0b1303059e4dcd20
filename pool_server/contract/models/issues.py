"""Issues: reports, threads, their life. Source: the wire contract, section 3."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints, model_validator

from pool_server.contract.models.common import (
    REPORTER_FIELDS,
    STORABLE,
    AuthorRole,
    Body,
    Cursor,
    EntityId,
    EntityTypeHint,
    GitSha,
    Input,
    IssueKind,
    IssueNumber,
    IssueStatusName,
    Label,
    Limit,
    MessageId,
    Output,
    PostInput,
    ResolutionKind,
    Short,
    Title,
    Visibility,
)


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


Links = Annotated[list[EntityId], Field(max_length=50)]
Labels = Annotated[list[Label], Field(max_length=20)]


class SubmitIssue(PostInput, ReporterFields):
    title: Title
    body: Body
    kind: IssueKind | None = None
    entity_type: EntityTypeHint | None = None
    labels: Labels = Field(default_factory=list)
    visibility: Visibility = "public"
    entity_ids_to_link: Links = Field(default_factory=list)


class Question(Input):
    needs: Annotated[
        list[Annotated[str, StringConstraints(min_length=1, max_length=64), STORABLE]],
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
    pr_url: Annotated[str, StringConstraints(max_length=2_048), STORABLE] | None = None
    fixed_in_sha: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{7,40}$")] | None = None
    fixed_in_version: Short | None = None
    unit_id: Annotated[str, StringConstraints(pattern=r"^ku_[0-9a-f]{32}$")] | None = None
    verify: Annotated[str, StringConstraints(max_length=4_000), STORABLE] | None = None


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
