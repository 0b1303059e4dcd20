"""The operator's desk over a fake server: what it shows, and how a word reaches a plan."""

from __future__ import annotations

import pytest

from formica.desk import next_words
from formica.errors import Refused, Retryable
from formica.rules.pipeline import State
from formica.rules.plan import plan_hash, timestamp
from formica.rules.plan_text import inbox_line, plan_markdown, status_text, why_text
from formica.rules.policy import Policy
from tests.fakes.agent import Run
from tests.fakes.hooks import Hook
from tests.fakes.world import World


async def waiting(world: World) -> int:
    """A report that waits for go."""
    number = world.report()
    await world.daemon().look(number)
    return number


async def test_the_inbox_has_what_needs_a_person_and_nothing_else() -> None:
    """Waiting and parked plans are in it; running, asked and finished ones are not."""
    world = World()
    daemon = world.daemon()
    asks, runs, asked, parked = world.report(), world.report(), world.unlocated(), world.report()
    for number in (asks, runs, asked, parked):
        await daemon.look(number)
        world.clock.advance(61)
    for number in (asks, runs, parked):
        world.set_plan(number, state="waiting_operator", waiting_for="go")
    await world.desk.go(runs)
    world.set_plan(parked, state="failed", decision_required=True, why_waiting="failed 3 times")
    shown = await world.desk.inbox()
    assert [plan.issue_number for plan in shown] == [asks, parked]
    assert [next_words(plan) for plan in shown] == [
        f"formica go {asks}, or formica reject {asks}",
        f"formica retry {parked}",
    ]
    assert "failed 3 times" in inbox_line(shown[1])


async def test_every_item_can_say_why_nothing_happens() -> None:
    """In every state there is a reason, and a word that helps or that none is needed."""
    world = World()
    number = world.report()
    assert "no daemon" in (await world.desk.why(number))["why"]
    await world.daemon().look(number)
    for state in State:
        world.set_plan(number, state=state.value, why_waiting=None, waiting_for=None)
        why = await world.desk.why(number)
        assert why["why"], state
        assert why["do"], state
        assert f"#{number}" in why_text(why)


async def test_a_limit_names_itself_and_its_time() -> None:
    """What a limit holds back says which one and when it is looked at next."""
    world = World(policy=Policy(reporting_mode="off"))
    number = world.report()
    await world.daemon().look(number)
    why = await world.desk.why(number)
    assert "reporting_mode is off" in why["why"]
    assert why["next_look_at"] > timestamp(world.clock.now())


async def test_the_status_counts_and_names_who_paused() -> None:
    """Status tells the switch, the states, what runs and what waits."""
    world = World()
    number = await waiting(world)
    world.pause("maintenance")
    status = await world.desk.status()
    assert (status["active"], status["stopped_by"]) == (False, ["maintenance"])
    assert status["states"] == {"waiting_operator": 1}
    text = status_text(status)
    assert "PAUSED by maintenance" in text
    assert f"#{number}" in text


async def test_a_plan_can_be_read_as_a_page() -> None:
    """The page has what would be done, what needs a person, the diff and the proof."""
    world = World()
    number = world.report()
    plan = await world.daemon().to_shipit(number)
    page = plan_markdown(await world.desk.plan(number))
    for part in (
        f"# Plan for #{number}",
        "What would be done",
        "src/parser.py",
        "proved",
        str(plan.head_sha),
    ):
        assert part in page
    assert "formica shipit" in next_words(plan)


async def test_a_word_about_nothing_is_refused() -> None:
    """Without a plan, or for an unknown issue, there is one sentence."""
    world = World()
    number = world.report()
    with pytest.raises(Refused, match="no plan"):
        await world.desk.go(number)
    with pytest.raises(Refused):
        await world.desk.go(99)


async def test_a_yes_to_a_plan_that_changed_meanwhile_is_refused() -> None:
    """Between reading and writing the plan became another: the word does not land."""
    world = World()
    number = await waiting(world)

    def change() -> None:
        world.set_plan(number, would_do=["something else"])

    world.hooks.hooks = [Hook("before", "patch_entity", world.hooks.counts["patch_entity"] + 1, change)]
    with pytest.raises(Refused, match="changed meanwhile"):
        await world.desk.go(number)
    assert world.plan(number).approvals == []
    assert world.plan(number).state is State.WAITING_OPERATOR


