"""Any entity: keys, versions, history, relationships, and what may not be written this way."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pool_server.errors import (
    Conflict,
    IfMatchRequired,
    NotFound,
    PoolError,
    ValidationFailed,
    VersionMismatch,
)
from tests.pool_server.pools import SHA, UNKNOWN, Story, everything_stored

# Put together here so that no scanner takes this file for a leak.
TOKEN = "gh" + "p_" + "q7Rk2mVx9TzLw4BnYc8HsJd1FgPa5UeXo3Ki"


async def _plan(pool: Story, **more: Any) -> dict[str, Any]:
    return await pool.body(
        pool.operator, "create_entity", entity_type="plan", fields={"state": "received"}, **more
    )


async def test_an_entity_is_answered_alike_by_every_operation(pool: Story) -> None:
    """Create, read and change answer one shape with the version as ETag; private unless said otherwise."""
    created = await pool.call(pool.operator, "create_entity", entity_type="note", fields={"a": 1}, key="k")
    assert created.etag == created.body["version"] == 1
    assert (created.body["visibility"], created.body["key"]) == ("private", "k")
    entity_id = created.body["entity_id"]
    assert (await pool.call(pool.operator, "get_entity", entity_id=entity_id)).body == created.body
    changed = await pool.call(
        pool.operator, "update_entity", entity_id=entity_id, fields={"a": None, "b": [1]}, if_match=1
    )
    assert (changed.etag, changed.body["fields"]) == (2, {"b": [1]})
    assert (await pool.call(pool.operator, "get_entity", entity_id=entity_id)).body == changed.body
    await pool.refused(NotFound, pool.operator, "get_entity", entity_id=UNKNOWN)


async def test_a_key_is_unique_per_type(pool: Story) -> None:
    """The refusal names the entity that has it; another type may use it."""
    first = await _plan(pool, key="ent:formica")
    error = await pool.refused(
        Conflict, pool.operator, "create_entity", entity_type="plan", fields={}, key="ent:formica"
    )
    assert error.details["entity_id"] == first["entity_id"]
    await pool.call(pool.operator, "create_entity", entity_type="other", fields={}, key="ent:formica")


async def test_one_of_many_racing_creators_wins(pool: Story) -> None:
    """A key is a lock that works under concurrency."""
    made = await asyncio.gather(*(_plan(pool, key="k") for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(each, dict) for each in made) == 1
    assert sum(isinstance(each, Conflict) for each in made) == 19


async def test_a_write_says_which_version_it_read(pool: Story) -> None:
    """Without one 428, with another 412, both naming the current; ``*`` writes anyway."""
    entity_id = (await _plan(pool))["entity_id"]
    given = {"entity_id": entity_id, "fields": {"state": "planned"}}
    error: PoolError = await pool.refused(IfMatchRequired, pool.operator, "update_entity", **given)
    assert error.details == {"current_version": 1}
    error = await pool.refused(VersionMismatch, pool.operator, "update_entity", **given, if_match=7)
    assert error.details == {"current_version": 1}
    assert (await pool.call(pool.operator, "update_entity", **given, if_match="*")).etag == 2
    await pool.refused(
        NotFound, pool.operator, "update_entity", entity_id=UNKNOWN, fields={"a": 1}, if_match="*"
    )
    await pool.refused(
        ValidationFailed, pool.operator, "update_entity", entity_id=entity_id, fields={}, if_match=2
    )


async def test_compare_and_swap_has_one_winner(pool: Story) -> None:
    """Even when all write the same value: who did not win must learn it."""
    entity_id = (await _plan(pool))["entity_id"]
    given = {"entity_id": entity_id, "fields": {"owner": "me"}, "if_match": 1}
    tries = [pool.call(pool.operator, "update_entity", **given) for _ in range(20)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(each, VersionMismatch) for each in outcomes) == 19


async def test_threads_are_not_written_as_entities(pool: Story) -> None:
    """The types of a thread have operations of their own; ``issue`` says which."""
    for kind in ("issue", "conversation", "conversation_message"):
        error = await pool.refused(
            ValidationFailed, pool.operator, "create_entity", entity_type=kind, fields={}
        )
        assert error.details["fields"][0]["field"] == "entity_type"
        assert kind != "issue" or "submit_issue" in error.message


async def test_patching_an_issue_is_updating_it(pool: Story) -> None:
    """Status, kind, labels and title pass the same checks and show in the status; other fields are managed."""
    filed = await pool.submit()
    entity_id = filed.body["entity_id"]
    fields = {"status": "in_progress", "kind": "bug", "labels": ["x"], "title": "eve@corp.com", "note": "n"}
    changed = await pool.call(pool.operator, "update_entity", entity_id=entity_id, fields=fields, if_match=1)
    shown = await pool.status(filed)
    assert (shown["status"], shown["kind"], shown["labels"]) == ("in_progress", "bug", ["x"])
    assert shown["title"] == "<EMAIL:1>"
    assert shown["revision"] == 2
    assert changed.etag == changed.body["version"]
    assert (await pool.body(pool.operator, "list_issues", status="in_progress", label="x"))["items"]
    wrong = [
        {"status": "done"}, {"status": "resolved"}, {"status": None}, {"title": ""}, {"labels": [1]}, {"body": "b"},
        {"conversation_id": UNKNOWN}, {"issue_number": 5}, {"reporter": {}}, {"visibility": "private"},
        {"resolution": {}}, {"tainted": "x"},
    ]  # fmt: skip
    for fields in wrong:
        error = await pool.refused(
            ValidationFailed, pool.operator, "update_entity", entity_id=entity_id, fields=fields, if_match="*"
        )
        assert error.details["fields"][0]["field"].startswith(("fields.", "status"))


async def test_operators_mark_what_is_tainted(pool: Story) -> None:
    """On the issue and on a message; only operators read it."""
    filed = await pool.submit()
    message_id = (await pool.status(filed))["messages"][0]["message_id"]
    for entity_id in (filed.body["entity_id"], message_id):
        await pool.call(
            pool.operator,
            "update_entity",
            entity_id=entity_id,
            fields={"tainted": ["injection"]},
            if_match="*",
        )
    shown = await pool.status(filed)
    assert shown["tainted"] == shown["messages"][0]["tainted"] == ["injection"]
    seen = await pool.status(filed, await pool.guest(filed))
    assert "tainted" not in str(seen)
    for fields in ({"body": "x"}, {"author_role": "operator"}, {"tainted": [1]}):
        await pool.refused(
            ValidationFailed,
            pool.operator,
            "update_entity",
            entity_id=message_id,
            fields=fields,
            if_match="*",
        )


@pytest.mark.parametrize(
    "kind",
    [
        "plan",
        "daemon_config",
        "operator_state",
        "publish_budget",
        "pull_request",
        "submission_config",
        "product",
    ],
)
async def test_credentials_in_operator_state_are_refused(pool: Story, kind: str) -> None:
    """By the field's path, never silently changed; personal data is the operator's own affair."""
    fields = {"steps": [{"env": f"token {TOKEN}"}], "contact": "eve@corp.com"}
    error = await pool.refused(
        ValidationFailed, pool.operator, "create_entity", entity_type=kind, fields=fields
    )
    assert [entry["field"] for entry in error.details["fields"]] == ["fields.steps.0.env"]
    assert TOKEN not in str(error.details)
    fields["steps"] = []
    made = await pool.body(pool.operator, "create_entity", entity_type=kind, fields=fields)
    assert made["fields"]["contact"] == "eve@corp.com"
    await pool.refused(
        ValidationFailed,
        pool.operator,
        "update_entity",
        entity_id=made["entity_id"],
        fields={"note": TOKEN},
        if_match=1,
    )


async def test_other_types_are_redacted(pool: Story) -> None:
    """On create and on change."""
    made = await pool.body(
        pool.operator, "create_entity", entity_type="crash", fields={"log": f"eve@corp.com {TOKEN}"}
    )
    assert "eve@" not in made["fields"]["log"]
    fields = {"more": ["zoe@corp.com"]}
    await pool.call(pool.operator, "update_entity", entity_id=made["entity_id"], fields=fields, if_match=1)
    stored = await everything_stored(pool)
    assert "corp.com" not in stored
    assert TOKEN not in stored


async def test_a_key_must_be_storable_as_given(pool: Story) -> None:
    """It names an entity, so it cannot be redacted."""
    for key in ("eve@corp.com", "a\u200bb"):
        await pool.refused(
            ValidationFailed, pool.operator, "create_entity", entity_type="x", fields={}, key=key
        )


@pytest.mark.parametrize(
    "fields",
    [
        {"a": float("nan")},
        {"a": ["\ud800"]},
        {"a": {"b\x00": 1}},
        {"a": json.loads("[" * 40 + "]" * 40)},
        {"": 1},
    ],
)
async def test_fields_must_be_plain_json(pool: Story, fields: dict[str, Any]) -> None:
    """What could not be stored or answered is refused."""
    await pool.refused(ValidationFailed, pool.operator, "create_entity", entity_type="x", fields=fields)


async def test_lists_page_in_the_order_of_creation(pool: Story) -> None:
    """By type and key, ``after`` exclusive."""
    made = [(await _plan(pool, key=f"k{n}"))["entity_id"] for n in range(5)]
    first = await pool.body(pool.operator, "list_entities", type="plan", limit=3)
    assert [item["entity_id"] for item in first["items"]] == made[:3]
    rest = await pool.body(pool.operator, "list_entities", type="plan", after=first["next_after"])
    assert ([item["entity_id"] for item in rest["items"]], rest["next_after"]) == (made[3:], None)
    found = await pool.body(pool.operator, "list_entities", type="plan", key="k2")
    assert [item["entity_id"] for item in found["items"]] == [made[2]]
    await pool.refused(ValidationFailed, pool.operator, "list_entities", after=UNKNOWN)


async def test_history_pages_by_version(pool: Story) -> None:
    """Every write with its values, ascending."""
    entity_id = (await _plan(pool))["entity_id"]
    for n in range(4):
        await pool.call(pool.operator, "update_entity", entity_id=entity_id, fields={"n": n}, if_match="*")
    first = await pool.body(pool.operator, "get_history", entity_id=entity_id, limit=2)
    assert [entry["version"] for entry in first["items"]] == [1, 2]
    rest = await pool.body(pool.operator, "get_history", entity_id=entity_id, after=first["next_after"])
    assert [entry["fields"] for entry in rest["items"]] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert rest["items"][0]["actor"] == {"role": "operator", "id": "maintainer"}
    assert rest["next_after"] is None


async def test_relationships_are_kept_once(pool: Story) -> None:
    """The same again answers the same and writes nothing; both ends must exist."""
    filed = await pool.submit()
    plan = (await _plan(pool))["entity_id"]
    edge = {"relationship_type": "REFERS_TO", "source_entity_id": plan}
    made = await pool.body(
        pool.operator, "create_relationship", **edge, target_entity_id=filed.body["entity_id"]
    )
    before = await pool.rows()
    again = await pool.body(
        pool.operator, "create_relationship", **edge, target_entity_id=filed.body["entity_id"]
    )
    assert (again, await pool.rows()) == (made, before)
    await pool.refused(
        ValidationFailed, pool.operator, "create_relationship", **edge, target_entity_id=UNKNOWN
    )
    for wanted in (
        {"entity_id": plan},
        {"entity_id": filed.body["entity_id"]},
        {"relationship_type": "REFERS_TO"},
    ):
        assert (await pool.body(pool.operator, "list_relationships", **wanted))["items"] == [made]
    assert (await pool.body(pool.operator, "list_relationships", relationship_type="OTHER"))["items"] == []


async def test_a_link_made_later_shows_in_the_status(pool: Story) -> None:
    """And moves the revision, if whoever reads the issue may see the other end."""
    one, two = await pool.submit(), await pool.submit()
    plan = (await _plan(pool))["entity_id"]
    for target, revision in ((plan, 1), (two.body["entity_id"], 2)):
        await pool.call(
            pool.operator,
            "create_relationship",
            relationship_type="REFERS_TO",
            source_entity_id=one.body["entity_id"],
            target_entity_id=target,
        )
        assert (await pool.status(one))["revision"] == revision
    assert (await pool.status(one, pool.anonymous))["linked_entity_ids"] == [two.body["entity_id"]]


async def test_entities_are_for_operators(pool: Story) -> None:
    """Nobody else learns even whether one exists."""
    guest = await pool.guest(await pool.submit(reporter_git_sha=SHA))
    calls: dict[str, dict[str, Any]] = {
        "get_entity": {"entity_id": UNKNOWN},
        "list_entities": {},
        "create_entity": {"entity_type": "x", "fields": {}},
        "update_entity": {"entity_id": UNKNOWN, "fields": {}},
        "get_history": {"entity_id": UNKNOWN},
        "list_relationships": {},
        "create_relationship": {
            "relationship_type": "X", "source_entity_id": UNKNOWN, "target_entity_id": UNKNOWN,
        },
    }  # fmt: skip
    for name, raw in calls.items():
        for caller in (pool.anonymous, guest, pool.member):
            error = await pool.refused(PoolError, caller, name, **raw)
            assert error.status == (401 if caller is pool.anonymous else 403)
