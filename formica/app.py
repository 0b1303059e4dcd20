"""Composition root: settings become plain values, adapters are opened in order, and closed in reverse."""

from __future__ import annotations

import getpass
import math
import signal
import socket
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import anyio
import structlog

from formica.adapters import state_folder, systemd
from formica.adapters.agents.command import CommandAgent
from formica.adapters.events import DEFAULT_ENTITY_TYPES, PollIntake, WebhookIntake
from formica.adapters.git import Git
from formica.adapters.isolation import Sandbox
from formica.adapters.local_forge import LocalForge
from formica.adapters.mirror import Mirror
from formica.adapters.pool_client import PoolClient, ServerClock
from formica.adapters.setup_cache import SetupCache
from formica.adapters.transcripts import TranscriptFolder
from formica.adapters.verification import LocalVerifier
from formica.adapters.workspace import GitRepository
from formica.confinement import agent_program, isolation_of, open_sandbox, open_sandboxes
from formica.desk import Desk
from formica.doctor import accepted_key, diagnose
from formica.errors import NeedsOperator, Refused, Retryable
from formica.evidence import TRANSCRIPTS, state_of, stored_change, transcript
from formica.rules.facts import RepositoryFacts
from formica.rules.plan import Plan
from formica.rules.policy import Policy, unattended
from formica.rules.secret_forms import LiveSecrets
from formica.rules.triage import parse_rows, reported_build, triage_row
from formica.settings import (
    ConfigurationError,
    Settings,
    live_secrets,
    network_environment,
    notify_socket,
    passed_variables,
    protected_areas,
    resource,
    search_path,
)
from formica.supervisor import Intake, Supervisor
from formica.worker import Worker
from formica.worker.context import Context
from formica.worker.ledger import Ledger
from formica.worker.switch import Switch

__all__ = [
    "change",
    "check_runnable",
    "doctor",
    "open_desk",
    "policy_of",
    "read_reports",
    "run_daemon",
    "state_of",
    "transcript",
    "triage",
]

Json = dict[str, Any]
AUTHOR_EMAIL = "formica@users.noreply.github.com"
ONCE_SECONDS = 10.0
"""How long a single pass waits for the server."""
log = structlog.get_logger("formica.app")


def policy_of(settings: Settings) -> Policy:
    """The maintainer's limits as the rules take them."""
    chosen = settings.policy.model_dump(exclude={"file", "dirty_tree_policy"})
    return Policy(
        **chosen,
        minutes_per_run=settings.agent.timeout_seconds / 60.0,
        protected=protected_areas(settings),
    )


def source_of(settings: Settings) -> str:
    """Where the repository is fetched from."""
    repository = settings.repository
    if (repository.path is None) == (repository.url is None):
        raise ConfigurationError("repository: set exactly one of path and url")
    return str(repository.path) if repository.path is not None else str(repository.url)


def forge_repository(settings: Settings) -> str:
    """The bare repository that pull requests go to; without one, the repository's own url if it is local."""
    if settings.forge.repository is not None:
        return settings.forge.repository
    url = settings.repository.url
    if url is not None and Path(url.removeprefix("file://")).is_dir():
        return url
    raise ConfigurationError("forge.repository: set the path of the bare repository that pull requests go to")


def check_runnable(settings: Settings) -> None:
    """Everything `run` needs, before anything starts. Blocking: isolation is tried out.

    Raises:
        ConfigurationError: a key is missing, or the agent's program is.
        Refused: the isolation asked for is not there, or an unattended mode has none.
    """
    source_of(settings)
    forge_repository(settings)
    agent_program(settings)
    passed_variables(settings)
    isolation = isolation_of(settings)
    alone = unattended(policy_of(settings))
    if alone and isolation is None and settings.agent.sandbox == "auto":
        raise Refused(
            f"{' and '.join(alone)}: unattended work needs isolation, and bubblewrap (bwrap) is missing or does "
            'not work here ("formica doctor" says why); install it, or set [agent] sandbox = "off" to go without, '
            "or use consent and auto_fix = false",
            rule=alone[0],
        )


