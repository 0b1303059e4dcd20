"""The event log and its subscriptions: what is written, who may read it, and what is kept of deliveries."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest

from pool_server.contract.models import EventFilter
from pool_server.errors import AuthRequired, Conflict, Forbidden, NotFound, PoolError, ValidationFailed
from pool_server.pool import Outcome, Pool, PoolPolicy
from pool_server.rules.targets import names_loopback, refuse_reason, split_target
from tests.pool_server.pools import UNKNOWN, Story, everything_stored, opened, story

HOOK = {"delivery_method": "webhook", "webhook_url": "http://127.0.0.1:9/hook", "entity_types": ["issue"]}


def _brief(events: list[dict[str, Any]]) -> list[tuple[str, str, list[str]]]:
    return [(event["event_type"], event["entity_type"], event["fields_changed"]) for event in events]


async def test_a_report_is_a_few_events_without_content(pool: Story) -> None:
    """Issue, conversation, message, one relationship per link; seq without gaps, names of fields only."""
    target = (await pool.submit()).body["entity_id"]
    after = pool.pool.head()
    filed = await pool.submit(entity_ids_to_link=[target])
    events = await pool.events(after)
    assert [(event["event_type"], event["entity_type"]) for event in events] == [
        ("entity.created", "issue"),
        ("entity.created", "conversation"),
        ("entity.created", "conversation_message"),
        ("relationship.created", "issue"),
    ]
    assert [event["seq"] for event in events] == list(range(after + 1, after + 5))
    issue_id, conversation_id = filed.body["entity_id"], filed.body["conversation_id"]
    assert events[2]["related"] == [issue_id, conversation_id]
    assert (events[3]["entity_id"], events[3]["related"]) == (issue_id, [target])
    assert all(event["actor"] == {"role": "anonymous", "id": "anonymous"} for event in events)
    assert "crashes" not in str(events)
    assert len({event["event_id"] for event in events}) == 4


async def test_a_message_is_three_events_and_a_status_change_one_more(pool: Story) -> None:
    """In the contract's order, with the message first."""
    filed = await pool.submit()
    after = pool.pool.head()
    question = {"needs": ["a"], "text": "t"}
    said = await pool.body(pool.operator, "add_issue_message", issue_number=1, body="b", question=question)
    events = await pool.events(after)
    assert _brief(events)[1:] == [
        ("observation.created", "issue", []),
        ("entity.updated", "issue", ["messages"]),
        ("entity.updated", "issue", ["open_question", "status"]),
    ]
    assert events[0]["entity_id"] == said["message_id"]
    assert events[0]["related"] == [filed.body["entity_id"], filed.body["conversation_id"]]
    assert events[0]["actor"] == {"role": "operator", "id": "maintainer"}


async def test_filters_match_the_entity_or_what_is_related(pool: Story) -> None:
    """All given filters must match; a guest's message reaches whoever follows the issue."""
    one, two = await pool.submit(), await pool.submit()
    issue_id = one.body["entity_id"]
    events = await pool.events(entity_ids=[issue_id])
    assert {event["entity_type"] for event in events} == {"issue", "conversation", "conversation_message"}
    assert all(two.body["entity_id"] not in str(event) for event in events)
    only = await pool.events(entity_ids=[issue_id], entity_types=["issue"], event_types=["entity.created"])
    assert _brief(only) == [("entity.created", "issue", only[0]["fields_changed"])]
    assert await pool.events(entity_ids=[issue_id], event_types=["entity.deleted"]) == []


async def test_the_log_pages_by_seq(pool: Story) -> None:
    """``next_after`` is the last seq seen, or the cursor when there is nothing."""
    await pool.submit()
    first = await pool.body(pool.operator, "list_events", limit=2)
    assert (first["next_after"], first["oldest"], first["gap"]) == (2, 1, False)
    rest = await pool.body(pool.operator, "list_events", after=2)
    assert [item["seq"] for item in rest["items"]] == [3]
    end = await pool.body(pool.operator, "list_events", after=3)
    assert (end["items"], end["next_after"]) == ([], 3)


async def test_waiting_ends_with_the_next_event(pool: Story) -> None:
    """A reader that waits is woken by the commit, without polling in between."""
    waiting = asyncio.create_task(pool.body(pool.operator, "list_events", wait=30.0, entity_types=["issue"]))
    await asyncio.sleep(0)
    await pool.submit()
    page = await asyncio.wait_for(waiting, timeout=5)
    assert page["items"][0]["entity_type"] == "issue"


