"""The gates, one by one and in their order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formica.rules.pipeline import Event, State
from formica.rules.plan import Approval, Plan, plan_hash, timestamp
from formica.rules.policy import (
    HOUR,
    Policy,
    approval_for,
    decide,
)
from formica.settings import load, protected_areas

NOW = 1_750_000_000.0
PROACTIVE = Policy(reporting_mode="proactive", dry_run="never")
SHIPPED = replace(PROACTIVE, protected=protected_areas(load(None)))
TARGET = "local:/srv/project.git"


def plan(number: int = 1, **fields: Any) -> Plan:
    known: dict[str, Any] = {
        "state": State.PLANNED,
        "kind": "bug",
        "reproduction_environment_kind": "public_release",
    }
    return Plan(issue_entity_id=f"ent_{number}", issue_number=number, name="formica", **(known | fields))


def approval(kind: str, of: Plan, **changes: Any) -> Approval:
    fields: dict[str, Any] = {
        "id": "1",
        "kind": kind,
        "by": "ada",
        "at": timestamp(NOW),
        "expires_at": timestamp(NOW + HOUR),
        "plan_hash": plan_hash(of),
    }
    if kind == "shipit":
        fields |= {"head_sha": of.head_sha, "diff_hash": of.diff_hash, "target": TARGET}
    return Approval(**(fields | changes))


# --- whether to execute -----------------------------------------------------------------------------------


def test_a_plain_bug_runs_unattended_only_when_everything_allows_it() -> None:
    """Proactive, no dry run, nothing that blocks: executed without a person."""
    assert decide(plan(), PROACTIVE, []).event is Event.EXECUTABLE


@pytest.mark.parametrize(
    ("fields", "waiting_for"),
    [
        ({"security": True}, "decision"),
        ({"kind": "question"}, "decision"),
        ({"kind": "enhancement"}, "go"),
        ({"tainted": ["instructions to an agent"]}, "go"),
        ({"reproduction_environment_kind": "unknown"}, "go"),
        ({"risk": "high", "todos": ["protected: ci"]}, "go"),
    ],
)
def test_what_never_runs_on_its_own_decision(fields: dict[str, Any], waiting_for: str) -> None:
    """Security, questions, enhancements, taint, unknown builds and protected areas ask, whatever the mode."""
    decision = decide(plan(**fields), PROACTIVE, [])
    assert (decision.event, decision.waiting_for) == (Event.NEEDS_OPERATOR, waiting_for)
    assert decision.why
    assert decision.blockers


def test_off_plans_and_nothing_else() -> None:
    """Off holds every plan back, an approved one too; security still goes to the maintainer."""
    off = Policy(reporting_mode="off")
    approved = plan()
    approved.approvals = [approval("go", approved)]
    for held in (plan(), approved, plan(kind="question"), plan(kind="enhancement")):
        assert decide(held, off, []).event is Event.HELD_BACK
    assert decide(plan(security=True), off, []).event is Event.NEEDS_OPERATOR


def test_consent_asks_for_every_plan() -> None:
    """Consent asks also when the type is known, and is not a dry run then."""
    known = plan(2, state=State.DONE)
    known.approvals = [approval("go", known)]
    decision = decide(plan(1), Policy(), [known])
    assert (decision.event, decision.waiting_for, decision.dry_run) == (Event.NEEDS_OPERATOR, "go", False)


FIRST = replace(PROACTIVE, dry_run="first")


def test_the_first_of_a_type_is_a_dry_run_and_others_wait() -> None:
    """Of several plans of a new type the lowest number is shown, the others are held back and name it."""
    plans = [plan(number) for number in (3, 5, 9)]
    first, *others = [decide(each, FIRST, plans) for each in plans]
    assert (first.event, first.waiting_for, first.dry_run) == (Event.NEEDS_OPERATOR, "go", True)
    for other in others:
        assert other.event is Event.HELD_BACK
        assert "#3" in other.why
        assert "/go 3" in other.why


def test_one_that_is_shown_already_stays_the_first() -> None:
    """A lower number that is planned later waits for the dry run that is on the operator's desk."""
    shown = plan(5, state=State.WAITING_OPERATOR, waiting_for="go", dry_run=True)
    decision = decide(plan(3), FIRST, [shown, plan(3)])
    assert (decision.event, "#5" in decision.why) == (Event.HELD_BACK, True)


