"""Reporting: a new issue, and a message to its thread."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import sqlalchemy as sa

from pool_server.contract import models as m
from pool_server.contract.models import AuthorRole
from pool_server.errors import AuthRequired, Forbidden, ReporterEnvironmentRequired, ValidationFailed
from pool_server.pool import guests, records, relationships, threads
from pool_server.pool.records import Draft
from pool_server.pool.shapes import Reply
from pool_server.pool.work import Work, entity_id
from pool_server.rules import access, lifecycle
from pool_server.storage import tables as t

BUILD_FIELDS = ("reporter_git_sha", "reporter_app_version")
_INSERT_ISSUE = sa.insert(t.issues)


def submit_issue(work: Work, args: m.SubmitIssue) -> Reply:
    """Issue, conversation, first message, links, grant, source and events, in one transaction.

    Raises:
        AuthRequired: anonymous, and the maintainer does not allow that.
        ReporterEnvironmentRequired: no build given and none to fill in.
        ValidationFailed: an entity to link does not exist or may not be seen.
    """
    if work.caller.role == "anonymous" and not work.policy.allow_anonymous_submit:
        raise AuthRequired("this server takes reports with an API key only")
    reporter = _environment(work, args)
    links = relationships.require_linkable(work.connection, work.caller, args.entity_ids_to_link)
    issue_id, conversation_id, message_id = entity_id(), entity_id(), entity_id()
    number = _number(work, args, issue_id, conversation_id)
    fields = _fields(args, number, conversation_id, reporter)
    about = (conversation_id, message_id)
    opened = {"issue_entity_id": issue_id}
    author = work.caller.actor_id
    first = threads.message(
        issue_id,
        conversation_id,
        args.visibility,
        message_id,
        args.body,
        "reporter",
        reporter,
        author_id=author,
    )
    records.create(
        work,
        [
            Draft(issue_id, "issue", fields, args.visibility, related=about, thread=issue_id),
            Draft(
                conversation_id, "conversation", opened, args.visibility, related=(issue_id,), thread=issue_id
            ),
            first,
        ],
    )
    threads.place(work, issue_id, message_id, revision=1)
    threads.insert_labels(work, number, args.labels)
    relationships.refer(work, issue_id, "issue", links, issue_id)
    token, expires_at = guests.mint(work, issue_id)
    work.source(issue_id, content_hash(args))
    return Reply(
        201,
        {
            "entity_id": issue_id,
            "issue_number": number,
            "conversation_id": conversation_id,
            "status": "open",
            "visibility": args.visibility,
            "guest_access_token": token,
            "guest_access_expires_at": expires_at,
            "redactions": work.redactions,
            "warnings": [],
            "subscribe": {"entity_id": issue_id, "events_url": f"/events/stream?entity_ids={issue_id}"},
            "possible_duplicates": [],
            "known_fixes": [],
        },
    )


def add_issue_message(work: Work, args: m.AddIssueMessage) -> Reply:
    """A message to a thread; a reporter's may answer the open question, an operator's may ask one.

    Raises:
        NotFound, Forbidden: see ``access.require_appendable``; Forbidden for an operator's field.
        Conflict: a question on an issue that has ended.
        ValidationFailed: an entity to link or a message to answer does not exist.
    """
    caller = work.caller
    issue = threads.locate(work.connection, caller, args, access.require_appendable)
    if caller.role != "operator" and (args.author_role is not None or args.question is not None):
        raise Forbidden("author_role and question are for operators")
    links = relationships.require_linkable(work.connection, caller, args.entity_ids_to_link)
    if args.answers is not None and not threads.holds(work.connection, issue, args.answers):
        raise ValidationFailed("answers names no message of this thread", {"answers": "no such message"})
    author: AuthorRole = (args.author_role or "operator") if caller.role == "operator" else "reporter"
    reporter = args.reporter()
    message_id = threads.append(
        work,
        issue,
        body=args.body,
        author_role=author,
        reporter=reporter,
        links=links,
        answers=args.answers,
        question=args.question,
    )
    if args.question is not None:
        asked = lifecycle.ask(issue.life, message_id, args.question.needs, args.question.text)
        threads.live(work, issue, asked)
    elif author == "reporter":
        # Somebody else's build answers no question to the reporter; whoever names the question does.
        told_by_reporter = reporter if access.speaks_for_reporter(caller, issue.access) else {}
        threads.live(work, issue, lifecycle.hear(issue.life, told_by_reporter, args.answers))
    threads.save(work, issue)
    work.source(message_id, content_hash(args))
    told = any(name in reporter for name in BUILD_FIELDS)
    silent = author == "reporter" and issue.record.visibility == "public" and not told
    return Reply(
        201,
        {
            "message_id": message_id,
            "conversation_id": issue.conversation_id,
            "redactions": work.redactions,
            "warnings": ["reporter_environment_missing"] if silent else [],
        },
    )


def content_hash(args: m.PostInput) -> str:
    """Of what was accepted, after redaction, without credentials."""
    content = args.model_dump(
        mode="json", exclude_defaults=True, exclude={"guest_access_token", "idempotency_key"}
    )
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _environment(work: Work, args: m.SubmitIssue) -> dict[str, str]:
    reporter = args.reporter()
    if any(name in reporter for name in BUILD_FIELDS):
        return reporter
    if not work.policy.product_version:
        raise ReporterEnvironmentRequired
    return {
        **reporter,
        "reporter_app_version": work.policy.product_version,
        "reporter_app_version_source": "server",
    }


def _number(work: Work, args: m.SubmitIssue, issue_id: str, conversation_id: str) -> int:
    inserted = work.connection.execute(
        _INSERT_ISSUE,
        {
            "entity_id": issue_id,
            "conversation_id": conversation_id,
            "status": "open",
            "kind": args.kind,
            "visibility": args.visibility,
            "revision": 1,
            "submitter_key_id": work.caller.key_id,
        },
    ).inserted_primary_key
    assert inserted is not None
    return int(inserted[0])


def _fields(
    args: m.SubmitIssue, number: int, conversation_id: str, reporter: dict[str, str]
) -> dict[str, Any]:
    fields = {
        "issue_number": number,
        "conversation_id": conversation_id,
        "title": args.title,
        "status": "open",
        "kind": args.kind,
        "entity_type": (args.entity_type or "").strip() or None,
        "labels": args.labels,
        "reporter": reporter,
    }
    return {name: value for name, value in fields.items() if value is not None}
