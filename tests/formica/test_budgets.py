"""Budgets, breakers and delays, as pure rules."""

from __future__ import annotations

from typing import Any

import pytest

from formica.rules.plan import timestamp
from formica.rules.policy import (
    HOUR,
    Policy,
    backoff_seconds,
    pull_request_budget,
    run_budget,
    tripped,
    unattended,
)

NOW = 1_750_000_000.0


def reservations(*ages: float, **more: Any) -> list[dict[str, Any]]:
    return [{"issue_number": 50 + n, "at": timestamp(NOW - age), **more} for n, age in enumerate(ages)]


def test_the_hourly_limit_waits_until_the_oldest_leaves_the_hour() -> None:
    """With five in the last hour the answer is no, and the time is when one of them is an hour old."""
    spent = reservations(100, 3_000, 200, 300, 400, 9_000)
    budget = pull_request_budget(spent, 0, Policy(), NOW)
    assert not budget.allowed
    assert "max_prs_per_hour" in budget.why
    assert budget.next_look_at == pytest.approx(NOW + 600)
    assert pull_request_budget(spent, 0, Policy(), NOW + 600).allowed


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
def test_a_lower_limit_than_was_spent_says_a_time_too(limit: int) -> None:
    """After the limit was lowered, and at zero, the answer is still a no with a time."""
    budget = pull_request_budget(reservations(10, 20, 30), 0, Policy(max_prs_per_hour=limit), NOW)
    assert not budget.allowed
    assert budget.next_look_at is not None
    assert budget.next_look_at > NOW


def test_open_ones_and_those_being_opened_count_together() -> None:
    """Ten open ones, or nine and one on its way, are the limit."""
    assert pull_request_budget([], 9, Policy(), NOW).allowed
    assert not pull_request_budget([], 10, Policy(), NOW).allowed
    assert not pull_request_budget(reservations(10, pending=True), 9, Policy(), NOW).allowed
    assert pull_request_budget(reservations(10, pending=False), 9, Policy(), NOW).allowed
    assert pull_request_budget(reservations(2 * HOUR, pending=True), 9, Policy(), NOW).allowed


def run(number: int = 1, minutes: float = 30.0, age: float = 0.0, cost: float = 0.0) -> dict[str, Any]:
    return {"issue_number": number, "at": timestamp(NOW - age), "minutes": minutes, "cost": cost}


def test_an_items_minutes_are_for_all_its_attempts() -> None:
    """Over the item's minutes there is no next time: a person has to look."""
    assert run_budget([run()] * 5, 1, Policy(), NOW).allowed
    budget = run_budget([run(age=90_000)] * 6, 1, Policy(), NOW)
    assert (budget.allowed, budget.next_look_at) == (False, None)
    assert run_budget([run()] * 6, 2, Policy(), NOW).allowed


def test_a_days_minutes_and_cost_wait_for_another_hour() -> None:
    """The day's limits count every item of the last 24 hours and say when to look again."""
    day = [run(number, age=3_600) for number in range(48)]
    assert not run_budget(day, 99, Policy(), NOW).allowed
    assert run_budget(day, 99, Policy(), NOW).next_look_at == NOW + HOUR
    assert run_budget([row | {"at": timestamp(NOW - 90_000)} for row in day], 99, Policy(), NOW).allowed
    costly = Policy(cost_per_run=2.0, cost_per_day=10.0)
    assert run_budget([run(7, 1.0, cost=2.0)] * 4, 1, costly, NOW).allowed
    assert not run_budget([run(7, 1.0, cost=2.0)] * 5, 1, costly, NOW).allowed


def test_the_global_breaker_counts_the_last_hour() -> None:
    """Ten failures within an hour trip it, nine or older ones do not."""
    recent = [timestamp(NOW - 60 * n) for n in range(10)]
    assert tripped(recent, Policy(), NOW)
    assert not tripped(recent[1:], Policy(), NOW)
    assert not tripped(recent, Policy(), NOW + HOUR)


def test_each_attempt_waits_longer_up_to_half_an_hour() -> None:
    """The delay grows and has an end."""
    delays = [backoff_seconds(attempt) for attempt in range(1, 12)]
    assert delays[:3] == [30.0, 120.0, 480.0]
    assert delays == sorted(delays)
    assert max(delays) == 1_800.0


def test_the_settings_that_act_without_a_person_are_named() -> None:
    """proactive and auto_fix need isolation, and are named by their keys."""
    assert unattended(Policy()) == []
    assert unattended(Policy(reporting_mode="proactive", auto_fix=True)) == [
        "policy.reporting_mode",
        "policy.auto_fix",
    ]
