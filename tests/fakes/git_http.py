"""A bare repository over HTTP with Basic authentication, by git's own `http-backend`.

While a request is served, and its client therefore alive, ``argument_leaks`` collects every process of this
host whose command line holds one of the watched texts.
"""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

from tests.fakes.repositories import PATH


class GitHttp:
    """``root`` holds the bare repositories; ``user`` and ``password`` are asked for."""

    def __init__(self, root: Path, *, user: str, password: str) -> None:
        self.root = root
        self.expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self.watched = (password.encode(), base64.b64encode(f"{user}:{password}".encode()))
        self.argument_leaks: list[bytes] = []
        self.answered: list[int] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner._serve(self)

            def do_POST(self) -> None:
                owner._serve(self)

            def log_message(self, format: str, *arguments: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, name: str, credential: str = "") -> str:
        return f"http://{credential}{'@' if credential else ''}127.0.0.1:{self.port}/{name}"

    def __enter__(self) -> GitHttp:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if any(text in arguments for text in self.watched):
                self.argument_leaks.append(arguments)
        body = request.rfile.read(int(request.headers.get("content-length") or 0))
        if request.headers.get("authorization") != self.expected:
            self.answered.append(401)
            request.send_response(401)
            request.send_header("www-authenticate", 'Basic realm="git"')
            request.send_header("content-length", "0")
            request.end_headers()
            return
        status, headers, content = self._backend(request, body)
        self.answered.append(status)
        request.send_response(status)
        for name, value in headers:
            request.send_header(name, value)
        request.send_header("content-length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)

    def _backend(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        parts = urlsplit(request.path)
        environment = {
            "PATH": PATH,
            "HOME": os.devnull,
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "http.receivepack",
            "GIT_CONFIG_VALUE_1": "true",
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
            "REQUEST_METHOD": request.command,
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "REMOTE_USER": "tester",
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, capture_output=True, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = [
            (name.strip(), value.strip())
            for name, _, value in (line.partition(":") for line in head.decode().split("\r\n"))
        ]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        return status, [pair for pair in headers if pair[0] != "Status"], content
