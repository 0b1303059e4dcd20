"""The life of an issue: every move of the table, who may make it, and what it leaves behind."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool_server.contract.models import IssueStatusName
from pool_server.errors import Conflict, Forbidden, NotFound, PoolError, ValidationFailed
from pool_server.rules import lifecycle
from pool_server.rules.lifecycle import TRANSITIONS, Life, Move
from tests.pool_server.pools import SHA, UNKNOWN, Story

STATUSES: tuple[IssueStatusName, ...] = get_args(IssueStatusName)
FIXED = {"kind": "fixed", "summary": "Guarded the index."}
QUESTION = {"message_id": "m", "needs": ["a"], "text": "t"}


def _life(status: IssueStatusName) -> Life:
    ended = status in ("resolved", "closed")
    return Life(status, dict(FIXED) if ended else None, QUESTION if status == "awaiting_input" else None)


def _make(move: Move, life: Life) -> Life:
    moves = {
        "ask": lambda: lifecycle.ask(life, "m2", ["b"], "t"),
        "answer": lambda: lifecycle.hear(life, ["a"], None),
        "fix": lambda: lifecycle.resolve(life, FIXED),
        "settle": lambda: lifecycle.resolve(life, {"kind": "answered", "summary": "s"}),
        "reopen": lambda: lifecycle.reopen(life),
        "confirm": lambda: lifecycle.verify(life, worked=True),
        "refute": lambda: lifecycle.verify(life, worked=False),
        "withdraw": lambda: lifecycle.withdraw(life),
    }
    return moves[move]()


@pytest.mark.parametrize("move", get_args(Move))
@pytest.mark.parametrize("status", STATUSES)
def test_every_move_from_every_status(move: Move, status: IssueStatusName) -> None:
    """What the table says happens; what it does not say is a conflict, or a message like any other."""
    life = _life(status)
    expected = TRANSITIONS.get((move, status))
    if expected is not None:
        assert _make(move, life).status == expected
    elif move == "answer":
        assert _make(move, life) == life
    else:
        with pytest.raises(Conflict):
            _make(move, life)


@settings(deadline=None)
@given(st.lists(st.sampled_from(get_args(Move)), max_size=20))
def test_questions_and_resolutions_live_with_their_status(moves: list[Move]) -> None:
    """After any moves: a question only while input is awaited, a resolution exactly on what has ended."""
    life = Life("open")
    for move in moves:
        try:
            life = _make(move, life)
        except Conflict:
            continue
        assert life.open_question is None or life.status == "awaiting_input"
        assert (life.resolution is not None) == (life.status in ("resolved", "closed"))


async def test_a_fix_waits_for_verification_and_worked_closes(pool: Story) -> None:
    """resolved, then closed by the reporter's word, with the resolution kept."""
    filed, guest = await pool.resolved()
    shown = await pool.status(filed, guest)
    assert shown["status"] == "resolved"
    assert shown["resolution"] == {"kind": "fixed", "summary": "Guarded.", "fixed_in_version": "1.2.0"}
    after = await pool.body(
        guest, "verify_resolution", issue_number=1, worked=True, reporter_app_version="1.2.0"
    )
    assert (after["status"], after["resolution"]["kind"]) == ("closed", "fixed")
    assert after["messages"][-1]["reporter"] == {"reporter_app_version": "1.2.0"}
    assert after["messages"][-1]["author_role"] == "reporter"
    await pool.refused(Conflict, guest, "verify_resolution", issue_number=1, worked=True)


async def test_a_fix_that_does_not_work_reopens(pool: Story) -> None:
    """Open again, without the resolution, with the reporter's words in the thread."""
    _, guest = await pool.resolved()
    after = await pool.body(guest, "verify_resolution", issue_number=1, worked=False, body="still")
    assert (after["status"], after["resolution"]) == ("open", None)
    assert after["messages"][-1]["body"] == "still"


async def test_verify_needs_a_resolved_issue(pool: Story) -> None:
    """On an open one it is a conflict that leaves no message."""
    guest = await pool.guest(await pool.submit())
    await pool.refused(Conflict, guest, "verify_resolution", issue_number=1, worked=True, body="b")


async def test_verify_without_words_adds_no_message(pool: Story) -> None:
    """Only a build or a body is worth one."""
    filed, guest = await pool.resolved()
    await pool.call(guest, "verify_resolution", issue_number=1, worked=True)
    assert len((await pool.status(filed))["messages"]) == 1


