"""Credentials: where they count, that a wrong one never passes for none, and that nothing of them leaks."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.servers import REPORT, PoolServer, call_tool, rows, run_cli, submit

ROUTES = [
    ("GET", "/issues"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("GET", "/nothing/here"),
    ("DELETE", "/issues"),
    ("POST", "/issues/submit"),
    ("GET", "/events/stream"),
]
WRONG = [
    {"x-api-key": "fk_wrong"},
    {"x-api-key": ""},
    {"x-guest-token": "gt_wrong"},
    {"authorization": "Bearer fk_wrong"},
    {"authorization": "Bearer gt_wrong"},
    {"authorization": "Bearer"},
    {"authorization": "Basic dXNlcjpwYXNz"},
    {"authorization": "wrong"},
]


def unknown(answer: httpx.Response) -> None:
    assert answer.status_code == 401, answer.text
    assert answer.json()["error_code"] == "ERR_AUTH_INVALID"
    assert answer.json()["details"]["reason"] == "unknown"


@pytest.mark.parametrize("headers", WRONG, ids=lambda headers: str(*headers.items()))
def test_a_wrong_credential_is_401_on_every_route(server: PoolServer, headers: dict[str, str]) -> None:
    """Also where nothing is needed, and on routes that do not exist."""
    with server.client() as client:
        for method, path in ROUTES:
            unknown(client.request(method, path, headers=headers, json=REPORT if method == "POST" else None))


def test_a_wrong_one_beside_a_valid_one(server: PoolServer, member_key: str) -> None:
    """Any bad credential decides, in whatever order and place."""
    with server.client() as client:
        token = submit(client)["guest_access_token"]
        pairs = [
            {"x-api-key": member_key, "authorization": "Bearer fk_wrong"},
            {"x-api-key": member_key, "x-guest-token": "gt_wrong"},
            {"x-guest-token": token, "x-api-key": "fk_wrong"},
            {"x-guest-token": token, "authorization": "Bearer gt_wrong"},
        ]
        for headers in pairs:
            unknown(client.get("/issues", headers=headers))
        twice = httpx.Headers([("x-api-key", member_key), ("x-api-key", "fk_wrong")])
        unknown(client.get("/issues", headers=twice))
        body = {**REPORT, "guest_access_token": "gt_wrong"}
        unknown(client.post("/issues/submit", json=body, headers={"x-api-key": member_key}))


def test_a_body_token_is_judged_before_the_body(server: PoolServer) -> None:
    """A wrong guest_access_token is a 401 even where the rest of the body is wrong too."""
    with server.client() as client:
        unknown(client.post("/issues/submit", json={"guest_access_token": "gt_wrong", "nonsense": 1}))
        unknown(client.post("/issues/submit", json={"guest_access_token": ""}))
        answer = client.post("/issues/submit", json={**REPORT, "guest_access_token": 7})
        assert answer.status_code == 400


def test_the_three_places_of_a_guest_token(server: PoolServer) -> None:
    """X-Guest-Token, Authorization: Bearer and a body's guest_access_token are the same."""
    with server.client() as client:
        issue = submit(client, visibility="private")
        number, token = issue["issue_number"], issue["guest_access_token"]
        for headers in ({"x-guest-token": token}, {"authorization": f"bearer {token}"}):
            assert client.get(f"/issues/{number}", headers=headers).status_code == 200
        body = {"issue_number": number, "guest_access_token": token}
        assert client.post("/issues/status", json=body).status_code == 200


def test_never_in_a_query_string(server: PoolServer, member_key: str) -> None:
    """A credential in a query is an unknown field, not a credential, whatever it is called."""
    with server.client() as client:
        issue = submit(client, visibility="private")
        path = f"/issues/{issue['issue_number']}"
        for name in ("guest_access_token", "api_key", "token", "access_token"):
            answer = client.get(path, params={name: issue["guest_access_token"]})
            assert answer.status_code == 400
            assert answer.json()["details"]["unknown_fields"] == [name]
        answer = client.get("/events/stream", params={"api_key": server.operator_key})
        assert answer.json()["error_code"] == "ERR_AUTH_REQUIRED"
    with server.operator() as client:
        answer = client.get("/events/stream", params={"api_key": server.operator_key})
        assert answer.json()["error_code"] == "ERR_UNKNOWN_FIELD"