@pytest.mark.parametrize(
    "other",
    [
        {"security": True, "state": State.WAITING_OPERATOR, "waiting_for": "decision"},
        {"security": True},
        {"state": State.WAITING_OPERATOR, "waiting_for": "decision"},
        {"state": State.WAITING_OPERATOR, "waiting_for": "go", "held": True},
        {"held": True},
        {"state": State.CANCELLED},
        {"kind": "enhancement", "state": State.WAITING_OPERATOR, "waiting_for": "go"},
        {"entity_type": "invoice", "state": State.WAITING_OPERATOR, "waiting_for": "go"},
    ],
)
def test_nobody_waits_for_a_plan_that_no_go_can_move(other: dict[str, Any]) -> None:
    """Security, decisions, holds, ends and other types do not keep a plan from being the first."""
    decision = decide(plan(8), FIRST, [plan(2, **other), plan(8)])
    assert (decision.event, decision.dry_run) == (Event.NEEDS_OPERATOR, True)


@pytest.mark.parametrize("state", [State.DONE, State.CLAIMED, State.BACKING_OFF, State.FAILED])
def test_a_type_is_known_after_its_first_go(state: State) -> None:
    """A go, even a used one of a plan that ended, opens its type."""
    known = plan(2, state=state)
    known.approvals = [approval("go", known, used=True)]
    assert decide(plan(1), FIRST, [known, plan(1)]).event is Event.EXECUTABLE
    assert decide(plan(1, entity_type="invoice"), FIRST, [known]).event is Event.NEEDS_OPERATOR


def test_always_is_always_a_dry_run() -> None:
    """``always`` shows a plan of a known type too."""
    known = plan(2, state=State.DONE)
    known.approvals = [approval("go", known, used=True)]
    decision = decide(plan(1), replace(PROACTIVE, dry_run="always"), [known])
    assert (decision.event, decision.dry_run) == (Event.NEEDS_OPERATOR, True)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "state": st.sampled_from(list(State)),
                "held": st.booleans(),
                "security": st.booleans(),
                "waiting_for": st.sampled_from([None, "go", "shipit", "decision"]),
            }
        ),
        max_size=6,
    )
)
def test_a_new_type_never_runs_and_never_deadlocks(rows: list[dict[str, Any]]) -> None:
    """Without any go, no plan of the type is executable, and whoever waits, waits for one that go can move."""
    plans = [plan(number + 1, **row) for number, row in enumerate(rows)]
    for each in plans:
        if each.state is not State.PLANNED or each.held:
            continue
        decision = decide(each, FIRST, plans)
        assert decision.event is not Event.EXECUTABLE
        if decision.event is Event.HELD_BACK:
            waited = next(other for other in plans if f"#{other.issue_number} " in decision.why)
            asks = waited.state is State.WAITING_OPERATOR and waited.waiting_for == "go"
            assert asks or waited.state is State.PLANNED
            assert (waited.held, waited.security) == (False, False)


# --- approvals --------------------------------------------------------------------------------------------


def shippable() -> Plan:
    ready = plan(state=State.REVIEWING, head_sha="a" * 40, diff_hash="b" * 64)
    ready.approvals = [approval("shipit", ready)]
    return ready


def test_a_shipit_covers_exactly_what_was_approved() -> None:
    """Same plan, head, diff and target, unexpired and unused: covered."""
    assert approval_for(shippable(), "shipit", TARGET, NOW) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"head_sha": "c" * 40},
        {"diff_hash": "d" * 64},
        {"head_sha": None},
        {"diff_hash": None},
        {"round": 1},
        {"report_hash": "other"},
        {"security": True},
        {"reproduction_environment_kind": "local_commit"},
    ],
)
def test_anything_changed_voids_a_shipit(change: dict[str, Any]) -> None:
    """Another head, diff or plan is not what was approved."""
    assert approval_for(shippable().model_copy(update=change), "shipit", TARGET, NOW) is None


def test_another_target_a_late_hour_and_a_second_use_void_a_shipit() -> None:
    """The target, the time and single use are part of the yes; a go is no shipit."""
    ready = shippable()
    assert approval_for(ready, "shipit", "local:/elsewhere.git", NOW) is None
    assert approval_for(ready, "shipit", TARGET, NOW + HOUR) is None
    assert approval_for(ready, "go", TARGET, NOW) is None
    ready.approvals = [approval("shipit", ready, used=True)]
    assert approval_for(ready, "shipit", TARGET, NOW) is None


def test_an_approval_of_nothing_covers_nothing() -> None:
    """A shipit without head, diff or target is void, also for a plan without them."""
    empty = plan(state=State.REVIEWING)
    empty.approvals = [approval("shipit", empty, target=None)]
    assert approval_for(empty, "shipit", TARGET, NOW) is None
