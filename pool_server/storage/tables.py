"""The tables, for every engine. Times are RFC 3339 text in UTC with microseconds (text order is time order).

``entities`` holds everything there is; ``issues`` and ``messages`` are projections of it that are written by
the same functions, for order and for look-ups. ``history`` has every write of an entity; ``events`` the log,
whose ``seq`` is drawn from ``event_log`` in the transaction of the write: no gaps, and commits in order.
"""

from __future__ import annotations

import sqlalchemy as sa

# Names that later migrations can drop by; SQLite would leave them out.
metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

_ENTITY = "entities.entity_id"


def _entity_reference(name: str, *, nullable: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.Text, sa.ForeignKey(_ENTITY), nullable=nullable)


entities = sa.Table(
    "entities",
    metadata,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("entity_id", sa.Text, nullable=False, unique=True),
    sa.Column("entity_type", sa.Text, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("fields", sa.JSON, nullable=False),
    sa.Column("visibility", sa.Text, nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("updated_at", sa.Text, nullable=False),
    sa.Column("removed_at", sa.Text),
    sa.UniqueConstraint("entity_type", "key"),
    sa.Index(None, "entity_type", "position"),
)

history = sa.Table(
    "history",
    metadata,
    _entity_reference("entity_id"),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("actor_role", sa.Text, nullable=False),
    sa.Column("actor_id", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("fields_changed", sa.JSON, nullable=False),
    sa.Column("fields", sa.JSON, nullable=False),
    sa.PrimaryKeyConstraint("entity_id", "version"),
)

issues = sa.Table(
    "issues",
    metadata,
    sa.Column("issue_number", sa.Integer, primary_key=True),
    # Deferred: the number is drawn first, because the entity carries it.
    sa.Column(
        "entity_id",
        sa.Text,
        sa.ForeignKey(_ENTITY, deferrable=True, initially="DEFERRED"),
        nullable=False,
        unique=True,
    ),
    sa.Column(
        "conversation_id",
        sa.Text,
        sa.ForeignKey(_ENTITY, deferrable=True, initially="DEFERRED"),
        nullable=False,
    ),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("kind", sa.Text),
    sa.Column("visibility", sa.Text, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("submitter_key_id", sa.Text),
    sa.Index(None, "status", "issue_number"),
    sqlite_autoincrement=True,
)

issue_labels = sa.Table(
    "issue_labels",
    metadata,
    sa.Column("label", sa.Text, nullable=False),
    sa.Column("issue_number", sa.Integer, sa.ForeignKey("issues.issue_number"), nullable=False),
    sa.PrimaryKeyConstraint("label", "issue_number"),
    sa.Index(None, "issue_number"),
)

messages = sa.Table(
    "messages",
    metadata,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("message_id", sa.Text, sa.ForeignKey(_ENTITY), nullable=False, unique=True),
    _entity_reference("issue_entity_id"),
    sa.Column("added_at_revision", sa.Integer, nullable=False),
    sa.Index(None, "issue_entity_id", "position"),
)

relationships = sa.Table(
    "relationships",
    metadata,
    sa.Column("relationship_id", sa.Integer, primary_key=True),
    sa.Column("relationship_type", sa.Text, nullable=False),
    _entity_reference("source_entity_id"),
    _entity_reference("target_entity_id"),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.UniqueConstraint(
        "source_entity_id", "relationship_type", "target_entity_id", name="uq_relationships_edge"
    ),
    sa.Index(None, "target_entity_id"),
    sqlite_autoincrement=True,
)

sources = sa.Table(
    "sources",
    metadata,
    sa.Column("source_id", sa.Text, primary_key=True),
    _entity_reference("entity_id"),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("surface", sa.Text, nullable=False),
    sa.Column("client", sa.Text, nullable=False),
    sa.Column("received_at", sa.Text, nullable=False),
    sa.Column("content_hash", sa.Text, nullable=False),
)

guest_grants = sa.Table(
    "guest_grants",
    metadata,
    sa.Column("digest", sa.Text, primary_key=True),
    _entity_reference("issue_entity_id"),
    sa.Column("nonce", sa.Text, nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("expires_at", sa.Text, nullable=False),
    sa.Column("revoked_at", sa.Text),
    sa.Index(None, "issue_entity_id"),
)

idempotency = sa.Table(
    "idempotency",
    metadata,
    sa.Column("scope", sa.Text, nullable=False),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("content_hash", sa.Text, nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("body", sa.JSON, nullable=False),
    sa.Column("etag", sa.Integer),
    sa.Column("secret", sa.JSON),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.PrimaryKeyConstraint("scope", "key"),
    sa.Index(None, "created_at"),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_id", sa.Text, primary_key=True),
    sa.Column("handle", sa.Text, nullable=False),
    sa.Column("folded_handle", sa.Text, nullable=False, unique=True),
    sa.Column("digest", sa.Text, nullable=False, unique=True),
    sa.Column("role", sa.Text, nullable=False),
    sa.Column("tier", sa.Text, nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("revoked_at", sa.Text),
)

event_log = sa.Table(
    "event_log",
    metadata,
    sa.Column("log_id", sa.Integer, primary_key=True),
    sa.Column("head", sa.Integer, nullable=False),
    sa.Column("pruned_through", sa.Integer, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("event_id", sa.Text, nullable=False, unique=True),
    sa.Column("event_type", sa.Text, nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    sa.Column("entity_type", sa.Text, nullable=False),
    sa.Column("action", sa.Text, nullable=False),
    sa.Column("actor_role", sa.Text, nullable=False),
    sa.Column("actor_id", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("fields_changed", sa.JSON, nullable=False),
    sa.Column("related", sa.JSON, nullable=False),
    sa.Column("thread_entity_id", sa.Text),
    sa.Index(None, "thread_entity_id", "seq"),
)

event_entities = sa.Table(
    "event_entities",
    metadata,
    sa.Column("entity_id", sa.Text, nullable=False),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.PrimaryKeyConstraint("entity_id", "seq"),
    sqlite_with_rowid=False,
)

subscriptions = sa.Table(
    "subscriptions",
    metadata,
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("subscription_id", sa.Text, nullable=False, unique=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("delivery_method", sa.Text, nullable=False),
    sa.Column("webhook_url", sa.Text),
    sa.Column("loopback_allowed", sa.Boolean, nullable=False),
    sa.Column("filter", sa.JSON, nullable=False),
    sa.Column("max_failures", sa.Integer, nullable=False),
    sa.Column("active", sa.Boolean, nullable=False),
    sa.Column("inactive_reason", sa.Text),
    sa.Column("delivered", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False),
    sa.Column("consecutive_failures", sa.Integer, nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("created_seq", sa.Integer, nullable=False),
    sa.Index(None, "owner", "position"),
)

subscription_secrets = sa.Table(
    "subscription_secrets",
    metadata,
    sa.Column("secret_id", sa.Text, primary_key=True),
    sa.Column(
        "subscription_id", sa.Text, sa.ForeignKey("subscriptions.subscription_id"), nullable=False, index=True
    ),
    sa.Column("ciphertext", sa.Text, nullable=False),
    sa.Column("created_at", sa.Text, nullable=False),
    sa.Column("retires_at", sa.Text),
)

delivery_failures = sa.Table(
    "delivery_failures",
    metadata,
    sa.Column("failure_id", sa.Integer, primary_key=True),
    sa.Column(
        "subscription_id", sa.Text, sa.ForeignKey("subscriptions.subscription_id"), nullable=False, index=True
    ),
    sa.Column("event_id", sa.Text, nullable=False),
    sa.Column("at", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)
