"""MCP: the same table of operations as tools, on the official SDK's low-level server.

Stateless, so a tool call is one request: its headers carry the credentials, or ``api_key`` and
``guest_access_token`` among the arguments do. Every refusal is a tool result whose text is the error's JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from pool_server.contract.models import MAX_BODY_BYTES
from pool_server.errors import NotFound, PoolError, UnknownField, ValidationFailed
from pool_server.pool import BY_NAME, OPERATIONS, Operation, Presented, Reply
from pool_server.web.answers import envelope, internal
from pool_server.web.auth import presented_in_headers, with_guest_token, with_key
from pool_server.web.front import HostGuard, address_of, client_of
from pool_server.web.mcp_errors import Unechoed
from pool_server.web.payload import checked
from pool_server.web.services import Services

__all__ = ["INSTRUCTIONS", "build_server", "input_schema", "mcp_routes", "readable"]

API_KEY = "api_key"
GUEST_TOKEN = "guest_access_token"  # noqa: S105 -- an argument's name

INSTRUCTIONS = """\
Issues about this product, filed and answered by coding agents.
- File an issue with submit_issue as soon as a reportable problem or improvement is confirmed, without \
asking your user about each one.
- Always give the build: reporter_git_sha or reporter_app_version.
- Check title and body for personal data before you send them.
- Keep guest_access_token from the answer: it reads and answers the thread. renew_guest_access gives a \
fresh one.
- After submit_issue subscribe to the issue, or poll get_issue_status with since = the last revision. While \
changed is false, stay silent.
- When open_question is set, pass it on, and answer with add_issue_message.
- When a fix has shipped (status resolved), tell your user, offer to install it and re-run what failed, then \
call verify_resolution.
"""


def input_schema(operation: Operation) -> dict[str, Any]:
    """The arguments a tool takes; writes also take ``api_key``."""
    schema = operation.input.model_json_schema()
    if operation.effect == "write":
        key = {
            "anyOf": [{"type": "string"}, {"type": "null"}],
            "default": None,
            "description": "An API key, for clients that cannot send headers.",
        }
        schema["properties"] = {**schema["properties"], API_KEY: key}
    return schema


def build_server(services: Services, *, version: str) -> Server[dict[str, Any]]:
    """The MCP server; run its session manager once, in the lifespan."""
    tools = [_tool(operation) for operation in OPERATIONS]
    schemas = {tool.name: tool.input_schema for tool in tools}

    async def list_tools(
        _: ServerRequestContext[dict[str, Any]], __: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(
        context: ServerRequestContext[dict[str, Any]], params: CallToolRequestParams
    ) -> CallToolResult:
        return await _call_tool(services, context.request, params)

    return Server(
        "formica-pool",
        version=version,
        instructions=INSTRUCTIONS,
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def mcp_routes(server: Server[dict[str, Any]], hosts: HostGuard) -> list[BaseRoute]:
    """``/mcp``, with the same names allowed in ``Host`` as on the rest of the server."""
    names = [f"[{name}]" if ":" in name else name for name in hosts.names]
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=bool(names),
        allowed_hosts=[form for name in names for form in (name, f"{name}:*")],
        allowed_origins=[
            form
            for name in names
            for scheme in ("http", "https")
            for form in (f"{scheme}://{name}", f"{scheme}://{name}:*")
        ],
    )
    app = server.streamable_http_app(
        streamable_http_path="/mcp",
        stateless_http=True,
        json_response=True,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=security,
    )
    return [
        Route(route.path, Unechoed(route.app), methods=list(route.methods or ()) or None)
        for route in app.routes
        if isinstance(route, Route)
    ]


def readable(value: Any, indent: str = "") -> str:
    """A body as short text for people and models: an outline with every text exactly as stored."""
    if isinstance(value, Mapping):
        return "\n".join(_entry(f"{indent}{name}:", item, indent) for name, item in value.items())
    if isinstance(value, list):
        return "\n".join(_entry(f"{indent}-", item, indent) for item in value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _entry(label: str, item: Any, indent: str) -> str:
    if isinstance(item, Mapping | list):
        return f"{label}\n{readable(item, indent + '  ')}" if item else f"{label} (none)"
    if isinstance(item, str) and "\n" in item:
        return f"{label}\n{item}"
    return f"{label} {readable(item)}"


def _tool(operation: Operation) -> Tool:
    reads = operation.effect == "read"
    return Tool(
        name=operation.name,
        title=operation.summary,
        description=operation.description,
        input_schema=input_schema(operation),
        output_schema=operation.output.model_json_schema(mode="serialization"),
        annotations=ToolAnnotations(
            title=operation.summary,
            read_only_hint=reads,
            destructive_hint=operation.destructive,
            idempotent_hint=reads,
            open_world_hint=False,
        ),
    )


async def _call_tool(
    services: Services, request: Request | None, params: CallToolRequestParams
) -> CallToolResult:
    try:
        reply = await _reply(services, request, params)
    except PoolError as refused:
        return _refused(refused)
    except Exception as bug:  # noqa: BLE001 -- the root of the MCP side: logged under an id
        known = params.name if params.name in BY_NAME else "unknown tool"
        return _refused(internal(bug, f"mcp {known}"))
    return CallToolResult(
        content=[TextContent(type="text", text=readable(reply.body))], structured_content=reply.body
    )


async def _reply(services: Services, request: Request | None, params: CallToolRequestParams) -> Reply:
    assert request is not None
    operation = BY_NAME.get(params.name)
    arguments = dict(params.arguments or {})
    presented = presented_in_headers(request.headers.raw)
    malformed: PoolError | None = None
    if operation is not None:
        presented, malformed = _with_arguments(presented, operation, arguments)
    caller = await services.pool.authenticate(
        presented, address=address_of(request.scope), surface="mcp", client=client_of(request.headers)
    )
    roles = (caller.role,) if operation is None else operation.roles
    services.pool.admit(caller, roles, counted=operation is None or operation.effect == "write")
    if operation is None:
        raise NotFound("there is no tool of that name")
    if malformed is not None:
        raise malformed
    try:
        args = services.pool.validate(operation, checked(arguments), strict=True)
    except UnknownField as unknown:
        if operation.effect == "write":
            unknown.details["allowed_fields"].append(API_KEY)
        raise
    return await services.call(operation, caller, args)


def _with_arguments(
    presented: Presented, operation: Operation, arguments: dict[str, Any]
) -> tuple[Presented, PoolError | None]:
    """Takes ``api_key`` out of ``arguments``; ``guest_access_token`` stays, the operation knows it.

    Also why the key is none: the call counts all the same.
    """
    malformed: PoolError | None = None
    if operation.effect == "write" and API_KEY in arguments:
        key = arguments.pop(API_KEY)
        if isinstance(key, str):
            presented = with_key(presented, key)
        elif key is not None:
            malformed = ValidationFailed("api_key must be text", {API_KEY: "must be a string"})
    token = arguments.get(GUEST_TOKEN)
    if isinstance(token, str) and GUEST_TOKEN in operation.input.model_fields:
        presented = with_guest_token(presented, token)
    return presented, malformed


def _refused(error: PoolError) -> CallToolResult:
    body = envelope(error)
    text = json.dumps(body, ensure_ascii=False)
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=body, is_error=True
    )
