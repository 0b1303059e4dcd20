"""The plan's shape, its hashes and its times."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formica.rules.pipeline import STATUS, State
from formica.rules.plan import (
    LEASE_ENDS,
    Plan,
    moved,
    plan_hash,
    plan_key,
    readable,
    report_hash,
    seconds,
    timestamp,
)


def plan(**fields: Any) -> Plan:
    return Plan(issue_entity_id="ent_1", issue_number=7, name="formica", **fields)


def message(role: str, body: str, **reporter: str) -> dict[str, Any]:
    return {"message_id": f"m-{role}-{body}", "author_role": role, "body": body, "reporter": reporter}


def issue(*messages: dict[str, Any], title: str = "Crash") -> dict[str, Any]:
    return {"title": title, "reporter": {"reporter_app_version": "1"}, "messages": list(messages)}


@pytest.mark.parametrize(
    "change",
    [
        {"issue_entity_id": "ent_2"},
        {"report_hash": "x"},
        {"kind": "enhancement"},
        {"security": True},
        {"reproduction_environment_kind": "local_commit"},
        {"git_sha": "a" * 40},
        {"would_do": ["push elsewhere"]},
        {"round": 1},
    ],
)
def test_a_go_covers_what_was_shown(change: dict[str, Any]) -> None:
    """Another report, kind, place or intention is another plan."""
    before = plan(kind="bug")
    assert plan_hash(before) != plan_hash(before.model_copy(update=change))


def test_bookkeeping_is_not_another_plan() -> None:
    """A new lease, owner, attempt or reason to wait leaves an approval good."""
    before = plan(kind="bug")
    after = before.model_copy(update={"owner": "o", "generation": 9, "attempt": 2, "why_waiting": "budget"})
    assert plan_hash(before) == plan_hash(after)


def test_the_report_is_what_the_reporter_says() -> None:
    """Our own and operators' messages do not change the report; the reporter's words, build and title do."""
    said = issue(message("reporter", "it crashes"))
    ours = issue(
        message("reporter", "it crashes"), message("daemon", "which build?"), message("operator", "hm")
    )
    more = issue(message("reporter", "it crashes"), message("reporter", "also here"))
    build = issue(message("reporter", "it crashes", reporter_git_sha="abc"))
    assert report_hash(said) == report_hash(ours)
    assert len({report_hash(each) for each in (said, more, build, issue(title="Other"))}) == 4


@pytest.mark.parametrize("state", list(State))
def test_entering_a_state_writes_its_status_and_a_stop_clears_the_lease(state: State) -> None:
    """Status follows the state; waiting, backing off and ends leave no lease and no owner behind."""
    fields = moved(state, why_waiting="x")
    assert (fields["state"], fields["status"], fields["why_waiting"]) == (state.value, STATUS[state], "x")
    stops = ("lease" in fields, "owner" in fields)
    assert stops == ((True, True) if state in LEASE_ENDS else (False, False))


def test_a_newer_daemons_fields_do_not_disturb() -> None:
    """Unknown fields of a plan, its lease and its approvals are ignored, not refused."""
    fields = plan().model_dump(mode="json") | {"mood": "good"}
    fields["lease"] = {"id": "l", "expires_at": timestamp(0), "colour": "red"}
    assert Plan.model_validate(fields).issue_number == 7


def test_a_spoilt_plan_is_nobodys() -> None:
    """Another daemon's plan, one without number, and one in an unknown state are not read and raise nothing."""
    good = plan().model_dump(mode="json", exclude_none=True)
    assert readable({"fields": good}, "formica") is not None
    assert readable({"fields": good}, "other") is None
    assert readable({"fields": {"name": "formica"}}, "formica") is None
    assert readable({"fields": good | {"state": "dreaming"}}, "formica") is None


def test_a_plan_is_found_by_issue_and_name() -> None:
    """Daemons of different names plan apart."""
    assert plan_key("ent_1", "a") != plan_key("ent_1", "b")
    assert plan_key("ent_1", "formica") == "ent_1:formica"


@given(st.floats(min_value=0, max_value=4e9))
def test_times_come_back(at: float) -> None:
    """A time survives being written, to the millisecond, in UTC with a Z."""
    written = timestamp(at)
    assert written.endswith("Z")
    assert abs(seconds(written) - at) <= 0.001
