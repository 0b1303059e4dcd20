"""A plan as people read it: one line, one page, one status. Pure."""

from __future__ import annotations

import re
from typing import Any

from formica.rules.pipeline import END, State
from formica.rules.plan import Plan

__all__ = [
    "blockers",
    "inbox_line",
    "next_words",
    "pause_sentence",
    "plan_markdown",
    "printable",
    "published_text",
    "spoken",
    "status_text",
    "why_text",
]

Json = dict[str, Any]
PARKED = (State.FAILED, State.REFUSED)
_WORD = re.compile(r"(?<![\w/.~-])/(go|shipit|reject|hold|retry|pause|resume)\b(?![\w/.-])(?: (\d+))?")
_TAIL_LINES = 20
_TAIL_WIDTH = 300


def inbox_line(plan: Plan) -> str:
    """One item that needs a person, in one line."""
    kind = plan.kind or "unread"
    asks = {"go": "run it?", "shipit": "publish it?", "decision": "decide"}
    wait = "on hold" if plan.held else asks.get(plan.waiting_for or "", "parked")
    return f"#{plan.issue_number} [{kind}] {plan.summary} — {wait} ({spoken(plan)})"


def spoken(plan: Plan, text: str | None = None) -> str:
    """A reason as the command line says it: `formica go 7` for ``/go``. By default why the plan waits."""

    def said(word: re.Match[str]) -> str:
        name, number = word.groups()
        return (
            f"formica {name}"
            if name in ("pause", "resume")
            else f"formica {name} {number or plan.issue_number}"
        )

    return _WORD.sub(said, plan.why_waiting if text is None else text)


def blockers(plan: Plan) -> list[str]:
    """What needs a person, while one is waited for: what was needed before is no news."""
    waits = plan.state is State.WAITING_OPERATOR or plan.state in PARKED
    return [spoken(plan, blocker) for blocker in plan.decision_blockers] if waits else []


def published_text(plan: Plan) -> str | None:
    """What became of the pull request, or None while there is none."""
    if plan.outcome != "pr_opened" or plan.state not in END:
        return None
    if plan.pr_state == "merged":
        release = f", released in {plan.fixed_in_version}" if plan.fixed_in_version else ""
        return f"merged as {plan.merged_sha}{release}: the reporter was asked to verify"
    if plan.pr_state == "closed":
        return spoken(plan) or f"a person closed {plan.pr_url} without merging it"
    where = f"waits for you to merge {_branch(plan)} in {_target(plan)}"
    return f"{where} ({spoken(plan)})" if plan.why_waiting else where


def next_words(plan: Plan) -> str:
    """What the operator can say now."""
    n = plan.issue_number
    if plan.held and plan.state not in END:
        return f"formica retry {n} takes it off hold, or formica reject {n}"
    if plan.state is State.WAITING_OPERATOR:
        words = {"go": f"formica go {n}", "shipit": f"formica shipit {n}"}
        first = words.get(plan.waiting_for or "", f"formica retry {n}")
        look = f" (formica diff {n} shows the change)" if plan.waiting_for == "shipit" else ""
        return f"{first}{look}, or formica reject {n}"
    if published_text(plan) is not None and plan.pr_state == "merged":
        return "nothing: it is merged"
    if published_text(plan) is not None and plan.pr_state != "closed":
        return f"merge {_branch(plan)} in {_target(plan)}, or close {plan.pr_url}"
    if plan.state in END:
        return f"formica retry {n}"
    return f"nothing; formica hold {n} or formica reject {n} stop it"


def _branch(plan: Plan) -> str | None:
    """The branch as it was published, else as it is planned."""
    return (plan.intent or {}).get("branch") or plan.branch


def _target(plan: Plan) -> str:
    """The repository of the pull request, for people."""
    return str((plan.intent or {}).get("target") or plan.pr_url).removeprefix("local:")


def pause_sentence(switch: Json) -> str:
    """Who switched processing off, since when, and how it goes on. ``switch``: key, paused_by, paused_at."""
    if switch.get("paused_by"):
        since = f" since {switch['paused_at']}" if switch.get("paused_at") else ""
        return f"paused by {switch['paused_by']}{since}: formica resume"
    return f"paused by daemon_config {switch['key']} (active is false): formica resume"


