"""The OpenAPI document: valid, complete, and the same rules as the parser's."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema
import pytest

from pool_server.pool import BY_NAME
from pool_server.web.arguments import if_match, query_arguments
from pool_server.web.openapi import document
from pool_server.web.rest import HTTP_ROUTES, STREAM_ROUTE
from tests.servers import PoolServer, submit

DOCUMENT = document(HTTP_ROUTES, STREAM_ROUTE, title="t", version="1")


def validator(name: str) -> jsonschema.Draft202012Validator:
    """For one component, with the others at hand."""
    components = DOCUMENT["components"]
    return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": components})


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(references(item) for item in value.values()))
    return set().union(*(references(item) for item in value)) if isinstance(value, list) else set()


def test_served_as_it_is_made(anonymous: httpx.Client) -> None:
    """What is served is what these tests look at, and /docs shows it."""
    served = anonymous.get("/openapi.json").json()
    assert served["paths"] == DOCUMENT["paths"]
    assert anonymous.get("/docs").headers["content-type"].startswith("text/html")


def test_every_reference_resolves() -> None:
    """No component is missing, and each is a valid JSON Schema."""
    names = set(DOCUMENT["components"]["schemas"])
    assert {reference.rpartition("/")[2] for reference in references(DOCUMENT)} <= names
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_every_operation_says_what_it_answers() -> None:
    """Success and errors of each operation have bodies; operation ids are unique."""
    ids: list[str] = []
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            ids.append(operation["operationId"])
            assert "401" in operation["responses"], (method, path)
            for answer in operation["responses"].values():
                assert answer["description"]
                assert answer["content"]
            if method in ("post", "patch"):
                assert {"409", "413", "415"} <= set(operation["responses"])
                assert operation["requestBody"]["content"].keys() == {"application/json"}
    assert len(ids) == len(set(ids))
    patch = DOCUMENT["paths"]["/entities/{entity_id}"]["patch"]
    assert {"412", "428"} <= set(patch["responses"])
    assert {parameter["name"] for parameter in patch["parameters"]} == {"entity_id", "If-Match"}
    body = DOCUMENT["components"]["schemas"]["update_entity_body"]
    assert not {"entity_id", "if_match"} & set(body["properties"])


@pytest.mark.parametrize(
    ("path", "component"),
    [
        ("/issues/{number}", "IssueStatus"),
        ("/issues", "IssueList"),
        ("/entities", "EntityList"),
        ("/entities/{entity}", "Entity"),
        ("/entities/{entity}/history", "History"),
        ("/relationships", "RelationshipList"),
        ("/events", "EventList"),
        ("/subscriptions", "SubscriptionList"),
        ("/subscriptions/{subscription}", "Subscription"),
        ("/nothing", "ErrorBody"),
    ],
)
def test_answers_are_what_is_documented(
    server: PoolServer, operator: httpx.Client, path: str, component: str
) -> None:
    """Real answers validate against their component."""
    issue = submit(operator)
    entity = operator.post("/entities", json={"entity_type": "thing", "fields": {"a": [1, None, {}]}})
    body = {"delivery_method": "sse", "entity_ids": [issue["entity_id"]]}
    subscription = operator.post("/subscribe", json=body)
    validator("SubmittedIssue").validate(issue)
    validator("Entity").validate(entity.json())
    validator("Subscription").validate(subscription.json())
    answer = operator.get(
        path.format(
            number=issue["issue_number"],
            entity=entity.json()["entity_id"],
            subscription=subscription.json()["subscription_id"],
        )
    )
    validator(component).validate(answer.json())


def test_lists_in_a_query(operator: httpx.Client) -> None:
    """A list may be repeated or separated by commas."""
    one, two = submit(operator)["entity_id"], submit(operator)["entity_id"]
    for query in (f"entity_ids={one},{two}", f"entity_ids={one}&entity_ids={two}"):
        items = operator.get(f"/events?{query}&limit=500").json()["items"]
        assert {one, two} <= {item["entity_id"] for item in items}


def test_query_arguments_know_no_credentials() -> None:
    """guest_access_token is an argument of the operation, but never one of a query."""
    route = next(
        route
        for route in HTTP_ROUTES
        if route.method == "GET" and route.operation is BY_NAME["get_issue_status"]
    )
    assert "guest_access_token" not in route.other_names
    assert query_arguments([("since", "3")], route.other_names, route.lists) == {"since": "3"}


@pytest.mark.parametrize(
    ("header", "version"),
    [([], None), (['"3"'], 3), (["3"], 3), (['W/"3"'], 3), (["*"], "*"), ([" * "], "*")],
)
def test_if_match(header: list[str], version: int | str | None) -> None:
    """The forms of a version that are taken."""
    assert if_match(header) == version


def test_at_least_one_of(anonymous: httpx.Client) -> None:
    """What the parser asks for beyond single fields is in the document too."""
    for body in ({}, {"entity_id": None, "issue_number": None}):
        assert not validator("GetIssueStatus").is_valid(body)
        assert anonymous.post("/issues/status", json=body).status_code == 400
    assert validator("GetIssueStatus").is_valid({"issue_number": 1})
    assert not validator("SubmitIssue").is_valid({"title": "t", "body": "b"})
