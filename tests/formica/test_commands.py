"""The operator's words: what each does to a plan, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from formica.rules import commands
from formica.rules.commands import CommandRefused
from formica.rules.pipeline import END, STATUS, TRANSITIONS, Event, State
from formica.rules.plan import Plan, plan_hash, timestamp

NOW = 1_750_000_000.0
TARGET = "local:/srv/project.git"


def plan(state: State, **fields: Any) -> Plan:
    return Plan(issue_entity_id="ent_1", issue_number=7, name="formica", state=state, kind="bug", **fields)


def go(of: Plan, **changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"mode": "consent", "dry_run": "first"}
    return commands.go(of, approval_id="1", by="ada", now=NOW, hours=72.0, **(given | changes))


def shipit(of: Plan) -> dict[str, Any]:
    return commands.shipit(of, approval_id="2", by="ada", now=NOW, hours=72.0, target=TARGET)


def applied(of: Plan, fields: dict[str, Any]) -> Plan:
    """The plan after the write."""
    merged = of.model_dump(mode="json") | fields
    return Plan.model_validate({name: value for name, value in merged.items() if value is not None})


def test_go_approves_this_plan_and_claims_it() -> None:
    """One go answers dry run and consent, covers the plan as it is, expires, and frees the plan to run."""
    waiting = plan(State.WAITING_OPERATOR, waiting_for="go", dry_run=True, held=True)
    after = applied(waiting, go(waiting))
    assert (after.state, after.status, after.waiting_for, after.held) == (
        State.CLAIMED,
        "approved",
        None,
        False,
    )
    (approval,) = after.approvals
    assert (approval.kind, approval.by, approval.used) == ("go", "ada", False)
    assert approval.plan_hash == plan_hash(waiting) == plan_hash(after)
    assert approval.expires_at == timestamp(NOW + 72 * 3_600)


def test_shipit_approves_exact_bytes_and_publishes() -> None:
    """A shipit names plan, head, diff and target, and keeps the approvals there were."""
    waiting = plan(State.WAITING_OPERATOR, waiting_for="go")
    waiting = applied(waiting, go(waiting) | {"state": State.WAITING_OPERATOR, "waiting_for": "shipit"})
    ready = waiting.model_copy(update={"head_sha": "a" * 40, "diff_hash": "b" * 64})
    after = applied(ready, shipit(ready))
    assert after.state is State.PUBLISHING
    assert [approval.kind for approval in after.approvals] == ["go", "shipit"]
    said = after.approvals[-1]
    assert (said.head_sha, said.diff_hash, said.target) == ("a" * 40, "b" * 64, TARGET)
    assert said.plan_hash == plan_hash(ready)


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("waiting_for", [None, "go", "shipit", "decision"])
def test_a_yes_counts_only_where_it_was_asked(state: State, waiting_for: Any) -> None:
    """go and shipit are refused in every state and for every question but their own."""
    asked = plan(state, waiting_for=waiting_for, head_sha="a" * 40, diff_hash="b" * 64)
    waits = state is State.WAITING_OPERATOR
    for word, kind in ((go, "go"), (shipit, "shipit")):
        if waits and waiting_for == kind:
            word(asked)
            continue
        with pytest.raises(CommandRefused, match=f"#7 does not wait for formica {kind}"):
            word(asked)


def test_a_go_against_the_settings_is_refused() -> None:
    """With reporting off, or dry runs always, nobody can make it execute."""
    waiting = plan(State.WAITING_OPERATOR, waiting_for="go")
    with pytest.raises(CommandRefused, match="reporting_mode is off"):
        go(waiting, mode="off")
    with pytest.raises(CommandRefused, match="dry_run is always"):
        go(waiting, dry_run="always")


def test_a_shipit_of_nothing_is_refused() -> None:
    """Without a change there is nothing to approve."""
    with pytest.raises(CommandRefused, match="no change to publish"):
        shipit(plan(State.WAITING_OPERATOR, waiting_for="shipit"))


@pytest.mark.parametrize("state", list(State))
def test_reject_ends_any_plan_that_has_not_ended(state: State) -> None:
    """A rejected plan is cancelled and nobody's; its reason says who and why."""
    if state in END:
        with pytest.raises(CommandRefused):
            commands.reject(plan(state), by="ada", why="")
        return
    leased = plan(state, owner="o", lease={"id": "l", "expires_at": timestamp(NOW)})
    after = applied(leased, commands.reject(leased, by="ada", why="not wanted"))
    assert (after.state, after.outcome, after.lease, after.owner) == (
        State.CANCELLED,
        "abandoned",
        None,
        None,
    )
    assert after.why_waiting == "rejected by ada: not wanted"


