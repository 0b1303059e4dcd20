"""Webhooks: each active subscription reads the one event log with a cursor of its own.

Nothing is queued: what a target has not been sent yet is only its cursor, in memory. An event is attempted
once; what comes of it is recorded and left. A target that is slow fills its own eight places and no other's.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import datetime
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import httpx
import structlog

from pool_server.delivery.attempt import Sender
from pool_server.errors import PoolError
from pool_server.pool import Outcome, Pool, Target

__all__ = ["IN_FLIGHT", "Webhooks"]

IN_FLIGHT = 8
PAGE = 50
POLL_SECONDS = 1.0
# Under load one look at the subscriptions serves all commits of this time; a single event does not wait for it.
ROUND_SECONDS = 0.05
STOP_SECONDS = 3.0
RECORD_RETRIES = 5

logger = structlog.get_logger(source="pool_server.webhooks")


class Webhooks:
    """Keeps a courier per active subscription.

    Args:
        timeout: seconds for one attempt.
        clock: aware; the time an attempt is signed with.
    """

    def __init__(
        self, pool: Pool, *, timeout: float, private_allowed: bool, clock: Callable[[], datetime]
    ) -> None:
        self._pool = pool
        self._timeout = timeout
        self._private_allowed = private_allowed
        self._clock = clock
        # A cursor starts at now: what happened while the server was down is in the log for who wants it.
        self._start = pool.head()
        self._couriers: dict[str, _Courier] = {}

    async def run(self, stopping: anyio.Event) -> None:
        """Deliver until ``stopping`` is set; attempts in flight then have three seconds."""
        verify = await anyio.to_thread.run_sync(_tls_context)
        async with anyio.create_task_group() as couriers:
            following = anyio.CancelScope()

            async def follow() -> None:
                seen = self._start
                with following:
                    while True:
                        await self._refresh(couriers, verify)
                        for courier in self._couriers.values():
                            courier.read_up_to(seen)
                        rested = anyio.current_time() + ROUND_SECONDS
                        await self._pool.wait_beyond(seen, POLL_SECONDS)
                        await anyio.sleep_until(rested)
                        seen = max(seen, self._pool.head())

            couriers.start_soon(follow)
            await stopping.wait()
            following.cancel()
            with anyio.move_on_after(STOP_SECONDS):
                for courier in self._couriers.values():
                    await courier.drained()
            couriers.cancel_scope.cancel()

    async def _refresh(self, couriers: anyio.abc.TaskGroup, verify: ssl.SSLContext) -> None:
        """One courier for each active subscription: before any event of this round is read."""
        try:
            targets = {target.id: target for target in await self._pool.webhook_targets()}
        except PoolError as unavailable:
            logger.warning("webhook targets not read", error=unavailable.error_code)
            return
        for gone in self._couriers.keys() - targets.keys():
            self._couriers.pop(gone).end()
        for name, target in targets.items():
            courier = self._couriers.get(name)
            if courier is not None:
                courier.target = target
                continue
            sender = Sender(
                verify=verify, timeout=self._timeout, private_allowed=self._private_allowed, clock=self._clock
            )
            courier = _Courier(self._pool, sender, target, max(self._start, target.created_seq))
            self._couriers[name] = courier
            couriers.start_soon(courier.run)


def _tls_context() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


class _Courier:
    """One subscription's reader."""

    def __init__(self, pool: Pool, sender: Sender, target: Target, cursor: int) -> None:
        self.target = target
        self._pool = pool
        self._sender = sender
        self._cursor = cursor
        self._horizon = cursor
        self._changed = anyio.Event()
        self._scope = anyio.CancelScope()
        self._in_flight = 0
        self._failures = 0
        self._over = False
        self._draining = False
        self._outcomes: list[Outcome] = []

    def read_up_to(self, seq: int) -> None:
        """Events up to ``seq`` may be sent: the subscription was still active after they were written."""
        if seq > self._horizon:
            self._horizon = seq
            self._wake()

    def end(self) -> None:
        """The subscription was switched off: nothing more is sent."""
        self._scope.cancel()

    async def drained(self) -> None:
        """Start no further attempt; returns when none is in flight."""
        self._draining = True
        self._wake()
        while self._in_flight:
            await self._pause()

    async def run(self) -> None:
        """Read, send and record until it is cancelled; the last outcomes are recorded even then."""
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._record)
                    await self._read(tasks)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(STOP_SECONDS):
                await self._flush()
                await self._sender.close()

    async def _read(self, tasks: anyio.abc.TaskGroup) -> None:
        while True:
            while self._cursor >= self._horizon or not self._sending():
                await self._pause()
            horizon = self._horizon
            try:
                events = await self._pool.read_events(self._cursor, PAGE, self.target.filter, viewer=None)
            except PoolError as unavailable:
                logger.warning("events not read", error=unavailable.error_code)
                await anyio.sleep(POLL_SECONDS)
                continue
            due = [event for event in events if event["seq"] <= horizon]
            for event in due:
                while self._in_flight >= self._places() or not self._sending():
                    await self._pause()
                self._in_flight += 1
                self._cursor = event["seq"]
                tasks.start_soon(self._send, event)
            if len(due) < PAGE:
                self._cursor = max(self._cursor, horizon)

    def _sending(self) -> bool:
        return not (self._over or self._draining)

    def _places(self) -> int:
        """Never more in flight than could still fail before the subscription is switched off."""
        return max(1, min(IN_FLIGHT, self.target.max_failures - self._failures))

    async def _send(self, event: dict[str, Any]) -> None:
        outcome: Outcome | None = None
        try:
            outcome = await self._sender.attempt(self.target, event)
        finally:
            self._in_flight -= 1
            self._note(outcome or self._sender.cut_off(event))
            self._wake()

    def _note(self, outcome: Outcome) -> None:
        self._failures = 0 if outcome.delivered else self._failures + 1
        self._over = self._over or outcome.gone or self._failures >= self.target.max_failures
        self._outcomes.append(outcome)

    async def _record(self) -> None:
        while True:
            while not self._outcomes:
                await self._pause()
            await self._flush()

    async def _flush(self) -> None:
        batch, self._outcomes = self._outcomes, []
        for _ in range(RECORD_RETRIES):
            if not batch:
                return
            try:
                active = await self._pool.record_deliveries(self.target.id, batch)
            except PoolError as unavailable:
                logger.warning("deliveries not recorded", error=unavailable.error_code)
                await anyio.sleep(POLL_SECONDS)
                continue
            # What came to be over since this batch was taken is still to be recorded.
            self._over = not active or (self._over and bool(self._outcomes))
            self._wake()
            return

    async def _pause(self) -> None:
        await self._changed.wait()

    def _wake(self) -> None:
        woken, self._changed = self._changed, anyio.Event()
        woken.set()
