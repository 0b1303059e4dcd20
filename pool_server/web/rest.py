"""HTTP: one route for each (method, path) of the table of operations, the event stream, health and errors."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route

from pool_server.errors import MethodNotAllowed, NotFound, PoolError, Unavailable, UnknownField
from pool_server.pool import OPERATIONS
from pool_server.rules.access import Caller
from pool_server.web.answers import Json, answer, internal, refusal
from pool_server.web.arguments import IF_MATCH, HttpRoute, http_routes, if_match, query_arguments
from pool_server.web.auth import NOTHING_PRESENTED, with_guest_token
from pool_server.web.event_stream import FOLLOW_EVENTS, EventStreamResponse, FollowEvents, last_event_id
from pool_server.web.front import address_of, client_of
from pool_server.web.payload import decoded_object
from pool_server.web.services import Services

__all__ = ["HTTP_ROUTES", "STREAM_ROUTE", "refuse_unrouted", "rest_routes"]

HTTP_ROUTES = http_routes(OPERATIONS)
STREAM_ROUTE = HttpRoute(FOLLOW_EVENTS, "GET", FOLLOW_EVENTS.path)

Endpoint = Callable[[Request], Awaitable[Response]]


def rest_routes(services: Services) -> list[Route]:
    """Everything but ``/mcp``, ``/docs`` and ``/openapi.json``."""
    stream = Route(STREAM_ROUTE.path, _named(STREAM_ROUTE.path, _stream(services)), methods=["GET"])
    # A HEAD would hold a stream open that nobody reads.
    stream.methods = {"GET"}
    routes = [
        stream,
        Route("/health", _named("/health", _health), methods=["GET"]),
        Route("/ready", _named("/ready", _ready(services)), methods=["GET"]),
    ]
    routes += [
        _bounded(
            Route(route.pattern, _named(route.path, _operation(services, route)), methods=[route.method])
        )
        for route in HTTP_ROUTES
    ]
    return routes


def _bounded(route: Route) -> Route:
    """A number in a path has at most 16 digits; more name nothing, and at 4,300 Python refuses to read them."""
    route.path_regex = re.compile(route.path_regex.pattern.replace("[0-9]+", "[0-9]{1,16}"))
    return route


def refuse_unrouted(routes: Sequence[BaseRoute]) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The handler for what no route took: 404, or 405 with every method the path does take."""

    async def refuse(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:
            allowed: set[str] = set()
            for route in routes:
                if route.matches(request.scope)[0] is not Match.NONE:
                    allowed |= set(getattr(route, "methods", None) or ())
            listed = sorted(allowed)
            refused = MethodNotAllowed("this path does not take that method", {"allowed_methods": listed})
            return refusal(refused, {"allow": ", ".join(listed)})
        return refusal(NotFound("there is nothing here"))

    return refuse


def _named(path: str, endpoint: Endpoint) -> Endpoint:
    """``endpoint`` with its refusals as answers, and its name for the log."""

    async def answered(request: Request) -> Response:
        request.scope["state"]["route"] = path
        try:
            return await endpoint(request)
        except PoolError as refused:
            return refusal(refused)
        except ClientDisconnect:
            raise
        except Exception as bug:  # noqa: BLE001 -- one of the two roots: logged under an id
            return refusal(internal(bug, path))

    return answered


def _operation(services: Services, route: HttpRoute) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        raw, malformed = await _decoded(request) if route.has_body else ({}, None)
        caller = await _caller(services, request, raw.get("guest_access_token"))
        operation = route.operation
        counted = operation.effect == "write" or request.method == "POST"
        services.pool.admit(caller, operation.roles, counted=counted)
        if malformed is not None:
            raise malformed
        raw = _arguments(request, route, raw)
        if route.takes_if_match:
            version = if_match(request.headers.getlist("if-match"))
            if version is not None:
                raw[IF_MATCH] = version
        args = services.pool.validate(route.operation, raw, strict=route.has_body)
        return answer(await services.call(route.operation, caller, args))

    return endpoint


async def _decoded(request: Request) -> tuple[dict[str, Any], PoolError | None]:
    """The body, and why it is none: the call counts all the same."""
    headers = request.headers
    try:
        return decoded_object(
            headers.get("content-type"), headers.get("content-encoding"), await request.body()
        ), None
    except PoolError as malformed:
        return {}, malformed


def _arguments(request: Request, route: HttpRoute, body: dict[str, Any]) -> dict[str, Any]:
    """All arguments; those that travel elsewhere on this route are unknown in its body, and so is any query."""
    query = request.query_params.multi_items()
    if not route.has_body:
        return query_arguments(query, route.other_names, route.lists) | request.path_params
    query_arguments(query, (), frozenset())
    elsewhere = sorted(
        name for name in body if name in route.operation.input.model_fields and name not in route.other_names
    )
    if elsewhere:
        raise UnknownField(elsewhere, sorted(route.other_names))
    return body | request.path_params


async def _caller(services: Services, request: Request, guest_token: object = None) -> Caller:
    """Who calls; header credentials were already found valid at the front door."""
    state = request.scope["state"]
    known: Caller | None = state["caller"]
    has_token = isinstance(guest_token, str)
    if known is not None and not has_token:
        return known
    presented = state["presented"] if known is not None else NOTHING_PRESENTED
    if isinstance(guest_token, str):
        presented = with_guest_token(presented, guest_token)
    return await services.pool.authenticate(
        presented, address=address_of(request.scope), surface="http", client=client_of(request.headers)
    )


def _stream(services: Services) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        caller = await _caller(services, request)
        services.pool.admit(caller, FOLLOW_EVENTS.roles, counted=False)
        raw = _arguments(request, STREAM_ROUTE, {})
        args = services.pool.validate(FOLLOW_EVENTS, raw, strict=False)
        assert isinstance(args, FollowEvents)
        after = last_event_id(request.headers.get("last-event-id"))
        wanted = await services.pool.stream_filter(
            caller, args.subscription_id, args.entity_ids, args.event_types
        )
        stream = services.streams.open(caller, wanted, subscription_id=args.subscription_id, after=after)
        return EventStreamResponse(stream)

    return endpoint


async def _health(_: Request) -> Response:
    return Json({"status": "ok"})


def _ready(services: Services) -> Endpoint:
    async def endpoint(_: Request) -> Response:
        if services.closing.is_set() or not await services.pool.ready():
            raise Unavailable("the server is not ready")
        return Json({"status": "ready"})

    return endpoint
