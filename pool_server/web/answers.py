"""Answers on HTTP, and the one place where a bug becomes an ``ERR_INTERNAL``."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

import structlog
from starlette.responses import JSONResponse

from pool_server.errors import Internal, PoolError, RateLimited, Unavailable
from pool_server.pool import Reply
from pool_server.rules.timestamps import timestamp
from pool_server.web.log import without_values

__all__ = ["Json", "answer", "envelope", "internal", "refusal"]

logger = structlog.get_logger(source="pool_server.web")


class Json(JSONResponse):
    """JSON that no cache keeps: answers carry tokens."""

    def __init__(self, body: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        fixed = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
        super().__init__(body, status, headers={**fixed, **(headers or {})})


def answer(reply: Reply) -> Json:
    """A success, with the entity's version as its ``ETag``."""
    return Json(reply.body, reply.status, None if reply.etag is None else {"etag": f'"{reply.etag}"'})


def envelope(error: PoolError) -> dict[str, Any]:
    """The error body with its time."""
    return error.body(timestamp(datetime.now(UTC)))


def refusal(error: PoolError, headers: dict[str, str] | None = None) -> Json:
    """The error as an HTTP answer."""
    extra = dict(headers or {})
    if isinstance(error, RateLimited | Unavailable):
        extra["retry-after"] = str(error.retry_after)
    if error.status == 401:
        extra["www-authenticate"] = 'Bearer realm="pool"'
    return Json(envelope(error), error.status, extra)


def internal(bug: Exception, operation: str) -> Internal:
    """Logs a bug under a fresh id and gives the refusal that names only the id.

    Neither the exception's text nor any argument is logged: both may hold what the caller sent.
    """
    bug_id = secrets.token_hex(8)
    logger.error("bug", id=bug_id, operation=operation, **without_values(bug))
    return Internal("something went wrong here; the id finds it in the server's log", {"id": bug_id})
