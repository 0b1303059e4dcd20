"""API keys, what is presented, and rate limits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool_server.errors import AuthInvalid, Conflict, NotFound, PoolError, RateLimited, ValidationFailed
from pool_server.pool import OPERATIONS, PoolPolicy, Presented
from pool_server.pool.handlers import READERS, WRITERS
from pool_server.rules.limits import SlidingWindow
from tests.pool_server.pools import SHA, Story, everything_stored, sorted_sources, story


async def test_a_key_is_shown_once_and_stored_as_a_digest(pool: Story) -> None:
    """With its handle, role and tier; an operator's tier is verified."""
    key = await pool.pool.create_key("member", "carol", "paid")
    assert key.startswith("fk_")
    assert len(key) >= 43
    assert key not in await everything_stored(pool)
    caller = await pool.with_key(key)
    assert (caller.role, caller.actor_id, caller.tier) == ("member", "carol", "paid")
    assert (pool.operator.role, pool.operator.tier) == ("operator", "verified")
    listed = {entry["handle"]: entry for entry in await pool.pool.list_keys()}
    assert set(listed) == {"maintainer", "alice", "bob", "carol"}
    assert all("digest" not in entry for entry in listed.values())


async def test_a_handle_is_one_whatever_its_case(pool: Story) -> None:
    """Taken is a conflict; an unusable one is named."""
    for taken in ("alice", "ALICE", "\uff41lice"):
        with pytest.raises(Conflict):
            await pool.pool.create_key("member", taken, "free")
    for wrong in ("", "a b", "-a", "x" * 65, "guest", "Anonymous", "a\u0455"):
        with pytest.raises(ValidationFailed):
            await pool.pool.create_key("member", wrong, "free")
    with pytest.raises(ValidationFailed):
        await pool.pool.create_key("guest", "g", "free")
    one, two = [await pool.pool.create_key("member", None, "free") for _ in range(2)]
    assert (await pool.with_key(one)).actor_id != (await pool.with_key(two)).actor_id


async def test_a_revoked_key_says_so(pool: Story) -> None:
    """By handle or id; again is no change; its handle stays taken."""
    key = await pool.pool.create_key("member", "carol", "free")
    await pool.pool.set_tier("CAROL", "verified")
    assert (await pool.with_key(key)).tier == "verified"
    await pool.pool.revoke_key("carol")
    await pool.pool.revoke_key("carol")
    with pytest.raises(AuthInvalid) as caught:
        await pool.with_key(key)
    assert caught.value.details == {"reason": "revoked"}
    with pytest.raises(Conflict):
        await pool.pool.create_key("member", "carol", "free")
    for call in (pool.pool.revoke_key("nobody"), pool.pool.set_tier("nobody", "free")):
        with pytest.raises(NotFound):
            await call
    assert await pool.pool.has_operator_key()
    await pool.pool.revoke_key("maintainer")
    assert not await pool.pool.has_operator_key()


async def test_a_bad_credential_is_never_anonymous(pool: Story) -> None:
    """Wherever it was put, also beside a valid one."""
    good = pool.operator_key
    token = (await pool.submit()).body["guest_access_token"]
    wrong = [
        Presented(keys=("fk_nope",)),
        Presented(keys=("",)),
        Presented(keys=(token,)),
        Presented(guest_tokens=("gt_nope",)),
        Presented(guest_tokens=(good,)),
        Presented(guest_tokens=("ent_" + "0" * 24,)),
        Presented(unclassified=("",)),
        Presented(unclassified=("Basic abc",)),
        Presented(keys=(good, "fk_nope")),
        Presented(keys=(good,), guest_tokens=("gt_nope",)),
        Presented(keys=("fk_nope",), guest_tokens=(token,)),
        Presented(keys=(good,), unclassified=("x\ud800",)),
    ]
    for presented in wrong:
        with pytest.raises(AuthInvalid) as caught:
            await pool.caller(presented)
        assert caught.value.details == {"reason": "unknown"}


async def test_a_guest_token_decides_over_a_key(pool: Story) -> None:
    """And a bearer value is recognised by its form."""
    token = (await pool.submit()).body["guest_access_token"]
    both = await pool.caller(Presented(keys=(pool.operator_key,), guest_tokens=(token,)))
    assert (both.role, both.actor_id, both.key_id) == ("guest", "guest", None)
    assert (await pool.caller(Presented(unclassified=(token,)))).role == "guest"
    assert (await pool.caller(Presented(unclassified=(pool.operator_key,)))).role == "operator"
    assert (await pool.caller(Presented())).role == "anonymous"


async def test_a_long_user_agent_is_cut_and_redacted(pool: Story) -> None:
    """It is stored with the report."""
    caller = await pool.pool.authenticate(
        Presented(), address="192.0.2.1", surface="mcp", client="agent (eve@corp.com) " + "x" * 500
    )
    await pool.submit(caller)
    assert "eve@" not in await everything_stored(pool)
    stored = [row["client"] for row in await sorted_sources(pool)]
    assert [len(client) for client in stored] == [200]


