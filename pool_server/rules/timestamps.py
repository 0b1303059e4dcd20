"""Times as the server writes them: RFC 3339 in UTC with microseconds: text order is time order. Pure."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(moment: datetime) -> str:
    """``moment`` (aware) as ``2026-01-31T23:59:59.000000Z``."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
