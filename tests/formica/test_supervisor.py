"""The supervisor over fakes: events are hints, ticks find what they missed, one bug does not end the others."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from formica.rules.pipeline import END, State
from formica.rules.policy import Policy
from formica.supervisor import Supervisor
from tests.fakes.agent import Run
from tests.fakes.hooks import Hook
from tests.fakes.issues import unreachable
from tests.fakes.world import Daemon, World

UNATTENDED = Policy(reporting_mode="proactive", auto_fix=True, dry_run="never")
Json = dict[str, Any]


class HandIntake:
    """Brings the events a test gives it."""

    def __init__(self) -> None:
        self.ready = anyio.Event()
        self._on_event: Callable[[Json], Awaitable[None]] | None = None

    async def run(self, on_event: Callable[[Json], Awaitable[None]]) -> None:
        self._on_event = on_event
        self.ready.set()
        await anyio.sleep_forever()

    async def bring(self, event: Json) -> None:
        assert self._on_event is not None
        await self._on_event(event)


def issue_event(world: World, number: int) -> Json:
    return {"entity_type": "issue", "entity_id": world.issues.threads[number]["entity_id"]}


async def until(condition: Callable[[], bool]) -> None:
    """Let others run until it is so."""
    with anyio.fail_after(20):
        while not condition():
            await anyio.sleep(0.001)


def is_in_state(world: World, number: int, state: State) -> bool:
    entity = [record for record in world.issues.records.values() if record["entity_type"] == "plan"]
    return any(
        plan["fields"]["issue_number"] == number and plan["fields"]["state"] == state for plan in entity
    )


class Running:
    """A supervisor at work for the length of a block, stopped in order at its end."""

    def __init__(self, daemon: Daemon, **given: float) -> None:
        self.supervisor: Supervisor = daemon.supervisor(**given)
        self.intake = HandIntake()
        self.stop = anyio.Event()
        self._group = anyio.create_task_group()

    async def __aenter__(self) -> Running:
        await self._group.__aenter__()
        self._group.start_soon(self.supervisor.run, self.intake, self.stop)
        await self.intake.ready.wait()
        await anyio.wait_all_tasks_blocked()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        self.stop.set()
        if failure[0] is not None:
            self._group.cancel_scope.cancel()
        await self._group.__aexit__(*failure)


async def test_an_event_is_enough_and_a_tick_finds_what_was_missed() -> None:
    """A report that an event names is worked at once; one that no event named is found by the next tick."""
    world = World(policy=UNATTENDED)
    async with Running(world.daemon()) as running:
        named, missed = world.report(), world.report()
        await running.intake.bring(issue_event(world, named))
        await until(lambda: is_in_state(world, named, State.DONE))
        assert not is_in_state(world, missed, State.RECEIVED)
        await running.supervisor.tick()
        await until(lambda: is_in_state(world, missed, State.DONE))
    assert len(world.forge.pulls) == 2


async def test_doubled_shuffled_and_foreign_events_change_nothing() -> None:
    """Every event five times, in any order, with nonsense between: one pull request an issue."""
    world = World(policy=UNATTENDED)
    dice = random.Random(7)
    async with Running(world.daemon()) as running:
        numbers = [world.report() for _ in range(4)]
        events: list[Json] = [issue_event(world, number) for number in numbers for _ in range(5)]
        events += [{}, {"entity_type": "issue"}, {"entity_type": "plan", "entity_id": "ent_none"}]
        events += [{"entity_type": "knowledge", "entity_id": "ku_1"}, {"entity_type": 7, "entity_id": []}]
        dice.shuffle(events)
        for event in events:
            await running.intake.bring(event)
        await until(lambda: all(is_in_state(world, number, State.DONE) for number in numbers))
    assert len(world.forge.pulls) == 4
    assert all(len(world.issues.said(number)) == 1 for number in numbers)


async def test_our_own_writes_do_not_start_work_again() -> None:
    """Events of every write of ours, brought back to us, come to rest."""
    world = World(policy=UNATTENDED)
    async with Running(world.daemon()) as running:
        number = world.report()
        await running.intake.bring(issue_event(world, number))
        await until(lambda: is_in_state(world, number, State.DONE))
        plan = world.plan_entity(number)["entity_id"]
        made = len(world.hooks.writes())
        for changed in (["lease"], ["state", "status"], ["why_waiting"]):
            event = {"entity_type": "plan", "entity_id": plan, "fields_changed": changed}
            await running.intake.bring(event)
        await anyio.wait_all_tasks_blocked()
        assert len(world.hooks.writes()) == made


async def test_an_operators_word_reaches_a_running_agent_by_its_event() -> None:
    """The event of a rejected plan stops its agent."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    daemon.agent.otherwise = Run(waits_for=anyio.Event())
    async with Running(daemon) as running:
        number = world.report()
        await running.intake.bring(issue_event(world, number))
        await daemon.agent.started.wait()
        await world.desk.reject(number, "no")
        plan = world.plan_entity(number)["entity_id"]
        await running.intake.bring({"entity_type": "plan", "entity_id": plan, "fields_changed": ["state"]})
        await until(lambda: not daemon.worker.running)
    assert world.plan(number).state is State.CANCELLED


