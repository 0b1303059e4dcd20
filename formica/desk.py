"""The operator's desk: what waits for a person, why an item waits, and the person's words carried to the plan.

The command line stands in front of it, and so will every other transport: the rules of a word are in
`rules.commands`, its effect is one compare-and-swap on the plan as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from formica.errors import NeedsOperator, Refused, Retryable
from formica.ports import Clock, Issues, VersionMismatch
from formica.rules import commands
from formica.rules.pipeline import END, State
from formica.rules.plan import Plan, parse, plan_hash, plan_key, readable, timestamp
from formica.rules.plan_text import PARKED, blockers, next_words, published_text, spoken
from formica.rules.policy import Policy

__all__ = ["Desk", "next_words"]

Json = dict[str, Any]
TRIES = 5
NOT_FOUND = "ERR_NOT_FOUND"
"""The wire's code for what does not exist, in the words of a refusal."""


@dataclass(frozen=True, slots=True)
class Desk:
    """``by`` names the person in approvals; ``target`` is where pull requests go."""

    issues: Issues
    clock: Clock
    policy: Policy
    name: str
    target: str
    by: str
    new_id: Callable[[], str]

    # --- reading ----------------------------------------------------------------------------------------

    async def plans(self) -> list[Plan]:
        """Every plan of this daemon name, by issue number."""
        found = [readable(entity, self.name) for entity in await self.issues.entities("plan")]
        return sorted((plan for plan in found if plan is not None), key=lambda plan: plan.issue_number)

    async def inbox(self) -> list[Plan]:
        """What needs a person: waiting for a word, on hold, or parked."""
        return [
            plan
            for plan in await self.plans()
            if plan.state is State.WAITING_OPERATOR
            or (plan.state in PARKED and plan.decision_required)
            or (plan.held and plan.state not in END)
        ]

    async def paused(self) -> list[Json]:
        """Every switch that is off: its key, and who paused when, where `pause` wrote that down."""
        return [
            {
                "key": config["key"] or config["entity_id"],
                "paused_by": _text(config["fields"].get("paused_by")),
                "paused_at": _text(config["fields"].get("paused_at")),
            }
            for config in await self.issues.entities("daemon_config")
            if config["fields"].get("active") is not True
        ]

    async def plan(self, issue_number: int) -> Plan:
        return (await self._entity(issue_number))[1]

    async def status(self) -> Json:
        """The switch, counts by state, what is executing, what waits and why, and the budgets."""
        plans = await self.plans()
        counts: dict[str, int] = {}
        for plan in plans:
            counts[str(plan.state)] = counts.get(str(plan.state), 0) + 1
        budget = await self.issues.entity("publish_budget", self.name)
        paused = await self.paused()
        return {
            "name": self.name,
            "active": not paused,
            "stopped_by": [switch["key"] for switch in paused],
            "paused": paused,
            "states": counts,
            "working": [_row(plan) for plan in plans if plan.lease is not None],
            "waiting": [_row(plan) for plan in plans if plan.why_waiting and plan.state not in END],
            "pull_requests_reserved": (budget["fields"].get("pull_requests", []) if budget else []),
        }

    async def why(self, issue_number: int) -> Json:
        """What holds an item: the rule, limit, missing answer or breaker, and when it is looked at next."""
        issue, entity = await self._found(issue_number)
        paused = await self.paused()
        if entity is None:
            return {
                "issue_number": issue_number,
                "issue_status": issue["status"],
                "state": None,
                "why": "no daemon of this name has looked at it yet",
                "next_look_at": None,
                "blockers": [],
                "paused": paused,
                "do": "start formica run, or wait for the next reconcile tick",
            }
        plan = parse(entity)
        return {
            "issue_number": issue_number,
            "issue_status": issue["status"],
            "state": str(plan.state),
            "why": published_text(plan) or spoken(plan) or _by_state(plan),
            "next_look_at": plan.next_look_at,
            "blockers": blockers(plan),
            "paused": paused,
            "do": next_words(plan),
        }

    # --- words ------------------------------------------------------------------------------------------

    async def go(self, issue_number: int) -> Plan:
        return await self._apply(
            issue_number,
            lambda plan: commands.go(
                plan,
                approval_id=self.new_id(),
                by=self.by,
                now=self.clock.now(),
                hours=self.policy.approval_hours,
                mode=self.policy.reporting_mode,
                dry_run=self.policy.dry_run,
            ),
        )

    async def shipit(self, issue_number: int) -> Plan:
        return await self._apply(
            issue_number,
            lambda plan: commands.shipit(
                plan,
                approval_id=self.new_id(),
                by=self.by,
                now=self.clock.now(),
                hours=self.policy.approval_hours,
                target=self.target,
            ),
        )

    async def reject(self, issue_number: int, why: str) -> Plan:
        rejected = await self._apply(
            issue_number, lambda plan: commands.reject(plan, by=self.by, why=why), exact=False
        )
        issue = await self.issues.issue(issue_number=issue_number)
        if issue["status"] == "in_progress":
            await self.issues.update_issue(issue_number, status="open")
        return rejected

    async def hold(self, issue_number: int, why: str) -> Plan:
        return await self._apply(
            issue_number, lambda plan: commands.hold(plan, by=self.by, why=why), exact=False
        )

    async def retry(self, issue_number: int) -> Plan:
        return await self._apply(issue_number, lambda plan: commands.retry(plan, by=self.by))

    async def set_active(self, active: bool) -> Sequence[str]:
        """One unconditional write to the default switch; resuming also clears the breaker and other switches."""
        at = None if active else timestamp(self.clock.now())
        switch: Json = {"active": active, "paused_by": None if active else self.by, "paused_at": at}
        default = await self.issues.create_entity("daemon_config", "default", {"active": active})
        await self.issues.patch_entity(default["entity_id"], switch, version=None)
        if not active:
            return ["default"]
        for config in await self.issues.entities("daemon_config"):
            if config["fields"].get("active") is not True:
                await self.issues.patch_entity(config["entity_id"], switch, version=None)
        state = await self.issues.create_entity("operator_state", self.name, {})
        closed: Json = {"failures": [], "breaker_opened_at": None}
        await self.issues.patch_entity(state["entity_id"], closed, version=None)
        return ["default"]

    async def _apply(self, issue_number: int, word: Callable[[Plan], Json], *, exact: bool = True) -> Plan:
        """``exact``: refused when the plan became another meanwhile. A word that stops work stops it anyway."""
        for _ in range(TRIES):
            entity, plan = await self._entity(issue_number)
            shown = plan_hash(plan), plan.head_sha, plan.diff_hash
            try:
                fields = word(plan)
            except commands.CommandRefused as refused:
                raise Refused(str(refused)) from None
            try:
                written = await self.issues.patch_entity(
                    entity["entity_id"], fields, version=entity["version"]
                )
            except VersionMismatch:
                _, moved_on = await self._entity(issue_number)
                if exact and (plan_hash(moved_on), moved_on.head_sha, moved_on.diff_hash) != shown:
                    raise Refused(f"#{issue_number} changed meanwhile: look again, then repeat") from None
                continue
            return parse(written)
        raise Retryable(f"the plan of #{issue_number} is contended")

    async def _entity(self, issue_number: int) -> tuple[Json, Plan]:
        _, entity = await self._found(issue_number)
        if entity is None:
            raise Refused(f"there is no plan for #{issue_number} yet: formica run makes it")
        return entity, parse(entity)

    async def _found(self, issue_number: int) -> tuple[Json, Json | None]:
        """The issue, and its plan's entity if there is one."""
        try:
            issue = await self.issues.issue(issue_number=issue_number)
        except Refused as refused:
            if NOT_FOUND in str(refused):
                raise NeedsOperator(f"there is no issue {issue_number}") from None
            raise
        return issue, await self.issues.entity("plan", plan_key(issue["entity_id"], self.name))


def _by_state(plan: Plan) -> str:
    if plan.state in END:
        return f"finished: {plan.outcome or plan.state}"
    if plan.lease is not None:
        return f"being worked on: {plan.state}"
    return f"next in line: {plan.state}"


def _row(plan: Plan) -> Json:
    return {
        "issue_number": plan.issue_number,
        "state": str(plan.state),
        "why": spoken(plan),
        "next_look_at": plan.next_look_at,
    }


def _text(value: Any) -> str | None:
    """What anybody with an operator key may have written there, if it can be shown."""
    return value[:200] if isinstance(value, str) and value else None
