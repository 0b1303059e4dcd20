"""The log: JSON lines on standard error, ours and the libraries', without values that callers sent."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any

import structlog

__all__ = ["configure_logging", "without_values"]

FRAMES = 12


def configure_logging() -> None:
    """Sets up structlog and the standard library's logging; called once, by the process that serves."""
    shared: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _exception_without_values,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
            keep_exc_info=True,
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    # Its warnings repeat headers of the request.
    logging.getLogger("mcp").setLevel(logging.ERROR)


def without_values(error: BaseException) -> dict[str, Any]:
    """An exception as type and frames: its text may hold what a caller sent."""
    frames: list[str] = []
    step: TracebackType | None = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        frames.append(f"{code.co_filename}:{step.tb_lineno} {code.co_name}")
        step = step.tb_next
    return {"exception": type(error).__name__, "frames": frames[-FRAMES:]}


def _exception_without_values(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    error = found[1] if isinstance(found, tuple) else found
    if isinstance(error, BaseException):
        event.update(without_values(error))
    return event
