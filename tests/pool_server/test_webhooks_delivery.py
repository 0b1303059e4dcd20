"""Webhooks over real sockets: signed, attempted once, recorded and left."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pool_server.contract.signing import verified
from tests.fakes.webhook_receiver import Delivery, WebhookReceiver
from tests.servers import REPORT, PoolServer, submit

CREATED = {"event_types": ["entity.created"], "entity_types": ["issue"]}


def subscribe(client: httpx.Client, url: str, **fields: Any) -> dict[str, Any]:
    body = {"delivery_method": "webhook", "webhook_url": url, **CREATED, **fields}
    answer = client.post("/subscribe", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def status_when(
    client: httpx.Client, subscription_id: str, holds: Callable[[dict[str, Any]], bool], seconds: float = 10
) -> dict[str, Any]:
    """The subscription's status once it holds, or the last one seen."""
    deadline = time.monotonic() + seconds
    while True:
        status: dict[str, Any] = client.get(f"/subscriptions/{subscription_id}").json()
        if holds(status) or time.monotonic() > deadline:
            return status


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as running:
        yield running


def test_signed_delivery(server: PoolServer, operator: httpx.Client, receiver: WebhookReceiver) -> None:
    """A subscriber gets the event, signed after Standard Webhooks, at once."""
    subscription = subscribe(operator, receiver.url)
    assert subscription["secret"].startswith("whsec_")
    started = time.monotonic()
    issue = submit(operator)
    (delivery,) = receiver.wait_for(1)
    assert time.monotonic() - started < 3
    body = verified(subscription["secret"], delivery.body, delivery.headers)
    assert body["type"] == "entity.created"
    assert body["data"]["entity_id"] == issue["entity_id"]
    assert body["timestamp"] == body["data"]["at"]
    assert delivery.headers["webhook-id"] == body["data"]["event_id"]
    assert delivery.headers["content-type"] == "application/json"
    assert REPORT["title"] not in delivery.body.decode(), "no content in events"
    status = status_when(operator, subscription["subscription_id"], lambda status: status["delivered"] == 1)
    assert (status["delivered"], status["failed"]) == (1, 0)
    assert not status.get("secret"), "the secret is told once"


def test_a_new_subscription_misses_nothing_and_an_ended_one_gets_nothing(
    operator: httpx.Client, receiver: WebhookReceiver
) -> None:
    """Events begin with the first write after subscribe and end with unsubscribe."""
    submit(operator)
    subscription = subscribe(operator, receiver.url)
    issues = [submit(operator)["entity_id"] for _ in range(12)]
    deliveries = receiver.wait_for(12)
    assert sorted(delivery.event["entity_id"] for delivery in deliveries) == sorted(issues)
    done = operator.post("/unsubscribe", json={"subscription_id": subscription["subscription_id"]})
    assert done.status_code == 200
    other = subscribe(operator, receiver.url.replace("/hook", "/other"))
    submit(operator)
    assert len(receiver.wait_for(1, wanted=lambda delivery: delivery.path == "/other")) == 1
    assert len(receiver.deliveries) == 13, "nothing more to the one that ended"
    operator.post("/unsubscribe", json={"subscription_id": other["subscription_id"]})


@pytest.mark.parametrize("status", [302, 429, 500])
def test_one_attempt(operator: httpx.Client, status: int) -> None:
    """A failure is recorded with its reason and left: no second attempt, no redirect followed."""
    with WebhookReceiver(status) as failing, WebhookReceiver() as healthy:
        subscription = subscribe(operator, failing.url)
        subscribe(operator, healthy.url)
        submit(operator)
        found = status_when(operator, subscription["subscription_id"], lambda seen: seen["failed"] == 1)
        assert found["active"] is True
        assert found["consecutive_failures"] == 1
        assert str(status) in found["last_failure"]["reason"]
        submit(operator)
        assert len(healthy.wait_for(2)) == 2
        found = status_when(operator, subscription["subscription_id"], lambda seen: seen["failed"] == 2)
        assert len(failing.deliveries) == 2, "two events, two attempts"
        assert {delivery.path for delivery in failing.deliveries} == {"/hook"}
        operator.post("/unsubscribe", json={"subscription_id": subscription["subscription_id"]})


def test_gone(operator: httpx.Client) -> None:
    """410 switches off at once."""
    with WebhookReceiver(410) as gone:
        subscription = subscribe(operator, gone.url)
        submit(operator)
        found = status_when(operator, subscription["subscription_id"], lambda seen: not seen["active"])
        assert found["active"] is False
        assert found["inactive_reason"]
        submit(operator)
        submit(operator)
        assert len(gone.deliveries) == 1


def test_max_failures_in_a_row(operator: httpx.Client) -> None:
    """The count in a row switches off, exactly then, and says so; a success in between starts it again."""
    answers = iter([500, 500, 200, *[500] * 100])

    def status(_: Delivery) -> int:
        return next(answers)

    with WebhookReceiver(status) as failing:
        subscription = subscribe(operator, failing.url, max_failures=3)
        for attempt in range(1, 4):
            submit(operator)
            assert len(failing.wait_for(attempt)) == attempt
        for _ in range(8):
            submit(operator)
        found = status_when(operator, subscription["subscription_id"], lambda seen: not seen["active"])
        assert found["active"] is False
        assert "3" in found["inactive_reason"]
        assert (found["delivered"], found["failed"]) == (1, 5)
        assert len(failing.deliveries) == 6, "none after the third in a row"


