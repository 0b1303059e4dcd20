"""SSE over real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.servers import PoolServer, last_seq, run_cli, submit


def events(response: httpx.Response) -> Iterator[tuple[int, dict[str, Any]]]:
    """``(id, event)`` as they come, until the stream ends."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if not line:
            if "data" in fields:
                yield int(fields["id"]), json.loads(fields["data"])
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


@contextmanager
def stream(
    client: httpx.Client, headers: dict[str, str] | None = None, **params: Any
) -> Iterator[httpx.Response]:
    """An open stream; it has begun when this returns."""
    with client.stream("GET", "/events/stream", params=params, headers=headers, timeout=20) as response:
        yield response


def message(client: httpx.Client, issue: dict[str, Any]) -> None:
    body = {"entity_id": issue["entity_id"], "body": "More.", "reporter_app_version": "1"}
    token = {"x-guest-token": issue["guest_access_token"]}
    answer = client.post("/issues/add_message", json=body, headers=token)
    assert answer.status_code == 201, answer.text


def test_a_guest_follows_its_thread(server: PoolServer) -> None:
    """Events of the own thread as they happen, nobody else's, with the actor's role only."""
    with server.client() as client, server.client() as other:
        issue = submit(client)
        token = {"x-guest-token": issue["guest_access_token"]}
        with stream(client, token, entity_ids=issue["entity_id"]) as response:
            assert response.status_code == 200
            assert response.headers["content-type"] == "text/event-stream"
            submit(other)
            message(other, issue)
            seen = events(response)
            three = [next(seen) for _ in range(3)]
        assert {event["event_type"] for _, event in three} == {
            "entity.created",
            "observation.created",
            "entity.updated",
        }
        for seq, event in three:
            assert seq == event["seq"]
            assert issue["entity_id"] in (event["entity_id"], *event["related"])
            assert set(event["actor"]) == {"role"}


def test_last_event_id_resumes_exactly(server: PoolServer, operator: httpx.Client) -> None:
    """After a break the next event is the one after the last seen; without a cursor it starts at now."""
    first = submit(operator)
    wanted = {"event_types": "entity.created"}
    with operator.stream("GET", "/events/stream", params=wanted, headers={"last-event-id": "0"}) as response:
        seq = next(seq for seq, event in events(response) if event["entity_id"] == first["entity_id"])
    second, third = submit(operator), submit(operator)
    with operator.stream(
        "GET", "/events/stream", params=wanted, headers={"last-event-id": str(seq)}
    ) as response:
        found: list[str] = []
        for _, event in events(response):
            if event["entity_type"] == "issue":
                found.append(event["entity_id"])
            if len(found) == 2:
                break
    assert found == [second["entity_id"], third["entity_id"]]
    with server.operator() as writer, stream(operator, event_types="entity.created") as response:
        fourth = submit(writer)
        issues = (event["entity_id"] for _, event in events(response) if event["entity_type"] == "issue")
        assert next(issues) == fourth["entity_id"]


def test_refusals(server: PoolServer, member_key: str) -> None:
    """Who may not follow is told so before anything streams."""
    with server.client() as client:
        one, two = submit(client), submit(client)
        token = {"x-guest-token": one["guest_access_token"]}
        wanted = {"entity_ids": two["entity_id"]}
        cases: list[tuple[dict[str, str], dict[str, str], int]] = [
            ({}, wanted, 401),
            ({"x-guest-token": "gt_wrong"}, wanted, 401),
            (token, wanted, 403),
            ({"x-api-key": member_key}, wanted, 403),
            (token, {"subscription_id": "sub_" + "0" * 24}, 404),
            (token, {"entity_ids": "nonsense"}, 400),
            (token, {"extra": "1"}, 400),
            ({**token, "last-event-id": "x"}, {"entity_ids": one["entity_id"]}, 400),
        ]
        assert client.head("/events/stream", headers=token).status_code == 405
        for headers, params, status in cases:
            answer = client.get("/events/stream", headers=headers, params=params)
            assert answer.status_code == status, (params, answer.text)
            assert answer.json()["error_code"]


def test_three_streams_for_a_guest(server: PoolServer) -> None:
    """A fourth stream is a 429; a place that is given back can be taken again at once."""
    with server.client() as client:
        issue = submit(client)
        token = {"x-guest-token": issue["guest_access_token"]}
        with stream(client, token, entity_ids=issue["entity_id"]), stream(client, token):
            with stream(client, token):
                answer = client.get("/events/stream", headers=token)
                assert answer.status_code == 429
                assert answer.json()["error_code"] == "ERR_RATE_LIMITED"
                assert int(answer.headers["retry-after"]) > 0
            deadline = time.monotonic() + 5
            while True:
                with stream(client, token) as response:
                    if response.status_code == 200 or time.monotonic() > deadline:
                        break
            assert response.status_code == 200


def test_ends_with_the_subscription(operator: httpx.Client, server: PoolServer) -> None:
    """A stream of a subscription ends within about a second of unsubscribe."""
    made = operator.post("/subscribe", json={"delivery_method": "sse", "event_types": ["entity.created"]})
    assert made.status_code == 201, made.text
    name = {"subscription_id": made.json()["subscription_id"]}
    with server.operator() as other, stream(operator, **name) as response:
        submit(other)
        seen = events(response)
        next(seen)
        started = time.monotonic()
        other.post("/unsubscribe", json=name)
        for _ in seen:
            pass
        assert time.monotonic() - started < 6
    assert operator.get("/events/stream", params=name).status_code in (403, 404)


def test_ends_with_the_key(server: PoolServer) -> None:
    """A stream ends soon after its key is revoked."""
    key = server.create_key("operator", "--handle", "stream-operator")
    with server.client(key) as client, stream(client, event_types="entity.created") as response:
        assert response.status_code == 200
        done = run_cli("key", "revoke", "stream-operator", "--state", str(server.state))
        assert done.returncode == 0, done.stderr
        started = time.monotonic()
        for _ in response.iter_lines():
            pass
        assert time.monotonic() - started < 6


def test_a_stop_ends_streams_and_polls(tmp_path: Path) -> None:
    """SIGTERM ends open streams and long polls cleanly and the process at once, with exit code 0."""
    with PoolServer(tmp_path) as server, server.operator() as client:
        with stream(client, event_types="entity.deleted") as response:
            started = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - started < 6
            assert all(not line or line.startswith(":") for line in response.iter_lines())
        assert server.log_lines()[-1]["event"] == "stopped"


def test_long_poll(server: PoolServer, operator: httpx.Client) -> None:
    """GET /events?wait= answers as soon as there is an event, else when the time is over."""
    head = last_seq(server.database)
    started = time.monotonic()
    empty = operator.get(
        "/events", params={"after": head, "wait": 0.3, "event_types": "entity.restored"}
    ).json()
    assert empty["items"] == []
    assert 0.25 < time.monotonic() - started < 2
    issue = submit(operator)
    found = operator.get(
        "/events", params={"after": head, "wait": 10, "entity_ids": issue["entity_id"]}
    ).json()
    assert (
        found["items"][0]["entity_id"] == issue["entity_id"]
        or issue["entity_id"] in found["items"][0]["related"]
    )
