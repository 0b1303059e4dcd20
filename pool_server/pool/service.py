"""The pool: the one object every surface calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pool_server.contract.models import EventFilter, Input, Role, Tier
from pool_server.pool.operations import Operation
from pool_server.pool.shapes import Outcome, PoolPolicy, Presented, Reply, Target
from pool_server.rules.access import Caller, Surface
from pool_server.storage import Store

Resolve = Callable[[str, int], Awaitable[list[str]]]


class Pool:
    def __init__(
        self,
        store: Store,
        policy: PoolPolicy,
        *,
        token_secret: bytes,
        clock: Callable[[], datetime],
        resolve: Resolve | None = None,
    ) -> None: ...

    async def authenticate(
        self, presented: Presented, *, address: str, surface: Surface, client: str
    ) -> Caller:
        raise NotImplementedError

    def validate(self, operation: Operation, raw: Mapping[str, Any], *, strict: bool) -> Input:
        raise NotImplementedError

    async def call(
        self, operation: Operation, caller: Caller, args: Input, *, method: str | None = None
    ) -> Reply:
        """``method``: the HTTP method that was used, if any (an anonymous POST that only reads counts too)."""
        raise NotImplementedError

    def head(self) -> int:
        raise NotImplementedError

    async def wait_beyond(self, seq: int, timeout: float) -> int:
        raise NotImplementedError

    async def read_events(
        self, after: int, limit: int, wanted: EventFilter, *, viewer: Caller | None
    ) -> list[dict[str, Any]]:
        raise NotImplementedError

    async def oldest_seq(self) -> int | None:
        raise NotImplementedError

    async def webhook_targets(self) -> list[Target]:
        raise NotImplementedError

    async def record_deliveries(self, subscription_id: str, outcomes: Sequence[Outcome]) -> bool:
        raise NotImplementedError

    async def stream_filter(
        self,
        caller: Caller,
        subscription_id: str | None,
        entity_ids: Sequence[str] | None,
        event_types: Sequence[str] | None,
    ) -> EventFilter:
        raise NotImplementedError

    async def stream_allowed(self, caller: Caller, subscription_id: str | None) -> bool:
        raise NotImplementedError

    async def ready(self) -> bool:
        raise NotImplementedError

    async def prune(self) -> None:
        """Drop events past retention and idempotency keys past 30 days."""
        raise NotImplementedError

    async def create_key(self, role: Role, handle: str | None, tier: Tier) -> str:
        raise NotImplementedError

    async def list_keys(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    async def revoke_key(self, handle: str) -> None:
        raise NotImplementedError

    async def set_tier(self, handle: str, tier: Tier) -> None:
        raise NotImplementedError

    async def has_operator_key(self) -> bool:
        raise NotImplementedError
