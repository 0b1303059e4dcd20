"""Who may do what: role × operation, over HTTP and MCP, made from the table both are made from.

A new operation, route or tool without a row here fails. A refused call leaves no row, no event and no grant.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from pool_server.pool import BY_NAME, OPERATIONS
from pool_server.web.rest import HTTP_ROUTES, STREAM_ROUTE
from tests.servers import MCP_HEADERS, REPORT, PoolServer, call_tool, rows, run_cli, submit

ROLES = ("anonymous", "own guest", "other guest", "member", "operator", "expired guest", "revoked key")
OK = "ok"
REQUIRED, INVALID = "ERR_AUTH_REQUIRED", "ERR_AUTH_INVALID"
FORBIDDEN, ABSENT = "ERR_FORBIDDEN", "ERR_NOT_FOUND"

# operation: anonymous, own guest, other guest, member, operator. Expired and revoked are always INVALID.
OPERATORS_ONLY = (REQUIRED, FORBIDDEN, FORBIDDEN, FORBIDDEN, OK)
TABLE: dict[str, tuple[str, str, str, str, str]] = {
    "submit_issue": (OK, FORBIDDEN, FORBIDDEN, OK, OK),
    "add_issue_message": (REQUIRED, OK, FORBIDDEN, OK, OK),
    "add_issue_message on a private issue": (REQUIRED, OK, ABSENT, ABSENT, OK),
    "get_issue_status": (OK, OK, FORBIDDEN, OK, OK),
    "get_issue_status on a private issue": (ABSENT, OK, ABSENT, ABSENT, OK),
    "verify_resolution": (REQUIRED, OK, FORBIDDEN, FORBIDDEN, OK),
    "withdraw_issue": (REQUIRED, OK, FORBIDDEN, FORBIDDEN, OK),
    "renew_guest_access": (REQUIRED, OK, FORBIDDEN, FORBIDDEN, FORBIDDEN),
    "list_issues": (OK, FORBIDDEN, FORBIDDEN, OK, OK),
    "update_issue": OPERATORS_ONLY,
    "resolve_issue": OPERATORS_ONLY,
    "reopen_issue": OPERATORS_ONLY,
    "bulk_close_issues": OPERATORS_ONLY,
    "get_entity": OPERATORS_ONLY,
    "list_entities": OPERATORS_ONLY,
    "create_entity": OPERATORS_ONLY,
    "update_entity": OPERATORS_ONLY,
    "get_history": OPERATORS_ONLY,
    "list_relationships": OPERATORS_ONLY,
    "create_relationship": OPERATORS_ONLY,
    "subscribe": (REQUIRED, OK, FORBIDDEN, FORBIDDEN, OK),
    "unsubscribe": (REQUIRED, OK, ABSENT, FORBIDDEN, OK),
    "list_subscriptions": (REQUIRED, OK, OK, FORBIDDEN, OK),
    "get_subscription_status": (REQUIRED, OK, ABSENT, FORBIDDEN, OK),
    "rotate_subscription_secret": OPERATORS_ONLY,
    "list_events": (REQUIRED, OK, FORBIDDEN, FORBIDDEN, OK),
}
FOLLOW_EVENTS = (REQUIRED, OK, FORBIDDEN, FORBIDDEN, OK)


@dataclass
class Stage:
    """A server with an issue in any state wanted, and everybody's credentials."""

    server: PoolServer
    operator: httpx.Client
    headers: dict[str, dict[str, str]]
    issue: dict[str, Any]

    def issue_arguments(self) -> dict[str, Any]:
        return {"issue_number": self.issue["issue_number"]}

    def done(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.operator.post(path, json=body)
        assert answer.status_code < 300, answer.text
        return dict(answer.json())


FRESH = itertools.count()


def _resolve(stage: Stage) -> dict[str, Any]:
    resolution = {"kind": "fixed", "summary": "done"}
    stage.done("/issues/resolve", **stage.issue_arguments(), resolution=resolution)
    return {**stage.issue_arguments(), "worked": True, "reporter_app_version": "2"}


def _entity(stage: Stage) -> str:
    return str(stage.done("/entities", entity_type="thing", fields={"a": 1})["entity_id"])


def _subscription(stage: Stage) -> dict[str, Any]:
    """Made by the issue's own guest."""
    body = {"delivery_method": "sse", "entity_ids": [stage.issue["entity_id"]]}
    headers = stage.headers["own guest"]
    with stage.server.client() as guest:
        answer = guest.post("/subscribe", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return {"subscription_id": answer.json()["subscription_id"]}


def _webhook(stage: Stage) -> dict[str, Any]:
    made = stage.done(
        "/subscribe",
        delivery_method="webhook",
        webhook_url="http://127.0.0.1:9/",
        entity_types=["never_written"],
    )
    return {"subscription_id": made["subscription_id"]}


RESOLUTION = {"kind": "answered", "summary": "as documented"}
ARGUMENTS: dict[str, Callable[[Stage], dict[str, Any]]] = {
    "submit_issue": lambda _: dict(REPORT),
    "add_issue_message": lambda stage: {**stage.issue_arguments(), "body": "x", "reporter_app_version": "1"},
    "get_issue_status": Stage.issue_arguments,
    "verify_resolution": _resolve,
    "withdraw_issue": Stage.issue_arguments,
    "renew_guest_access": Stage.issue_arguments,
    "list_issues": lambda _: {},
    "update_issue": lambda stage: {**stage.issue_arguments(), "labels": [f"l{next(FRESH)}"]},
    "resolve_issue": lambda stage: {**stage.issue_arguments(), "resolution": RESOLUTION},
    "reopen_issue": lambda stage: {
        name: value for name, value in _resolve(stage).items() if name == "issue_number"
    },
    "bulk_close_issues": lambda stage: {"entity_ids": [stage.issue["entity_id"]], "resolution": RESOLUTION},
    "get_entity": lambda stage: {"entity_id": _entity(stage)},
    "list_entities": lambda _: {},
    "create_entity": lambda _: {"entity_type": "thing", "fields": {"n": next(FRESH)}},
    "update_entity": lambda stage: {"entity_id": _entity(stage), "fields": {"a": 2}, "if_match": "*"},
    "get_history": lambda stage: {"entity_id": _entity(stage)},
    "list_relationships": lambda _: {},
    "create_relationship": lambda stage: {
        "relationship_type": "REFERS_TO",
        "source_entity_id": _entity(stage),
        "target_entity_id": _entity(stage),
    },
    "subscribe": lambda stage: {"delivery_method": "sse", "entity_ids": [stage.issue["entity_id"]]},
    "unsubscribe": _subscription,
    "list_subscriptions": lambda _: {},
    "get_subscription_status": _subscription,
    "rotate_subscription_secret": _webhook,
    "list_events": lambda stage: {"entity_ids": [stage.issue["entity_id"]]},
}


@pytest.fixture(scope="module")
def credentials(server: PoolServer) -> dict[str, dict[str, str]]:
    """Headers of the roles that are the same for every issue."""
    revoked = server.create_key("operator", "--handle", "matrix-revoked")
    done = run_cli("key", "revoke", "matrix-revoked", "--state", str(server.state))
    assert done.returncode == 0, done.stderr
    member = server.create_key("member", "--handle", "matrix-member")
    with server.client() as client:
        other = submit(client)["guest_access_token"]
        expired = submit(client)["guest_access_token"]
    _expire(server.database, expired)
    return {
        "anonymous": {},
        "other guest": {"x-guest-token": other},
        "member": {"x-api-key": member},
        "operator": {"x-api-key": server.operator_key},
        "expired guest": {"x-guest-token": expired},
        "revoked key": {"authorization": f"Bearer {revoked}"},
    }


def _expire(database: Path, token: str) -> None:
    """Lets one token's time pass: tests do not wait, and the server's clock is the machine's."""
    from pool_server.rules import tokens

    with closing(sqlite3.connect(database, timeout=10)) as connection:
        changed = connection.execute(
            "update guest_grants set expires_at = '2001-01-01T00:00:00.000000Z' where digest = ?",
            (tokens.digest(token),),
        )
        assert changed.rowcount == 1
        connection.commit()


@pytest.fixture
def stage_for(
    server: PoolServer, credentials: dict[str, dict[str, str]], operator: httpx.Client
) -> Callable[[str], Stage]:
    def make(visibility: str) -> Stage:
        with server.client() as anonymous:
            issue = submit(anonymous, visibility=visibility)
        own = {"x-guest-token": issue["guest_access_token"]}
        return Stage(server, operator, {**credentials, "own guest": own}, issue)

    return make


def expectations(row: tuple[str, str, str, str, str]) -> dict[str, str]:
    return dict(zip(ROLES, (*row, INVALID, INVALID), strict=True))


def http_call(client: httpx.Client, method: str, path: str, arguments: dict[str, Any]) -> httpx.Response:
    """The operation on one of its routes."""
    rest = dict(arguments)
    for name in list(rest):
        if f"{{{name}}}" in path:
            path = path.replace(f"{{{name}}}", str(rest.pop(name)))
    if method == "GET":
        return client.get(path, params=rest)
    headers = {}
    if method == "PATCH":
        headers["if-match"] = str(rest.pop("if_match"))
    return client.request(method, path, json=rest, headers=headers)


def code_of(answer: httpx.Response) -> str:
    return OK if answer.status_code < 300 else str(answer.json()["error_code"])


@pytest.mark.parametrize("row", TABLE)
def test_the_matrix(server: PoolServer, stage_for: Callable[[str], Stage], row: str) -> None:
    """Each role gets exactly what the table says, the same on every route and as a tool."""
    name, _, private = row.partition(" on a ")
    operation = BY_NAME[name]
    routes = [(operation.method, operation.path), *operation.also]
    for role, expected in expectations(TABLE[row]).items():
        for surface in [*routes, None]:
            stage = stage_for("private" if private else "public")
            arguments = ARGUMENTS[name](stage)
            with server.client(**stage.headers[role]) as client:
                before = rows(server.database)
                if surface is not None:
                    seen = code_of(http_call(client, *surface, arguments))
                else:
                    result = call_tool(client, name, arguments)
                    seen = result["structuredContent"]["error_code"] if result.get("isError") else OK
                assert seen == expected, f"{role} on {surface or 'MCP'}"
                if expected != OK:
                    assert rows(server.database) == before, f"{role} on {surface or 'MCP'} left something"


def test_the_stream(server: PoolServer, stage_for: Callable[[str], Stage]) -> None:
    """The event stream, which is on HTTP only, has the same row as reading events."""
    for role, expected in expectations(FOLLOW_EVENTS).items():
        stage = stage_for("public")
        with server.client(**stage.headers[role]) as client:
            wanted = {"entity_ids": stage.issue["entity_id"]}
            with client.stream("GET", STREAM_ROUTE.path, params=wanted) as answer:
                if answer.status_code != 200:
                    answer.read()
                assert code_of(answer) == expected, role


def test_every_operation_has_a_row(anonymous: httpx.Client) -> None:
    """What OpenAPI and the MCP listing offer is what the table names, no more and no less."""
    rows_of_table = {name.partition(" on a ")[0] for name in TABLE}
    assert rows_of_table == {operation.name for operation in OPERATIONS} == set(ARGUMENTS)
    paths = anonymous.get("/openapi.json").json()["paths"]
    documented = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    free = {("GET", "/health"), ("GET", "/ready")}
    covered = {(route.method, route.path) for route in HTTP_ROUTES} | {
        (STREAM_ROUTE.method, STREAM_ROUTE.path)
    }
    assert documented == covered | free
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    listed = anonymous.post("/mcp", json=request, headers=MCP_HEADERS).json()["result"]["tools"]
    assert {tool["name"] for tool in listed} == rows_of_table


def test_every_served_route_is_documented() -> None:
    """No route is served that the matrix cannot see."""
    from pool_server.app import create_app
    from pool_server.settings import Settings

    served = {
        getattr(route, "path", "") for route in create_app(Settings(state=Path("unused"))).router.routes
    }
    patterns = {route.pattern for route in HTTP_ROUTES}
    others = {
        "/health",
        "/ready",
        "/mcp",
        "/docs",
        "/docs/oauth2-redirect",
        "/openapi.json",
        STREAM_ROUTE.path,
    }
    assert served == patterns | others