def test_a_hanging_target_delays_nobody(tmp_path: Path) -> None:
    """One target that never answers costs the others and the callers nothing, and is cut off in time."""
    settings = {
        "POOL_WEBHOOK_TIMEOUT_SECONDS": "4",
        "POOL_RATE_ANONYMOUS_PER_MINUTE": "0",
    }
    with (
        PoolServer(tmp_path, settings) as server,
        WebhookReceiver() as receiver,
        server.operator() as operator,
    ):
        slow = subscribe(operator, receiver.hanging_url, max_failures=100)
        subscribe(operator, receiver.url)
        started = time.monotonic()
        for _ in range(20):
            submit(operator)
        healthy = receiver.wait_for(20, wanted=lambda delivery: delivery.path == "/hook")
        assert len(healthy) == 20
        assert time.monotonic() - started < 4, "all twenty before the first attempt of the other was over"
        assert sum(delivery.path == "/hang" for delivery in receiver.deliveries) <= 8, "eight in flight"
        found = status_when(operator, slow["subscription_id"], lambda seen: seen["failed"] >= 8)
        assert found["failed"] >= 8
        assert "4 s" in found["last_failure"]["reason"]
        started = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - started < 8


def test_nothing_listens(operator: httpx.Client) -> None:
    """A refused connection is one recorded failure."""
    closed = WebhookReceiver()
    url = closed.url
    closed._server.server_close()
    subscription = subscribe(operator, url)
    submit(operator)
    found = status_when(operator, subscription["subscription_id"], lambda seen: seen["failed"] == 1)
    assert found["failed"] == 1
    assert found["last_failure"]["reason"]
    operator.post("/unsubscribe", json={"subscription_id": subscription["subscription_id"]})


def test_rotated_secret(operator: httpx.Client, receiver: WebhookReceiver) -> None:
    """After a rotation a delivery verifies with the new secret, and still with the old one."""
    subscription = subscribe(operator, receiver.url)
    rotated = operator.post(f"/subscriptions/{subscription['subscription_id']}/rotate")
    assert rotated.status_code == 200, rotated.text
    submit(operator)
    (delivery,) = receiver.wait_for(1)
    for secret in (rotated.json()["secret"], subscription["secret"]):
        assert verified(secret, delivery.body, delivery.headers)
    operator.post("/unsubscribe", json={"subscription_id": subscription["subscription_id"]})


FORBIDDEN = [
    "http://169.254.169.254/latest/meta-data",
    "http://10.0.0.1/",
    "http://192.168.1.1:8080/",
    "http://172.16.0.1/",
    "http://100.64.0.1/",
    "http://0.0.0.0:80/",
    "http://[::]/",
    "http://[::ffff:10.0.0.1]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[fd00::1]/",
    "http://[64:ff9b::a00:1]/",
    "http://167772161/",
    "http://0x0a000001/",
    "http://012.0.0.1/",
    "http://10.1/",
    "http://224.0.0.1/",
    "ftp://example.com/",
    "file:///etc/passwd",
    "http://user:pass@example.com/",
]


@pytest.mark.parametrize("url", FORBIDDEN)
def test_targets_that_are_not_public(operator: httpx.Client, url: str) -> None:
    """Private, link-local, metadata and disguised addresses are refused when subscribing, even to operators."""
    body = {"delivery_method": "webhook", "webhook_url": url, **CREATED}
    answer = operator.post("/subscribe", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["details"]["fields"][0]["field"] == "webhook_url"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0177.0.0.1"])
def test_loopback_is_for_operators(operator: httpx.Client, receiver: WebhookReceiver, host: str) -> None:
    """An operator may name a loopback target, in whatever spelling, and it is reached."""
    subscription = subscribe(operator, receiver.url.replace("127.0.0.1", host))
    submit(operator)
    assert len(receiver.wait_for(1)) == 1
    operator.post("/unsubscribe", json={"subscription_id": subscription["subscription_id"]})


def test_webhooks_are_for_operators(server: PoolServer, member_key: str, receiver: WebhookReceiver) -> None:
    """Neither a guest nor a member makes the server call anything."""
    with server.client() as client:
        issue = submit(client)
        body = {"delivery_method": "webhook", "webhook_url": receiver.url, "entity_ids": [issue["entity_id"]]}
        guest = {"x-guest-token": issue["guest_access_token"]}
        assert client.post("/subscribe", json=body, headers=guest).status_code == 403
        assert client.post("/subscribe", json=body, headers={"x-api-key": member_key}).status_code == 403
        assert client.post("/subscribe", json=body).status_code == 401
    assert receiver.deliveries == []


def test_restart_starts_at_now(tmp_path: Path) -> None:
    """A subscription survives a restart; what was written without it running is not sent late."""
    with WebhookReceiver() as receiver, PoolServer(tmp_path) as server:
        with server.operator() as operator:
            subscribe(operator, receiver.url)
            submit(operator)
            assert len(receiver.wait_for(1)) == 1
        server.restart()
        with server.operator() as operator:
            submit(operator)
            deliveries = receiver.wait_for(2)
        assert len(deliveries) == 2
        ids = [json.loads(delivery.body)["data"]["event_id"] for delivery in receiver.deliveries]
        assert len(set(ids)) == len(ids), "no event twice"
