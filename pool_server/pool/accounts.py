"""API keys and who presents what. A key is shown once and stored as a digest."""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from pool_server.contract.models import Role, Tier
from pool_server.errors import AuthInvalid, Conflict, NotFound, ValidationFailed
from pool_server.pool.screening import holds_credential
from pool_server.pool.shapes import Presented
from pool_server.rules import tokens
from pool_server.rules.access import Caller, Surface
from pool_server.rules.timestamps import timestamp
from pool_server.storage import Connection
from pool_server.storage import tables as t

_HANDLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# What events call those who have no handle.
_RESERVED = frozenset(("anonymous", "guest", "daemon", "operator", "reporter", "forge", "server"))

_K = t.api_keys.c
_G = t.guest_grants.c
_KEY = sa.select(t.api_keys).where(_K.digest == sa.bindparam("wanted"))
_GRANT = (
    sa.select(t.guest_grants, t.entities.c.removed_at)
    .join(t.entities, t.entities.c.entity_id == _G.issue_entity_id)
    .where(_G.digest == sa.bindparam("wanted"))
)


def identify(
    connection: Connection,
    presented: Presented,
    now: datetime,
    *,
    address: str,
    surface: Surface,
    client: str,
) -> Caller:
    """The caller, after every credential presented was found valid; a guest token decides over a key.

    Raises:
        AuthInvalid: any of them is unknown, expired or revoked.
    """
    at = timestamp(now)
    keys: list[Any] = []
    guests: list[Any] = []
    for kind, credential in _classified(presented):
        found = _key(connection, credential) if kind == "key" else _grant(connection, credential, at)
        (keys if kind == "key" else guests).append(found)
    if guests:
        grant = guests[0]
        return Caller(
            "guest", "guest", "anon", address, surface, client,
            token_digest=grant.digest, issue_entity_id=grant.issue_entity_id,
        )  # fmt: skip
    if keys:
        key = keys[0]
        tier: Tier = "verified" if key.role == "operator" else key.tier
        return Caller(key.role, key.handle, tier, address, surface, client, key_id=key.key_id)
    return Caller("anonymous", "anonymous", "anon", address, surface, client)


def still_valid(connection: Connection, caller: Caller, now: datetime) -> bool:
    """Whether the caller's credential has been neither revoked nor outlived."""
    if caller.token_digest is not None:
        grant = connection.execute(_GRANT, {"wanted": caller.token_digest}).one_or_none()
        return grant is not None and _refusal(grant, timestamp(now)) is None
    if caller.key_id is not None:
        revoked = connection.execute(sa.select(_K.revoked_at).where(_K.key_id == caller.key_id)).one_or_none()
        return revoked is not None and revoked.revoked_at is None
    return True


def create_key(connection: Connection, now: datetime, role: Role, handle: str | None, tier: Tier) -> str:
    """A new key; without a handle one is made up.

    Raises:
        ValidationFailed: not a role for keys, or not a handle.
        Conflict: the handle is taken, whatever its case.
    """
    if role not in ("member", "operator"):
        raise ValidationFailed("a key is a member's or an operator's", {"role": "member or operator"})
    name = f"{role}-{secrets.token_hex(4)}" if handle is None else unicodedata.normalize("NFKC", handle)
    folded = name.casefold()
    if handle is not None and holds_credential(name):
        raise ValidationFailed("not a handle", {"handle": "is or holds a credential"})
    if _HANDLE.fullmatch(name) is None or folded in _RESERVED:
        reason = "1 to 64 letters, digits, dots, dashes and underscores; not a role's name"
        raise ValidationFailed("not a handle", {"handle": reason})
    taken = connection.execute(sa.select(_K.key_id).where(_K.folded_handle == folded)).one_or_none()
    if taken is not None:
        raise Conflict("this handle is taken", {"handle": name})
    key = tokens.api_key(secrets.token_bytes(32))
    connection.execute(
        sa.insert(t.api_keys),
        {
            "key_id": f"key_{secrets.token_hex(12)}",
            "handle": name,
            "folded_handle": folded,
            "digest": tokens.digest(key),
            "role": role,
            "tier": tier,
            "created_at": timestamp(now),
        },
    )
    return key


def list_keys(connection: Connection) -> list[dict[str, Any]]:
    """Every key without its secret: ``key_id, handle, role, tier, created_at, revoked_at``."""
    columns = (_K.key_id, _K.handle, _K.role, _K.tier, _K.created_at, _K.revoked_at)
    rows = connection.execute(sa.select(*columns).order_by(_K.created_at, _K.key_id))
    return [dict(row._mapping) for row in rows]


def revoke_key(connection: Connection, now: datetime, name: str) -> None:
    """Revoke by handle or key id; again is no change.

    Raises:
        NotFound: no such key.
    """
    key_id = _named(connection, name)
    connection.execute(
        sa.update(t.api_keys)
        .where(_K.key_id == key_id, _K.revoked_at.is_(None))
        .values(revoked_at=timestamp(now))
    )


def set_tier(connection: Connection, name: str, tier: Tier) -> None:
    """Set a key's tier, by handle or key id.

    Raises:
        NotFound: no such key.
    """
    connection.execute(sa.update(t.api_keys).where(_K.key_id == _named(connection, name)).values(tier=tier))


def has_operator_key(connection: Connection) -> bool:
    """Whether an operator key exists that is not revoked."""
    query = sa.select(_K.key_id).where(_K.role == "operator", _K.revoked_at.is_(None)).limit(1)
    return connection.execute(query).one_or_none() is not None


def _classified(presented: Presented) -> Iterator[tuple[str, str]]:
    for key in presented.keys:
        yield "key", key
    for token in presented.guest_tokens:
        yield "guest", token
    for credential in presented.unclassified:
        yield "guest" if credential.startswith(tokens.GUEST_PREFIX) else "key", credential


def _key(connection: Connection, credential: str) -> Any:
    digest = tokens.digest(credential)
    found = connection.execute(_KEY, {"wanted": digest}).one_or_none()
    if found is None or not tokens.same_digest(found.digest, digest):
        raise AuthInvalid("unknown")
    if found.revoked_at is not None:
        raise AuthInvalid("revoked")
    return found


def _grant(connection: Connection, credential: str, at: str) -> Any:
    digest = tokens.digest(credential)
    found = connection.execute(_GRANT, {"wanted": digest}).one_or_none()
    if found is None or not tokens.same_digest(found.digest, digest):
        raise AuthInvalid("unknown")
    refused = _refusal(found, at)
    if refused is not None:
        raise AuthInvalid(refused)
    return found


def _refusal(grant: Any, at: str) -> str | None:
    if grant.revoked_at is not None or grant.removed_at is not None:
        return "revoked"
    return "expired" if grant.expires_at <= at else None


def _named(connection: Connection, name: str) -> str:
    found = connection.execute(
        sa.select(_K.key_id).where(sa.or_(_K.folded_handle == name.casefold(), _K.key_id == name))
    ).scalar_one_or_none()
    if found is None:
        raise NotFound("no such key")
    return str(found)
