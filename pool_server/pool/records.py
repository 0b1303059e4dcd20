"""Entities as rows. Every write of one bumps its version, leaves its values in the history and an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from pool_server.contract.models import Visibility
from pool_server.pool.work import Action, Work
from pool_server.storage import Connection
from pool_server.storage import tables as t

_E = t.entities.c
COLUMNS = (
    _E.entity_id,
    _E.entity_type,
    _E.key,
    _E.version,
    _E.fields,
    _E.visibility,
    _E.created_at,
    _E.updated_at,
)
_LOAD = sa.select(*COLUMNS).where(_E.entity_id == sa.bindparam("wanted"), _E.removed_at.is_(None))
_INSERT = sa.insert(t.entities)
_INSERT_HISTORY = sa.insert(t.history)
_UPDATE = (
    sa.update(t.entities)
    .where(_E.entity_id == sa.bindparam("target"))
    .values(
        version=sa.bindparam("new_version"),
        fields=sa.bindparam("new_fields", type_=sa.JSON),
        visibility=sa.bindparam("new_visibility"),
        updated_at=sa.bindparam("new_updated_at"),
    )
)


@dataclass(frozen=True, slots=True)
class Record:
    """One entity as stored."""

    entity_id: str
    entity_type: str
    key: str | None
    version: int
    fields: dict[str, Any]
    visibility: Visibility
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class Draft:
    """An entity to be created. ``related`` and ``thread`` are its event's."""

    entity_id: str
    entity_type: str
    fields: dict[str, Any]
    visibility: Visibility
    key: str | None = None
    related: tuple[str, ...] = ()
    thread: str | None = None


def load(connection: Connection, entity_id: str) -> Record | None:
    """The entity, unless it does not exist or was removed."""
    row = connection.execute(_LOAD, {"wanted": entity_id}).one_or_none()
    return None if row is None else Record(*row)


def create(work: Work, drafts: Sequence[Draft]) -> None:
    """Insert new entities at version 1, in this order."""
    work.connection.execute(
        _INSERT,
        [
            {
                "entity_id": draft.entity_id,
                "entity_type": draft.entity_type,
                "key": draft.key,
                "version": 1,
                "fields": draft.fields,
                "visibility": draft.visibility,
                "created_at": work.at,
                "updated_at": work.at,
            }
            for draft in drafts
        ],
    )
    work.connection.execute(
        _INSERT_HISTORY,
        [
            _history(work, draft.entity_id, 1, "created", sorted(draft.fields), draft.fields)
            for draft in drafts
        ],
    )
    for draft in drafts:
        work.record(
            "entity.created",
            draft.entity_id,
            draft.entity_type,
            "created",
            fields_changed=sorted(draft.fields),
            related=draft.related,
            thread=draft.thread,
        )


def change(
    work: Work,
    record: Record,
    given: Mapping[str, Any],
    *,
    fields_changed: Sequence[str] | None = None,
    visibility: Visibility | None = None,
    related: Sequence[str] = (),
    thread: str | None = None,
) -> Record:
    """Merge ``given`` into the fields (None clears one) and return the entity as it is now.

    ``fields_changed`` defaults to the given names whose value is another one. The version grows even when
    nothing differs: a compare-and-swap that succeeded must make the next one with the same version fail.
    """
    fields = {**record.fields, **given}
    fields = {name: value for name, value in fields.items() if value is not None}
    if fields_changed is None:
        fields_changed = sorted(name for name in given if fields.get(name) != record.fields.get(name))
        if visibility is not None and visibility != record.visibility:
            fields_changed = [*fields_changed, "visibility"]
    written = dict(given) if visibility is None else {**given, "visibility": visibility}
    changed = replace(
        record,
        version=record.version + 1,
        fields=fields,
        visibility=visibility or record.visibility,
        updated_at=work.at,
    )
    work.connection.execute(
        _UPDATE,
        {
            "target": record.entity_id,
            "new_version": changed.version,
            "new_fields": changed.fields,
            "new_visibility": changed.visibility,
            "new_updated_at": work.at,
        },
    )
    entry = _history(work, record.entity_id, changed.version, "updated", fields_changed, written)
    work.connection.execute(_INSERT_HISTORY, [entry])
    work.record(
        "entity.updated",
        record.entity_id,
        record.entity_type,
        "updated",
        fields_changed=fields_changed,
        related=related,
        thread=thread,
    )
    return changed


def _history(
    work: Work,
    entity_id: str,
    version: int,
    action: Action,
    fields_changed: Sequence[str],
    fields: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "entity_id": entity_id,
        "version": version,
        "action": action,
        "actor_role": work.caller.role,
        "actor_id": work.caller.actor_id,
        "at": work.at,
        "fields_changed": list(fields_changed),
        "fields": dict(fields),
    }
