"""What a look at an issue leads to."""

from __future__ import annotations

from typing import Any

import pytest

from formica.rules.pipeline import ACTIVE, END, EXECUTING, GATED, Event, State
from formica.rules.plan import Lease, Plan, report_hash, timestamp
from formica.rules.scheduling import LOCAL_STATES, TAKE_OVER_SECONDS, lease_free, look, wants_place

NOW = 1_750_000_000.0
ME, OTHER = "owner-1", "owner-2"


def issue(status: str = "open", *, said: str = "it crashes", question: bool = False) -> dict[str, Any]:
    return {
        "status": status,
        "title": "Crash",
        "reporter": {},
        "messages": [{"message_id": "m1", "author_role": "reporter", "body": said, "reporter": {}}],
        "open_question": {"message_id": "m2", "needs": ["reporter_git_sha"], "text": "?"}
        if question
        else None,
    }


def plan(state: State, **fields: Any) -> Plan:
    known: dict[str, Any] = {"report_hash": report_hash(issue()), "resume_state": State.PREPARING}
    return Plan(issue_entity_id="ent_1", issue_number=1, name="formica", state=state, **(known | fields))


def lease(seconds: float) -> Lease:
    return Lease(id="l", expires_at=timestamp(NOW + seconds))


def seen(
    found: Plan | None, where: dict[str, Any], now: float = NOW, **more: Any
) -> tuple[str, Event | None]:
    answer = look(found, where, now=now, owner=ME, **more)
    return answer.action, answer.event


@pytest.mark.parametrize(
    ("status", "action"),
    [
        ("open", "create"),
        ("in_progress", "create"),
        ("awaiting_input", "none"),
        ("resolved", "none"),
        ("closed", "none"),
    ],
)
def test_a_plan_is_made_for_open_issues_only(status: str, action: str) -> None:
    """What is over, or waits for somebody else's question, gets no plan."""
    assert seen(None, issue(status)) == (action, None)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("status", ["resolved", "closed"])
def test_a_closed_issue_ends_its_plan(state: State, status: str) -> None:
    """Whatever the plan did, it ends with its issue; one that only reports still does, an ended one rests."""
    action = seen(plan(state), issue(status))
    if state in END:
        assert action == ("none", None)
    elif state is State.REPORTING:
        assert action == ("work", None)
    else:
        assert action == ("event", Event.ISSUE_ENDED)


def test_an_answer_goes_on_by_itself() -> None:
    """Awaiting input rests while the question is open, and no longer."""
    assert seen(plan(State.AWAITING_INPUT), issue("awaiting_input", question=True)) == ("none", None)
    assert seen(plan(State.AWAITING_INPUT), issue()) == ("event", Event.ANSWERED)


@pytest.mark.parametrize(
    ("found", "starts_over"),
    [
        (plan(State.PLANNED), True),
        (plan(State.WAITING_OPERATOR, waiting_for="go"), True),
        (plan(State.WAITING_OPERATOR, waiting_for="decision"), True),
        (plan(State.WAITING_OPERATOR, waiting_for="shipit"), False),
        (plan(State.WAITING_OPERATOR, waiting_for="decision", pr_url="https://f/1"), False),
        (plan(State.DONE), False),
    ],
)
def test_more_from_the_reporter_is_read_before_work_and_not_after(found: Plan, starts_over: bool) -> None:
    """A new word starts the reading over until there is a change to publish; then only the operator does."""
    event = Event.REPORT_CHANGED
    assert (seen(found, issue(said="it crashes on Tuesdays")) == ("event", event)) == starts_over
    assert seen(found, issue())[1] is not event


