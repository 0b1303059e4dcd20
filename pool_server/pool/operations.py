"""The table of operations: one row each, read by HTTP, MCP, OpenAPI and the access matrix alike.

A row says how an operation is reached, what it takes and answers, and who may call it at all. What a role may
do with one particular issue is decided in ``rules/access.py``. Source: the wire contract, sections 2 to 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pool_server.contract import models as m
from pool_server.contract.models import Input, Output, Role

__all__ = ["BY_NAME", "OPERATIONS", "Operation"]

_EVERYONE: frozenset[Role] = frozenset(("anonymous", "guest", "member", "operator"))
_OPERATOR: frozenset[Role] = frozenset(("operator",))
_THREAD: frozenset[Role] = frozenset(("guest", "member", "operator"))
_FOLLOWER: frozenset[Role] = frozenset(("guest", "operator"))
_POOL_READER: frozenset[Role] = frozenset(("anonymous", "member", "operator"))


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. ``also`` names further (method, path) pairs that serve it."""

    name: str
    method: str
    path: str
    summary: str
    description: str
    input: type[Input]
    output: type[Output]
    roles: frozenset[Role]
    effect: Literal["read", "write"]
    status: int = 200
    destructive: bool = False
    also: tuple[tuple[str, str], ...] = ()


_ISSUES = (
    Operation(
        name="submit_issue",
        method="POST",
        path="/issues/submit",
        summary="File an issue",
        description=(
            "File a bug, an improvement or a question about this product as soon as it is confirmed. Say which "
            "build it is about: reporter_git_sha or reporter_app_version. Keep the answer's guest_access_token: "
            "it reads and answers this thread. Check the text for personal data first; what is found is redacted "
            "and counted in redactions."
        ),
        input=m.SubmitIssue,
        output=m.SubmittedIssue,
        roles=_POOL_READER,
        effect="write",
        status=201,
    ),
    Operation(
        name="add_issue_message",
        method="POST",
        path="/issues/add_message",
        summary="Add a message to an issue's thread",
        description=(
            "Append to the thread of one issue, named by entity_id or issue_number. To answer an open question "
            "give the fields it needs, or name its message_id in answers. Say which build it is about on public "
            "threads."
        ),
        input=m.AddIssueMessage,
        output=m.AddedMessage,
        roles=_THREAD,
        effect="write",
        status=201,
    ),
    Operation(
        name="get_issue_status",
        method="POST",
        path="/issues/status",
        also=(("GET", "/issues/{issue_number}"),),
        summary="Read an issue and its thread",
        description=(
            "Status, thread, open question and resolution of one issue. Pass the revision you last saw as since: "
            "changed is false and no message comes back while nothing happened."
        ),
        input=m.GetIssueStatus,
        output=m.IssueStatus,
        roles=_EVERYONE,
        effect="read",
    ),
    Operation(
        name="verify_resolution",
        method="POST",
        path="/issues/verify",
        summary="Say whether the fix worked",
        description=(
            "Only on a resolved issue: re-run what failed on the build that carries the fix, then report. "
            "worked=true closes the issue, worked=false reopens it."
        ),
        input=m.VerifyResolution,
        output=m.IssueStatus,
        roles=_THREAD,
        effect="write",
    ),
    Operation(
        name="withdraw_issue",
        method="POST",
        path="/issues/withdraw",
        summary="Withdraw a report",
        description="Close an issue you reported, because it turned out not to be one.",
        input=m.WithdrawIssue,
        output=m.IssueStatus,
        roles=_THREAD,
        effect="write",
        destructive=True,
    ),
    Operation(
        name="renew_guest_access",
        method="POST",
        path="/issues/renew",
        summary="Get a fresh guest token",
        description="With a guest token that is still valid: a fresh one for the same thread.",
        input=m.RenewGuestAccess,
        output=m.GuestAccess,
        roles=frozenset(("guest",)),
        effect="write",
    ),
    Operation(
        name="list_issues",
        method="GET",
        path="/issues",
        summary="List issues",
        description="Issues in ascending order of their number. Operators see all, everybody else public ones.",
        input=m.ListIssues,
        output=m.IssueList,
        roles=_POOL_READER,
        effect="read",
    ),
    Operation(
        name="update_issue",
        method="POST",
        path="/issues/update",
        summary="Change an issue's status, kind, labels or visibility",
        description="Operators: set status, kind, labels or visibility of one issue.",
        input=m.UpdateIssue,
        output=m.IssueStatus,
        roles=_OPERATOR,
        effect="write",
    ),
    Operation(
        name="resolve_issue",
        method="POST",
        path="/issues/resolve",
        summary="Resolve an issue",
        description=(
            "Operators: a resolution of kind fixed waits for the reporter's verification (resolved), every other "
            "kind closes. On a resolved issue the resolution is merged into the one it has."
        ),
        input=m.ResolveIssue,
        output=m.IssueStatus,
        roles=_OPERATOR,
        effect="write",
    ),
    Operation(
        name="reopen_issue",
        method="POST",
        path="/issues/reopen",
        summary="Reopen an issue",
        description="Operators: back to open, optionally with a message that says why.",
        input=m.ReopenIssue,
        output=m.IssueStatus,
        roles=_OPERATOR,
        effect="write",
    ),
    Operation(
        name="bulk_close_issues",
        method="POST",
        path="/issues/bulk_close",
        summary="Give one resolution to many issues",
        description="Operators: the same resolution for up to 100 issues, with a result for each.",
        input=m.BulkCloseIssues,
        output=m.BulkCloseResults,
        roles=_OPERATOR,
        effect="write",
        destructive=True,
    ),
)

