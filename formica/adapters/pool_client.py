"""The pool server over HTTP: the `Issues` port, and the server's clock.

One mapping from transport and status to the errors of formica stands in `_answer`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx
import structlog
from pydantic import BaseModel, ValidationError

from formica.errors import NeedsOperator, Refused, Retryable
from formica.ports import VersionMismatch

__all__ = ["PoolClient", "ServerClock"]

Json = dict[str, Any]
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PAGE = 500

log = structlog.get_logger("formica.pool_client")


class ServerClock:
    """Server time in seconds: what the last write said, carried on by the local monotonic clock."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def now(self) -> float:
        return self._monotonic() + self._offset

    def learn(self, updated_at: str) -> None:
        """Set the clock by an answer to a write, just received."""
        self._offset = datetime.fromisoformat(updated_at).timestamp() - self._monotonic()


class _Message(BaseModel):
    message_id: str
    author_role: str
    body: str
    reporter: dict[str, str] = {}


class _Issue(BaseModel):
    entity_id: str
    issue_number: int
    title: str
    status: str
    kind: str | None
    entity_type: str | None
    labels: list[str]
    visibility: str
    reporter: dict[str, str]
    messages: list[_Message]
    open_question: dict[str, Any] | None
    resolution: dict[str, Any] | None


class _Entity(BaseModel):
    entity_id: str
    entity_type: str
    key: str | None
    version: int
    fields: dict[str, Any]
    updated_at: datetime


class _Page(BaseModel):
    items: list[dict[str, Any]]
    next_after: int | str | None


class _Events(BaseModel):
    items: list[dict[str, Any]]
    next_after: int


class _Subscribed(BaseModel):
    subscription_id: str
    secret: str


class _SubscriptionState(BaseModel):
    active: bool


class _Results(BaseModel):
    results: list[dict[str, Any]]


class _Said(BaseModel):
    message_id: str


def _shaped(shape: type[BaseModel], answer: Json) -> Json:
    """``answer`` itself, once what we rely on is there: an odd answer is a fault of the server, not of an item.

    Raises:
        Retryable: naming the first field that is missing or of another type.
    """
    try:
        shape.model_validate(answer)
    except ValidationError as odd:
        field = ".".join(str(part) for part in odd.errors(include_input=False, include_url=False)[0]["loc"])
        raise Retryable(f"the pool server's answer is not what was asked for: {field}") from None
    return answer


