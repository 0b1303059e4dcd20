"""Every row of the contract's error table, through real HTTP and as an MCP tool result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.servers import MCP_HEADERS, REPORT, PoolServer, call_tool, last_seq, rows, submit

ENVELOPE = {"error_code", "message", "details", "timestamp"}
ABSENT = "ent_" + "0" * 24


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The details, once status, code, envelope and media type are what the contract says."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == ENVELOPE
    assert body["error_code"] == code
    assert body["timestamp"].endswith("Z")
    return dict(body["details"])


def tool_refused(result: dict[str, Any], code: str) -> dict[str, Any]:
    """The same of a tool result, in both of its forms."""
    assert result["isError"] is True
    assert set(result["structuredContent"]) == ENVELOPE
    assert result["structuredContent"]["error_code"] == code, result
    assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
    return dict(result["structuredContent"]["details"])


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1]",
        b'"text"',
        b"\xff\xfe",
        b'{"title": NaN}',
        b'{"a":' * 3000 + b"1" + b"}" * 3000,
        b"1" * 5000,
    ],
    ids=["truncated", "array", "string", "not-utf8", "nan", "deep", "long-number"],
)
def test_malformed_json(anonymous: httpx.Client, body: bytes) -> None:
    """A body that is not a JSON object is ERR_VALIDATION naming the body."""
    answer = anonymous.post("/issues/submit", content=body, headers={"content-type": "application/json"})
    assert refused(answer, 400, "ERR_VALIDATION")["fields"]


def test_lone_surrogate(anonymous: httpx.Client) -> None:
    """Text that is not Unicode is refused naming its field, not a 500 from the database."""
    body = json.dumps({**REPORT, "body": "x\ud800"}).encode()
    answer = anonymous.post("/issues/submit", content=body, headers={"content-type": "application/json"})
    assert refused(answer, 400, "ERR_VALIDATION")["fields"][0]["field"] == "body"


def test_validation_names_every_field(anonymous: httpx.Client) -> None:
    """details.fields lists each wrong field with its reason, and repeats no value."""
    body = {"title": "", "body": 7, "kind": "planted-value", "reporter_app_version": "1"}
    details = refused(anonymous.post("/issues/submit", json=body), 400, "ERR_VALIDATION")
    assert {field["field"] for field in details["fields"]} == {"title", "body", "kind"}
    assert all(field["reason"] for field in details["fields"])
    answer = call_tool(anonymous, "submit_issue", body)
    assert {field["field"] for field in tool_refused(answer, "ERR_VALIDATION")["fields"]} >= {"title", "kind"}
    assert "planted-value" not in json.dumps(answer)


def test_link_that_does_not_exist(anonymous: httpx.Client) -> None:
    """An id to link that does not exist is ERR_VALIDATION, on both surfaces."""
    body = {**REPORT, "entity_ids_to_link": [ABSENT]}
    assert refused(anonymous.post("/issues/submit", json=body), 400, "ERR_VALIDATION")["fields"]
    assert tool_refused(call_tool(anonymous, "submit_issue", body), "ERR_VALIDATION")["fields"]


def test_unknown_field(anonymous: httpx.Client) -> None:
    """An unknown field is named beside the allowed ones; MCP does not drop it silently."""
    body = {**REPORT, "severity": "high"}
    details = refused(anonymous.post("/issues/submit", json=body), 400, "ERR_UNKNOWN_FIELD")
    assert details["unknown_fields"] == ["severity"]
    assert "title" in details["allowed_fields"]
    details = tool_refused(call_tool(anonymous, "submit_issue", body), "ERR_UNKNOWN_FIELD")
    assert details["unknown_fields"] == ["severity"]
    assert "api_key" in details["allowed_fields"]


def test_unknown_query_parameter(anonymous: httpx.Client) -> None:
    """An unknown query parameter is refused too, on GET and on POST."""
    details = refused(anonymous.get("/issues", params={"sort": "x"}), 400, "ERR_UNKNOWN_FIELD")
    assert details["unknown_fields"] == ["sort"]
    assert "limit" in details["allowed_fields"]
    refused(anonymous.post("/issues/submit?dry=1", json=REPORT), 400, "ERR_UNKNOWN_FIELD")
    refused(anonymous.get("/issues?limit=5&limit=6"), 400, "ERR_VALIDATION")


def test_reporter_environment(anonymous: httpx.Client) -> None:
    """Neither sha nor version, or blank ones, is the reporter's own error code."""
    body = {"title": "t", "body": "b", "reporter_git_sha": " ", "reporter_app_version": ""}
    code = "ERR_REPORTER_ENVIRONMENT_REQUIRED"
    groups = [["reporter_git_sha"], ["reporter_app_version"]]
    details = refused(anonymous.post("/issues/submit", json=body), 400, code)
    assert details["acceptable_field_groups"] == groups
    assert tool_refused(call_tool(anonymous, "submit_issue", body), code)["acceptable_field_groups"] == groups