async def test_many_wait_and_all_are_woken(pool: Story) -> None:
    """Also when the one that polls for all has left."""
    first = asyncio.create_task(pool.pool.wait_beyond(pool.pool.head(), 30))
    others = [asyncio.create_task(pool.pool.wait_beyond(pool.pool.head(), 30)) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()
    await pool.submit()
    assert set(await asyncio.wait_for(asyncio.gather(*others), timeout=5)) == {3}
    assert await pool.pool.wait_beyond(0, 0) == 3
    assert await pool.pool.wait_beyond(3, 0) == 3


async def test_another_process_is_noticed(tmp_path: Path) -> None:
    """A slow poll finds events that were written elsewhere."""
    async with story(tmp_path / "p.sqlite3") as here:
        store = await opened(tmp_path / "p.sqlite3")
        elsewhere = Pool(store, PoolPolicy(), token_secret=b"s" * 32, clock=here.clock)
        await elsewhere.start()
        waiting = asyncio.create_task(elsewhere.wait_beyond(elsewhere.head(), 30))
        await asyncio.sleep(0)
        await here.submit()
        assert await asyncio.wait_for(waiting, timeout=10) == 3
        await store.close()


async def test_a_guest_reads_its_own_thread(pool: Story) -> None:
    """Roles without ids, no hidden links, no other thread; private fields are not named."""
    filed = await pool.submit()
    guest = await pool.guest(filed)
    other = await pool.submit(visibility="private")
    plan = await pool.body(pool.operator, "create_entity", entity_type="plan", fields={"a": 1})
    for source, target in (
        (filed.body["entity_id"], plan["entity_id"]),
        (plan["entity_id"], filed.body["entity_id"]),
    ):
        await pool.call(
            pool.operator,
            "create_relationship",
            relationship_type="REFERS_TO",
            source_entity_id=source,
            target_entity_id=target,
        )
    await pool.call(
        pool.operator,
        "update_entity",
        entity_id=filed.body["entity_id"],
        fields={"tainted": ["x"]},
        if_match="*",
    )
    await pool.call(pool.operator, "add_issue_message", issue_number=1, body="b", author_role="daemon")
    events = await pool.events(caller=guest)
    assert [event["entity_type"] for event in events] == [
        "issue", "conversation", "conversation_message", "conversation_message", "issue", "issue",
    ]  # fmt: skip
    assert all(set(event["actor"]) == {"role"} for event in events)
    shown = str(events)
    for hidden in ("maintainer", "tainted", plan["entity_id"], other.body["entity_id"]):
        assert hidden not in shown
    await pool.refused(NotFound, guest, "list_events", entity_ids=[plan["entity_id"]])
    await pool.refused(NotFound, guest, "list_events", entity_ids=[other.body["entity_id"]])
    await pool.refused(AuthRequired, pool.anonymous, "list_events")
    await pool.refused(Forbidden, pool.member, "list_events")


async def test_a_guests_view_of_a_public_link_hides_its_other_end(pool: Story) -> None:
    """``related`` is the thread's own."""
    target = (await pool.submit()).body["entity_id"]
    guest = await pool.guest(await pool.submit(entity_ids_to_link=[target]))
    events = await pool.events(caller=guest)
    assert events[-1]["event_type"] == "relationship.created"
    assert events[-1]["related"] == []


async def test_retention_leaves_a_gap_that_is_told(tmp_path: Path) -> None:
    """Old events go, numbering goes on, and a cursor before the oldest says so."""
    policy = PoolPolicy(event_retention_days=1, rate_anonymous_per_minute=0)
    async with story(tmp_path / "p.sqlite3", policy) as told:
        filed = await told.submit()
        told.clock.advance(days=2)
        await told.pool.prune()
        page = await told.body(told.operator, "list_events", after=1)
        assert (page["items"], page["oldest"], page["gap"], page["next_after"]) == ([], None, True, 1)
        assert await told.pool.oldest_seq() is None
        await told.submit()
        page = await told.body(told.operator, "list_events", after=1)
        assert ([item["seq"] for item in page["items"]], page["oldest"], page["gap"]) == ([4, 5, 6], 4, True)
        assert (await told.body(told.operator, "list_events", after=3))["gap"] is False
        assert await told.events(entity_ids=[filed.body["entity_id"]]) == []
        assert (await told.rows())["event_entities"] == 8


async def test_a_webhook_shows_its_secret_once(pool: Story) -> None:
    """Made or given, stored sealed, shown in the answer and its replay only."""
    made = await pool.body(pool.operator, "subscribe", **HOOK, idempotency_key="k")
    assert made["secret"].startswith("whsec_")
    assert (await pool.body(pool.operator, "subscribe", **HOOK, idempotency_key="k")) == made
    assert made["secret"] not in await everything_stored(pool)
    shown = await pool.body(pool.operator, "get_subscription_status", subscription_id=made["subscription_id"])
    assert "secret" not in shown
    given = "whsec_" + base64.b64encode(b"k" * 24).decode()
    assert (await pool.body(pool.operator, "subscribe", **HOOK, secret=given))["secret"] == given
    targets = await pool.pool.webhook_targets()
    assert [target.secrets for target in targets] == [(made["secret"],), (given,)]
    assert targets[0].filter == EventFilter(entity_types=["issue"])
    assert targets[0].loopback_allowed
    assert targets[0].created_seq == 0


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"entity_types": None}, "entity_types"),
        ({"webhook_url": None}, "webhook_url"),
        ({"webhook_url": "ftp://public.example/"}, "webhook_url"),
        ({"webhook_url": "http://user:pw@public.example/"}, "webhook_url"),
        ({"webhook_url": "http://private.example/"}, "webhook_url"),
        ({"webhook_url": "http://mixed.example/"}, "webhook_url"),
        ({"webhook_url": "http://nowhere.example/"}, "webhook_url"),
        ({"webhook_url": "http://public.example:99999/"}, "webhook_url"),
        ({"webhook_url": "http://"}, "webhook_url"),
        ({"webhook_url": "http://public.example\\@127.0.0.1/"}, "webhook_url"),
        ({"secret": "hunter2"}, "secret"),
        ({"secret": "whsec_c2hvcnQ="}, "secret"),
        ({"secret": "whsec_" + "QUFB" * 22}, "secret"),
        ({"delivery_method": "sse"}, "webhook_url"),
        ({"max_failures": 0}, "max_failures"),
        ({"event_types": ["entity.exploded"]}, "event_types.0"),
        ({"entity_ids": []}, "entity_ids"),
    ],
)
async def test_a_subscription_must_make_sense(pool: Story, changed: dict[str, Any], field: str) -> None:
    """Each mistake names its field and nothing is kept."""
    given = {name: value for name, value in {**HOOK, **changed}.items() if value is not None}
    error = await pool.refused(ValidationFailed, pool.operator, "subscribe", **given)
    assert field in [entry["field"] for entry in error.details["fields"]]
    assert "hunter2" not in str(error.details)


