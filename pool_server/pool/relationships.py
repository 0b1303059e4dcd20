"""Typed relationships between entities, and the links a report or message may name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from pool_server.contract import models as m
from pool_server.errors import ValidationFailed
from pool_server.pool import records
from pool_server.pool.shapes import Reply
from pool_server.pool.work import Work
from pool_server.rules.access import Caller, sees_entity
from pool_server.storage import Connection
from pool_server.storage import tables as t

REFERS_TO = "REFERS_TO"

_R = t.relationships.c
_INSERT = sa.insert(t.relationships)
_COLUMNS = (
    _R.relationship_id,
    _R.relationship_type,
    _R.source_entity_id,
    _R.target_entity_id,
    _R.created_at,
)


@dataclass(frozen=True, slots=True)
class Link:
    """An entity a caller may refer to."""

    entity_id: str
    public: bool


def require_linkable(connection: Connection, caller: Caller, entity_ids: Sequence[str]) -> list[Link]:
    """The entities named, once each.

    Raises:
        ValidationFailed: one is unknown or may not be seen by the caller; the same answer for both.
    """
    wanted = list(dict.fromkeys(entity_ids))
    if not wanted:
        return []
    known = t.entities.c
    rows = connection.execute(
        sa.select(known.entity_id, known.visibility).where(
            known.entity_id.in_(wanted), known.removed_at.is_(None)
        )
    )
    visible = {entity_id: visibility for entity_id, visibility in rows if sees_entity(caller, visibility)}
    missing = [entity_id for entity_id in wanted if entity_id not in visible]
    if missing:
        reason = f"no such entity: {', '.join(missing)}"
        raise ValidationFailed("an entity to link does not exist", {"entity_ids_to_link": reason})
    return [Link(entity_id, visible[entity_id] == "public") for entity_id in wanted]


def refer(work: Work, source_id: str, source_type: str, links: Sequence[Link], thread: str) -> None:
    """``REFERS_TO`` from an issue or message of ``thread``; its guests hear of public targets only."""
    if not links:
        return
    work.connection.execute(
        _INSERT,
        [
            {
                "relationship_type": REFERS_TO,
                "source_entity_id": source_id,
                "target_entity_id": link.entity_id,
                "created_at": work.at,
            }
            for link in links
        ],
    )
    for link in links:
        _record(work, source_id, source_type, link.entity_id, thread if link.public else None)


def relate(work: Work, args: m.CreateRelationship) -> tuple[dict[str, Any], str | None]:
    """A relationship, and the issue whose status now shows one more link, if one does.

    One that exists is answered as it is and nothing is written.

    Raises:
        ValidationFailed: an end does not exist.
    """
    source = records.load(work.connection, args.source_entity_id)
    target = records.load(work.connection, args.target_entity_id)
    if source is None or target is None:
        field = "source_entity_id" if source is None else "target_entity_id"
        raise ValidationFailed("an entity to relate does not exist", {field: "no such entity"})
    found = work.connection.execute(
        sa.select(*_COLUMNS).where(
            _R.source_entity_id == args.source_entity_id,
            _R.relationship_type == args.relationship_type,
            _R.target_entity_id == args.target_entity_id,
        )
    ).one_or_none()
    if found is not None:
        return dict(found._mapping), None
    row = {
        "relationship_type": args.relationship_type,
        "source_entity_id": args.source_entity_id,
        "target_entity_id": args.target_entity_id,
        "created_at": work.at,
    }
    inserted = work.connection.execute(_INSERT, row).inserted_primary_key
    assert inserted is not None
    shown = args.relationship_type == REFERS_TO and target.visibility == "public"
    thread = _thread_of(source) if shown else None
    _record(work, source.entity_id, source.entity_type, target.entity_id, thread)
    return {"relationship_id": inserted[0], **row}, thread


def list_relationships(connection: Connection, _caller: Caller, args: m.ListRelationships) -> Reply:
    """Relationships from or to an entity, ascending."""
    query = sa.select(*_COLUMNS).order_by(_R.relationship_id).limit(args.limit + 1)
    if args.entity_id is not None:
        query = query.where(
            sa.or_(_R.source_entity_id == args.entity_id, _R.target_entity_id == args.entity_id)
        )
    if args.relationship_type is not None:
        query = query.where(_R.relationship_type == args.relationship_type)
    if args.after is not None:
        query = query.where(_R.relationship_id > args.after)
    items: list[dict[str, Any]] = [dict(row._mapping) for row in connection.execute(query)]
    more = len(items) > args.limit
    items = items[: args.limit]
    return Reply(200, {"items": items, "next_after": items[-1]["relationship_id"] if more else None})


def linked(connection: Connection, caller: Caller, issue_ids: Sequence[str]) -> dict[str, list[str]]:
    """What each issue and its messages refer to, as far as the caller may see it, in the order linked."""
    in_thread = t.messages.c
    named = t.entities.c
    issue_id = sa.func.coalesce(in_thread.issue_entity_id, _R.source_entity_id)
    rows = connection.execute(
        sa.select(issue_id, _R.target_entity_id, named.visibility)
        .select_from(
            t.relationships.outerjoin(t.messages, in_thread.message_id == _R.source_entity_id).join(
                t.entities, named.entity_id == _R.target_entity_id
            )
        )
        .where(
            _R.relationship_type == REFERS_TO,
            named.removed_at.is_(None),
            sa.or_(
                _R.source_entity_id.in_(issue_ids),
                _R.source_entity_id.in_(
                    sa.select(in_thread.message_id).where(in_thread.issue_entity_id.in_(issue_ids))
                ),
            ),
        )
        .order_by(_R.relationship_id)
    )
    found: dict[str, list[str]] = {entity_id: [] for entity_id in issue_ids}
    for source, target, visibility in rows:
        if sees_entity(caller, visibility) and target not in found[source]:
            found[source].append(target)
    return found


def _thread_of(source: records.Record) -> str | None:
    if source.entity_type == "issue":
        return source.entity_id
    if source.entity_type == "conversation_message":
        return str(source.fields["issue_entity_id"])
    return None


def _record(work: Work, source_id: str, source_type: str, target_id: str, thread: str | None) -> None:
    work.record("relationship.created", source_id, source_type, "created", related=[target_id], thread=thread)
