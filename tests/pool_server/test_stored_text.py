"""Every text column is accounted for, and every text an operation takes is screened before it is stored."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from pool_server.errors import ValidationFailed
from pool_server.pool import OPERATIONS, Presented
from pool_server.storage.tables import metadata
from tests.pool_server.pools import SHA, UNKNOWN, Story, everything_stored

# screened: what callers wrote, after redaction or refusal. derived: made by the server (ids, times, digests,
# ciphertexts, fixed words). limited: a fixed set of words.
COLUMNS = {
    "entities": {
        "screened": {"entity_type", "key", "fields"},
        "derived": {"entity_id", "created_at", "updated_at", "removed_at"},
        "limited": {"visibility"},
    },
    "history": {
        "screened": {"actor_id", "fields_changed", "fields"},
        "derived": {"entity_id", "at"},
        "limited": {"action", "actor_role"},
    },
    "issues": {
        "derived": {"entity_id", "conversation_id", "submitter_key_id"},
        "limited": {"status", "kind", "visibility"},
    },
    "issue_labels": {"screened": {"label"}},
    "messages": {"derived": {"message_id", "issue_entity_id"}},
    "relationships": {
        "screened": {"relationship_type"},
        "derived": {"source_entity_id", "target_entity_id", "created_at"},
    },
    "sources": {
        "screened": {"actor", "client"},
        "derived": {"source_id", "entity_id", "received_at", "content_hash"},
        "limited": {"role", "surface"},
    },
    "guest_grants": {
        "derived": {"digest", "issue_entity_id", "nonce", "created_at", "expires_at", "revoked_at"}
    },
    "idempotency": {
        "screened": {"body"},
        "derived": {"scope", "key", "content_hash", "secret", "created_at"},
    },
    "api_keys": {
        "screened": {"handle", "folded_handle"},
        "derived": {"key_id", "digest", "created_at", "revoked_at"},
        "limited": {"role", "tier"},
    },
    "events": {
        "screened": {"entity_type", "actor_id", "fields_changed"},
        "derived": {"event_id", "entity_id", "at", "related", "thread_entity_id"},
        "limited": {"event_type", "action", "actor_role"},
    },
    "event_entities": {"derived": {"entity_id"}},
    "subscriptions": {
        "screened": {"webhook_url", "filter"},
        "derived": {"subscription_id", "owner", "inactive_reason", "created_at"},
        "limited": {"delivery_method"},
    },
    "subscription_secrets": {
        "derived": {"secret_id", "subscription_id", "ciphertext", "created_at", "retires_at"}
    },
    "delivery_failures": {"derived": {"subscription_id", "event_id", "at", "reason"}},
}

# Shaped to fit where only capitals, or only small letters, digits and underscores are taken.
MIXED = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
SMALL = "rubygems_" + "0123456789abcdef" * 3
CAPITAL = "AKIA" + "ABCD2345WXYZ6789"
TOKENS = (MIXED, SMALL, CAPITAL)
# Verified, sealed or kept as a fingerprint: never stored as they are.
NOT_STORED = frozenset(("guest_access_token", "secret", "idempotency_key"))


def test_every_text_column_is_accounted_for() -> None:
    """A new one fails this until somebody says what screens it."""
    for name, table in metadata.tables.items():
        texts = {column.name for column in table.columns if isinstance(column.type, (sa.Text, sa.JSON))}
        groups = COLUMNS.get(name, {})
        listed = [column for columns in groups.values() for column in columns]
        assert len(listed) == len(set(listed)), name
        assert set(listed) == texts, name
    assert not COLUMNS.keys() - metadata.tables.keys()


def planted(field: FieldInfo, token: str) -> list[Any]:
    """Values that fit one field and hold the token."""
    kind: Any = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    adapter: TypeAdapter[Any] = TypeAdapter(kind)
    resolution = {"kind": "fixed", "summary": token, "pr_url": f"https://h/{token}", "verify": token}
    question = {"needs": [token[:64]], "text": token}
    values: list[Any] = [token, [token], {token: token, "x": [{"y": token}]}, question]
    values += [f"http://127.0.0.1:9/hook?k={token}", {**resolution, "fixed_in_version": token}]
    fitting = []
    for value in values:
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError:
            continue
        fitting.append(value)
    return fitting


WRITES = [operation for operation in OPERATIONS if operation.effect == "write"]


@pytest.mark.parametrize("operation", WRITES, ids=lambda operation: operation.name)
async def test_no_argument_of_an_operation_stores_a_token(pool: Story, operation: Any) -> None:
    """Each text field by itself, in the operation's otherwise valid call: redacted, or refused."""
    submitted, _ = await pool.resolved()
    entity = await pool.body(pool.operator, "create_entity", entity_type="note", fields={"a": 1})
    issue = submitted.body["entity_id"]
    base: dict[str, dict[str, Any]] = {
        "submit_issue": {"title": "t", "body": "b", "reporter_git_sha": SHA},
        "add_issue_message": {"entity_id": issue, "body": "b"},
        "verify_resolution": {"entity_id": issue, "worked": True},
        "withdraw_issue": {"entity_id": issue},
        "renew_guest_access": {},
        "update_issue": {"entity_id": issue, "kind": "bug"},
        "resolve_issue": {"entity_id": issue, "resolution": {"kind": "fixed", "summary": "s"}},
        "reopen_issue": {"entity_id": issue},
        "bulk_close_issues": {"entity_ids": [issue], "resolution": {"kind": "fixed", "summary": "s"}},
        "create_entity": {"entity_type": "note", "fields": {}},
        "update_entity": {"entity_id": entity["entity_id"], "fields": {"a": 2}, "if_match": "*"},
        "create_relationship": {
            "relationship_type": "ABOUT", "source_entity_id": issue, "target_entity_id": entity["entity_id"],
        },
        "subscribe": {
            "entity_types": ["issue"], "delivery_method": "webhook", "webhook_url": "http://127.0.0.1:9/",
        },
        "unsubscribe": {"subscription_id": f"sub_{UNKNOWN[4:]}"},
        "rotate_subscription_secret": {"subscription_id": f"sub_{UNKNOWN[4:]}"},
    }  # fmt: skip
    caller = pool.operator
    tried = 0
    refused: list[tuple[str, str]] = []
    for name, field in operation.input.model_fields.items():
        if name in NOT_STORED:
            continue
        for token in TOKENS:
            for value in planted(field, token):
                tried += 1
                await pool.call(pool.operator, "reopen_issue", entity_id=issue)
                if operation.name == "verify_resolution":
                    await pool.call(pool.operator, "resolve_issue", **base["resolve_issue"])
                try:
                    await pool.call(caller, operation.name, **{**base[operation.name], name: value})
                except ValidationFailed as why:
                    refused += [(name, each["field"].partition(".")[0]) for each in why.details["fields"]]
    if operation.name not in ("renew_guest_access", "unsubscribe", "rotate_subscription_secret"):
        assert tried
    # A refusal of anything else would prove nothing.
    assert not [pair for pair in refused if pair[0] != pair[1]]
    stored = await everything_stored(pool)
    assert not [token for token in TOKENS if token in stored]


@pytest.mark.parametrize("token", TOKENS)
async def test_no_handle_is_a_token(pool: Story, token: str) -> None:
    """Handles are in events, history and lists."""
    with pytest.raises(ValidationFailed):
        await pool.pool.create_key("member", token, "free")


async def test_an_idempotency_key_is_kept_as_a_fingerprint(pool: Story) -> None:
    """It may be anything, a token too."""
    await pool.submit(idempotency_key=MIXED)
    assert MIXED not in await everything_stored(pool)


async def test_a_user_agent_is_screened(pool: Story) -> None:
    """The source row holds it."""
    caller = await pool.pool.authenticate(Presented(), address="::1", surface="http", client=f"a/1 ({MIXED})")
    await pool.submit(caller)
    assert MIXED not in await everything_stored(pool)
