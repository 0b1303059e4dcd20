"""Limits over fakes: faults, attempts, breakers, budgets, and the exactness of a shipit."""

from __future__ import annotations

from typing import Any

import pytest

from formica.errors import Broken, NeedsOperator, Refused, Retryable
from formica.rules.pipeline import State
from formica.rules.plan import seconds
from formica.rules.policy import Policy
from tests.fakes.agent import Run
from tests.fakes.hooks import Hook
from tests.fakes.repository import file_change
from tests.fakes.world import Daemon, World

UNATTENDED = Policy(reporting_mode="proactive", auto_fix=True, dry_run="never")
HOUR = 3_600.0


def is_unpublished(world: World) -> bool:
    return (world.forge.pulls, world.remote.pushes) == ([], [])


# --- faults of effects ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (Refused("a rule"), State.REFUSED),
        (Broken("a bug"), State.FAILED),
        (NeedsOperator("repair it"), State.FAILED),
        (Retryable("later", after_seconds=90), State.BACKING_OFF),
    ],
)
async def test_every_fault_of_an_effect_ends_in_its_state_with_a_reason(
    fault: Exception, state: State
) -> None:
    """A rule refuses, a bug parks, a person is asked for, a passing fault waits; all say why."""

    def fail() -> None:
        raise fault

    world = World(policy=UNATTENDED)
    number = world.report()
    world.hooks.hooks = [Hook("before", "prepare", 1, fail)]
    await world.daemon().look(number)
    plan = world.plan(number)
    assert (plan.state, plan.why_waiting, plan.lease) == (state, str(fault), None)
    assert plan.decision_required == (state is not State.BACKING_OFF)
    if state is State.BACKING_OFF:
        assert seconds(str(plan.next_look_at)) == world.clock.now() + 90


async def test_a_fault_that_stays_parks_the_item_with_growing_waits() -> None:
    """Passing faults wait longer each time, cost no attempt, and end at a limit."""

    def fail() -> None:
        raise Retryable("no network")

    world = World(policy=UNATTENDED)
    number = world.report()
    daemon = world.daemon()
    world.hooks.hooks = [Hook("before", "refresh", call, fail) for call in range(1, 60)]
    waits = []
    for _ in range(60):
        await daemon.look(number)
        plan = world.plan(number)
        if plan.state is not State.BACKING_OFF:
            break
        waits.append(seconds(str(plan.next_look_at)) - world.clock.now())
        world.clock.advance(waits[-1])
    assert (plan.state, plan.attempt) == (State.FAILED, 0)
    assert waits == sorted(waits)
    assert len(waits) < 25
    assert "no network" in plan.why_waiting


# --- attempts and breakers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "run",
    [
        Run(exit_code=1),
        Run(exit_code=None, reason="timeout"),
        Run(exit_code=None, reason="stalled"),
        Run(exit_code=None, reason="unstartable"),
    ],
    ids=["exit", "timeout", "stalled", "unstartable"],
)
async def test_an_agent_that_always_fails_is_tried_three_times(run: Run) -> None:
    """Three attempts with growing delays, then the item is parked with its reason, and stays parked."""
    world = World(policy=UNATTENDED)
    number = world.report()
    daemon = world.daemon()
    daemon.agent.otherwise = run
    waits = []
    for _ in range(10):
        await daemon.look(number)
        plan = world.plan(number)
        if plan.state is State.BACKING_OFF:
            assert not world.remote.pushes
            waits.append(seconds(str(plan.next_look_at)) - world.clock.now())
            await daemon.look(number)
            world.clock.advance(waits[-1])
        else:
            world.clock.advance(HOUR)
    assert len(daemon.agent.tasks) == 3
    assert waits == [30.0, 120.0]
    assert (plan.state, plan.attempt, plan.decision_required) == (State.FAILED, 3, True)
    assert "failed 3 times" in plan.why_waiting
    assert [found.issue_number for found in await world.desk.inbox()] == [number]


async def test_retry_gives_a_parked_item_a_new_round() -> None:
    """After retry the item starts over with all its attempts, and nothing of the old approvals."""
    world = World()
    number = world.report()
    daemon = world.daemon()
    daemon.agent.script = [Run(exit_code=1)] * 3
    await daemon.look(number)
    await world.desk.go(number)
    for _ in range(4):
        await daemon.look(number)
        world.clock.advance(600)
    assert world.plan(number).state is State.FAILED
    await world.desk.retry(number)
    plan = await daemon.to_done(number)
    assert (plan.state, plan.round, plan.branch) == (State.DONE, 1, f"formica/issue-{number}")
    assert world.remote.pushes[0][0] == f"formica/issue-{number}-2"


