"""The life of an issue: what operators and reporters may do to it. The moves are ``rules/lifecycle.py``'s."""

from __future__ import annotations

from typing import Any

from pool_server.contract import models as m
from pool_server.errors import NotFound, PoolError, ValidationFailed
from pool_server.pool import issues, status, threads
from pool_server.pool.shapes import Reply
from pool_server.pool.threads import Issue
from pool_server.pool.work import Work
from pool_server.rules import access, lifecycle


def update_issue(work: Work, args: m.UpdateIssue) -> Reply:
    """An operator sets status, kind, labels or visibility.

    Raises:
        NotFound: no such issue.
        ValidationFailed: nothing to change, ``resolved`` without a resolution, or mirroring.
    """
    if args.mirror is not None:
        raise ValidationFailed("mirroring is not available", {"mirror": "not available on this server"})
    given = {"kind": args.kind, "labels": args.labels}
    given = {name: value for name, value in given.items() if value is not None}
    if not given and args.status is None and args.visibility is None:
        names = ("status", "kind", "labels", "visibility")
        raise ValidationFailed("nothing to change", dict.fromkeys(names, "give at least one of them"))
    issue = threads.locate(work.connection, work.caller, args, access.require_readable)
    if args.status is not None:
        threads.live(work, issue, lifecycle.set_status(issue.life, args.status))
    changed = {name: value for name, value in given.items() if value != issue.record.fields.get(name)}
    visibility = args.visibility if args.visibility != issue.record.visibility else None
    if changed or visibility is not None:
        threads.write(work, issue, changed, visibility=visibility)
    return status.answer(work, issue)


def resolve_issue(work: Work, args: m.ResolveIssue) -> Reply:
    """Give an issue its resolution, or merge into the one it has.

    Raises:
        NotFound: no such issue.
    """
    issue = threads.locate(work.connection, work.caller, args, access.require_readable)
    _resolve(work, issue, args.resolution)
    return status.answer(work, issue)


def bulk_close_issues(work: Work, args: m.BulkCloseIssues) -> Reply:
    """The same resolution for many issues; an id without an issue fails alone."""
    results: list[dict[str, Any]] = []
    for entity_id in dict.fromkeys(args.entity_ids):
        reference = m.IssueRef(entity_id=entity_id)
        try:
            issue = threads.locate(work.connection, work.caller, reference, access.require_readable)
        except NotFound as missing:
            results.append(_failed(entity_id, missing))
            continue
        _resolve(work, issue, args.resolution)
        threads.save(work, issue)
        now = issue.life.status
        results.append({"entity_id": entity_id, "ok": True, "issue_number": issue.number, "status": now})
    return Reply(200, {"results": results})


def reopen_issue(work: Work, args: m.ReopenIssue) -> Reply:
    """Back to open, with a message if one is given.

    Raises:
        NotFound: no such issue.
    """
    issue = threads.locate(work.connection, work.caller, args, access.require_readable)
    if args.body is not None:
        threads.append(work, issue, body=args.body, author_role="operator", reporter={})
    threads.live(work, issue, lifecycle.reopen(issue.life))
    return status.answer(work, issue)


def verify_resolution(work: Work, args: m.VerifyResolution) -> Reply:
    """The reporter's word on a fix; with a build or a body it is also a message of the thread.

    Raises:
        NotFound, Forbidden: see ``access.require_reporter``.
        Conflict: the issue is not resolved.
    """
    issue = threads.locate(work.connection, work.caller, args, access.require_reporter)
    life = lifecycle.verify(issue.life, worked=args.worked)
    reporter = args.reporter()
    if args.body is not None or reporter:
        body = args.body or ("The fix works." if args.worked else "The fix does not work.")
        _say(work, issue, body, reporter, args)
    verification = {"worked": args.worked, "at": work.at, "role": work.caller.role, "reporter": reporter}
    threads.live(work, issue, life, verification=verification)
    return status.answer(work, issue)


def withdraw_issue(work: Work, args: m.WithdrawIssue) -> Reply:
    """The reporter takes the report back.

    Raises:
        NotFound, Forbidden: see ``access.require_reporter``.
    """
    issue = threads.locate(work.connection, work.caller, args, access.require_reporter)
    if args.body is not None:
        _say(work, issue, args.body, {}, args)
    threads.live(work, issue, lifecycle.withdraw(issue.life))
    return status.answer(work, issue)


def _resolve(work: Work, issue: Issue, resolution: m.Resolution) -> None:
    given = resolution.model_dump(exclude_none=True)
    threads.live(work, issue, lifecycle.resolve(issue.life, given))


def _say(work: Work, issue: Issue, body: str, reporter: dict[str, str], args: m.PostInput) -> None:
    message_id = threads.append(work, issue, body=body, author_role="reporter", reporter=reporter)
    work.source(message_id, issues.content_hash(args))


def _failed(entity_id: str, error: PoolError) -> dict[str, Any]:
    return {"entity_id": entity_id, "ok": False, "error_code": error.error_code, "message": error.message}