def test_both_a_key_and_a_guest_token(server: PoolServer) -> None:
    """The guest token decides: an operator's key beside it opens no other issue."""
    with server.operator() as client:
        first, second = submit(client), submit(client)
        headers = {"x-guest-token": first["guest_access_token"]}
        assert client.get(f"/issues/{first['issue_number']}", headers=headers).status_code == 200
        assert client.get(f"/issues/{second['issue_number']}", headers=headers).status_code == 403


def test_revoked(server: PoolServer) -> None:
    """A revoked key is a 401 that says so, at once, on HTTP and MCP."""
    key = server.create_key("member", "--handle", "to-be-revoked")
    with server.client(key) as client:
        assert client.get("/issues").status_code == 200
        done = run_cli("key", "revoke", "to-be-revoked", "--state", str(server.state))
        assert done.returncode == 0, done.stderr
        answer = client.get("/issues")
        assert answer.status_code == 401
        assert answer.json()["details"]["reason"] == "revoked"
        result = call_tool(client, "list_issues", {})
        assert result["structuredContent"]["details"]["reason"] == "revoked"


def test_api_key_argument(server: PoolServer, member_key: str) -> None:
    """On MCP a write takes api_key; a wrong one is refused and writes nothing; a read does not know it."""
    with server.client() as client:
        filed = call_tool(client, "submit_issue", {**REPORT, "api_key": member_key})
        assert not filed.get("isError"), filed
        before = rows(server.database)
        for wrong in ("fk_wrong", ""):
            result = call_tool(client, "submit_issue", {**REPORT, "api_key": wrong})
            assert result["structuredContent"]["error_code"] == "ERR_AUTH_INVALID"
        assert rows(server.database) == before
        result = call_tool(client, "list_issues", {"api_key": member_key})
        assert result["structuredContent"]["error_code"] == "ERR_UNKNOWN_FIELD"


def test_credentials_are_neither_logged_nor_echoed(server: PoolServer, member_key: str) -> None:
    """No key and no token of these tests is in the server's log, valid or wrong."""
    planted = "fk_planted-" + "0" * 30
    with server.client() as client:
        issue = submit(client)
        client.get("/issues", headers={"x-api-key": planted})
        client.get(f"/issues/{planted}")
        client.get("/issues", params={planted: planted})
        client.post("/issues/status", json={"issue_number": 1, "guest_access_token": planted})
        call_tool(client, "submit_issue", {**REPORT, "api_key": planted})
        log = server.log.read_text(encoding="utf-8")
        for secret in (planted, member_key, server.operator_key, issue["guest_access_token"]):
            assert secret not in log
        assert all(line["event"] != "not JSON" for line in server.log_lines()), "the log is JSON lines"
        answers = [
            client.get("/issues", headers={"x-api-key": planted}).text,
            json.dumps(call_tool(client, "submit_issue", {**REPORT, "api_key": planted})),
        ]
        assert all(planted not in answer for answer in answers)


def test_forwarded_addresses_are_not_believed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """X-Forwarded-For changes nobody's limit unless its sender is a trusted proxy."""
    limit = {"POOL_RATE_ANONYMOUS_PER_MINUTE": "2"}
    folder = tmp_path_factory.mktemp("plain")
    trusted = tmp_path_factory.mktemp("trusted")
    with PoolServer(folder, limit) as plain, plain.client() as client:
        statuses = [
            client.post(
                "/issues/submit", json=REPORT, headers={"x-forwarded-for": f"198.51.100.{n}"}
            ).status_code
            for n in range(3)
        ]
        assert statuses == [201, 201, 429]
        answer = client.post("/issues/submit", json=REPORT)
        assert answer.json()["error_code"] == "ERR_RATE_LIMITED"
        assert int(answer.headers["retry-after"]) > 0
        result = call_tool(client, "submit_issue", REPORT)
        assert result["structuredContent"]["error_code"] == "ERR_RATE_LIMITED"
        assert client.get("/health").status_code == 200
        assert plain.stop() == 0
    with (
        PoolServer(trusted, {**limit, "POOL_TRUSTED_PROXIES": "127.0.0.1"}) as behind,
        behind.client() as client,
    ):
        statuses = [
            client.post(
                "/issues/submit", json=REPORT, headers={"x-forwarded-for": f"198.51.100.{n}"}
            ).status_code
            for n in range(3)
        ]
        assert statuses == [201, 201, 201]
