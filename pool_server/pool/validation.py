"""From raw arguments to an operation's input, and what is said when they do not fit: never a value of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from pool_server.contract.models import Input
from pool_server.errors import UnknownField, ValidationFailed

NAME_LENGTH = 100


def validated(form: type[Input], raw: Mapping[str, Any], *, strict: bool) -> Input:
    """The input, by strict JSON types, or leniently for a query string.

    Raises:
        UnknownField: a field the operation does not take, also in a nested object.
        ValidationFailed: everything else; each field once, with its reason.
    """
    try:
        return form.model_validate(dict(raw), strict=strict)
    except ValidationError as wrong:
        errors = wrong.errors(include_input=False, include_url=False, include_context=False)
        unknown = [error["loc"] for error in errors if error["type"] == "extra_forbidden"]
        if unknown:
            parent = unknown[0][:-1]
            names = [_named(location) for location in unknown]
            raise UnknownField(names, sorted(_form_at(form, parent).model_fields)) from None
        raise ValidationFailed("the request does not fit", reasons(wrong)) from None


def reasons(wrong: ValidationError) -> dict[str, str]:
    """Each field's path and what is wrong with it, in words."""
    found: dict[str, str] = {}
    for error in wrong.errors(include_input=False, include_url=False, include_context=False):
        reason = error["msg"].removeprefix("Value error, ")
        # A check of the whole object names the fields it is about in its own words.
        found.setdefault(_named(error["loc"]) or "body", reason)
    return found


def _named(location: tuple[int | str, ...]) -> str:
    # pydantic adds its own steps for unions and keys; only the caller's names are kept.
    steps = [
        str(step)[:NAME_LENGTH]
        for step in location
        if step != "[key]" and not str(step).startswith("literal[")
    ]
    name = ".".join(steps)
    # A name that is no text would break the answer.
    return name.encode("utf-8", "replace").decode()


def _form_at(form: type[BaseModel], location: tuple[int | str, ...]) -> type[BaseModel]:
    for step in location:
        field = form.model_fields.get(str(step))
        if field is None:
            continue
        kinds = [field.annotation, *get_args(field.annotation)]
        form = next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), form)
    return form
