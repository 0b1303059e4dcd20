"""Guest tokens: minted with the issue, valid for its thread and its time, renewable, never stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from pool_server.errors import AuthInvalid, AuthRequired, Forbidden
from pool_server.pool import PoolPolicy, Presented
from pool_server.pool.vault import Vault
from pool_server.rules import tokens
from tests.pool_server.pools import Story, everything_stored, story


async def test_a_token_expires(tmp_path: Path) -> None:
    """At the time its answer named, with a reason; a replay still returns the first answer."""
    policy = PoolPolicy(guest_ttl_seconds=60, rate_anonymous_per_minute=0, rate_guest_per_minute=0)
    async with story(tmp_path / "p.sqlite3", policy) as told:
        filed = await told.submit(idempotency_key="k")
        assert filed.body["guest_access_expires_at"] == "2026-11-30T12:01:00.000000Z"
        told.clock.advance(seconds=59.9)
        await told.guest(filed)
        told.clock.advance(seconds=0.1)
        with pytest.raises(AuthInvalid) as caught:
            await told.guest(filed)
        assert caught.value.details == {"reason": "expired"}
        assert await told.submit(idempotency_key="k") == filed


async def test_a_token_is_renewed_before_it_expires(tmp_path: Path) -> None:
    """The fresh one outlives the old, which stays valid for its time."""
    policy = PoolPolicy(guest_ttl_seconds=60, rate_guest_per_minute=0)
    async with story(tmp_path / "p.sqlite3", policy) as told:
        filed = await told.submit()
        told.clock.advance(seconds=50)
        guest = await told.guest(filed)
        fresh = await told.call(guest, "renew_guest_access", idempotency_key="r")
        assert fresh.body["issue_number"] == 1
        assert fresh.body["guest_access_token"] != filed.body["guest_access_token"]
        assert await told.call(guest, "renew_guest_access", idempotency_key="r") == fresh
        assert fresh.body["guest_access_token"] not in await everything_stored(told)
        await told.guest(filed)
        told.clock.advance(seconds=30)
        assert (await told.status(filed, await told.guest(fresh)))["issue_number"] == 1


async def test_only_guests_renew(pool: Story) -> None:
    """Nobody else has a token to renew."""
    await pool.submit()
    await pool.refused(AuthRequired, pool.anonymous, "renew_guest_access", issue_number=1)
    for caller in (pool.member, pool.operator):
        await pool.refused(Forbidden, caller, "renew_guest_access", issue_number=1)


async def test_two_issues_have_two_tokens(pool: Story) -> None:
    """Each opens its own thread."""
    one, two = await pool.submit(), await pool.submit()
    assert one.body["guest_access_token"] != two.body["guest_access_token"]
    assert (await pool.guest(two)).issue_entity_id == two.body["entity_id"]


async def test_another_servers_secret_opens_nothing(pool: Story) -> None:
    """A token made with another secret is unknown here."""
    filed = await pool.submit()
    forged = Vault(b"t" * 32).guest_token(filed.body["entity_id"], "nonce")
    with pytest.raises(AuthInvalid):
        await pool.caller(Presented(guest_tokens=(forged,)))


def test_credentials_are_long_and_alike_in_form() -> None:
    """At least 160 bits each, url-safe, with a prefix that says what it is."""
    for credential, prefix in (
        (tokens.api_key(b"\xff" * 32), "fk_"),
        (tokens.guest_token(b"s" * 32, "ent_1", "n"), "gt_"),
    ):
        assert credential.startswith(prefix)
        assert len(credential) - len(prefix) >= 27
        assert credential.replace("_", "").replace("-", "").isalnum()


def test_a_short_secret_is_refused() -> None:
    """Everything hangs on it."""
    with pytest.raises(ValueError, match="32 bytes"):
        Vault(b"short")
