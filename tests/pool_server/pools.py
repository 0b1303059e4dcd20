"""A pool over a real SQLite file, the callers of one story, and the check that a refusal leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa

from pool_server.errors import PoolError
from pool_server.pool import BY_NAME, Pool, PoolPolicy, Presented, Reply
from pool_server.rules.access import Caller
from pool_server.storage import Store
from pool_server.storage.sqlite import open_store
from pool_server.storage.tables import metadata

E = TypeVar("E", bound=PoolError)
SHA = "0123456789abcdef0123456789abcdef01234567"
UNKNOWN = "ent_" + "0" * 24
NO_LIMITS = PoolPolicy(rate_anonymous_per_minute=0, rate_guest_per_minute=0)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()

    def advance(self, **by: float) -> None:
        self.now += timedelta(**by)


async def resolve(host: str, _port: int) -> list[str]:
    """A resolver for tests: names that say where they point."""
    known = {
        "127.0.0.1": ["127.0.0.1"],
        "::1": ["::1"],
        "localhost": ["127.0.0.1"],
        "public.example": ["93.184.216.34"],
        "private.example": ["10.0.0.1"],
        "mixed.example": ["93.184.216.34", "169.254.169.254"],
    }
    if host in known:
        return known[host]
    raise OSError("no such host")


class Story:
    """One pool with an operator, two members and an anonymous caller."""

    def __init__(self, pool: Pool, store: Store, clock: Clock) -> None:
        self.pool, self.store, self.clock = pool, store, clock
        self.operator_key = ""
        self.operator: Caller
        self.member: Caller
        self.stranger: Caller
        self.anonymous: Caller

    async def enter(self) -> None:
        self.operator_key = await self.pool.create_key("operator", "maintainer", "free")
        self.operator = await self.with_key(self.operator_key)
        self.member = await self.with_key(await self.pool.create_key("member", "alice", "paid"))
        self.stranger = await self.with_key(await self.pool.create_key("member", "bob", "free"))
        self.anonymous = await self.caller(Presented())

    async def caller(self, presented: Presented, address: str = "192.0.2.7") -> Caller:
        return await self.pool.authenticate(presented, address=address, surface="http", client="tests/1")

    async def with_key(self, key: str) -> Caller:
        return await self.caller(Presented(keys=(key,)))

    async def guest(self, submitted: Reply) -> Caller:
        return await self.caller(Presented(guest_tokens=(submitted.body["guest_access_token"],)))

    async def call(self, caller: Caller, name: str, /, **raw: Any) -> Reply:
        operation = BY_NAME[name]
        self.pool.admit(caller, operation.roles, counted=operation.effect == "write")
        reply = await self.pool.call(operation, caller, self.pool.validate(operation, raw, strict=True))
        operation.output.model_validate(reply.body, strict=True)
        assert reply.status == operation.status
        return reply

    async def body(self, caller: Caller, name: str, /, **raw: Any) -> dict[str, Any]:
        return (await self.call(caller, name, **raw)).body

    async def refused(self, error: type[E], caller: Caller, name: str, /, **raw: Any) -> E:
        """The refusal, after checking that it left no row, no event and no grant."""
        before = await self.rows()
        with pytest.raises(error) as caught:
            await self.call(caller, name, **raw)
        assert await self.rows() == before
        return caught.value

    async def rows(self) -> dict[str, int]:
        def count(connection: sa.Connection) -> dict[str, int]:
            counts = {
                name: connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
                for name, table in metadata.tables.items()
            }
            log = metadata.tables["event_log"]
            counts["head"] = connection.execute(sa.select(log.c.head)).scalar_one()
            entities = metadata.tables["entities"]
            counts["versions"] = (
                connection.execute(sa.select(sa.func.sum(entities.c.version))).scalar_one() or 0
            )
            return counts

        return await self.store.read(count)

    async def submit(self, caller: Caller | None = None, **raw: Any) -> Reply:
        given = {"title": "Crash", "body": "It crashes on start.", "reporter_git_sha": SHA, **raw}
        return await self.call(caller or self.anonymous, "submit_issue", **given)

    async def status(self, submitted: Reply, caller: Caller | None = None, **raw: Any) -> dict[str, Any]:
        number = submitted.body["issue_number"]
        return await self.body(caller or self.operator, "get_issue_status", issue_number=number, **raw)

    async def resolved(self, **raw: Any) -> tuple[Reply, Caller]:
        """A resolved issue and its guest."""
        submitted = await self.submit(**raw)
        resolution = {"kind": "fixed", "summary": "Guarded.", "fixed_in_version": "1.2.0"}
        number = submitted.body["issue_number"]
        await self.call(self.operator, "resolve_issue", issue_number=number, resolution=resolution)
        return submitted, await self.guest(submitted)

    async def events(self, after: int = 0, caller: Caller | None = None, **raw: Any) -> list[dict[str, Any]]:
        page = await self.body(caller or self.operator, "list_events", after=after, limit=500, **raw)
        items: list[dict[str, Any]] = page["items"]
        return items


async def opened(path: Path) -> Store:
    """The store at ``path``, opened off the event loop as the app does."""
    return await asyncio.to_thread(open_store, path)


@asynccontextmanager
async def story(path: Path, policy: PoolPolicy = NO_LIMITS) -> AsyncIterator[Story]:
    """A story on a fresh database at ``path``."""
    store, clock = await opened(path), Clock()
    try:
        pool = Pool(
            store, policy, token_secret=b"s" * 32, clock=clock, resolve=resolve, monotonic=clock.seconds
        )
        await pool.start()
        told = Story(pool, store, clock)
        await told.enter()
        yield told
    finally:
        await store.close()


async def sorted_sources(told: Story) -> list[dict[str, Any]]:
    """The source rows, as stored."""
    sources = metadata.tables["sources"]

    def look(connection: sa.Connection) -> list[dict[str, Any]]:
        return [dict(row._mapping) for row in connection.execute(sa.select(sources))]

    return await told.store.read(look)


async def everything_stored(told: Story) -> str:
    """All text in the database, to search for what must not be there."""

    def look(connection: sa.Connection) -> str:
        return "\n".join(
            repr(tuple(row))
            for table in metadata.tables.values()
            for row in connection.execute(sa.select(table))
        )

    return await told.store.read(look)
