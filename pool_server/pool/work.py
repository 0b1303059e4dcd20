"""One write in progress: its connection, caller and moment, and the events it leaves in the log."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import sqlalchemy as sa

from pool_server.contract.models import EventType
from pool_server.pool.shapes import PoolPolicy
from pool_server.pool.vault import Vault
from pool_server.rules.access import Caller
from pool_server.rules.timestamps import timestamp
from pool_server.storage import Connection
from pool_server.storage import tables as t

Action = Literal["created", "updated", "deleted", "restored"]

_DRAW = (
    sa.update(t.event_log)
    .values(head=t.event_log.c.head + sa.bindparam("drawn"))
    .returning(t.event_log.c.head)
)
_INSERT_EVENTS = sa.insert(t.events)
_INSERT_EVENT_ENTITIES = sa.insert(t.event_entities)
_INSERT_SOURCE = sa.insert(t.sources)


def entity_id() -> str:
    """A new entity's id."""
    return f"ent_{secrets.token_hex(12)}"


@dataclass(slots=True)
class Work:
    """Lives inside one transaction. ``redactions`` are the counts the answer reports."""

    connection: Connection
    caller: Caller
    now: datetime
    policy: PoolPolicy
    vault: Vault
    redactions: list[dict[str, Any]] = field(default_factory=list)
    client: str = ""
    """The caller's user agent, redacted and shortened."""
    secret: dict[str, Any] | None = None
    """How to refill the answer's secret when an idempotency key is replayed; the secret itself is not stored."""
    at: str = field(init=False)
    _events: list[dict[str, Any]] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.at = timestamp(self.now)

    def record(
        self,
        event_type: EventType,
        entity_id: str,
        entity_type: str,
        action: Action,
        *,
        fields_changed: Sequence[str] = (),
        related: Sequence[str] = (),
        thread: str | None = None,
    ) -> None:
        """Append an event to this write. ``thread``: the issue whose guests may read it."""
        self._events.append(
            {
                "event_id": f"evt_{secrets.token_hex(12)}",
                "event_type": event_type,
                "entity_id": entity_id,
                "entity_type": entity_type,
                "action": action,
                "actor_role": self.caller.role,
                "actor_id": self.caller.actor_id,
                "at": self.at,
                "fields_changed": list(fields_changed),
                "related": list(related),
                "thread_entity_id": thread,
            }
        )

    def source(self, entity_id: str, content_hash: str) -> None:
        """Note where an accepted report or message came from."""
        self.connection.execute(
            _INSERT_SOURCE,
            {
                "source_id": f"src_{secrets.token_hex(12)}",
                "entity_id": entity_id,
                "actor": self.caller.actor_id,
                "role": self.caller.role,
                "surface": self.caller.surface,
                "client": self.client,
                "received_at": self.at,
                "content_hash": content_hash,
            },
        )

    def flush(self) -> int | None:
        """Write the events; the newest seq, or None when there were none.

        Last in the transaction: drawing the numbers is what serialises writers.
        """
        if not self._events:
            return None
        head = int(self.connection.execute(_DRAW, {"drawn": len(self._events)}).scalar_one())
        first = head - len(self._events) + 1
        index = []
        for seq, event in enumerate(self._events, first):
            event["seq"] = seq
            index += [{"entity_id": named, "seq": seq} for named in {event["entity_id"], *event["related"]}]
        self.connection.execute(_INSERT_EVENTS, self._events)
        self.connection.execute(_INSERT_EVENT_ENTITIES, index)
        self._events = []
        return head
