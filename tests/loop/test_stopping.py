"""The kill switch, the operator's words under way, a drain."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from tests.loop.harness import Daemon, People, Project, unattended, wait_for
from tests.loop.test_crashes import processes_of
from tests.servers import PoolServer

HONEST = "fix(); test()\n"
ENDLESS = "while True: time.sleep(0.05)\n"


def quiet_after(people: People, after: int, seconds: float = 4.0) -> list[dict[str, object]]:
    """What the log gets within the next seconds: the server's own long poll, no sleep."""
    page = people.operator.get("/events", params={"after": after, "wait": seconds, "limit": 500}).json()
    return list(page["items"])


def last_seq(people: People) -> int:
    after = 0
    while True:
        page = people.operator.get("/events", params={"after": after, "limit": 500}).json()
        if not page["items"]:
            return after
        after = page["next_after"]


def test_the_switch_stops_a_running_agent_and_nothing_happens_after(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """One write; within ten seconds the agent is dead, and the log stays silent until the next write."""
    with Daemon(tmp_path / "daemon", project, server, ENDLESS, **unattended()) as daemon:
        number = people.report()["issue_number"]
        wait_for("the agent", lambda: daemon.runs)
        people.set_active(False)
        started = time.monotonic()
        wait_for("the agent's end", lambda: not processes_of(daemon), 15)
        assert time.monotonic() - started < 10
        assert quiet_after(people, last_seq(people)) == []
        assert people.plan(number)["state"] == "working"
        assert people.pull_requests() == []
        daemon.write_agent(HONEST)
        people.set_active(True)
        people.wait_state(number, "done")
        assert len(people.pull_requests()) == 1


def test_paused_from_the_command_line_nothing_starts(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """`formica pause` holds across a restart; a report filed meanwhile is not touched until `resume`."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended()) as daemon:
        wait_for("the start", lambda: (daemon.state / "subscription.json").exists())
        daemon.say("pause")
        number = people.report()["issue_number"]
        assert daemon.stop() == 0
        daemon.start()
        seen = last_seq(people)
        quiet_after(people, seen, 3)
        assert people.plan(number) == {}
        assert "PAUSED" in daemon.say("status")
        daemon.say("resume")
        people.wait_state(number, "done")


def test_reject_stops_a_running_agent(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """The operator's no reaches the run within ten seconds, and nothing of it is published."""
    with Daemon(tmp_path / "daemon", project, server, ENDLESS, **unattended()) as daemon:
        number = people.report()["issue_number"]
        wait_for("the agent", lambda: daemon.runs)
        daemon.say("reject", str(number), "not", "worth", "it")
        wait_for("the agent's end", lambda: not processes_of(daemon), 10)
        plan = people.plan(number)
        assert plan["state"] == "cancelled"
        assert "not worth it" in plan["why_waiting"]
        assert people.status(number)["status"] == "open"
        assert people.pull_requests() == []


def test_a_held_item_waits_and_goes_on_after_retry(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """hold leaves it where it is; retry goes on from there."""
    with Daemon(tmp_path / "daemon", project, server, HONEST) as daemon:
        number = people.report()["issue_number"]
        people.wait_state(number, "waiting_operator")
        daemon.say("hold", str(number), "later")
        assert "held" in daemon.say("why", str(number))
        daemon.say("retry", str(number))
        daemon.say("go", str(number))
        wait_for("shipit", lambda: people.plan(number).get("waiting_for") == "shipit")


def test_withdrawn_by_the_reporter_the_plan_is_cancelled(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """An issue that ended on the server ends its plan."""
    with Daemon(tmp_path / "daemon", project, server, HONEST):
        issue = people.report()
        people.wait_state(issue["issue_number"], "waiting_operator")
        body = {"issue_number": issue["issue_number"], "guest_access_token": issue["guest_access_token"]}
        people.post("/issues/withdraw", body, operator=False)
        people.wait_state(issue["issue_number"], "cancelled")


def test_sigterm_ends_a_running_agent_and_the_next_start_goes_on(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """A drain: exit 0, nothing left running, the lease given back, the work repeated afterwards."""
    with Daemon(tmp_path / "daemon", project, server, ENDLESS, **unattended()) as daemon:
        number = people.report()["issue_number"]
        wait_for("the agent", lambda: daemon.runs)
        assert daemon.stop() == 0
        assert processes_of(daemon) == []
        assert people.plan(number).get("lease") is None
        daemon.write_agent(HONEST)
        daemon.start()
        people.wait_state(number, "done")


def test_publishing_is_exactly_what_was_approved(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """The approved bytes are gone and other ones were made: the approval does not cover them, so it asks again."""
    with Daemon(tmp_path / "daemon", project, server, HONEST) as daemon:
        number = people.report()["issue_number"]
        people.wait_state(number, "waiting_operator")
        daemon.say("go", str(number))
        plan = wait_for(
            "shipit", lambda: (lambda p: p if p.get("waiting_for") == "shipit" else None)(people.plan(number))
        )
        daemon.stop()
        daemon.say("shipit", str(number))
        shutil.rmtree(daemon.state / "items" / str(number))
        daemon.write_agent(HONEST + "tests.write_text(tests.read_text() + '# other bytes\\n')\n")
        daemon.start()
        again = people.wait_state(number, "waiting_operator")
        assert again["waiting_for"] == "shipit"
        assert again["head_sha"] != plan["head_sha"]
        assert people.pull_requests() == []
        assert set(project.branches()) == {"main"}