async def test_the_global_breaker_stops_all_agents_until_resume() -> None:
    """Enough failures of any items hold every further run back, in claimed and in working plans alike."""
    world = World(
        policy=Policy(reporting_mode="proactive", dry_run="never", failures_per_hour=3, failures_per_item=9)
    )
    daemon = world.daemon()
    daemon.agent.otherwise = Run(exit_code=1)
    failing = [world.report() for _ in range(3)]
    for number in failing:
        await daemon.look(number)
    assert len(daemon.agent.tasks) == 3
    late = world.report()
    for _ in range(3):
        for number in [*failing, late]:
            await daemon.look(number)
        world.clock.advance(2 * HOUR)
    assert len(daemon.agent.tasks) == 3
    for number in [*failing, late]:
        assert "breaker" in world.plan(number).why_waiting
        assert world.plan(number).next_look_at is not None
    daemon.agent.otherwise = Run()
    await world.desk.set_active(True)
    world.clock.advance(301)
    await daemon.look(late)
    assert world.plan(late).waiting_for == "shipit"


async def test_runs_without_an_end_are_limited_too() -> None:
    """A run that is interrupted again and again is not started for ever."""
    policy = Policy(reporting_mode="proactive", dry_run="never", starts_per_item=3, minutes_per_item=9_999.0)
    world = World(policy=policy)
    number = world.report()
    daemon = world.daemon()
    world.hooks.hooks = [Hook("after", "agent", call, world.pause) for call in range(1, 9)]
    for _ in range(9):
        await daemon.look(number)
        world.resume()
    plan = world.plan(number)
    assert (len(daemon.agent.tasks), plan.state) == (3, State.FAILED)
    assert "started 3 times" in plan.why_waiting


async def test_a_run_over_the_items_minutes_parks_and_over_the_days_waits() -> None:
    """The item's limit needs a person, the day's limit needs another hour; neither starts an agent."""
    for limit, state in (
        ({"minutes_per_item": 20.0}, State.FAILED),
        ({"minutes_per_day": 20.0}, State.WORKING),
    ):
        given: dict[str, Any] = limit
        world = World(policy=Policy(reporting_mode="proactive", dry_run="never", **given))
        number = world.report()
        daemon = world.daemon()
        await daemon.look(number)
        plan = world.plan(number)
        assert (plan.state, daemon.agent.tasks, plan.lease) == (state, [], None)
        assert next(iter(limit)) in plan.why_waiting
        assert (plan.next_look_at is None) == (state is State.FAILED)


# --- publishing -------------------------------------------------------------------------------------------


async def test_the_hourly_limit_waits_with_a_time_and_then_publishes() -> None:
    """Over the hourly limit a plan waits, says until when, rests till then, and goes on by itself."""
    world = World(
        policy=Policy(reporting_mode="proactive", auto_fix=True, dry_run="never", max_prs_per_hour=1)
    )
    daemon = world.daemon()
    first, second = world.report(), world.report()
    await daemon.look(first)
    world.clock.advance(600)
    await daemon.look(second)
    plan = world.plan(second)
    assert (plan.state, plan.lease) == (State.PUBLISHING, None)
    assert "max_prs_per_hour" in plan.why_waiting
    assert seconds(str(plan.next_look_at)) == pytest.approx(world.clock.now() + HOUR - 600)
    made = len(world.hooks.writes())
    await daemon.look(second)
    assert len(world.hooks.writes()) == made
    world.clock.advance(HOUR - 600)
    await daemon.look(second)
    assert (world.plan(second).state, len(world.forge.pulls)) == (State.DONE, 2)


async def test_at_the_open_limit_or_without_a_count_nothing_is_pushed() -> None:
    """Ten open ones, or a forge that cannot count, keep the change at home."""
    for countable in (True, False):
        world = World(policy=UNATTENDED)
        world.forge.foreign_open, world.forge.countable = 10, countable
        number = world.report()
        await world.daemon().look(number)
        assert is_unpublished(world)
        assert world.plan(number).next_look_at is not None
        assert world.plan(number).why_waiting


async def approved(world: World) -> tuple[Daemon, int]:
    """A plan with a fresh shipit that nobody has looked at yet."""
    number = world.report()
    daemon = world.daemon()
    await daemon.to_shipit(number)
    await world.desk.shipit(number)
    return daemon, number


