"""What all shapes share: names, bounds and the text that may be stored."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic_core import core_schema

from pool_server.contract.hidden_text import HIDDEN_CLASS

IssueKind = Literal["bug", "enhancement", "question"]
IssueStatusName = Literal["open", "in_progress", "awaiting_input", "resolved", "closed"]
Visibility = Literal["public", "private"]
Role = Literal["anonymous", "guest", "member", "operator"]
Tier = Literal["anon", "free", "paid", "verified"]
AuthorRole = Literal["reporter", "daemon", "operator", "forge"]
ResolutionKind = Literal["fixed", "answered", "duplicate", "not_reproduced", "declined"]

MAX_BODY_BYTES = 256 * 1024
MAX_FIELDS_DEPTH = 32
REPORTER_FIELDS = (
    "reporter_git_sha",
    "reporter_app_version",
    "reporter_git_ref",
    "reporter_channel",
    "reporter_ci_run_id",
    "reporter_patch_source_id",
)


def _storable_text(value: str) -> str:
    if "\x00" in value:
        raise ValueError("must not contain NUL characters")
    try:
        value.encode()
    except UnicodeEncodeError as broken:
        raise ValueError("must be valid Unicode") from broken
    return value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def _plain(value: Any, depth: int = 0) -> None:
    if depth > MAX_FIELDS_DEPTH:
        raise ValueError(f"must not be nested deeper than {MAX_FIELDS_DEPTH}")
    if isinstance(value, str):
        _storable_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must not contain NaN or infinity")
    elif isinstance(value, list):
        for item in value:
            _plain(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _plain(key, depth + 1)
            _plain(item, depth + 1)


def _storable(value: dict[str, Any]) -> dict[str, Any]:
    _plain(value)
    return value


def _visible_text(value: str) -> str:
    return _not_blank(_storable_text(value))


def _printable_text(value: str) -> str:
    if any(unicodedata.category(char) == "Cc" for char in value):
        raise ValueError("must not contain control characters")
    return _storable_text(value)


def _name(value: str) -> str:
    return _not_blank(_printable_text(value))


@dataclass(frozen=True, slots=True)
class _Checked:
    """A check whose reason is in words, and the pattern that says the same in JSON Schema."""

    check: Callable[[str], str]
    pattern: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}


STORABLE = _Checked(_storable_text, r"^[^\u0000]*$")
"""Text without NUL."""
VISIBLE = _Checked(_visible_text, rf"^[^\u0000]*[^\s\u0000\u001c-\u001f\u0085{HIDDEN_CLASS}][^\u0000]*$")
"""Text without NUL that shows something."""
PRINTABLE = _Checked(_printable_text, r"^[^\u0000-\u001f\u007f-\u009f]*$")
"""Text without control characters."""
NAME = _Checked(
    _name,
    rf"^[^\u0000-\u001f\u007f-\u009f]*[^\s\u0000-\u001f\u007f-\u009f{HIDDEN_CLASS}][^\u0000-\u001f\u007f-\u009f]*$",
)
"""Text without control characters that shows something."""
STORABLE_FIELDS = AfterValidator(_storable)
Title = Annotated[str, StringConstraints(min_length=1, max_length=256), VISIBLE]
Body = Annotated[str, StringConstraints(min_length=1, max_length=65_536), VISIBLE]
Short = Annotated[str, StringConstraints(max_length=256), STORABLE]
Label = Annotated[str, StringConstraints(min_length=1, max_length=50), VISIBLE]
GitSha = Annotated[str, StringConstraints(pattern=r"^\s*([0-9a-fA-F]{7,40})?\s*$", max_length=64)]
EntityId = Annotated[str, StringConstraints(pattern=r"^ent_[0-9a-f]{24}$")]
EntityType = Annotated[str, StringConstraints(min_length=1, max_length=128), NAME]
EntityTypeHint = Annotated[str, StringConstraints(max_length=128), PRINTABLE]
"""Blank is absent."""
EntityKey = Annotated[str, StringConstraints(min_length=1, max_length=256), STORABLE]
MessageId = EntityId
SubscriptionId = Annotated[str, StringConstraints(pattern=r"^sub_[0-9a-f]{24}$")]
IssueNumber = Annotated[int, Field(ge=1, le=2**53)]
Limit = Annotated[int, Field(ge=1, le=500)]
Cursor = Annotated[int, Field(ge=0, le=2**53)]


class Input(BaseModel):
    """An operation's arguments. Null is absent wherever a field may be: some clients send every one they know."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, given: Any) -> Any:
        if not isinstance(given, dict) or None not in given.values():
            return given
        optional = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {name: value for name, value in given.items() if value is not None or name not in optional}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        described = handler(schema)
        properties = handler.resolve_ref_schema(described).get("properties", {})
        for name, part in properties.items():
            field = cls.model_fields.get(name)
            if field is not None and not field.is_required():
                properties[name] = _or_null(part)
        return described


def _or_null(part: dict[str, Any]) -> dict[str, Any]:
    """A property that also takes null; its title and default stay beside the alternatives."""
    if {"type": "null"} in part.get("anyOf", ()):
        return part
    beside: dict[str, Any] = {
        name: part[name] for name in ("title", "default", "description") if name in part
    }
    value = {name: item for name, item in part.items() if name not in beside}
    return {"anyOf": [value, {"type": "null"}], **beside}


class GuestInput(Input):
    """Arguments of what a guest may call, for clients that cannot send headers; never in a query."""

    guest_access_token: Annotated[str, StringConstraints(max_length=200)] | None = None


class PostInput(GuestInput):
    """A POST body: every one accepts a guest token and an idempotency key."""

    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=128), STORABLE] | None = None


class Output(BaseModel):
    """An operation's answer."""

    model_config = ConfigDict(extra="forbid")
