"""Filing an issue, its thread, and reading both."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pool_server.errors import (
    AuthRequired,
    Conflict,
    Forbidden,
    IdempotencyMismatch,
    NotFound,
    ReporterEnvironmentRequired,
    UnknownField,
    ValidationFailed,
)
from pool_server.pool import PoolPolicy, Presented
from tests.pool_server.pools import SHA, UNKNOWN, Story, everything_stored, sorted_sources, story


async def test_a_report_comes_back_as_it_was_filed(pool: Story) -> None:
    """What is submitted is what the status shows, with its first message and a revision of 1."""
    filed = await pool.submit(kind="bug", labels=["ui", "ui"], entity_type="page", reporter_channel=" beta ")
    assert filed.body["issue_number"] == 1
    assert filed.body["status"] == "open"
    assert filed.body["possible_duplicates"] == filed.body["known_fixes"] == filed.body["warnings"] == []
    assert filed.body["subscribe"]["entity_id"] == filed.body["entity_id"]
    shown = await pool.status(filed, pool.anonymous)
    assert shown["title"] == "Crash"
    assert (shown["kind"], shown["labels"], shown["entity_type"]) == ("bug", ["ui"], "page")
    assert shown["reporter"] == {"reporter_git_sha": SHA, "reporter_channel": "beta"}
    assert (shown["revision"], shown["changed"], shown["open_question"]) == (1, True, None)
    assert [message["body"] for message in shown["messages"]] == ["It crashes on start."]
    assert shown["messages"][0]["author_role"] == "reporter"
    assert "tainted" not in shown
    assert "tainted" not in shown["messages"][0]


async def test_a_build_is_required_and_blank_is_absent(pool: Story) -> None:
    """Neither sha nor version is a refusal that says which fields would do."""
    for blank in ({}, {"reporter_git_sha": " "}, {"reporter_app_version": "", "reporter_git_ref": "main"}):
        error = await pool.refused(
            ReporterEnvironmentRequired, pool.anonymous, "submit_issue", title="t", body="b", **blank
        )
        assert error.details["acceptable_field_groups"] == [["reporter_git_sha"], ["reporter_app_version"]]


async def test_a_server_inside_a_product_fills_in_its_version(tmp_path: Path) -> None:
    """The filled-in version is marked; a message is never filled in."""
    policy = PoolPolicy(product_version="3.1", rate_anonymous_per_minute=0)
    async with story(tmp_path / "p.sqlite3", policy) as told:
        filed = await told.call(told.anonymous, "submit_issue", title="t", body="b")
        shown = await told.status(filed)
        assert shown["reporter"]["reporter_app_version"] == "3.1"
        assert shown["reporter"]["reporter_app_version_source"] == "server"
        guest = await told.guest(filed)
        said = await told.body(guest, "add_issue_message", issue_number=1, body="more")
        assert said["warnings"] == ["reporter_environment_missing"]
        assert (await told.status(filed))["messages"][1]["reporter"] == {}


async def test_a_sha_is_kept_in_lower_case(pool: Story) -> None:
    """Git's own spelling, whatever the reporter's."""
    filed = await pool.submit(reporter_git_sha="ABCDEF0")
    assert (await pool.status(filed))["reporter"]["reporter_git_sha"] == "abcdef0"


async def test_anonymous_reports_can_be_forbidden(tmp_path: Path) -> None:
    """Then a key is needed, and a member still may."""
    async with story(tmp_path / "p.sqlite3", PoolPolicy(allow_anonymous_submit=False)) as told:
        await told.refused(
            AuthRequired, told.anonymous, "submit_issue", title="t", body="b", reporter_git_sha=SHA
        )
        await told.submit(told.member)


async def test_personal_data_is_not_stored(pool: Story) -> None:
    """Every text of a report is redacted and counted; equal values keep one number."""
    filed = await pool.submit(
        title="mail eve@corp.com",
        body="from eve@corp.com and zoe@corp.com\u202e",
        labels=["of eve@corp.com"],
        reporter_git_ref="eve@corp.com/fix",
    )
    counted = {entry["kind"]: entry["count"] for entry in filed.body["redactions"]}
    assert counted["EMAIL"] >= 4
    assert counted["BIDI_CONTROL"] == 1
    shown = await pool.status(filed)
    assert shown["title"] == "mail <EMAIL:1>"
    assert shown["messages"][0]["body"] == "from <EMAIL:1> and <EMAIL:2>"
    guest = await pool.guest(filed)
    said = await pool.body(guest, "add_issue_message", issue_number=1, body="ask zoe@corp.com")
    assert said["redactions"] == [{"kind": "EMAIL", "count": 1}]
    stored = await everything_stored(pool)
    assert "eve@" not in stored
    assert "zoe@" not in stored
    assert filed.body["guest_access_token"] not in stored


async def test_a_text_of_hidden_characters_is_blank(pool: Story) -> None:
    """Nothing visible is nothing said."""
    error = await pool.refused(
        ValidationFailed, pool.anonymous, "submit_issue", title="\u200b", body="b", reporter_git_sha=SHA
    )
    assert error.details["fields"][0]["field"] == "title"


async def test_links_must_exist_and_be_seen(pool: Story) -> None:
    """An unknown and an invisible entity are the same answer; an operator may link anything."""
    private = await pool.submit(pool.operator, visibility="private")
    public = await pool.submit()
    hidden, seen = private.body["entity_id"], public.body["entity_id"]
    report = {"title": "t", "body": "b", "reporter_git_sha": SHA}
    messages = []
    for target in (UNKNOWN, hidden):
        for caller in (pool.anonymous, pool.member):
            error = await pool.refused(
                ValidationFailed, caller, "submit_issue", **report, entity_ids_to_link=[seen, target]
            )
            assert [entry["field"] for entry in error.details["fields"]] == ["entity_ids_to_link"]
            messages.append(str(error.details).replace(target, "X"))
    assert len(set(messages)) == 1
    linked = await pool.submit(entity_ids_to_link=[seen, seen])
    assert (await pool.status(linked, pool.anonymous))["linked_entity_ids"] == [seen]
    both = await pool.submit(pool.operator, entity_ids_to_link=[hidden, seen])
    assert (await pool.status(both))["linked_entity_ids"] == [hidden, seen]
    assert (await pool.status(both, pool.anonymous))["linked_entity_ids"] == [seen]


async def test_a_messages_links_show_on_its_issue(pool: Story) -> None:
    """What a message refers to is part of the thread's links."""
    target = (await pool.submit()).body["entity_id"]
    filed = await pool.submit()
    guest = await pool.guest(filed)
    await pool.call(guest, "add_issue_message", issue_number=2, body="see", entity_ids_to_link=[target])
    assert (await pool.status(filed, guest))["linked_entity_ids"] == [target]