def test_backing_off_ends_at_its_time() -> None:
    """A plan that backs off is due at its time, not before, and not on hold."""
    at = timestamp(NOW + 30)
    assert seen(plan(State.BACKING_OFF, next_look_at=at), issue()) == ("none", None)
    assert seen(plan(State.BACKING_OFF, next_look_at=at), issue(), NOW + 30) == ("event", Event.DUE)
    assert seen(plan(State.BACKING_OFF, next_look_at=at, held=True), issue(), NOW + 30) == ("none", None)


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_what_was_held_back_rests_until_its_time(state: State) -> None:
    """A limit's time is kept by every state a limit can hold back, and by no other."""
    found = plan(state, next_look_at=timestamp(NOW + 60), why_waiting="a limit")
    answer = look(found, issue(), now=NOW, owner=ME)
    assert (answer.action, answer.why) == (("none", "a limit") if state in GATED else ("work", ""))
    assert seen(found, issue(), NOW + 60) == ("work", None)


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_on_hold_nothing_moves(state: State) -> None:
    """A held plan is left alone in every state."""
    assert seen(plan(state, held=True), issue()) == ("none", None)


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_another_owners_lease_is_respected_until_it_ends(state: State) -> None:
    """A live lease keeps everybody else off; its own owner goes on; after its end anybody may."""
    found = plan(state, owner=OTHER, lease=lease(5), home=OTHER)
    assert seen(found, issue()) == ("none", None)
    assert seen(found, issue(), NOW + 5) == ("work", None)
    assert look(found, issue(), now=NOW, owner=OTHER).action == "work"


def test_a_lease_is_free_when_nobody_holds_it() -> None:
    """No lease, an expired one and our own are free."""
    assert lease_free(plan(State.WORKING), now=NOW, owner=ME)
    assert lease_free(plan(State.WORKING, owner=OTHER, lease=lease(0)), now=NOW, owner=ME)
    assert lease_free(plan(State.WORKING, owner=ME, lease=lease(9)), now=NOW, owner=ME)
    assert not lease_free(plan(State.WORKING, owner=OTHER, lease=lease(9)), now=NOW, owner=ME)


@pytest.mark.parametrize("state", sorted(ACTIVE))
def test_work_that_was_left_in_order_waits_for_its_worktree(state: State) -> None:
    """Where a change lies with another daemon, that one goes on; when it stays away, it is started again here."""
    found = plan(state, home=OTHER, host="beta")
    touched = {"touched_at": NOW - 1}
    assert seen(found, issue(), **touched) == (("none", None) if state in LOCAL_STATES else ("work", None))
    assert look(found, issue(), now=NOW, owner=OTHER, touched_at=NOW - 1).action == "work"
    assert seen(found, issue(), NOW + TAKE_OVER_SECONDS, **touched) == ("work", None)


def test_a_daemon_that_waits_for_a_limit_is_not_gone() -> None:
    """The time to take over counts from the end of a limit's wait."""
    found = plan(State.PUBLISHING, home=OTHER, next_look_at=timestamp(NOW + 3_600))
    assert seen(found, issue(), NOW + 3_600 + TAKE_OVER_SECONDS - 1, touched_at=NOW) == ("none", None)
    assert seen(found, issue(), NOW + 3_600 + TAKE_OVER_SECONDS, touched_at=NOW) == ("work", None)


@pytest.mark.parametrize("state", [State.WAITING_OPERATOR, State.AWAITING_INPUT, *sorted(END)])
def test_a_plan_without_effect_rests(state: State) -> None:
    """Nothing is done in a state that waits for people or has ended."""
    where = issue("awaiting_input", question=True) if state is State.AWAITING_INPUT else issue()
    assert seen(plan(state), where) == ("none", None)


def test_a_fix_that_did_not_work_is_reopened_once_it_was_merged() -> None:
    """Done and merged but open again is the reporter's no; done and not merged is not."""
    merged = plan(State.DONE, pr_state="merged", merged_sha="a" * 40)
    assert seen(merged, issue()) == ("event", Event.REOPENED)
    assert seen(merged, issue("resolved")) == ("none", None)
    assert seen(plan(State.DONE, pr_state="open"), issue()) == ("none", None)


def test_executing_takes_a_place() -> None:
    """The places are for the executing states and no others."""
    assert {state for state in State if wants_place(plan(state))} == EXECUTING
