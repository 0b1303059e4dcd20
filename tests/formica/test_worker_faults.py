"""Faults at every call of every effect: crashes, lost replies, silence, the kill switch, another daemon.

Each story is the same: a report without a usable build, a question, its answer, go, shipit, a merge, a
verification. Whatever happens on the way, it ends the same: one question, one pull request, one report.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from formica.errors import FormicaError, Retryable
from formica.ports import CommitFacts
from formica.rules.pipeline import END, State
from formica.rules.policy import Policy
from tests.fakes.hooks import Crash, Hook
from tests.fakes.world import Daemon, World

CALLS = 190
"""A story without faults makes a few calls less."""
ROUNDS = 60
SEEDS = 120
PARTS = 4
RELEASED = "a" * 40
"""The commit the reporter answers with: it is in release v1.4.2."""


async def surviving(daemon: Daemon, number: int) -> None:
    """One tick of a daemon: a look at the issue and at its pull request. A crash ends in a restart."""
    try:
        await daemon.look(number)
        await daemon.watch(number)
    except FormicaError:
        return
    except BaseException as fault:
        if not is_crash(fault):
            raise
        daemon.restart()
    except LookupError:
        return


def is_crash(fault: BaseException) -> bool:
    if isinstance(fault, BaseExceptionGroup):
        return all(is_crash(inner) for inner in fault.exceptions)
    return isinstance(fault, (Crash, LookupError))


async def people(world: World, number: int) -> None:
    """What operator and reporter do when it is their turn."""
    plan = world.plan(number)
    issue = world.issues.threads[number]
    if issue["open_question"] is not None:
        world.issues.reply(number, "It is 1.4.2", reporter_git_sha=RELEASED)
    if plan.state is State.WAITING_OPERATOR and plan.waiting_for == "go":
        await world.desk.go(number)
    if plan.state is State.WAITING_OPERATOR and plan.waiting_for == "shipit":
        await world.desk.shipit(number)
    if plan.state is State.DONE and world.forge.pulls and world.forge.pulls[0].state == "open":
        world.forge.merge(1)


async def story(world: World, turn: Callable[[int], Daemon]) -> int:
    """Tell the story to its end; the issue's number."""
    number = world.unlocated()
    facts = CommitFacts(RELEASED, True, on_default_branch=True, release_tags=("v1.4.2",))
    world.remote.commits[RELEASED] = facts
    for round in range(ROUNDS):
        await surviving(turn(round), number)
        hooks, world.hooks.hooks = world.hooks.hooks, []  # people are not interrupted
        if world.issues.by_key("daemon_config", "default")["fields"]["active"] is False:  # type: ignore[index]
            world.resume()
        try:
            plan = world.plan(number)
        except LookupError:
            pass
        else:
            await people(world, number)
            if plan.state in END and plan.pr_state == "merged":
                break
        world.hooks.hooks = hooks
        world.clock.advance(31.0 + 60.0 * round)
    return number


def told(world: World, number: int) -> list[str]:
    """The steps that put a message into the thread, in order."""
    return [step for (issue, step) in world.issues.steps if issue == number]


def check_ending(world: World, number: int) -> None:
    """The one ending."""
    plan = world.plan(number)
    assert (plan.state, plan.outcome, plan.pr_state) == (State.DONE, "pr_opened", "merged")
    assert len(world.forge.pulls) == 1
    assert [branch for branch, _ in world.remote.pushes] == [f"formica/issue-{number}"]
    assert world.forge.pulls[0].head_sha == plan.head_sha
    assert told(world, number) == ["question-0-reporter_app_version-reporter_git_sha", "report-0", "merged-0"]
    assert len(world.issues.said(number)) == 3
    assert world.issues.threads[number]["status"] == "resolved"
    assert all(approval.used for approval in plan.approvals[-1:])
    assert plan.lease is None


def fault(world: World, kind: str, when: str, number: int) -> Hook:
    """A fault at call ``number``."""

    def crash() -> None:
        raise Crash(f"{when} call {number}")

    def silence() -> None:
        raise Retryable("the other side did not answer")

    acts = {"crash": crash, "silence": silence, "pause": world.pause}
    return Hook("before" if when == "before" else "after", "*", number, acts[kind])


async def test_the_story_ends_well_without_faults() -> None:
    """Without faults the story takes the calls that the fault tests count on."""
    world = World()
    daemon = world.daemon()
    number = await story(world, lambda _: daemon)
    check_ending(world, number)
    assert CALLS * 0.7 < len(world.hooks.calls) < CALLS
    assert len(daemon.agent.tasks) == 1


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("kind", "when"), [("crash", "before"), ("crash", "after"), ("silence", "after"), ("pause", "before")]
)
async def test_a_fault_at_any_call_changes_nothing_for_people(kind: str, when: str, part: int) -> None:
    """A crash, a lost reply or a pause around any single call ends in one question, one PR, one report."""
    for number in range(1 + part, CALLS, PARTS):
        world = World()
        daemon = world.daemon()
        world.hooks.hooks = [fault(world, kind, when, number)]
        check_ending(world, await story(world, lambda _, daemon=daemon: daemon))  # type: ignore[misc]


@pytest.mark.parametrize("part", range(PARTS))
async def test_another_daemon_finishes_what_a_dead_one_began(part: int) -> None:
    """A daemon that dies at any call and never comes back is replaced by one on another host."""
    for number in range(1 + part, CALLS, PARTS):
        world = World()
        first, second = world.daemon("alpha"), world.daemon("beta")
        dead: list[int] = []
        world.hooks.hooks = [Hook("after", "*", number, lambda dead=dead: die(dead))]  # type: ignore[misc]
        issue = await story(world, lambda _, a=first, b=second, dead=dead: b if dead else a)  # type: ignore[misc]
        check_ending(world, issue)


def die(dead: list[int]) -> None:
    dead.append(1)
    raise Crash("dead for good")


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_many_faults_and_two_daemons_end_the_same(seed: int) -> None:
    """Several faults of all kinds, with two daemons taking turns at random, end in one PR, question and report."""
    dice = random.Random(seed)
    world = World(policy=Policy(minutes_per_item=10_000.0, minutes_per_day=100_000.0, failures_per_hour=99))
    daemons = [world.daemon("alpha"), world.daemon("beta")]
    world.hooks.hooks = [
        fault(
            world,
            dice.choice(["crash", "crash", "silence", "pause"]),
            dice.choice(["before", "after"]),
            dice.randrange(1, CALLS * 2),
        )
        for _ in range(dice.randrange(1, 7))
    ]
    check_ending(world, await story(world, lambda _: dice.choice(daemons)))