async def test_who_speaks_for_the_reporter(pool: Story) -> None:
    """The thread's guest, the key that filed it, and operators; not another member."""
    for speaker in ("guest", "member", "operator"):
        filed, guest = await pool.resolved()
        number = filed.body["issue_number"]
        if speaker == "member":
            filed = await pool.submit(pool.member)
            number = filed.body["issue_number"]
            await pool.call(pool.operator, "resolve_issue", issue_number=number, resolution=FIXED)
        caller = {"guest": guest, "member": pool.member, "operator": pool.operator}[speaker]
        for name, more in (("verify_resolution", {"worked": True}), ("withdraw_issue", {})):
            await pool.refused(Forbidden, pool.stranger, name, issue_number=number, **more)
        after = await pool.body(caller, "verify_resolution", issue_number=number, worked=True)
        assert after["status"] == "closed"


async def test_withdraw_closes_with_a_resolution(pool: Story) -> None:
    """Declined, because the reporter withdrew; again is no change."""
    filed = await pool.submit()
    guest = await pool.guest(filed)
    after = await pool.body(guest, "withdraw_issue", issue_number=1, body="my mistake")
    assert (after["status"], after["resolution"]) == (
        "closed",
        {"kind": "declined", "summary": "withdrawn by the reporter"},
    )
    assert after["messages"][-1]["body"] == "my mistake"
    again = await pool.body(guest, "withdraw_issue", issue_number=1)
    assert again["revision"] == after["revision"]


@pytest.mark.parametrize("kind", ["answered", "duplicate", "not_reproduced", "declined"])
async def test_other_resolutions_close_at_once(pool: Story, kind: str) -> None:
    """There is nothing to verify."""
    await pool.submit()
    after = await pool.body(
        pool.operator, "resolve_issue", issue_number=1, resolution={"kind": kind, "summary": "s"}
    )
    assert (after["status"], after["resolution"]["kind"]) == ("closed", kind)


async def test_resolving_again_merges(pool: Story) -> None:
    """The release adds its version to what the merge said; a closed issue stays closed."""
    _, guest = await pool.resolved()
    more = {"kind": "fixed", "summary": "Released.", "fixed_in_sha": SHA}
    merged = await pool.body(pool.operator, "resolve_issue", issue_number=1, resolution=more)
    assert merged["status"] == "resolved"
    assert merged["resolution"] == {**more, "fixed_in_version": "1.2.0"}
    await pool.call(guest, "verify_resolution", issue_number=1, worked=True)
    late = await pool.body(
        pool.operator, "resolve_issue", issue_number=1, resolution={**more, "verify": "run it"}
    )
    assert (late["status"], late["resolution"]["verify"]) == ("closed", "run it")


async def test_reopen_is_idempotent(pool: Story) -> None:
    """From resolved and closed to open; a live issue stays where it is."""
    filed, _ = await pool.resolved()
    reopened = await pool.body(pool.operator, "reopen_issue", issue_number=1, body="It is back.")
    assert (reopened["status"], reopened["resolution"]) == ("open", None)
    assert reopened["messages"][-1]["author_role"] == "operator"
    again = await pool.body(pool.operator, "reopen_issue", issue_number=1)
    assert again["revision"] == reopened["revision"]
    await pool.call(pool.operator, "update_issue", issue_number=1, status="in_progress")
    assert (await pool.body(pool.operator, "reopen_issue", issue_number=1))["status"] == "in_progress"
    assert (await pool.status(filed))["status"] == "in_progress"


async def test_update_changes_what_is_given(pool: Story) -> None:
    """Status, kind, labels; the look-up by label follows."""
    await pool.submit(labels=["old"])
    after = await pool.body(
        pool.operator, "update_issue", issue_number=1, status="in_progress", kind="bug", labels=["new"]
    )
    assert (after["status"], after["kind"], after["labels"]) == ("in_progress", "bug", ["new"])
    assert (await pool.body(pool.operator, "list_issues", label="old"))["items"] == []
    assert len((await pool.body(pool.operator, "list_issues", label="new", kind="bug"))["items"]) == 1
    for wrong in ({}, {"status": "resolved"}, {"mirror": True}):
        await pool.refused(ValidationFailed, pool.operator, "update_issue", issue_number=1, **wrong)
    await pool.refused(NotFound, pool.operator, "update_issue", issue_number=9, status="closed")


