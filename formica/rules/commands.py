"""What an operator's word does to a plan. Pure: the command line, and later Telegram, only carry it.

Each command answers with the fields to write, by compare-and-swap on the plan as it was shown, or refuses in
one sentence. Silence, an unknown sender or a plan that moved on is never a yes.
"""

from __future__ import annotations

from typing import Any

from formica.rules.pipeline import END, Event, IllegalMove, State, step
from formica.rules.plan import Approval, Plan, moved, plan_hash, timestamp

__all__ = ["CommandRefused", "go", "hold", "reject", "retry", "shipit"]

Json = dict[str, Any]
HOUR = 3_600.0


class CommandRefused(Exception):
    """The command does not fit the plan as it is; ``str()`` says why and what would."""


def go(plan: Plan, *, approval_id: str, by: str, now: float, hours: float, mode: str, dry_run: str) -> Json:
    """Approve execution of exactly this plan; one ``go`` answers dry run and consent both."""
    n = plan.issue_number
    if plan.state is not State.WAITING_OPERATOR or plan.waiting_for != "go":
        raise CommandRefused(f"#{n} does not wait for formica go: it is {_where(plan)}")
    if mode == "off":
        raise CommandRefused("reporting_mode is off: nothing is executed until it is consent or proactive")
    if dry_run == "always":
        raise CommandRefused("dry_run is always: nothing is executed until it is first or never")
    approval = Approval(
        id=approval_id,
        kind="go",
        by=by,
        at=timestamp(now),
        expires_at=timestamp(now + hours * HOUR),
        plan_hash=plan_hash(plan),
    )
    return moved(
        step(plan.state, Event.GO),
        approvals=[*_kept(plan), approval.model_dump()],
        waiting_for=None,
        held=False,
        why_waiting="",
        next_look_at=None,
    )


def shipit(plan: Plan, *, approval_id: str, by: str, now: float, hours: float, target: str) -> Json:
    """Approve publication of exactly these bytes to exactly this target; single use."""
    n = plan.issue_number
    if plan.state is not State.WAITING_OPERATOR or plan.waiting_for != "shipit":
        raise CommandRefused(f"#{n} does not wait for formica shipit: it is {_where(plan)}")
    if plan.head_sha is None or plan.diff_hash is None:
        raise CommandRefused(f"#{n} has no change to publish")
    approval = Approval(
        id=approval_id,
        kind="shipit",
        by=by,
        at=timestamp(now),
        expires_at=timestamp(now + hours * HOUR),
        plan_hash=plan_hash(plan),
        head_sha=plan.head_sha,
        diff_hash=plan.diff_hash,
        target=target,
    )
    return moved(
        step(plan.state, Event.SHIPIT),
        approvals=[*_kept(plan), approval.model_dump()],
        waiting_for=None,
        held=False,
        why_waiting="",
        next_look_at=None,
    )


def reject(plan: Plan, *, by: str, why: str) -> Json:
    """Drop the plan: whatever runs for it is stopped, nothing of it is published."""
    return moved(
        _move(plan, Event.REJECT),
        outcome="abandoned",
        waiting_for=None,
        held=False,
        next_look_at=None,
        why_waiting=f"rejected by {by}" + (f": {why}" if why else ""),
    )


def hold(plan: Plan, *, by: str, why: str) -> Json:
    """Leave the plan where it is until ``retry``, ``go`` or ``shipit``."""
    if plan.state in END:
        raise CommandRefused(f"#{plan.issue_number} is {_where(plan)}: there is nothing to hold")
    return {
        "held": True,
        "lease": None,
        "owner": None,
        "why_waiting": f"held by {by}" + (f": {why}" if why else ""),
    }


def retry(plan: Plan, *, by: str) -> Json:
    """Start over from the report: attempts, approvals, change and any remembered closing are forgotten."""
    if plan.held and plan.state not in END:
        return {"held": False, "why_waiting": "", "next_look_at": None}
    return moved(
        _move(plan, Event.RETRY),
        round=plan.round + 1,
        attempt=0,
        starts=0,
        approvals=[],
        security=False,
        outcome=None,
        waiting_for=None,
        decision_blockers=[],
        findings=[],
        proof=None,
        head_sha=None,
        diff_hash=None,
        diff_stat=[],
        intent=None,
        pr_url=None,
        pr_state=None,
        merged_sha=None,
        fixed_in_version=None,
        run_started_at=None,
        resume_state=None,
        faults=0,
        why_waiting=f"retried by {by}",
        next_look_at=None,
        last_error="",
        held=False,
    )


def _move(plan: Plan, event: Event) -> State:
    try:
        return step(plan.state, event)
    except IllegalMove:
        n = plan.issue_number
        raise CommandRefused(f"formica {event} {n} is not possible: #{n} is {_where(plan)}") from None


def _kept(plan: Plan) -> list[Json]:
    return [approval.model_dump() for approval in plan.approvals]


def _where(plan: Plan) -> str:
    waits = f", waiting for {plan.waiting_for}" if plan.waiting_for else ""
    return f"{plan.state}{waits}"
