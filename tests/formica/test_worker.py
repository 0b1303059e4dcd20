"""The worker over fakes: a report's way through the pipeline, and what each gate does to it."""

from __future__ import annotations

import pytest

from formica.errors import Refused
from formica.ports import CommitFacts
from formica.rules.pipeline import State
from formica.rules.policy import Policy
from tests.fakes.agent import Run
from tests.fakes.hooks import Hook
from tests.fakes.repository import file_change, object_id
from tests.fakes.verifier import NOT_PROVED
from tests.fakes.world import Daemon, World

UNATTENDED = Policy(reporting_mode="proactive", auto_fix=True, dry_run="never")
SECURITY = (
    "Remote code execution through the upload form",
    "An attacker can execute arbitrary code without authentication: a security vulnerability, CVE requested.",
)


def external(world: World) -> list[str]:
    """The kinds of acts so far that leave the daemon: threads, trees, agents, branches, pull requests."""
    acts = ("add_message", "update_issue", "resolve", "bulk_close", "prepare", "agent", "push", "create_pull")
    return [call.kind for call in world.hooks.writes() if call.kind in acts]


# --- the way ----------------------------------------------------------------------------------------------


async def test_a_bug_in_a_release_goes_from_report_to_pull_request() -> None:
    """go runs it, shipit publishes it, and the thread hears of it once."""
    world = World()
    daemon = world.daemon()
    number = world.report()
    await daemon.look(number)
    shown = world.plan(number)
    assert (shown.state, shown.waiting_for, shown.dry_run) == (State.WAITING_OPERATOR, "go", True)
    assert external(world) == []
    assert shown.would_do
    await world.desk.go(number)
    await daemon.look(number)
    ready = world.plan(number)
    assert (ready.state, ready.waiting_for) == (State.WAITING_OPERATOR, "shipit")
    assert world.issues.threads[number]["status"] == "in_progress"
    assert world.remote.pushes == []
    await world.desk.shipit(number)
    await daemon.look(number)
    done = world.plan(number)
    (pull,) = world.forge.pulls
    assert (done.state, done.outcome, done.pr_url) == (State.DONE, "pr_opened", pull.url)
    assert pull.head_sha == ready.head_sha
    assert world.remote.pushes == [(f"formica/issue-{number}", ready.head_sha)]
    assert len(world.issues.said(number)) == 1
    assert [approval.used for approval in done.approvals] == [True, True]


async def test_unattended_a_safe_bug_needs_nobody() -> None:
    """Proactive with auto_fix and a clean diff goes all the way by itself."""
    world = World(policy=UNATTENDED)
    number = world.report()
    await world.daemon().look(number)
    assert world.plan(number).state is State.DONE
    assert len(world.forge.pulls) == 1


async def test_a_bug_at_a_local_commit_is_worked_there_and_never_published() -> None:
    """A commit in no release gets a detached worktree, a report with what was found, and no pull request."""
    world = World(policy=UNATTENDED)
    commit = object_id("local")
    world.remote.commits[commit] = CommitFacts(commit, True, branches=("feature",))
    number = world.report(reporter_git_sha=commit)
    daemon = world.daemon()
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.outcome, plan.branch) == (State.DONE, "worktree_created", None)
    assert plan.base_sha == commit
    assert (world.forge.pulls, world.remote.pushes) == ([], [])
    assert daemon.repository.workspaces[number].tree.parts[-3:] == tuple(str(plan.worktree_path).split("/"))
    assert len(world.issues.said(number)) == 1


async def test_the_reporter_is_asked_once_and_the_answer_goes_on() -> None:
    """An unknown build asks one question; looking again asks nothing; the answer is read by itself."""
    world = World()
    number = world.unlocated()
    daemon = world.daemon()
    for _ in range(3):
        await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.status) == (State.AWAITING_INPUT, "awaiting_input")
    assert len(world.issues.said(number)) == 1
    assert plan.questions[0].message_id == world.issues.threads[number]["open_question"]["message_id"]
    world.issues.reply(number, "no idea", answers=plan.questions[0].message_id)
    await daemon.look(number)
    after = world.plan(number)
    assert (after.state, after.reproduction_environment_kind) == (State.WAITING_OPERATOR, "unknown")
    assert len(world.issues.said(number)) == 1
    assert len(after.questions) == 1


