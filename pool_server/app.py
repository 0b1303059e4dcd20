"""The composition root: settings in, a running server out. Settings stop here."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import secrets
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FrameType

import anyio
import anyio.to_thread
import structlog
import uvicorn
from fastapi import FastAPI
from starlette.exceptions import HTTPException

from pool_server.delivery.sse import EventStreams
from pool_server.delivery.webhooks import Webhooks
from pool_server.pool import Pool, PoolPolicy, Presented
from pool_server.rules.access import Caller
from pool_server.settings import Settings
from pool_server.storage import StorageError
from pool_server.storage.sqlite import open_store
from pool_server.web.connections import Gate, GatedProtocol
from pool_server.web.front import FrontDoor, HostGuard, is_loopback
from pool_server.web.log import configure_logging, without_values
from pool_server.web.mcp import build_server, mcp_routes
from pool_server.web.openapi import document
from pool_server.web.rest import HTTP_ROUTES, STREAM_ROUTE, refuse_unrouted, rest_routes
from pool_server.web.services import Services

__all__ = ["CannotServe", "create_app", "open_pool", "package_version", "serve"]

SECRET_BYTES = 32
PRUNE_SECONDS = 3600
GRACE_SECONDS = 10
BACKLOG = 2048
RESTART_SECONDS = 1
# For the database, deliveries and what else is no connection of a client.
FILES_KEPT = 128
FEWEST_PLACES = 16

logger = structlog.get_logger(source="pool_server")


class CannotServe(Exception):
    """Why the server does not start, in one line, with the exit code of the contract."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def package_version() -> str:
    """The installed version; from a bare checkout ``0``."""
    try:
        return version("formica")
    except PackageNotFoundError:
        return "0"


# --- the state folder -----------------------------------------------------------------------------------