async def test_a_pause_stops_the_agent_and_resume_goes_on_by_itself() -> None:
    """The switch's event is enough for both."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    daemon.agent.script = [Run(waits_for=anyio.Event())]
    switch = {"entity_type": "daemon_config", "entity_id": "ent_x"}
    async with Running(daemon) as running:
        number = world.report()
        await running.intake.bring(issue_event(world, number))
        await daemon.agent.started.wait()
        world.pause()
        await running.intake.bring(switch)
        await until(lambda: not daemon.worker.running)
        made = len(world.hooks.writes())
        await running.supervisor.on_event(issue_event(world, number))
        await anyio.wait_all_tasks_blocked()
        assert len(world.hooks.writes()) == made
        world.resume()
        await running.intake.bring(switch)
        await until(lambda: is_in_state(world, number, State.DONE))
    assert len(world.forge.pulls) == 1


async def test_a_freed_place_is_taken_by_who_waits_for_it() -> None:
    """With one place three reports are worked one after the other, without another event."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon(places=1)
    daemon.agent.otherwise = Run(turns=20)
    async with Running(daemon) as running:
        numbers = [world.report() for _ in range(3)]
        for number in numbers:
            await running.intake.bring(issue_event(world, number))
        await until(lambda: all(is_in_state(world, number, State.DONE) for number in numbers))
    assert daemon.agent.most_at_work == 1


async def test_agents_at_work_keep_nobody_from_being_read() -> None:
    """While every place is taken by a long run, a new report is read and its question asked."""
    policy = Policy(reporting_mode="proactive", dry_run="never", max_workers=20)
    world = World(policy=policy)
    daemon = world.daemon()
    daemon.agent.otherwise = Run(waits_for=anyio.Event())
    async with Running(daemon, drain_seconds=0.0) as running:
        for _ in range(20):
            await running.intake.bring(issue_event(world, world.report()))
        await until(lambda: len(daemon.agent.at_work) == 20)
        unknown = world.unlocated()
        await running.intake.bring(issue_event(world, unknown))
        await until(lambda: is_in_state(world, unknown, State.AWAITING_INPUT))
        world.pause()
        await running.intake.bring({"entity_type": "daemon_config", "entity_id": "ent_x"})
        await until(lambda: not daemon.worker.running)


async def test_a_bug_parks_its_item_and_spares_the_others() -> None:
    """An item whose effect has a bug fails with its reason, is not tried over and over, and others go on."""

    def bug() -> None:
        raise ValueError("a bug")

    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    world.hooks.hooks = [Hook("before", "prepare", 1, bug)]
    async with Running(daemon) as running:
        bad = world.report()
        await running.intake.bring(issue_event(world, bad))
        await until(lambda: is_in_state(world, bad, State.FAILED))
        good = world.report()
        await running.intake.bring(issue_event(world, good))
        await until(lambda: is_in_state(world, good, State.DONE))
        await running.supervisor.tick()
        await anyio.wait_all_tasks_blocked()
    plan = world.plan(bad)
    assert "a bug in formica" in plan.why_waiting
    assert "ValueError" in plan.why_waiting
    assert plan.decision_required
    assert running.supervisor.errors == 1
    assert world.hooks.counts["prepare"] == 2


