"""A plan that is held: compare-and-swap under a lease, fenced by the generation."""

from __future__ import annotations

import anyio
import pytest

from formica.errors import LeaseLost, Retryable
from formica.rules.pipeline import State
from formica.rules.plan import moved, seconds
from formica.worker.held import HeldPlan
from tests.fakes.hooks import Hook
from tests.fakes.world import World

LEASE_SECONDS = 30.0


def planned(world: World) -> int:
    """A report with a plan that nobody holds."""
    number = world.report()
    entity_id = world.issues.threads[number]["entity_id"]
    fields = {"issue_entity_id": entity_id, "issue_number": number, "name": world.name, "state": "working"}
    world.issues.put("plan", f"{entity_id}:{world.name}", fields)
    return number


def held_by(world: World, number: int, owner: str, lease_seconds: float = LEASE_SECONDS) -> HeldPlan:
    return HeldPlan(
        world.issues,
        world.clock,
        world.plan_entity(number),
        owner=owner,
        lease_id=world.new_id(),
        lease_seconds=lease_seconds,
    )


async def test_taking_writes_owner_lease_and_a_new_generation() -> None:
    """One write takes the plan, for the length of a lease in server time."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    assert await held.take()
    plan = world.plan(number)
    assert (plan.owner, plan.generation) == ("one", 1)
    assert plan.lease is not None
    assert seconds(plan.lease.expires_at) == world.clock.now() + LEASE_SECONDS
    assert len([call for call in world.hooks.calls if call.kind == "patch_entity"]) == 1


async def test_of_two_that_take_at_once_one_gets_it() -> None:
    """Two daemons that read the same plan cannot both take it."""
    world = World()
    number = planned(world)
    first, second = held_by(world, number, "one"), held_by(world, number, "two")
    taken: list[bool] = []

    async def take(held: HeldPlan) -> None:
        taken.append(await held.take())

    async with anyio.create_task_group() as group:
        group.start_soon(take, first)
        group.start_soon(take, second)
    assert sorted(taken) == [False, True]
    assert world.plan(number).generation == 1


async def test_a_late_write_of_an_old_owner_never_lands() -> None:
    """Once another took the plan over, the old owner's write raises and changes nothing."""
    world = World()
    number = planned(world)
    old = held_by(world, number, "one")
    await old.take()
    world.clock.advance(LEASE_SECONDS)
    new = held_by(world, number, "two")
    assert await new.take()
    before = world.plan_entity(number)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await old.write(moved(State.FAILED, why_waiting="late"))
    assert world.plan_entity(number) == before
    with pytest.raises(LeaseLost):
        old.ensure_held()
    await new.write({"why_waiting": "mine"})
    assert world.plan(number).why_waiting == "mine"


async def test_a_later_lease_of_the_same_owner_fences_too() -> None:
    """A run of before a restart cannot write into the run of after it."""
    world = World()
    number = planned(world)
    before = held_by(world, number, "one")
    await before.take()
    after = held_by(world, number, "one")
    assert await after.take()
    with pytest.raises(LeaseLost):
        await before.write({"why_waiting": "late"})
    assert world.plan(number).generation == 2


async def test_a_write_renews_the_lease() -> None:
    """Every write under the lease moves its end."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    await held.take()
    world.clock.advance(20)
    await held.write({"attempt": 1})
    lease = world.plan(number).lease
    assert lease is not None
    assert seconds(lease.expires_at) == world.clock.now() + LEASE_SECONDS


async def test_a_lease_that_ran_out_allows_no_effect() -> None:
    """A worker that slept past its lease may still find out by a write whose plan it is, but may do nothing."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    await held.take()
    world.clock.advance(LEASE_SECONDS)
    with pytest.raises(LeaseLost, match="ran out"):
        held.ensure_held()
    held.ensure_not_lost()
    await held.write({"attempt": 1})
    held.ensure_held()


