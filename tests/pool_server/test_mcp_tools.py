"""MCP: the tools as real clients see them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import httpx2
import jsonschema
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from pool_server.pool import OPERATIONS
from tests.servers import MCP_HEADERS, REPORT, PoolServer, call_tool, submit


async def test_a_report_through_the_official_client(server: PoolServer) -> None:
    """File, read, answer and follow a thread with nothing but the official client."""
    async with Client(f"{server.url}/mcp") as client:
        filed = await client.call_tool("submit_issue", REPORT)
        assert not filed.is_error
        issue = filed.structured_content
        assert issue["status"] == "open"
        token = {"guest_access_token": issue["guest_access_token"]}
        which = {"issue_number": issue["issue_number"]}
        added = await client.call_tool(
            "add_issue_message", {**which, **token, "body": "More.", "reporter_app_version": "1.4.2"}
        )
        assert not added.is_error
        status = await client.call_tool("get_issue_status", {**which, **token})
        assert [message["body"] for message in status.structured_content["messages"]] == [
            REPORT["body"],
            "More.",
        ]
        again = await client.call_tool(
            "get_issue_status", {**which, **token, "since": status.structured_content["revision"]}
        )
        assert again.structured_content["changed"] is False
        assert again.structured_content["messages"] == []


async def test_credentials_in_headers(server: PoolServer) -> None:
    """A key in the transport's headers makes an operator; a wrong one is refused by every tool."""
    headers = {"x-api-key": server.operator_key}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        listed = await client.call_tool("list_events", {"limit": 1})
        assert not listed.is_error
    async with (
        httpx2.AsyncClient(headers={"authorization": "Bearer fk_wrong"}) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        for tool in ("list_issues", "submit_issue", "no_such_tool"):
            refused = await client.call_tool(tool, {})
            assert refused.is_error
            assert refused.structured_content["error_code"] == "ERR_AUTH_INVALID"


async def test_the_listing(server: PoolServer) -> None:
    """Every operation is a tool with both schemas, annotations and a description; writes take api_key."""
    async with Client(f"{server.url}/mcp") as client:
        instructions = client.instructions or ""
        for promise in ("without", "reporter_app_version", "personal data", "silent", "verify_resolution"):
            assert promise in instructions
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools.keys() == {operation.name for operation in OPERATIONS}
    for operation in OPERATIONS:
        tool = tools[operation.name]
        assert tool.description
        assert tool.output_schema is not None
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (operation.effect == "read")
        assert tool.annotations.destructive_hint is operation.destructive
        assert ("api_key" in tool.input_schema["properties"]) is (operation.effect == "write")
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_older_clients(anonymous: httpx.Client, version: str) -> None:
    """A client of an older protocol initialises and calls as it used to."""
    client_info = {"name": "old", "version": "1"}
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client_info}
    request = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    answer = anonymous.post("/mcp", json=request, headers=MCP_HEADERS)
    assert answer.json()["result"]["protocolVersion"] == version
    assert answer.json()["result"]["serverInfo"]["name"] == "formica-pool"
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "list_issues", "arguments": {"limit": 1}},
    }
    headers = {**MCP_HEADERS, "mcp-protocol-version": version}
    result = anonymous.post("/mcp", json=call, headers=headers).json()["result"]
    assert not result.get("isError")


@pytest.mark.parametrize("version", [None, "2025-06-18", "2026-07-28"])
def test_get_is_not_a_stream(anonymous: httpx.Client, version: str | None) -> None:
    """GET /mcp is a 405 at once, not a stream in which nothing ever comes."""
    headers = {"accept": "text/event-stream"} | ({"mcp-protocol-version": version} if version else {})
    answer = anonymous.get("/mcp", headers=headers)
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


def test_text_keeps_code_intact(anonymous: httpx.Client) -> None:
    """The text form has a report's lines as they were written."""
    body = "def f():\n    return {'a': \"b\"}\n\n# done"
    issue = submit(anonymous, body=body)
    result = call_tool(anonymous, "get_issue_status", {"issue_number": issue["issue_number"]})
    text = result["content"][0]["text"]
    assert body in text
    assert f"issue_number: {issue['issue_number']}" in text
    filed = call_tool(anonymous, "submit_issue", REPORT)
    assert filed["structuredContent"]["guest_access_token"] in filed["content"][0]["text"]


def test_idempotent_over_both_surfaces(anonymous: httpx.Client) -> None:
    """A retry over the other surface is still the same report."""
    body = {**REPORT, "idempotency_key": "mcp-and-http"}
    first = call_tool(anonymous, "submit_issue", body)["structuredContent"]
    assert anonymous.post("/issues/submit", json=body).json() == first


def test_hostile_arguments(anonymous: httpx.Client) -> None:
    """Odd arguments are a refusal with our envelope, or the SDK's, never a crash."""
    deep: object = 1
    for _ in range(100):
        deep = {"a": deep}
    for arguments in ({"title": deep}, {"title": "x" * 300}, {"labels": "a"}, {"x" * 1000: 1}):
        result = call_tool(anonymous, "submit_issue", arguments)
        assert result["isError"]
        assert result["structuredContent"]["error_code"] in ("ERR_VALIDATION", "ERR_UNKNOWN_FIELD")
    raw = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "submit_issue", "arguments": {**REPORT, "title": "\ud800"}},
        }
    )
    headers = {**MCP_HEADERS, "content-type": "application/json", "mcp-protocol-version": "2026-07-28"}
    answer = anonymous.post("/mcp", content=raw, headers=headers)
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "id": 7, "method": "KEY"},
        {"jsonrpc": "2.0", "id": 7, "method": "KEY", "params": {"api_key": "KEY"}},
        {"jsonrpc": "2.0", "id": 7, "params": {"name": "x", "arguments": {"api_key": "KEY"}}},
        {"jsonrpc": "KEY", "id": 7, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": ["KEY"]}},
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"arguments": "KEY"}},
        {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"protocolVersion": ["KEY"]}},
        [{"KEY": "KEY"}],
        "KEY",
    ],
)
@pytest.mark.parametrize("version", [None, "2025-06-18", "KEY"])
def test_protocol_errors_repeat_nothing(server: PoolServer, message: Any, version: str | None) -> None:
    """JSON-RPC form and code, a text of ours, and no part of the request."""
    key = server.operator_key
    body = json.dumps(message).replace("KEY", key)
    headers = {**MCP_HEADERS, "content-type": "application/json"}
    if version is not None:
        headers["mcp-protocol-version"] = version.replace("KEY", key)
    with server.client() as client:
        answer = client.post("/mcp", content=body, headers=headers)
    error = answer.json()["error"]
    assert isinstance(error["code"], int)
    assert error["message"]
    assert not [part for part in (key[:12], key[12:24], key[-12:]) if part in answer.text]


def test_the_log_repeats_no_header(server: PoolServer) -> None:
    """The SDK warns about a Host it does not know, by name."""
    planted = "planted-" + server.operator_key[3:15].lower()
    with server.client() as client:
        refused = client.post("/mcp", json={}, headers={**MCP_HEADERS, "host": planted})
        assert refused.status_code == 421
        assert client.post("/mcp", json={}, headers={**MCP_HEADERS, "origin": planted}).status_code == 403
    assert planted not in server.log.read_text(encoding="utf-8")
