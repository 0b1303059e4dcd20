"""Subscriptions: who follows what, the secrets that sign, and what became of the deliveries.

A failed delivery is recorded and left. ``max_failures`` in a row, or a target that says it is gone, switch the
subscription off; it stays readable and says why.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from pool_server.contract import models as m
from pool_server.contract.models import EventFilter
from pool_server.contract.signing import SECRET_PREFIX, encode_secret
from pool_server.errors import Conflict, Forbidden, NotFound, ValidationFailed
from pool_server.pool import events
from pool_server.pool.shapes import Outcome, Reply, Target
from pool_server.pool.vault import Vault
from pool_server.pool.work import Work
from pool_server.rules import targets
from pool_server.rules.access import Caller
from pool_server.rules.timestamps import timestamp
from pool_server.storage import Connection
from pool_server.storage import tables as t

SECRET_BYTES = range(24, 65)
OVERLAP = timedelta(hours=24)
"""How long the previous secret signs along after a rotation."""
KEPT_FAILURES = 100
SHOWN_FAILURES = 20
GUEST_SUBSCRIPTIONS = 10

_S = t.subscriptions.c
_W = t.subscription_secrets.c
_F = t.delivery_failures.c


def subscribe(work: Work, args: m.Subscribe) -> Reply:
    """A new subscription, with its signing secret once if it is a webhook.

    Raises:
        ValidationFailed: no filter, or fields that do not fit the delivery method.
        Forbidden: a guest asks for a webhook or for another thread.
        NotFound, Conflict: a guest names what is not its own, or follows too often.
    """
    caller = work.caller
    if caller.role == "guest":
        if args.delivery_method == "webhook":
            raise Forbidden("webhooks are for operators; follow this thread by sse")
        events.require_followed(work.connection, caller, args.entity_ids)
        _require_room(work)
    _require_consistent(args)
    wanted = _filter(caller, args)
    subscription_id = f"sub_{secrets.token_hex(12)}"
    work.connection.execute(
        sa.insert(t.subscriptions),
        {
            "subscription_id": subscription_id,
            "owner": _owner(caller),
            "delivery_method": args.delivery_method,
            "webhook_url": args.webhook_url,
            "loopback_allowed": args.webhook_url is not None and targets.names_loopback(args.webhook_url),
            "filter": wanted.model_dump(exclude_none=True),
            "max_failures": args.max_failures,
            "active": True,
            "delivered": 0,
            "failed": 0,
            "consecutive_failures": 0,
            "created_at": work.at,
            "created_seq": events.head(work.connection),
        },
    )
    body = _body(work.connection, _row(work.connection, caller, subscription_id))
    if args.delivery_method == "webhook":
        secret = args.secret or encode_secret(secrets.token_bytes(32))
        body["secret"] = _keep_secret(work, subscription_id, secret)
    return Reply(201, body)


def rotate_subscription_secret(work: Work, args: m.SubscriptionRef) -> Reply:
    """A new secret; the one before signs along for a day.

    Raises:
        NotFound: no such subscription.
        Conflict: it has no secret, or is switched off.
    """
    row = _row(work.connection, work.caller, args.subscription_id)
    if row.delivery_method != "webhook" or not row.active:
        raise Conflict("only an active webhook has a secret to rotate", {})
    mine = _W.subscription_id == args.subscription_id
    work.connection.execute(sa.delete(t.subscription_secrets).where(mine, _W.retires_at.is_not(None)))
    work.connection.execute(
        sa.update(t.subscription_secrets).where(mine).values(retires_at=timestamp(work.now + OVERLAP))
    )
    body = _body(work.connection, row)
    body["secret"] = _keep_secret(work, args.subscription_id, encode_secret(secrets.token_bytes(32)))
    return Reply(200, body)


def unsubscribe(work: Work, args: m.SubscriptionRef) -> Reply:
    """Switch a subscription off; again is no change.

    Raises:
        NotFound: no such subscription, or not the caller's.
    """
    row = _row(work.connection, work.caller, args.subscription_id)
    if row.active:
        _switch_off(work.connection, args.subscription_id, "unsubscribed")
    return Reply(200, {"subscription_id": args.subscription_id, "active": False})


def get_subscription_status(connection: Connection, caller: Caller, args: m.GetSubscription) -> Reply:
    """One subscription.

    Raises:
        NotFound: no such subscription, or not the caller's.
    """
    return Reply(200, _body(connection, _row(connection, caller, args.subscription_id)))


def list_subscriptions(connection: Connection, caller: Caller, args: m.ListSubscriptions) -> Reply:
    """Subscriptions in the order they were made: all for operators, a guest's own."""
    query = sa.select(t.subscriptions).order_by(_S.position).limit(args.limit + 1)
    if caller.role != "operator":
        query = query.where(_S.owner == _owner(caller))
    if args.after is not None:
        query = query.where(_S.position > args.after)
    rows = connection.execute(query).all()
    items = [_body(connection, row) for row in rows[: args.limit]]
    more = len(rows) > args.limit
    return Reply(200, {"items": items, "next_after": rows[args.limit - 1].position if more else None})


