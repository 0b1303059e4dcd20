"""A pool server in memory: the `Issues` port over a small working model of issues, threads and entities.

The reporter's and the operator's side are methods of their own (`submit`, `reply`, `verify`, …): they are
always reachable and run no hooks.
"""

from __future__ import annotations

import json
import marshal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from formica.errors import Refused, Retryable
from formica.ports import VersionMismatch
from formica.rules.plan import timestamp
from tests.fakes.hooks import Hooks, VirtualClock

Json = dict[str, Any]
LIVE = ("open", "in_progress", "awaiting_input")


def copied(value: Json) -> Json:
    """As read over the wire: nobody else's object."""
    read: Json = marshal.loads(marshal.dumps(value))
    return read


def sent(value: Json) -> Json:
    """As written over the wire: JSON or an error."""
    parsed: Json = json.loads(json.dumps(value))
    return parsed


@dataclass(slots=True)
class FakeIssues:
    """``reachable`` False answers every call of the port with `Retryable`."""

    clock: VirtualClock
    hooks: Hooks = field(default_factory=Hooks)
    reachable: bool = True
    threads: dict[int, Json] = field(default_factory=dict)
    records: dict[str, Json] = field(default_factory=dict)
    relations: list[tuple[str, str, str]] = field(default_factory=list)
    steps: dict[tuple[int, str], tuple[str, Json]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Port methods that the server refuses for good."""
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    # --- the reporter and the operator ------------------------------------------------------------------

    def submit(self, title: str, body: str, **given: Any) -> Json:
        """File a report; ``given``: reporter_* fields, kind, labels, entity_type, visibility, tainted."""
        number = len(self.threads) + 1
        reporter = {name: value for name, value in given.items() if name.startswith("reporter_")}
        issue: Json = {
            "issue_number": number,
            "entity_id": self._id(),
            "title": title,
            "status": "open",
            "kind": given.get("kind"),
            "entity_type": given.get("entity_type"),
            "labels": list(given.get("labels", [])),
            "visibility": given.get("visibility", "public"),
            "tainted": list(given.get("tainted", [])),
            "reporter": reporter,
            "messages": [],
            "open_question": None,
            "resolution": None,
        }
        self.threads[number] = issue
        self._append(issue, "reporter", body, reporter)
        return copied(issue)

    def reply(self, issue_number: int, body: str, *, answers: str | None = None, **reporter: str) -> None:
        """The reporter writes; one of the asked fields closes the question."""
        issue = self.threads[issue_number]
        self._append(issue, "reporter", body, dict(reporter))
        question = issue["open_question"]
        if question and (answers == question["message_id"] or set(reporter) & set(question["needs"])):
            issue |= {"status": "open", "open_question": None}

    def verify(self, issue_number: int, *, worked: bool, body: str = "") -> None:
        """The reporter's word on a resolved issue."""
        issue = self.threads[issue_number]
        if body:
            self._append(issue, "reporter", body, {})
        issue |= {"status": "closed"} if worked else {"status": "open", "resolution": None}

    def withdraw(self, issue_number: int) -> None:
        resolution = {"kind": "declined", "summary": "withdrawn"}
        self.threads[issue_number] |= {"status": "closed", "open_question": None, "resolution": resolution}

    def said(self, issue_number: int, role: str = "daemon") -> list[str]:
        """The bodies of one role's messages in a thread."""
        messages = self.threads[issue_number]["messages"]
        return [message["body"] for message in messages if message["author_role"] == role]

    def by_key(self, entity_type: str, key: str) -> Json | None:
        for record in self.records.values():
            if (record["entity_type"], record["key"]) == (entity_type, key):
                return copied(record)
        return None

    def put(self, entity_type: str, key: str, fields: Json) -> Json:
        """Write an entity as the operator would, unconditionally."""
        existing = self.by_key(entity_type, key)
        if existing is None:
            return self._create(entity_type, key, fields)
        return self._change(existing["entity_id"], fields)

    # --- the port ---------------------------------------------------------------------------------------

    async def open_issues(self) -> list[Json]:
        async with _Call(self, "open_issues"):
            return [copied(issue) for issue in self.threads.values() if issue["status"] in LIVE]

    async def issue(self, *, issue_number: int | None = None, entity_id: str | None = None) -> Json:
        async with _Call(self, "issue"):
            for issue in self.threads.values():
                if issue_number == issue["issue_number"] or entity_id == issue["entity_id"]:
                    return copied(issue)
            raise Refused("the pool server refused: ERR_NOT_FOUND")

    async def add_message(
        self, issue_number: int, body: str, *, step: str, question: Json | None = None
    ) -> Json | None:
        async with _Call(self, "add_message", writes=True, what=f"#{issue_number} {step}"):
            content = json.dumps([body, question])
            if (issue_number, step) in self.steps:
                before, answer = self.steps[issue_number, step]
                return copied(answer) if before == content else None
            issue = self.threads[issue_number]
            if question is not None and issue["status"] not in LIVE:
                raise Refused("the pool server refused: ERR_CONFLICT")
            message_id = self._append(issue, "daemon", body, {})
            if question is not None:
                asked = {"message_id": message_id, **question}
                issue |= {"status": "awaiting_input", "open_question": asked}
            self.steps[issue_number, step] = (content, {"message_id": message_id})
            return {"message_id": message_id}

    async def update_issue(self, issue_number: int, **changes: Any) -> Json:
        async with _Call(self, "update_issue", writes=True, what=f"#{issue_number} {changes}"):
            issue = self.threads[issue_number]
            if changes.get("status") == "resolved":
                raise Refused("the pool server refused: ERR_VALIDATION")
            issue |= changes
            if "status" in changes:
                issue["resolution"] = issue["resolution"] if issue["status"] == "closed" else None
                issue["open_question"] = None
            return copied(issue)

    async def resolve(self, issue_number: int, resolution: Json) -> Json:
        async with _Call(self, "resolve", writes=True, what=f"#{issue_number}"):
            return copied(self._resolve(self.threads[issue_number], resolution))

    async def bulk_close(self, entity_ids: Sequence[str], resolution: Json) -> list[Json]:
        async with _Call(self, "bulk_close", writes=True, what=" ".join(entity_ids)):
            by_id = {issue["entity_id"]: issue for issue in self.threads.values()}
            return [
                {
                    "entity_id": entity_id,
                    "ok": True,
                    "status": self._resolve(by_id[entity_id], resolution)["status"],
                }
                if entity_id in by_id
                else {
                    "entity_id": entity_id,
                    "ok": False,
                    "error_code": "ERR_NOT_FOUND",
                    "message": "no such issue",
                }
                for entity_id in entity_ids
            ]

    async def entities(self, entity_type: str) -> list[Json]:
        async with _Call(self, "entities", what=entity_type):
            return [
                copied(record) for record in self.records.values() if record["entity_type"] == entity_type
            ]

    async def entity(self, entity_type: str, key: str) -> Json | None:
        async with _Call(self, "entity", what=entity_type):
            return self.by_key(entity_type, key)

    async def entity_by_id(self, entity_id: str) -> Json | None:
        async with _Call(self, "entity_by_id"):
            return copied(self.records[entity_id]) if entity_id in self.records else None

    async def create_entity(self, entity_type: str, key: str, fields: Json) -> Json:
        exists = self.by_key(entity_type, key) is not None
        async with _Call(self, "create_entity", writes=not exists, what=entity_type):
            return self.by_key(entity_type, key) or self._create(entity_type, key, fields)

    async def patch_entity(self, entity_id: str, fields: Json, *, version: int | None) -> Json:
        entity_type = self.records[entity_id]["entity_type"] if entity_id in self.records else "?"
        what = f"{entity_type} {','.join(fields)}"
        async with _Call(self, "patch_entity", writes=True, what=what):
            if entity_id not in self.records:
                raise Refused("the pool server refused: ERR_NOT_FOUND")
            if version not in (None, self.records[entity_id]["version"]):
                raise VersionMismatch(f"version {version} is not current")
            return self._change(entity_id, fields)

    async def relate(self, source_entity_id: str, relationship_type: str, target_entity_id: str) -> None:
        row = (source_entity_id, relationship_type, target_entity_id)
        async with _Call(self, "relate", writes=True):
            if row not in self.relations:
                self.relations.append(row)

    # --- the model --------------------------------------------------------------------------------------

    def _id(self) -> str:
        return f"ent_{next(self._ids):024x}"

    def _append(self, issue: Json, role: str, body: str, reporter: Json) -> str:
        message_id = self._id()
        issue["messages"].append(
            {
                "message_id": message_id,
                "author_role": role,
                "body": body,
                "created_at": timestamp(self.clock.now()),
                "reporter": reporter,
                "tainted": [],
            }
        )
        return message_id

    def _resolve(self, issue: Json, resolution: Json) -> Json:
        issue["resolution"] = {**(issue["resolution"] or {}), **resolution}
        issue["open_question"] = None
        if issue["status"] != "closed":
            issue["status"] = "resolved" if issue["resolution"]["kind"] == "fixed" else "closed"
        return issue

    def _create(self, entity_type: str, key: str, fields: Json) -> Json:
        now = timestamp(self.clock.now())
        record: Json = {
            "entity_id": self._id(),
            "entity_type": entity_type,
            "key": key,
            "version": 1,
            "fields": {name: value for name, value in sent(fields).items() if value is not None},
            "visibility": "private",
            "created_at": now,
            "updated_at": now,
        }
        self.records[record["entity_id"]] = record
        return copied(record)

    def _change(self, entity_id: str, fields: Json) -> Json:
        record = self.records[entity_id]
        merged = record["fields"] | sent(fields)
        record["fields"] = {name: value for name, value in merged.items() if value is not None}
        record["version"] += 1
        record["updated_at"] = timestamp(self.clock.now())
        return copied(record)


class _Call:
    """One call of the port: hooks before and after, and the answer of a server that is away or says no."""

    def __init__(self, issues: FakeIssues, kind: str, *, writes: bool = False, what: str = "") -> None:
        self._issues, self._kind, self._writes, self._what = issues, kind, writes, what
        self._number = 0

    async def __aenter__(self) -> None:
        issues = self._issues
        self._number = await issues.hooks.before(self._kind, writes=self._writes, what=self._what)
        if not issues.reachable:
            raise Retryable("the pool server is unreachable (ConnectError)")
        if self._kind in issues.refused:
            raise Refused("the pool server refused: ERR_CONTENT_REJECTED")

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self._issues.hooks.after(self._kind, self._number)


@contextmanager
def unreachable(issues: FakeIssues) -> Iterator[None]:
    """The server is away for the length of the block."""
    issues.reachable = False
    try:
        yield
    finally:
        issues.reachable = True
