"""Killed anywhere, started again: one pull request, one question, one report, no orphan, nothing lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes.proxy import Drop, FaultProxy, Moment, Rule
from tests.loop.harness import Daemon, Json, People, Project, git, unattended, wait_for
from tests.servers import PoolServer

HONEST = "fix(); test()\n"


@dataclass(frozen=True)
class Point:
    """A request of the daemon, and the moment at it."""

    method: str
    path: str
    moment: Moment
    holds: Callable[[Json], bool]

    def match(self, method: str, path: str, body: Any) -> bool:
        return method == self.method and path.startswith(self.path) and self.holds(body or {})


def enters(state: str) -> Callable[[Json], bool]:
    return lambda body: body.get("fields", {}).get("state") == state


def creates(entity_type: str) -> Callable[[Json], bool]:
    return lambda body: body.get("entity_type") == entity_type


def takes_lease(body: Json) -> bool:
    return "generation" in body.get("fields", {})


def records_intent(body: Json) -> bool:
    return bool(body.get("fields", {}).get("intent"))


def says(step: str) -> Callable[[Json], bool]:
    return lambda body: f":{step}" in body.get("idempotency_key", "")


POINTS = {
    "plan made, not answered": Point("POST", "/entities", "after", creates("plan")),
    "lease taken": Point("PATCH", "/entities/", "after", takes_lease),
    "before the worktree is recorded": Point("PATCH", "/entities/", "before", enters("working")),
    "agent done, not recorded": Point("PATCH", "/entities/", "before", enters("verifying")),
    "proved, not recorded": Point("PATCH", "/entities/", "before", enters("reviewing")),
    "intent recorded, not pushed": Point("PATCH", "/entities/", "after", records_intent),
    "pushed, no pull request": Point("POST", "/entities", "before", creates("pull_request")),
    "pull request made, not recorded": Point("POST", "/entities", "after", creates("pull_request")),
    "before the report": Point("POST", "/issues/add_message", "before", says("report")),
    "reported, not recorded": Point("POST", "/issues/add_message", "after", says("report")),
}


def processes_of(daemon: Daemon) -> list[int]:
    """Living processes that were started from the daemon's agent file or work below its state folder."""
    needles = (str(daemon.agent_file).encode(), str(daemon.state / "items").encode())
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            folder = os.fsencode((entry / "cwd").readlink())
        except OSError:
            continue
        if any(needle in words or folder.startswith(needle) for needle in needles):
            found.append(int(entry.name))
    return found


def assert_done_once(daemon: Daemon, project: Project, people: People, number: int) -> None:
    plan = people.wait_state(number, "done", seconds=90)
    assert plan["outcome"] == "pr_opened"
    assert len(people.pull_requests()) == 1
    assert set(project.branches()) == {"main", plan["branch"]}
    daemon_messages = [m for m in people.status(number)["messages"] if m["author_role"] == "daemon"]
    assert len(daemon_messages) == 1
    assert len(people.plans()) == 1
    wait_for("no orphan", lambda: not processes_of(daemon), 10)


@pytest.mark.parametrize("name", POINTS)
def test_the_daemon_killed_and_started_again(
    tmp_path: Path, project: Project, server: PoolServer, people: People, proxy: FaultProxy, name: str
) -> None:
    """SIGKILL at this point changes nothing about the end."""
    point = POINTS[name]
    daemon = Daemon(tmp_path / "daemon", project, server, HONEST, url=proxy.url, **unattended())

    def kill() -> None:
        daemon.kill()
        if point.moment == "before":
            raise Drop

    rule = proxy.add(Rule(point.match, point.moment, kill))
    with daemon:
        number = people.report()["issue_number"]
        wait_for("the kill", lambda: rule.times == 0)
        daemon.start()
        assert_done_once(daemon, project, people, number)


