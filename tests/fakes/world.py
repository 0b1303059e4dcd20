"""Everything around a daemon in memory, and any number of daemons in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio

from formica.desk import Desk
from formica.rules.plan import Plan, plan_key
from formica.rules.policy import Policy
from formica.rules.secret_forms import LiveSecrets
from formica.supervisor import Supervisor
from formica.worker import Worker
from formica.worker.closing import watch, watches
from formica.worker.context import Context
from formica.worker.ledger import Ledger
from formica.worker.switch import Switch
from tests.fakes.agent import FakeAgent
from tests.fakes.forge import FakeForge
from tests.fakes.hooks import Hooks, VirtualClock
from tests.fakes.issues import FakeIssues
from tests.fakes.repository import FakeRemote, FakeRepository
from tests.fakes.transcripts import FakeTranscripts
from tests.fakes.verifier import FakeVerifier

Json = dict[str, Any]
BUG = (
    "Crash on empty input",
    "parse() raises IndexError when the file is empty. Traceback: IndexError in parser",
)


@dataclass(slots=True)
class World:
    """One pool server, one remote, one forge; ``policy`` is that of every daemon made here."""

    policy: Policy = field(default_factory=Policy)
    name: str = "formica"
    clock: VirtualClock = field(default_factory=VirtualClock)
    hooks: Hooks = field(default_factory=Hooks)
    issues: FakeIssues = field(init=False)
    remote: FakeRemote = field(init=False)
    forge: FakeForge = field(init=False)
    secrets: LiveSecrets = field(default_factory=LiveSecrets)
    at_work: list[int] = field(default_factory=list)
    """The issues that agents of any daemon work on now."""
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.issues = FakeIssues(self.clock, self.hooks)
        self.remote = FakeRemote(releases={"1.4.2": "v1.4.2"})
        self.forge = FakeForge(self.remote, self.hooks)
        self.issues.put("daemon_config", "default", {"active": True})

    def report(self, title: str = BUG[0], body: str = BUG[1], **given: Any) -> int:
        """File a report, a bug in a release unless said otherwise; its number."""
        given.setdefault("kind", "bug")
        if "reporter_git_sha" not in given and "reporter_git_ref" not in given:
            given.setdefault("reporter_app_version", "1.4.2")
        number: int = self.issues.submit(title, body, **given)["issue_number"]
        return number

    def unlocated(self, **given: Any) -> int:
        """A report whose build names no release, so that the reporter has to be asked."""
        return self.report(reporter_app_version="9.9.9", **given)

    def plan_entity(self, number: int) -> Json:
        key = plan_key(self.issues.threads[number]["entity_id"], self.name)
        entity = self.issues.by_key("plan", key)
        if entity is None:
            raise LookupError(f"#{number} has no plan")
        return entity

    def plan(self, number: int) -> Plan:
        return Plan.model_validate(self.plan_entity(number)["fields"])

    def set_plan(self, number: int, **fields: Any) -> Plan:
        """Write a plan as somebody with an operator key could."""
        changed = self.issues.put("plan", self.plan_entity(number)["key"], fields)
        return Plan.model_validate(changed["fields"])

    def pause(self, key: str = "default") -> None:
        self.issues.put("daemon_config", key, {"active": False})

    def resume(self, key: str = "default") -> None:
        self.issues.put("daemon_config", key, {"active": True})

    @property
    def desk(self) -> Desk:
        return Desk(
            issues=self.issues,
            clock=self.clock,
            policy=self.policy,
            name=self.name,
            target=self.forge.target,
            by="ada",
            new_id=self.new_id,
        )

    def new_id(self) -> str:
        return str(UUID(int=next(self._ids)))

    def daemon(
        self,
        host: str = "alpha",
        *,
        policy: Policy | None = None,
        places: int | None = None,
        lease_seconds: float = 30.0,
    ) -> Daemon:
        """One more daemon, with a state folder and an owner of its own."""
        return Daemon(self, host, policy or self.policy, places, lease_seconds)


class Daemon:
    """One daemon's process. `restart` is what follows a crash: the state folder and the owner stay."""

    def __init__(
        self, world: World, host: str, policy: Policy, places: int | None = None, lease_seconds: float = 30.0
    ) -> None:
        self.world = world
        self.host = host
        self.policy = policy
        self.owner = world.new_id()
        self.repository = FakeRepository(world.remote, world.hooks, root=Path("/") / host)
        self.agent = FakeAgent(self.repository.trees, world.hooks, at_work=world.at_work)
        self.verifier = FakeVerifier(world.hooks)
        self._lease_seconds = lease_seconds
        self.transcripts = FakeTranscripts()
        self._places = policy.max_workers if places is None else places
        self.restart()

    def restart(self) -> None:
        world = self.world
        self.switch = Switch(world.issues, world.clock.now, watch_seconds=0.01)
        self.context = Context(
            name=world.name,
            owner=self.owner,
            host=self.host,
            issues=world.issues,
            repository=self.repository,
            agent=self.agent,
            verifier=self.verifier,
            forge=world.forge,
            clock=world.clock,
            switch=self.switch,
            ledger=Ledger(world.issues, world.clock, self.policy, world.name),
            policy=self.policy,
            skill="Fix the bug.",
            lease_seconds=self._lease_seconds,
            agent_timeout_seconds=self.policy.minutes_per_run * 60.0,
            agent_stall_seconds=600.0,
            new_id=world.new_id,
            transcripts=self.transcripts,
            secrets=world.secrets,
        )
        self.worker = Worker(self.context, anyio.CapacityLimiter(self._places))

    def supervisor(self, reconcile_seconds: float = 3_600.0, drain_seconds: float = 5.0) -> Supervisor:
        return Supervisor(
            self.context,
            self.worker,
            reconcile_seconds=reconcile_seconds,
            drain_seconds=drain_seconds,
        )

    async def look(self, number: int) -> bool:
        """Take one issue as far as it goes."""
        return await self.worker.look_at(self.world.issues.threads[number]["entity_id"])

    async def watch(self, number: int) -> None:
        """Look once after the pull request, as each reconcile tick does."""
        entity = self.world.plan_entity(number)
        plan = Plan.model_validate(entity["fields"])
        if watches(plan):
            await watch(self.context, entity, plan)

    async def to_shipit(self, number: int) -> Plan:
        """Through go, up to the question whether to publish."""
        await self.look(number)
        await self.world.desk.go(number)
        await self.look(number)
        return self.world.plan(number)

    async def to_done(self, number: int) -> Plan:
        """Through go and shipit to the end."""
        await self.to_shipit(number)
        await self.world.desk.shipit(number)
        await self.look(number)
        return self.world.plan(number)
