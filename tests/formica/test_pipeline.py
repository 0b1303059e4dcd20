"""The table of states and events."""

from __future__ import annotations

import re

import pytest

from formica.rules.pipeline import (
    ACTIVE,
    EFFECTS,
    END,
    EXECUTING,
    GATED,
    STATUS,
    TRANSITIONS,
    Effect,
    Event,
    IllegalMove,
    State,
    diagram,
    step,
)
from formica.worker import PERFORM

CONTRACT_STATUS = {"draft", "awaiting_input", "approved", "executing", "executed", "abandoned", "superseded"}
ILLEGAL = [(state, event) for state in State for event in Event if (state, event) not in TRANSITIONS]


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_an_event_the_table_does_not_know_raises(state: State, event: Event) -> None:
    """An illegal move raises and names state and event."""
    with pytest.raises(IllegalMove, match=f"{event} is not possible in state {state}"):
        step(state, event, resume=State.WORKING)


def test_every_legal_move_ends_in_its_state() -> None:
    """What the table says is what ``step`` answers."""
    for (state, event), target in TRANSITIONS.items():
        assert step(state, event, resume=State.WORKING) is (target or State.WORKING)


def test_backing_off_returns_only_to_a_state_with_an_effect() -> None:
    """A plan that backed off from nowhere, or from an end, goes nowhere."""
    for resume in (None, State.DONE, State.WAITING_OPERATOR, State.BACKING_OFF):
        with pytest.raises(IllegalMove):
            step(State.BACKING_OFF, Event.DUE, resume=resume)
    assert step(State.BACKING_OFF, Event.DUE, resume=State.PREPARING) is State.PREPARING


def test_every_effect_has_one_state_and_a_performer() -> None:
    """No effect is without a state, none without code, none in two states."""
    assert sorted(EFFECTS.values()) == sorted(Effect)
    assert set(PERFORM) == set(Effect)


def test_every_state_has_a_status_of_the_contract() -> None:
    """Status follows from the state by one table."""
    assert set(STATUS) == set(State)
    assert set(STATUS.values()) <= CONTRACT_STATUS


def test_every_state_is_reached_and_left() -> None:
    """No state is a dead end but the ends, and each can be come by."""
    targets = {target for target in TRANSITIONS.values() if target is not None}
    assert targets | {State.RECEIVED} == set(State)
    for state in State:
        onward = {event for (source, event) in TRANSITIONS if source is state}
        assert onward - {Event.RETRY, Event.REOPENED} or state in END


def test_an_effect_can_always_fail_be_refused_or_wait() -> None:
    """Whatever happens in an effect, the table has a row for it."""
    for state in ACTIVE:
        assert step(state, Event.FAULT) is State.BACKING_OFF
        assert step(state, Event.BREAKER) is State.FAILED
        assert step(state, Event.REFUSAL) is State.REFUSED
    for state in GATED:
        assert step(state, Event.HELD_BACK) is state
    assert EXECUTING < GATED <= ACTIVE


def test_the_operator_can_always_stop_and_never_skips_a_gate() -> None:
    """Reject works in every state but an end; go leads only to the claim, shipit only to publishing."""
    for state in State:
        assert ((state, Event.REJECT) in TRANSITIONS) == (state not in END)
    go = {key: target for key, target in TRANSITIONS.items() if key[1] is Event.GO}
    shipit = {key: target for key, target in TRANSITIONS.items() if key[1] is Event.SHIPIT}
    assert go == {(State.WAITING_OPERATOR, Event.GO): State.CLAIMED}
    assert shipit == {(State.WAITING_OPERATOR, Event.SHIPIT): State.PUBLISHING}


def test_publishing_comes_only_after_a_review_or_a_word() -> None:
    """Nothing reaches publishing but a cleared review, shipit, a wait there, or a pause there."""
    ways = {key for key, target in TRANSITIONS.items() if target is State.PUBLISHING}
    assert ways == {
        (State.REVIEWING, Event.CLEARED),
        (State.WAITING_OPERATOR, Event.SHIPIT),
        (State.PUBLISHING, Event.HELD_BACK),
    }


def test_nothing_leaves_an_end_but_retry_and_reopening() -> None:
    """An ended plan moves only by the operator's retry, a done one also by the reporter's no."""
    for (state, event), target in TRANSITIONS.items():
        if state in END:
            assert event in (Event.RETRY, Event.REOPENED), (state, event, target)


def test_the_diagram_shows_every_move() -> None:
    """Every row of the table is in the diagram, as an arrow or in the note."""
    text = diagram()
    arrows = set(re.findall(r"^    (\w+) --> (\w+): (\w+)$", text, re.MULTILINE))
    for (state, event), target in TRANSITIONS.items():
        shown = (str(state), str(target or "resume_state"), str(event)) in arrows
        assert shown or re.search(rf"^        .*\b{event}\b", text, re.MULTILINE), (state, event)
    drawn = {(State(source), Event(event)): target for source, target, event in arrows}
    assert all(
        TRANSITIONS[key] == (None if target == "resume_state" else target) for key, target in drawn.items()
    )
