"""A webhook target on loopback: keeps what it was sent, answers what it is told, or hangs."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any


@dataclass(frozen=True)
class Delivery:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        """The event inside the envelope."""
        return dict(json.loads(self.body)["data"])


class WebhookReceiver:
    """Answers ``status`` (a number, or a function of the delivery); ``hanging`` paths never answer."""

    def __init__(self, status: int | Callable[[Delivery], int] = 200, host: str = "127.0.0.1") -> None:
        self.status = status
        self.deliveries: list[Delivery] = []
        self._arrived = threading.Condition()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer((host, 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> WebhookReceiver:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Refuses connections from now on."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    @property
    def hanging_url(self) -> str:
        """Takes the request and never answers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/hang"

    def wait_for(
        self, count: int, timeout: float = 10, wanted: Callable[[Delivery], bool] = lambda _: True
    ) -> list[Delivery]:
        """The first ``count`` wanted deliveries, or what there was when the time ran out."""

        def found() -> list[Delivery]:
            return [delivery for delivery in self.deliveries if wanted(delivery)]

        with self._arrived:
            self._arrived.wait_for(lambda: len(found()) >= count, timeout)
            return found()[:count] if len(found()) > count else found()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                headers = {name.lower(): value for name, value in self.headers.items()}
                delivery = Delivery(self.path, headers, body)
                with receiver._arrived:
                    receiver.deliveries.append(delivery)
                    receiver._arrived.notify_all()
                if self.path == "/hang":
                    receiver._released.wait()
                    self.close_connection = True
                    return
                status = receiver.status if isinstance(receiver.status, int) else receiver.status(delivery)
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("location", f"{receiver.url}/followed")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        return Handler