def test_the_daemon_killed_while_the_agent_runs_leaves_no_process(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """The supervising process ends the agent's tree when the daemon dies; the next start works afresh."""
    release = tmp_path / "release"
    script = (
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)'], start_new_session=True)\n"
        f"while not pathlib.Path({str(release)!r}).exists(): time.sleep(0.05)\n"
        "fix(); test()\n"
    )
    with Daemon(tmp_path / "daemon", project, server, script, **unattended()) as daemon:
        number = people.report()["issue_number"]
        wait_for("the agent", lambda: daemon.runs)
        daemon.kill()
        wait_for("no survivor", lambda: not processes_of(daemon), 10)
        release.touch()
        daemon.start()
        assert_done_once(daemon, project, people, number)


def test_one_question_although_killed_after_asking(
    tmp_path: Path, project: Project, server: PoolServer, people: People, proxy: FaultProxy
) -> None:
    """The question was sent, the daemon died before it could write that down."""
    daemon = Daemon(tmp_path / "daemon", project, server, HONEST, url=proxy.url, **unattended())
    point = Point("POST", "/issues/add_message", "after", says("question"))
    rule = proxy.add(Rule(point.match, "after", daemon.kill))
    with daemon:
        number = people.report(reporter_app_version="9.9.9")["issue_number"]
        wait_for("the kill", lambda: rule.times == 0)
        daemon.start()
        people.wait_state(number, "awaiting_input")
        asked = [m for m in people.status(number)["messages"] if m["author_role"] == "daemon"]
        assert len(asked) == 1


def test_merged_and_killed_before_it_was_recorded(
    tmp_path: Path, project: Project, server: PoolServer, people: People, proxy: FaultProxy
) -> None:
    """The issue is resolved once, and told once, although the daemon died between the two."""
    daemon = Daemon(tmp_path / "daemon", project, server, HONEST, url=proxy.url, **unattended())
    point = Point("POST", "/issues/bulk_close", "after", lambda body: True)
    rule = proxy.add(Rule(point.match, "after", daemon.kill))
    with daemon:
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "done")
        project.merge(plan["branch"])
        wait_for("the kill", lambda: rule.times == 0)
        daemon.start()
        wait_for("recorded", lambda: people.plan(number).get("pr_state") == "merged")
        status = people.status(number)
        assert status["status"] == "resolved"
        assert len([m for m in status["messages"] if m["author_role"] == "daemon"]) == 2


def test_a_report_survives_a_server_killed_before_it_could_answer(own_server: PoolServer) -> None:
    """The answer was lost, the report was not: the same key gives the same issue and the same token."""

    def kill() -> None:
        own_server.kill()
        raise Drop

    report = {
        "title": "Crash",
        "body": "It crashes.",
        "reporter_app_version": "1.0.0",
        "idempotency_key": "once",
    }
    with (
        FaultProxy(own_server.url) as proxy,
        httpx.Client(base_url=proxy.url, trust_env=False, timeout=30) as reporter,
        own_server.operator() as operator,
    ):
        proxy.add(Rule(lambda method, path, body: path == "/issues/submit", "after", kill))
        with pytest.raises(httpx.TransportError):
            reporter.post("/issues/submit", json=report)
        own_server.start()
        again = reporter.post("/issues/submit", json=report)
        assert again.status_code == 201
        issue = again.json()
        status = reporter.post(
            "/issues/status",
            json={"issue_number": issue["issue_number"], "guest_access_token": issue["guest_access_token"]},
        )
        assert status.status_code == 200
        assert len(operator.get("/issues").json()["items"]) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("state", ["claimed", "publishing"])
def test_the_server_killed_under_a_running_daemon(
    tmp_path: Path, project: Project, own_server: PoolServer, moment: Moment, state: str
) -> None:
    """The server dies before or after a write of the daemon; back again, the work goes on to one pull request."""

    def kill() -> None:
        own_server.kill()
        raise Drop

    point = Point("PATCH", "/entities/", moment, enters(state))
    with FaultProxy(own_server.url) as proxy:
        rule = proxy.add(Rule(point.match, moment, kill))
        daemon = Daemon(tmp_path / "daemon", project, own_server, HONEST, url=proxy.url, **unattended())
        people = People(own_server, project.name)
        with daemon:
            number = people.report()["issue_number"]
            wait_for("the kill", lambda: rule.times == 0)
            own_server.start()
            assert_done_once(daemon, project, people, number)
        people.close()
    assert git("--git-dir", str(project.remote), "rev-list", "--count", "main") == "1"
