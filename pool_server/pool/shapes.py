"""What passes between the pool and its edges, besides the wire's own shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pool_server.contract.models import EventFilter


@dataclass(frozen=True, slots=True)
class Presented:
    """Every credential found anywhere in one request, in the order found.

    ``unclassified`` holds bearer values, which may be either kind; a blank value or another scheme than
    ``Bearer`` is passed as ``""`` and is refused as unknown.
    """

    keys: tuple[str, ...] = ()
    guest_tokens: tuple[str, ...] = ()
    unclassified: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: HTTP status, JSON body, and the version for ``ETag`` where an entity is answered."""

    status: int
    body: dict[str, Any]
    etag: int | None = None


@dataclass(frozen=True, slots=True)
class PoolPolicy:
    """What the maintainer set; a limit of 0 is no limit."""

    product_version: str | None = None
    guest_ttl_seconds: int = 30 * 86_400
    allow_anonymous_submit: bool = True
    allow_private_webhooks: bool = False
    rate_anonymous_per_minute: int = 30
    rate_guest_per_minute: int = 30
    rate_posts_per_minute: int = 10
    rate_votes_per_minute: int = 30
    rate_joins_per_hour: int = 10
    event_retention_days: int = 30


@dataclass(frozen=True, slots=True)
class Target:
    """One active webhook. Every secret signs; the newest comes first."""

    id: str
    url: str
    secrets: tuple[str, ...]
    filter: EventFilter
    max_failures: int
    loopback_allowed: bool
    created_seq: int
    """The newest seq when it was made: deliveries start after it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one delivery attempt came to. ``at`` is RFC 3339; ``reason`` is for people, without the body."""

    event_id: str
    at: str
    delivered: bool
    reason: str = ""
    gone: bool = False
    """The target answered 410: switch off at once."""
