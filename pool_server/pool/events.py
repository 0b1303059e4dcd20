"""Reading the event log, and letting its oldest part go. Guests read their own thread's, without names."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from pool_server.contract import models as m
from pool_server.contract.models import EventFilter
from pool_server.pool import threads
from pool_server.pool.shapes import Reply
from pool_server.rules import access
from pool_server.rules.access import Caller
from pool_server.rules.timestamps import timestamp
from pool_server.storage import Connection
from pool_server.storage import tables as t

_V = t.events.c
_MESSAGE_FIELDS = frozenset(("body", "author_role", "reporter"))
PRUNE_BATCH = 5_000
_DELETE_NAMED = sa.delete(t.event_entities).where(
    t.event_entities.c.entity_id == sa.bindparam("named"), t.event_entities.c.seq == sa.bindparam("at_seq")
)


def head(connection: Connection) -> int:
    """The newest seq; 0 before the first event."""
    return int(connection.execute(sa.select(t.event_log.c.head)).scalar_one())


def oldest(connection: Connection) -> int | None:
    """The oldest seq that is kept, None when none is."""
    newest, pruned_through = _ends(connection)
    return pruned_through + 1 if newest > pruned_through else None


def read(
    connection: Connection, after: int, limit: int, wanted: EventFilter, viewer: Caller | None
) -> list[dict[str, Any]]:
    """Matching events after a cursor, ascending, as ``viewer`` may see them (None: the system, sees all)."""
    query = sa.select(t.events).where(_V.seq > after)
    if wanted.event_types is not None:
        query = query.where(_V.event_type.in_(wanted.event_types))
    if wanted.entity_types is not None:
        query = query.where(_V.entity_type.in_(wanted.entity_types))
    if wanted.entity_ids is not None:
        index = t.event_entities.c
        named = sa.select(index.seq).where(index.entity_id.in_(wanted.entity_ids), index.seq > after)
        query = query.where(_V.seq.in_(named))
    as_guest = viewer is not None and viewer.role != "operator"
    if viewer is not None and as_guest:
        query = query.where(_V.thread_entity_id == viewer.issue_entity_id)
    rows = connection.execute(query.order_by(_V.seq).limit(limit))
    return [_event(row, as_guest=as_guest) for row in rows]


def list_events(connection: Connection, caller: Caller, args: m.ListEvents) -> Reply:
    """A page of the log. ``gap``: events after the cursor were dropped by retention.

    Raises:
        Forbidden, NotFound: a guest names what is not of its thread.
    """
    require_followed(connection, caller, args.entity_ids)
    items = read(connection, args.after, args.limit, args, caller)
    newest, pruned_through = _ends(connection)
    return Reply(
        200,
        {
            "items": items,
            "next_after": items[-1]["seq"] if items else args.after,
            "oldest": pruned_through + 1 if newest > pruned_through else None,
            "gap": args.after < pruned_through,
        },
    )


def require_followed(connection: Connection, caller: Caller, entity_ids: Sequence[str] | None) -> None:
    """Check that a guest names nothing but its own thread.

    Raises:
        Forbidden: a public issue that is not its own.
        NotFound: everything else that is not of its thread.
    """
    if caller.role == "operator" or entity_ids is None:
        return
    own = threads.find(connection, m.IssueRef(entity_id=caller.issue_entity_id))
    for entity_id in entity_ids:
        if own is not None and (
            entity_id in (own.entity_id, own.conversation_id) or threads.holds(connection, own, entity_id)
        ):
            continue
        issue = threads.find(connection, m.IssueRef(entity_id=entity_id))
        # Unknown and private are one refusal, raised in one place.
        access.require_readable(caller, None if issue is None else issue.access)


def prune(connection: Connection, now: datetime, retention_days: int) -> bool:
    """Drop one batch of events past retention; whether there may be more. 0 days keeps everything."""
    if retention_days <= 0:
        return False
    cutoff = timestamp(now - timedelta(days=retention_days))
    columns = (_V.seq, _V.at, _V.entity_id, _V.related)
    rows = connection.execute(sa.select(*columns).order_by(_V.seq).limit(PRUNE_BATCH)).all()
    expired = 0
    while expired < len(rows) and rows[expired].at < cutoff:
        expired += 1
    if expired == 0:
        return False
    last = rows[expired - 1].seq
    connection.execute(sa.delete(t.events).where(_V.seq <= last))
    named = [
        {"named": entity_id, "at_seq": row.seq}
        for row in rows[:expired]
        for entity_id in {row.entity_id, *row.related}
    ]
    connection.execute(_DELETE_NAMED, named)
    connection.execute(sa.update(t.event_log).values(pruned_through=last))
    return expired == PRUNE_BATCH


def _ends(connection: Connection) -> tuple[int, int]:
    row = connection.execute(sa.select(t.event_log.c.head, t.event_log.c.pruned_through)).one()
    return int(row.head), int(row.pruned_through)


def _event(row: Any, *, as_guest: bool) -> dict[str, Any]:
    actor = {"role": row.actor_role} if as_guest else {"role": row.actor_role, "id": row.actor_id}
    fields_changed, related = row.fields_changed, row.related
    if as_guest:
        shown = threads.SHOWN | _MESSAGE_FIELDS
        fields_changed = [name for name in fields_changed if name in shown]
        # A link's other end is no part of the thread.
        related = [] if row.event_type.startswith("relationship.") else related
    return {
        "seq": row.seq,
        "event_id": row.event_id,
        "event_type": row.event_type,
        "entity_id": row.entity_id,
        "entity_type": row.entity_type,
        "action": row.action,
        "actor": actor,
        "at": row.at,
        "fields_changed": fields_changed,
        "related": related,
    }