async def test_private_targets_need_the_setting(tmp_path: Path) -> None:
    """With it they are accepted, cloud metadata never."""
    async with story(tmp_path / "p.sqlite3", PoolPolicy(allow_private_webhooks=True)) as told:
        await told.call(told.operator, "subscribe", **HOOK | {"webhook_url": "https://private.example/x"})
        wrong = HOOK | {"webhook_url": "https://mixed.example/"}
        await told.refused(ValidationFailed, told.operator, "subscribe", **wrong)


async def test_rotation_overlaps_for_a_day(pool: Story) -> None:
    """Both sign until the old one retires or the next rotation; then one."""
    made = await pool.body(pool.operator, "subscribe", **HOOK)
    reference = {"subscription_id": made["subscription_id"]}
    pool.clock.advance(seconds=1)
    second = await pool.body(pool.operator, "rotate_subscription_secret", **reference)
    assert (await pool.pool.webhook_targets())[0].secrets == (second["secret"], made["secret"])
    pool.clock.advance(hours=1)
    third = await pool.body(pool.operator, "rotate_subscription_secret", **reference)
    assert (await pool.pool.webhook_targets())[0].secrets == (third["secret"], second["secret"])
    pool.clock.advance(hours=25)
    assert (await pool.pool.webhook_targets())[0].secrets == (third["secret"],)