async def test_a_yes_survives_bookkeeping() -> None:
    """A write that leaves the plan the same plan only makes the word try again."""
    world = World()
    number = await waiting(world)

    def touch() -> None:
        world.set_plan(number, todos=["remember"])

    world.hooks.hooks = [Hook("before", "patch_entity", world.hooks.counts["patch_entity"] + 1, touch)]
    await world.desk.go(number)
    plan = world.plan(number)
    assert (plan.state, plan.todos) == (State.CLAIMED, ["remember"])
    assert plan.approvals[0].plan_hash == plan_hash(plan)


@pytest.mark.parametrize("word", ["reject", "hold"])
async def test_a_word_that_stops_lands_on_a_plan_that_moves(word: str) -> None:
    """Stopping does not need the plan to hold still."""
    world = World()
    number = await waiting(world)

    def move() -> None:
        world.set_plan(number, state="working", head_sha="a" * 40, diff_hash="b" * 64)

    world.hooks.hooks = [Hook("before", "patch_entity", world.hooks.counts["patch_entity"] + 1, move)]
    await getattr(world.desk, word)(number, "")
    plan = world.plan(number)
    assert plan.held or plan.state is State.CANCELLED


async def test_a_word_under_endless_contention_says_try_later() -> None:
    """A plan that never holds still is no endless loop."""
    world = World()
    number = await waiting(world)
    first = world.hooks.counts["patch_entity"]
    world.hooks.hooks = [
        Hook("before", "patch_entity", first + call, lambda call=call: bump(world, number, call))  # type: ignore[misc]
        for call in range(1, 40)
    ]
    with pytest.raises(Retryable):
        await world.desk.go(number)


def bump(world: World, number: int, call: int) -> None:
    world.set_plan(number, todos=[str(call)])


async def test_two_operators_say_go_once() -> None:
    """The second of two goes is refused, and there is one approval."""
    world = World()
    number = await waiting(world)
    await world.desk.go(number)
    with pytest.raises(Refused, match="does not wait for /go"):
        await world.desk.go(number)
    assert len(world.plan(number).approvals) == 1


async def test_the_rules_of_the_settings_hold_at_the_desk() -> None:
    """go is refused while reporting is off or dry_run is always."""
    world = World()
    number = await waiting(world)
    for policy in (Policy(reporting_mode="off"), Policy(dry_run="always")):
        world.policy = policy
        with pytest.raises(Refused):
            await world.desk.go(number)


async def test_pause_makes_the_switch_and_resume_turns_every_one_on() -> None:
    """Pause works before any daemon ran; resume clears every switch and the breaker."""
    world = World()
    world.issues.records.clear()
    await world.desk.set_active(False)
    assert world.issues.by_key("daemon_config", "default")["fields"] == {"active": False}  # type: ignore[index]
    world.pause("elsewhere")
    world.issues.put("operator_state", "formica", {"failures": ["x"], "breaker_opened_at": "now"})
    await world.desk.set_active(True)
    status = await world.desk.status()
    assert (status["active"], status["stopped_by"]) == (True, [])
    state = world.issues.by_key("operator_state", "formica")
    assert state is not None
    assert "breaker_opened_at" not in state["fields"]


async def test_desks_of_other_names_see_their_own_plans() -> None:
    """A daemon of another name has plans of its own, which this desk neither shows nor moves."""
    world = World()
    number = await waiting(world)
    world.name = "night"
    assert await world.desk.plans() == []
    with pytest.raises(Refused, match="no plan"):
        await world.desk.reject(number, "")


async def test_a_parked_item_says_what_it_failed_of() -> None:
    """After three failures the desk shows the item with the agent's reason."""
    world = World(policy=Policy(reporting_mode="proactive", dry_run="never"))
    daemon = world.daemon()
    daemon.agent.otherwise = Run(exit_code=7)
    number = world.report()
    for _ in range(6):
        await daemon.look(number)
        world.clock.advance(600)
    (parked,) = await world.desk.inbox()
    assert "the agent ended with 7" in (await world.desk.why(number))["why"]
    assert next_words(parked) == f"formica retry {number}"
