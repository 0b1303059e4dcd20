"""Which function performs which operation: one row for each in ``operations.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pool_server.pool import entities, guests, issues, lifecycle, relationships, status, subscriptions
from pool_server.pool.shapes import Reply
from pool_server.pool.work import Work
from pool_server.rules.access import Caller
from pool_server.storage import Connection

# Each takes the input type its operation names; the table is what pairs them.
READERS: Mapping[str, Callable[[Connection, Caller, Any], Reply]] = {
    "get_issue_status": status.get_issue_status,
    "list_issues": status.list_issues,
    "get_entity": entities.get_entity,
    "list_entities": entities.list_entities,
    "get_history": entities.get_history,
    "list_relationships": relationships.list_relationships,
    "list_subscriptions": subscriptions.list_subscriptions,
    "get_subscription_status": subscriptions.get_subscription_status,
}

WRITERS: Mapping[str, Callable[[Work, Any], Reply]] = {
    "submit_issue": issues.submit_issue,
    "add_issue_message": issues.add_issue_message,
    "update_issue": lifecycle.update_issue,
    "resolve_issue": lifecycle.resolve_issue,
    "reopen_issue": lifecycle.reopen_issue,
    "verify_resolution": lifecycle.verify_resolution,
    "withdraw_issue": lifecycle.withdraw_issue,
    "bulk_close_issues": lifecycle.bulk_close_issues,
    "renew_guest_access": guests.renew_guest_access,
    "create_entity": entities.create_entity,
    "update_entity": entities.update_entity,
    "create_relationship": entities.create_relationship,
    "subscribe": subscriptions.subscribe,
    "unsubscribe": subscriptions.unsubscribe,
    "rotate_subscription_secret": subscriptions.rotate_subscription_secret,
}
