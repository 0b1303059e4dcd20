"""The one way out of a run: the configured endpoints, with a key the run never holds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from formica.adapters.broker import Broker, Endpoint, MaskedStream
from formica.adapters.isolation import Limits, Sandbox
from tests.fakes.sandboxes import Item, confined

KEY = "sk-live-0123456789"
ASK = """\
import json, os, sys, urllib.request, urllib.error
url = os.environ["FORMICA_MODEL_URL"] + sys.argv[1]
body = sys.argv[2].encode() if len(sys.argv) > 2 else None
request = urllib.request.Request(url, data=body, headers={"Authorization": "Bearer dummy", "X-Mine": "kept"})
try:
    with urllib.request.urlopen(request) as answer: print(answer.status, answer.read().decode())
except urllib.error.HTTPError as error: print(error.code, error.read().decode())
"""


class Model(BaseHTTPRequestHandler):
    """Answers with what it was asked; some paths misbehave."""

    protocol_version = "HTTP/1.1"
    seen: list[dict[str, Any]]

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        asked = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": self.rfile.read(size).decode() if size else self._chunks(),
        }
        self.seen.append(asked)
        if self.path.endswith("/redirect"):
            self._answer(302, b"", Location="http://192.0.2.1/elsewhere")
        elif self.path.endswith("/stream"):
            self._stream()
        elif self.path.endswith("/gzip"):
            self._answer(200, b"not really", **{"Content-Encoding": "gzip"})
        else:
            self._answer(200, json.dumps(asked).encode(), **{"X-Echo": self.headers.get("Authorization", "")})

    do_POST = do_GET

    def _chunks(self) -> str:
        text = ""
        while self.headers.get("Transfer-Encoding") == "chunked":
            size = int(self.rfile.readline(), 16)
            text += self.rfile.read(size).decode()
            self.rfile.readline()
            if not size:
                break
        return text

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (b"data: 1\n\n", KEY[:5].encode(), KEY[5:].encode(), b"\n\n", b""):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        return None


@contextmanager
def serving() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    seen: list[dict[str, Any]] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Server", (Model,), {"seen": seen}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def model() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    with serving() as served:
        yield served


@pytest.fixture
def item(tmp_path: Path) -> Item:
    return Item(tmp_path / "state")


def lending(url: str, header: str = "authorization") -> Endpoint:
    value = f"Bearer {KEY}" if header == "authorization" else KEY
    return Endpoint(f"{url}/v1", header, value, KEY)


async def request(
    socket: Path, target: bytes, *, endpoint: int = 0, head: bytes = b"", verb: bytes = b"GET"
) -> bytes:
    """What the broker answers to a raw request of one connection."""
    async with await anyio.connect_unix(str(socket)) as stream:
        await stream.send(
            b"%d\n%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n" % (endpoint, verb, target, head)
        )
        answer = b""
        with anyio.fail_after(10):
            try:
                while True:
                    answer += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return answer


@pytest.mark.parametrize("header", ["authorization", "x-api-key"])
async def test_the_key_is_lent_and_never_given(
    item: Item, model: tuple[str, list[dict[str, Any]]], header: str
) -> None:
    """Inside, a plain HTTP address works; the endpoint sees the key, the run sees stars where it is echoed."""
    url, seen = model
    async with Broker([lending(url, header)]) as broker:
        for sandbox in (
            confined(broker=broker, variables={"FORMICA_MODEL_URL": (0, "")}),
            Sandbox(limits=Limits(), broker=broker, variables={"FORMICA_MODEL_URL": (0, "")}),
        ):
            result = await item.python(sandbox, ASK, "/messages?a=1", '{"say": "hi"}')
            status, _, body = result.output_tail.partition(" ")
            assert status == "200", result.output_tail
            assert KEY not in result.output_tail
            assert "*" * len(KEY) in body
            asked = seen.pop()
            assert (asked["method"], asked["path"], asked["body"]) == (
                "POST",
                "/v1/messages?a=1",
                '{"say": "hi"}',
            )
            assert KEY in asked["headers"][header]
            assert "dummy" not in json.dumps(asked), "the run's own credentials are not passed on"
            assert asked["headers"]["x-mine"] == "kept"
            assert asked["headers"]["host"] == url.removeprefix("http://")
    assert list((item.root / "run").glob("broker*")) == []


async def test_variables_name_addresses_below_an_endpoint(
    item: Item, model: tuple[str, list[dict[str, Any]]]
) -> None:
    """Each endpoint has a loopback address of the run; a variable may add a path."""
    url, seen = model
    with serving() as (other, others):
        async with Broker([lending(url), Endpoint(other)]) as broker:
            variables = {"FORMICA_MODEL_URL": (0, ""), "REGISTRY": (1, "/packages")}
            code = (
                "import os, urllib.request as u\nfor n in ('FORMICA_MODEL_URL', 'REGISTRY'):\n"
                "  print(os.environ[n].partition('127')[0], u.urlopen(os.environ[n] + '/a').status)\n"
            )
            result = await item.python(confined(broker=broker, variables=variables), code)
    assert result.output_tail == "http:// 200\n" * 2
    assert [asked["path"] for asked in (*seen, *others)] == ["/v1/a", "/packages/a"]
    assert "authorization" not in others[0]["headers"], "the key goes to the first endpoint alone"


async def test_nothing_else_is_reached(tmp_path: Path, model: tuple[str, list[dict[str, Any]]]) -> None:
    """No other host by absolute form, CONNECT, Host, number or a path upwards; redirects come back as they are."""
    url, seen = model
    async with Broker([lending(url)]) as broker, broker.listen(tmp_path) as socket:
        for target in (
            b"http://192.0.2.1/",
            b"//192.0.2.1/",
            b"/a/../../b",
            b"/%2e%2e/b",
            b"/%252e%252e/b",
            b"/a\\..\\b",
            b"*",
        ):
            assert (await request(socket, target)).startswith((b"HTTP/1.1 403", b"HTTP/1.1 400")), target
        assert b"403" in await request(socket, b"192.0.2.1:443", verb=b"CONNECT")
        assert b"403" in await request(socket, b"/a", head=b"Upgrade: websocket\r\n")
        assert await request(socket, b"/a", endpoint=1) == b""
        assert await request(socket, b"/a", endpoint=999) == b""
        assert seen == []
        redirected = await request(socket, b"/redirect")
        assert redirected.startswith(b"HTTP/1.1 302")
        assert len(seen) == 1


async def test_an_answer_streams_and_stays_masked(
    tmp_path: Path, model: tuple[str, list[dict[str, Any]]]
) -> None:
    """Events come as they are sent, the key is masked across their borders, and compression is refused."""
    async with Broker([lending(model[0])]) as broker, broker.listen(tmp_path) as socket:
        streamed = await request(socket, b"/stream")
        assert b"data: 1" in streamed
        assert streamed.count(b"*") == len(KEY)
        assert KEY.encode() not in streamed.replace(b"\r\n", b"")
        echoed = await request(socket, b"/echo")
        assert KEY.encode() not in echoed, "not in headers either"
        assert b"X-Echo" in echoed
        assert (await request(socket, b"/gzip")).startswith(b"HTTP/1.1 502")


async def test_a_silent_endpoint_is_an_answer(tmp_path: Path) -> None:
    """Nobody listens there: 502 with a reason, and the broker goes on."""
    async with Broker([lending("http://127.0.0.1:1")]) as broker, broker.listen(tmp_path) as socket:
        for _ in range(2):
            assert (await request(socket, b"/a")).startswith(b"HTTP/1.1 502")


async def test_rubbish_ends_one_connection_only(
    tmp_path: Path, model: tuple[str, list[dict[str, Any]]]
) -> None:
    """Neither a missing number nor broken HTTP disturbs the next request."""
    async with Broker([lending(model[0])]) as broker, broker.listen(tmp_path) as socket:
        for sent in (
            b"\n",
            b"x" * 100,
            b"0\n\x00\x01\r\n\r\n",
            b"0\nGET / HTTP/1.1\r\n",
            b"0\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab",
        ):
            async with await anyio.connect_unix(str(socket)) as stream:
                await stream.send(sent)
        assert (await request(socket, b"/a")).startswith(b"HTTP/1.1 200")


async def test_a_long_path_is_no_obstacle(tmp_path: Path, model: tuple[str, list[dict[str, Any]]]) -> None:
    """A state folder deeper than a socket's name may be long works all the same."""
    item = Item(tmp_path / ("deep" * 20) / ("deeper" * 12))
    async with Broker([lending(model[0])]) as broker:
        variables = {"FORMICA_MODEL_URL": (0, "")}
        for sandbox in (
            confined(broker=broker, variables=variables),
            Sandbox(limits=Limits(), broker=broker, variables=variables),
        ):
            assert (await item.python(sandbox, ASK, "/a")).output_tail.startswith("200")


