"""Everything the server refuses, as one tree; one table maps it to HTTP and MCP alike.

PoolError (error_code, status)
├── ValidationFailed, UnknownField, ReporterEnvironmentRequired     400
├── AuthRequired, AuthInvalid                                       401
├── Forbidden                                                       403
├── NotFound                                                        404
├── MethodNotAllowed, UnsupportedMediaType                          405, 415
├── IdempotencyMismatch, Conflict                                   409
├── VersionMismatch, IfMatchRequired                                412, 428
├── TooLarge                                                        413
├── ContentRejected                                                 422
├── RateLimited, Unavailable (retry_after seconds)                  429, 503
└── Internal                                                        500
"""

from __future__ import annotations

from typing import Any, ClassVar

from pool_server.contract.models import ErrorBody, ErrorCode


class PoolError(Exception):
    """A refusal with its wire form. ``message`` is for people and never echoes a secret."""

    error_code: ClassVar[ErrorCode] = "ERR_INTERNAL"
    status: ClassVar[int] = 500

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}

    def body(self, timestamp: str) -> dict[str, Any]:
        """The error envelope, the same on every surface."""
        return ErrorBody(
            error_code=self.error_code, message=self.message, details=self.details, timestamp=timestamp
        ).model_dump()


class ValidationFailed(PoolError):
    """``fields`` maps a field's path to the reason, each in words."""

    error_code = "ERR_VALIDATION"
    status = 400

    def __init__(self, message: str, fields: dict[str, str]) -> None:
        listed = [{"field": name, "reason": reason} for name, reason in fields.items()]
        super().__init__(message, {"fields": listed})


class UnknownField(PoolError):
    error_code = "ERR_UNKNOWN_FIELD"
    status = 400

    def __init__(self, unknown: list[str], allowed: list[str]) -> None:
        super().__init__(
            f"unknown field {', '.join(unknown)}",
            {"unknown_fields": unknown, "allowed_fields": allowed},
        )


class ReporterEnvironmentRequired(PoolError):
    error_code = "ERR_REPORTER_ENVIRONMENT_REQUIRED"
    status = 400

    def __init__(self) -> None:
        super().__init__(
            "say which build this is about: reporter_git_sha or reporter_app_version",
            {"acceptable_field_groups": [["reporter_git_sha"], ["reporter_app_version"]]},
        )


class AuthRequired(PoolError):
    error_code = "ERR_AUTH_REQUIRED"
    status = 401


class AuthInvalid(PoolError):
    """``reason``: unknown, expired or revoked. Never downgraded to anonymous."""

    error_code = "ERR_AUTH_INVALID"
    status = 401

    def __init__(self, reason: str) -> None:
        super().__init__(f"the credential presented is {reason}", {"reason": reason})


class Forbidden(PoolError):
    error_code = "ERR_FORBIDDEN"
    status = 403


class NotFound(PoolError):
    error_code = "ERR_NOT_FOUND"
    status = 404


class MethodNotAllowed(PoolError):
    error_code = "ERR_METHOD"
    status = 405


class UnsupportedMediaType(PoolError):
    error_code = "ERR_MEDIA_TYPE"
    status = 415


class IdempotencyMismatch(PoolError):
    error_code = "ERR_IDEMPOTENCY_MISMATCH"
    status = 409


class Conflict(PoolError):
    error_code = "ERR_CONFLICT"
    status = 409


class VersionMismatch(PoolError):
    error_code = "ERR_VERSION_MISMATCH"
    status = 412

    def __init__(self, current_version: int) -> None:
        super().__init__(f"the entity is at version {current_version}", {"current_version": current_version})


class IfMatchRequired(PoolError):
    error_code = "ERR_IF_MATCH_REQUIRED"
    status = 428

    def __init__(self, current_version: int) -> None:
        super().__init__(
            'send If-Match with the version you read, or "*"', {"current_version": current_version}
        )


class TooLarge(PoolError):
    error_code = "ERR_TOO_LARGE"
    status = 413


class ContentRejected(PoolError):
    error_code = "ERR_CONTENT_REJECTED"
    status = 422


class RateLimited(PoolError):
    error_code = "ERR_RATE_LIMITED"
    status = 429

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, {"retry_after": retry_after})
        self.retry_after = retry_after


class Unavailable(PoolError):
    error_code = "ERR_UNAVAILABLE"
    status = 503

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message, {"retry_after": retry_after})
        self.retry_after = retry_after


class Internal(PoolError):
    error_code = "ERR_INTERNAL"
    status = 500
