"""Report to verified resolution, with the real server, daemon, git and a scripted agent."""

from __future__ import annotations

from pathlib import Path

from tests.loop.harness import Daemon, People, Project, git, unattended, wait_for
from tests.servers import PoolServer

HONEST = "fix(); test()\n"


def test_a_report_becomes_a_verified_pull_request_and_the_reporter_closes_it(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """With every default: asked once before executing, once before publishing, then merged, resolved, verified."""
    before = project.fingerprint()
    with Daemon(tmp_path / "daemon", project, server, HONEST) as daemon:
        issue = people.report()
        number = issue["issue_number"]
        plan = people.wait_state(number, "waiting_operator")
        assert (plan["waiting_for"], plan["dry_run"]) == ("go", True)
        assert daemon.runs == []
        assert people.status(number)["messages"][1:] == []

        daemon.say("go", str(number))
        wait_for("the change", lambda: people.plan(number).get("head_sha"))
        plan = people.wait_state(number, "waiting_operator")
        assert plan["waiting_for"] == "shipit"
        assert people.status(number)["status"] == "in_progress"
        assert project.branches().keys() == {"main"}
        assert people.pull_requests() == []

        daemon.say("shipit", str(number))
        plan = people.wait_state(number, "done")
        assert plan["outcome"] == "pr_opened"
        assert plan["status"] == "executed"
        assert plan["proof"]["base_failed"] is True
        assert plan["proof"]["head_passed"] is True
        (pull_request,) = people.pull_requests()
        assert pull_request["draft"] is True
        assert pull_request["head_sha"] == plan["head_sha"] == project.branches()[plan["branch"]]
        assert [entry["used"] for entry in plan["approvals"]] == [True, True]

        merged = project.merge(plan["branch"])
        wait_for("resolved", lambda: people.status(number)["status"] == "resolved")
        resolution = people.status(number)["resolution"]
        assert resolution["kind"] == "fixed"
        assert git("--git-dir", str(project.remote), "rev-parse", f"{merged}^{{commit}}") == merged
        assert resolution["fixed_in_sha"] in (merged, plan["head_sha"])

        token = {"guest_access_token": issue["guest_access_token"]}
        body = {"issue_number": number, "worked": True, "reporter_git_sha": merged, **token}
        people.post("/issues/verify", body, operator=False)
        final = people.post("/issues/status", {"issue_number": number, **token}, operator=False)
        assert final["status"] == "closed"
        roles = [message["author_role"] for message in final["messages"]]
        assert roles.count("daemon") == 2
        assert daemon.stop() == 0
    assert len(daemon.runs) == 1
    assert project.fingerprint() == before


def test_a_squash_merge_is_a_merge(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """People merge as they like; the loop closes all the same."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended()):
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "done")
        squashed = project.merge(plan["branch"], squash=True)
        wait_for("resolved", lambda: people.status(number)["status"] == "resolved")
        assert people.status(number)["resolution"]["fixed_in_sha"] == squashed


def test_a_fix_that_did_not_work_goes_to_the_maintainer(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """The reporter says no: the issue is open again, and no second pull request comes by itself."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended()):
        issue = people.report()
        number = issue["issue_number"]
        plan = people.wait_state(number, "done")
        project.merge(plan["branch"])
        wait_for("resolved", lambda: people.status(number)["status"] == "resolved")
        wait_for("recorded", lambda: people.plan(number).get("pr_state") == "merged")
        body = {"issue_number": number, "worked": False, "guest_access_token": issue["guest_access_token"]}
        people.post("/issues/verify", body, operator=False)
        plan = people.wait_state(number, "waiting_operator")
        assert plan["waiting_for"] == "decision"
        assert len(people.pull_requests()) == 1


def test_the_reporter_is_asked_once_and_the_answer_re_enters_by_itself(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """A build nobody knows: one structured question, and on with the answer."""
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended()) as daemon:
        issue = people.report(reporter_app_version="9.9.9")
        number = issue["issue_number"]
        people.wait_state(number, "awaiting_input")
        status = people.status(number)
        assert status["status"] == "awaiting_input"
        assert status["open_question"]["needs"]
        assert daemon.runs == []
        answer = {
            "issue_number": number,
            "body": "It is the released 1.0.0.",
            "reporter_app_version": "1.0.0",
            "reporter_git_sha": git("--git-dir", str(project.remote), "rev-parse", "main"),
            "answers": status["open_question"]["message_id"],
            "guest_access_token": issue["guest_access_token"],
        }
        people.post("/issues/add_message", answer, operator=False)
        people.wait_state(number, "done")
        questions = [
            message for message in people.status(number)["messages"] if message["author_role"] == "daemon"
        ]
        assert len(questions) == 2, "one question, one report"


def test_a_commit_that_is_in_no_release_gets_a_worktree_and_no_pull_request(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """local_commit: tried at that very commit, reported with path and host, the main line untouched."""
    sha = project.commit("CHANGES.md", "next\n")
    with Daemon(tmp_path / "daemon", project, server, HONEST, **unattended()) as daemon:
        number = people.report(reporter_app_version=None, reporter_git_sha=sha)["issue_number"]
        plan = people.wait_state(number, "done")
        assert plan["reproduction_environment_kind"] == "local_commit"
        assert plan["outcome"] == "worktree_created"
        assert plan["base_sha"] == sha
        assert (daemon.state / plan["worktree_path"] / "tally" / "stats.py").is_file()
        assert people.pull_requests() == []
        assert project.branches().keys() == {"main"}
        assert people.status(number)["status"] == "open"


def test_nothing_to_change_is_an_outcome(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """An agent that changes nothing: no pull request, and the thread says so."""
    with Daemon(tmp_path / "daemon", project, server, "sys.exit(0)\n", **unattended()):
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "done")
        assert plan["outcome"] == "no_change"
        assert people.pull_requests() == []
        assert people.status(number)["messages"][-1]["author_role"] == "daemon"


def test_the_maintainers_checkout_can_be_the_source_and_stays_byte_identical(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """`[repository] path`: dirty or stale, it is only ever read; the base is its remote."""
    (project.checkout / "tally" / "stats.py").write_text("broken(\n", encoding="utf-8")
    before = project.fingerprint()
    options = unattended()
    options["repository"] = {"path": str(project.checkout), "url": None}
    with Daemon(tmp_path / "daemon", project, server, HONEST, **options):
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "done")
        assert plan["outcome"] == "pr_opened"
    assert project.fingerprint() == before