async def test_where_a_report_came_from_is_kept(pool: Story) -> None:
    """One source row for a report and for each message, without the address."""
    filed = await pool.submit()
    await pool.call(await pool.guest(filed), "add_issue_message", issue_number=1, body="more")
    rows = await sorted_sources(pool)
    assert {row["role"] for row in rows} == {"anonymous", "guest"}
    assert all(row["surface"] == "http" and row["client"] == "tests/1" for row in rows)
    assert len({row["content_hash"] for row in rows}) == 2
    assert pool.anonymous.address not in await everything_stored(pool)


async def test_a_retry_gets_the_first_answer(pool: Story) -> None:
    """The same key and content answer the same, token included, and write nothing; other content is a 409."""
    first = await pool.submit(idempotency_key="k")
    before = await pool.rows()
    assert await pool.submit(idempotency_key="k") == first
    assert await pool.rows() == before
    token = first.body["guest_access_token"]
    assert token not in await everything_stored(pool)
    assert (await pool.guest(first)).issue_entity_id == first.body["entity_id"]
    await pool.refused(
        IdempotencyMismatch,
        pool.anonymous,
        "submit_issue",
        title="Crash",
        body="other",
        reporter_git_sha=SHA,
        idempotency_key="k",
    )


async def test_a_retry_key_is_one_callers(pool: Story) -> None:
    """Another address, key or guest may use the same text; another operation may not."""
    first = await pool.submit(idempotency_key="k")
    elsewhere = await pool.caller(Presented(), address="192.0.2.8")
    assert (await pool.submit(elsewhere, idempotency_key="k")).body["issue_number"] == 2
    assert (await pool.submit(pool.member, idempotency_key="k")).body["issue_number"] == 3
    guest = await pool.guest(first)
    await pool.call(guest, "add_issue_message", issue_number=1, body="b", idempotency_key="k")
    await pool.refused(
        IdempotencyMismatch, guest, "withdraw_issue", issue_number=1, body="b", idempotency_key="k"
    )


