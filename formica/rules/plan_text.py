"""A plan as people read it: one line, one page, one status. Pure."""

from __future__ import annotations

from typing import Any

from formica.rules.plan import Plan

__all__ = ["inbox_line", "plan_markdown", "printable", "status_text", "why_text"]

Json = dict[str, Any]


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
        "session": f"formica transcript {plan.issue_number} ({plan.transcript})" if plan.transcript else None,
        "session sha256": plan.transcript_hash,
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
    proved = "proved: " if plan.proof["proved"] else "not proved: "
    return _section("Proof", [proved + plan.proof["reason"], *map(_command, plan.proof.get("commands", []))])


def _command(ran: Json) -> str:
    ended = f"exit {ran['exit_code']}" if ran.get("exit_code") is not None else str(ran.get("reason"))
    kept = f", output in {ran['log']}" if ran.get("log") else ""
    return f"{ran['name']}: {ended} after {ran['seconds']:.1f} s{kept}"


def printable(text: str) -> str:
    """Text of a program as a terminal may show it: nothing in it acts, everything in it is seen."""
    return "".join(
        c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
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
