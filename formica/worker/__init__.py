"""The worker: perform the effect of a plan's state through the ports, feed the outcome back as an event.

`Worker.look_at` is the one way in, for events, the reconcile tick and a freed place alike. It reads the issue
and its plan, lets the pure rules say what follows, and goes on until nothing more can be done here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import structlog

from formica.errors import Broken, FormicaError, LeaseLost, NeedsOperator, Refused, Retryable, Stopped
from formica.ports import VersionMismatch
from formica.rules import scheduling
from formica.rules.pipeline import ACTIVE, EFFECTS, GATED, TRANSITIONS, Effect, Event, State, step
from formica.rules.plan import Plan, moved, parse, plan_key, readable, seconds, timestamp
from formica.rules.policy import backoff_seconds
from formica.rules.storable import storable
from formica.worker import executing, publishing, reading
from formica.worker.context import Context, Outcome
from formica.worker.held import HeldPlan

__all__ = ["PERFORM", "Context", "Outcome", "Worker"]

Json = dict[str, Any]
Perform = Callable[[Context, HeldPlan, Json], Awaitable[Outcome]]

PERFORM: dict[Effect, Perform] = {
    Effect.READ: reading.read,
    Effect.LOCATE: reading.locate,
    Effect.ASK: reading.ask,
    Effect.DECIDE: reading.decide_plan,
    Effect.CLAIM: executing.claim,
    Effect.PREPARE: executing.prepare,
    Effect.WORK: executing.work,
    Effect.VERIFY: executing.verify,
    Effect.REVIEW: executing.review_change,
    Effect.PUBLISH: publishing.publish,
    Effect.REPORT: publishing.report,
}
FAULTS_LIMIT = 20
GIVEN_UP = frozenset({State.FAILED, State.REFUSED})
"""Ends after which nobody works on the issue any more: its thread must not say otherwise."""
OFF = "reporting_mode is off: nothing is executed and nothing is said"
log = structlog.get_logger("formica.worker")


class Worker:
    """Moves plans on. ``places`` limits how many execute at the same time on this host."""

    def __init__(self, context: Context, places: anyio.CapacityLimiter) -> None:
        self._context = context
        self._places = places
        self.running: dict[str, HeldPlan] = {}
        """The plans in hand, by the entity id of their issue."""

    async def look_at(self, issue_entity_id: str) -> bool:
        """Take one issue as far as it goes. False: it waits for one of the places."""
        context = self._context
        while True:
            await context.switch.confirm()
            issue = await context.issues.issue(entity_id=issue_entity_id)
            entity = await context.issues.entity("plan", plan_key(issue_entity_id, context.name))
            plan = parse(entity) if entity else None
            look = scheduling.look(
                plan,
                issue,
                now=context.clock.now(),
                owner=context.owner,
                touched_at=seconds(entity["updated_at"]) if entity else 0.0,
            )
            if look.action == "create":
                await self._create(issue)
            elif (
                look.action == "event" and entity is not None and plan is not None and look.event is not None
            ):
                await self._take_event(entity, plan, look.event)
            elif look.action == "work" and entity is not None:
                return await self._work(entity, issue)
            else:
                return True

    async def _create(self, issue: Json) -> None:
        context = self._context
        plan = Plan(issue_entity_id=issue["entity_id"], issue_number=issue["issue_number"], name=context.name)
        fields = plan.model_dump(mode="json", exclude_none=True)
        await context.issues.create_entity("plan", plan_key(issue["entity_id"], context.name), fields)

    async def _take_event(self, entity: Json, plan: Plan, event: Event) -> None:
        state = step(plan.state, event, resume=plan.resume_state)
        changes: Json = {"next_look_at": None}
        if plan.state is State.WAITING_OPERATOR:
            changes |= {"waiting_for": None, "decision_required": False}
        if event is Event.ISSUE_ENDED:
            changes |= _ended(plan)
        if event is Event.REOPENED:
            why = "the reporter says that the fix did not work"
            changes |= {
                "waiting_for": "decision",
                "decision_required": True,
                "decision_blockers": [why],
                "why_waiting": why,
            }
        try:
            await self._context.issues.patch_entity(
                entity["entity_id"], moved(state, **changes), version=entity["version"]
            )
        except VersionMismatch:
            return
        log.info("plan.event", issue=plan.issue_number, happened=str(event), state=str(state))

    async def _work(self, entity: Json, issue: Json) -> bool:
        context = self._context
        held = HeldPlan(
            context.issues,
            context.clock,
            entity,
            owner=context.owner,
            lease_id=context.new_id(),
            lease_seconds=context.lease_seconds,
        )
        place = object()
        if scheduling.wants_place(held.plan) and not self._take_place(place):
            return False
        try:
            if not await held.take():
                return True
            self.running[issue["entity_id"]] = held
            return await self._advance_renewing(held, issue, place)
        finally:
            self.running.pop(issue["entity_id"], None)
            if place in self._places_held():
                self._places.release_on_behalf_of(place)

    async def _advance_renewing(self, held: HeldPlan, issue: Json, place: object) -> bool:
        fault: FormicaError | None = None
        placed = True
        async with anyio.create_task_group() as renewing:
            renewing.start_soon(held.renew_forever, lambda: self._context.switch.paused_by is None)
            try:
                placed = await self._advance(held, issue, place)
            except FormicaError as raised:  # carried out by hand: a task group would wrap it
                fault = raised
            renewing.cancel_scope.cancel()
        if fault is not None:
            raise fault
        return placed

    def _take_place(self, place: object) -> bool:
        try:
            self._places.acquire_on_behalf_of_nowait(place)
        except anyio.WouldBlock:
            return False
        return True

    def _has_place(self, plan: Plan, place: object) -> bool:
        if not scheduling.wants_place(plan) or place in self._places_held():
            return True
        return self._take_place(place)

    def _places_held(self) -> tuple[object, ...]:
        return tuple(self._places.statistics().borrowers)

    async def _advance(self, held: HeldPlan, issue: Json, place: object) -> bool:
        """Effect after effect until the plan rests. False: it needs a place and there is none."""
        context = self._context
        try:
            while (effect := EFFECTS.get(held.plan.state)) is not None:
                if scheduling.is_ended(held.plan, issue):
                    await self._record(held, Outcome(Event.ISSUE_ENDED, _ended(held.plan)))
                    break
                if not self._has_place(held.plan, place):
                    why = f"all {context.policy.max_workers} workers are busy"
                    await held.write({"lease": None, "owner": None, "why_waiting": why})
                    return False
                before = held.plan.state
                outcome = await self._perform(effect, held, issue)
                await self._record(held, outcome)
                if held.plan.state is before:
                    break
                issue = await context.issues.issue(issue_number=held.plan.issue_number)
                if held.plan.state in GIVEN_UP and issue["status"] == "in_progress":
                    await context.issues.update_issue(held.plan.issue_number, status="open")
        except (Stopped, LeaseLost) as stop:
            log.info("plan.dropped", issue=held.plan.issue_number, state=str(held.plan.state), why=str(stop))
            if context.switch.draining and context.switch.paused_by is None and isinstance(stop, Stopped):
                with suppress(FormicaError):
                    await held.release()
        return True

    async def _perform(self, effect: Effect, held: HeldPlan, issue: Json) -> Outcome:
        """One effect; every way it can fail becomes an event of the table."""
        await self._context.switch.confirm()
        held.ensure_held()
        plan = held.plan
        if self._context.policy.reporting_mode == "off" and plan.state in GATED - {State.PLANNED}:
            return executing.hold_back(self._context, OFF, 300.0)
        log.info("effect", issue=plan.issue_number, state=str(plan.state), effect=str(effect))
        try:
            return await PERFORM[effect](self._context, held, issue)
        except Retryable as fault:
            return self._fault(plan, fault)
        except Refused as refusal:
            return Outcome(Event.REFUSAL, _parked(plan, str(refusal)))
        except NeedsOperator as needed:
            if (plan.state, Event.NEEDS_OPERATOR) in TRANSITIONS:
                return Outcome(
                    Event.NEEDS_OPERATOR, {"waiting_for": "decision", **_needs_person(str(needed))}
                )
            return Outcome(Event.BREAKER, _parked(plan, str(needed)))
        except Broken as broken:
            log.error("effect.broken", issue=plan.issue_number, effect=str(effect), why=str(broken))
            return Outcome(Event.BREAKER, _parked(plan, str(broken)))

    def _fault(self, plan: Plan, fault: Retryable) -> Outcome:
        """A passing fault of the world around: it waits longer each time, and is no failed attempt."""
        faults = plan.faults + 1
        if faults >= FAULTS_LIMIT:
            return Outcome(Event.BREAKER, _parked(plan, f"{faults} faults; the last: {fault}"))
        wait = max(fault.after_seconds or 0.0, backoff_seconds(faults))
        return Outcome(
            Event.FAULT,
            {
                "resume_state": plan.state.value,
                "faults": faults,
                "last_error": str(fault),
                "why_waiting": str(fault),
                "next_look_at": timestamp(self._context.clock.now() + wait),
            },
        )

    async def _record(self, held: HeldPlan, outcome: Outcome) -> None:
        """Write where the plan goes. While switched off nothing is written: the effect is repeated later."""
        await self._context.switch.settle()
        before = held.plan.state
        state = step(before, outcome.event, resume=held.plan.resume_state)
        changes = dict(outcome.changes)
        if outcome.event not in (Event.FAULT, Event.HELD_BACK) and held.plan.faults:
            changes["faults"] = 0
        if outcome.event is Event.HELD_BACK:
            changes |= {"lease": None, "owner": None}
        await held.write(moved(state, **changes))
        log.info("plan", issue=held.plan.issue_number, happened=str(outcome.event), state=str(state))

    async def park(self, issue_entity_id: str, why: str) -> None:
        """Stop an item whose look failed for a reason that does not pass: a person has to see it first."""
        context = self._context
        await context.switch.confirm()
        entity = await context.issues.entity("plan", plan_key(issue_entity_id, context.name))
        plan = readable(entity, context.name) if entity else None
        if (
            entity is None
            or plan is None
            or plan.state not in ACTIVE
            or plan.owner not in (None, context.owner)
        ):
            return
        fields = storable(moved(step(plan.state, Event.BREAKER), last_error=why, **_parked(plan, why)))
        with suppress(VersionMismatch):
            await context.issues.patch_entity(entity["entity_id"], fields, version=entity["version"])

    async def stop_moved(self, issue_entity_id: str) -> None:
        """An event touched a plan in hand: look whether it is still ours, so that a run stops promptly."""
        held = self.running.get(issue_entity_id)
        if held is None:
            return
        try:
            await held.refresh()
        except FormicaError:
            return  # the run's own checks decide when the server stays away


def _ended(plan: Plan) -> Json:
    return {"why_waiting": "the issue was closed", "outcome": plan.outcome or "abandoned"}


def _parked(plan: Plan, why: str) -> Json:
    """A pull request that is open stays the outcome: it is watched all the same."""
    outcome = "pr_opened" if plan.outcome == "pr_opened" else "abandoned"
    return {"outcome": outcome, **_needs_person(why)}


def _needs_person(why: str) -> Json:
    return {"decision_required": True, "decision_blockers": [why], "why_waiting": why, "next_look_at": None}