def test_auth_required(anonymous: httpx.Client) -> None:
    """Nothing presented where something is needed."""
    refused(anonymous.get("/events"), 401, "ERR_AUTH_REQUIRED")
    tool_refused(call_tool(anonymous, "list_events", {}), "ERR_AUTH_REQUIRED")


def test_forbidden(server: PoolServer, member_key: str) -> None:
    """A valid credential without the right."""
    with server.client(member_key) as member:
        refused(member.get("/events"), 403, "ERR_FORBIDDEN")
        tool_refused(call_tool(member, "list_events", {}), "ERR_FORBIDDEN")


def test_not_found(anonymous: httpx.Client) -> None:
    """Unknown and private are the same answer, and so is a path that does not exist."""
    private = submit(anonymous, visibility="private")["issue_number"]
    for number in (private, 999_999_999):
        refused(anonymous.get(f"/issues/{number}"), 404, "ERR_NOT_FOUND")
        refused(anonymous.post("/issues/status", json={"issue_number": number}), 404, "ERR_NOT_FOUND")
        tool_refused(call_tool(anonymous, "get_issue_status", {"issue_number": number}), "ERR_NOT_FOUND")
    refused(anonymous.get("/nothing/here"), 404, "ERR_NOT_FOUND")
    refused(anonymous.get("/issues/abc"), 404, "ERR_NOT_FOUND")
    tool_refused(call_tool(anonymous, "no_such_tool", {}), "ERR_NOT_FOUND")


def test_method(anonymous: httpx.Client) -> None:
    """A known path with another method is a 405 that lists all methods it takes."""
    answer = anonymous.get("/issues/submit")
    refused(answer, 405, "ERR_METHOD")
    assert answer.headers["allow"] == "POST"
    answer = anonymous.delete("/relationships")
    refused(answer, 405, "ERR_METHOD")
    assert {"GET", "POST"} <= set(answer.headers["allow"].split(", "))


@pytest.mark.parametrize("headers", [{}, {"content-type": "text/plain"}, {"content-type": "application/xml"}])
def test_media_type(anonymous: httpx.Client, headers: dict[str, str]) -> None:
    """A body that is not declared as JSON is a 415."""
    answer = anonymous.post("/issues/submit", content=json.dumps(REPORT).encode(), headers=headers)
    refused(answer, 415, "ERR_MEDIA_TYPE")


def test_compressed_body(anonymous: httpx.Client) -> None:
    """A content encoding is refused rather than parsed as JSON."""
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    refused(anonymous.post("/issues/submit", content=b"\x1f\x8b", headers=headers), 415, "ERR_MEDIA_TYPE")


def test_empty_body(anonymous: httpx.Client) -> None:
    """No body at all is an empty object: missing fields, not a wrong media type."""
    refused(anonymous.post("/issues/submit"), 400, "ERR_VALIDATION")


def test_idempotency_mismatch(anonymous: httpx.Client) -> None:
    """The same key with another content is a 409; with the same content the first answer again."""
    first = submit(anonymous, idempotency_key="errors-1")
    assert submit(anonymous, idempotency_key="errors-1") == first
    body = {**REPORT, "title": "Another", "idempotency_key": "errors-1"}
    refused(anonymous.post("/issues/submit", json=body), 409, "ERR_IDEMPOTENCY_MISMATCH")
    tool_refused(call_tool(anonymous, "submit_issue", body), "ERR_IDEMPOTENCY_MISMATCH")


def test_conflict(operator: httpx.Client) -> None:
    """A key that is taken names the entity that has it."""
    body = {"entity_type": "thing", "fields": {"a": 1}, "key": "errors"}
    taken = operator.post("/entities", json=body)
    assert taken.status_code == 201, taken.text
    details = refused(operator.post("/entities", json=body), 409, "ERR_CONFLICT")
    assert details["entity_id"] == taken.json()["entity_id"]
    tool_refused(call_tool(operator, "create_entity", body), "ERR_CONFLICT")


