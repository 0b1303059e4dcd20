"""Who works, and who stops: places, leases of several daemons, the kill switch, a drain, the operator's words."""

from __future__ import annotations

import random

import anyio
import pytest

from formica.errors import FormicaError, Retryable, Stopped
from formica.rules.pipeline import State
from formica.rules.policy import Policy
from tests.fakes.agent import Run
from tests.fakes.hooks import Hook
from tests.fakes.issues import unreachable
from tests.fakes.world import Daemon, World

UNATTENDED = Policy(reporting_mode="proactive", auto_fix=True, dry_run="never")


async def quietly(daemon: Daemon, number: int) -> None:
    """A look whose fault is the supervisor's business."""
    try:
        await daemon.look(number)
    except FormicaError:
        return


# --- places and leases ------------------------------------------------------------------------------------


async def test_no_more_agents_than_places_work_at_once() -> None:
    """Of five reports two are worked on; the others say that they wait, and take a place when one is free."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon(places=2)
    gate = anyio.Event()
    daemon.agent.otherwise = Run(waits_for=gate)
    numbers = [world.report() for _ in range(5)]
    placed: dict[int, bool] = {}

    async def look(number: int) -> None:
        placed[number] = await daemon.look(number)

    async with anyio.create_task_group() as group:
        for number in numbers:
            group.start_soon(look, number)
        with anyio.fail_after(10):
            while len(daemon.agent.at_work) < 2 or len(placed) < 3:
                await anyio.lowlevel.checkpoint()
        assert list(placed.values()) == [False] * 3
        for number in placed:
            plan = world.plan(number)
            assert (plan.state, plan.lease) == (State.CLAIMED, None)
            assert "busy" in plan.why_waiting
            assert await daemon.look(number) is False
        gate.set()
    assert daemon.agent.most_at_work == 2
    for number in [number for number, had in placed.items() if not had]:
        assert await daemon.look(number) is True
    assert len(world.forge.pulls) == 5


async def test_waiting_for_people_takes_no_place() -> None:
    """Reading, asking and waiting go on while all places are taken."""
    world = World()
    daemon = world.daemon(places=0)
    number, unknown = world.report(), world.unlocated()
    assert await daemon.look(number)
    assert await daemon.look(unknown)
    assert world.plan(number).waiting_for == "go"
    assert world.plan(unknown).state is State.AWAITING_INPUT


@pytest.mark.parametrize("seed", range(60))
async def test_two_daemons_never_work_one_issue_at_once(seed: int) -> None:
    """Two daemons that look at the same issues in the same moment share them, also through lost replies."""
    dice = random.Random(seed)
    world = World(policy=UNATTENDED)
    daemons = [world.daemon("alpha"), world.daemon("beta")]
    for daemon in daemons:
        daemon.agent.otherwise = Run(turns=dice.randrange(40))
    numbers = [world.report() for _ in range(3)]

    def lost() -> None:
        raise Retryable("no answer")

    for _ in range(dice.randrange(3)):
        world.hooks.hooks.append(Hook("after", "patch_entity", dice.randrange(1, 60), lost))
    for _ in range(8):
        async with anyio.create_task_group() as group:
            for number in numbers * 2:
                group.start_soon(quietly, dice.choice(daemons), number)
        world.clock.advance(61)
    for number in numbers:
        for _ in range(8):
            world.clock.advance(700)
            await quietly(daemons[0], number)
    assert not any(daemon.agent.doubled for daemon in daemons)
    assert [world.plan(number).state for number in numbers] == [State.DONE] * 3
    assert len(world.forge.pulls) == 3
    assert all(len(world.issues.said(number)) == 1 for number in numbers)


async def test_a_daemon_that_lost_its_lease_does_nothing_more() -> None:
    """Taken over while its agent ran, a daemon stops the run and neither writes, pushes nor speaks."""
    world = World(policy=UNATTENDED)
    old, new = world.daemon("alpha"), world.daemon("beta")
    gate = anyio.Event()
    old.agent.otherwise = Run(waits_for=gate)
    number = world.report()
    entity_id = world.issues.threads[number]["entity_id"]
    async with anyio.create_task_group() as group:
        group.start_soon(old.look, number)
        with anyio.fail_after(10):
            await old.agent.started.wait()
            world.clock.advance(31)
            await new.look(number)
            await old.worker.stop_moved(entity_id)
    assert world.plan(number).home == new.owner
    assert (len(old.agent.tasks), len(new.agent.tasks)) == (1, 1)
    assert len(world.forge.pulls) == 1
    assert len(world.issues.said(number)) == 1
    assert old.worker.running == {}


async def test_a_daemon_that_slept_through_its_lease_does_not_push() -> None:
    """When the lease ran out between two acts of publishing, the second is not done."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    number = world.report()
    world.hooks.hooks = [Hook("after", "remote_branch", 1, lambda: world.clock.advance(31))]
    await daemon.look(number)
    assert (world.remote.pushes, world.forge.pulls) == ([], [])
    world.hooks.hooks = []
    await daemon.look(number)
    assert len(world.forge.pulls) == 1