@pytest.mark.parametrize("before", [0, 170, 195, 4_070, 4_095])
async def test_a_token_across_a_cut_is_whole_when_it_is_looked_for(pool: Story, before: int) -> None:
    """Half a token has no shape; it must not be what is left."""
    token = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    caller = await pool.pool.authenticate(
        Presented(), address="192.0.2.1", surface="http", client="u" * before + " " + token
    )
    await pool.submit(caller)
    assert "ghp_A" not in await everything_stored(pool)


async def test_exactly_the_limit_is_accepted(tmp_path: Path) -> None:
    """80 concurrent reports against 60 are 60 issues and 20 refusals that say when to come back."""
    async with story(tmp_path / "p.sqlite3", PoolPolicy(rate_anonymous_per_minute=60)) as told:
        outcomes = await asyncio.gather(*(told.submit() for _ in range(80)), return_exceptions=True)
        refused = [each for each in outcomes if isinstance(each, RateLimited)]
        assert len(refused) == 20
        assert all(1 <= each.retry_after <= 60 for each in refused)
        assert (await told.rows())["issues"] == 60
        elsewhere = await told.caller(Presented(), address="192.0.2.99")
        await told.submit(elsewhere)
        told.clock.advance(seconds=61)
        await told.submit()


async def test_reading_is_free_unless_posted(tmp_path: Path) -> None:
    """GET does not count for anonymous, POST does; operators and members are not limited here."""
    policy = PoolPolicy(rate_anonymous_per_minute=2)
    async with story(tmp_path / "p.sqlite3", policy) as told:
        await told.submit()
        for _ in range(5):
            told.pool.admit(told.anonymous, ("anonymous",), counted=False)
        told.pool.admit(told.anonymous, ("anonymous",), counted=True)
        with pytest.raises(RateLimited):
            told.pool.admit(told.anonymous, ("anonymous",), counted=True)
        for _ in range(5):
            await told.submit(told.member)
            await told.submit(told.operator)


async def test_a_guest_is_limited_by_token(tmp_path: Path) -> None:
    """Every call of it, and each token by itself."""
    policy = PoolPolicy(rate_guest_per_minute=3, rate_anonymous_per_minute=0)
    async with story(tmp_path / "p.sqlite3", policy) as told:
        one, two = await told.submit(), await told.submit()
        guest = await told.guest(one)
        for _ in range(3):
            await told.status(one, guest)
        await told.refused(RateLimited, guest, "get_issue_status", issue_number=1)
        await told.status(two, await told.guest(two))


@settings(deadline=None)
@given(st.integers(1, 5), st.lists(st.floats(0, 30), max_size=60))
def test_a_window_never_holds_more_than_its_limit(limit: int, gaps: list[float]) -> None:
    """Whatever the arrival times; and after the wait it names, one more is admitted."""
    window = SlidingWindow(limit)
    now, admitted = 0.0, []
    for gap in gaps:
        now += gap
        wait = window.admit("a", now)
        if wait is None:
            admitted.append(now)
        else:
            assert 1 <= wait <= 60
            assert sum(at > now - 60 for at in admitted) == limit
        assert sum(at > now - 60 for at in admitted) <= limit


def test_a_window_forgets_idle_subjects() -> None:
    """A limiter that remembers every address for ever is a leak."""
    window = SlidingWindow(1)
    for number in range(1_000):
        window.admit(str(number), 0.0)
    window.admit("last", 200.0)
    assert len(window._admitted) == 1


def test_every_operation_has_its_handler() -> None:
    """And no handler is without a row; names and routes are unique."""
    names = [operation.name for operation in OPERATIONS]
    assert sorted([*READERS, *WRITERS, "list_events"]) == sorted(names)
    for operation in OPERATIONS:
        assert (operation.name in WRITERS) == (operation.effect == "write")
    routes = [route for each in OPERATIONS for route in ((each.method, each.path), *each.also)]
    assert len(set(routes)) == len(routes)


async def test_roles_are_checked_before_anything_is_looked_up(pool: Story) -> None:
    """For every operation: a role that may not call it gets 401 or 403 and nothing happens."""
    guest = await pool.guest(await pool.submit())
    reference = "ent_" + "0" * 24
    raw = {
        "title": "t", "body": "b", "reporter_git_sha": SHA, "entity_id": reference, "entity_ids": [reference],
        "resolution": {"kind": "fixed", "summary": "s"}, "worked": True, "fields": {}, "entity_type": "x",
        "relationship_type": "X", "source_entity_id": reference, "target_entity_id": reference,
        "delivery_method": "sse", "subscription_id": "sub_" + "0" * 24,
    }  # fmt: skip
    callers = {"anonymous": pool.anonymous, "guest": guest, "member": pool.member}
    for operation in OPERATIONS:
        given = {name: value for name, value in raw.items() if name in operation.input.model_fields}
        for role, caller in callers.items():
            if role not in operation.roles:
                error = await pool.refused(PoolError, caller, operation.name, **given)
                assert error.status == (401 if role == "anonymous" else 403), operation.name
