"""One issue with its thread: finding it, and the only functions that write to it.

The issue's entity holds its fields; the ``issues`` row is its projection, written once by ``save``. The revision
grows by one in a write that changes something the status answer shows to everybody who may read the issue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import sqlalchemy as sa

from pool_server.contract.models import AuthorRole, Question, Visibility
from pool_server.errors import ValidationFailed
from pool_server.pool import records, relationships
from pool_server.pool.records import Draft, Record
from pool_server.pool.relationships import Link
from pool_server.pool.work import Work, entity_id
from pool_server.rules import access
from pool_server.rules.access import Caller
from pool_server.rules.lifecycle import Life
from pool_server.storage import Connection
from pool_server.storage import tables as t

# What the status answer shows of an issue's fields to whoever may read it.
SHOWN = frozenset(
    {"title", "status", "kind", "entity_type", "labels", "visibility", "reporter", "messages"}
    | {"open_question", "resolution", "mirror"}
)

_I = t.issues.c
_M = t.messages.c
ISSUE_COLUMNS = (_I.issue_number, _I.conversation_id, _I.revision, _I.submitter_key_id, *records.COLUMNS)
ISSUES = t.issues.join(t.entities, _I.entity_id == t.entities.c.entity_id)
_FIND = sa.select(*ISSUE_COLUMNS).select_from(ISSUES).where(t.entities.c.removed_at.is_(None))
_BY_ID = _FIND.where(_I.entity_id == sa.bindparam("wanted"))
_BY_NUMBER = _FIND.where(_I.issue_number == sa.bindparam("wanted"))
_INSERT_MESSAGE = sa.insert(t.messages)
_INSERT_LABELS = sa.insert(t.issue_labels)
_DELETE_LABELS = sa.delete(t.issue_labels).where(t.issue_labels.c.issue_number == sa.bindparam("target"))
_UPDATE = (
    sa.update(t.issues)
    .where(_I.issue_number == sa.bindparam("target"))
    .values(
        status=sa.bindparam("new_status"),
        kind=sa.bindparam("new_kind"),
        visibility=sa.bindparam("new_visibility"),
        revision=sa.bindparam("new_revision"),
    )
)


class Reference(Protocol):
    """How a caller names an issue."""

    @property
    def entity_id(self) -> str | None: ...
    @property
    def issue_number(self) -> int | None: ...


@dataclass(slots=True)
class Issue:
    """One issue as it stands in this transaction. ``touched``: the status answer shows a change."""

    number: int
    conversation_id: str
    revision: int
    submitter_key_id: str | None
    record: Record
    touched: bool = False

    @property
    def entity_id(self) -> str:
        return self.record.entity_id

    @property
    def access(self) -> access.Thread:
        return access.Thread(self.record.entity_id, self.record.visibility, self.submitter_key_id)

    @property
    def life(self) -> Life:
        fields = self.record.fields
        return Life(fields["status"], fields.get("resolution"), fields.get("open_question"))

    @property
    def labels(self) -> list[str]:
        return list(self.record.fields.get("labels", ()))


def of_row(row: Sequence[Any]) -> Issue:
    """From a row of ``ISSUE_COLUMNS``."""
    number, conversation_id, revision, submitter = row[:4]
    return Issue(number, conversation_id, revision, submitter, Record(*row[4:]))


def find(connection: Connection, reference: Reference) -> Issue | None:
    """The issue named, by entity id if both are given."""
    if reference.entity_id is not None:
        row = connection.execute(_BY_ID, {"wanted": reference.entity_id}).one_or_none()
    else:
        row = connection.execute(_BY_NUMBER, {"wanted": reference.issue_number}).one_or_none()
    return None if row is None else of_row(row)


def locate(
    connection: Connection,
    caller: Caller,
    reference: Reference,
    rule: Callable[[Caller, access.Thread | None], access.Thread],
) -> Issue:
    """The issue named, if the rule lets the caller have it.

    Raises:
        AuthRequired, Forbidden, NotFound: the rule's refusal.
        ValidationFailed: id and number name different issues.
    """
    issue = find(connection, reference)
    rule(caller, None if issue is None else issue.access)
    assert issue is not None
    if reference.issue_number is not None and reference.issue_number != issue.number:
        raise ValidationFailed(
            "entity_id and issue_number name different issues", {"issue_number": "is not this entity's"}
        )
    return issue


def append(
    work: Work,
    issue: Issue,
    *,
    body: str,
    author_role: AuthorRole,
    reporter: Mapping[str, str],
    links: Sequence[Link] = (),
    answers: str | None = None,
    question: Question | None = None,
) -> str:
    """Add a message to the thread and return its id."""
    message_id = entity_id()
    optional = {"answers": answers, "question": None if question is None else question.model_dump()}
    draft = message(
        issue.entity_id, issue.conversation_id, issue.record.visibility, message_id, body, author_role, reporter,
        author_id=work.caller.actor_id, **{name: value for name, value in optional.items() if value is not None},
    )  # fmt: skip
    records.create(work, [draft])
    place(work, issue.entity_id, message_id, revision=issue.revision + 1)
    related = (message_id, issue.conversation_id)
    work.record(
        "observation.created", issue.entity_id, "issue", "created", related=related, thread=issue.entity_id
    )
    issue.record = records.change(
        work, issue.record, {}, fields_changed=["messages"], related=related, thread=issue.entity_id
    )
    relationships.refer(work, message_id, draft.entity_type, links, issue.entity_id)
    issue.touched = True
    return message_id


def message(
    issue_id: str,
    conversation_id: str,
    visibility: Visibility,
    message_id: str,
    body: str,
    author_role: AuthorRole,
    reporter: Mapping[str, str],
    **more: Any,
) -> Draft:
    """A message's entity."""
    fields = {
        "body": body,
        "author_role": author_role,
        "reporter": dict(reporter),
        "issue_entity_id": issue_id,
        "conversation_id": conversation_id,
        **more,
    }
    related = (issue_id, conversation_id)
    return Draft(message_id, "conversation_message", fields, visibility, related=related, thread=issue_id)


