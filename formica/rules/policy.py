"""The gates: what may be done without a person, and what may not be done at all. Pure.

Every answer carries its reason, because an item that waits must be able to say why. Source: daemon design,
section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from formica.rules.pipeline import END, Event, State
from formica.rules.plan import Approval, Plan, WaitingFor, plan_hash, seconds

__all__ = [
    "Budget",
    "Decision",
    "Policy",
    "approval_for",
    "backoff_seconds",
    "decide",
    "pull_request_budget",
    "run_budget",
    "tripped",
]

HOUR = 3_600.0
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The maintainer's limits. Defaults are the documented ones."""

    reporting_mode: Literal["off", "consent", "proactive"] = "consent"
    auto_fix: bool = False
    dry_run: Literal["first", "always", "never"] = "first"
    max_workers: int = 4
    max_prs_per_hour: int = 5
    max_open_prs: int = 10
    max_files: int = 20
    max_lines: int = 800
    max_deleted_files: int = 5
    approval_hours: float = 72.0
    failures_per_item: int = 3
    failures_per_hour: int = 10
    starts_per_item: int = 12
    minutes_per_run: float = 30.0
    minutes_per_item: float = 180.0
    minutes_per_day: float = 1_440.0
    cost_per_run: float = 0.0
    """What a run of unknown cost counts as, in the currency of the model's bill; 0 switches cost limits off."""
    cost_per_day: float = 0.0
    protected: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Area name to globs over repository paths."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a plan goes from ``planned`` or ``reviewing``, and why."""

    event: Event
    why: str = ""
    blockers: tuple[str, ...] = ()
    waiting_for: WaitingFor | None = None
    dry_run: bool = False


def decide(plan: Plan, policy: Policy, others: Iterable[Plan]) -> Decision:
    """Whether a plan may be executed now, must wait, or must be shown to the operator.

    ``others``: every plan of this daemon name, this one may be among them.
    """
    if plan.security:
        return _ask("decision", "a security report: nothing is published, the maintainer decides")
    if policy.reporting_mode == "off":
        return Decision(Event.HELD_BACK, why="reporting_mode is off: plans only")
    if plan.kind == "question":
        return _ask("decision", "a question: answer it in the thread or close it")
    blockers = _blockers(plan)
    first = _first_of_type(plan, others) if policy.dry_run == "first" else plan.issue_number
    new_type = policy.dry_run == "first" and first is not None
    if new_type and first != plan.issue_number:
        return Decision(
            Event.HELD_BACK, why=f"#{first} is the first {_type_name(plan)} and waits for /go {first}"
        )
    if policy.dry_run == "always" or new_type:
        why = f"dry run: the first {_type_name(plan)}" if new_type else "dry_run is always"
        return _ask("go", why, *blockers, dry_run=True)
    if blockers:
        return _ask("go", blockers[0], *blockers)
    if policy.reporting_mode == "consent":
        return _ask("go", "reporting_mode is consent")
    return Decision(Event.EXECUTABLE)


def _blockers(plan: Plan) -> list[str]:
    found = []
    if plan.tainted:
        found.append("tainted text: " + ", ".join(plan.tainted))
    if plan.kind == "enhancement":
        found.append("an enhancement is never implemented on the daemon's own decision")
    if plan.reproduction_environment_kind == "unknown":
        found.append("the reporter's build is unknown")
    if plan.risk == "high":
        found.extend(f"the plan touches {area}" for area in plan.todos if area.startswith("protected: "))
    return found


def _ask(waiting_for: WaitingFor, why: str, *blockers: str, dry_run: bool = False) -> Decision:
    return Decision(
        Event.NEEDS_OPERATOR,
        why=why,
        blockers=tuple(blockers) or (why,),
        waiting_for=waiting_for,
        dry_run=dry_run,
    )


def _type_name(plan: Plan) -> str:
    return f"{plan.kind} about {plan.entity_type}" if plan.entity_type else str(plan.kind)


