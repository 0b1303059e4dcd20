"""The error envelope. Source: the wire contract, section 1."""

from __future__ import annotations

from typing import Any, Literal

from pool_server.contract.models.common import Output

ErrorCode = Literal[
    "ERR_VALIDATION",
    "ERR_UNKNOWN_FIELD",
    "ERR_REPORTER_ENVIRONMENT_REQUIRED",
    "ERR_AUTH_REQUIRED",
    "ERR_AUTH_INVALID",
    "ERR_FORBIDDEN",
    "ERR_NOT_FOUND",
    "ERR_METHOD",
    "ERR_MEDIA_TYPE",
    "ERR_IDEMPOTENCY_MISMATCH",
    "ERR_CONFLICT",
    "ERR_VERSION_MISMATCH",
    "ERR_IF_MATCH_REQUIRED",
    "ERR_TOO_LARGE",
    "ERR_CONTENT_REJECTED",
    "ERR_RATE_LIMITED",
    "ERR_UNAVAILABLE",
    "ERR_INTERNAL",
]


class ErrorBody(Output):
    error_code: ErrorCode
    message: str
    details: dict[str, Any]
    timestamp: str
