"""Standard Webhooks signatures, for the sender and the receiver. Source: standardwebhooks.com."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

__all__ = ["SECRET_PREFIX", "WebhookVerificationError", "encode_secret", "signed", "verified"]

SECRET_PREFIX = "whsec_"  # noqa: S105 -- the public prefix of the format, not a secret


def encode_secret(raw: bytes) -> str:
    """The shareable form of a secret: ``whsec_`` + base64."""
    return SECRET_PREFIX + base64.b64encode(raw).decode("ascii")


def signed(secret: str, message_id: str, at: datetime, body: str) -> dict[str, str]:
    """The three headers for one attempt; ``at`` is the time of the attempt."""
    at_utc = at.astimezone(UTC)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at_utc.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, at_utc, body),
    }


def verified(secret: str, body: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    """The body as JSON if the signature and the time window (5 minutes) hold.

    Raises:
        WebhookVerificationError: missing header, bad signature, or a timestamp out of the window.
    """
    try:
        Webhook(secret).verify(body, dict(headers))
        decoded = json.loads(body)
    except ValueError as malformed:  # the library lets a signature header without a comma through as this
        raise WebhookVerificationError("malformed signature or body") from malformed
    if not isinstance(decoded, dict):
        raise WebhookVerificationError("the body is not an object")
    return decoded
