"""What a look at one issue leads to. Pure: the issue and plan as read, and the time. An event is only a hint
to look; the answer depends on nothing but what the server says now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from formica.rules.pipeline import ACTIVE, END, EXECUTING, GATED, Event, State
from formica.rules.plan import Plan, report_hash, seconds

__all__ = ["Look", "is_ended", "lease_free", "look", "wants_place"]

Json = Mapping[str, Any]

LOCAL_STATES = frozenset({State.VERIFYING, State.REVIEWING, State.PUBLISHING})
"""States whose work lies in the workspace of one daemon."""
TAKE_OVER_SECONDS = 600.0
"""How long a plan that was left in order waits for the daemon that has its workspace."""


@dataclass(frozen=True, slots=True)
class Look:
    """``create`` a plan, take an outside ``event``, ``work`` on the state's effect, or ``none``."""

    action: Literal["none", "create", "event", "work"]
    event: Event | None = None
    why: str = ""


NOTHING = Look("none")


def look(plan: Plan | None, issue: Json, *, now: float, owner: str, touched_at: float = 0.0) -> Look:
    """What to do with an issue; ``owner`` is this daemon, ``touched_at`` when the plan was last written."""
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
    due_at = seconds(plan.next_look_at) if plan.next_look_at is not None and plan.state in GATED else 0.0
    if due_at > now:
        return Look("none", why=plan.why_waiting)
    if (
        _is_elsewhere(plan, owner)
        and plan.lease is None
        and max(touched_at, due_at) + TAKE_OVER_SECONDS > now
    ):
        return Look("none", why=f"its worktree is with another daemon on {plan.host}")
    return Look("work")


def _is_elsewhere(plan: Plan, owner: str) -> bool:
    """Whether the work lies with another daemon. A lease that it let run out says that it died: then, and
    when it does not come back, the work is started again here."""
    return plan.state in LOCAL_STATES and plan.home not in (None, owner)


def _outside_event(plan: Plan, issue: Json, now: float) -> Event | None:
    if is_ended(plan, issue):
        return Event.ISSUE_ENDED
    if plan.state is State.AWAITING_INPUT and (issue["open_question"] is None or _names_build(plan, issue)):
        return Event.ANSWERED
    if _takes_more(plan) and _says_more(plan, issue):
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


def _names_build(plan: Plan, issue: Json) -> bool:
    """Whether the reporter named a build since the plan was read: an answer, even if in another field than
    the one asked for."""
    known = set(plan.message_ids)
    return any(
        message["author_role"] == "reporter"
        and message.get("reporter")
        and message["message_id"] not in known
        for message in issue["messages"]
    )


def _takes_more(plan: Plan) -> bool:
    """Whether a word from the reporter starts the reading over. Not once a change waits to be published, and
    not after it was: then only the operator does."""
    if plan.state is State.PLANNED:
        return bool(plan.report_hash)
    return plan.state is State.WAITING_OPERATOR and plan.waiting_for != "shipit" and plan.pr_url is None


def _says_more(plan: Plan, issue: Json) -> bool:
    return plan.report_hash != report_hash(issue)


def _due(plan: Plan, now: float) -> bool:
    return plan.next_look_at is None or seconds(plan.next_look_at) <= now


def is_ended(plan: Plan, issue: Json) -> bool:
    """Whether the issue was closed under the plan. One that only has its report to give gives it."""
    return plan.state not in END | {State.REPORTING} and issue["status"] in ("resolved", "closed")


def lease_free(plan: Plan, *, now: float, owner: str) -> bool:
    """Nobody's, expired, or our own from before."""
    return plan.lease is None or plan.owner == owner or seconds(plan.lease.expires_at) <= now


def wants_place(plan: Plan) -> bool:
    """Whether moving the plan on takes one of the ``max_workers`` places."""
    return plan.state in EXECUTING