def _first_of_type(plan: Plan, others: Iterable[Plan]) -> int | None:
    """The issue whose dry run opens this type, or None when the type is known already.

    A type is known once the operator has said /go to one of its plans. One that asks for it already stays the
    first; else the lowest number goes first, so two daemons that look at the same time agree. Plans that no
    /go can move (security, a decision, on hold) open nothing.
    """
    same = [other for other in others if (other.entity_type, other.kind) == (plan.entity_type, plan.kind)]
    if any(approval.kind == "go" for other in [*same, plan] for approval in other.approvals):
        return None
    free = [other for other in same if not other.held and not other.security]
    asking = [
        other.issue_number
        for other in free
        if other.state is State.WAITING_OPERATOR and other.waiting_for == "go"
    ]
    planned = [other.issue_number for other in free if other.state is State.PLANNED]
    return min(asking or [*planned, plan.issue_number])


def approval_for(plan: Plan, kind: Literal["go", "shipit"], target: str, now: float) -> Approval | None:
    """The unused, unexpired approval that covers exactly what the plan holds now, if there is one."""
    for approval in plan.approvals:
        if approval.kind != kind or approval.used or seconds(approval.expires_at) <= now:
            continue
        if approval.plan_hash != plan_hash(plan):
            continue
        if kind == "go" or _covers(approval, plan, target):
            return approval
    return None


def _covers(approval: Approval, plan: Plan, target: str) -> bool:
    approved = (approval.head_sha, approval.diff_hash, approval.target)
    return None not in approved and approved == (plan.head_sha, plan.diff_hash, target)


# --- budgets and breakers -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Budget:
    """``allowed`` or not; if not, why, and the time (seconds) when it is worth looking again."""

    allowed: bool
    why: str = ""
    next_look_at: float | None = None


def pull_request_budget(
    reservations: Sequence[Mapping[str, Any]], open_count: int, policy: Policy, now: float
) -> Budget:
    """Whether one more pull request may be opened beside the ``reservations`` of others.

    One that is ``pending`` has no pull request yet, so it counts as open on top of ``open_count``.
    """
    recent = [entry for entry in reservations if seconds(entry["at"]) > now - HOUR]
    times = sorted(seconds(entry["at"]) for entry in recent)
    if len(times) >= policy.max_prs_per_hour:
        at = times[len(times) - policy.max_prs_per_hour] + HOUR if policy.max_prs_per_hour else now + HOUR
        return Budget(False, f"max_prs_per_hour ({policy.max_prs_per_hour}) is reached", at)
    if open_count + sum(1 for entry in recent if entry.get("pending")) >= policy.max_open_prs:
        return Budget(False, f"max_open_prs ({policy.max_open_prs}) is reached", now + 300.0)
    return Budget(True)


def run_budget(runs: Sequence[Mapping[str, Any]], issue_number: int, policy: Policy, now: float) -> Budget:
    """Whether one more agent run may start. ``runs``: {issue_number, at, minutes, cost}, reserved at their cap
    before they start and corrected after; a cost that stays unknown stays at the cap."""
    day = [run for run in runs if seconds(run["at"]) > now - DAY]
    item = sum(run["minutes"] for run in runs if run["issue_number"] == issue_number)
    if item + policy.minutes_per_run > policy.minutes_per_item:
        return Budget(False, f"minutes_per_item ({policy.minutes_per_item:g}) is used up")
    if sum(run["minutes"] for run in day) + policy.minutes_per_run > policy.minutes_per_day:
        return Budget(False, f"minutes_per_day ({policy.minutes_per_day:g}) is used up", now + HOUR)
    cost = sum(run.get("cost", 0.0) for run in day)
    if policy.cost_per_day and cost + policy.cost_per_run > policy.cost_per_day:
        return Budget(False, f"cost_per_day ({policy.cost_per_day:g}) is used up", now + HOUR)
    return Budget(True)


def tripped(failures: Sequence[str], policy: Policy, now: float) -> bool:
    """The global breaker: too many failures of any item within an hour."""
    return sum(1 for at in failures if seconds(at) > now - HOUR) >= policy.failures_per_hour


def backoff_seconds(attempt: int) -> float:
    """The delay before try ``attempt + 1``: 30 s, 2 min, 8 min, then half an hour."""
    return float(min(30.0 * 4 ** max(attempt - 1, 0), 1_800.0))


def unattended(policy: Policy) -> list[str]:
    """The settings that let the daemon act without a person; they need isolation to be allowed."""
    chosen = []
    if policy.reporting_mode == "proactive":
        chosen.append("policy.reporting_mode")
    if policy.auto_fix:
        chosen.append("policy.auto_fix")
    return chosen


def ended(plan: Plan) -> bool:
    """Whether nothing but the operator, a merge or a reopening moves the plan."""
    return plan.state in END
