"""The event log and subscriptions. Source: the wire contract, section 5."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from pool_server.contract.models.common import (
    STORABLE,
    Cursor,
    EntityId,
    EntityType,
    GuestInput,
    Input,
    Limit,
    Output,
    PostInput,
    SubscriptionId,
)

EventType = Literal[
    "entity.created",
    "entity.updated",
    "entity.deleted",
    "entity.restored",
    "relationship.created",
    "relationship.deleted",
    "observation.created",
    "knowledge.posted",
    "knowledge.confirmed",
    "knowledge.flagged",
]


class EventFilter(Input):
    """At least one list for a subscription; all given must match. ``entity_ids`` matches the event's
    entity or anything in ``related``."""

    entity_types: Annotated[list[EntityType], Field(min_length=1, max_length=50)] | None = None
    entity_ids: Annotated[list[EntityId], Field(min_length=1, max_length=100)] | None = None
    event_types: Annotated[list[EventType], Field(min_length=1, max_length=20)] | None = None


class Subscribe(PostInput, EventFilter):
    delivery_method: Literal["webhook", "sse"]
    webhook_url: Annotated[str, StringConstraints(min_length=1, max_length=2_048), STORABLE] | None = None
    secret: Annotated[str, StringConstraints(min_length=1, max_length=200), STORABLE] | None = None
    max_failures: Annotated[int, Field(ge=1, le=1_000)] = 10


class SubscriptionRef(PostInput):
    subscription_id: SubscriptionId


class GetSubscription(GuestInput):
    subscription_id: SubscriptionId


class ListSubscriptions(GuestInput):
    after: Cursor | None = None
    limit: Limit = 50


class ListEvents(GuestInput, EventFilter):
    after: Cursor = 0
    limit: Limit = 50
    wait: Annotated[float, Field(ge=0, le=60)] = 0


class Event(Output):
    seq: int
    event_id: str
    event_type: EventType
    entity_id: str
    entity_type: str
    action: str
    actor: dict[str, Any]
    at: str
    fields_changed: list[str]
    related: list[str]


class EventList(Output):
    items: list[Event]
    next_after: int
    oldest: int | None
    gap: bool


class DeliveryFailure(Output):
    event_id: str
    at: str
    reason: str


class Subscription(Output):
    subscription_id: str
    delivery_method: Literal["webhook", "sse"]
    webhook_url: str | None
    entity_types: list[str] | None
    entity_ids: list[str] | None
    event_types: list[str] | None
    max_failures: int
    active: bool
    inactive_reason: str | None
    delivered: int
    failed: int
    consecutive_failures: int
    last_failure: DeliveryFailure | None
    failures: list[DeliveryFailure]
    created_at: str
    secret: str = Field(default="", description="Once, in the answer to subscribe and rotate.")


class SubscriptionList(Output):
    items: list[Subscription]
    next_after: int | None


class Unsubscribed(Output):
    subscription_id: str
    active: Literal[False]
