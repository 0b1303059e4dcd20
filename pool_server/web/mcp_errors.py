"""The MCP SDK's protocol errors in words of our own."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Unechoed"]

_PROTOCOL_ERRORS = {
    -32700: "Parse error: the body is not JSON",
    -32600: "Invalid request: the body must be one JSON-RPC request or notification",
    -32601: "Method not found",
    -32602: "Invalid params: the message does not fit the protocol",
    -32603: "Internal error",
}
_TRANSPORT_ERRORS = {
    404: "Not found: there is no such session",
    405: "Method not allowed",
    406: "Not acceptable: the client must accept application/json",
    415: "Unsupported media type: Content-Type must be application/json",
}
_PROTOCOL_VERSION = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Unechoed:
    """The SDK's protocol errors with texts of our own: its texts repeat what was sent, keys included.

    Id and code stay, and of the data the protocol's versions, which clients need to agree on one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message = {}
        parts: list[bytes] = []

        async def replaced(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start" and _is_json(message):
                start = message
                return
            if not start or message["type"] != "http.response.body":
                await send(message)
                return
            parts.append(message.get("body", b""))
            if message.get("more_body", False):
                return
            body = _without_echo(b"".join(parts), start["status"])
            headers = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
            headers.append((b"content-length", str(len(body)).encode()))
            await send({**start, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, replaced)


def _is_json(start: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"application/json")
        for name, value in start["headers"]
    )


def _without_echo(body: bytes, status: int) -> bytes:
    if b'"error"' not in body:
        return body
    answer = json.loads(body)
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return body
    code = int(error.get("code", 0))
    text = _PROTOCOL_ERRORS.get(code, "The request was refused")
    if code == -32600:
        text = _TRANSPORT_ERRORS.get(status, text)
    answer["error"] = {"code": code, "message": text}
    versions = _versions(error.get("data"))
    if versions:
        answer["error"]["data"] = versions
    return json.dumps(answer, separators=(",", ":")).encode()


def _versions(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict) or not isinstance(data.get("supported"), list):
        return {}
    requested = str(data.get("requested", ""))
    shown = requested if _PROTOCOL_VERSION.fullmatch(requested) else ""
    return {"supported": data["supported"], "requested": shown}
