"""The life of an issue as a table. Pure. Source: the wire contract, section 3.

::

    open ──update─▶ in_progress          ask: any of the three live ones ──▶ awaiting_input
      ▲                                  answer: awaiting_input ──▶ open
      │            fix                   settle (answered, duplicate, …): any ──▶ closed
    live ─────────────▶ resolved ──confirm──▶ closed
      ▲                    │                    │
      └──refute, reopen────┴──────reopen────────┘         withdraw: any ──▶ closed

A move that is not in the table is a conflict and changes nothing. An open question lives exactly as long as
the issue awaits input; a resolution as long as it is resolved or closed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pool_server.contract.models import IssueStatusName
from pool_server.errors import Conflict, ValidationFailed

Move = Literal["ask", "answer", "fix", "settle", "reopen", "confirm", "refute", "withdraw"]

TRANSITIONS: Mapping[tuple[Move, IssueStatusName], IssueStatusName] = {
    ("ask", "open"): "awaiting_input",
    ("ask", "in_progress"): "awaiting_input",
    ("ask", "awaiting_input"): "awaiting_input",
    ("answer", "awaiting_input"): "open",
    ("fix", "open"): "resolved",
    ("fix", "in_progress"): "resolved",
    ("fix", "awaiting_input"): "resolved",
    ("fix", "resolved"): "resolved",
    ("fix", "closed"): "closed",
    ("settle", "open"): "closed",
    ("settle", "in_progress"): "closed",
    ("settle", "awaiting_input"): "closed",
    ("settle", "resolved"): "closed",
    ("settle", "closed"): "closed",
    ("reopen", "open"): "open",
    ("reopen", "in_progress"): "in_progress",
    ("reopen", "awaiting_input"): "awaiting_input",
    ("reopen", "resolved"): "open",
    ("reopen", "closed"): "open",
    ("confirm", "resolved"): "closed",
    ("refute", "resolved"): "open",
    ("withdraw", "open"): "closed",
    ("withdraw", "in_progress"): "closed",
    ("withdraw", "awaiting_input"): "closed",
    ("withdraw", "resolved"): "closed",
    ("withdraw", "closed"): "closed",
}

_ENDED: frozenset[IssueStatusName] = frozenset(("resolved", "closed"))
WITHDRAWN = {"kind": "declined", "summary": "withdrawn by the reporter"}


@dataclass(frozen=True, slots=True)
class Life:
    """Where an issue stands. ``open_question``: ``{message_id, needs, text}``."""

    status: IssueStatusName
    resolution: Mapping[str, Any] | None = None
    open_question: Mapping[str, Any] | None = None


def _moved(life: Life, move: Move) -> Life:
    target = TRANSITIONS.get((move, life.status))
    if target is None:
        raise Conflict(
            f"an issue that is {life.status} cannot do that", {"status": life.status, "move": move}
        )
    return _settled(replace(life, status=target))


def _settled(life: Life) -> Life:
    question = life.open_question if life.status == "awaiting_input" else None
    resolution = life.resolution if life.status in _ENDED else None
    return replace(life, open_question=question, resolution=resolution)


def ask(life: Life, message_id: str, needs: Collection[str], text: str) -> Life:
    """An operator's question in ``message_id``; it replaces one that is open."""
    question = {"message_id": message_id, "needs": list(needs), "text": text}
    return replace(_moved(life, "ask"), open_question=question)


def hear(life: Life, given: Collection[str], answers: str | None) -> Life:
    """A reporter's message that carries the fields ``given`` and may name the question it ``answers``."""
    question = life.open_question
    if life.status != "awaiting_input" or question is None:
        return life
    if answers != question["message_id"] and not set(given) & set(question["needs"]):
        return life
    return _moved(life, "answer")


def resolve(life: Life, resolution: Mapping[str, Any]) -> Life:
    """Resolve and bulk close alike. On an issue that has a resolution, what is given replaces what it had."""
    merged = {**(life.resolution or {}), **resolution}
    moved = _moved(life, "fix" if merged["kind"] == "fixed" else "settle")
    return replace(moved, resolution=merged)


def reopen(life: Life) -> Life:
    """Back to open; one that is live already stays as it is."""
    return _moved(life, "reopen")


def verify(life: Life, *, worked: bool) -> Life:
    """The reporter's word on a fix.

    Raises:
        Conflict: the issue is not resolved.
    """
    return _moved(life, "confirm" if worked else "refute")


def withdraw(life: Life) -> Life:
    """The reporter takes the report back; what was closed before keeps its resolution."""
    if life.status == "closed":
        return life
    return replace(_moved(life, "withdraw"), resolution=dict(WITHDRAWN))


def set_status(life: Life, status: IssueStatusName) -> Life:
    """An operator's word, free but for one thing: only a resolution resolves.

    Raises:
        ValidationFailed: ``resolved`` for an issue that is not.
    """
    if status == life.status:
        return life
    if status == "resolved":
        raise ValidationFailed(
            "an issue is resolved by a resolution",
            {"status": "give the resolution to /issues/resolve instead"},
        )
    return _settled(replace(life, status=status))