async def test_a_retry_key_lives_thirty_days(pool: Story) -> None:
    """After that it is a new call."""
    await pool.submit(idempotency_key="k")
    pool.clock.advance(days=31)
    assert (await pool.submit(idempotency_key="k")).body["issue_number"] == 2
    pool.clock.advance(days=31)
    await pool.pool.prune()
    assert (await pool.rows())["idempotency"] == 0


async def test_racing_retries_file_one_issue(pool: Story) -> None:
    """Twenty concurrent sends with one key are one issue and one answer."""
    answers = await asyncio.gather(*(pool.submit(idempotency_key="k") for _ in range(20)))
    assert len({answer.body["issue_number"] for answer in answers}) == 1
    assert len({answer.body["guest_access_token"] for answer in answers}) == 1
    assert (await pool.rows())["issues"] == 1


async def test_a_refused_call_does_not_use_up_its_key(pool: Story) -> None:
    """The corrected call with the same key is accepted."""
    await pool.refused(
        ReporterEnvironmentRequired, pool.anonymous, "submit_issue", title="t", body="b", idempotency_key="k"
    )
    await pool.submit(idempotency_key="k")


async def test_private_and_unknown_are_one_answer(pool: Story) -> None:
    """Nobody but its guest and operators learns that a private issue exists, not even the key that filed it."""
    private = await pool.submit(pool.member, visibility="private")
    number, entity_id = private.body["issue_number"], private.body["entity_id"]
    other = await pool.guest(await pool.submit())
    for caller in (pool.anonymous, pool.member, pool.stranger, other):
        for reference in ({"issue_number": number}, {"entity_id": entity_id}):
            hidden = await pool.refused(NotFound, caller, "get_issue_status", **reference)
            unknown = await pool.refused(NotFound, caller, "get_issue_status", issue_number=999)
            assert (hidden.message, hidden.details) == (unknown.message, unknown.details)
    assert (await pool.status(private, await pool.guest(private)))["visibility"] == "private"
    assert (await pool.status(private))["visibility"] == "private"
    await pool.refused(NotFound, pool.member, "add_issue_message", issue_number=number, body="b")
    await pool.refused(NotFound, pool.member, "withdraw_issue", issue_number=number)


async def test_a_guest_has_one_thread(pool: Story) -> None:
    """Another public issue is 403, a private one 404, and every other operation 403."""
    mine, public = await pool.submit(), await pool.submit()
    guest = await pool.guest(mine)
    other = public.body["issue_number"]
    await pool.refused(Forbidden, guest, "get_issue_status", issue_number=other)
    await pool.refused(Forbidden, guest, "add_issue_message", issue_number=other, body="b")
    await pool.refused(Forbidden, guest, "verify_resolution", issue_number=other, worked=True)
    await pool.refused(Forbidden, guest, "renew_guest_access", issue_number=other)
    await pool.refused(Forbidden, guest, "list_issues")
    await pool.refused(Forbidden, guest, "submit_issue", title="t", body="b", reporter_git_sha=SHA)
    await pool.refused(Forbidden, guest, "update_issue", issue_number=1, status="closed")


async def test_appending_needs_a_credential(pool: Story) -> None:
    """Anonymous is a 401 whether the issue is public, private or unknown."""
    await pool.submit()
    await pool.submit(visibility="private")
    for number in (1, 2, 999):
        for name, more in (
            ("add_issue_message", {"body": "b"}),
            ("verify_resolution", {"worked": True}),
            ("withdraw_issue", {}),
        ):
            await pool.refused(AuthRequired, pool.anonymous, name, issue_number=number, **more)


async def test_a_member_appends_as_a_reporter(pool: Story) -> None:
    """To public issues; operator fields are refused."""
    filed = await pool.submit()
    await pool.call(pool.member, "add_issue_message", issue_number=1, body="me too", reporter_app_version="1")
    assert (await pool.status(filed))["messages"][1]["author_role"] == "reporter"
    question = {"needs": ["x"], "text": "t"}
    for more in ({"author_role": "daemon"}, {"question": question}):
        await pool.refused(Forbidden, pool.member, "add_issue_message", issue_number=1, body="b", **more)


