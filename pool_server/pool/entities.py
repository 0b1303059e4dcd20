"""Any entity, for operators: read, list, create, compare-and-swap, history, relationships."""

from __future__ import annotations

from typing import Annotated, Any

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from pool_server.contract import models as m
from pool_server.errors import Conflict, IfMatchRequired, NotFound, ValidationFailed, VersionMismatch
from pool_server.pool import records, relationships, threads
from pool_server.pool.records import Draft, Record
from pool_server.pool.shapes import Reply
from pool_server.pool.validation import reasons
from pool_server.pool.work import Work, entity_id
from pool_server.rules import lifecycle
from pool_server.rules.access import Caller
from pool_server.storage import Connection
from pool_server.storage import tables as t

_E = t.entities.c
_H = t.history.c

# Written by the thread's own functions only.
_THREAD_TYPES = frozenset(("issue", "conversation", "conversation_message"))
_FIXED = {
    "issue": frozenset(
        {"issue_number", "conversation_id", "body", "entity_type", "reporter", "visibility", "created_at"}
        | {"resolution", "open_question", "messages", "revision", "mirror", "verification"}
    ),
    "conversation": frozenset(("issue_entity_id",)),
    "conversation_message": frozenset(
        {"body", "author_role", "author_id", "reporter", "issue_entity_id", "conversation_id"}
        | {"answers", "question", "visibility", "created_at"}
    ),
}
_Taint = Annotated[
    list[Annotated[str, StringConstraints(min_length=1, max_length=100)]], Field(max_length=20)
]


class _IssuePatch(BaseModel):
    """The fields of an issue that have a form of their own; what else an operator adds is free."""

    model_config = ConfigDict(extra="ignore")
    title: m.Title = "-"
    status: m.IssueStatusName = "open"
    kind: m.IssueKind | None = None
    labels: m.Labels | None = None
    tainted: _Taint | None = None


class _MessagePatch(BaseModel):
    model_config = ConfigDict(extra="ignore")
    tainted: _Taint | None = None


def get_entity(connection: Connection, _caller: Caller, args: m.GetEntity) -> Reply:
    """One entity with its version.

    Raises:
        NotFound: no such entity.
    """
    return _answer(200, _require(connection, args.entity_id))


def list_entities(connection: Connection, _caller: Caller, args: m.ListEntities) -> Reply:
    """Entities in the order they were created.

    Raises:
        ValidationFailed: ``after`` names no entity.
    """
    query = sa.select(*records.COLUMNS).where(_E.removed_at.is_(None))
    if args.type is not None:
        query = query.where(_E.entity_type == args.type)
    if args.key is not None:
        query = query.where(_E.key == args.key)
    if args.after is not None:
        position = connection.execute(
            sa.select(_E.position).where(_E.entity_id == args.after)
        ).scalar_one_or_none()
        if position is None:
            raise ValidationFailed("after names no entity", {"after": "no such entity"})
        query = query.where(_E.position > position)
    rows = connection.execute(query.order_by(_E.position).limit(args.limit + 1)).all()
    found = [Record(*row) for row in rows[: args.limit]]
    more = len(rows) > args.limit
    items = [_body(record) for record in found]
    return Reply(200, {"items": items, "next_after": found[-1].entity_id if more else None})


def get_history(connection: Connection, _caller: Caller, args: m.GetHistory) -> Reply:
    """Every write of one entity, ascending by version.

    Raises:
        NotFound: no such entity.
    """
    _require(connection, args.entity_id)
    rows = connection.execute(
        sa.select(t.history)
        .where(_H.entity_id == args.entity_id, _H.version > (args.after or 0))
        .order_by(_H.version)
        .limit(args.limit + 1)
    ).all()
    items = [
        {
            "version": row.version,
            "action": row.action,
            "actor": {"role": row.actor_role, "id": row.actor_id},
            "at": row.at,
            "fields_changed": row.fields_changed,
            "fields": row.fields,
        }
        for row in rows[: args.limit]
    ]
    more = len(rows) > args.limit
    return Reply(200, {"items": items, "next_after": items[-1]["version"] if more else None})