async def test_failures_are_counted_and_switch_off(pool: Story) -> None:
    """In a row only; the subscription says why it is off and is not delivered to any more."""
    made = await pool.body(pool.operator, "subscribe", **HOOK, max_failures=3)
    subscription_id = made["subscription_id"]

    def outcome(number: int, *, delivered: bool = False, gone: bool = False) -> Outcome:
        return Outcome(f"evt_{number}", "2026-11-30T12:00:00.000000Z", delivered, "timed out", gone)

    record = pool.pool.record_deliveries
    assert await record(subscription_id, [outcome(1), outcome(2), outcome(3, delivered=True), outcome(4)])
    shown = await pool.body(pool.operator, "get_subscription_status", subscription_id=subscription_id)
    assert (shown["delivered"], shown["failed"], shown["consecutive_failures"]) == (1, 3, 1)
    assert shown["last_failure"] == {
        "event_id": "evt_4",
        "at": "2026-11-30T12:00:00.000000Z",
        "reason": "timed out",
    }
    assert not await record(subscription_id, [outcome(5), outcome(6)])
    shown = await pool.body(pool.operator, "get_subscription_status", subscription_id=subscription_id)
    assert (shown["active"], shown["inactive_reason"]) == (False, "3 failures in a row")
    assert await pool.pool.webhook_targets() == []
    await pool.refused(Conflict, pool.operator, "rotate_subscription_secret", subscription_id=subscription_id)
    other = (await pool.body(pool.operator, "subscribe", **HOOK))["subscription_id"]
    assert not await record(other, [outcome(7, gone=True)])
    shown = await pool.body(pool.operator, "get_subscription_status", subscription_id=other)
    assert "410" in shown["inactive_reason"]
    assert not await record("sub_" + "0" * 24, [outcome(8)])


async def test_unsubscribe_is_idempotent_and_listed(pool: Story) -> None:
    """It stays readable, inactive."""
    ids = [(await pool.body(pool.operator, "subscribe", **HOOK))["subscription_id"] for _ in range(3)]
    for _ in range(2):
        assert await pool.body(pool.operator, "unsubscribe", subscription_id=ids[0]) == {
            "subscription_id": ids[0],
            "active": False,
        }
    first = await pool.body(pool.operator, "list_subscriptions", limit=2)
    assert [(item["subscription_id"], item["active"]) for item in first["items"]] == [
        (ids[0], False),
        (ids[1], True),
    ]
    rest = await pool.body(pool.operator, "list_subscriptions", after=first["next_after"])
    assert ([item["subscription_id"] for item in rest["items"]], rest["next_after"]) == ([ids[2]], None)
    await pool.refused(NotFound, pool.operator, "unsubscribe", subscription_id="sub_" + "0" * 24)


async def test_a_guest_follows_its_own_thread_only(pool: Story) -> None:
    """By SSE; it neither sees nor cancels another's subscription."""
    mine, public = await pool.submit(), await pool.submit()
    guest, other = await pool.guest(mine), await pool.guest(public)
    made = await pool.body(guest, "subscribe", delivery_method="sse", event_types=["entity.updated"])
    assert made["entity_ids"] == [mine.body["entity_id"]]
    assert "secret" not in made
    reference = {"subscription_id": made["subscription_id"]}
    for name in ("get_subscription_status", "unsubscribe"):
        await pool.refused(NotFound, other, name, **reference)
    assert (await pool.body(other, "list_subscriptions"))["items"] == []
    assert len((await pool.body(guest, "list_subscriptions"))["items"]) == 1
    await pool.refused(Forbidden, guest, "subscribe", **HOOK)
    await pool.refused(
        Forbidden, guest, "subscribe", delivery_method="sse", entity_ids=[public.body["entity_id"]]
    )
    await pool.refused(NotFound, guest, "subscribe", delivery_method="sse", entity_ids=[UNKNOWN])
    for caller in (pool.anonymous, pool.member):
        error = await pool.refused(
            PoolError, caller, "subscribe", delivery_method="sse", entity_ids=[UNKNOWN]
        )
        assert error.status == (401 if caller is pool.anonymous else 403)


