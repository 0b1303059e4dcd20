"""What is decided before an operation is looked at: the rate limit, readiness, and refusals that say nothing."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import Any

import httpx
import pytest

from pool_server.contract import models as m
from pool_server.pool import OPERATIONS
from pool_server.web.rest import HTTP_ROUTES
from tests.servers import MCP_HEADERS, REPORT, PoolServer, call_tool, submit

UNKNOWN = "ent_" + "0" * 24


def test_every_call_counts_once_whatever_is_in_it(tmp_path: Path) -> None:
    """Malformed, unknown, incomplete and good ones, on both surfaces; the sixth of five is refused."""
    with PoolServer(tmp_path, {"POOL_RATE_ANONYMOUS_PER_MINUTE": "7"}) as server, server.client() as client:
        json_header = {"content-type": "application/json"}
        calls = [
            client.post("/issues/submit", content=b"{", headers=json_header),
            client.post("/issues/submit", json={"title": "x"}),
            client.post("/issues/status", json={"nonsense": 1}),
            client.post("/issues/submit?x=1", json=REPORT),
            client.post("/issues/submit", json=REPORT),
        ]
        assert [call.status_code for call in calls] == [400, 400, 400, 400, 201]
        codes = [
            call_tool(client, "submit_issue", {"api_key": 7})["structuredContent"]["error_code"],
            call_tool(client, "no_such_tool", {})["structuredContent"]["error_code"],
            call_tool(client, "submit_issue", {"title": "x"})["structuredContent"]["error_code"],
        ]
        assert codes == ["ERR_VALIDATION", "ERR_NOT_FOUND", "ERR_RATE_LIMITED"]
        for body in (b"{", b'{"title": "x"}'):
            late = client.post("/issues/submit", content=body, headers=json_header)
            assert (late.status_code, late.json()["error_code"]) == (429, "ERR_RATE_LIMITED")
        assert client.get("/issues").status_code == 200
        with server.operator() as operator:
            assert operator.post("/issues/submit", json={}).status_code == 400


def test_a_guests_malformed_calls_count(tmp_path: Path) -> None:
    """Every guest call per token, streams included."""
    settings = {"POOL_RATE_GUEST_PER_MINUTE": "3", "POOL_RATE_ANONYMOUS_PER_MINUTE": "0"}
    with PoolServer(tmp_path, settings) as server, server.client() as client:
        guest = {"x-guest-token": submit(client)["guest_access_token"]}
        answers = [
            client.get("/events", params={"limit": "many"}, headers=guest),
            client.get("/events/stream", params={"nonsense": "1"}, headers=guest),
            client.post("/issues/status", json={}, headers=guest),
            client.get("/issues/1", headers=guest),
        ]
        assert [answer.status_code for answer in answers] == [400, 400, 400, 429]


def test_who_may_not_call_is_told_so_before_what_is_wrong(server: PoolServer, member_key: str) -> None:
    """Role before body, on every operation and both surfaces."""
    with server.client() as anonymous, server.client(member_key) as member:
        guest = server.client(x_guest_token=submit(anonymous)["guest_access_token"])
        clients: dict[str, tuple[httpx.Client, int]] = {
            "anonymous": (anonymous, 401), "member": (member, 403), "guest": (guest, 403),
        }  # fmt: skip
        for route in HTTP_ROUTES:
            path = re.sub("{issue_number}", "1", re.sub("{[a-z]+_id}", "x", route.path))
            for role in clients.keys() - route.operation.roles:
                client, status = clients[role]
                answer = client.request(route.method, path, content=b"{" if route.has_body else None)
                assert answer.status_code == status, (role, route.path)
                body = call_tool(client, route.operation.name, {"nonsense": 1})["structuredContent"]
                assert body["error_code"] == ("ERR_AUTH_REQUIRED" if status == 401 else "ERR_FORBIDDEN")
        guest.close()


def test_a_guest_without_headers_reads_what_it_follows(server: PoolServer, anonymous: httpx.Client) -> None:
    """On MCP every tool a guest may call takes its token; no query string does."""
    token = submit(anonymous)["guest_access_token"]
    made = call_tool(
        anonymous, "subscribe",
        {"entity_types": ["issue"], "delivery_method": "sse", "guest_access_token": token},
    )["structuredContent"]  # fmt: skip
    named = {"subscription_id": made["subscription_id"]}
    for tool, more in (("list_subscriptions", {}), ("get_subscription_status", named), ("list_events", {})):
        assert not call_tool(anonymous, tool, {**more, "guest_access_token": token}).get("isError"), tool
    refused = anonymous.get("/events", params={"guest_access_token": token}, headers={"x-guest-token": token})
    assert refused.json()["error_code"] == "ERR_UNKNOWN_FIELD"
    for operation in OPERATIONS:
        if "guest" in operation.roles:
            assert "guest_access_token" in operation.input.model_fields, operation.name


def test_null_is_absent(operator: httpx.Client, anonymous: httpx.Client) -> None:
    """For every argument that may be left out, by schema and in fact."""
    nothing = {name: None for name in m.SubmitIssue.model_fields if name not in REPORT}
    filed = submit(anonymous, **nothing)
    assert (filed["visibility"], filed["status"]) == ("public", "open")
    for operation in OPERATIONS:
        schema = operation.input.model_json_schema()
        for name, field in operation.input.model_fields.items():
            nullable = {"type": "null"} in schema["properties"][name].get("anyOf", ())
            assert nullable is not field.is_required(), (operation.name, name)
    made = call_tool(
        operator, "list_events", {"after": None, "limit": None, "wait": None, "entity_ids": None}
    )
    assert not made.get("isError")
    cleared = operator.patch(
        f"/entities/{filed['entity_id']}", json={"fields": {"title": None}}, headers={"if-match": "*"}
    )
    assert cleared.status_code == 400


@pytest.mark.parametrize("name", ["Widget", "user-profile", "my.type", "Ünï", "a b", "x" * 65, "x" * 128])
def test_types_are_free(operator: httpx.Client, anonymous: httpx.Client, name: str) -> None:
    """As a hint, as a type and in filters."""
    filed = submit(anonymous, entity_type=name)
    assert operator.get(f"/issues/{filed['issue_number']}").json()["entity_type"] == name
    made = operator.post("/entities", json={"entity_type": name, "fields": {}})
    assert (made.status_code, made.json()["entity_type"]) == (201, name)
    listed = operator.get("/entities", params={"type": name}).json()["items"]
    assert made.json()["entity_id"] in [item["entity_id"] for item in listed]
    events = operator.get("/events", params={"entity_types": name}).json()["items"]
    assert made.json()["entity_id"] in [event["entity_id"] for event in events]


@pytest.mark.parametrize("name", ["", " ", "x" * 129, "a\nb", "a\x85b", "\u200b", "a\u200bb", None])
def test_what_is_no_type(operator: httpx.Client, name: str | None) -> None:
    """Blank, too long, or with what cannot be seen."""
    assert operator.post("/entities", json={"entity_type": name, "fields": {}}).status_code == 400


def test_a_blank_hint_is_absent(operator: httpx.Client, anonymous: httpx.Client) -> None:
    """As with every optional text of a report."""
    filed = submit(anonymous, entity_type=" ")
    assert operator.get(f"/issues/{filed['issue_number']}").json()["entity_type"] is None


def test_a_strangers_build_answers_no_question(
    server: PoolServer, operator: httpx.Client, anonymous: httpx.Client, member_key: str
) -> None:
    """It was the reporter who was asked; a message that names the question answers it, whoever sends it."""
    filed = submit(anonymous)
    named = {"entity_id": filed["entity_id"]}
    question = {"needs": ["reporter_git_sha"], "text": "Which commit?"}
    asked = operator.post("/issues/add_message", json={**named, "body": "q", "question": question}).json()
    told = {**named, "body": "Here too.", "reporter_git_sha": "0123abc"}

    def status() -> str:
        return str(operator.get(f"/issues/{filed['issue_number']}").json()["status"])

    with server.client(member_key) as stranger:
        assert stranger.post("/issues/add_message", json=told).status_code == 201
        assert status() == "awaiting_input"
        answers = {**named, "body": "It is abc.", "answers": asked["message_id"]}
        assert stranger.post("/issues/add_message", json=answers).status_code == 201
        assert status() == "open"
    operator.post("/issues/add_message", json={**named, "body": "q", "question": question})
    guest = {**told, "guest_access_token": filed["guest_access_token"]}
    assert anonymous.post("/issues/add_message", json=guest).status_code == 201
    assert status() == "open"


def without_time(answer: httpx.Response) -> dict[str, Any]:
    body = dict(answer.json())
    assert body.pop("timestamp")
    return {"status": answer.status_code, **body}


def test_unknown_and_private_are_one_answer(server: PoolServer, anonymous: httpx.Client) -> None:
    """To a guest, wherever an id can be named: the whole body is the same."""
    guest = {"x-guest-token": submit(anonymous)["guest_access_token"]}
    private = submit(anonymous, visibility="private")
    for path, where in (
        ("/subscribe", "json"), ("/events", "params"), ("/events/stream", "params"), ("/issues/status", "issue"),
        ("/issues/add_message", "issue"), ("/issues/verify", "issue"), ("/issues/withdraw", "issue"),
        ("/issues/renew", "issue"),
    ):  # fmt: skip

        def asked(entity_id: str, path: str = path, where: str = where) -> dict[str, Any]:
            if where == "params":
                return without_time(anonymous.get(path, params={"entity_ids": entity_id}, headers=guest))
            body: dict[str, Any] = {"entity_ids": [entity_id], "delivery_method": "sse"}
            if where == "issue":
                more = {"/issues/add_message": {"body": "b"}, "/issues/verify": {"worked": True}}
                body = {"entity_id": entity_id, **more.get(path, {})}
            return without_time(anonymous.post(path, json=body, headers=guest))

        unknown = asked(UNKNOWN)
        assert unknown["status"] == 404, path
        for named in (private["entity_id"], private["conversation_id"]):
            assert asked(named) == unknown, path


@pytest.mark.parametrize("digits", [16, 17, 5000])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_number_of_any_length_is_refused(anonymous: httpx.Client, method: str, digits: int) -> None:
    """Python reads no number of more than 4,300 digits."""
    answer = anonymous.request(method, "/issues/" + "9" * digits)
    assert answer.status_code in (400, 404, 405)


@pytest.mark.parametrize(
    ("path", "name"),
    [("/issues", "after"), ("/issues", "limit"), ("/entities", "limit"), ("/events", "after")],
)
def test_a_number_of_any_length_in_a_query(operator: httpx.Client, path: str, name: str) -> None:
    """The same."""
    assert operator.get(path, params={name: "9" * 5000}).status_code == 400


def test_ready_means_that_writes_are_taken(tmp_path: Path) -> None:
    """While files may not grow every write is a 503 and so is /ready; afterwards both are well again."""
    with PoolServer(tmp_path, {"POOL_RATE_ANONYMOUS_PER_MINUTE": "0"}) as server, server.client() as client:
        assert server.process is not None
        submit(client)
        pid = server.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        log = server.database.with_name(f"{server.database.name}-wal")
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (log.stat().st_size, before[1]))
        assert client.post("/issues/submit", json=REPORT).status_code == 503
        refused = client.get("/ready")
        assert (refused.status_code, refused.json()["error_code"]) == (503, "ERR_UNAVAILABLE")
        assert client.get("/health").status_code == 200
        assert client.get("/issues/1").status_code == 200
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        assert client.get("/ready").status_code == 200
        submit(client)


def test_a_database_that_was_replaced_takes_no_writes(tmp_path: Path) -> None:
    """Nothing is acknowledged that a restart would not find."""
    with PoolServer(tmp_path, {"POOL_RATE_ANONYMOUS_PER_MINUTE": "0"}) as server, server.client() as client:
        submit(client)
        server.database.unlink()
        server.database.write_bytes(b"")
        assert client.post("/issues/submit", json=REPORT).status_code == 503
        assert client.get("/ready").status_code == 503


def test_refusals_of_the_transport_are_json_rpc(anonymous: httpx.Client) -> None:
    """A client that accepts no JSON is told so, in the SDK's form."""
    answer = anonymous.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers={"accept": "a/b"}
    )
    assert answer.status_code == 406
    assert "accept" in answer.json()["error"]["message"]
    good = anonymous.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=MCP_HEADERS)
    assert good.json()["result"] == {}


