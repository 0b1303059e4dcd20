"""Credentials: their shapes, how a guest token is derived, and what of them is stored. Pure.

A guest token is an HMAC of the server's secret over issue and nonce, so an idempotent replay can return it
while storage holds only its digest. 256 bits each, so a plain digest cannot be searched.
"""

from __future__ import annotations

import base64
import hashlib
import hmac

KEY_PREFIX = "fk_"
GUEST_PREFIX = "gt_"


def api_key(random: bytes) -> str:
    """An API key from at least 20 random bytes."""
    return KEY_PREFIX + _text(random)


def guest_token(secret: bytes, issue_entity_id: str, nonce: str) -> str:
    """The guest token of one grant; the same inputs give the same token."""
    message = f"guest-token\x00{issue_entity_id}\x00{nonce}".encode()
    return GUEST_PREFIX + _text(hmac.new(secret, message, hashlib.sha256).digest())


def digest(credential: str) -> str:
    """What is stored of a credential."""
    return hashlib.sha256(credential.encode("utf-8", "surrogatepass")).hexdigest()


def same_digest(one: str, other: str) -> bool:
    """Constant-time comparison."""
    return hmac.compare_digest(one, other)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
