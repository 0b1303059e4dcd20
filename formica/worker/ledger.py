"""Budgets and the global breaker, on the server: reserved by compare-and-swap before anything is spent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from formica.errors import Retryable
from formica.ports import Clock, Forge, Issues, VersionMismatch
from formica.rules.plan import seconds, timestamp
from formica.rules.policy import DAY, HOUR, Budget, Policy, pull_request_budget, run_budget, tripped

Json = dict[str, Any]
TRIES = 8


class Ledger:
    """The ``publish_budget`` and ``operator_state`` entities of one daemon name."""

    def __init__(self, issues: Issues, clock: Clock, policy: Policy, name: str) -> None:
        self._issues = issues
        self._clock = clock
        self._policy = policy
        self._name = name
        self._lock = anyio.Lock()

    async def reserve_pull_request(self, issue_number: int, round: int, forge: Forge) -> Budget:
        """Count one more pull request, of this round of this issue, or say when to look again. Reserving
        twice within the hour is once.

        The open ones are counted after the reservations were read, so of two that reserve at once neither
        can overlook the other. Raises what ``forge.open_count`` raises: an unreadable count is not a yes.
        """
        answer = Budget(False)

        async def reserve(fields: Json) -> Json | None:
            nonlocal answer
            open_count = await forge.open_count()
            now = self._clock.now()
            kept = [entry for entry in fields.get("pull_requests", []) if seconds(entry["at"]) > now - DAY]
            others = [entry for entry in kept if not _is_of(entry, issue_number, round)]
            answer = pull_request_budget(others, open_count, self._policy, now)
            own = [entry for entry in kept if _is_of(entry, issue_number, round)]
            if not answer.allowed or any(seconds(entry["at"]) > now - HOUR for entry in own):
                return None
            fresh = {"issue_number": issue_number, "round": round, "at": timestamp(now), "pending": True}
            return {"pull_requests": [*others, fresh]}

        await self._swap("publish_budget", reserve)
        return answer

    async def settle_pull_request(self, issue_number: int, round: int) -> None:
        """The pull request is there: from now on the forge's own count has it."""

        async def settle(fields: Json) -> Json | None:
            entries = fields.get("pull_requests", [])
            if not any(entry.get("pending") and _is_of(entry, issue_number, round) for entry in entries):
                return None
            return {
                "pull_requests": [
                    entry | {"pending": False} if _is_of(entry, issue_number, round) else entry
                    for entry in entries
                ]
            }

        await self._swap("publish_budget", settle)

    async def give_back_pull_request(self, issue_number: int, round: int) -> None:
        """Only after a look-up proved that no pull request exists."""

        async def give_back(fields: Json) -> Json:
            entries = fields.get("pull_requests", [])
            return {"pull_requests": [entry for entry in entries if not _is_of(entry, issue_number, round)]}

        await self._swap("publish_budget", give_back)

    async def reserve_run(self, issue_number: int, run_id: str) -> Budget:
        """Reserve one agent run at its caps, or say why not."""
        now = self._clock.now()
        answer = Budget(False)

        async def reserve(fields: Json) -> Json | None:
            nonlocal answer
            runs = [run for run in fields.get("runs", []) if seconds(run["at"]) > now - 30 * DAY]
            answer = run_budget(runs, issue_number, self._policy, now)
            if not answer.allowed:
                return None
            run = {
                "id": run_id,
                "issue_number": issue_number,
                "at": timestamp(now),
                "minutes": self._policy.minutes_per_run,
                "cost": self._policy.cost_per_run,
            }
            return {"runs": [*runs, run]}

        await self._swap("publish_budget", reserve)
        return answer

    async def settle_run(self, run_id: str, minutes: float, cost: float | None) -> None:
        """Correct a reservation to what was used; an unknown cost (None) stays at the cap."""

        async def settle(fields: Json) -> Json:
            used: Json = {"minutes": round(minutes, 3)} | ({} if cost is None else {"cost": cost})
            runs = fields.get("runs", [])
            return {"runs": [run | used if run["id"] == run_id else run for run in runs]}

        await self._swap("publish_budget", settle)

    async def record_failure(self, issue_number: int) -> None:
        """One failed run of any item; enough of them within an hour open the global breaker, for good."""
        now = self._clock.now()

        async def record(fields: Json) -> Json:
            kept = [at for at in fields.get("failures", []) if seconds(at) > now - HOUR]
            failures = [*kept, timestamp(now)]
            opened = {"breaker_opened_at": timestamp(now)} if tripped(failures, self._policy, now) else {}
            return {"failures": failures, "last_failure_issue": issue_number, **opened}

        await self._swap("operator_state", record)

    async def breaker_open(self) -> bool:
        """Whether the global breaker holds all executing back, until the operator resumes."""
        entity = await self._issues.create_entity("operator_state", self._name, {})
        return entity["fields"].get("breaker_opened_at") is not None

    async def _swap(self, entity_type: str, change: Callable[[Json], Awaitable[Json | None]]) -> None:
        """The lock keeps this daemon's workers apart; other daemons are kept apart by the version."""
        async with self._lock:
            for _ in range(TRIES):
                entity = await self._issues.create_entity(entity_type, self._name, {})
                fields = await change(entity["fields"])
                if fields is None:
                    return
                try:
                    await self._issues.patch_entity(entity["entity_id"], fields, version=entity["version"])
                except VersionMismatch:
                    continue
                return
        raise Retryable(f"{entity_type} is contended", after_seconds=5)


def _is_of(entry: Mapping[str, Any], issue_number: int, round: int) -> bool:
    return (entry["issue_number"], entry.get("round", 0)) == (issue_number, round)
