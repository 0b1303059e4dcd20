"""A plan that this daemon holds: every write is a compare-and-swap under its lease.

The fence is (owner, generation): taking a plan over raises the generation, so a late write from an old owner
can never land. A write that finds the plan changed by somebody else reads again: while the lease is still ours
and the state is as we left it, the write is repeated; otherwise the work in hand is dropped. A lease that ran
out, or was given back by the last write, allows no further effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio

from formica.errors import FormicaError, LeaseLost, Retryable
from formica.ports import Clock, Issues, VersionMismatch
from formica.rules.plan import parse, seconds, timestamp
from formica.rules.storable import storable

Json = dict[str, Any]
TRIES = 5


class HeldPlan:
    """``entity`` is the plan entity as read; `take` must succeed before anything else is called."""

    def __init__(
        self, issues: Issues, clock: Clock, entity: Json, *, owner: str, lease_id: str, lease_seconds: float
    ) -> None:
        self._issues = issues
        self._clock = clock
        self._owner = owner
        self._lease_id = lease_id
        self._lease_seconds = lease_seconds
        self._lock = anyio.Lock()
        self._lost: str | None = None
        self.entity_id: str = entity["entity_id"]
        self._load(entity)

    def _load(self, entity: Json) -> None:
        self.version: int = entity["version"]
        self.plan = parse(entity)

    def _lease(self) -> Json:
        return {"id": self._lease_id, "expires_at": timestamp(self._clock.now() + self._lease_seconds)}

    async def take(self) -> bool:
        """Take the lease in one write; False when somebody else was faster."""
        fields = {"owner": self._owner, "generation": self.plan.generation + 1, "lease": self._lease()}
        try:
            self._load(await self._issues.patch_entity(self.entity_id, fields, version=self.version))
        except VersionMismatch:
            return False
        return True

    async def write(self, fields: Json) -> None:
        """Write under the lease, renewing it unless ``fields`` clears it.

        Raises:
            LeaseLost: the plan has another owner, or the operator moved it.
            Retryable: the server did not answer; the write may or may not have landed.
        """
        async with self._lock:
            for _ in range(TRIES):
                self.ensure_not_lost()
                changed = {"lease": self._lease(), **storable(fields)}
                try:
                    entity = await self._issues.patch_entity(self.entity_id, changed, version=self.version)
                except VersionMismatch:
                    await self._reread()
                    continue
                self._load(entity)
                if self.plan.lease is None:
                    self._lose("the lease was given back")
                return
            raise Retryable("the plan is contended", after_seconds=5)

    async def _reread(self) -> None:
        entity = await self._issues.entity_by_id(self.entity_id)
        if entity is None:
            self._lose("the plan is gone")
            return
        now_there = parse(entity)
        lease_id = now_there.lease.id if now_there.lease else None
        ours = (now_there.owner, now_there.generation, lease_id)
        if ours != (self._owner, self.plan.generation, self._lease_id):
            self._lose("the plan has another owner")
        elif now_there.state is not self.plan.state or now_there.held:
            self._lose("the plan was moved by somebody else")
        self._load(entity)

    def _lose(self, why: str) -> None:
        self._lost = why

    def ensure_held(self) -> None:
        """Before an effect: raises `LeaseLost` once the plan is not ours, or may be another's by now."""
        self.ensure_not_lost()
        if self.plan.lease is None or seconds(self.plan.lease.expires_at) <= self._clock.now():
            raise LeaseLost("the lease ran out")

    def ensure_not_lost(self) -> None:
        """While a run goes on: raises `LeaseLost` once the plan is known to be another's."""
        if self._lost is not None:
            raise LeaseLost(self._lost)

    async def refresh(self) -> None:
        """Look whether the plan is still ours; `ensure_held` tells afterwards."""
        async with self._lock:
            entity = await self._issues.entity_by_id(self.entity_id)
            if entity is None or entity["version"] != self.version:
                await self._reread()

    async def renew_forever(self, allowed: Callable[[], bool] = lambda: True) -> None:
        """Renew at a third of the lease while that is ``allowed``. A server that does not answer is tried
        again; a lost lease ends it."""
        while True:
            await anyio.sleep(self._lease_seconds / 3)
            if not allowed():
                continue
            try:
                await self.write({})
            except LeaseLost:
                return
            except FormicaError:
                continue

    async def release(self) -> None:
        """Give the lease back so that anybody can go on at once."""
        await self.write({"lease": None, "owner": None})
