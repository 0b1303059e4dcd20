"""Each gate blocks what it should, and says so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.loop.harness import Daemon, People, Project, unattended, wait_for
from tests.servers import PoolServer

HONEST = "fix(); test()\n"


def test_off_makes_plans_only(tmp_path: Path, project: Project, server: PoolServer, people: People) -> None:
    """reporting_mode off: a plan with its reason, no message, no worktree."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, policy={"reporting_mode": "off"}) as daemon:
        number = people.report()["issue_number"]
        plan = wait_for("why", lambda: (lambda p: p if p.get("why_waiting") else None)(people.plan(number)))
        assert "off" in plan["why_waiting"]
        assert len(people.status(number)["messages"]) == 1
        assert not (daemon.state / "items" / str(number)).exists()
        refused = daemon.word("go", str(number))
        assert refused.returncode == 3


def test_the_first_of_a_type_shows_and_the_others_wait(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """dry_run first, proactive: the first waits for /go, the second for the first; one go frees both."""
    options = unattended(dry_run="first")
    with Daemon(tmp_path / "daemon", project, server, HONEST, **options) as daemon:
        first = people.report()["issue_number"]
        plan = people.wait_state(first, "waiting_operator")
        assert plan["dry_run"] is True
        assert plan["would_do"]
        second = people.report(title="mean(()) raises ZeroDivisionError too")["issue_number"]
        held = people.wait_state(second, "planned")
        wait_for("why", lambda: f"#{first}" in people.plan(second).get("why_waiting", ""))
        assert held.get("outcome") is None
        assert daemon.runs == []
        daemon.say("go", str(first))
        people.wait_state(first, "done")
        people.wait_state(second, "done", seconds=90)


def test_tainted_text_is_never_worked_on_unattended(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """A mark on one message is enough, whatever the mode."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended()) as daemon:
        people.post("/entities", {"entity_type": "note", "fields": {}})
        people.set_active(False)
        issue = people.report()
        message = people.status(issue["issue_number"])["messages"][0]["message_id"]
        marked = people.operator.patch(
            f"/entities/{message}", json={"fields": {"tainted": ["planted"]}}, headers={"If-Match": "*"}
        )
        assert marked.status_code == 200
        people.set_active(True)
        plan = people.wait_state(issue["issue_number"], "waiting_operator")
        assert "planted" in " ".join(plan["decision_blockers"])
        assert daemon.runs == []


@pytest.mark.parametrize(
    ("script", "finding"),
    [
        ("fix(); test(); pathlib.Path('SECURITY.md').write_text('x')\n", "security"),
        ("fix(); test(); pathlib.Path('AGENTS.md').write_text('x')\n", "agent_instructions"),
        ("fix(); test(); pathlib.Path('data.bin').write_bytes(bytes(range(256)))\n", "binary"),
        ("fix(); test(); os.symlink('/etc/passwd', 'link')\n", "symbolic link"),
        ("fix(); test(); stats.chmod(0o755)\n", "mode"),
        ("fix(); test(); pathlib.Path('big.py').write_text('x = 1\\n' * 900)\n", "lines"),
    ],
)
def test_a_diff_beyond_the_limits_is_shown_before_it_is_published(
    tmp_path: Path, project: Project, server: PoolServer, people: People, script: str, finding: str
) -> None:
    """auto_fix stops at every finding, and the plan names it."""
    with Daemon(tmp_path / "daemon", project, server, script, **unattended()):
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "waiting_operator")
        assert plan["waiting_for"] == "shipit"
        assert any(finding in entry for entry in plan["findings"]), plan["findings"]
        assert people.pull_requests() == []


def test_no_proof_no_pull_request(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """A fix without a test goes to the maintainer, and shipit does not apply to it."""
    with Daemon(tmp_path / "daemon", project, server, "fix()\n", **unattended()) as daemon:
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "waiting_operator")
        assert plan["waiting_for"] == "decision"
        assert plan["proof"]["proved"] is False
        assert daemon.word("shipit", str(number)).returncode == 3
        assert people.pull_requests() == []


def test_the_hourly_limit_means_wait_with_a_time(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """max_prs_per_hour 1: the second waits, says why and until when."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended(max_prs_per_hour=1)):
        first = people.report()["issue_number"]
        people.wait_state(first, "done")
        second = people.report(title="mean(()) raises ZeroDivisionError too")["issue_number"]
        plan = wait_for(
            "the limit",
            lambda: (lambda p: p if "max_prs_per_hour" in p.get("why_waiting", "") else None)(
                people.plan(second)
            ),
        )
        assert plan["state"] == "publishing"
        assert plan["next_look_at"]
        assert len(people.pull_requests()) == 1


def test_a_security_report_is_private_at_once_and_only_the_maintainer_acts(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """Made private before anything else; nothing is executed, nothing is said in public."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended()) as daemon:
        issue = people.report(
            title="Remote code execution: unauthenticated attacker can run commands",
            body="A crafted request to /upload lets an attacker execute arbitrary code. Security vulnerability, CVSS 9.8.",
        )
        number = issue["issue_number"]
        plan = people.wait_state(number, "waiting_operator")
        assert plan["security"] is True
        assert people.status(number)["visibility"] == "private"
        assert people.reporter.get(f"/issues/{number}").status_code == 404
        assert daemon.word("go", str(number)).returncode == 3
        assert daemon.runs == []


def test_an_enhancement_waits_for_the_maintainer(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """Never implemented on the daemon's own decision."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended()) as daemon:
        number = people.report(
            title="Feature request: add a median function",
            body="It would be nice to have tally.stats.median next to mean. Please add it.",
            kind="enhancement",
        )["issue_number"]
        plan = people.wait_state(number, "waiting_operator")
        assert plan["kind"] == "enhancement"
        assert daemon.runs == []


def test_an_agent_that_always_fails_is_parked(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """failures_per_item 1: one run, a reason, and it stays in the inbox."""
    options = unattended(failures_per_item=1)
    with Daemon(tmp_path / "daemon", project, server, "print('no'); sys.exit(7)\n", **options) as daemon:
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "failed")
        assert "7" in plan["why_waiting"]
        assert len(daemon.runs) == 1
        assert f"#{number}" in daemon.say("inbox")
        wait_for("nobody claims to work on it", lambda: people.status(number)["status"] == "open")


def test_unattended_without_isolation_refuses_to_start(
    tmp_path: Path, project: Project, server: PoolServer
) -> None:
    """auto without bubblewrap: proactive and auto_fix are exit 3, and `required` is too."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "git").symlink_to(shutil.which("git") or "git")
    for number, options in enumerate(
        (
            {"policy": {"reporting_mode": "proactive"}, "agent": {"sandbox": "auto"}},
            {"policy": {"auto_fix": True}, "agent": {"sandbox": "auto"}},
            {"agent": {"sandbox": "required"}},
        )
    ):
        folder = tmp_path / f"daemon-{number}"
        daemon = Daemon(folder, project, server, HONEST, path=str(tools), **options)
        assert daemon.word("run", "--once").returncode == 3