async def test_a_stream_sends_what_its_caller_may_follow(pool: Story) -> None:
    """A guest's is its thread; a subscription's is its filter, while it is on."""
    mine, public = await pool.submit(), await pool.submit()
    guest = await pool.guest(mine)
    issue_id = mine.body["entity_id"]
    assert (await pool.pool.stream_filter(guest, None, None, None)).entity_ids == [issue_id]
    wanted = await pool.pool.stream_filter(pool.operator, None, [issue_id], ["entity.updated"])
    assert wanted == EventFilter(entity_ids=[issue_id], event_types=["entity.updated"])
    with pytest.raises(Forbidden):
        await pool.pool.stream_filter(guest, None, [public.body["entity_id"]], None)
    with pytest.raises(AuthRequired):
        await pool.pool.stream_filter(pool.anonymous, None, [issue_id], None)
    with pytest.raises(Forbidden):
        await pool.pool.stream_filter(pool.member, None, [issue_id], None)
    with pytest.raises(ValidationFailed):
        await pool.pool.stream_filter(pool.operator, None, ["x"], None)
    made = await pool.body(guest, "subscribe", delivery_method="sse", event_types=["entity.updated"])
    subscription_id = made["subscription_id"]
    assert (await pool.pool.stream_filter(guest, subscription_id, None, None)).event_types == [
        "entity.updated"
    ]
    assert await pool.pool.stream_allowed(guest, subscription_id)
    await pool.call(guest, "unsubscribe", subscription_id=subscription_id)
    assert not await pool.pool.stream_allowed(guest, subscription_id)
    with pytest.raises(NotFound):
        await pool.pool.stream_filter(guest, subscription_id, None, None)
    assert await pool.pool.stream_allowed(guest, None)
    pool.clock.advance(days=31)
    assert not await pool.pool.stream_allowed(guest, None)
    await pool.pool.revoke_key("maintainer")
    assert not await pool.pool.stream_allowed(pool.operator, None)


async def test_delivery_reads_everything_as_the_system(pool: Story) -> None:
    """Webhooks and streams read the same log by the same filter."""
    filed = await pool.submit(visibility="private")
    wanted = EventFilter(entity_types=["issue"])
    system = await pool.pool.read_events(0, 10, wanted, viewer=None)
    assert system == await pool.pool.read_events(0, 10, wanted, viewer=pool.operator)
    guest = await pool.guest(filed)
    assert [event["seq"] for event in await pool.pool.read_events(0, 10, wanted, viewer=guest)] == [1]
    assert await pool.pool.read_events(1, 10, wanted, viewer=None) == []


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.1.1", "169.254.169.254", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1", "::", "fe80::1", "fe80::1%eth0", "fec0::1", "4000::1",
        "fc00::1", "ff02::1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::10.0.0.1", "2002:0a00:0001::",
        "64:ff9b::a00:1", "2001:db8::1", "2130706433", "0x7f000001", "localhost", "",
    ],
)  # fmt: skip
def test_addresses_that_are_no_public_host_are_refused(address: str) -> None:
    """Also in the forms that hide one address in another."""
    assert refuse_reason(address, loopback_allowed=True, private_allowed=False) is not None


@pytest.mark.parametrize(
    ("url", "loopback"),
    [
        ("http://127.0.0.1:9/x", True),
        ("http://127.1/x", True),
        ("http://2130706433/x", True),
        ("http://0177.0.0.1/x", True),
        ("http://0x7f.1/x", True),
        ("http://[::1]/x", True),
        ("http://[::ffff:127.0.0.1]/x", True),
        ("http://localhost/x", True),
        ("http://hooks.localhost./x", True),
        ("http://localhost.example.org/x", False),
        ("http://127.0.0.1.example.org/x", False),
        ("http://hooks.example.org/x", False),
        ("http://10.0.0.1/x", False),
    ],
)
def test_a_target_is_loopback_by_its_name_alone(url: str, loopback: bool) -> None:
    """A public name that is pointed at loopback later is no loopback target, whoever subscribed it."""
    assert names_loopback(url) is loopback


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_for_operators(address: str) -> None:
    """In every spelling."""
    assert refuse_reason(address, loopback_allowed=True, private_allowed=False) is None
    assert refuse_reason(address, loopback_allowed=False, private_allowed=False) is not None


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34"])
def test_public_addresses_are_accepted(address: str) -> None:
    """Whatever their form."""
    assert refuse_reason(address, loopback_allowed=False, private_allowed=False) is None


def test_private_addresses_with_the_setting() -> None:
    """But never the metadata service or a multicast group."""
    assert refuse_reason("10.0.0.1", loopback_allowed=False, private_allowed=True) is None
    assert refuse_reason("fe80::1", loopback_allowed=False, private_allowed=True) is None
    for never in ("169.254.169.254", "::ffff:169.254.169.254", "224.0.0.1", "0.0.0.0"):
        assert refuse_reason(never, loopback_allowed=True, private_allowed=True) is not None


def test_a_target_has_a_host_and_a_port() -> None:
    """With the scheme's default."""
    assert split_target("https://a.example/x?y") == ("a.example", 443)
    assert split_target("HTTP://[::1]:8080/") == ("::1", 8080)
