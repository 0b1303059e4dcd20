"""What every effect needs, wired once in `app`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from formica.ports import AgentSession, Clock, Forge, Issues, Repository, Transcripts, Verifier
from formica.rules.pipeline import Event
from formica.rules.policy import Policy
from formica.rules.secret_forms import LiveSecrets
from formica.worker.ledger import Ledger
from formica.worker.switch import Switch

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Context:
    """Ports and plain values; ``owner`` is this daemon's UUID, ``host`` where its worktrees lie."""

    name: str
    owner: str
    host: str
    issues: Issues
    repository: Repository
    agent: AgentSession
    verifier: Verifier
    forge: Forge
    clock: Clock
    switch: Switch
    ledger: Ledger
    policy: Policy
    skill: str
    """Text of skills/process-issues/SKILL.md."""
    lease_seconds: float
    agent_timeout_seconds: float
    agent_stall_seconds: float
    new_id: Callable[[], str]
    """A fresh UUID: leases, delimiters around untrusted text."""
    transcripts: Transcripts
    secrets: LiveSecrets = field(default_factory=LiveSecrets)
    """What must never leave: the daemon's own keys and tokens."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an effect ended: exactly one event, and the plan fields it learned."""

    event: Event
    changes: Json
