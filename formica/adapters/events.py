"""Where events come from: a webhook receiver that subscribes itself, or polling of the log.

Both are hints only. A receiver that cannot listen, a subscription that was switched off, a server that is away:
each is logged, and the reconcile tick goes on without it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from formica.adapters.pool_client import PoolClient
from formica.adapters.state_folder import read_hint, write_hint
from formica.errors import FormicaError
from pool_server.contract.signing import WebhookVerificationError, verified

Json = dict[str, Any]
OnEvent = Callable[[Json], Awaitable[None]]

DEFAULT_ENTITY_TYPES = ["issue", "plan", "daemon_config", "pull_request"]
MAX_BODY = 64 * 1024
BACKLOG = 1_000
CHECK_SECONDS = 30.0

log = structlog.get_logger("formica.events")


class WebhookIntake:
    """Listens on ``host:port`` (0: any free port), subscribes, and checks the subscription again and again.

    ``state_file`` remembers the subscription's id, so that the next start takes the old one away; ``learned``
    is told each secret that the server signs with.
    """

    def __init__(
        self,
        client: PoolClient,
        host: str,
        port: int,
        filters: Json,
        state_file: Path,
        learned: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._host = host
        self._port = port
        self._filters = filters
        self._state_file = state_file
        self._learned = learned
        self._secret: str | None = None
        self._subscription_id: str | None = None

    async def run(self, on_event: OnEvent) -> None:
        send, receive = anyio.create_memory_object_stream[Json](BACKLOG)
        async with anyio.create_task_group() as group, send, receive:
            port = await group.start(self._serve, send)
            if port is None:
                log.error("intake.degraded", listen=f"{self._host}:{self._port}", why="cannot listen there")
            else:
                group.start_soon(self._keep_subscribed, f"http://{self._url_host()}:{port}/")
            try:
                async for event in receive:
                    await _handle(on_event, event)
            finally:
                with anyio.CancelScope(shield=True), anyio.move_on_after(3):
                    await self._leave()

    def _url_host(self) -> str:
        return f"[{self._host}]" if ":" in self._host else self._host

    async def _serve(
        self,
        send: anyio.abc.ObjectSendStream[Json],
        *,
        task_status: anyio.abc.TaskStatus[int | None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        async def receive(request: Request) -> Response:
            return Response(status_code=await self._accept(request, send))

        app = Starlette(routes=[Route("/", receive, methods=["POST"])])
        config = uvicorn.Config(app, host=self._host, port=self._port, log_config=None, lifespan="off")
        try:
            listening = config.bind_socket()
        except SystemExit:  # uvicorn's way to say that the address is taken
            task_status.started(None)
            return
        server = _QuietServer(config)
        task_status.started(listening.getsockname()[1])
        try:
            await server.serve([listening])
        finally:
            listening.close()

    async def _accept(self, request: Request, send: anyio.abc.ObjectSendStream[Json]) -> int:
        """Size, signature, time, shape, in this order; then a hint is queued, or dropped when all are busy."""
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                return 413
        if self._secret is None:
            return 503
        try:
            envelope = verified(self._secret, body, request.headers)
        except WebhookVerificationError:
            return 401
        event = envelope.get("data")
        if not isinstance(event, dict):
            return 400
        with contextlib.suppress(anyio.WouldBlock):
            send.send_nowait(event)  # type: ignore[attr-defined]
        return 204

    async def _keep_subscribed(self, url: str) -> None:
        await self._forget_old()
        while True:
            try:
                if self._subscription_id is None or not await self._client.subscription_active(
                    self._subscription_id
                ):
                    await self._subscribe(url)
            except FormicaError as fault:
                log.warning("intake.subscribe_failed", why=str(fault))
            await anyio.sleep(CHECK_SECONDS if self._subscription_id else 2.0)

    async def _subscribe(self, url: str) -> None:
        answer = await self._client.subscribe(url, self._filters)
        self._secret = answer["secret"]
        self._learned(answer["secret"])
        self._subscription_id = answer["subscription_id"]
        write_hint(self._state_file, json.dumps({"subscription_id": self._subscription_id}))
        log.info("intake.subscribed", subscription_id=self._subscription_id)

    async def _forget_old(self) -> None:
        """A start after a crash: the old subscription points at a port nobody listens on."""
        try:
            old = json.loads(read_hint(self._state_file))["subscription_id"]
            await self._client.unsubscribe(str(old))
        except (ValueError, KeyError, TypeError, FormicaError):
            return

    async def _leave(self) -> None:
        if self._subscription_id is not None:
            with contextlib.suppress(FormicaError):
                await self._client.unsubscribe(self._subscription_id)
            self._state_file.unlink(missing_ok=True)


class PollIntake:
    """Reads the log with a long poll. ``state_file`` remembers the cursor, as a hint where to go on."""

    def __init__(
        self, client: PoolClient, filters: Json, state_file: Path, wait_seconds: float = 20.0
    ) -> None:
        self._client = client
        self._filters = filters
        self._state_file = state_file
        self._wait_seconds = wait_seconds

    async def run(self, on_event: OnEvent) -> None:
        after = self._load()
        while True:
            try:
                page = await self._client.events(after, self._wait_seconds, self._filters)
            except FormicaError as fault:
                log.warning("intake.poll_failed", why=str(fault))
                await anyio.sleep(2.0)
                continue
            for event in page["items"]:
                await _handle(on_event, event)
            if page["next_after"] != after:
                after = page["next_after"]
                write_hint(self._state_file, str(after))

    def _load(self) -> int:
        try:
            return max(int(read_hint(self._state_file)), 0)
        except ValueError:
            return 0


class _QuietServer(uvicorn.Server):
    """Signals belong to the daemon, not to its receiver."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _handle(on_event: OnEvent, event: Json) -> None:
    try:
        await on_event(event)
    except FormicaError as fault:
        log.warning("intake.event_failed", why=str(fault))