def prepare_state(folder: Path) -> None:
    """Makes the folder, for its owner only. One that already holds other things keeps its mode: everything
    written into it is 0600 by itself.

    Raises:
        CannotServe: it cannot be made or written to.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not any(folder.iterdir()) or (folder / "server.secret").exists():
            folder.chmod(0o700)
    except OSError as denied:
        raise CannotServe(f"state folder {folder}: {denied.strerror}") from None


def server_secret(folder: Path) -> bytes:
    """The secret guest tokens are derived from; made at first use.

    Raises:
        CannotServe: the file cannot be read or is not one of ours.
    """
    path = folder / "server.secret"
    try:
        if not path.exists():
            write_private(path, secrets.token_bytes(SECRET_BYTES), replace=False)
        found = path.read_bytes()
    except OSError as denied:
        raise CannotServe(f"{path}: {denied.strerror}") from None
    if len(found) != SECRET_BYTES:
        raise CannotServe(f"{path}: not {SECRET_BYTES} bytes; restore it, or all guest tokens are void")
    return found


def write_private(path: Path, content: bytes, *, replace: bool) -> None:
    """Writes a 0600 file that appears whole or not at all; without ``replace`` the first writer wins."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            temporary.replace(path)
            return
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            return
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def only_server(folder: Path) -> Iterator[None]:
    """Holds the state folder: two servers would deliver every webhook twice.

    Raises:
        CannotServe: another process holds it (75: it may be stopping).
    """
    with (folder / "server.lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotServe(f"state folder {folder} is in use by another pool-server", 75) from None
        yield


async def first_operator_key(pool: Pool, folder: Path) -> None:
    """Without any operator key: makes one and leaves it in a file; the log says where, never what."""
    if await pool.has_operator_key():
        return
    path = folder / "operator.key"
    key = await pool.create_key("operator", None, "verified")
    await anyio.to_thread.run_sync(lambda: write_private(path, f"{key}\n".encode(), replace=True))
    logger.info("operator key written", path=str(path))


# --- the pool and the application -----------------------------------------------------------------------


@asynccontextmanager
async def open_pool(settings: Settings) -> AsyncIterator[Pool]:
    """The pool on its database, for the server and for the command line.

    Raises:
        CannotServe: the state folder or the database cannot be used.
    """
    await anyio.to_thread.run_sync(prepare_state, settings.state)
    secret = await anyio.to_thread.run_sync(server_secret, settings.state)
    try:
        store = await anyio.to_thread.run_sync(open_store, settings.database_path)
    except StorageError as unusable:
        raise CannotServe(str(unusable)) from None
    try:
        pool = Pool(store, _policy(settings), token_secret=secret, clock=_now)
        await pool.start()
        yield pool
    finally:
        with anyio.CancelScope(shield=True):
            await store.close()


def create_app(settings: Settings, services: Services | None = None) -> FastAPI:
    """The ASGI application; its lifespan owns the database, the deliveries and every task.

    Args:
        services: given by ``serve``, which sets ``closing`` when the process is asked to stop.
    """
    services = services or Services()
    hosts = HostGuard(settings.host, settings.allowed_hosts)
    mcp_server = build_server(services, version=package_version())
    mcp = mcp_routes(mcp_server, hosts)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        stopping = anyio.Event()
        async with open_pool(settings) as pool, mcp_server.session_manager.run():
            await first_operator_key(pool, settings.state)
            webhooks = Webhooks(
                pool,
                timeout=settings.webhook_timeout_seconds,
                private_allowed=settings.allow_private_webhooks,
                clock=_now,
            )
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_kept_running, "webhooks", webhooks.run, stopping)
                tasks.start_soon(_kept_running, "prune", lambda stop: _prune(pool, stop), stopping)
                services.start(pool, EventStreams(pool, services.closing, monotonic=time.monotonic))
                try:
                    yield
                finally:
                    services.stop()
                    stopping.set()

    async def authenticate(presented: Presented, address: str, client: str) -> Caller:
        return await services.pool.authenticate(presented, address=address, surface="http", client=client)

    app = FastAPI(
        title="formica pool",
        version=package_version(),
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    app.router.routes.extend([*rest_routes(services), *mcp])
    app.add_exception_handler(HTTPException, refuse_unrouted(app.router.routes))
    app.add_middleware(FrontDoor, hosts=hosts, authenticate=authenticate)
    described = document(HTTP_ROUTES, STREAM_ROUTE, title=app.title, version=app.version)
    app.openapi = lambda: described  # type: ignore[method-assign]
    return app


def _policy(settings: Settings) -> PoolPolicy:
    return PoolPolicy(
        product_version=settings.product_version,
        guest_ttl_seconds=settings.guest_ttl_seconds,
        allow_anonymous_submit=settings.allow_anonymous_submit,
        allow_private_webhooks=settings.allow_private_webhooks,
        rate_anonymous_per_minute=settings.rate_anonymous_per_minute,
        rate_guest_per_minute=settings.rate_guest_per_minute,
        rate_posts_per_minute=settings.rate_posts_per_minute,
        rate_votes_per_minute=settings.rate_votes_per_minute,
        rate_joins_per_hour=settings.rate_joins_per_hour,
        event_retention_days=settings.event_retention_days,
    )


def _now() -> datetime:
    return datetime.now(UTC)


async def _prune(pool: Pool, stopping: anyio.Event) -> None:
    while not stopping.is_set():
        await pool.prune()
        with anyio.move_on_after(PRUNE_SECONDS):
            await stopping.wait()


async def _kept_running(
    name: str, task: Callable[[anyio.Event], Awaitable[None]], stopping: anyio.Event
) -> None:
    """A bug in a background task must not take requests down with it: logged, and started again."""
    while not stopping.is_set():
        try:
            await task(stopping)
        except Exception as bug:  # noqa: BLE001 -- the root of the background side
            logger.error("background task failed", task=name, **without_values(bug))
            with anyio.move_on_after(RESTART_SECONDS):
                await stopping.wait()


# --- the process ----------------------------------------------------------------------------------------


class _Server(uvicorn.Server):
    """Ends open streams when asked to stop: the lifespan's end would come only after the last connection."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event) -> None:
        super().__init__(config)
        self._closing = closing
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._closing.set)
        super().handle_exit(sig, frame)


def serve(settings: Settings) -> int:
    """Runs the server until SIGTERM or SIGINT; the exit code.

    Raises:
        CannotServe: it does not start, with the exit code that says why.
    """
    configure_logging()
    prepare_state(settings.state)
    with only_server(settings.state):
        anyio.run(_refuse_open_door, settings)
        listener = _listen(settings.host, settings.port)
        services = Services()
        return anyio.run(_serve, settings, listener, create_app(settings, services), services.closing)


async def _refuse_open_door(settings: Settings) -> None:
    async with open_pool(settings) as pool:
        if not is_loopback(settings.host) and not await pool.has_operator_key():
            raise CannotServe(
                f"refusing to bind {settings.host} without an operator key; first run: "
                f"pool-server key create --role operator --state {settings.state}",
                3,
            )


def _gate(settings: Settings) -> Gate:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def places() -> int:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        possible = [settings.max_connections] if settings.max_connections else []
        if files != resource.RLIM_INFINITY:
            possible.append(max(FEWEST_PLACES, files - FILES_KEPT))
        return min(possible, default=sys.maxsize)

    return Gate(
        places=places,
        per_address=settings.max_connections_per_address,
        trusted=settings.trusted_proxies,
        seconds=settings.request_timeout_seconds,
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it an answer takes 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as denied:
        raise CannotServe(f"cannot listen on {host}:{port}: {denied.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as denied:
        listener.close()
        raise CannotServe(f"cannot listen on {host}:{port}: {denied.strerror}") from None
    listener.setblocking(False)
    return listener


async def _serve(settings: Settings, listener: socket.socket, app: FastAPI, closing: anyio.Event) -> int:
    config = uvicorn.Config(
        app,
        http=partial(GatedProtocol, gate=_gate(settings)),  # type: ignore[arg-type]
        log_config=None,
        access_log=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=60,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config, closing)
    port = listener.getsockname()[1]
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    logger.info("listening", url=f"http://{shown}:{port}", state=str(settings.state))
    # uvicorn raises the signal again once it has stopped: with these a clean stop is exit 0.
    for stop_signal in (signal.SIGTERM, signal.SIGINT):
        signal.signal(stop_signal, lambda *_: None)
    await server.serve(sockets=[listener])
    logger.info("stopped")
    return 0 if server.started else 1
