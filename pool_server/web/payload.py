"""Request bodies as plain values, or a refusal that says what is wrong without repeating it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from pool_server.errors import UnsupportedMediaType, ValidationFailed

__all__ = ["MAX_DEPTH", "checked", "decoded_object"]

MAX_DEPTH = 64


def decoded_object(content_type: str | None, content_encoding: str | None, body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``; an empty body is an empty object.

    Raises:
        UnsupportedMediaType: something that is not declared as plain UTF-8 JSON.
        ValidationFailed: not JSON, not an object, nested too deep, or text that is not Unicode.
    """
    if not body:
        return {}
    _check_media_type(content_type, content_encoding)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise ValidationFailed("the body is not UTF-8", {"body": "not valid UTF-8"}) from None
    try:
        value = json.loads(text, parse_constant=_no_such_number)
    except (ValueError, RecursionError):
        raise ValidationFailed("the body is not valid JSON", {"body": "not valid JSON"}) from None
    if not isinstance(value, dict):
        raise ValidationFailed("the body must be a JSON object", {"body": "must be an object"})
    return checked(value)


def checked(value: dict[str, Any]) -> dict[str, Any]:
    """``value`` itself, if it is at most 64 levels deep and all of its text is Unicode without lone
    surrogates, which no database and no UTF-8 answer can hold.

    Raises:
        ValidationFailed: otherwise, naming the top-level field.
    """
    for name, top in value.items():
        _check_text(name, "body")
        pending: list[tuple[Any, int]] = [(top, 1)]
        while pending:
            item, depth = pending.pop()
            if isinstance(item, str):
                _check_text(item, name)
                continue
            if isinstance(item, Mapping):
                for key in item:
                    _check_text(key, name)
                children = list(item.values())
            elif isinstance(item, list):
                children = item
            else:
                continue
            if depth >= MAX_DEPTH:
                raise ValidationFailed("the body is nested too deep", {name: f"more than {MAX_DEPTH} levels"})
            pending.extend((child, depth + 1) for child in children)
    return value


def _check_media_type(content_type: str | None, content_encoding: str | None) -> None:
    media_type, _, parameters = (content_type or "").partition(";")
    charset = dict(
        part.strip().lower().partition("=")[::2] for part in parameters.split(";") if "=" in part
    ).get("charset", "utf-8")
    if media_type.strip().lower() != "application/json" or charset.strip('"') not in ("utf-8", "utf8"):
        raise UnsupportedMediaType("send the body as application/json", {"accepted": ["application/json"]})
    if content_encoding and content_encoding.strip().lower() != "identity":
        raise UnsupportedMediaType("send the body without a content encoding")


def _check_text(text: str, field: str) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        shown = field if field.isascii() else "body"
        raise ValidationFailed(
            "text must be Unicode without lone surrogates", {shown: "contains a lone surrogate"}
        ) from None


def _no_such_number(name: str) -> NoReturn:
    raise ValueError(name)