@asynccontextmanager
async def open_desk(settings: Settings) -> AsyncIterator[Desk]:
    """The operator's desk over the pool server alone: no repository is needed to say a word."""
    clock = ServerClock()
    async with PoolClient(settings.server.url, settings.server_key, settings.daemon.name, clock) as client:
        await accepted_key(client.check_key(), settings)
        yield Desk(
            issues=client,
            clock=clock,
            policy=policy_of(settings),
            name=settings.daemon.name,
            target=f"local:{forge_repository(settings)}",
            by=f"cli:{getpass.getuser()}",
            new_id=_new_id,
        )


async def run_daemon(settings: Settings, *, once: bool) -> bool:
    """Run until SIGTERM or SIGINT, or with ``once`` until everything open rests. False: not all was done."""
    await anyio.to_thread.run_sync(check_runnable, settings)
    with ExitStack() as held:
        owner = _hold(held, settings.state_folder)
        async with _open_supervisor(settings, owner, once=once) as (supervisor, intake, repository):
            if once:
                rests = await supervisor.run_once()
                await repository.clean()
                return rests
            stop = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(_stop_on_signal, stop)
                group.start_soon(repository.maintain)
                await supervisor.run(intake, stop)
                group.cancel_scope.cancel()
            return True


def _hold(stack: ExitStack, folder: Path) -> str:
    try:
        return stack.enter_context(state_folder.hold(folder))
    except Refused as unusable:
        raise ConfigurationError(str(unusable)) from None