async def test_leaving_awaiting_input_drops_the_question(pool: Story) -> None:
    """An operator who moves on does not wait any more."""
    await pool.submit()
    question = {"needs": ["a"], "text": "t"}
    await pool.call(pool.operator, "add_issue_message", issue_number=1, body="b", question=question)
    after = await pool.body(pool.operator, "update_issue", issue_number=1, status="in_progress")
    assert after["open_question"] is None


async def test_going_private_hides_the_whole_thread(pool: Story) -> None:
    """Issue, conversation and messages; its guest and operators still read it, nobody may link it."""
    filed = await pool.submit()
    guest = await pool.guest(filed)
    await pool.call(pool.operator, "update_issue", issue_number=1, visibility="private")
    await pool.refused(NotFound, pool.anonymous, "get_issue_status", issue_number=1)
    shown = await pool.status(filed, guest)
    assert shown["visibility"] == "private"
    for entity_id in (
        filed.body["entity_id"],
        filed.body["conversation_id"],
        shown["messages"][0]["message_id"],
    ):
        entity = await pool.body(pool.operator, "get_entity", entity_id=entity_id)
        assert entity["visibility"] == "private"
        await pool.refused(
            ValidationFailed,
            pool.anonymous,
            "submit_issue",
            title="t",
            body="b",
            reporter_git_sha=SHA,
            entity_ids_to_link=[entity_id],
        )
    await pool.call(guest, "add_issue_message", issue_number=1, body="more")
    assert (await pool.body(pool.anonymous, "list_issues"))["items"] == []


async def test_bulk_close_answers_for_each(pool: Story) -> None:
    """Known ones are closed in one call, private ones too; an unknown one fails alone."""
    one, two = await pool.submit(), await pool.submit(visibility="private")
    ids = [one.body["entity_id"], UNKNOWN, two.body["entity_id"], one.body["entity_id"]]
    results = (await pool.body(pool.operator, "bulk_close_issues", entity_ids=ids, resolution=FIXED))[
        "results"
    ]
    assert [(entry["entity_id"], entry["ok"]) for entry in results] == [
        (ids[0], True),
        (UNKNOWN, False),
        (ids[2], True),
    ]
    assert results[1]["error_code"] == "ERR_NOT_FOUND"
    assert [results[0]["status"], results[2]["issue_number"]] == ["resolved", 2]
    declined = {"kind": "declined", "summary": "no"}
    closed = await pool.body(pool.operator, "bulk_close_issues", entity_ids=ids[2:3], resolution=declined)
    assert closed["results"][0]["status"] == "closed"


async def test_resolutions_are_redacted(pool: Story) -> None:
    """On every path by which one comes in."""
    filed = await pool.submit()
    leaky = {"kind": "fixed", "summary": "told eve@corp.com", "verify": "mail eve@corp.com"}
    after = await pool.body(pool.operator, "resolve_issue", issue_number=1, resolution=leaky)
    assert after["resolution"]["summary"] == "told <EMAIL:1>"
    ids = [filed.body["entity_id"]]
    await pool.call(pool.operator, "bulk_close_issues", entity_ids=ids, resolution=leaky)
    assert (await pool.status(filed))["resolution"]["verify"] == "mail <EMAIL:1>"


async def test_only_operators_manage(pool: Story) -> None:
    """Everybody else is refused before the issue is looked at."""
    filed = await pool.submit(pool.member)
    guest = await pool.guest(filed)
    managing = {
        "update_issue": {"issue_number": 1, "status": "closed"},
        "resolve_issue": {"issue_number": 1, "resolution": FIXED},
        "reopen_issue": {"issue_number": 1},
        "bulk_close_issues": {"entity_ids": [filed.body["entity_id"]], "resolution": FIXED},
    }
    for name, raw in managing.items():
        for caller in (pool.anonymous, guest, pool.member):
            error = await pool.refused(PoolError, caller, name, **raw)
            assert error.status == (401 if caller is pool.anonymous else 403)


async def test_every_change_is_in_the_history(pool: Story) -> None:
    """Who, when, what; versions without gaps."""
    filed, guest = await pool.resolved()
    await pool.call(guest, "verify_resolution", issue_number=1, worked=False)
    entries = (await pool.body(pool.operator, "get_history", entity_id=filed.body["entity_id"]))["items"]
    assert [entry["version"] for entry in entries] == [1, 2, 3]
    assert [entry["actor"]["role"] for entry in entries] == ["anonymous", "operator", "guest"]
    assert entries[1]["fields"]["status"] == "resolved"
    assert entries[2]["fields"]["resolution"] is None
