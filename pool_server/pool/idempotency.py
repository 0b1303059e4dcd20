"""One answer for one idempotency key: kept 30 days, scoped to the caller, without tokens or secrets.

Scope and key are stored as fingerprints: an anonymous scope is an address, and a key may be anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from pool_server.contract.models import Input
from pool_server.errors import IdempotencyMismatch
from pool_server.pool.shapes import Reply
from pool_server.pool.vault import Vault
from pool_server.pool.work import Work
from pool_server.rules.access import Caller, idempotency_scope
from pool_server.rules.timestamps import timestamp
from pool_server.storage import Connection
from pool_server.storage import tables as t

KEPT = timedelta(days=30)
# Where an answer may carry a secret.
_SECRET_FIELDS = ("guest_access_token", "secret")

_C = t.idempotency.c
_FIND = sa.select(_C.content_hash, _C.status, _C.body, _C.etag, _C.secret, _C.created_at).where(
    _C.scope == sa.bindparam("wanted_scope"), _C.key == sa.bindparam("wanted_key")
)
_DELETE = sa.delete(t.idempotency).where(
    _C.scope == sa.bindparam("wanted_scope"), _C.key == sa.bindparam("wanted_key")
)
_INSERT = sa.insert(t.idempotency)


@dataclass(frozen=True, slots=True)
class Claim:
    """What one call says about itself: whose, which key, for what content."""

    scope: str
    key: str
    content_hash: str


def claim(vault: Vault, operation: str, caller: Caller, args: Input) -> Claim | None:
    """The call's claim, if it carries a key. The content is what was sent, without credentials."""
    key = getattr(args, "idempotency_key", None)
    if key is None:
        return None
    content = args.model_dump(
        mode="json", exclude_defaults=True, exclude={"guest_access_token", "idempotency_key"}
    )
    canonical = json.dumps([operation, content], sort_keys=True)
    return Claim(
        vault.fingerprint(idempotency_scope(caller)), vault.fingerprint(key), vault.fingerprint(canonical)
    )


def replay(work: Work, made: Claim, refill: Callable[[Connection, dict[str, Any]], str]) -> Reply | None:
    """The first answer again, if there is one.

    Raises:
        IdempotencyMismatch: the key was used for other content.
    """
    where = {"wanted_scope": made.scope, "wanted_key": made.key}
    found = work.connection.execute(_FIND, where).one_or_none()
    if found is None:
        return None
    if found.created_at < timestamp(work.now - KEPT):
        work.connection.execute(_DELETE, where)
        return None
    if found.content_hash != made.content_hash:
        raise IdempotencyMismatch("this idempotency key was used with another request")
    body = dict(found.body)
    if found.secret is not None:
        body[found.secret["field"]] = refill(work.connection, found.secret)
    return Reply(found.status, body, found.etag)


def keep(work: Work, made: Claim, reply: Reply) -> None:
    """Store the answer without its secret, and how to make that again."""
    body = dict(reply.body)
    secret = None
    for field in _SECRET_FIELDS:
        if work.secret is not None and field in body:
            body[field] = ""
            secret = {**work.secret, "field": field}
    work.connection.execute(
        _INSERT,
        {
            "scope": made.scope,
            "key": made.key,
            "content_hash": made.content_hash,
            "status": reply.status,
            "body": body,
            "etag": reply.etag,
            "secret": secret,
            "created_at": work.at,
        },
    )


def prune(connection: Connection, now: datetime) -> None:
    """Forget keys older than 30 days."""
    connection.execute(sa.delete(t.idempotency).where(_C.created_at < timestamp(now - KEPT)))