async def _stop_on_signal(stop: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            log.info("stopping")
            stop.set()


@asynccontextmanager
async def _open_supervisor(
    settings: Settings, owner: str, *, once: bool
) -> AsyncIterator[tuple[Supervisor, Intake, GitRepository]]:
    clock = ServerClock()
    name = settings.daemon.name
    policy = policy_of(settings)
    secrets = LiveSecrets(live_secrets(settings))
    async with (
        open_sandboxes(settings) as (sandbox, agents),
        PoolClient(settings.server.url, settings.server_key, name, clock) as client,
    ):
        switch = Switch(client, monotonic)
        with anyio.move_on_after(ONCE_SECONDS if once else math.inf) as patience:
            await accepted_key(client.wait_until_reachable(), settings)
        if patience.cancelled_caught:
            raise Retryable(f"{settings.server.url} did not answer within {ONCE_SECONDS:.0f} s")
        await _first_contact(client, switch, name, owner)
        repository = _repository(settings)
        await repository.recover()
        context = Context(
            name=name,
            owner=owner,
            host=socket.gethostname(),
            issues=client,
            repository=repository,
            agent=CommandAgent(settings.agent.command or [], path=search_path(), sandbox=agents),
            verifier=_verifier(settings, sandbox, await repository.hooks_path()),
            forge=LocalForge(
                client,
                repository=forge_repository(settings),
                server_url=settings.server.url,
                author=name,
                merged=lambda head, base: repository.merged(head_sha=head, base_sha=base),
            ),
            clock=clock,
            switch=switch,
            ledger=Ledger(client, clock, policy, name),
            policy=policy,
            skill=(resource("skills") / "process-issues" / "SKILL.md").read_text(encoding="utf-8"),
            lease_seconds=settings.daemon.lease_seconds,
            agent_timeout_seconds=settings.agent.timeout_seconds,
            agent_stall_seconds=settings.agent.stall_seconds,
            new_id=_new_id,
            transcripts=TranscriptFolder(
                settings.state_folder / TRANSCRIPTS,
                secrets,
                days=settings.daemon.transcript_days,
                total_bytes=settings.daemon.transcript_bytes,
            ),
            secrets=secrets,
        )
        supervisor = Supervisor(
            context,
            Worker(context, anyio.CapacityLimiter(policy.max_workers)),
            reconcile_seconds=settings.daemon.reconcile_seconds,
            drain_seconds=settings.daemon.drain_seconds,
            notify=systemd.notifier(notify_socket()),
        )
        yield supervisor, _intake(settings, client, secrets), repository


def _verifier(settings: Settings, sandbox: Sandbox, hooks_path: str | None) -> LocalVerifier:
    return LocalVerifier(
        _git(settings),
        path=search_path(),
        test_command=settings.repository.test_command,
        setup_command=settings.repository.setup_command,
        hooks_path=hooks_path,
        cache=SetupCache(settings.state_folder / "setup"),
        sandbox=sandbox,
    )


async def _first_contact(client: PoolClient, switch: Switch, name: str, owner: str) -> None:
    """Make the switch, and set the clock by the answer to a first write."""
    await switch.ensure()
    state = await client.create_entity("operator_state", name, {})
    started = {"owner": owner, "host": socket.gethostname()}
    await client.patch_entity(state["entity_id"], {"last_start": started}, version=None)


def _git(settings: Settings) -> Git:
    return Git(settings.state_folder, path=search_path(), network=network_environment())


def _repository(settings: Settings) -> GitRepository:
    state = settings.state_folder
    return GitRepository(
        _git(settings),
        state=state,
        source=source_of(settings),
        push_to=forge_repository(settings),
        author_name=settings.daemon.name,
        author_email=AUTHOR_EMAIL,
        default_branch=settings.repository.default_branch,
        min_free_bytes=settings.daemon.min_free_bytes,
        workspace_bytes=settings.daemon.workspace_bytes,
    )


def read_reports(file: str) -> list[Json]:
    """The reports in a file of JSON or JSON lines; ``-`` is stdin.

    Raises:
        ConfigurationError: an unreadable file, or a line that is not a report.
    """
    try:
        return parse_rows(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"--file: {file} cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise ConfigurationError(f"--file: {error}") from None


async def triage(rows: list[Json], repository: str | None) -> list[Json]:
    """What the rules make of each report, in order; ``repository`` is an absolute path or a URL."""
    if repository is None:
        return [triage_row(row, None) for row in rows]
    if not await anyio.to_thread.run_sync(Path(repository).is_dir):
        raise ConfigurationError(f"--repository: {repository} is not a folder")
    with tempfile.TemporaryDirectory(prefix="formica-triage-") as folder:
        state = Path(folder)
        source = GitRepository(
            Git(state, path=search_path(), network=network_environment()),
            state=state,
            source=repository,
            push_to=repository,
            author_name="formica",
            author_email=AUTHOR_EMAIL,
        )
        try:
            await source.refresh()
        except (Retryable, NeedsOperator) as problem:
            raise ConfigurationError(f"--repository: {problem}") from None
        return [triage_row(row, await _facts(source, row)) for row in rows]


async def _facts(source: GitRepository, row: Json) -> RepositoryFacts:
    build = reported_build(row)
    return await source.facts(sha=build.sha, version=build.named_release, ref=build.ref)


async def change(settings: Settings, plan: Plan) -> Json:
    """The plan's change as it is stored on this host."""
    return await stored_change(settings, plan, _repository(settings))


async def doctor(settings: Settings) -> list[Json]:
    """A row a check: {check, ok, detail}."""
    return await diagnose(
        settings,
        git=_git(settings),
        check_runnable=lambda: check_runnable(settings),
        open_repository=lambda: _repository(settings),
        open_mirror=lambda: Mirror(
            _git(settings),
            settings.state_folder,
            source=source_of(settings),
            default_branch=settings.repository.default_branch,
        ),
        forge=lambda: forge_repository(settings),
        open_sandbox=lambda: open_sandbox(settings),
    )


def _intake(settings: Settings, client: PoolClient, secrets: LiveSecrets) -> Intake:
    events = settings.events
    filters: Json = {
        "entity_types": events.entity_types or DEFAULT_ENTITY_TYPES,
        **({"event_types": events.event_types} if events.event_types else {}),
        **({"entity_ids": events.entity_ids} if events.entity_ids else {}),
    }
    if events.intake == "poll":
        return PollIntake(client, filters, settings.state_folder / "event_cursor")
    host, _, port = events.listen.rpartition(":")
    return WebhookIntake(
        client, host.strip("[]"), int(port), filters, settings.state_folder / "subscription.json", secrets.add
    )


def _new_id() -> str:
    return str(uuid.uuid4())