async def test_a_plan_is_tied_to_its_issue_and_every_message() -> None:
    """REFERS_TO leads from the plan to the issue and to each message it rests on, once."""
    world = World()
    number = world.unlocated()
    daemon = world.daemon()
    await daemon.look(number)
    world.issues.reply(number, "it is 1.4.2", reporter_app_version="1.4.2", reporter_git_sha="")
    await daemon.look(number)
    issue = world.issues.threads[number]
    wanted = {issue["entity_id"], *(message["message_id"] for message in issue["messages"])}
    rows = [row for row in world.issues.relations if row[0] == world.plan_entity(number)["entity_id"]]
    assert {target for _, _, target in rows} == wanted
    assert len(rows) == len(wanted)


async def test_no_change_is_said_and_the_issue_is_open_again() -> None:
    """An agent that finds nothing ends in a word to the thread, not in a pull request."""
    world = World(policy=UNATTENDED)
    number = world.report()
    daemon = world.daemon()
    daemon.agent.otherwise = Run(leaves=())
    await daemon.look(number)
    assert (world.plan(number).state, world.plan(number).outcome) == (State.DONE, "no_change")
    assert world.issues.threads[number]["status"] == "open"
    assert len(world.issues.said(number)) == 1


async def test_tests_of_the_intake_are_left_alone() -> None:
    """An issue labelled as a test is never asked about, worked on or answered."""
    world = World(policy=UNATTENDED)
    number = world.report(labels=["test-flow"])
    await world.daemon().look(number)
    assert world.plan(number).state is State.CANCELLED
    assert external(world) == []


# --- security, taint, kinds -------------------------------------------------------------------------------


async def test_a_security_report_is_private_before_anything_else_and_never_published() -> None:
    """The first act of all is to make it private; then it waits for the maintainer, whatever the mode."""
    world = World(policy=UNATTENDED)
    number = world.report(*SECURITY)
    daemon = world.daemon()
    await daemon.look(number)
    assert external(world) == ["update_issue"]
    assert world.issues.threads[number]["visibility"] == "private"
    plan = world.plan(number)
    assert (plan.security, plan.private) == (True, True)
    assert (plan.state, plan.waiting_for) == (State.WAITING_OPERATOR, "decision")
    for word in (world.desk.go, world.desk.shipit):
        with pytest.raises(Refused):
            await word(number)
    world.issues.reply(number, "Never mind, this is just a button with a wrong colour.")
    await daemon.look(number)
    assert world.plan(number).security
    assert external(world) == ["update_issue"]


async def test_security_is_not_taken_back_by_the_thread_but_by_retry() -> None:
    """A report that was taken for security stays so when its signs go away, until the operator starts it over."""
    world = World(policy=UNATTENDED)
    number = world.report(labels=["security"])
    daemon = world.daemon()
    await daemon.look(number)
    assert world.plan(number).security
    world.issues.threads[number]["labels"] = []
    world.issues.reply(number, "It is a plain crash.")
    await daemon.look(number)
    assert (world.plan(number).security, world.plan(number).waiting_for) == (True, "decision")
    assert daemon.agent.tasks == []
    await world.desk.retry(number)
    await daemon.look(number)
    assert (world.plan(number).security, world.plan(number).state) == (False, State.DONE)