def plan_markdown(plan: Plan, state: str | None = None) -> str:
    """The whole plan as Markdown; reporter's text appears only in the title, made inert before it was stored.

    ``state``: the state folder that the plan's worktree and logs lie in, when it is one of this host."""
    lines = [f"# Plan for #{plan.issue_number}: {plan.summary}", ""]
    lines += _table(plan, state)
    lines += _section("Why this kind", plan.kind_reasons)
    lines += _section("Where it happens", plan.reproduction_environment_evidence)
    lines += _section("What would be done", plan.would_do)
    lines += _section("What needs a person", blockers(plan))
    lines += _section("Asked of the reporter", [question.text for question in plan.questions])
    lines += _section("Found in the diff", plan.findings)
    lines += _section("Changed files", [_stat(entry) for entry in plan.diff_stat])
    lines += _proof(plan, state)
    return "\n".join(lines).rstrip() + "\n"


def _table(plan: Plan, state: str | None) -> list[str]:
    confidence = f" ({plan.kind_confidence:.2f})" if plan.kind_confidence is not None else ""
    facts = {
        "state": f"{plan.state} ({plan.status})",
        "waiting for": plan.waiting_for,
        "on hold": f"yes: formica retry {plan.issue_number} takes it off hold" if plan.held else None,
        "why": published_text(plan) or spoken(plan),
        "next look": plan.next_look_at,
        "kind": f"{plan.kind}{confidence}" if plan.kind else None,
        "security": "yes: private, nothing is published" if plan.security else None,
        "tainted": ", ".join(plan.tainted) or None,
        "environment": plan.reproduction_environment_kind,
        "version": plan.app_version,
        "commit": plan.git_sha,
        "risk": plan.risk,
        "dry run": "yes" if plan.dry_run else None,
        "worktree": _worktree(plan, state),
        "branch": _branch(plan),
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


def _worktree(plan: Plan, state: str | None) -> str | None:
    if not plan.worktree_path:
        return None
    return f"{state}/{plan.worktree_path}" if state is not None else f"{plan.host}: {plan.worktree_path}"


def _proof(plan: Plan, state: str | None) -> list[str]:
    if plan.proof is None:
        return []
    commands: list[Json] = plan.proof.get("commands", [])
    proved = "proved: " if plan.proof["proved"] else "not proved: "
    lines = _section("Proof", [proved + plan.proof["reason"], *(_command(ran, state) for ran in commands)])
    for ran in commands:
        if ran.get("exit_code") != 0 and str(ran.get("output_tail", "")).strip():
            lines += [f"### The end of what {ran['name']} printed", "", *_tail(str(ran["output_tail"])), ""]
    return lines


def _command(ran: Json, state: str | None) -> str:
    ended = f"exit {ran['exit_code']}" if ran.get("exit_code") is not None else str(ran.get("reason"))
    log = ran.get("log")
    kept = f", output in {f'{state}/{log}' if state is not None else log}" if log else ""
    return f"{ran['name']}: {ended} after {ran['seconds']:.1f} s{kept}"


def _tail(output: str) -> list[str]:
    """The last lines as an indented block, which no text in them can leave."""
    return [f"    {line[:_TAIL_WIDTH]}" for line in output.rstrip().splitlines()[-_TAIL_LINES:]]


def printable(text: str) -> str:
    """Text of a program as a terminal may show it: nothing in it acts, everything in it is seen."""
    return "".join(
        c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def why_text(why: Json) -> str:
    """The answer to "why is nothing happening?"."""
    is_now = f"is {why['state']}" if why["state"] else "is not planned yet"
    lines = [f"#{why['issue_number']} {is_now} (the issue is {why['issue_status']}): {why['why']}"]
    lines += [f"  - {blocker}" for blocker in why["blockers"]]
    lines += [f"  {pause_sentence(switch)}" for switch in why.get("paused", [])]
    if why["next_look_at"]:
        lines.append(f"  next look at {why['next_look_at']}")
    lines.append(f"  you can: {why['do']}")
    return "\n".join(lines)


def status_text(status: Json) -> str:
    """The daemon's state in a few lines."""
    switch = "active" if status["active"] else "PAUSED"
    counts = ", ".join(f"{count} {state}" for state, count in sorted(status["states"].items())) or "no plans"
    lines = [f"{status['name']}: {switch}; {counts}"]
    lines += [f"  {pause_sentence(row)}" for row in status.get("paused", [])]
    lines += [f"  working on #{row['issue_number']}: {row['state']}" for row in status["working"]]
    lines += [f"  #{row['issue_number']} {row['state']}: {row['why']}" for row in status["waiting"]]
    return "\n".join(lines)