def place(work: Work, issue_id: str, message_id: str, revision: int) -> None:
    """Put a message at the end of a thread."""
    work.connection.execute(
        _INSERT_MESSAGE,
        {"message_id": message_id, "issue_entity_id": issue_id, "added_at_revision": revision},
    )


def holds(connection: Connection, issue: Issue, message_id: str) -> bool:
    """Whether a message belongs to the thread."""
    found = connection.execute(
        sa.select(_M.position).where(_M.message_id == message_id, _M.issue_entity_id == issue.entity_id)
    ).one_or_none()
    return found is not None


def live(work: Work, issue: Issue, life: Life, **more: Any) -> None:
    """Write where the issue stands now, as an event of its own; nothing if it stands where it did."""
    before = issue.life
    given = dict(more)
    if life.status != before.status:
        given["status"] = life.status
    if life.open_question != before.open_question:
        given["open_question"] = None if life.open_question is None else dict(life.open_question)
    if life.resolution != before.resolution:
        given["resolution"] = None if life.resolution is None else dict(life.resolution)
    if given:
        write(work, issue, given)


def write(
    work: Work, issue: Issue, given: Mapping[str, Any], *, visibility: Visibility | None = None
) -> None:
    """Change the issue's fields; a change of visibility takes its conversation and messages along."""
    before = issue.record
    shown = {name for name in given if name in SHOWN and given[name] != before.fields.get(name)}
    moved = visibility is not None and visibility != before.visibility
    thread = issue.entity_id if shown or moved else None
    issue.record = records.change(
        work, before, given, visibility=visibility, related=[issue.conversation_id], thread=thread
    )
    issue.touched = issue.touched or thread is not None
    if moved:
        for member in _members(work.connection, issue):
            records.change(
                work, member, {}, visibility=visibility, related=[issue.entity_id], thread=issue.entity_id
            )
    if "labels" in shown:
        relabel(work, issue)


def relabel(work: Work, issue: Issue) -> None:
    """Make the look-up by label match the issue."""
    work.connection.execute(_DELETE_LABELS, {"target": issue.number})
    insert_labels(work, issue.number, issue.labels)


def insert_labels(work: Work, number: int, labels: Sequence[str]) -> None:
    """Make an issue findable by its labels."""
    if labels:
        rows = [{"label": label, "issue_number": number} for label in dict.fromkeys(labels)]
        work.connection.execute(_INSERT_LABELS, rows)


def save(work: Work, issue: Issue) -> None:
    """Write the projection, with a new revision, if the status answer shows a change."""
    if not issue.touched:
        return
    issue.revision += 1
    issue.touched = False
    work.connection.execute(
        _UPDATE,
        {
            "target": issue.number,
            "new_status": issue.record.fields["status"],
            "new_kind": issue.record.fields.get("kind"),
            "new_visibility": issue.record.visibility,
            "new_revision": issue.revision,
        },
    )


def _members(connection: Connection, issue: Issue) -> list[Record]:
    in_thread = sa.select(_M.message_id).where(_M.issue_entity_id == issue.entity_id)
    entity = t.entities.c
    rows = connection.execute(
        sa.select(*records.COLUMNS)
        .where(sa.or_(entity.entity_id == issue.conversation_id, entity.entity_id.in_(in_thread)))
        .order_by(entity.position)
    )
    return [Record(*row) for row in rows]
