"""A plan as people read it: one line, one page, one status. Pure."""

from __future__ import annotations

from typing import Any

from formica.rules.plan import Plan

__all__ = ["inbox_line", "plan_markdown", "printable", "status_text", "why_text"]

Json = dict[str, Any]


def printable(text: str) -> str:
    """Text for a terminal: a reporter's or an agent's control characters are shown, never obeyed."""
    return "".join(
        character if character == "\n" or character.isprintable() else repr(character)[1:-1]
        for character in text
    )


def inbox_line(plan: Plan) -> str:
    """One item that needs a person, in one line."""
    kind = plan.kind or "unread"
    wait = {"go": "run it?", "shipit": "publish it?", "decision": "decide"}.get(
        plan.waiting_for or "", "parked"
    )
    return f"#{plan.issue_number} [{kind}] {plan.summary} — {wait} ({plan.why_waiting})"


def plan_markdown(plan: Plan) -> str:
    """The whole plan as Markdown; reporter's text appears only in the title, made inert before it was stored."""
    lines = [f"# Plan for #{plan.issue_number}: {plan.summary}", ""]
    lines += _table(plan)
    lines += _section("Why this kind", plan.kind_reasons)
    lines += _section("Where it happens", plan.reproduction_environment_evidence)
    lines += _section("What would be done", plan.would_do)
    lines += _section("What needs a person", plan.decision_blockers)
    lines += _section("Asked of the reporter", [question.text for question in plan.questions])
    lines += _section("Found in the diff", plan.findings)
    lines += _section("Changed files", [_stat(entry) for entry in plan.diff_stat])
    lines += _proof(plan)
    return "\n".join(lines).rstrip() + "\n"


def _table(plan: Plan) -> list[str]:
    confidence = f" ({plan.kind_confidence:.2f})" if plan.kind_confidence is not None else ""
    facts = {
        "state": f"{plan.state} ({plan.status})",
        "waiting for": plan.waiting_for,
        "why": plan.why_waiting,
        "next look": plan.next_look_at,
        "kind": f"{plan.kind}{confidence}" if plan.kind else None,
        "security": "yes: private, nothing is published" if plan.security else None,
        "tainted": ", ".join(plan.tainted) or None,
        "environment": plan.reproduction_environment_kind,
        "version": plan.app_version,
        "commit": plan.git_sha,
        "risk": plan.risk,
        "dry run": "yes" if plan.dry_run else None,
        "worktree": f"{plan.host}: {plan.worktree_path}" if plan.worktree_path else None,
        "branch": plan.branch,
        "base": plan.base_sha,
        "head": plan.head_sha,
        "diff sha256": plan.diff_hash,
        "agent": plan.agent_reason,
        "outcome": plan.outcome,
        "pull request": f"{plan.pr_url} ({plan.pr_state})" if plan.pr_url else None,
        "merged as": plan.merged_sha,
        "last error": plan.last_error,
    }
    return [f"- {name}: {value}" for name, value in facts.items() if value] + [""]


def _section(title: str, rows: list[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {row}" for row in rows), ""] if rows else []


def _stat(entry: Json) -> str:
    return f"{entry['status']} {entry['path']} (+{entry['added']} -{entry['deleted']})"


def _proof(plan: Plan) -> list[str]:
    if plan.proof is None:
        return []
    return _section(
        "Proof", [("proved: " if plan.proof["proved"] else "not proved: ") + plan.proof["reason"]]
    )


def why_text(why: Json) -> str:
    """The answer to "why is nothing happening?"."""
    lines = [
        f"#{why['issue_number']} ({why['issue_status']}) is {why['state'] or 'not planned yet'}: {why['why']}"
    ]
    lines += [f"  - {blocker}" for blocker in why["blockers"]]
    if why["next_look_at"]:
        lines.append(f"  next look at {why['next_look_at']}")
    lines.append(f"  you can: {why['do']}")
    return "\n".join(lines)


def status_text(status: Json) -> str:
    """The daemon's state in a few lines."""
    switch = "active" if status["active"] else f"PAUSED by {', '.join(status['stopped_by'])}"
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status["states"].items())) or "no plans"
    lines = [f"{status['name']}: {switch}; {counts}"]
    lines += [f"  working on #{row['issue_number']}: {row['state']}" for row in status["working"]]
    lines += [f"  #{row['issue_number']} {row['state']}: {row['why']}" for row in status["waiting"]]
    return "\n".join(lines)
