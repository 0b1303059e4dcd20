"""A fault layer in front of a loopback HTTP server: it forwards, and acts where a rule matches.

A rule names a request and a moment: ``before`` it is forwarded or ``after`` the real server has answered. What a
rule does is a plain function; it may kill a process, or raise `Drop` to cut the connection without an answer.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal
from urllib.parse import urlsplit

Moment = Literal["before", "after"]
Match = Callable[[str, str, Any], bool]
Rewrite = Callable[[str, str, Any], Any]
HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}


class Drop(Exception):
    """Cut this connection: the caller gets no answer."""


@dataclass
class Rule:
    """``act`` runs the first ``times`` times that a request matches at this moment."""

    match: Match
    moment: Moment
    act: Callable[[], None]
    times: int = 1

    def take(self, moment: Moment, method: str, path: str, body: Any) -> bool:
        if self.moment != moment or self.times <= 0 or not self.match(method, path, body):
            return False
        self.times -= 1
        return True


class FaultProxy:
    """Forwards ``url`` to ``target`` (both http on loopback) until closed; ``rewrite`` may change JSON bodies."""

    def __init__(self, target: str, rewrite: Rewrite | None = None) -> None:
        self.target = target
        self.rules: list[Rule] = []
        self.rewrite = rewrite
        self.requests: list[tuple[str, str, Any]] = []
        """Every request as (method, path, JSON body), in order of arrival."""
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def add(self, rule: Rule) -> Rule:
        with self._lock:
            self.rules.append(rule)
        return rule

    def act(self, moment: Moment, method: str, path: str, body: Any) -> None:
        """Run what matches; raises what a rule raises."""
        with self._lock:
            due = [rule for rule in self.rules if rule.take(moment, method, path, body)]
        for rule in due:
            rule.act()

    def note(self, method: str, path: str, body: Any) -> None:
        with self._lock:
            self.requests.append((method, path, body))


def _handler(proxy: FaultProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            return

        def _forward(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            body = _json(raw)
            path = urlsplit(self.path).path
            proxy.note(self.command, path, body)
            try:
                proxy.act("before", self.command, path, body)
                if proxy.rewrite is not None and body is not None:
                    raw = json.dumps(proxy.rewrite(self.command, path, body)).encode()
                status, headers, answer = self._ask(raw)
                proxy.act("after", self.command, path, body)
            except (Drop, OSError, http.client.HTTPException):
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def _ask(self, raw: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            host = urlsplit(proxy.target)
            connection = http.client.HTTPConnection(host.hostname or "", host.port or 80, timeout=75)
            try:
                kept = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
                connection.request(self.command, self.path, body=raw or None, headers=kept)
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            finally:
                connection.close()

        do_GET = do_POST = do_PATCH = _forward

    return Handler


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None