async def test_many_requests_at_once(tmp_path: Path, model: tuple[str, list[dict[str, Any]]]) -> None:
    """Connections are kept, and served side by side."""
    async with Broker([lending(model[0])]) as broker, broker.listen(tmp_path) as socket:
        answers: list[bytes] = []

        async def ask() -> None:
            answers.append(await request(socket, b"/a"))

        async with anyio.create_task_group() as group:
            for _ in range(40):
                group.start_soon(ask)
    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 200"] * 40


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 100])
def test_the_mask_holds_wherever_the_stream_is_cut(cut: int) -> None:
    """As many stars as the secret has characters, everything else untouched, nothing kept back at the end."""
    text = f"a{KEY}b{KEY[:-1]}c{KEY}{KEY}{KEY[:3]}".encode()
    masked = MaskedStream(KEY.encode())
    out = b"".join(masked.feed(text[at : at + cut]) for at in range(0, len(text), cut)) + masked.end()
    assert out == text.replace(KEY.encode(), b"*" * len(KEY))
    assert MaskedStream(b"").feed(b"text") == b"text"


def test_the_key_is_in_no_representation() -> None:
    """Printing or logging an endpoint shows its address alone."""
    assert KEY not in repr(lending("http://model"))
    assert httpx.URL(lending("http://model").url).path == "/v1"