@pytest.mark.parametrize("change", ["head", "diff", "plan", "used", "target", "time"])
async def test_a_shipit_publishes_nothing_but_what_it_approved(change: str) -> None:
    """Another head, diff, plan or target, a used or expired word: nothing is pushed, and it is asked again."""
    world = World()
    daemon, number = await approved(world)
    plan = world.plan(number)
    if change == "head":
        other = daemon.repository.changes[number, str(plan.head_sha)]
        fresh = await daemon.repository.collect(daemon.repository.workspaces[number], message="another")
        assert fresh.head_sha != other.head_sha
        world.set_plan(number, head_sha=fresh.head_sha)
    elif change == "diff":
        daemon.repository.trees[daemon.repository.workspaces[number].tree] = (file_change("src/evil.py"),)
        fresh = await daemon.repository.collect(daemon.repository.workspaces[number], message="x")
        world.set_plan(number, head_sha=fresh.head_sha, diff_hash=fresh.diff_hash)
    elif change == "plan":
        world.set_plan(number, would_do=["something else"])
    elif change == "used":
        world.set_plan(number, approvals=[entry.model_dump() | {"used": True} for entry in plan.approvals])
    elif change == "target":
        world.forge.target = "fake:elsewhere"
    else:
        world.clock.advance(72 * HOUR)
    await daemon.look(number)
    after = world.plan(number)
    assert is_unpublished(world)
    assert (after.state, after.waiting_for) == (State.WAITING_OPERATOR, "shipit")
    await world.desk.shipit(number)
    await daemon.look(number)
    assert len(world.forge.pulls) == 1


async def test_a_change_that_differs_from_the_plan_is_made_anew() -> None:
    """When the stored change is not the one the plan speaks of, it is never published."""
    world = World()
    daemon, number = await approved(world)
    world.set_plan(number, diff_hash="0" * 64)
    daemon.agent.otherwise = Run(leaves=(file_change("src/other.py"),))
    await daemon.look(number)
    assert is_unpublished(world)
    assert (len(daemon.agent.tasks), world.plan(number).waiting_for) == (2, "shipit")


async def test_auto_fix_that_is_switched_off_publishes_nothing_begun() -> None:
    """What auto_fix had begun to publish needs a shipit once auto_fix is off."""
    world = World(policy=UNATTENDED)
    number = world.report()
    daemon = world.daemon()
    world.hooks.hooks = [Hook("after", "open_count", 1, world.pause)]
    await daemon.look(number)
    world.hooks.hooks = []
    world.resume()
    assert is_unpublished(world)
    daemon.policy = Policy(reporting_mode="proactive", dry_run="never")
    daemon.restart()
    await daemon.look(number)
    assert is_unpublished(world)
    assert world.plan(number).waiting_for == "shipit"


async def test_a_finding_stops_auto_fix_at_the_last_gate_too() -> None:
    """A diff that auto_fix may not publish is not published by a plan that got past the review."""
    policy = Policy(
        reporting_mode="proactive", auto_fix=True, dry_run="never", protected={"ci": (".github/*",)}
    )
    world = World(policy=policy)
    number = world.report()
    daemon = world.daemon()
    daemon.agent.otherwise = Run(leaves=(file_change(".github/workflows/ci.yml"),))
    await daemon.look(number)
    world.set_plan(number, state="publishing", waiting_for=None, findings=[])
    await daemon.look(number)
    assert is_unpublished(world)
    assert world.plan(number).waiting_for == "shipit"


async def test_a_foreign_commit_on_our_branch_is_left_alone() -> None:
    """Somebody else's commit is never forced over; a person is asked, and the reservation is given back."""
    world = World(policy=UNATTENDED)
    number = world.report()
    world.remote.branches[f"formica/issue-{number}"] = "f" * 40
    await world.daemon().look(number)
    plan = world.plan(number)
    assert (plan.state, plan.waiting_for) == (State.WAITING_OPERATOR, "decision")
    assert is_unpublished(world)
    assert world.issues.by_key("publish_budget", "formica")["fields"]["pull_requests"] == []  # type: ignore[index]


async def test_a_credential_in_our_own_words_is_not_published() -> None:
    """A title that holds a credential loses it before it is stored, so nothing made of it can carry it out."""
    world = World(policy=UNATTENDED)
    token = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
    number = world.report(f"Crash with token {token}")
    await world.daemon().look(number)
    assert world.plan(number).state is State.DONE
    assert token not in repr(world.forge) + repr(world.plan(number))
    assert "Crash with token" in world.plan(number).summary


async def test_a_thread_that_refuses_the_report_does_not_undo_the_work() -> None:
    """When the server will not take the report, the pull request stays the outcome and says what is missing."""
    world = World(policy=UNATTENDED)
    number = world.report()
    world.issues.refused.add("add_message")
    daemon = world.daemon()
    await daemon.look(number)
    plan = world.plan(number)
    assert (plan.state, plan.outcome) == (State.DONE, "pr_opened")
    assert "not told" in plan.why_waiting
