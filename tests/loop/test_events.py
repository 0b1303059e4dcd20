"""Events are hints: dropped, doubled, shuffled or shared between daemons, they change nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from tests.fakes.proxy import FaultProxy
from tests.loop.harness import Daemon, People, Project, unattended, wait_for
from tests.servers import PoolServer

HONEST = "fix(); test()\n"
Mode = Literal["drop", "double", "shuffle"]


class Relay:
    """Stands between server and daemon: takes every webhook, and hands it on as its mode says."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.target = ""
        self.taken = 0
        self._kept: list[tuple[dict[str, str], bytes]] = []
        self._lock = threading.Lock()
        self._random = random.Random(7)

    def take(self, headers: dict[str, str], body: bytes) -> None:
        with self._lock:
            self.taken += 1
            self._kept.append((headers, body))
            if self.mode == "drop" or (self.mode == "shuffle" and len(self._kept) < 4):
                return
            due, self._kept = self._kept, []
            self._random.shuffle(due)
        for kept in due * (3 if self.mode == "double" else 1):
            with httpx.Client(trust_env=False, timeout=5) as client:
                client.post(self.target, content=kept[1], headers=kept[0])


@contextmanager
def listening(relay: Relay) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            return

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            kept = {
                k: v for k, v in self.headers.items() if k.lower().startswith(("webhook-", "content-type"))
            }
            self.send_response(204)
            self.end_headers()
            relay.take(kept, body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@pytest.mark.parametrize("mode", ["drop", "double", "shuffle"])
def test_lost_doubled_and_shuffled_webhooks_change_nothing(
    tmp_path: Path, project: Project, server: PoolServer, people: People, mode: Mode
) -> None:
    """Three reports, one pull request each, whatever became of the webhooks."""
    relay = Relay(mode)
    with listening(relay) as relay_url:

        def redirect(method: str, path: str, body: Any) -> Any:
            if path == "/subscribe":
                relay.target = body["webhook_url"]
                return {**body, "webhook_url": relay_url}
            return body

        with (
            FaultProxy(server.url, redirect) as proxy,
            Daemon(tmp_path / "daemon", project, server, HONEST, url=proxy.url, **unattended()) as daemon,
        ):
            wait_for("the subscription", lambda: relay.target)
            numbers = [people.report(title=f"mean([]) raises, case {n}")["issue_number"] for n in range(3)]
            for number in numbers:
                people.wait_state(number, "done", seconds=90)
            assert len(people.pull_requests()) == 3
            assert len(daemon.runs) == 3
            assert relay.taken > 0


def test_polling_works_like_webhooks(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """intake = poll: the log wakes the daemon long before the next tick."""
    options = unattended()
    options["events"] = {"intake": "poll"}
    options["daemon"] = {"reconcile_seconds": 600}
    with Daemon(tmp_path / "daemon", project, server, HONEST, **options) as daemon:
        wait_for("the start", lambda: (daemon.state / "event_cursor").exists())
        number = people.report()["issue_number"]
        people.wait_state(number, "done")


def test_a_webhook_wakes_the_daemon_without_a_tick(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """intake = webhook, a tick only every ten minutes: the event is enough."""
    options = unattended()
    options["daemon"] = {"reconcile_seconds": 600}
    with Daemon(tmp_path / "daemon", project, server, HONEST, **options) as daemon:
        wait_for("the subscription", lambda: (daemon.state / "subscription.json").exists())
        number = people.report()["issue_number"]
        people.wait_state(number, "done")


def test_two_daemons_of_one_name_share_the_work_and_never_an_issue(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """Each issue is worked on once, by one of them."""
    with (
        Daemon(tmp_path / "one", project, server, HONEST, **unattended()) as one,
        Daemon(tmp_path / "two", project, server, HONEST, **unattended()) as two,
    ):
        numbers = [people.report(title=f"mean([]) raises, case {n}")["issue_number"] for n in range(5)]
        for number in numbers:
            people.wait_state(number, "done", seconds=100)
        assert len(one.runs) + len(two.runs) == len(numbers)
        assert len(people.pull_requests()) == len(numbers)


def test_the_same_daemon_started_twice_is_told_to_try_elsewhere(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """One state folder, one process: the second says so and exits 75."""
    with Daemon(tmp_path / "daemon", project, server, HONEST) as daemon:
        wait_for("the first", lambda: (daemon.state / "owner").exists())
        second = daemon.word("run", "--once")
        assert second.returncode == 75
        assert "another formica" in second.stderr


def test_an_occupied_port_degrades_the_receiver_and_nothing_else(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """The tick goes on without the receiver."""
    with listening(Relay("drop")) as occupied:
        options = unattended()
        options["events"] = {"listen": occupied.removeprefix("http://").rstrip("/")}
        with Daemon(tmp_path / "daemon", project, server, HONEST, **options) as daemon:
            number = people.report()["issue_number"]
            people.wait_state(number, "done")
            assert "intake.degraded" in daemon.log.read_text()
