"""One task group: intake, reconcile tick, dispatch, workers, kill switch, stop.

Events and ticks only *mark* issues; marks of one issue coalesce. The dispatcher looks at each marked issue,
never at the same one twice at a time. What an event said is forgotten: the server is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import anyio
import structlog

from formica.errors import FormicaError, LeaseLost, Retryable, Stopped
from formica.rules import scheduling
from formica.rules.pipeline import END
from formica.rules.plan import Plan, readable, seconds
from formica.worker import Worker
from formica.worker.closing import watch, watches
from formica.worker.context import Context

Json = dict[str, Any]
OnEvent = Callable[[Json], Awaitable[None]]
LOOKS_AT_ONCE = 16
WATCHDOG_SECONDS = 30.0
RESTART_SECONDS = 1.0
"""Looks beside those that execute: agents at work must not keep other reports from being read."""
FAILED_PASSES = 3
PASSING = (Retryable, Stopped, LeaseLost)

log = structlog.get_logger("formica.supervisor")


class Intake(Protocol):
    """Brings events, as hints. `run` ends only by cancellation and survives every fault of the other side."""

    async def run(self, on_event: OnEvent) -> None: ...


class Supervisor:
    """``notify`` is told at every turn of the dispatcher that the daemon lives (systemd's watchdog)."""

    def __init__(
        self,
        context: Context,
        worker: Worker,
        *,
        reconcile_seconds: float,
        drain_seconds: float,
        notify: Callable[[str], None] = lambda _state: None,
    ) -> None:
        self._context = context
        self._worker = worker
        self._reconcile_seconds = reconcile_seconds
        self._drain_seconds = drain_seconds
        self._notify = notify
        self._marked: dict[str, None] = {}
        self._in_hand: set[str] = set()
        self._waiting_for_place: set[str] = set()
        self._plan_issue: dict[str, str] = {}
        self._wake = anyio.Event()
        self._tick_wanted = anyio.Event()
        self._looks = anyio.CapacityLimiter(LOOKS_AT_ONCE + context.policy.max_workers)
        self.errors = 0
        """Looks and ticks that failed since the start."""

    # --- marking ----------------------------------------------------------------------------------------

    def mark(self, issue_entity_id: str) -> None:
        """Look at this issue soon."""
        self._marked[issue_entity_id] = None
        self._wake.set()

    async def on_event(self, event: Json) -> None:
        """Turn one event into marks. Unknown types are somebody else's."""
        entity_type, entity_id = event.get("entity_type"), event.get("entity_id")
        if entity_type == "issue" and isinstance(entity_id, str):
            self.mark(entity_id)
        elif entity_type == "plan" and isinstance(entity_id, str):
            await self._on_plan(entity_id, event.get("fields_changed") or [])
        elif entity_type == "daemon_config":
            await self._context.switch.refresh()
            self._tick_wanted.set()
        elif entity_type == "pull_request":
            self._tick_wanted.set()

    async def _on_plan(self, plan_entity_id: str, fields_changed: list[str]) -> None:
        if fields_changed == ["lease"]:
            return  # a renewal
        issue_id = self._plan_issue.get(plan_entity_id)
        if issue_id is None:
            entity = await self._context.issues.entity_by_id(plan_entity_id)
            if entity is None or entity["fields"].get("name") != self._context.name:
                return
            issue_id = entity["fields"].get("issue_entity_id")
            if not isinstance(issue_id, str):
                return
            self._plan_issue[plan_entity_id] = issue_id
        await self._worker.stop_moved(issue_id)
        self.mark(issue_id)

    # --- the task group ---------------------------------------------------------------------------------

    async def run(self, intake: Intake, stop: anyio.Event) -> None:
        """Work until ``stop``; then no new effects, a grace for what runs, and out."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._again_and_again, "intake", lambda: intake.run(self._take))
            group.start_soon(self._again_and_again, "switch", self._watch_switch)
            group.start_soon(self._reconcile_forever)
            group.start_soon(self._dispatch_forever)
            self._notify("READY=1")
            await stop.wait()
            self._notify("STOPPING=1")
            await self.drain()
            group.cancel_scope.cancel()

    async def _watch_switch(self) -> None:
        await self._context.switch.watch(lambda: bool(self._worker.running))

    async def _take(self, event: Json) -> None:
        await self._guarded("event", lambda: self.on_event(event))

    async def _again_and_again(self, what: str, act: Callable[[], Awaitable[None]]) -> None:
        """What must not end with the daemon still up: a bug in it is logged, and it starts over."""
        while True:
            await self._guarded(what, act)
            await anyio.sleep(RESTART_SECONDS)

    async def drain(self) -> None:
        """No new effects; what is in hand may end within the grace, then is stopped by its own checks."""
        self._context.switch.drain(self._drain_seconds)
        with anyio.move_on_after(self._drain_seconds + 15.0):
            while self._in_hand:
                await anyio.sleep(0.05)

    async def run_once(self) -> bool:
        """One pass over everything open, until all of it rests. False: something failed or was left."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._again_and_again, "switch", self._watch_switch)
            group.start_soon(self._dispatch_forever)
            failed_passes, rests = 0, False
            while not rests and failed_passes < FAILED_PASSES:
                before = self.errors
                await self._guarded("tick", self.tick)
                rests = not self._marked and not self._in_hand and self.errors == before
                while self._marked or self._in_hand:
                    await anyio.sleep(0.05)
                failed_passes = failed_passes + 1 if self.errors > before else 0
            group.cancel_scope.cancel()
        return self.errors == 0 and not self._waiting_for_place

    async def _reconcile_forever(self) -> None:
        while True:
            await self._guarded("tick", self.tick)
            with anyio.move_on_after(self._reconcile_seconds):
                await self._tick_wanted.wait()
            self._tick_wanted = anyio.Event()

    async def tick(self) -> None:
        """Ask the server for everything open and mark what wants a look: lost events change nothing."""
        context = self._context
        await context.switch.confirm()
        issues = {issue["entity_id"]: issue for issue in await context.issues.open_issues()}
        entities = await context.issues.entities("plan")
        seen: set[str] = set()
        for entity in entities:
            plan = readable(entity, context.name)
            if plan is None:
                continue
            seen.add(plan.issue_entity_id)
            self._plan_issue[entity["entity_id"]] = plan.issue_entity_id
            await self._guarded(
                "plan", partial(self._consider, entity, plan, issues.get(plan.issue_entity_id))
            )
        for issue_id in issues.keys() - seen:
            self.mark(issue_id)

    async def _consider(self, entity: Json, plan: Plan, issue: Json | None) -> None:
        context = self._context
        if watches(plan):
            await self._guarded("watch", lambda: watch(context, entity, plan))
        if issue is None:
            if plan.state not in END:
                self.mark(plan.issue_entity_id)
            return
        found = scheduling.look(
            plan,
            issue,
            now=context.clock.now(),
            owner=context.owner,
            touched_at=seconds(entity["updated_at"]),
        )
        if found.action != "none":
            self.mark(plan.issue_entity_id)

    async def _dispatch_forever(self) -> None:
        async with anyio.create_task_group() as group:
            while True:
                with anyio.move_on_after(WATCHDOG_SECONDS):
                    await self._wake.wait()
                self._notify("WATCHDOG=1")
                self._wake = anyio.Event()
                for issue_id in [marked for marked in self._marked if marked not in self._in_hand]:
                    del self._marked[issue_id]
                    self._in_hand.add(issue_id)
                    group.start_soon(self._look, issue_id)

    async def _look(self, issue_id: str) -> None:
        placed = True

        async def look() -> None:
            nonlocal placed
            placed = await self._worker.look_at(issue_id)

        try:
            async with self._looks if issue_id not in self._waiting_for_place else anyio.CapacityLimiter(1):
                fault = await self._guarded("look", look)
                if fault is not None and not isinstance(fault, PASSING):
                    await self._guarded("park", lambda: self._worker.park(issue_id, _sentence(fault)))
        finally:
            self._in_hand.discard(issue_id)
        self._waiting_for_place.discard(issue_id)
        if placed:
            waiting, self._waiting_for_place = self._waiting_for_place, set()
            for waiter in waiting:
                self.mark(waiter)
        else:
            self._waiting_for_place.add(issue_id)
        self._wake.set()

    async def _guarded(self, what: str, act: Callable[[], Awaitable[None]]) -> Exception | None:
        """The root of all work: a fault is logged, counted and returned, and the next tick finds what it left."""
        try:
            await act()
        except FormicaError as fault:
            self.errors += 1
            log.warning(f"{what}.failed", kind=type(fault).__name__, why=str(fault))
            return fault
        except Exception as bug:  # the root: one item's bug must not end the others
            self.errors += 1
            log.exception(f"{what}.bug")
            return bug
        return None


def _sentence(fault: Exception) -> str:
    while isinstance(fault, ExceptionGroup) and len(fault.exceptions) == 1:
        fault = fault.exceptions[0]
    if isinstance(fault, FormicaError):
        return str(fault)
    return f"a bug in formica ({type(fault).__name__}): the daemon's log has it"
