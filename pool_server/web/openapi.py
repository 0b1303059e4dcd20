"""The OpenAPI document, made from the same table and the same models that parse and answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic.json_schema import models_json_schema

from pool_server.contract.models import ErrorBody, Input, IssueRef, SubmitIssue, Subscribe
from pool_server.errors import PoolError
from pool_server.pool import Operation
from pool_server.web.arguments import HttpRoute

__all__ = ["document"]

REFERENCE = "#/components/schemas/{model}"
SECURITY_SCHEMES = {
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "A key: fk_…"},
    "guestToken": {"type": "apiKey", "in": "header", "name": "X-Guest-Token", "description": "A token: gt_…"},
    "bearer": {"type": "http", "scheme": "bearer", "description": "Either of the two"},
}
# What a validator of the models asks for and JSON Schema can say; kept out of the tools' schemas, since model
# providers refuse alternatives at the top level of those.
AT_LEAST_ONE: dict[type[Input], tuple[str, ...]] = {
    IssueRef: ("entity_id", "issue_number"),
    SubmitIssue: ("reporter_git_sha", "reporter_app_version"),
    Subscribe: ("entity_types", "entity_ids", "event_types"),
}
COMMON_ERRORS = (400, 401, 403, 404, 405, 429, 500, 503)
BODY_ERRORS = (409, 413, 415)
VERSION_ERRORS = (412, 428)


def document(routes: Iterable[HttpRoute], stream: HttpRoute, *, title: str, version: str) -> dict[str, Any]:
    """The whole document for ``routes`` and the event stream."""
    every = [*routes, stream]
    paths: dict[str, dict[str, Any]] = {}
    for route in every:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, streamed=route is stream)
    paths["/health"] = {"get": _probe("health", "Whether the process runs", "ok")}
    paths["/ready"] = {"get": _probe("ready", "Whether requests are served", "ready", unavailable=True)}
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": _schemas(every), "securitySchemes": SECURITY_SCHEMES},
    }


def _schemas(routes: Iterable[HttpRoute]) -> dict[str, Any]:
    operations: dict[str, Operation] = {route.operation.name: route.operation for route in routes}
    inputs = [(operation.input, "validation") for operation in operations.values()]
    outputs = [(operation.output, "serialization") for operation in operations.values()]
    _, definitions = models_json_schema(
        [*inputs, *outputs, (ErrorBody, "serialization")],  # type: ignore[list-item]
        ref_template=REFERENCE,
    )
    schemas: dict[str, Any] = definitions["$defs"]
    for operation in operations.values():
        for model, names in AT_LEAST_ONE.items():
            if issubclass(operation.input, model):
                schemas[operation.input.__name__]["anyOf"] = [
                    {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names
                ]
    for route in routes:
        if route.has_body and set(route.other_names) != set(route.operation.input.model_fields):
            schemas[_body_name(route)] = _part(route)
    return schemas


def _body_name(route: HttpRoute) -> str:
    whole = set(route.other_names) == set(route.operation.input.model_fields)
    return route.operation.input.__name__ if whole else f"{route.operation.name}_body"


def _part(route: HttpRoute) -> dict[str, Any]:
    """The input without what travels in the path or in ``If-Match``."""
    schema = {name: part for name, part in route.schema.items() if name not in ("$defs", "anyOf", "allOf")}
    schema["title"] = _body_name(route)
    schema["properties"] = {name: route.schema["properties"][name] for name in route.other_names}
    required = [name for name in route.schema.get("required", ()) if name in route.other_names]
    schema.pop("required", None)
    return schema | ({"required": required} if required else {})


def _operation(route: HttpRoute, *, streamed: bool) -> dict[str, Any]:
    operation = route.operation
    first = (route.method, route.path) == (operation.method, operation.path)
    described: dict[str, Any] = {
        "operationId": operation.name if first else f"{operation.name}_by_{route.method.lower()}",
        "summary": operation.summary,
        "description": operation.description,
        "parameters": _parameters(route, streamed=streamed),
        "responses": {str(operation.status): _success(operation, streamed=streamed), **_errors(route)},
        "security": _security(operation),
    }
    if route.has_body:
        reference = {"$ref": REFERENCE.format(model=_body_name(route))}
        described["requestBody"] = {
            "required": bool(_part(route).get("required")),
            "content": {"application/json": {"schema": reference}},
        }
    return described


def _parameters(route: HttpRoute, *, streamed: bool) -> list[dict[str, Any]]:
    properties = route.schema["properties"]
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _without_null(properties[name])}
        for name in route.path_names
    ]
    if not route.has_body:
        for name in route.other_names:
            parameter: dict[str, Any] = {
                "name": name,
                "in": "query",
                "schema": _without_null(properties[name]),
            }
            if name in route.lists:
                parameter |= {"style": "form", "explode": True}
            if name in route.schema.get("required", ()):
                parameter["required"] = True
            found.append(parameter)
    if route.takes_if_match:
        found.append(
            {
                "name": "If-Match",
                "in": "header",
                "description": 'The version read, as "3", or *. Without it: 428.',
                "schema": {"type": "string", "pattern": r'^("[0-9]{1,15}"|\*)$'},
            }
        )
    if streamed:
        found.append(
            {
                "name": "Last-Event-ID",
                "in": "header",
                "schema": {"type": "string", "pattern": "^[0-9]{1,15}$"},
            }
        )
    return found


def _without_null(part: dict[str, Any]) -> dict[str, Any]:
    """A path or a query holds no null: leaving the parameter out says it."""
    options = [option for option in part.get("anyOf", ()) if option.get("type") != "null"]
    rest = {name: value for name, value in part.items() if name not in ("anyOf", "default", "title")}
    if part.get("default") is not None:
        rest["default"] = part["default"]
    if not options:
        return rest
    return {**rest, **(options[0] if len(options) == 1 else {"anyOf": options})}


def _success(operation: Operation, *, streamed: bool) -> dict[str, Any]:
    if streamed:
        return {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    reference = {"$ref": REFERENCE.format(model=operation.output.__name__)}
    answer: dict[str, Any] = {
        "description": operation.summary,
        "content": {"application/json": {"schema": reference}},
    }
    if operation.output.__name__ == "Entity":
        answer["headers"] = {"ETag": {"description": "The version, quoted", "schema": {"type": "string"}}}
    return answer


def _errors(route: HttpRoute) -> dict[str, Any]:
    statuses = set(COMMON_ERRORS)
    if route.has_body:
        statuses |= set(BODY_ERRORS)
    if route.takes_if_match:
        statuses |= set(VERSION_ERRORS)
    return {str(status): _error(status) for status in sorted(statuses)}


def _error(status: int) -> dict[str, Any]:
    codes = sorted(leaf.error_code for leaf in PoolError.__subclasses__() if leaf.status == status)
    answer: dict[str, Any] = {
        "description": ", ".join(codes),
        "content": {"application/json": {"schema": {"$ref": REFERENCE.format(model="ErrorBody")}}},
    }
    if status in (429, 503):
        answer["headers"] = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer"}}}
    return answer


def _security(operation: Operation) -> list[dict[str, list[str]]]:
    needs: list[dict[str, list[str]]] = []
    if "anonymous" in operation.roles:
        needs.append({})
    if operation.roles & {"member", "operator"}:
        needs.append({"apiKey": []})
    if "guest" in operation.roles:
        needs.append({"guestToken": []})
    return [*needs, {"bearer": []}]


def _probe(name: str, summary: str, status: str, *, unavailable: bool = False) -> dict[str, Any]:
    body = {"type": "object", "properties": {"status": {"const": status}}, "required": ["status"]}
    answers = {
        "200": {"description": summary, "content": {"application/json": {"schema": body}}},
        "400": _error(400),
        "401": _error(401),
    }
    if unavailable:
        answers["503"] = _error(503)
    return {"operationId": name, "summary": summary, "responses": answers, "security": [{}]}
