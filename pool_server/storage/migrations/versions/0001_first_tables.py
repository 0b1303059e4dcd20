"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _entities()
    _relationships()
    _issues()
    _threads()
    _access()
    _events()
    _subscriptions()


def _entities() -> None:
    op.create_table(
        "entities",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("entity_type", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.Column("visibility", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("position", name="pk_entities"),
        sa.UniqueConstraint("entity_id", name="uq_entities_entity_id"),
        sa.UniqueConstraint("entity_type", "key", name="uq_entities_entity_type_key"),
    )
    op.create_index("ix_entities_entity_type_position", "entities", ["entity_type", "position"], unique=False)
    op.create_table(
        "history",
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("actor_role", sa.Text(), nullable=False),
        sa.Column("actor_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("fields_changed", sa.JSON(), nullable=False),
        sa.Column("fields", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["entity_id"], ["entities.entity_id"], name="fk_history_entity_id"),
        sa.PrimaryKeyConstraint("entity_id", "version", name="pk_history"),
    )


def _relationships() -> None:
    op.create_table(
        "relationships",
        sa.Column("relationship_id", sa.Integer(), nullable=False),
        sa.Column("relationship_type", sa.Text(), nullable=False),
        sa.Column("source_entity_id", sa.Text(), nullable=False),
        sa.Column("target_entity_id", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["source_entity_id"], ["entities.entity_id"], name="fk_relationships_source_entity_id"
        ),
        sa.ForeignKeyConstraint(
            ["target_entity_id"], ["entities.entity_id"], name="fk_relationships_target_entity_id"
        ),
        sa.PrimaryKeyConstraint("relationship_id", name="pk_relationships"),
        sa.UniqueConstraint(
            "source_entity_id",
            "relationship_type",
            "target_entity_id",
            name="uq_relationships_edge",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_relationships_target_entity_id", "relationships", ["target_entity_id"], unique=False)
    op.create_table(
        "sources",
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("surface", sa.Text(), nullable=False),
        sa.Column("client", sa.Text(), nullable=False),
        sa.Column("received_at", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["entity_id"], ["entities.entity_id"], name="fk_sources_entity_id"),
        sa.PrimaryKeyConstraint("source_id", name="pk_sources"),
    )


def _issues() -> None:
    op.create_table(
        "issues",
        sa.Column("issue_number", sa.Integer(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=True),
        sa.Column("visibility", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("submitter_key_id", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["entities.entity_id"],
            name="fk_issues_conversation_id",
            deferrable=True,
            initially="DEFERRED",
        ),
        sa.ForeignKeyConstraint(
            ["entity_id"],
            ["entities.entity_id"],
            name="fk_issues_entity_id",
            deferrable=True,
            initially="DEFERRED",
        ),
        sa.PrimaryKeyConstraint("issue_number", name="pk_issues"),
        sa.UniqueConstraint("entity_id", name="uq_issues_entity_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_issues_status_issue_number", "issues", ["status", "issue_number"], unique=False)
    op.create_table(
        "issue_labels",
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("issue_number", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["issue_number"], ["issues.issue_number"], name="fk_issue_labels_issue_number"
        ),
        sa.PrimaryKeyConstraint("label", "issue_number", name="pk_issue_labels"),
    )
    op.create_index("ix_issue_labels_issue_number", "issue_labels", ["issue_number"], unique=False)


def _threads() -> None:
    op.create_table(
        "messages",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("message_id", sa.Text(), nullable=False),
        sa.Column("issue_entity_id", sa.Text(), nullable=False),
        sa.Column("added_at_revision", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["issue_entity_id"], ["entities.entity_id"], name="fk_messages_issue_entity_id"
        ),
        sa.ForeignKeyConstraint(["message_id"], ["entities.entity_id"], name="fk_messages_message_id"),
        sa.PrimaryKeyConstraint("position", name="pk_messages"),
        sa.UniqueConstraint("message_id", name="uq_messages_message_id"),
    )
    op.create_index(
        "ix_messages_issue_entity_id_position", "messages", ["issue_entity_id", "position"], unique=False
    )
    op.create_table(
        "guest_grants",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("issue_entity_id", sa.Text(), nullable=False),
        sa.Column("nonce", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.Text(), nullable=False),
        sa.Column("revoked_at", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["issue_entity_id"], ["entities.entity_id"], name="fk_guest_grants_issue_entity_id"
        ),
        sa.PrimaryKeyConstraint("digest", name="pk_guest_grants"),
    )
    op.create_index("ix_guest_grants_issue_entity_id", "guest_grants", ["issue_entity_id"], unique=False)


def _access() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.Text(), nullable=False),
        sa.Column("handle", sa.Text(), nullable=False),
        sa.Column("folded_handle", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("tier", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("revoked_at", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
        sa.UniqueConstraint("folded_handle", name="uq_api_keys_folded_handle"),
    )
    op.create_table(
        "idempotency",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("etag", sa.Integer(), nullable=True),
        sa.Column("secret", sa.JSON(), nullable=True),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "key", name="pk_idempotency"),
    )
    op.create_index("ix_idempotency_created_at", "idempotency", ["created_at"], unique=False)


def _events() -> None:
    log = op.create_table(
        "event_log",
        sa.Column("log_id", sa.Integer(), nullable=False),
        sa.Column("head", sa.Integer(), nullable=False),
        sa.Column("pruned_through", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("log_id", name="pk_event_log"),
    )
    op.bulk_insert(log, [{"log_id": 1, "head": 0, "pruned_through": 0}])
    op.create_table(
        "events",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("entity_type", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("actor_role", sa.Text(), nullable=False),
        sa.Column("actor_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("fields_changed", sa.JSON(), nullable=False),
        sa.Column("related", sa.JSON(), nullable=False),
        sa.Column("thread_entity_id", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
        sa.UniqueConstraint("event_id", name="uq_events_event_id"),
    )
    op.create_index("ix_events_thread_entity_id_seq", "events", ["thread_entity_id", "seq"], unique=False)
    op.create_table(
        "event_entities",
        sa.Column("entity_id", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("entity_id", "seq", name="pk_event_entities"),
        sqlite_with_rowid=False,
    )


def _subscriptions() -> None:
    op.create_table(
        "subscriptions",
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("subscription_id", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("delivery_method", sa.Text(), nullable=False),
        sa.Column("webhook_url", sa.Text(), nullable=True),
        sa.Column("loopback_allowed", sa.Boolean(), nullable=False),
        sa.Column("filter", sa.JSON(), nullable=False),
        sa.Column("max_failures", sa.Integer(), nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("inactive_reason", sa.Text(), nullable=True),
        sa.Column("delivered", sa.Integer(), nullable=False),
        sa.Column("failed", sa.Integer(), nullable=False),
        sa.Column("consecutive_failures", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("created_seq", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("position", name="pk_subscriptions"),
        sa.UniqueConstraint("subscription_id", name="uq_subscriptions_subscription_id"),
    )
    op.create_index("ix_subscriptions_owner_position", "subscriptions", ["owner", "position"], unique=False)
    op.create_table(
        "subscription_secrets",
        sa.Column("secret_id", sa.Text(), nullable=False),
        sa.Column("subscription_id", sa.Text(), nullable=False),
        sa.Column("ciphertext", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Text(), nullable=False),
        sa.Column("retires_at", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.subscription_id"],
            name="fk_subscription_secrets_subscription_id",
        ),
        sa.PrimaryKeyConstraint("secret_id", name="pk_subscription_secrets"),
    )
    op.create_index(
        "ix_subscription_secrets_subscription_id", "subscription_secrets", ["subscription_id"], unique=False
    )
    op.create_table(
        "delivery_failures",
        sa.Column("failure_id", sa.Integer(), nullable=False),
        sa.Column("subscription_id", sa.Text(), nullable=False),
        sa.Column("event_id", sa.Text(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["subscription_id"],
            ["subscriptions.subscription_id"],
            name="fk_delivery_failures_subscription_id",
        ),
        sa.PrimaryKeyConstraint("failure_id", name="pk_delivery_failures"),
    )
    op.create_index(
        "ix_delivery_failures_subscription_id", "delivery_failures", ["subscription_id"], unique=False
    )