def test_versions(operator: httpx.Client) -> None:
    """No If-Match is a 428, an old one a 412, a malformed one a 400; all but the last name the version."""
    made = operator.post("/entities", json={"entity_type": "thing", "fields": {"a": 1}})
    assert made.headers["etag"] == f'"{made.json()["version"]}"'
    path = f"/entities/{made.json()['entity_id']}"
    change = {"fields": {"a": 2}}
    details = refused(operator.patch(path, json=change), 428, "ERR_IF_MATCH_REQUIRED")
    assert details["current_version"] == made.json()["version"]
    answer = operator.patch(path, json=change, headers={"if-match": '"99"'})
    assert refused(answer, 412, "ERR_VERSION_MISMATCH")["current_version"] == made.json()["version"]
    for malformed in ("x", '"1", "2"', '"-1"', '""'):
        answer = operator.patch(path, json=change, headers={"if-match": malformed})
        refused(answer, 400, "ERR_VALIDATION")
    refused(operator.patch(path, json={**change, "if_match": 1}), 400, "ERR_UNKNOWN_FIELD")
    done = operator.patch(path, json=change, headers={"if-match": made.headers["etag"]})
    assert done.status_code == 200
    assert done.headers["etag"] == f'"{done.json()["version"]}"'
    assert operator.patch(path, json=change, headers={"if-match": "*"}).status_code == 200
    arguments = {"entity_id": made.json()["entity_id"], "fields": {"a": 3}}
    tool_refused(call_tool(operator, "update_entity", arguments), "ERR_IF_MATCH_REQUIRED")
    tool_refused(call_tool(operator, "update_entity", {**arguments, "if_match": 1}), "ERR_VERSION_MISMATCH")


def _declared() -> bytes:
    return b'{"title": "' + b"x" * 300_000 + b'"}'


def _chunked() -> Any:
    for _ in range(300):
        yield b"x" * 1024


@pytest.mark.parametrize("body", [_declared, _chunked], ids=["content-length", "chunked"])
@pytest.mark.parametrize("path", ["/issues/submit", "/mcp", "/nothing"])
def test_too_large(server: PoolServer, body: Callable[[], Any], path: str) -> None:
    """Over 256 KiB is a 413 on every route, before credentials are looked at."""
    with server.client("fk_wrong") as client:
        answer = client.post(path, content=body(), headers={"content-type": "application/json"})
    assert refused(answer, 413, "ERR_TOO_LARGE")["max_bytes"] == 256 * 1024


def test_just_within_the_cap(anonymous: httpx.Client) -> None:
    """The largest body a report can have gets in."""
    assert submit(anonymous, body="é" * 65_536)["issue_number"]


def test_host_of_another_name(server: PoolServer) -> None:
    """A page that points its own name at loopback gets nothing: 400 from HTTP, the SDK's 421 from MCP."""
    with server.client(host="evil.example:80") as client:
        assert refused(client.get("/issues"), 400, "ERR_VALIDATION")["fields"][0]["field"] == "host"
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert client.post("/mcp", json=request, headers=MCP_HEADERS).status_code == 421
        wrong_origin = {**MCP_HEADERS, "host": "localhost", "origin": "http://evil.example"}
        assert client.post("/mcp", json=request, headers=wrong_origin).status_code == 403


def test_a_refused_call_leaves_nothing(server: PoolServer, anonymous: httpx.Client, member_key: str) -> None:
    """No row, no event, no grant from any refusal."""
    issue = submit(anonymous)
    with server.operator() as operator:
        head = last_seq(server.database)
        before = rows(server.database)
        attempts: list[dict[str, Any]] = [
            {"title": "t", "body": "b"},
            {**REPORT, "extra": 1},
            {**REPORT, "entity_ids_to_link": [issue["entity_id"], ABSENT]},
            {**REPORT, "guest_access_token": "gt_wrong"},
            {**REPORT, "idempotency_key": "k" * 129},
        ]
        for body in attempts:
            assert anonymous.post("/issues/submit", json=body).status_code >= 400
            assert call_tool(anonymous, "submit_issue", body)["isError"]
        message = {"issue_number": issue["issue_number"], "body": "x"}
        assert anonymous.post("/issues/add_message", json=message).status_code == 401
        update = {"issue_number": issue["issue_number"], "status": "closed"}
        with server.client(member_key) as member:
            assert member.post("/issues/update", json=update).status_code == 403
        assert rows(server.database) == before, "the event log is one of the tables"
        assert operator.get("/events", params={"after": head}).json()["items"] == []