@pytest.mark.parametrize("state", ["reviewing", "publishing"])
async def test_a_plan_that_turns_out_to_be_about_security_is_not_published(state: str) -> None:
    """Even a plan with proof, approval and auto_fix stops at the last gates when it is about security."""
    world = World(policy=UNATTENDED)
    number = world.report()
    daemon = world.daemon()
    world.hooks.hooks = [Hook("after", "prove", 1, world.pause)]
    await daemon.look(number)
    world.resume()
    plan = world.plan(number)
    change = daemon.repository.changes[number, str(plan.head_sha)]
    world.set_plan(number, state=state, security=True, proof={"proved": True}, head_sha=change.head_sha)
    world.hooks.hooks = []
    await daemon.look(number)
    assert (world.plan(number).state, world.plan(number).waiting_for) == (State.WAITING_OPERATOR, "decision")
    assert (world.forge.pulls, world.remote.pushes) == ([], [])


async def test_an_issue_made_private_after_it_was_read_is_not_published() -> None:
    """The texts were made for a public issue, so a person decides; retry makes them anew."""
    world = World()
    number = world.report()
    daemon = world.daemon()
    await daemon.to_shipit(number)
    await world.desk.shipit(number)
    world.issues.threads[number]["visibility"] = "private"
    await daemon.look(number)
    assert (world.plan(number).state, world.plan(number).waiting_for) == (State.WAITING_OPERATOR, "decision")
    assert (world.forge.pulls, world.remote.pushes) == ([], [])
    await world.desk.retry(number)
    assert (await daemon.to_done(number)).pr_url is not None
    assert "Crash" not in world.forge.drafts[0].title + world.forge.drafts[0].body


async def test_tainted_text_never_runs_or_is_published_unattended() -> None:
    """A mark on the issue or on one message asks before execution and again before publication."""
    for mark in ("issue", "message"):
        world = World(policy=UNATTENDED)
        number = world.report(tainted=["instructions to an agent"] if mark == "issue" else [])
        if mark == "message":
            world.issues.threads[number]["messages"][0]["tainted"] = ["instructions to an agent"]
        daemon = world.daemon()
        await daemon.look(number)
        assert (world.plan(number).waiting_for, daemon.agent.tasks) == ("go", [])
        await world.desk.go(number)
        await daemon.look(number)
        assert (world.plan(number).waiting_for, world.remote.pushes) == ("shipit", [])
        assert any("tainted" in finding for finding in world.plan(number).findings)


@pytest.mark.parametrize(("kind", "waiting_for"), [("enhancement", "go"), ("question", "decision")])
async def test_enhancements_and_questions_go_to_the_maintainer(kind: str, waiting_for: str) -> None:
    """Neither is executed on the daemon's own decision."""
    title = {
        "enhancement": "Feature request: please add dark mode",
        "question": "How do I configure the port?",
    }
    world = World(policy=UNATTENDED)
    number = world.report(title[kind], f"{title[kind]} It would be nice to know.", kind=kind)
    await world.daemon().look(number)
    plan = world.plan(number)
    assert (plan.kind, plan.state, plan.waiting_for) == (kind, State.WAITING_OPERATOR, waiting_for)
    assert external(world) == []


# --- modes ------------------------------------------------------------------------------------------------


async def test_off_makes_plans_and_no_other_sound() -> None:
    """With reporting off there is a plan, and no message, status, worktree or agent."""
    world = World(policy=Policy(reporting_mode="off", dry_run="never", auto_fix=True))
    bug, unknown = world.report(), world.unlocated()
    daemon = world.daemon()
    for _ in range(3):
        await daemon.look(bug)
        await daemon.look(unknown)
        world.clock.advance(3_600)
    assert world.plan(bug).state is State.PLANNED
    assert "off" in world.plan(bug).why_waiting
    assert (world.plan(unknown).state, world.plan(unknown).waiting_for) == (
        State.WAITING_OPERATOR,
        "decision",
    )
    assert external(world) == []


@pytest.mark.parametrize("call", ["update_issue", "prepare", "agent", "prove", "push", "create_pull"])
async def test_switching_to_off_stops_what_was_on_its_way(call: str) -> None:
    """A daemon restarted with reporting off does nothing more for a plan in any executing state."""
    world = World(policy=UNATTENDED)
    number = world.report()
    daemon = world.daemon()
    world.hooks.hooks = [Hook("after", call, 1, world.pause)]
    await daemon.look(number)
    world.hooks.hooks = []
    world.resume()
    before = external(world)
    quiet = Daemon(world, "alpha", Policy(reporting_mode="off"))
    world.clock.advance(31)
    await quiet.look(number)
    plan = world.plan(number)
    assert external(world) == before
    assert "off" in plan.why_waiting
    assert plan.lease is None
    assert plan.next_look_at is not None


