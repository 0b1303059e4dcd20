"""Guest grants: one issue, one nonce, one expiry; the token itself is never stored."""

from __future__ import annotations

import secrets
from datetime import timedelta

import sqlalchemy as sa

from pool_server.contract import models as m
from pool_server.pool import threads
from pool_server.pool.shapes import Reply
from pool_server.pool.vault import Vault
from pool_server.pool.work import Work
from pool_server.rules import access, tokens
from pool_server.rules.timestamps import timestamp
from pool_server.storage import tables as t

_INSERT = sa.insert(t.guest_grants)


def mint(work: Work, issue_entity_id: str) -> tuple[str, str]:
    """A fresh token for one issue, and when it expires."""
    nonce = secrets.token_hex(16)
    token = work.vault.guest_token(issue_entity_id, nonce)
    expires_at = timestamp(work.now + timedelta(seconds=work.policy.guest_ttl_seconds))
    work.connection.execute(
        _INSERT,
        {
            "digest": tokens.digest(token),
            "issue_entity_id": issue_entity_id,
            "nonce": nonce,
            "created_at": work.at,
            "expires_at": expires_at,
        },
    )
    work.secret = {"kind": "guest", "issue_entity_id": issue_entity_id, "nonce": nonce}
    return token, expires_at


def remint(vault: Vault, kept: dict[str, str]) -> str:
    """The token of an earlier grant, for a replay."""
    return vault.guest_token(kept["issue_entity_id"], kept["nonce"])


def renew_guest_access(work: Work, args: m.RenewGuestAccess) -> Reply:
    """A fresh token for the caller's own thread; the old one stays valid until it expires.

    Raises:
        Forbidden, NotFound: another thread is named.
    """
    if args.entity_id is None and args.issue_number is None:
        args = args.model_copy(update={"entity_id": work.caller.issue_entity_id})
    issue = threads.locate(work.connection, work.caller, args, access.require_readable)
    token, expires_at = mint(work, issue.entity_id)
    return Reply(
        200,
        {
            "entity_id": issue.entity_id,
            "issue_number": issue.number,
            "guest_access_token": token,
            "guest_access_expires_at": expires_at,
        },
    )
