"""How an operation's arguments travel on one HTTP route: path, query, ``If-Match`` or body.

One description serves the parser and the OpenAPI document, so that they cannot differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel

from pool_server.contract.models import PostInput
from pool_server.errors import UnknownField, ValidationFailed
from pool_server.pool import Operation

__all__ = ["HttpRoute", "http_routes", "if_match", "query_arguments"]

IF_MATCH = "if_match"
BODY_ONLY = frozenset(PostInput.model_fields)


@dataclass(frozen=True)
class HttpRoute:
    """One method and path that serve one operation."""

    operation: Operation
    method: str
    path: str

    @cached_property
    def path_names(self) -> tuple[str, ...]:
        """The arguments in the path, in order."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @property
    def has_body(self) -> bool:
        return self.method != "GET"

    @property
    def takes_if_match(self) -> bool:
        return self.method == "PATCH" and IF_MATCH in self.operation.input.model_fields

    @cached_property
    def other_names(self) -> tuple[str, ...]:
        """The arguments that come in the body, or in the query of a GET."""
        elsewhere = set(self.path_names)
        if self.takes_if_match:
            elsewhere.add(IF_MATCH)
        if not self.has_body:
            elsewhere |= BODY_ONLY
        return tuple(name for name in self.operation.input.model_fields if name not in elsewhere)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The input's JSON Schema with references into the OpenAPI components."""
        return self.operation.input.model_json_schema(ref_template="#/components/schemas/{model}")

    @cached_property
    def lists(self) -> frozenset[str]:
        """The arguments that are lists."""
        return list_names(self.operation.input)

    @cached_property
    def pattern(self) -> str:
        """The path for the router: a number must look like one, so that ``GET /issues/submit`` is a 405."""
        numbers = {name for name, part in self.schema["properties"].items() if "integer" in types_of(part)}
        return re.sub(
            r"{(\w+)}", lambda part: f"{{{part[1]}:int}}" if part[1] in numbers else part[0], self.path
        )


def http_routes(operations: Iterable[Operation]) -> list[HttpRoute]:
    """Every route, literal paths before those with arguments."""
    routes = [
        HttpRoute(operation, method, path)
        for operation in operations
        for method, path in ((operation.method, operation.path), *operation.also)
    ]
    return sorted(routes, key=lambda route: len(route.path_names))


def types_of(part: dict[str, Any]) -> set[str]:
    """The JSON types a property's schema admits."""
    return {str(option.get("type")) for option in part.get("anyOf", [part])}


def list_names(model: type[BaseModel]) -> frozenset[str]:
    """The fields of ``model`` that are lists."""
    properties = model.model_json_schema()["properties"]
    return frozenset(name for name, part in properties.items() if "array" in types_of(part))


def query_arguments(
    items: Iterable[tuple[str, str]], allowed: Iterable[str], lists: frozenset[str]
) -> dict[str, Any]:
    """A query as arguments: lists may be repeated or separated by commas.

    Raises:
        UnknownField: a name that is not allowed, credentials included.
        ValidationFailed: a single value given twice.
    """
    names = list(allowed)
    found: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in items:
        if name not in names:
            unknown.append(name)
        elif name in lists:
            found.setdefault(name, []).extend(part for part in value.split(",") if part)
        elif name in found:
            raise ValidationFailed("a query parameter is given twice", {name: "given more than once"})
        else:
            found[name] = value
    if unknown:
        raise UnknownField(sorted(set(unknown)), sorted(names))
    return found


def if_match(values: list[str]) -> int | Literal["*"] | None:
    """The version in ``If-Match``, ``"*"``, or None where there is no such header.

    Raises:
        ValidationFailed: anything but one version.
    """
    if not values:
        return None
    value = values[0].strip().removeprefix("W/")
    if len(values) == 1 and value == "*":
        return "*"
    version = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    if len(values) > 1 or not re.fullmatch(r"[0-9]{1,15}", version):
        raise ValidationFailed("If-Match is malformed", {"If-Match": 'must be one version such as "3", or *'})
    return int(version)