async def test_a_spoilt_plan_does_not_hide_the_others() -> None:
    """A plan that cannot be read costs its own issue and nothing else."""
    world = World(policy=UNATTENDED)
    spoilt, good = world.report(), world.report()
    issue_id = world.issues.threads[spoilt]["entity_id"]
    fields = {"name": "formica", "issue_entity_id": issue_id, "issue_number": spoilt, "state": "dreaming"}
    world.issues.put("plan", f"{issue_id}:formica", fields)
    async with Running(world.daemon()):
        await until(lambda: is_in_state(world, good, State.DONE))
    assert is_in_state(world, spoilt, "dreaming")  # type: ignore[arg-type]
    assert [plan.issue_number for plan in await world.desk.plans()] == [good]


async def test_a_server_that_goes_away_and_comes_back_costs_nothing() -> None:
    """Ticks without a server fail quietly, and the first with one finds everything."""
    world = World(policy=UNATTENDED)
    async with Running(world.daemon()) as running:
        with unreachable(world.issues):
            number = world.report()
            await running.intake.bring(issue_event(world, number))
            await anyio.wait_all_tasks_blocked()
            assert running.supervisor.errors > 0
        await running.supervisor.tick()
        await until(lambda: is_in_state(world, number, State.DONE))


async def test_a_merge_is_seen_by_a_tick() -> None:
    """The tick after a merge closes the loop."""
    world = World(policy=UNATTENDED)
    async with Running(world.daemon()) as running:
        number = world.report()
        await running.intake.bring(issue_event(world, number))
        await until(lambda: is_in_state(world, number, State.DONE))
        world.forge.merge(1)
        await running.intake.bring({"entity_type": "pull_request", "entity_id": "ent_p"})
        await until(lambda: world.issues.threads[number]["status"] == "resolved")


async def test_a_stop_drains() -> None:
    """At a stop what runs may end within the grace, its result is kept, its lease given back, and run returns."""
    world = World(policy=UNATTENDED)
    daemon = world.daemon()
    gate = anyio.Event()
    daemon.agent.otherwise = Run(waits_for=gate)
    told: list[str] = []
    supervisor = Supervisor(
        daemon.context, daemon.worker, reconcile_seconds=3_600, drain_seconds=10, notify=told.append
    )
    stop = anyio.Event()
    number = world.report()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(supervisor.run, HandIntake(), stop)
            await daemon.agent.started.wait()
            stop.set()
            await until(lambda: daemon.switch.draining)
            gate.set()
    plan = world.plan(number)
    assert (plan.state, plan.lease) == (State.VERIFYING, None)
    assert told[0] == "READY=1"
    assert "STOPPING=1" in told


# --- one pass ---------------------------------------------------------------------------------------------


async def test_once_takes_everything_to_rest() -> None:
    """One pass works every open report until nothing can be done here, and says so."""
    world = World(policy=UNATTENDED)
    numbers = [world.report(), world.unlocated(), world.report()]
    with anyio.fail_after(20):
        assert await world.daemon(places=1).supervisor().run_once() is True
    states = [world.plan(number).state for number in numbers]
    assert states == [State.DONE, State.AWAITING_INPUT, State.DONE]


async def test_once_says_when_something_was_left() -> None:
    """Paused, unreachable or with a fault, one pass ends by itself and is not called complete."""

    def bug() -> None:
        raise ValueError("a bug")

    paused, away, broken = World(policy=UNATTENDED), World(policy=UNATTENDED), World(policy=UNATTENDED)
    for world in (paused, away, broken):
        world.report()
    paused.pause()
    away.issues.reachable = False
    broken.hooks.hooks = [Hook("before", "prepare", 1, bug)]
    for world in (paused, away, broken):
        with anyio.fail_after(20):
            assert await world.daemon().supervisor().run_once() is False
    assert broken.plan(1).state in END


async def test_once_does_not_go_round_for_ever() -> None:
    """A fault that every look meets ends the pass after a few tries."""

    def refuse() -> None:
        raise ValueError("a bug outside of any effect")

    world = World(policy=UNATTENDED)
    world.report()
    world.hooks.hooks = [Hook("before", "issue", call, refuse) for call in range(1, 500)]
    with anyio.fail_after(20):
        assert await world.daemon().supervisor().run_once() is False
    assert world.hooks.counts["issue"] < 10
