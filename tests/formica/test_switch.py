"""The kill switch: asked before every effect, watched while agents run, closed when in doubt."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from formica.errors import Retryable, Stopped
from formica.worker.switch import UNREACHABLE_SECONDS, Switch
from tests.fakes.hooks import Hook
from tests.fakes.issues import unreachable
from tests.fakes.world import World


def switch(world: World) -> Switch:
    return Switch(world.issues, world.clock.now)


async def test_an_active_switch_lets_work_go_on() -> None:
    """Active is yes, for effects, results and runs."""
    world = World()
    asked = switch(world)
    await asked.confirm()
    await asked.settle()
    await asked.running()


@pytest.mark.parametrize(
    "fields", [{"active": False}, {"active": None}, {"active": "false"}, {"active": 0}, {}]
)
async def test_any_config_that_is_not_active_stops_everything(fields: dict[str, Any]) -> None:
    """One entity of any key, false or unreadable, stops effects, results and runs, and is named."""
    world = World()
    world.issues.put("daemon_config", "somebody's", fields)
    asked = switch(world)
    for ask in (asked.confirm, asked.settle, asked.running):
        with pytest.raises(Stopped, match="somebody's"):
            await ask()
    world.issues.put("daemon_config", "somebody's", {"active": True})
    await asked.confirm()


async def test_the_default_is_made_once_and_never_switched_on_again() -> None:
    """A start makes the switch, on; a start after a pause leaves it off."""
    world = World()
    world.issues.records.clear()
    await switch(world).ensure()
    await switch(world).confirm()
    world.pause()
    again = switch(world)
    await again.ensure()
    with pytest.raises(Stopped):
        await again.confirm()


async def test_without_an_answer_nothing_is_begun_and_runs_get_a_minute() -> None:
    """An unreachable server allows no effect at once, and stops runs after sixty seconds."""
    world = World()
    asked = switch(world)
    await asked.confirm()
    with unreachable(world.issues):
        with pytest.raises(Retryable):
            await asked.confirm()
        world.clock.advance(UNREACHABLE_SECONDS)
        await asked.refresh()
        await asked.running()
        world.clock.advance(1)
        with pytest.raises(Stopped, match="unreachable"):
            await asked.running()
    await asked.refresh()
    await asked.running()


async def test_a_pause_that_was_seen_holds_while_the_server_is_away() -> None:
    """Silence never turns a no into a yes."""
    world = World()
    asked = switch(world)
    world.pause()
    await asked.refresh()
    with unreachable(world.issues):
        await asked.refresh()
        with pytest.raises(Stopped):
            await asked.running()


async def test_a_drain_ends_effects_at_once_and_runs_after_the_grace() -> None:
    """While draining nothing new begins; what runs may end, and be written down, within the grace."""
    world = World()
    asked = switch(world)
    asked.drain(10.0)
    assert asked.draining
    with pytest.raises(Stopped):
        await asked.confirm()
    world.clock.advance(10.0)
    await asked.running()
    await asked.settle()
    world.clock.advance(0.1)
    for ask in (asked.running, asked.settle):
        with pytest.raises(Stopped, match="grace"):
            await ask()


async def test_a_pause_during_a_drain_wins() -> None:
    """The grace of a drain is none for a kill switch."""
    world = World()
    asked = switch(world)
    asked.drain(10.0)
    world.pause()
    with pytest.raises(Stopped, match="active is false"):
        await asked.settle()


async def test_while_anything_runs_the_switch_is_watched() -> None:
    """The watch asks the server by itself when there is something to stop, and not otherwise."""
    world = World()
    asked = Switch(world.issues, world.clock.now, watch_seconds=0.001)
    seen = anyio.Event()
    busy = False

    def is_busy() -> bool:
        return busy

    world.hooks.hooks = [Hook("after", "entities", 1, seen.set)]
    async with anyio.create_task_group() as group:
        group.start_soon(asked.watch, is_busy)
        await anyio.wait_all_tasks_blocked()
        assert world.hooks.calls == []
        world.pause()
        busy = True
        with anyio.fail_after(10):
            await seen.wait()
            await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    with pytest.raises(Stopped):
        await asked.running()