class PoolClient:
    """``key`` is an operator key; it travels in a header and nowhere else."""

    def __init__(self, url: str, key: str, name: str, clock: ServerClock) -> None:
        self._name = name
        self._clock = clock
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"X-API-Key": key, "User-Agent": "formica"},
            timeout=httpx.Timeout(10.0, read=75.0),
            follow_redirects=False,
            trust_env=(urlsplit(url).hostname or "") not in LOOPBACK,
        )

    async def __aenter__(self) -> PoolClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    # --- issues -----------------------------------------------------------------------------------------

    async def open_issues(self) -> list[Json]:
        found: list[Json] = []
        for status in ("open", "in_progress", "awaiting_input"):
            pages = await self._pages("/issues", {"status": status})
            found.extend(_shaped(_Issue, issue) for issue in pages)
        return found

    async def issue(self, *, issue_number: int | None = None, entity_id: str | None = None) -> Json:
        wanted = {"issue_number": issue_number, "entity_id": entity_id}
        body = {name: value for name, value in wanted.items() if value is not None}
        return _shaped(_Issue, await self._call("POST", "/issues/status", body))

    async def add_message(
        self, issue_number: int, body: str, *, step: str, question: Json | None = None
    ) -> Json | None:
        arguments: Json = {
            "issue_number": issue_number,
            "body": body,
            "author_role": "daemon",
            "idempotency_key": f"{self._name}:{issue_number}:{step}"[:128],
        }
        if question is not None:
            arguments["question"] = question
        try:
            return _shaped(_Said, await self._call("POST", "/issues/add_message", arguments))
        except _Mismatch:
            return None

    async def update_issue(self, issue_number: int, **changes: Any) -> Json:
        return await self._call("POST", "/issues/update", {"issue_number": issue_number, **changes})

    async def resolve(self, issue_number: int, resolution: Json) -> Json:
        body = {"issue_number": issue_number, "resolution": resolution}
        return await self._call("POST", "/issues/resolve", body)

    async def bulk_close(self, entity_ids: Sequence[str], resolution: Json) -> list[Json]:
        body = {"entity_ids": list(entity_ids), "resolution": resolution}
        answer = _shaped(_Results, await self._call("POST", "/issues/bulk_close", body))
        results: list[Json] = answer["results"]
        return results

    # --- entities ---------------------------------------------------------------------------------------

    async def entities(self, entity_type: str) -> list[Json]:
        return [_shaped(_Entity, entity) for entity in await self._pages("/entities", {"type": entity_type})]

    async def entity(self, entity_type: str, key: str) -> Json | None:
        answer = await self._call("GET", "/entities", params={"type": entity_type, "key": key})
        items: list[Json] = _shaped(_Page, answer)["items"]
        return _shaped(_Entity, items[0]) if items else None

    async def entity_by_id(self, entity_id: str) -> Json | None:
        try:
            return _shaped(_Entity, await self._call("GET", f"/entities/{entity_id}"))
        except _Missing:
            return None

    async def create_entity(self, entity_type: str, key: str, fields: Json) -> Json:
        existing = await self.entity(entity_type, key)
        if existing is not None:
            return existing
        try:
            return await self._write(
                "POST", "/entities", {"entity_type": entity_type, "key": key, "fields": fields}
            )
        except _Taken:
            raced = await self.entity(entity_type, key)
            if raced is None:
                raise Retryable(f"{entity_type} {key!r} is taken but not readable yet") from None
            return raced

    async def patch_entity(self, entity_id: str, fields: Json, *, version: int | None) -> Json:
        if_match = "*" if version is None else f'"{version}"'
        return await self._write("PATCH", f"/entities/{entity_id}", {"fields": fields}, if_match=if_match)

    async def relate(self, source_entity_id: str, relationship_type: str, target_entity_id: str) -> None:
        body = {
            "relationship_type": relationship_type,
            "source_entity_id": source_entity_id,
            "target_entity_id": target_entity_id,
            "idempotency_key": f"{relationship_type}:{source_entity_id}:{target_entity_id}"[:128],
        }
        await self._call("POST", "/relationships", body)

    # --- events and subscriptions -----------------------------------------------------------------------

    async def events(self, after: int, wait: float, filters: Json) -> Json:
        """One page of the log; waits up to ``wait`` seconds for something new."""
        params = {"after": after, "limit": PAGE, "wait": wait, **filters}
        return _shaped(_Events, await self._call("GET", "/events", params=params))

    async def subscribe(self, webhook_url: str, filters: Json) -> Json:
        """A webhook subscription; the answer holds its ``secret``, once."""
        body = {"delivery_method": "webhook", "webhook_url": webhook_url, **filters}
        return _shaped(_Subscribed, await self._call("POST", "/subscribe", body))

    async def unsubscribe(self, subscription_id: str) -> None:
        try:
            await self._call("POST", "/unsubscribe", {"subscription_id": subscription_id})
        except _Missing:
            return

    async def subscription_active(self, subscription_id: str) -> bool:
        try:
            answer = await self._call("GET", f"/subscriptions/{subscription_id}")
        except _Missing:
            return False
        return bool(_shaped(_SubscriptionState, answer)["active"])

    async def check_key(self) -> None:
        """Raises unless the server answers and the key is an operator's."""
        await self._call("GET", "/entities", params={"type": "daemon_config", "limit": 1})

    async def wait_until_reachable(self) -> None:
        """Return once the server answers; a refused key is raised at once."""
        delay = 0.2
        while True:
            try:
                return await self.check_key()
            except Retryable as fault:
                log.warning("server.unreachable", why=str(fault), next_try_seconds=delay)
            await anyio.sleep(delay)
            delay = min(delay * 2, 10.0)

    # --- transport --------------------------------------------------------------------------------------

    async def _pages(self, path: str, params: Json) -> list[Json]:
        found: list[Json] = []
        after: Any = None
        while True:
            cursor = {} if after is None else {"after": after}
            answer = _shaped(_Page, await self._call("GET", path, params={**params, "limit": PAGE, **cursor}))
            found.extend(answer["items"])
            if answer["next_after"] is None:
                return found
            if answer["next_after"] == after or not answer["items"]:
                raise Retryable(f"the pool server's pages of {path} do not end")
            after = answer["next_after"]

    async def _write(self, method: str, path: str, body: Json, *, if_match: str | None = None) -> Json:
        answer = _shaped(_Entity, await self._call(method, path, body, if_match=if_match))
        self._clock.learn(answer["updated_at"])
        return answer

    async def _call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        params: Json | None = None,
        if_match: str | None = None,
    ) -> Json:
        headers = {} if if_match is None else {"If-Match": if_match}
        try:
            response = await self._http.request(method, path, json=body, params=params, headers=headers)
        except httpx.TimeoutException:
            raise Retryable("the pool server did not answer in time") from None
        except httpx.TransportError as error:
            raise Retryable(f"the pool server is unreachable ({type(error).__name__})") from None
        return _answer(response)


class _Missing(Refused):
    """404."""


class _Taken(Refused):
    """409, the key of an entity."""


class _Mismatch(Refused):
    """409, this idempotency key said something else before."""


def _answer(response: httpx.Response) -> Json:
    """The JSON of a success, or the error that says what to do next."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Retryable(f"the pool server answered {response.status_code} without a JSON object")
    if response.is_success:
        return body
    code, message = str(body.get("error_code")), str(body.get("message"))
    if response.status_code == 412:
        raise VersionMismatch(message)
    if response.status_code == 429 or response.status_code >= 500:
        after = response.headers.get("retry-after", "")
        raise Retryable(
            f"the pool server says {code}: {message}", after_seconds=float(after) if after.isdigit() else None
        )
    if response.status_code in (401, 403):
        raise NeedsOperator(f"the pool server refuses [server] key: {code}: {message}")
    kinds = {"ERR_NOT_FOUND": _Missing, "ERR_CONFLICT": _Taken, "ERR_IDEMPOTENCY_MISMATCH": _Mismatch}
    raise kinds.get(code, Refused)(f"the pool server refused: {code}: {message} {_fields(body)}".strip())


def _fields(body: Json) -> str:
    listed = (body.get("details") or {}).get("fields") or []
    return "; ".join(f"{entry.get('field')}: {entry.get('reason')}" for entry in listed)
