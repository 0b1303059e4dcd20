"""Where credentials are looked for, and who is calling. The same for HTTP and MCP.

Only headers, a body's ``guest_access_token`` and, on MCP, the ``api_key`` argument: never the query string.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pool_server.pool import Presented

__all__ = ["NOTHING_PRESENTED", "presented_in_headers", "with_guest_token", "with_key"]

NOTHING_PRESENTED = Presented(keys=(), guest_tokens=(), unclassified=())


def presented_in_headers(headers: Iterable[tuple[bytes, bytes]]) -> Presented:
    """Every credential in ASGI headers; a blank one, or another scheme than Bearer, counts as a wrong one."""
    keys: list[str] = []
    guest_tokens: list[str] = []
    unclassified: list[str] = []
    for name, raw in headers:
        value = raw.decode("latin-1").strip()
        if name == b"x-api-key":
            target = keys
        elif name == b"x-guest-token":
            target = guest_tokens
        elif name == b"authorization":
            target = unclassified
            value = _bearer(value)
        else:
            continue
        (target if value else unclassified).append(value)
    if not (keys or guest_tokens or unclassified):
        return NOTHING_PRESENTED
    return Presented(tuple(keys), tuple(guest_tokens), tuple(unclassified))


def _bearer(value: str) -> str:
    scheme, _, credential = value.partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""


def with_guest_token(presented: Presented, token: str) -> Presented:
    """Also the token a body carried."""
    return replace(presented, guest_tokens=(*presented.guest_tokens, token))


def with_key(presented: Presented, key: str) -> Presented:
    """Also the key an MCP argument carried."""
    return replace(presented, keys=(*presented.keys, key))