async def test_id_and_number_must_agree(pool: Story) -> None:
    """Both may be given; two issues are a 400, and a private one stays unknown."""
    first, second = await pool.submit(), await pool.submit(visibility="private")
    entity_id = first.body["entity_id"]
    assert (await pool.body(pool.anonymous, "get_issue_status", entity_id=entity_id, issue_number=1))["title"]
    await pool.refused(
        ValidationFailed, pool.anonymous, "get_issue_status", entity_id=entity_id, issue_number=2
    )
    await pool.refused(
        NotFound, pool.anonymous, "get_issue_status", entity_id=second.body["entity_id"], issue_number=1
    )
    await pool.refused(ValidationFailed, pool.anonymous, "get_issue_status")


async def test_an_answer_closes_the_question(pool: Story) -> None:
    """A needed field or the question's id returns the issue to open; other messages do not."""
    filed = await pool.submit()
    guest = await pool.guest(filed)
    question = {"needs": ["reporter_app_version", "steps"], "text": "Which version?"}
    for answer in ({"reporter_app_version": "1.0"}, "answers"):
        asked = await pool.body(
            pool.operator,
            "add_issue_message",
            issue_number=1,
            body="?",
            author_role="daemon",
            question=question,
        )
        waiting = await pool.status(filed, guest)
        assert waiting["status"] == "awaiting_input"
        assert waiting["open_question"] == {"message_id": asked["message_id"], **question}
        assert waiting["messages"][-1]["author_role"] == "daemon"
        await pool.call(guest, "add_issue_message", issue_number=1, body="hm", reporter_git_sha=SHA)
        await pool.call(
            pool.operator, "add_issue_message", issue_number=1, body="b", reporter_app_version="1"
        )
        assert (await pool.status(filed))["status"] == "awaiting_input"
        carried = {"answers": asked["message_id"]} if answer == "answers" else answer
        await pool.call(guest, "add_issue_message", issue_number=1, body="here", **carried)
        after = await pool.status(filed, guest)
        assert (after["status"], after["open_question"]) == ("open", None)


async def test_an_old_answer_does_not_close_a_new_question(pool: Story) -> None:
    """``answers`` names the question that is open, and a message of this thread."""
    filed, other = await pool.submit(), await pool.submit()
    guest = await pool.guest(filed)
    first = {"question": {"needs": ["a"], "text": "1"}, "body": "1", "issue_number": 1}
    asked = await pool.body(pool.operator, "add_issue_message", **first)
    await pool.call(pool.operator, "add_issue_message", **first | {"body": "2"})
    await pool.call(guest, "add_issue_message", issue_number=1, body="b", answers=asked["message_id"])
    assert (await pool.status(filed))["status"] == "awaiting_input"
    foreign = (await pool.status(other))["messages"][0]["message_id"]
    for wrong in (UNKNOWN, foreign):
        await pool.refused(
            ValidationFailed, guest, "add_issue_message", issue_number=1, body="b", answers=wrong
        )


async def test_no_question_on_an_ended_issue(pool: Story) -> None:
    """It would wait for ever; reopen it first."""
    await pool.resolved()
    question = {"needs": ["a"], "text": "t"}
    await pool.refused(
        Conflict, pool.operator, "add_issue_message", issue_number=1, body="b", question=question
    )


async def test_revision_says_whether_anything_changed(pool: Story) -> None:
    """Polling with ``since`` gets only newer messages, none while nothing changed."""
    filed = await pool.submit()
    guest = await pool.guest(filed)
    seen = (await pool.status(filed, guest))["revision"]
    idle = await pool.status(filed, guest, since=seen)
    assert (idle["changed"], idle["messages"]) == (False, [])
    await pool.call(pool.operator, "add_issue_message", issue_number=1, body="news")
    news = await pool.status(filed, guest, since=seen)
    assert (news["changed"], [m["body"] for m in news["messages"]]) == (True, ["news"])
    seen = news["revision"]
    await pool.call(pool.operator, "update_issue", issue_number=1, status="in_progress")
    moved = await pool.status(filed, guest, since=seen)
    assert (moved["changed"], moved["messages"]) == (True, [])


