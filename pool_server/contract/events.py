"""The event log's vocabulary and the webhook envelope. Source: the wire contract, section 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pool_server.contract.models import EventFilter


def matches(event: Mapping[str, Any], wanted: EventFilter) -> bool:
    """Whether every list that is given matches; ``entity_ids`` looks at ``related`` too."""
    if wanted.entity_types is not None and event["entity_type"] not in wanted.entity_types:
        return False
    if wanted.event_types is not None and event["event_type"] not in wanted.event_types:
        return False
    if wanted.entity_ids is None:
        return True
    return bool({event["entity_id"], *event["related"]} & set(wanted.entity_ids))


def envelope(event: Mapping[str, Any]) -> dict[str, Any]:
    """A Standard Webhooks body around one event."""
    return {"type": event["event_type"], "timestamp": event["at"], "data": dict(event)}
