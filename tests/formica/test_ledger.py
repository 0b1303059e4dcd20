"""Budgets and the breaker on the server: reserved by compare-and-swap before anything is spent."""

from __future__ import annotations

import random

import anyio
import pytest

from formica.errors import Retryable
from formica.rules.policy import Budget, Policy
from formica.worker.ledger import Ledger
from tests.fakes.hooks import Hook
from tests.fakes.world import World

HOUR = 3_600.0


def ledger(world: World) -> Ledger:
    """One daemon's; several share the entities."""
    return Ledger(world.issues, world.clock, world.policy, world.name)


async def test_reserving_twice_is_once() -> None:
    """The same round of the same issue counts once, a new round counts again."""
    world = World(policy=Policy(max_prs_per_hour=2))
    book = ledger(world)
    for _ in range(3):
        assert (await book.reserve_pull_request(1, 0, world.forge)).allowed
    assert (await book.reserve_pull_request(1, 1, world.forge)).allowed
    assert not (await book.reserve_pull_request(2, 0, world.forge)).allowed
    assert len(world.issues.by_key("publish_budget", "formica")["fields"]["pull_requests"]) == 2  # type: ignore[index]


async def test_the_hour_rolls() -> None:
    """What was reserved more than an hour ago frees its place, and counts anew when it is used after all."""
    world = World(policy=Policy(max_prs_per_hour=1))
    book = ledger(world)
    await book.reserve_pull_request(1, 0, world.forge)
    refused = await book.reserve_pull_request(2, 0, world.forge)
    assert refused.next_look_at == pytest.approx(world.clock.now() + HOUR)
    world.clock.advance(HOUR)
    assert (await book.reserve_pull_request(1, 0, world.forge)).allowed
    assert not (await book.reserve_pull_request(2, 0, world.forge)).allowed


async def test_a_place_is_given_back_only_for_its_own_round() -> None:
    """Giving back frees exactly that reservation."""
    world = World(policy=Policy(max_prs_per_hour=2))
    book = ledger(world)
    await book.reserve_pull_request(1, 0, world.forge)
    await book.reserve_pull_request(2, 0, world.forge)
    await book.give_back_pull_request(1, 1)
    assert not (await book.reserve_pull_request(3, 0, world.forge)).allowed
    await book.give_back_pull_request(1, 0)
    assert (await book.reserve_pull_request(3, 0, world.forge)).allowed


async def test_an_unreadable_count_is_no_yes() -> None:
    """When the forge cannot say how many are open, nothing is reserved."""
    world = World()
    world.forge.countable = False
    with pytest.raises(Retryable):
        await ledger(world).reserve_pull_request(1, 0, world.forge)
    budget = world.issues.by_key("publish_budget", "formica")
    assert budget is None or not budget["fields"].get("pull_requests")


@pytest.mark.parametrize("seed", range(40))
async def test_daemons_that_reserve_at_once_stay_within_both_limits(seed: int) -> None:
    """Whatever the order, the hourly and the open limit hold, and a crash in between frees nothing."""
    dice = random.Random(seed)
    world = World(policy=Policy(max_prs_per_hour=4, max_open_prs=3))
    answers: list[Budget] = []
    lost = [Hook("after", "patch_entity", dice.randrange(1, 12), no_answer) for _ in range(2)]
    world.hooks.hooks = lost if seed % 2 else []

    async def publish(number: int) -> None:
        book = ledger(world)
        for _ in range(dice.randrange(6)):
            await anyio.lowlevel.checkpoint()
        try:
            answer = await book.reserve_pull_request(number, 0, world.forge)
        except Retryable:
            return
        if answer.allowed:
            for _ in range(dice.randrange(6)):
                await anyio.lowlevel.checkpoint()
            world.forge.foreign_open += 1
            answers.append(answer)
            try:
                await book.settle_pull_request(number, 0)
            except Retryable:
                return

    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(publish, number)
    assert len(answers) <= 3
    assert answers or seed % 2


def no_answer() -> None:
    raise Retryable("no answer")


async def test_a_run_is_reserved_at_its_cap_and_settled_to_what_it_took() -> None:
    """Before a run its caps are spent; afterwards its minutes are, and an unknown cost stays at the cap."""
    world = World(policy=Policy(minutes_per_item=60.0, cost_per_run=3.0, cost_per_day=6.0))
    book = ledger(world)
    assert (await book.reserve_run(1, "a")).allowed
    assert (await book.reserve_run(1, "b")).allowed
    assert not (await book.reserve_run(1, "c")).allowed
    await book.settle_run("a", 1.0, None)
    runs = world.issues.by_key("publish_budget", "formica")["fields"]["runs"]  # type: ignore[index]
    assert [(run["id"], run["minutes"], run["cost"]) for run in runs] == [("a", 1.0, 3.0), ("b", 30.0, 3.0)]
    refused = await book.reserve_run(2, "d")
    assert not refused.allowed
    assert "cost_per_day" in refused.why
    await book.settle_run("b", 1.0, 0.5)
    assert (await book.reserve_run(2, "d")).allowed is False
    await book.settle_run("a", 1.0, 0.5)
    assert (await book.reserve_run(2, "d")).allowed


async def test_runs_reserved_at_once_stay_within_the_day() -> None:
    """Of many that start in the same instant only as many start as there is room for."""
    world = World(policy=Policy(minutes_per_day=60.0))
    answers: list[bool] = []

    async def start(number: int) -> None:
        answers.append((await ledger(world).reserve_run(number, str(number))).allowed)

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(start, number)
    assert sorted(answers) == [False, False, True, True]


async def test_the_breaker_opens_at_the_limit_and_stays_until_resume() -> None:
    """Enough failures within an hour open it; time does not close it, the operator does."""
    world = World(policy=Policy(failures_per_hour=3))
    book = ledger(world)
    for _ in range(2):
        await book.record_failure(1)
    world.clock.advance(HOUR + 1)
    for _ in range(2):
        await book.record_failure(2)
    assert not await book.breaker_open()
    await book.record_failure(3)
    assert await book.breaker_open()
    world.clock.advance(24 * HOUR)
    assert await book.breaker_open()
    await world.desk.set_active(True)
    assert not await book.breaker_open()
