"""Slow, silent and too many clients: against a running server, and the gate by itself."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from pool_server.web.connections import Gate
from tests.servers import REPORT, PoolServer, submit

NO_LIMITS = {"POOL_RATE_ANONYMOUS_PER_MINUTE": "0", "POOL_RATE_GUEST_PER_MINUTE": "0"}
HEAD = b"POST /issues/submit HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BEGUN = HEAD + b"Content-Length: 9000\r\n\r\n{"
PLACES = 12


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolServer]:
    """Half a second for a request."""
    settings = {**NO_LIMITS, "POOL_REQUEST_TIMEOUT_SECONDS": "0.5"}
    with PoolServer(tmp_path_factory.mktemp("hasty"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolServer]:
    """Few places."""
    settings = {**NO_LIMITS, "POOL_MAX_CONNECTIONS": str(PLACES)}
    with PoolServer(tmp_path_factory.mktemp("narrow"), settings) as running:
        yield running


def connected(server: PoolServer) -> socket.socket:
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answer_on(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    """Status and body of what comes until the server closes."""
    received = b""
    while chunk := connection.recv(65_536):
        received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), dict(json.loads(body))


@pytest.mark.parametrize(
    ("sent", "part"),
    [(BEGUN, "body"), (HEAD, "request"), (b"POST /mcp HTT", "request"), (BEGUN + b" " * 5000, "body")],
)
def test_a_request_that_never_ends_is_refused(hasty: PoolServer, sent: bytes, part: str) -> None:
    """In our envelope, and the connection is closed."""
    with connected(hasty) as connection:
        connection.sendall(sent)
        status, body = answer_on(connection)
    assert (status, body["error_code"]) == (400, "ERR_VALIDATION")
    assert body["details"]["fields"] == [{"field": part, "reason": "did not arrive in time"}]


def test_bytes_that_trickle_do_not_buy_time(hasty: PoolServer) -> None:
    """The deadline is for the whole request, not for the next byte."""
    with connected(hasty) as connection:
        connection.sendall(BEGUN)
        connection.settimeout(0.1)
        received = b""
        for _ in range(200):
            try:
                connection.sendall(b" ")
                received = connection.recv(65_536)
                break
            except TimeoutError:
                continue
    assert received.startswith(b"HTTP/1.1 400 ")


def test_a_silent_connection_is_closed(hasty: PoolServer) -> None:
    """Without an answer: nothing was asked."""
    with connected(hasty) as connection:
        assert connection.recv(1) == b""


def test_what_is_no_http_gets_the_envelope(hasty: PoolServer) -> None:
    """Nothing of it is repeated."""
    with connected(hasty) as connection:
        connection.sendall(b"gt_secretsecretsecret\r\n\r\n")
        status, body = answer_on(connection)
    assert (status, body["error_code"]) == (400, "ERR_VALIDATION")
    assert "secretsecret" not in json.dumps(body)


def test_slow_clients_make_room(narrow: PoolServer) -> None:
    """Five times as many slow bodies as places: the longest waiting are refused, everybody else is served."""
    with ExitStack() as open_connections:
        slow = [open_connections.enter_context(connected(narrow)) for _ in range(5 * PLACES)]
        for connection in slow:
            try:
                connection.sendall(BEGUN)
            except OSError:
                continue
        with narrow.client() as client:
            assert client.get("/health").status_code == 200
            assert submit(client)["status"] == "open"


def test_the_one_that_makes_room_is_told_why(narrow: PoolServer) -> None:
    """A 503 with a time to come back."""
    with ExitStack() as open_connections:
        first = open_connections.enter_context(connected(narrow))
        first.sendall(BEGUN)
        with narrow.client() as client:
            assert client.get("/health").status_code == 200
        for _ in range(PLACES):
            open_connections.enter_context(connected(narrow))
        status, body = answer_on(first)
    assert (status, body["error_code"]) == (503, "ERR_UNAVAILABLE")


def test_streams_keep_their_places_and_probes_are_served(narrow: PoolServer) -> None:
    """With every place taken by an open stream, /health and /ready answer and everything else is a 503."""
    with ExitStack() as streams:
        client = streams.enter_context(narrow.operator())
        for _ in range(PLACES):
            stream = streams.enter_context(
                client.stream("GET", "/events/stream", params={"event_types": "entity.created"})
            )
            assert stream.status_code == 200
        for path, status in (("/health", 200), ("/ready", 200), ("/issues", 503)):
            assert httpx.get(narrow.url + path, trust_env=False).status_code == status
        refused = httpx.post(narrow.url + "/issues/submit", json=REPORT, trust_env=False)
        assert (refused.status_code, refused.json()["error_code"]) == (503, "ERR_UNAVAILABLE")
        assert int(refused.headers["retry-after"]) >= 1


class One:
    """A connection that notes whether it had to go."""

    def __init__(self) -> None:
        self.gone = False

    def make_room(self) -> None:
        self.gone = True


def gate(places: int, per_address: int, trusted: tuple[str, ...] = ()) -> Gate:
    return Gate(places=lambda: places, per_address=per_address, trusted=trusted, seconds=1)


def test_one_address_takes_no_others_places() -> None:
    """Its own longest waiting goes; another address is not touched."""
    door, other, mine = gate(100, 2), One(), [One() for _ in range(3)]
    assert door.enter(other, "192.0.2.1") == "welcome"
    assert [door.enter(each, "192.0.2.2") for each in mine] == ["welcome"] * 3
    assert [each.gone for each in (other, *mine)] == [False, True, False, False]


def test_an_address_whose_connections_are_all_answered_is_full() -> None:
    """Until one of them has its answer."""
    door, mine = gate(100, 2), [One() for _ in range(4)]
    for each in mine[:2]:
        door.enter(each, "192.0.2.2")
        door.answered(each)
    assert door.enter(mine[2], "192.0.2.2") == "full"
    door.wait(mine[0])
    assert door.enter(mine[3], "192.0.2.2") == "welcome"
    assert mine[0].gone


def test_a_trusted_proxy_stands_for_many() -> None:
    """Only the total counts for it."""
    door, many = gate(5, 1, ("10.0.0.0/8",)), [One() for _ in range(5)]
    assert [door.enter(each, "10.1.2.3") for each in many] == ["welcome"] * 5
    assert not any(each.gone for each in many)


def test_what_has_left_holds_no_place() -> None:
    """Also when it leaves twice."""
    door = gate(1, 0)
    for _ in range(3):
        one = One()
        assert door.enter(one, "192.0.2.1") == "welcome"
        door.answered(one)
        door.leave(one)
        door.leave(one)
        assert not one.gone


def test_the_spare_places_end_too() -> None:
    """With all places answered some newcomers are let in for the probes, then none."""
    door = gate(2, 0)
    for _ in range(2):
        one = One()
        door.enter(one, "192.0.2.1")
        door.answered(one)
    places: list[str] = []
    for _ in range(40):
        one = One()
        places.append(door.enter(one, "192.0.2.3"))
        door.answered(one)
    assert places[0] == "probes only"
    assert places[-1] == "full"
    assert "welcome" not in places


def test_settings_are_read(tmp_path: Path) -> None:
    """A wrong one is refused by name."""
    server = PoolServer(tmp_path, {"POOL_REQUEST_TIMEOUT_SECONDS": "0"})
    with pytest.raises(AssertionError, match="POOL_REQUEST_TIMEOUT_SECONDS"):
        server.start()
