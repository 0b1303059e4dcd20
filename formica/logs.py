"""Logging: one JSON line an event on stderr. Every string is redacted before it is written."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from pool_server.contract.redaction import CREDENTIAL_KINDS, Redactor

__all__ = ["configure"]


def _redact(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    redactor = Redactor(CREDENTIAL_KINDS)
    return {name: redactor.text(value) if isinstance(value, str) else value for name, value in event.items()}


def configure(level: int = logging.INFO) -> None:
    """Called once by the command line; importing changes nothing."""
    # The webhook receiver's server reports every cut connection with a traceback; ours are the log's lines.
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _redact,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
