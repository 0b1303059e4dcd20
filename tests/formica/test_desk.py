"""The operator's desk over a fake server: what it shows, and how a word reaches a plan."""

from __future__ import annotations

import pytest

from formica.desk import next_words
from formica.errors import NeedsOperator, Refused, Retryable
from formica.rules.pipeline import State
from formica.rules.plan import Plan, plan_hash, timestamp
from formica.rules.plan_text import (
    inbox_line,
    pause_sentence,
    plan_markdown,
    spoken,
    status_text,
    why_text,
)
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
    assert "paused by daemon_config maintenance (active is false): formica resume" in text
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
    with pytest.raises(NeedsOperator, match="there is no issue 99"):
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
    with pytest.raises(Refused, match="does not wait for formica go"):
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
    switch = world.issues.by_key("daemon_config", "default")
    assert switch is not None
    assert switch["fields"] == {
        "active": False,
        "paused_by": "ada",
        "paused_at": timestamp(world.clock.now()),
    }
    world.pause("elsewhere")
    world.issues.put("operator_state", "formica", {"failures": ["x"], "breaker_opened_at": "now"})
    await world.desk.set_active(True)
    status = await world.desk.status()
    assert (status["active"], status["stopped_by"]) == (True, [])
    switch = world.issues.by_key("daemon_config", "default")
    assert switch is not None
    assert switch["fields"] == {"active": True}
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


# --- what the sentences say -------------------------------------------------------------------------------


async def test_who_paused_is_said_wherever_nothing_happens() -> None:
    """status and why name the person and the time, and another switch by its key."""
    world = World()
    number = await waiting(world)
    await world.desk.set_active(False)
    at = timestamp(world.clock.now())
    for text in (status_text(await world.desk.status()), why_text(await world.desk.why(number))):
        assert f"paused by ada since {at}: formica resume" in text
    world.issues.put("daemon_config", "night", {"active": "no", "paused_by": 7})
    await world.desk.set_active(True)
    assert await world.desk.paused() == []
    world.pause("night")
    (off,) = await world.desk.paused()
    assert pause_sentence(off) == "paused by daemon_config night (active is false): formica resume"


async def test_a_published_change_waits_for_its_merge() -> None:
    """After publishing, why and plan name the branch that was pushed and where; then the merge, or the closing."""
    world = World()
    daemon = world.daemon()
    number = world.report()
    plan = await daemon.to_done(number)
    assert plan.intent is not None
    branch, target = plan.intent["branch"], plan.intent["target"].removeprefix("local:")
    sentence = f"waits for you to merge {branch} in {target}"
    assert (await world.desk.why(number))["why"] == sentence
    page = plan_markdown(await world.desk.plan(number))
    assert f"- why: {sentence}" in page
    assert f"- branch: {branch}" in page
    assert next_words(plan).startswith(f"merge {branch} in {target}")
    merge = world.remote.merge(str(plan.head_sha))
    await daemon.watch(number)
    why = await world.desk.why(number)
    assert f"merged as {merge}" in why["why"]
    assert why["do"] == "nothing: it is merged"
    world.set_plan(
        number, pr_state="closed", why_waiting=f"a person closed it: no second one without /retry {number}"
    )
    why = await world.desk.why(number)
    assert why["why"].endswith(f"without formica retry {number}")
    assert why["do"] == f"formica retry {number}"


async def test_blockers_are_shown_while_a_person_is_waited_for() -> None:
    """What blocked before does not stay on the page once the work goes on."""
    world = World()
    number = await waiting(world)
    for state, shown in (
        ("waiting_operator", ["needs formica shipit 1"]),
        ("failed", ["needs formica shipit 1"]),
        ("working", []),
        ("awaiting_input", []),
        ("done", []),
    ):
        plan = world.set_plan(number, state=state, decision_blockers=["needs /shipit"])
        assert (await world.desk.why(number))["blockers"] == shown
        assert ("needs formica shipit 1" in plan_markdown(plan)) is bool(shown)


async def test_why_says_the_state_once() -> None:
    """The state of the plan and that of the issue are told apart."""
    world = World()
    number = world.unlocated()
    await world.daemon().look(number)
    text = why_text(await world.desk.why(number))
    assert text.startswith(f"#{number} is awaiting_input (the issue is awaiting_input): ")
    unseen = world.report()
    text = why_text(await world.desk.why(unseen))
    assert text.startswith(f"#{unseen} is not planned yet (the issue is open): no daemon")


async def test_an_item_on_hold_says_so() -> None:
    """The inbox keeps a held item, in whatever state, and says how it goes on."""
    world = World()
    number = await waiting(world)
    await world.desk.hold(number, "until friday")
    for state in ("waiting_operator", "claimed"):
        world.set_plan(number, state=state)
        (held,) = await world.desk.inbox()
        assert "on hold (held by ada: until friday)" in inbox_line(held)
        assert next_words(held).startswith(f"formica retry {number} takes it off hold")
        assert "- on hold: yes" in plan_markdown(held)
    await world.desk.retry(number)
    assert await world.desk.inbox() == []


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ("auto_fix is off: publishing needs /shipit", "auto_fix is off: publishing needs formica shipit 7"),
        ("#3 is first and waits for /go 3", "#3 is first and waits for formica go 3"),
        ("until /resume", "until formica resume"),
        (
            "reads /go/src and /usr/go, a/go, ./retry and /gone",
            "reads /go/src and /usr/go, a/go, ./retry and /gone",
        ),
    ],
)
def test_reasons_are_said_in_the_words_of_the_command_line(stored: str, said: str) -> None:
    """A word of another transport becomes the command; a path does not."""
    plan = Plan(issue_entity_id="ent_" + "0" * 24, issue_number=7, name="formica", why_waiting=stored)
    assert spoken(plan) == said


def test_the_page_has_paths_of_this_host_and_what_failed_printed() -> None:
    """On its own host worktree and logs are absolute; the end of a failed command's output is on the page."""
    commands = [
        {
            "name": "head",
            "exit_code": 1,
            "seconds": 1.5,
            "output_tail": "x\n" * 50 + "AssertionError\n```\n# no",
            "log": "items/7/run/v.log",
        },
        {"name": "base", "exit_code": 0, "seconds": 0.1, "output_tail": "quiet"},
    ]
    plan = Plan(
        issue_entity_id="ent_" + "0" * 24,
        issue_number=7,
        name="formica",
        host="alpha",
        worktree_path="items/7/tree",
        proof={"proved": False, "reason": "The tests fail.", "commands": commands},
    )
    here = plan_markdown(plan, "/state")
    assert "- worktree: /state/items/7/tree" in here
    assert "output in /state/items/7/run/v.log" in here
    assert "    AssertionError\n    ```\n    # no\n" in here
    assert here.count("    x\n") == 17
    assert "quiet" not in here
    assert "- worktree: alpha: items/7/tree" in plan_markdown(plan)