def stream_filter(
    connection: Connection, caller: Caller, subscription_id: str | None, given: EventFilter
) -> EventFilter:
    """What a stream sends: a subscription's filter, or the one given; a guest's is its thread.

    Raises:
        NotFound: no such active SSE subscription of the caller's, or an id that is not of its thread.
        Forbidden: a guest names another public issue.
    """
    if subscription_id is None:
        events.require_followed(connection, caller, given.entity_ids)
        return _filter(caller, given)
    row = _row(connection, caller, subscription_id)
    if row.delivery_method != "sse" or not row.active:
        raise NotFound("no such active stream")
    return EventFilter.model_validate(row.filter)


def is_active(connection: Connection, subscription_id: str) -> bool:
    """Whether a subscription is still on."""
    query = sa.select(_S.active).where(_S.subscription_id == subscription_id)
    return bool(connection.execute(query).scalar_one_or_none())


def webhook_targets(connection: Connection, vault: Vault, at: str) -> list[Target]:
    """Every active webhook with the secrets that sign at this moment, the newest first."""
    keys: dict[str, list[str]] = {}
    signing = sa.select(_W.subscription_id, _W.ciphertext).where(
        sa.or_(_W.retires_at.is_(None), _W.retires_at > at)
    )
    for subscription_id, ciphertext in connection.execute(
        signing.order_by(_W.retires_at.is_not(None), _W.created_at.desc())
    ):
        keys.setdefault(subscription_id, []).append(vault.unseal(ciphertext))
    rows = connection.execute(
        sa.select(t.subscriptions)
        .where(_S.delivery_method == "webhook", _S.active.is_(True))
        .order_by(_S.position)
    )
    return [
        Target(
            id=row.subscription_id,
            url=row.webhook_url,
            secrets=tuple(keys.get(row.subscription_id, ())),
            filter=EventFilter.model_validate(row.filter),
            max_failures=row.max_failures,
            loopback_allowed=row.loopback_allowed,
            created_seq=row.created_seq,
        )
        for row in rows
    ]


def record_deliveries(connection: Connection, subscription_id: str, outcomes: Sequence[Outcome]) -> bool:
    """Count what became of deliveries, in order; whether the subscription is still on."""
    row = connection.execute(
        sa.select(t.subscriptions).where(_S.subscription_id == subscription_id)
    ).one_or_none()
    if row is None:
        return False
    delivered, failed, in_a_row = row.delivered, row.failed, row.consecutive_failures
    reason = None
    for outcome in outcomes:
        if outcome.delivered:
            delivered, in_a_row = delivered + 1, 0
            continue
        failed, in_a_row = failed + 1, in_a_row + 1
        _note_failure(connection, subscription_id, outcome)
        if outcome.gone:
            reason = reason or "the target is gone (410)"
        elif in_a_row >= row.max_failures:
            reason = reason or f"{in_a_row} failures in a row"
    connection.execute(
        sa.update(t.subscriptions)
        .where(_S.subscription_id == subscription_id)
        .values(delivered=delivered, failed=failed, consecutive_failures=in_a_row)
    )
    if row.active and reason is not None:
        _switch_off(connection, subscription_id, reason)
    return bool(row.active) and reason is None


def refilled_secret(connection: Connection, vault: Vault, secret_id: str) -> str:
    """The secret an earlier answer showed, for its replay; empty when it was retired since."""
    sealed = connection.execute(
        sa.select(_W.ciphertext).where(_W.secret_id == secret_id)
    ).scalar_one_or_none()
    return "" if sealed is None else vault.unseal(sealed)


def _owner(caller: Caller) -> str:
    return f"guest:{caller.issue_entity_id}" if caller.role == "guest" else f"key:{caller.key_id}"


