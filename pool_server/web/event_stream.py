"""``GET /events/stream``: the table row for its arguments, and the answer that notices a client that left."""

from __future__ import annotations

from typing import Annotated

import anyio
from pydantic import Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pool_server.contract.models import EntityId, Event, EventType, Input, SubscriptionId
from pool_server.errors import ValidationFailed
from pool_server.pool import Operation
from pool_server.web.services import EventStream

__all__ = ["FOLLOW_EVENTS", "EventStreamResponse", "FollowEvents", "last_event_id"]


class FollowEvents(Input):
    subscription_id: SubscriptionId | None = None
    entity_ids: Annotated[list[EntityId], Field(min_length=1, max_length=100)] | None = None
    event_types: Annotated[list[EventType], Field(min_length=1, max_length=20)] | None = None


FOLLOW_EVENTS = Operation(
    name="follow_events",
    method="GET",
    path="/events/stream",
    summary="Follow events as they happen (SSE)",
    description=(
        "By subscription, or by entity_ids and event_types. id is the event's seq: Last-Event-ID resumes "
        "after it, without it the stream starts at now."
    ),
    input=FollowEvents,
    output=Event,
    roles=frozenset(("guest", "operator")),
    effect="read",
)
"""Only on HTTP: on MCP there is nothing that stays open."""


def last_event_id(value: str | None) -> int | None:
    """The cursor in ``Last-Event-ID``; blank is absent.

    Raises:
        ValidationFailed: not a number this log ever gave.
    """
    if value is None or not value.strip():
        return None
    if not value.strip().isascii() or not value.strip().isdigit() or len(value.strip()) > 15:
        raise ValidationFailed("Last-Event-ID is malformed", {"Last-Event-ID": "must be the seq of an event"})
    return int(value)


class EventStreamResponse(Response):
    """Starlette's own streaming answer sees a client that left only when it next sends; this one at once."""

    def __init__(self, stream: EventStream) -> None:
        self.stream = stream
        self.status_code = 200
        self.background = None
        self.init_headers(
            {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}
        )

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async with anyio.create_task_group() as tasks:

                async def end_when_client_leaves() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    tasks.cancel_scope.cancel()

                tasks.start_soon(end_when_client_leaves)
                async for frame in self.stream.frames():
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
                tasks.cancel_scope.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self.stream.close()
