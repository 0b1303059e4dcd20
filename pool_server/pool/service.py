"""The pool: the one object every surface calls.

A surface admits a call (its rate limit, then its role), validates its arguments and calls. An operation then
passes redaction and one transaction in which its idempotency key is looked up, its handler runs and
its events are appended. What is refused leaves nothing.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

import anyio

from pool_server.contract import models as m
from pool_server.contract.models import EventFilter, Input, Role, Tier
from pool_server.errors import PoolError, RateLimited, ValidationFailed
from pool_server.pool import (
    accounts,
    events,
    guests,
    handlers,
    idempotency,
    records,
    screening,
    subscriptions,
)
from pool_server.pool.operations import Operation
from pool_server.pool.shapes import Outcome, PoolPolicy, Presented, Reply, Target
from pool_server.pool.validation import validated
from pool_server.pool.vault import Vault
from pool_server.pool.waiting import Head
from pool_server.pool.work import Work
from pool_server.rules import targets
from pool_server.rules.access import Caller, Surface, require_role
from pool_server.rules.limits import SlidingWindow
from pool_server.rules.timestamps import timestamp
from pool_server.storage import Connection, Store

T = TypeVar("T")
Resolve = Callable[[str, int], Awaitable[list[str]]]

RESOLVE_SECONDS = 5
_FOLLOWERS: frozenset[Role] = frozenset(("guest", "operator"))


@dataclass(frozen=True, slots=True)
class _Done:
    reply: Reply
    head: int | None


class Pool:
    """Raises ``PoolError`` only, except for bugs.

    ``token_secret``: at least 32 bytes. ``clock``: the time now, aware. ``resolve``: a host's addresses, for
    webhook targets. ``monotonic``: seconds for the rate limits.
    """

    def __init__(
        self,
        store: Store,
        policy: PoolPolicy,
        *,
        token_secret: bytes,
        clock: Callable[[], datetime],
        resolve: Resolve | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._policy = policy
        self._vault = Vault(token_secret)
        self._clock = clock
        self._resolve = resolve or _resolve
        self._monotonic = monotonic
        self._anonymous = SlidingWindow(policy.rate_anonymous_per_minute)
        self._guests = SlidingWindow(policy.rate_guest_per_minute)
        self._head = Head(lambda: store.read(events.head))

    async def start(self) -> None:
        """Read where the log stands; once, before anything is served."""
        await self._head.refresh()

    # --- calling ----------------------------------------------------------------------------------------

    async def authenticate(
        self, presented: Presented, *, address: str, surface: Surface, client: str
    ) -> Caller:
        """The caller, if every credential presented is valid; a guest token decides over a key.

        Raises:
            AuthInvalid: one is unknown, expired or revoked, also beside a valid one.
        """
        if presented == Presented():
            return Caller("anonymous", "anonymous", "anon", address, surface, client)
        now = self._clock()
        return await self._store.read(
            lambda connection: accounts.identify(
                connection, presented, now, address=address, surface=surface, client=client
            )
        )

    def validate(self, operation: Operation, raw: Mapping[str, Any], *, strict: bool) -> Input:
        """The operation's input; ``strict`` for JSON, lenient for query strings.

        Raises:
            UnknownField, ValidationFailed: without echoing a value.
        """
        return validated(operation.input, raw, strict=strict)

    def admit(self, caller: Caller, roles: Collection[Role], *, counted: bool) -> None:
        """Count one call at the door, once, before anything of it is looked at: what turns out not to fit counts.

        Args:
            roles: those that may make it at all.
            counted: a write, a search or a POST; an anonymous caller may read otherwise.

        Raises:
            RateLimited: the caller has made as many calls as it may.
            AuthRequired, Forbidden: its role may never make this one.
        """
        wait = None
        if caller.role == "guest":
            wait = self._guests.admit(str(caller.token_digest), self._monotonic())
        elif caller.role == "anonymous" and counted:
            wait = self._anonymous.admit(caller.address, self._monotonic())
        if wait is not None:
            raise RateLimited("too many requests", retry_after=wait)
        require_role(roles, caller)

    async def call(self, operation: Operation, caller: Caller, args: Input) -> Reply:
        """Perform one operation that was admitted; its role is asked for again, so that none gets by."""
        require_role(operation.roles, caller)
        if isinstance(args, m.ListEvents):
            return await self._list_events(caller, args)
        reader = handlers.READERS.get(operation.name)
        if reader is not None:
            return await self._store.read(lambda connection: reader(connection, caller, args))
        screened = await self._screened(caller, args)
        return await self._write(operation.name, caller, args, screened)

    async def _screened(self, caller: Caller, args: Input) -> screening.Screened:
        entity_type = None
        if isinstance(args, m.CreateEntity):
            entity_type = args.entity_type
        elif isinstance(args, m.UpdateEntity):
            wanted = args.entity_id
            found = await self._store.read(lambda connection: records.load(connection, wanted))
            entity_type = None if found is None else found.entity_type
        screened = await screening.screened(args, entity_type)
        if isinstance(args, m.Subscribe) and args.webhook_url is not None and caller.role == "operator":
            await self._require_target(args.webhook_url)
        return screened

    async def _write(self, name: str, caller: Caller, sent: Input, screened: screening.Screened) -> Reply:
        handler = handlers.WRITERS[name]
        claim = idempotency.claim(self._vault, name, caller, sent)
        client = screening.client_text(caller.client)

        def perform(connection: Connection) -> _Done:
            work = Work(
                connection, caller, self._clock(), self._policy, self._vault, screened.redactions, client
            )
            if claim is not None:
                first = idempotency.replay(work, claim, self._refill)
                if first is not None:
                    return _Done(first, None)
            reply = handler(work, screened.args)
            if claim is not None:
                idempotency.keep(work, claim, reply)
            return _Done(reply, work.flush())

        return (await self._store.write(perform, on_commit=self._committed())).reply

    def _committed(self) -> Callable[[_Done], None]:
        loop = asyncio.get_running_loop()

        def note(done: _Done) -> None:
            if done.head is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self._head.advance, done.head)

        return note

    def _refill(self, connection: Connection, kept: dict[str, Any]) -> str:
        if kept["kind"] == "guest":
            return guests.remint(self._vault, kept)
        return subscriptions.refilled_secret(connection, self._vault, kept["secret_id"])

    async def _require_target(self, url: str) -> None:
        try:
            host, port = targets.split_target(url)
        except ValueError as malformed:
            raise ValidationFailed("not a webhook target", {"webhook_url": str(malformed)}) from None
        addresses: list[str] = []
        with anyio.move_on_after(RESOLVE_SECONDS), suppress(OSError, UnicodeError):
            addresses = await self._resolve(host, port)
        if not addresses:
            raise ValidationFailed("not a webhook target", {"webhook_url": "its host does not resolve"})
        for address in addresses:
            refused = targets.refuse_reason(
                address,
                loopback_allowed=targets.names_loopback(url),
                private_allowed=self._policy.allow_private_webhooks,
            )
            if refused is not None:
                raise ValidationFailed("not a webhook target", {"webhook_url": f"resolves to {refused}"})

    # --- the event log ----------------------------------------------------------------------------------

    async def _list_events(self, caller: Caller, args: m.ListEvents) -> Reply:
        deadline = anyio.current_time() + args.wait
        while True:
            seen = self._head.value
            reply = await self._store.read(lambda connection: events.list_events(connection, caller, args))
            left = deadline - anyio.current_time()
            if reply.body["items"] or left <= 0:
                return reply
            await self._head.beyond(seen, left)

    def head(self) -> int:
        """The newest committed seq."""
        return self._head.value

    async def wait_beyond(self, seq: int, timeout: float) -> int:
        """The newest seq, once it is greater than ``seq`` or ``timeout`` seconds have passed."""
        return await self._head.beyond(seq, timeout)

    async def read_events(
        self, after: int, limit: int, wanted: EventFilter, *, viewer: Caller | None
    ) -> list[dict[str, Any]]:
        """Matching events after a cursor as ``viewer`` may see them; None is the system, which sees all."""
        return await self._store.read(
            lambda connection: events.read(connection, after, limit, wanted, viewer)
        )

    async def oldest_seq(self) -> int | None:
        """The oldest seq that is kept, None when none is."""
        return await self._store.read(events.oldest)

    async def stream_filter(
        self,
        caller: Caller,
        subscription_id: str | None,
        entity_ids: Sequence[str] | None,
        event_types: Sequence[str] | None,
    ) -> EventFilter:
        """What this caller's stream sends.

        Raises:
            AuthRequired, Forbidden, NotFound, ValidationFailed: as for any call.
        """
        require_role(_FOLLOWERS, caller)
        raw = {"entity_ids": entity_ids, "event_types": event_types}
        given = validated(
            EventFilter, {name: list(value) for name, value in raw.items() if value is not None}, strict=False
        )
        assert isinstance(given, EventFilter)
        return await self._store.read(
            lambda connection: subscriptions.stream_filter(connection, caller, subscription_id, given)
        )

    async def stream_allowed(self, caller: Caller, subscription_id: str | None) -> bool:
        """Whether an open stream may go on: neither revoked nor expired nor unsubscribed."""
        now = self._clock()

        def look(connection: Connection) -> bool:
            followed = subscription_id is None or subscriptions.is_active(connection, subscription_id)
            return followed and accounts.still_valid(connection, caller, now)

        return await self._store.read(look)

    async def webhook_targets(self) -> list[Target]:
        """Every active webhook, with its secrets."""
        at = timestamp(self._clock())
        return await self._store.read(
            lambda connection: subscriptions.webhook_targets(connection, self._vault, at)
        )

    async def record_deliveries(self, subscription_id: str, outcomes: Sequence[Outcome]) -> bool:
        """Count what became of deliveries; whether the subscription is still on."""
        return await self._store.write(
            lambda connection: subscriptions.record_deliveries(connection, subscription_id, outcomes)
        )

    # --- upkeep and accounts ----------------------------------------------------------------------------

    async def ready(self) -> bool:
        """Whether the database answers and takes writes."""
        try:
            await self._store.read(events.head)
            await self._store.prove()
        except PoolError:
            return False
        return True

    async def prune(self) -> None:
        """Drop events past retention and idempotency keys past 30 days, in short transactions."""
        now = self._clock()
        days = self._policy.event_retention_days
        while await self._store.write(lambda connection: events.prune(connection, now, days)):
            pass
        await self._store.write(lambda connection: idempotency.prune(connection, now))

    async def create_key(self, role: Role, handle: str | None, tier: Tier) -> str:
        """A new API key, shown this once.

        Raises:
            ValidationFailed: not a role for keys, or not a handle.
            Conflict: the handle is taken.
        """
        now = self._clock()
        return await self._store.write(
            lambda connection: accounts.create_key(connection, now, role, handle, tier)
        )

    async def list_keys(self) -> list[dict[str, Any]]:
        """Every key: ``key_id, handle, role, tier, created_at, revoked_at``."""
        return await self._store.read(accounts.list_keys)

    async def revoke_key(self, name: str) -> None:
        """Revoke by handle or key id.

        Raises:
            NotFound: no such key.
        """
        now = self._clock()
        await self._store.write(lambda connection: accounts.revoke_key(connection, now, name))

    async def set_tier(self, name: str, tier: Tier) -> None:
        """Set a key's tier, by handle or key id.

        Raises:
            NotFound: no such key.
        """
        await self._store.write(lambda connection: accounts.set_tier(connection, name, tier))

    async def has_operator_key(self) -> bool:
        """Whether an operator key exists that is not revoked."""
        return await self._store.read(accounts.has_operator_key)


async def _resolve(host: str, port: int) -> list[str]:
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]