_ENTITIES = (
    Operation(
        name="get_entity",
        method="GET",
        path="/entities/{entity_id}",
        summary="Read an entity",
        description="Operators: one entity with its version.",
        input=m.GetEntity,
        output=m.Entity,
        roles=_OPERATOR,
        effect="read",
    ),
    Operation(
        name="list_entities",
        method="GET",
        path="/entities",
        summary="List entities",
        description="Operators: entities in the order they were created, by type and key.",
        input=m.ListEntities,
        output=m.EntityList,
        roles=_OPERATOR,
        effect="read",
    ),
    Operation(
        name="create_entity",
        method="POST",
        path="/entities",
        summary="Create an entity",
        description="Operators: a new entity. A key is unique per type; a taken one answers with the id that has it.",
        input=m.CreateEntity,
        output=m.Entity,
        roles=_OPERATOR,
        effect="write",
        status=201,
    ),
    Operation(
        name="update_entity",
        method="PATCH",
        path="/entities/{entity_id}",
        summary="Change an entity's fields",
        description=(
            "Operators: merge fields into an entity, null clears one. if_match is the version that was read, "
            'or "*"; a write since then is refused.'
        ),
        input=m.UpdateEntity,
        output=m.Entity,
        roles=_OPERATOR,
        effect="write",
    ),
    Operation(
        name="get_history",
        method="GET",
        path="/entities/{entity_id}/history",
        summary="Read an entity's history",
        description="Operators: every write of one entity: who, when, what.",
        input=m.GetHistory,
        output=m.History,
        roles=_OPERATOR,
        effect="read",
    ),
    Operation(
        name="list_relationships",
        method="GET",
        path="/relationships",
        summary="List relationships",
        description="Operators: relationships from or to an entity, by type.",
        input=m.ListRelationships,
        output=m.RelationshipList,
        roles=_OPERATOR,
        effect="read",
    ),
    Operation(
        name="create_relationship",
        method="POST",
        path="/relationships",
        summary="Relate two entities",
        description="Operators: one typed relationship from a source to a target entity.",
        input=m.CreateRelationship,
        output=m.Relationship,
        roles=_OPERATOR,
        effect="write",
        status=201,
    ),
)

_EVENTS = (
    Operation(
        name="subscribe",
        method="POST",
        path="/subscribe",
        summary="Follow events",
        description=(
            "Follow events by webhook (operators) or SSE. Give at least one filter; all given must match. A guest "
            "follows its own thread by SSE."
        ),
        input=m.Subscribe,
        output=m.Subscription,
        roles=_FOLLOWER,
        effect="write",
        status=201,
    ),
    Operation(
        name="unsubscribe",
        method="POST",
        path="/unsubscribe",
        summary="Stop following",
        description="Switch one subscription off.",
        input=m.SubscriptionRef,
        output=m.Unsubscribed,
        roles=_FOLLOWER,
        effect="write",
        destructive=True,
    ),
    Operation(
        name="list_subscriptions",
        method="GET",
        path="/subscriptions",
        summary="List subscriptions",
        description="Operators see all subscriptions, a guest those of its thread.",
        input=m.ListSubscriptions,
        output=m.SubscriptionList,
        roles=_FOLLOWER,
        effect="read",
    ),
    Operation(
        name="get_subscription_status",
        method="GET",
        path="/subscriptions/{subscription_id}",
        summary="Read a subscription",
        description="Whether a subscription is active, and what it delivered and failed to deliver.",
        input=m.GetSubscription,
        output=m.Subscription,
        roles=_FOLLOWER,
        effect="read",
    ),
    Operation(
        name="rotate_subscription_secret",
        method="POST",
        path="/subscriptions/{subscription_id}/rotate",
        summary="Rotate a webhook's secret",
        description="Operators: a new signing secret; the previous one signs along for 24 hours.",
        input=m.SubscriptionRef,
        output=m.Subscription,
        roles=_OPERATOR,
        effect="write",
    ),
    Operation(
        name="list_events",
        method="GET",
        path="/events",
        summary="Read the event log",
        description=(
            "Events after a cursor, oldest first; wait holds the answer until one comes. Operators read the "
            "whole log, a guest its own thread's."
        ),
        input=m.ListEvents,
        output=m.EventList,
        roles=_FOLLOWER,
        effect="read",
    ),
)

OPERATIONS: tuple[Operation, ...] = (*_ISSUES, *_ENTITIES, *_EVENTS)
BY_NAME: dict[str, Operation] = {operation.name: operation for operation in OPERATIONS}
