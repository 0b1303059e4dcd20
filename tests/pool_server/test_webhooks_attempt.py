"""One attempt: the address that was checked is the address that is used."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import anyio.to_thread
import httpx
import pytest

from pool_server.contract.models import EventFilter
from pool_server.contract.signing import encode_secret, verified
from pool_server.delivery.attempt import Sender
from pool_server.pool import Target
from tests.fakes.webhook_receiver import WebhookReceiver

SECRET = encode_secret(b"s" * 32)
EVENT: dict[str, Any] = {
    "seq": 1,
    "event_id": "evt_1",
    "event_type": "entity.created",
    "entity_id": "ent_1",
    "at": "2026-01-01T00:00:00.000000Z",
}


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as running:
        yield running


def tls() -> Any:
    return httpx.create_ssl_context(trust_env=False)


@pytest.fixture
async def sender() -> AsyncIterator[Sender]:
    verify = await anyio.to_thread.run_sync(tls)
    made = Sender(verify=verify, timeout=5, private_allowed=False, clock=lambda: datetime.now(UTC))
    yield made
    await made.close()


def target(url: str, *, loopback: bool) -> Target:
    return Target("sub_1", url, (SECRET,), EventFilter(), 10, loopback, 0)


async def test_checked_again_at_connect(sender: Sender, receiver: WebhookReceiver) -> None:
    """A name that leads to loopback by the time of the attempt is refused, whatever subscribe saw."""
    for host in ("localhost", "127.0.0.1", "127.1", "2130706433", "[::ffff:127.0.0.1]"):
        outcome = await sender.attempt(target(receiver.url.replace("127.0.0.1", host), loopback=False), EVENT)
        assert not outcome.delivered
        assert "loopback" in outcome.reason
    assert receiver.deliveries == []


@pytest.mark.parametrize("host", ["169.254.169.254", "10.0.0.1", "[fd00::1]", "0.0.0.0"])
async def test_private_addresses(sender: Sender, host: str) -> None:
    """Loopback being allowed opens nothing else."""
    outcome = await sender.attempt(target(f"http://{host}:1/", loopback=True), EVENT)
    assert "refused" in outcome.reason


async def test_the_name_goes_along(
    sender: Sender, receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection goes to the address, the Host header names the target; no proxy of the environment."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    url = receiver.url.replace("127.0.0.1", "localhost") + "?a=b&c=d%20e"
    outcome = await sender.attempt(target(url, loopback=True), EVENT)
    assert outcome.delivered, outcome.reason
    (delivery,) = receiver.deliveries
    assert delivery.headers["host"] == url.removeprefix("http://").partition("/")[0]
    assert delivery.path == "/hook?a=b&c=d%20e"
    assert verified(SECRET, delivery.body, delivery.headers)["data"] == EVENT


@pytest.mark.parametrize(
    "url", ["http://no-such-host.invalid/", "http://127.0.0.1:1/", "http://x y/", "nonsense"]
)
async def test_whatever_fails_is_an_outcome(sender: Sender, url: str) -> None:
    """Nothing a URL does raises: it is a reason in words."""
    outcome = await sender.attempt(target(url, loopback=True), EVENT)
    assert not outcome.delivered
    assert outcome.reason
    assert not outcome.gone