TEXTS = [
    "x",
    " x\n",
    "",
    " ",
    "\n",
    "\u200b",
    "\u3164\u2800",
    "a\x00b",
    "\x1c",
    "\x85",
    "\ufe0f",
    "ü",
    "\ufeff ",
]


@pytest.mark.parametrize("name", ["title", "body"])
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_the_schema_says_what_text_is_taken(anonymous: httpx.Client, name: str, text: str) -> None:
    """What fits the published pattern and length is accepted, and nothing else is."""
    schema = anonymous.get("/openapi.json").json()["components"]["schemas"]["SubmitIssue"]["properties"][name]
    fits = len(text) >= schema["minLength"] and re.search(schema["pattern"], text) is not None
    answer = anonymous.post("/issues/submit", json={**REPORT, name: text})
    assert (answer.status_code == 201) is fits


def test_every_text_that_may_not_hold_nul_says_so() -> None:
    """Free text in an input has a pattern, wherever it stands."""
    for operation in OPERATIONS:
        schema = operation.input.model_json_schema()
        parts = [*schema["properties"].items()]
        for definition in schema.get("$defs", {}).values():
            parts += definition.get("properties", {}).items()
        for name, part in parts:
            for option in part.get("anyOf", [part]):
                free = option.get("type") == "string" and not {"enum", "const"} & option.keys()
                if free and name != "guest_access_token":
                    assert "pattern" in option, (operation.name, name)


def test_the_models_keep_their_names() -> None:
    """Whatever module they live in, programs import them from one."""
    for name in (
        "Input",
        "SubmitIssue",
        "Entity",
        "EventFilter",
        "Subscription",
        "ErrorBody",
        "MAX_BODY_BYTES",
    ):
        assert hasattr(m, name)