# --- the kill switch --------------------------------------------------------------------------------------


async def calls_of_a_story(world: World) -> int:
    """How many calls a report takes to its end, unattended."""
    await world.daemon().look(world.report())
    return len(world.hooks.calls)


async def test_nothing_is_written_after_the_kill_switch() -> None:
    """Switched off before any call, nothing leaves the daemon any more; at most what the effect in flight
    keeps on the books is written, and then nothing at all until resume."""
    for call in range(1, await calls_of_a_story(World(policy=UNATTENDED)) + 1):
        world = World(policy=UNATTENDED)
        daemon = world.daemon()
        daemon.agent.otherwise = Run(turns=3)
        number = world.report()
        world.hooks.hooks = [Hook("before", "*", call, world.pause)]
        await quietly(daemon, number)
        late = [found.kind for found in world.hooks.calls[call:] if found.writes]
        assert set(late) <= {"patch_entity", "create_entity", "relate"}, (call, late)
        assert len(late) <= 3, (call, late)
        done = len(world.hooks.writes())
        for _ in range(3):
            world.clock.advance(3_600)
            await quietly(daemon, number)
        assert len(world.hooks.writes()) == done
        world.hooks.hooks = []
        world.resume()
        for _ in range(3):
            await daemon.look(number)
        assert world.plan(number).state is State.DONE
        assert len(world.forge.pulls) == 1


async def test_a_pause_stops_a_running_agent() -> None:
    """A run in hand ends when the switch is seen off, its result is not taken, and resume starts it afresh."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    gate = anyio.Event()
    daemon.agent.otherwise = Run(waits_for=gate)
    number = world.report()
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.look, number)
        group.start_soon(daemon.switch.watch, lambda: bool(daemon.worker.running))
        with anyio.fail_after(10):
            await daemon.agent.started.wait()
            world.pause()
            while daemon.worker.running:
                await anyio.sleep(0.001)
        group.cancel_scope.cancel()
    assert (daemon.agent.at_work, world.plan(number).state) == ([], State.WORKING)
    with pytest.raises(Stopped):
        await daemon.look(number)
    gate.set()
    world.resume()
    await daemon.look(number)
    assert world.plan(number).state is State.DONE
    assert (len(daemon.agent.tasks), world.hooks.counts["prepare"]) == (2, 2)


async def test_a_lease_is_not_renewed_while_paused() -> None:
    """While an agent that will not stop is being ended after a pause, not even its lease is written."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon(lease_seconds=0.003)
    gate = anyio.Event()
    daemon.agent.otherwise = Run(waits_for=gate, deaf=True)
    number = world.report()
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.look, number)
        with anyio.fail_after(10):
            await daemon.agent.started.wait()
            before = world.plan_entity(number)["version"]
            while world.plan_entity(number)["version"] == before:
                await anyio.sleep(0.001)
            world.pause()
            await daemon.switch.refresh()
            await anyio.wait_all_tasks_blocked()
            paused = world.plan_entity(number)["version"]
            await anyio.sleep(0.03)
            assert world.plan_entity(number)["version"] == paused
            gate.set()
    assert world.plan_entity(number)["version"] == paused