@pytest.mark.parametrize(
    "stop", [State.WAITING_OPERATOR, State.AWAITING_INPUT, State.BACKING_OFF, State.DONE]
)
async def test_a_lease_that_was_given_back_is_not_renewed(stop: State) -> None:
    """After the write that enters a rest nothing of ours writes to the plan again."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    await held.take()
    await held.write(moved(stop))
    before = world.plan_entity(number)
    assert "lease" not in before["fields"]
    assert "owner" not in before["fields"]
    for act in (held.write({}), held.release()):
        with pytest.raises(LeaseLost):
            await act
    assert world.plan_entity(number) == before


async def test_a_write_survives_anothers_harmless_write() -> None:
    """A field that somebody else wrote meanwhile is kept, and ours lands beside it."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    await held.take()
    world.set_plan(number, todos=["remember"])
    await held.write({"attempt": 2})
    plan = world.plan(number)
    assert (plan.todos, plan.attempt) == (["remember"], 2)


@pytest.mark.parametrize(
    "word",
    [
        {"state": "cancelled", "status": "abandoned", "lease": None, "owner": None},
        {"held": True, "lease": None, "owner": None},
        {"held": True},
        {"state": "cancelled"},
    ],
)
async def test_the_operators_word_wins(word: dict[str, object]) -> None:
    """A plan that was rejected or held is dropped by whoever worked on it, at its next write or look."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    await held.take()
    world.set_plan(number, **word)
    before = world.plan_entity(number)
    await held.refresh()
    with pytest.raises(LeaseLost):
        held.ensure_not_lost()
    with pytest.raises(LeaseLost):
        await held.write({"attempt": 1})
    assert world.plan_entity(number) == before


async def test_a_lost_reply_is_written_once_and_known() -> None:
    """When the answer to a write is lost, the next write finds that it landed and goes on."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    await held.take()

    def lost() -> None:
        raise Retryable("no answer")

    world.hooks.hooks = [Hook("after", "patch_entity", world.hooks.counts["patch_entity"] + 1, lost)]
    with pytest.raises(Retryable):
        await held.write({"attempt": 1})
    await held.write({"attempt": 1, "starts": 1})
    plan = world.plan(number)
    assert (plan.attempt, plan.starts, plan.generation) == (1, 1, 1)


async def test_a_plan_under_contention_is_tried_later() -> None:
    """A plan that others write all the time is a passing fault, not an endless loop."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    await held.take()
    first = world.hooks.counts["patch_entity"] + 1
    world.hooks.hooks = [
        Hook("before", "patch_entity", call, lambda: void(world.set_plan(number, todos=["again"])))
        for call in range(first, first + 50)
    ]
    with pytest.raises(Retryable):
        await held.write({"attempt": 1})
    assert world.hooks.counts["patch_entity"] < first + 10


def void(_: object) -> None:
    """A hook's act answers nothing."""


async def test_a_plan_that_is_gone_is_lost() -> None:
    """A plan that somebody erased is not written again."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one")
    await held.take()
    del world.issues.records[held.entity_id]
    await held.refresh()
    with pytest.raises(LeaseLost, match="gone"):
        held.ensure_held()


async def test_renewing_goes_on_through_silence_and_ends_with_the_lease() -> None:
    """A server that is away is asked again; a lost lease ends the renewing by itself."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one", lease_seconds=0.003)
    await held.take()
    renewed = anyio.Event()
    first = world.hooks.counts["patch_entity"]
    world.hooks.hooks = [
        Hook("before", "patch_entity", first + 1, lambda: setattr(world.issues, "reachable", False)),
        Hook("before", "patch_entity", first + 2, lambda: setattr(world.issues, "reachable", True)),
        Hook("after", "patch_entity", first + 3, renewed.set),
        Hook("after", "patch_entity", first + 4, lambda: void(world.set_plan(number, state="cancelled"))),
    ]
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(held.renew_forever)
            await renewed.wait()
    with pytest.raises(LeaseLost):
        held.ensure_not_lost()


async def test_nothing_is_renewed_while_it_is_not_allowed() -> None:
    """While switched off the lease is left to run out."""
    world = World()
    number = planned(world)
    held = held_by(world, number, "one", lease_seconds=0.003)
    await held.take()
    asked, enough = [], anyio.Event()

    def allowed() -> bool:
        asked.append(1)
        if len(asked) == 3:
            enough.set()
        return False

    before = world.plan_entity(number)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as group:
            group.start_soon(held.renew_forever, allowed)
            await enough.wait()
            group.cancel_scope.cancel()
    assert world.plan_entity(number) == before
