"""The one way out of a run: a socket to here, and from here to the configured endpoints with the lent key.

A connection begins with a line that holds the endpoint's number, then speaks HTTP/1.1. Nothing a run sends
chooses a host; the key is added here and taken out of whatever an endpoint answers.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

import anyio
import h11
import httpx
import structlog
from anyio.abc import ByteStream, SocketListener

__all__ = ["Broker", "Endpoint", "MaskedStream"]

log = structlog.get_logger("formica.broker")
_SOCKET = "broker"
_PATH_LIMIT = 100
_CONNECTIONS = 32
_REQUEST_LIMIT = 64 << 20
_HEAD_LIMIT = 64 << 10
_CHUNK = 1 << 16
_TIMEOUT = httpx.Timeout(15.0, read=600.0, write=60.0, pool=60.0)
_HOP_BY_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade", "host", "accept-encoding", "expect"),
}
_CREDENTIALS = {"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"}
_GONE = (anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``url`` is http(s), without a slash at its end; everything below it may be asked for. ``secret`` is the
    key as ``header`` carries it."""

    url: str
    header: str = ""
    value: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)


class Broker:
    """``proxy`` is the URL of the host's own way to https endpoints, ``certificates`` a file of authorities
    to trust besides the usual ones."""

    def __init__(
        self, endpoints: Sequence[Endpoint], *, proxy: str | None = None, certificates: str | None = None
    ) -> None:
        self.endpoints = tuple(endpoints)
        self._proxy = proxy
        self._certificates = certificates
        self._clients: list[httpx.AsyncClient] = []

    async def __aenter__(self) -> Self:
        # reads the host's certificate authorities
        self._clients = await anyio.to_thread.run_sync(lambda: [self._client(e) for e in self.endpoints])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.aclose()

    @asynccontextmanager
    async def listen(self, folder: Path) -> AsyncIterator[Path]:
        """Answer at the socket it gives, in ``folder``, for the run it is opened for."""
        bound = await anyio.to_thread.run_sync(_bound_socket, folder / _SOCKET)
        listener = await SocketListener.from_socket(bound)
        places = anyio.CapacityLimiter(_CONNECTIONS)

        async def serve(stream: ByteStream) -> None:
            async with stream, places:
                await self._serve(stream)

        try:
            async with listener, anyio.create_task_group() as group:
                group.start_soon(listener.serve, serve)
                yield folder / _SOCKET
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(lambda: (folder / _SOCKET).unlink(missing_ok=True))

    def _client(self, endpoint: Endpoint) -> httpx.AsyncClient:
        parts = urlsplit(endpoint.url)
        loopback = parts.hostname in ("localhost", "127.0.0.1", "::1")
        verify: ssl.SSLContext | bool = True
        if self._certificates is not None and parts.scheme == "https":
            verify = ssl.create_default_context()
            verify.load_verify_locations(self._certificates)
        return httpx.AsyncClient(
            trust_env=False,
            proxy=self._proxy if parts.scheme == "https" and not loopback else None,
            timeout=_TIMEOUT,
            verify=verify,
            follow_redirects=False,
        )

    async def _serve(self, stream: ByteStream) -> None:
        """One connection; what goes wrong on it ends it and nothing else."""
        with suppress(*_GONE):
            index, rest = await _endpoint_number(stream)
            if index is None or index >= len(self.endpoints):
                return
            exchange = _Exchange(stream, rest, self.endpoints[index], self._clients[index])
            try:
                await exchange.run()
            except (h11.ProtocolError, httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
                log.warning("a request of a run failed", endpoint=index, error=type(error).__name__)


class _Exchange:
    """The requests of one connection, one after the other."""

    def __init__(
        self, stream: ByteStream, received: bytes, endpoint: Endpoint, client: httpx.AsyncClient
    ) -> None:
        self._stream = stream
        self._endpoint = endpoint
        self._client = client
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_LIMIT)
        if received:
            self._http.receive_data(received)

    async def run(self) -> None:
        while True:
            event = await self._next()
            if not isinstance(event, h11.Request):
                return
            refusal = _refusal(event)
            if refusal:
                await self._refuse(403, refusal)
                return
            try:
                await self._forward(event)
            except httpx.HTTPError as error:
                if self._http.our_state is not h11.SEND_RESPONSE:
                    raise  # the answer has begun: cutting it short is all that is left
                await self._refuse(502, f"the endpoint did not answer ({type(error).__name__})")
                return
            if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                return
            self._http.start_next_cycle()

    async def _forward(self, event: h11.Request) -> None:
        request = self._client.build_request(
            event.method.decode("ascii"),
            httpx.URL(self._endpoint.url).copy_with(raw_path=self._raw_path(event)),
            headers=self._headers(event),
            content=self._body(),
        )
        response = await self._client.send(request, stream=True)
        try:
            encoded = response.headers.get("content-encoding", "identity") != "identity"
            if encoded and self._endpoint.secret:
                await self._refuse(502, "the endpoint compressed its answer though it was asked not to")
                return
            await self._answer(response)
        finally:
            await response.aclose()

    async def _answer(self, response: httpx.Response) -> None:
        secret = self._endpoint.secret.encode()
        headers = [
            (name, _masked(value, secret))
            for name, value in response.headers.raw
            if name.lower().decode("latin-1") not in _HOP_BY_HOP
        ]
        await self._send(h11.Response(status_code=response.status_code, headers=headers))
        masked = MaskedStream(secret)
        async for chunk in response.aiter_raw():
            await self._send_data(masked.feed(chunk))
        await self._send_data(masked.end())
        await self._send(h11.EndOfMessage())

    def _raw_path(self, event: h11.Request) -> bytes:
        return urlsplit(self._endpoint.url).path.encode("ascii") + event.target

    def _headers(self, event: h11.Request) -> list[tuple[bytes, bytes]]:
        dropped = _HOP_BY_HOP | (
            {*_CREDENTIALS, self._endpoint.header.lower()} if self._endpoint.value else set()
        )
        kept = [(name, value) for name, value in event.headers if name.decode("latin-1") not in dropped]
        kept.append((b"accept-encoding", b"identity"))
        if self._endpoint.value:
            kept.append((self._endpoint.header.encode("ascii"), self._endpoint.value.encode("latin-1")))
        has_body = any(name in (b"content-length", b"transfer-encoding") for name, _ in event.headers)
        return kept if has_body else [*kept, (b"content-length", b"0")]

    async def _body(self) -> AsyncIterator[bytes]:
        size = 0
        while isinstance(event := await self._next(), h11.Data):
            size += len(event.data)
            if size > _REQUEST_LIMIT:
                raise httpx.WriteError("the request is larger than a run may send")
            yield bytes(event.data)

    async def _next(self) -> h11.Event | None:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            try:
                data = await self._stream.receive(_CHUNK)
            except anyio.EndOfStream:
                data = b""
            self._http.receive_data(data)
        return event if isinstance(event, h11.Event) else None

    async def _refuse(self, status: int, why: str) -> None:
        body = b'{"error": {"type": "formica_broker", "message": "%s"}}\n' % why.encode("ascii")
        headers = [
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        await self._send(h11.Response(status_code=status, headers=headers))
        await self._send_data(body)
        await self._send(h11.EndOfMessage())

    async def _send_data(self, data: bytes) -> None:
        if data:
            await self._send(h11.Data(data=data))

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            await self._stream.send(data)


class MaskedStream:
    """Bytes with every ``secret`` in them replaced by as many stars, wherever the stream is cut."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """What can be passed on: all but an end that may be the beginning of the secret."""
        data = _masked(self._held + chunk, self._secret)
        keep = next(
            (
                n
                for n in range(min(len(self._secret) - 1, len(data)), 0, -1)
                if data.endswith(self._secret[:n])
            ),
            0,
        )
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def end(self) -> bytes:
        held, self._held = self._held, b""
        return held


def _masked(data: bytes, secret: bytes) -> bytes:
    return data.replace(secret, b"*" * len(secret)) if secret else data


def _refusal(event: h11.Request) -> str:
    """Why this request is not passed on, or nothing."""
    target = event.target.decode("latin-1")
    if event.method == b"CONNECT" or not target.startswith("/") or target.startswith("//"):
        return "only paths of the endpoint can be asked for"
    if any(name == b"upgrade" for name, _ in event.headers):
        return "a change of protocol is not passed on"
    path = unquote(unquote(target.partition("?")[0])).replace("\\", "/")
    return "the path must not lead upwards" if ".." in path.split("/") else ""


async def _endpoint_number(stream: ByteStream) -> tuple[int | None, bytes]:
    """The number on the first line, and what came after it."""
    received = b""
    while b"\n" not in received and len(received) < 16:
        received += await stream.receive(_CHUNK)
    line, _, rest = received.partition(b"\n")
    return (int(line) if line.isdigit() and len(line) < 4 else None), rest


def _bound_socket(path: Path) -> socket.socket:
    """A listening socket at ``path``. A socket's name is limited to some hundred bytes, so a longer one is
    bound by its folder's descriptor."""
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX)
    bound.setblocking(False)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        short = len(os.fsencode(path)) <= _PATH_LIMIT
        bound.bind(str(path) if short else f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)
    path.chmod(0o600)
    bound.listen(_CONNECTIONS)
    return bound