async def test_an_unreachable_server_stops_a_running_agent_after_a_minute() -> None:
    """Without the server an agent runs on for sixty seconds, not longer; then it goes on when the server is back."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    gate = anyio.Event()
    daemon.agent.otherwise = Run(waits_for=gate)
    number = world.report()
    async with anyio.create_task_group() as group:
        group.start_soon(quietly, daemon, number)
        with anyio.fail_after(10):
            await daemon.agent.started.wait()
            with unreachable(world.issues):
                world.clock.advance(59)
                await anyio.sleep(0.01)
                assert daemon.agent.at_work == [number]
                world.clock.advance(2)
                while daemon.worker.running:
                    await anyio.sleep(0.001)
    gate.set()
    await daemon.look(number)
    assert len(world.forge.pulls) == 1


# --- draining and words -----------------------------------------------------------------------------------


async def test_a_drain_lets_the_run_end_and_keeps_its_result() -> None:
    """What an agent finishes within the grace is written down; nothing new begins, and the lease is given back."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    gate = anyio.Event()
    daemon.agent.otherwise = Run(waits_for=gate)
    number = world.report()
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.look, number)
        with anyio.fail_after(10):
            await daemon.agent.started.wait()
            daemon.switch.drain(10.0)
            gate.set()
    plan = world.plan(number)
    assert (plan.state, plan.lease, plan.owner) == (State.VERIFYING, None, None)
    assert plan.head_sha is not None
    assert daemon.verifier.proved == []
    daemon.restart()
    await daemon.look(number)
    assert world.plan(number).state is State.DONE
    assert len(daemon.agent.tasks) == 1


@pytest.mark.parametrize("word", ["reject", "hold"])
async def test_a_word_stops_the_agent_at_once(word: str) -> None:
    """Rejected or held while an agent runs, the run ends at the event, and nothing of it is published."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    gate = anyio.Event()
    daemon.agent.otherwise = Run(waits_for=gate)
    number = world.report()
    async with anyio.create_task_group() as group:
        group.start_soon(daemon.look, number)
        with anyio.fail_after(10):
            await daemon.agent.started.wait()
            await getattr(world.desk, word)(number, "not now")
            await daemon.worker.stop_moved(world.issues.threads[number]["entity_id"])
    after = world.plan(number)
    assert after.state is (State.CANCELLED if word == "reject" else State.WORKING)
    assert "ada: not now" in after.why_waiting
    gate.set()
    await daemon.look(number)
    assert world.forge.pulls == []
    await world.desk.retry(number)
    await daemon.look(number)
    assert (world.plan(number).state, len(world.forge.pulls)) == (State.DONE, 1)


async def test_an_issue_that_is_withdrawn_while_an_agent_runs_is_dropped() -> None:
    """A report taken back ends its plan before the next effect: nothing is published for it."""
    world = World(policy=UNATTENDED)
    number = world.report()
    world.hooks.hooks = [Hook("after", "agent", 1, lambda: world.issues.withdraw(number))]
    await world.daemon().look(number)
    assert world.plan(number).state is State.CANCELLED
    assert (world.forge.pulls, world.remote.pushes) == ([], [])


async def test_an_item_that_cannot_go_on_is_parked_by_its_own_daemon_only() -> None:
    """Parking fails the plan with its reason, but not one that another daemon works on or that rests."""
    world = World(policy=UNATTENDED)
    daemon, other = world.daemon("alpha"), world.daemon("beta")
    number = world.report()
    entity_id = world.issues.threads[number]["entity_id"]
    world.hooks.hooks = [Hook("before", "agent", 1, world.pause)]
    await daemon.look(number)
    with pytest.raises(Stopped):
        await daemon.worker.park(entity_id, "a bug")
    world.resume()
    before = world.plan_entity(number)
    await other.worker.park(entity_id, "a bug")
    assert world.plan_entity(number) == before
    await daemon.worker.park(entity_id, "a bug")
    plan = world.plan(number)
    assert (plan.state, plan.why_waiting, plan.lease) == (State.FAILED, "a bug", None)
    parked = world.plan_entity(number)
    await daemon.worker.park(entity_id, "again")
    assert world.plan_entity(number) == parked