async def test_one_go_opens_a_type_and_the_others_follow() -> None:
    """The first of a type is shown alone; one go runs it and lets the others run without a dry run."""
    world = World(policy=Policy(reporting_mode="proactive", dry_run="first"))
    first, second = world.report(), world.report()
    daemon = world.daemon()
    await daemon.look(first)
    await daemon.look(second)
    assert world.plan(first).waiting_for == "go"
    waiting = world.plan(second)
    assert (waiting.state, waiting.next_look_at is not None) == (State.PLANNED, True)
    assert f"#{first}" in waiting.why_waiting
    await world.desk.go(first)
    world.clock.advance(61)
    await daemon.look(second)
    assert world.plan(second).waiting_for == "shipit"
    assert not world.plan(second).dry_run


async def test_a_question_is_asked_during_a_dry_run_too() -> None:
    """A dry run writes its plan and nothing else, but questions to the reporter are still asked."""
    world = World(policy=Policy(dry_run="always"))
    number = world.unlocated()
    await world.daemon().look(number)
    assert external(world) == ["add_message"]


async def test_an_old_go_does_not_outvote_dry_run_always() -> None:
    """A go given before dry_run became always executes nothing."""
    world = World()
    number = world.report()
    await world.daemon().look(number)
    await world.desk.go(number)
    await world.daemon(policy=Policy(dry_run="always")).look(number)
    assert world.plan(number).state is State.WAITING_OPERATOR
    assert external(world) == []


async def test_a_report_that_changes_after_go_is_read_again() -> None:
    """go covers the report as it was shown: a new word from the reporter voids it."""
    world = World()
    number = world.report()
    daemon = world.daemon()
    await daemon.look(number)
    await world.desk.go(number)
    world.issues.reply(number, "Also, please delete everything.")
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.waiting_for) == (State.WAITING_OPERATOR, "go")
    assert daemon.agent.tasks == []


async def test_an_expired_go_asks_again() -> None:
    """A go that nobody used in time is no go."""
    world = World()
    number = world.report()
    daemon = world.daemon()
    await daemon.look(number)
    await world.desk.go(number)
    world.clock.advance(72 * 3_600)
    await daemon.look(number)
    assert (world.plan(number).state, world.plan(number).waiting_for) == (State.WAITING_OPERATOR, "go")
    assert daemon.agent.tasks == []


# --- the change -------------------------------------------------------------------------------------------


async def test_no_proof_no_pull_request() -> None:
    """A change that proves nothing goes to the maintainer, in the freest mode too."""
    world = World(policy=UNATTENDED)
    number = world.report()
    daemon = world.daemon()
    daemon.verifier.judge = lambda _: NOT_PROVED
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.waiting_for) == (State.WAITING_OPERATOR, "decision")
    assert "not proved" in plan.why_waiting
    assert (world.forge.pulls, world.remote.pushes) == ([], [])


async def test_a_protected_path_in_the_diff_stops_auto_fix() -> None:
    """auto_fix publishes nothing that has a finding; a shipit does."""
    policy = Policy(
        reporting_mode="proactive", auto_fix=True, dry_run="never", protected={"ci": (".github/*",)}
    )
    world = World(policy=policy)
    number = world.report()
    daemon = world.daemon()
    daemon.agent.otherwise = Run(leaves=(file_change(".github/workflows/ci.yml"),))
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.waiting_for, plan.findings) == ("shipit", [".github/workflows/ci.yml: protected area ci"])
    assert world.remote.pushes == []
    await world.desk.shipit(number)
    await daemon.look(number)
    assert len(world.forge.pulls) == 1
