"""Budgets and the global breaker, on the server: reserved by compare-and-swap before anything is spent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

    async def reserve_pull_request(self, issue_number: int, forge: Forge) -> Budget:
        """Count one more pull request of this issue, or say when to look again. Reserving twice is once.

        Raises what ``forge.open_count`` raises: an unreadable count is not a yes.
        """
        open_count = await forge.open_count()
        now = self._clock.now()
        answer = Budget(False)

        def reserve(fields: Json) -> Json | None:
            nonlocal answer
            kept = [entry for entry in fields.get("pull_requests", []) if seconds(entry["at"]) > now - DAY]
            answer = pull_request_budget(kept, issue_number, open_count, self._policy, now)
            if not answer.allowed or any(entry["issue_number"] == issue_number for entry in kept):
                return None
            return {"pull_requests": [*kept, {"issue_number": issue_number, "at": timestamp(now)}]}

        await self._swap("publish_budget", reserve)
        return answer

    async def give_back_pull_request(self, issue_number: int) -> None:
        """Only after a look-up proved that no pull request exists."""

        def give_back(fields: Json) -> Json:
            entries = fields.get("pull_requests", [])
            return {"pull_requests": [entry for entry in entries if entry["issue_number"] != issue_number]}

        await self._swap("publish_budget", give_back)

    async def reserve_run(self, issue_number: int, run_id: str) -> Budget:
        """Reserve one agent run at its caps, or say why not."""
        now = self._clock.now()
        answer = Budget(False)

        def reserve(fields: Json) -> Json | None:
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

        def settle(fields: Json) -> Json:
            used: Json = {"minutes": round(minutes, 3)} | ({} if cost is None else {"cost": cost})
            runs = fields.get("runs", [])
            return {"runs": [run | used if run["id"] == run_id else run for run in runs]}

        await self._swap("publish_budget", settle)

    async def record_failure(self, issue_number: int) -> None:
        """One failed run of any item; enough of them within an hour open the global breaker."""
        now = self._clock.now()

        def record(fields: Json) -> Json:
            kept = [at for at in fields.get("failures", []) if seconds(at) > now - HOUR]
            return {"failures": [*kept, timestamp(now)], "last_failure_issue": issue_number}

        await self._swap("operator_state", record)

    async def breaker_open(self) -> bool:
        """Whether the global breaker holds all executing back."""
        entity = await self._issues.create_entity("operator_state", self._name, {})
        return tripped(entity["fields"].get("failures", []), self._policy, self._clock.now())

    async def _swap(self, entity_type: str, change: Callable[[Json], Json | None]) -> None:
        for _ in range(TRIES):
            entity = await self._issues.create_entity(entity_type, self._name, {})
            fields = change(entity["fields"])
            if fields is None:
                return
            try:
                await self._issues.patch_entity(entity["entity_id"], fields, version=entity["version"])
            except VersionMismatch:
                continue
            return
        raise Retryable(f"{entity_type} is contended", after_seconds=5)