@pytest.mark.parametrize("state", list(State))
def test_hold_takes_the_lease_and_keeps_the_place(state: State) -> None:
    """A held plan stays in its state and is taken from whoever works on it."""
    if state in END:
        with pytest.raises(CommandRefused):
            commands.hold(plan(state), by="ada", why="")
        return
    leased = plan(state, owner="o", lease={"id": "l", "expires_at": timestamp(NOW)})
    after = applied(leased, commands.hold(leased, by="ada", why=""))
    assert (after.state, after.held, after.lease, after.owner) == (state, True, None, None)


@pytest.mark.parametrize("state", [state for state in State if state not in END])
def test_retry_of_a_held_plan_only_lets_it_go(state: State) -> None:
    """Taking a plan off hold starts nothing over."""
    held = plan(state, held=True, attempt=2, why_waiting="held by ada", next_look_at=timestamp(NOW))
    after = applied(held, commands.retry(held, by="ada"))
    assert (after.state, after.held, after.attempt, after.round) == (state, False, 2, 0)
    assert after.next_look_at is None


@pytest.mark.parametrize("state", [state for state in State if (state, Event.RETRY) in TRANSITIONS])
def test_retry_starts_over_and_forgets(state: State) -> None:
    """A new round has no approvals, attempts, change, intent, pull request or remembered end."""
    old = plan(
        state,
        approvals=[go(plan(State.WAITING_OPERATOR, waiting_for="go"))["approvals"][0]],
        security=True,
        attempt=3,
        starts=5,
        faults=4,
        round=1,
        head_sha="a" * 40,
        diff_hash="b" * 64,
        intent={"approved": True},
        pr_url="https://f/1",
        pr_state="merged",
        merged_sha="c" * 40,
        fixed_in_version="v2",
        run_started_at=timestamp(NOW),
        outcome="pr_opened",
        proof={"proved": True},
        decision_blockers=["x"],
    )
    after = applied(old, commands.retry(old, by="ada"))
    fresh = Plan(issue_entity_id="ent_1", issue_number=7, name="formica", kind="bug")
    assert after.round == 2
    assert after.why_waiting == "retried by ada"
    assert after.model_copy(update={"round": 0, "why_waiting": ""}) == fresh


@pytest.mark.parametrize("state", [state for state in State if (state, Event.RETRY) not in TRANSITIONS])
def test_retry_is_refused_while_it_runs(state: State) -> None:
    """What runs is not started over under its worker's hands."""
    with pytest.raises(CommandRefused, match="formica retry 7 is not possible"):
        commands.retry(plan(state), by="ada")


@pytest.mark.parametrize("state", list(State))
def test_every_word_keeps_status_and_state_together(state: State) -> None:
    """Whatever a word writes, the status is that of the state."""
    words = (
        lambda of: commands.reject(of, by="ada", why=""),
        lambda of: commands.retry(of, by="ada"),
        lambda of: commands.hold(of, by="ada", why=""),
        go,
    )
    for word in words:
        try:
            fields = word(plan(state, waiting_for="go"))
        except CommandRefused:
            continue
        assert ("state" not in fields) or fields["status"] == STATUS[State(fields["state"])]