def _filter(caller: Caller, given: EventFilter) -> EventFilter:
    entity_ids = given.entity_ids
    if caller.role == "guest" and entity_ids is None and caller.issue_entity_id is not None:
        entity_ids = [caller.issue_entity_id]
    return EventFilter(entity_types=given.entity_types, entity_ids=entity_ids, event_types=given.event_types)


def _require_consistent(args: m.Subscribe) -> None:
    filters = ("entity_types", "entity_ids", "event_types")
    if all(getattr(args, name) is None for name in filters):
        raise ValidationFailed("a subscription needs a filter", dict.fromkeys(filters, "give at least one"))
    if args.delivery_method == "sse":
        for name in ("webhook_url", "secret"):
            if getattr(args, name) is not None:
                raise ValidationFailed("sse has no target", {name: "is for delivery_method webhook"})
        return
    if args.webhook_url is None:
        raise ValidationFailed("a webhook needs a target", {"webhook_url": "is required for webhook"})
    if args.secret is not None and not _is_secret(args.secret):
        reason = "must be whsec_ and the base64 of 24 to 64 bytes; leave it out to have one made"
        raise ValidationFailed("not a signing secret", {"secret": reason})


def _is_secret(secret: str) -> bool:
    if not secret.startswith(SECRET_PREFIX):
        return False
    try:
        raw = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return False
    return len(raw) in SECRET_BYTES


def _require_room(work: Work) -> None:
    mine = sa.select(sa.func.count()).where(_S.owner == _owner(work.caller), _S.active.is_(True))
    if work.connection.execute(mine).scalar_one() >= GUEST_SUBSCRIPTIONS:
        raise Conflict("this thread is followed often enough; unsubscribe first", {})


def _keep_secret(work: Work, subscription_id: str, secret: str) -> str:
    secret_id = f"sec_{secrets.token_hex(12)}"
    work.connection.execute(
        sa.insert(t.subscription_secrets),
        {
            "secret_id": secret_id,
            "subscription_id": subscription_id,
            "ciphertext": work.vault.seal(secret),
            "created_at": work.at,
        },
    )
    work.secret = {"kind": "subscription", "secret_id": secret_id}
    return secret


def _row(connection: Connection, caller: Caller, subscription_id: str) -> Any:
    query = sa.select(t.subscriptions).where(_S.subscription_id == subscription_id)
    if caller.role != "operator":
        query = query.where(_S.owner == _owner(caller))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound("no such subscription")
    return row


def _switch_off(connection: Connection, subscription_id: str, reason: str) -> None:
    connection.execute(
        sa.update(t.subscriptions)
        .where(_S.subscription_id == subscription_id)
        .values(active=False, inactive_reason=reason)
    )


def _note_failure(connection: Connection, subscription_id: str, outcome: Outcome) -> None:
    connection.execute(
        sa.insert(t.delivery_failures),
        {
            "subscription_id": subscription_id,
            "event_id": outcome.event_id,
            "at": outcome.at,
            "reason": outcome.reason,
        },
    )
    mine = _F.subscription_id == subscription_id
    kept = sa.select(_F.failure_id).where(mine).order_by(_F.failure_id.desc()).limit(KEPT_FAILURES)
    connection.execute(sa.delete(t.delivery_failures).where(mine, _F.failure_id.not_in(kept)))


def _body(connection: Connection, row: Any) -> dict[str, Any]:
    failures = [
        {"event_id": failure.event_id, "at": failure.at, "reason": failure.reason}
        for failure in connection.execute(
            sa.select(_F.event_id, _F.at, _F.reason)
            .where(_F.subscription_id == row.subscription_id)
            .order_by(_F.failure_id.desc())
            .limit(SHOWN_FAILURES)
        )
    ][::-1]
    return {
        "subscription_id": row.subscription_id,
        "delivery_method": row.delivery_method,
        "webhook_url": row.webhook_url,
        "entity_types": row.filter.get("entity_types"),
        "entity_ids": row.filter.get("entity_ids"),
        "event_types": row.filter.get("event_types"),
        "max_failures": row.max_failures,
        "active": row.active,
        "inactive_reason": row.inactive_reason,
        "delivered": row.delivered,
        "failed": row.failed,
        "consecutive_failures": row.consecutive_failures,
        "last_failure": failures[-1] if failures else None,
        "failures": failures,
        "created_at": row.created_at,
    }
