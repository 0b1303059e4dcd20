"""What an issue answers: the single read, the list, and the end of every change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from pool_server.contract import models as m
from pool_server.pool import relationships, threads
from pool_server.pool.shapes import Reply
from pool_server.pool.threads import Issue
from pool_server.pool.work import Work
from pool_server.rules import access
from pool_server.rules.access import Caller
from pool_server.storage import Connection
from pool_server.storage import tables as t

_M = t.messages.c
_E = t.entities.c
# A page ends early rather than hold more text than this in memory.
PAGE_CHARACTERS = 8_000_000


def get_issue_status(connection: Connection, caller: Caller, args: m.GetIssueStatus) -> Reply:
    """One issue, as far as the caller may see it.

    Raises:
        NotFound, Forbidden: see ``access.require_readable``.
    """
    issue = threads.locate(connection, caller, args, access.require_readable)
    return Reply(200, _answers(connection, caller, [issue], args.since)[0])


def answer(work: Work, issue: Issue) -> Reply:
    """Save the issue and answer with it as it is now."""
    threads.save(work, issue)
    return Reply(200, _answers(work.connection, work.caller, [issue], None)[0])


def list_issues(connection: Connection, caller: Caller, args: m.ListIssues) -> Reply:
    """Issues in ascending order of their number; a page may be shorter than ``limit``."""
    row = t.issues.c
    query = sa.select(*threads.ISSUE_COLUMNS).select_from(threads.ISSUES).where(_E.removed_at.is_(None))
    if caller.role != "operator":
        query = query.where(row.visibility == "public")
    if args.status is not None:
        query = query.where(row.status == args.status)
    if args.kind is not None:
        query = query.where(row.kind == args.kind)
    if args.label is not None:
        labelled = sa.select(t.issue_labels.c.issue_number).where(t.issue_labels.c.label == args.label)
        query = query.where(row.issue_number.in_(labelled))
    if args.after is not None:
        query = query.where(row.issue_number > args.after)
    rows = connection.execute(query.order_by(row.issue_number).limit(args.limit + 1)).all()
    issues = [threads.of_row(found) for found in rows]
    page = _affordable(connection, issues[: args.limit])
    more = len(page) < len(issues)
    items = _answers(connection, caller, page, None)
    return Reply(200, {"items": items, "next_after": page[-1].number if more else None})


def _affordable(connection: Connection, issues: Sequence[Issue]) -> list[Issue]:
    sizes = connection.execute(
        sa.select(
            _M.issue_entity_id, sa.func.sum(sa.func.length(sa.cast(_E.fields, sa.Text))).label("characters")
        )
        .join(t.entities, _E.entity_id == _M.message_id)
        .where(_M.issue_entity_id.in_([issue.entity_id for issue in issues]))
        .group_by(_M.issue_entity_id)
    )
    size_of = {row.issue_entity_id: row.characters for row in sizes}
    page: list[Issue] = []
    total = 0
    for issue in issues:
        total += size_of.get(issue.entity_id, 0)
        if page and total > PAGE_CHARACTERS:
            break
        page.append(issue)
    return page


def _answers(
    connection: Connection, viewer: Caller, issues: Sequence[Issue], since: int | None
) -> list[dict[str, Any]]:
    ids = [issue.entity_id for issue in issues]
    said = _messages(connection, viewer, ids, since)
    links = relationships.linked(connection, viewer, ids)
    return [_answer(viewer, issue, said[issue.entity_id], links[issue.entity_id], since) for issue in issues]


def _answer(
    viewer: Caller, issue: Issue, messages: list[m.Message], links: list[str], since: int | None
) -> dict[str, Any]:
    fields = issue.record.fields
    question = fields.get("open_question")
    answered = m.IssueStatus(
        issue_number=issue.number,
        entity_id=issue.entity_id,
        conversation_id=issue.conversation_id,
        title=fields["title"],
        status=fields["status"],
        kind=fields.get("kind"),
        entity_type=fields.get("entity_type"),
        labels=issue.labels,
        visibility=issue.record.visibility,
        created_at=issue.record.created_at,
        linked_entity_ids=links,
        reporter=fields.get("reporter", {}),
        revision=issue.revision,
        changed=since is None or since != issue.revision,
        messages=messages,
        open_question=None if question is None else m.OpenQuestion(**question),
        resolution=fields.get("resolution"),
        mirror=None,
    )
    if viewer.role == "operator":
        answered.tainted = fields.get("tainted", [])
    return answered.model_dump(exclude_unset=True)


def _messages(
    connection: Connection, viewer: Caller, issue_ids: Sequence[str], since: int | None
) -> dict[str, list[m.Message]]:
    query = (
        sa.select(_M.issue_entity_id, _M.message_id, _E.fields, _E.created_at)
        .join(t.entities, _E.entity_id == _M.message_id)
        .where(_M.issue_entity_id.in_(issue_ids), _E.removed_at.is_(None))
        .order_by(_M.position)
    )
    if since is not None:
        query = query.where(_M.added_at_revision > since)
    found: dict[str, list[m.Message]] = {entity_id: [] for entity_id in issue_ids}
    for issue_id, message_id, fields, created_at in connection.execute(query):
        message = m.Message(
            message_id=message_id,
            author_role=fields["author_role"],
            body=fields["body"],
            created_at=created_at,
            reporter=fields["reporter"],
        )
        if viewer.role == "operator":
            message.tainted = fields.get("tainted", [])
        found[issue_id].append(message)
    return found
