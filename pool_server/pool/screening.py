"""Redaction of what an operation takes, before anything of it is stored. Source: the wire contract, section 7.

Reports, messages and free entities are redacted. The types operators keep their own state in are checked for
credentials only and refused, because a plan that is silently another one than was written is worse than an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import anyio
from pydantic import BaseModel

from pool_server.contract import models as m
from pool_server.contract.redaction import ALL_KINDS, CREDENTIAL_KINDS, Redactor, find, normalise
from pool_server.errors import ValidationFailed

A = TypeVar("A", bound=BaseModel)

OPERATOR_TYPES = frozenset(
    (
        "plan",
        "daemon_config",
        "operator_state",
        "publish_budget",
        "pull_request",
        "submission_config",
        "product",
    )
)
# Longer texts would hold up the event loop.
INLINE_CHARACTERS = 8_192

# A sha is checked by its form and stays as it is.
_REPORTER = tuple(name for name in m.REPORTER_FIELDS if name != "reporter_git_sha")
_TEXTS: Mapping[type[BaseModel], tuple[str, ...]] = {
    m.SubmitIssue: ("title", "body", "labels", *_REPORTER),
    m.AddIssueMessage: ("body", "question", *_REPORTER),
    m.Question: ("needs", "text"),
    m.UpdateIssue: ("labels",),
    m.ResolveIssue: ("resolution",),
    m.BulkCloseIssues: ("resolution",),
    m.Resolution: ("summary", "pr_url", "fixed_in_version", "verify"),
    m.ReopenIssue: ("body",),
    m.VerifyResolution: ("body", *_REPORTER),
    m.WithdrawIssue: ("body",),
}
# Stored as they are given, so a credential in one is refused.
_NAMES: Mapping[type[BaseModel], tuple[str, ...]] = {
    m.SubmitIssue: ("entity_type",),
    m.CreateEntity: ("entity_type",),
    m.CreateRelationship: ("relationship_type",),
    m.Subscribe: ("webhook_url", "entity_types"),
}
CLIENT_LENGTH = 200
CLIENT_SCREENED = 4_096
_NEVER_BLANK = frozenset(("title", "body", "summary", "text"))


@dataclass(frozen=True, slots=True)
class Screened:
    """The arguments as they may be stored, and what was taken out of them."""

    args: m.Input
    redactions: list[dict[str, Any]]


async def screened(args: m.Input, entity_type: str | None) -> Screened:
    """Redact; ``entity_type`` is that of the entity written, if the operation writes any.

    Raises:
        ValidationFailed: a credential in an operator's own type or in a key, or nothing left of a text.
    """
    if _size(args) <= INLINE_CHARACTERS:
        return _screened(args, entity_type)
    return await anyio.to_thread.run_sync(_screened, args, entity_type)


def client_text(client: str) -> str:
    """A user agent as it may be stored: redacted while it is whole, then shortened."""
    if len(client) > CLIENT_SCREENED:
        # The word at the cut may be half a token.
        client = client[:CLIENT_SCREENED].rpartition(" ")[0]
    return _client_text(client)


@lru_cache(maxsize=1_024)
def _client_text(client: str) -> str:
    return Redactor().text(client)[:CLIENT_LENGTH]


def holds_credential(name: str) -> bool:
    """Whether a name that is stored as it is given must be refused."""
    return normalise(name)[0] != name or bool(find(name, CREDENTIAL_KINDS))


def _screened(args: m.Input, entity_type: str | None) -> Screened:
    _require_clean_names(args)
    redactor = Redactor()
    if isinstance(args, (m.CreateEntity, m.UpdateEntity)):
        if isinstance(args, m.CreateEntity):
            _require_clean_key(args)
        fields = _fields(args.fields, entity_type, redactor)
        return Screened(args.model_copy(update={"fields": fields}), redactor.counts())
    return Screened(_redacted(args, redactor), redactor.counts())


def _redacted(args: A, redactor: Redactor) -> A:
    update: dict[str, Any] = {}
    for name in _TEXTS.get(type(args), ()):
        value = getattr(args, name)
        if isinstance(value, str):
            update[name] = redactor.text(value)
            if name in _NEVER_BLANK and not update[name].strip():
                raise ValidationFailed(
                    "a text without visible characters", {name: "is blank without its hidden characters"}
                )
        elif isinstance(value, list):
            texts = (redactor.text(item) for item in value)
            update[name] = list(dict.fromkeys(text for text in texts if text.strip()))
        elif isinstance(value, BaseModel):
            update[name] = _redacted(value, redactor)
    return args.model_copy(update=update) if update else args


def _fields(fields: dict[str, Any], entity_type: str | None, redactor: Redactor) -> dict[str, Any]:
    if entity_type not in OPERATOR_TYPES:
        return _object(redactor.value(fields))
    visible = _object(Redactor(kinds=frozenset()).value(fields))
    without = _object(Redactor(kinds=CREDENTIAL_KINDS).value(fields))
    hits = dict.fromkeys(_differences(visible, without, "fields"), "holds what looks like a credential")
    if hits:
        raise ValidationFailed("a credential must not be stored here", hits)
    return visible


def _object(value: Any) -> dict[str, Any]:
    assert isinstance(value, dict)
    return value


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for (name, value), (other_name, other_value) in zip(one.items(), other.items(), strict=False):
            if name != other_name:
                yield path
            else:
                yield from _differences(value, other_value, f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list):
        for index, (value, other_value) in enumerate(zip(one, other, strict=True)):
            yield from _differences(value, other_value, f"{path}.{index}")
    elif one != other:
        yield path


def _require_clean_names(args: m.Input) -> None:
    for field in _NAMES.get(type(args), ()):
        given = getattr(args, field)
        names = given if isinstance(given, list) else [given] if given is not None else []
        if any(map(holds_credential, names)):
            raise ValidationFailed(
                "a name is stored as it is given", {field: "holds hidden characters or a credential"}
            )


def _require_clean_key(args: m.CreateEntity) -> None:
    if args.key is None:
        return
    kinds = CREDENTIAL_KINDS if args.entity_type in OPERATOR_TYPES else ALL_KINDS
    if normalise(args.key)[0] != args.key or find(args.key, kinds):
        raise ValidationFailed(
            "a key is stored as it is given",
            {"key": "holds hidden characters, a credential or personal data"},
        )


def _size(args: BaseModel) -> int:
    if isinstance(args, (m.CreateEntity, m.UpdateEntity)):
        return len(json.dumps(args.fields))
    size = 0
    for name in _TEXTS.get(type(args), ()):
        value = getattr(args, name)
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, BaseModel):
            size += _size(value)
    return size
