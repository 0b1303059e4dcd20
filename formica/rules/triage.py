"""`formica triage`: what the rules make of reports in a file. Shape: wire contract, section 9."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from formica.rules.classification import classify
from formica.rules.environment import ReportedBuild, extract, judge
from formica.rules.facts import RepositoryFacts
from formica.rules.messages import question

__all__ = ["parse_rows", "reported_build", "triage_row"]

Json = dict[str, Any]


def reported_build(row: Mapping[str, Any]) -> ReportedBuild:
    """The build a row speaks of: what the repository is asked about."""
    return extract(row["title"], row["body"], row)


def triage_row(row: Mapping[str, Any], facts: RepositoryFacts | None) -> Json:
    """One line of the answer. ``facts``: what the repository knows of the row's build, None without one."""
    hint = row.get("kind")
    found = classify(
        row["title"], row["body"], hint if isinstance(hint, str) else None, _labels(row.get("labels"))
    )
    environment = judge(reported_build(row), facts)
    asks = bool(environment.needs) and found.kind == "bug" and not found.security
    text = question(environment.needs, environment.evidence) if asks else ""
    return {
        "id": row["id"],
        "kind": found.kind,
        "kind_confidence": found.confidence,
        "unsure": found.unsure,
        "security": found.security,
        "environment": environment.kind,
        "environment_evidence": list(environment.evidence),
        "questions": [{"needs": list(environment.needs), "text": text}] if asks else [],
    }


def _labels(value: Any) -> tuple[str, ...]:
    return tuple(label for label in value if isinstance(label, str)) if isinstance(value, list) else ()


def parse_rows(text: str) -> list[Json]:
    """The reports of a file: a JSON array, one JSON object, or JSON lines.

    Every row comes back with ``title`` and ``body``; a row without ``id`` gets its position, from 1. Keys
    that are not known are kept and ignored.

    Raises:
        ValueError: text that is none of these, or a row that is no report; says which line or row.
    """
    text = text.removeprefix("\ufeff")
    if not text.strip():
        return []
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return [_row(value, f"line {number}", place) for place, (number, value) in enumerate(_lines(text), 1)]
    values = whole if isinstance(whole, list) else [whole]
    label = "row {}" if isinstance(whole, list) else "line {}"
    return [_row(value, label.format(place), place) for place, value in enumerate(values, 1)]


def _lines(text: str) -> list[tuple[int, Any]]:
    values = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            values.append((number, json.loads(line)))
        except ValueError as error:
            detail = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise ValueError(f"line {number} is not JSON ({detail})") from None
        except RecursionError:
            raise ValueError(f"line {number} is nested too deeply") from None
    return values


def _row(value: Any, where: str, place: int) -> Json:
    if not isinstance(value, dict):
        raise ValueError(f"{where} is not an object with title and body")
    for name in ("title", "body"):
        if name not in value:
            raise ValueError(f"{where} has no {name}")
    title, body = value["title"], value["body"] if value["body"] is not None else ""
    if not isinstance(title, str) or not isinstance(body, str):
        raise ValueError(f"{where}: title and body must be text")
    row_id = value.get("id")
    return {**value, "title": title, "body": body, "id": place if row_id is None else row_id}