def create_entity(work: Work, args: m.CreateEntity) -> Reply:
    """A new entity at version 1.

    Raises:
        ValidationFailed: a type that has a way of its own.
        Conflict: the key is taken for this type; ``details.entity_id`` has it.
    """
    if args.entity_type == "issue":
        reason = "issues are filed with submit_issue (POST /issues/submit)"
        raise ValidationFailed(reason, {"entity_type": reason})
    if args.entity_type in _THREAD_TYPES:
        raise ValidationFailed("threads are written by messages", {"entity_type": "use add_issue_message"})
    if args.key is not None:
        taken = work.connection.execute(
            sa.select(_E.entity_id).where(_E.entity_type == args.entity_type, _E.key == args.key)
        ).scalar_one_or_none()
        if taken is not None:
            raise Conflict("this key is taken", {"entity_id": taken})
    fields = {name: value for name, value in args.fields.items() if value is not None}
    draft = Draft(entity_id(), args.entity_type, fields, args.visibility, key=args.key)
    records.create(work, [draft])
    return _answer(201, _require(work.connection, draft.entity_id))


def update_entity(work: Work, args: m.UpdateEntity) -> Reply:
    """Merge fields into an entity, null clears one, if nobody wrote since ``if_match``.

    Raises:
        NotFound: no such entity.
        IfMatchRequired, VersionMismatch: no version given, or another one is current.
        ValidationFailed: no fields, or one that may not be set this way.
    """
    record = _require(work.connection, args.entity_id)
    if args.if_match is None:
        raise IfMatchRequired(record.version)
    if args.if_match not in ("*", record.version):
        raise VersionMismatch(record.version)
    if not args.fields:
        raise ValidationFailed("nothing to change", {"fields": "give at least one"})
    fixed = _FIXED.get(record.entity_type, frozenset()) & args.fields.keys()
    if fixed:
        raise ValidationFailed(
            "a field that is not changed this way",
            {f"fields.{name}": "is managed by the issue's own operations" for name in sorted(fixed)},
        )
    if record.entity_type == "issue":
        return _answer(200, _patch_issue(work, record, args.fields))
    if record.entity_type == "conversation_message":
        _checked(_MessagePatch, args.fields)
    return _answer(200, records.change(work, record, args.fields))


def create_relationship(work: Work, args: m.CreateRelationship) -> Reply:
    """A typed relationship.

    Raises:
        ValidationFailed: an end does not exist.
    """
    row, shown_by = relationships.relate(work, args)
    if shown_by is not None:
        issue = threads.find(work.connection, m.IssueRef(entity_id=shown_by))
        assert issue is not None
        issue.touched = True
        threads.save(work, issue)
    return Reply(201, row)


def _patch_issue(work: Work, record: Record, fields: dict[str, Any]) -> Record:
    patch = _checked(_IssuePatch, fields)
    issue = threads.find(work.connection, m.IssueRef(entity_id=record.entity_id))
    assert issue is not None
    if "status" in fields:
        threads.live(work, issue, lifecycle.set_status(issue.life, patch.status))
    given = {name: value for name, value in fields.items() if name != "status"}
    if given or issue.record.version == record.version:
        threads.write(work, issue, given)
    threads.save(work, issue)
    return issue.record


def _checked(form: type[BaseModel], fields: dict[str, Any]) -> Any:
    try:
        return form.model_validate(fields, strict=True)
    except ValidationError as wrong:
        named = {f"fields.{name}": reason for name, reason in reasons(wrong).items()}
        raise ValidationFailed("a field has a wrong value", named) from None


def _require(connection: Connection, entity_id: str) -> Record:
    record = records.load(connection, entity_id)
    if record is None:
        raise NotFound("no such entity")
    return record


def _answer(status: int, record: Record) -> Reply:
    return Reply(status, _body(record), etag=record.version)


def _body(record: Record) -> dict[str, Any]:
    return {
        "entity_id": record.entity_id,
        "entity_type": record.entity_type,
        "key": record.key,
        "version": record.version,
        "fields": record.fields,
        "visibility": record.visibility,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
    }