async def test_revision_ignores_what_is_not_shown(pool: Story) -> None:
    """Plans, leases, notes, taint and unchanged values do not move it."""
    filed = await pool.submit(kind="bug")
    entity_id = filed.body["entity_id"]
    before = await pool.status(filed)
    plan = await pool.body(
        pool.operator, "create_entity", entity_type="plan", fields={"issue_entity_id": entity_id}, key="p"
    )
    await pool.call(
        pool.operator,
        "create_relationship",
        relationship_type="REFERS_TO",
        source_entity_id=plan["entity_id"],
        target_entity_id=entity_id,
    )
    await pool.call(pool.operator, "update_issue", issue_number=1, kind="bug", status="open")
    await pool.call(
        pool.operator,
        "update_entity",
        entity_id=entity_id,
        fields={"tainted": ["x"], "note": "n"},
        if_match="*",
    )
    after = await pool.status(filed)
    assert after["revision"] == before["revision"]
    assert after["tainted"] == ["x"]


async def test_lists_page_in_order_and_filter(pool: Story) -> None:
    """Ascending, ``after`` is exclusive, the last page says so; others see public ones only."""
    for index in range(5):
        await pool.submit(
            kind="bug" if index % 2 else "question",
            labels=["odd"] if index % 2 else [],
            visibility="private" if index == 4 else "public",
        )
    await pool.call(pool.operator, "update_issue", issue_number=1, status="in_progress")
    first = await pool.body(pool.operator, "list_issues", limit=2)
    assert [item["issue_number"] for item in first["items"]] == [1, 2]
    rest = await pool.body(pool.operator, "list_issues", limit=3, after=first["next_after"])
    assert [item["issue_number"] for item in rest["items"]] == [3, 4, 5]
    assert rest["next_after"] is None
    for caller in (pool.anonymous, pool.member):
        seen = await pool.body(caller, "list_issues")
        assert [item["issue_number"] for item in seen["items"]] == [1, 2, 3, 4]
        assert seen["items"][0] == await pool.body(caller, "get_issue_status", issue_number=1)
    for wanted, numbers in (
        ({"status": "in_progress"}, [1]),
        ({"kind": "bug"}, [2, 4]),
        ({"label": "odd"}, [2, 4]),
        ({"label": "even"}, []),
    ):
        found = await pool.body(pool.operator, "list_issues", **wanted)
        assert [item["issue_number"] for item in found["items"]] == numbers
    assert (await pool.body(pool.operator, "list_issues", after=5))["items"] == []


async def test_unknown_fields_name_what_is_allowed(pool: Story) -> None:
    """At the top and inside an object."""
    error = await pool.refused(UnknownField, pool.anonymous, "submit_issue", title="t", body="b", bdoy="x")
    assert error.details["unknown_fields"] == ["bdoy"]
    assert "body" in error.details["allowed_fields"]
    wrong = {"kind": "fixed", "summary": "s", "sha": "x"}
    error = await pool.refused(UnknownField, pool.operator, "resolve_issue", issue_number=1, resolution=wrong)
    assert error.details["unknown_fields"] == ["resolution.sha"]
    assert "fixed_in_sha" in error.details["allowed_fields"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("title", ""),
        ("title", "  "),
        ("title", "x" * 257),
        ("title", 5),
        ("title", "a\x00b"),
        ("title", "\ud800"),
        ("body", "x" * 65_537),
        ("kind", "crash"),
        ("labels", ["x"] * 21),
        ("labels", ["x" * 51]),
        ("visibility", "secret"),
        ("reporter_git_sha", "xyz1234"),
        ("reporter_git_sha", "abc"),
        ("entity_ids_to_link", ["ent_1"]),
        ("idempotency_key", "x" * 129),
        ("entity_type", "a\nb"),
    ],
)
async def test_out_of_range_fields_are_named(pool: Story, field: str, value: object) -> None:
    """Each field with its reason, never with its value."""
    given = {"title": "t", "body": "b", "reporter_git_sha": SHA, field: value}
    error = await pool.refused(ValidationFailed, pool.anonymous, "submit_issue", **given)
    assert error.details["fields"][0]["field"].split(".")[0] == field


async def test_boundaries_are_accepted(pool: Story) -> None:
    """The longest of everything."""
    await pool.submit(
        title="x" * 256, body="y" * 65_536, labels=[f"{n:050}" for n in range(20)], reporter_git_sha="abcdef0"
    )
