"""What a look at one issue leads to. Pure: the issue and plan as read, and the time. An event is only a hint
to look; the answer depends on nothing but what the server says now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from formica.rules.pipeline import ACTIVE, END, EXECUTING, Event, State
from formica.rules.plan import Plan, report_hash, seconds

__all__ = ["Look", "lease_free", "look", "wants_place"]

Json = Mapping[str, Any]

LOCAL_STATES = frozenset({State.VERIFYING, State.REVIEWING, State.PUBLISHING})
"""States whose work lies in a workspace on the host that the plan names."""


@dataclass(frozen=True, slots=True)
class Look:
    """``create`` a plan, take an outside ``event``, ``work`` on the state's effect, or ``none``."""

    action: Literal["none", "create", "event", "work"]
    event: Event | None = None
    why: str = ""


NOTHING = Look("none")


def look(plan: Plan | None, issue: Json, *, now: float, owner: str, host: str) -> Look:
    """What to do with an issue; ``owner`` and ``host`` are this daemon's."""
    if plan is None:
        return Look("create") if issue["status"] in ("open", "in_progress") else NOTHING
    outside = _outside_event(plan, issue, now)
    if outside is not None:
        return Look("event", outside)
    if plan.held:
        return Look("none", why="held by the operator")
    if plan.state not in ACTIVE:
        return NOTHING
    if not lease_free(plan, now=now, owner=owner):
        return Look("none", why="another daemon holds the lease")
    if plan.state in LOCAL_STATES and plan.host not in (None, host):
        return Look("none", why=f"its worktree is on {plan.host}")
    if plan.next_look_at is not None and seconds(plan.next_look_at) > now and _rests(plan):
        return Look("none", why=plan.why_waiting)
    return Look("work")


def _rests(plan: Plan) -> bool:
    """States a plan can wait in although they have an effect: nothing is allowed to happen just now."""
    return plan.state in (State.PLANNED, State.CLAIMED, State.WORKING, State.PUBLISHING)


def _outside_event(plan: Plan, issue: Json, now: float) -> Event | None:
    if plan.state not in END and issue["status"] in ("resolved", "closed"):
        return Event.ISSUE_ENDED
    if plan.state is State.AWAITING_INPUT and issue["open_question"] is None:
        return Event.ANSWERED
    if plan.state is State.WAITING_OPERATOR and plan.waiting_for != "shipit" and _says_more(plan, issue):
        return Event.REPORT_CHANGED
    if plan.state is State.PLANNED and plan.report_hash and _says_more(plan, issue):
        return Event.REPORT_CHANGED
    if plan.state is State.BACKING_OFF and not plan.held and _due(plan, now):
        return Event.DUE
    if (
        plan.state is State.DONE
        and plan.merged_sha
        and plan.pr_state == "merged"
        and issue["status"] == "open"
    ):
        return Event.REOPENED
    return None


def _says_more(plan: Plan, issue: Json) -> bool:
    return plan.report_hash != report_hash(issue)


def _due(plan: Plan, now: float) -> bool:
    return plan.next_look_at is None or seconds(plan.next_look_at) <= now


def lease_free(plan: Plan, *, now: float, owner: str) -> bool:
    """Nobody's, expired, or our own from before."""
    return plan.lease is None or plan.owner == owner or seconds(plan.lease.expires_at) <= now


def wants_place(plan: Plan) -> bool:
    """Whether moving the plan on takes one of the ``max_workers`` places."""
    return plan.state in EXECUTING
