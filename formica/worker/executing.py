"""From a decision to a reviewed change: claim, prepare, work, verify, review."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio

from formica.errors import Broken, NeedsOperator
from formica.ports import AgentTask, Workspace
from formica.rules import messages
from formica.rules.facts import Change, shown_path
from formica.rules.pipeline import Event, State
from formica.rules.plan import Plan, report_hash, timestamp
from formica.rules.policy import approval_for, backoff_seconds, decide
from formica.rules.prompt import prompt
from formica.rules.review import FINAL, Finding, review
from formica.worker.context import Context, Outcome
from formica.worker.held import HeldPlan
from formica.worker.reading import all_plans, reporter_text
from pool_server.contract.redaction import CREDENTIAL_KINDS, Redactor

Json = dict[str, Any]

LOCAL_KINDS = ("local_commit", "local_branch")
BREAKER_OPEN = "the global breaker is open: too many failures within an hour; formica resume closes it"
FINDINGS_SHOWN = 100
LOST = Outcome(Event.WORKSPACE_LOST, {"why_waiting": "the worktree is gone: starting again"})


def lost_after_run(context: Context, plan: Plan) -> Outcome:
    """The agent's result is not there. Where this daemon had it, that is a failed attempt like any other."""
    attempt = plan.attempt + 1
    if plan.home != context.owner:
        return LOST
    if attempt >= context.policy.failures_per_item:
        return Outcome(Event.BREAKER, {"attempt": attempt} | _parked("the worktree vanished after every run"))
    return Outcome(Event.WORKSPACE_LOST, LOST.changes | {"attempt": attempt})


async def claim(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Check once more that this may run, and tell the thread's status that it does."""
    plan = held.plan
    if report_hash(issue) != plan.report_hash:
        return Outcome(Event.REPORT_CHANGED, {"why_waiting": "the report changed after it was approved"})
    if await context.ledger.breaker_open():
        return hold_back(context, BREAKER_OPEN, 300.0)
    shortage = await context.repository.shortage()
    if shortage is not None:
        return hold_back(context, shortage, 300.0)
    approval = None
    if context.policy.dry_run != "always":
        approval = approval_for(plan, "go", context.forge.target, context.clock.now())
    decision = decide(plan, context.policy, await all_plans(context))
    if approval is None and decision.event is not Event.EXECUTABLE:
        return Outcome(
            Event.NEEDS_OPERATOR,
            {
                "waiting_for": decision.waiting_for or "go",
                "decision_required": True,
                "decision_blockers": list(decision.blockers) or [decision.why],
                "why_waiting": decision.why or "the approval expired or covers another plan",
            },
        )
    await context.switch.confirm()
    await context.issues.update_issue(plan.issue_number, status="in_progress")
    used = [
        entry.model_dump() | {"used": entry.used or (approval is not None and entry.id == approval.id)}
        for entry in plan.approvals
    ]
    return Outcome(
        Event.STARTED,
        {"approvals": used, "decision_required": False, "why_waiting": "", "next_look_at": None},
    )


def hold_back(context: Context, why: str, seconds: float) -> Outcome:
    """A limit says not now: the plan stays where it is, and is looked at again after ``seconds``."""
    at = timestamp(context.clock.now() + seconds)
    return Outcome(Event.HELD_BACK, {"why_waiting": why, "next_look_at": at})


async def prepare(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """A fresh clone and worktree: on our branch from the default branch, or detached at the reported commit."""
    plan = held.plan
    local = plan.reproduction_environment_kind in LOCAL_KINDS
    if local and plan.git_sha is None:
        raise NeedsOperator("the reported commit is not in the repository")
    await context.repository.refresh()
    await context.switch.confirm()
    workspace = await context.repository.prepare(plan.issue_number, commit=plan.git_sha if local else None)
    return Outcome(
        Event.PREPARED,
        {
            "branch": workspace.branch,
            "base_sha": workspace.base_sha,
            "worktree_path": f"items/{plan.issue_number}/tree",
            "host": context.host,
            "home": context.owner,
            "head_sha": None,
            "diff_hash": None,
            "diff_stat": [],
            "proof": None,
            "findings": [],
            "run_started_at": None,
        },
    )


async def work(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """One agent run. A run that was interrupted left a tree nobody vouches for: it is prepared afresh."""
    plan = held.plan
    workspace = await context.repository.find(plan.issue_number)
    if workspace is None or plan.run_started_at is not None:
        return LOST
    if plan.starts >= context.policy.starts_per_item:
        return Outcome(Event.BREAKER, _parked(f"started {plan.starts} times without an end"))
    if await context.ledger.breaker_open():
        return hold_back(context, BREAKER_OPEN, 300.0)
    run_id = context.new_id()
    budget = await context.ledger.reserve_run(plan.issue_number, run_id)
    if not budget.allowed:
        if budget.next_look_at is None:
            return Outcome(Event.BREAKER, _parked(budget.why))
        return Outcome(
            Event.HELD_BACK, {"why_waiting": budget.why, "next_look_at": timestamp(budget.next_look_at)}
        )
    await held.write({"run_started_at": timestamp(context.clock.now()), "starts": plan.starts + 1})
    return await _run(context, held, issue, workspace, run_id)


async def _run(context: Context, held: HeldPlan, issue: Json, workspace: Workspace, run_id: str) -> Outcome:
    async def check() -> None:
        held.ensure_not_lost()
        await context.switch.running()

    plan = held.plan
    task = AgentTask(
        workspace=workspace,
        prompt=prompt(
            skill=context.skill,
            plan=plan.model_dump(mode="json"),
            title=issue["title"],
            report=reporter_text(issue),
            nonce=context.new_id(),
        ),
        timeout_seconds=context.agent_timeout_seconds,
        stall_seconds=context.agent_stall_seconds,
    )
    await context.switch.confirm()
    result = await context.agent.run(task, check=check)
    await context.switch.settle()
    record = await context.transcripts.keep(
        plan.issue_number, run_id, prompt=task.prompt, log_path=result.log_path
    )
    await context.ledger.settle_run(run_id, result.seconds / 60.0, None)
    change = None
    if (result.reason, result.exit_code) == ("exited", 0):
        change = await context.repository.collect(
            workspace,
            message=messages.commit_message(plan.issue_number, plan.summary, private=plan.private),
        )
    verdict = context.agent.verdict(result, changed=change is not None and not change.empty)
    runs = [
        *plan.costs.get("runs", []),
        {"minutes": round(result.seconds / 60.0, 3), "verdict": verdict.verdict},
    ]
    learned: Json = {
        "transcript": record.name if record else None,
        "transcript_hash": record.hash if record else None,
        "agent_reason": without_secrets(context, verdict.reason)
        + ("" if record else " Its record could not be stored."),
        "costs": {"runs": runs, "minutes": round(sum(run["minutes"] for run in runs), 3)},
        "run_started_at": None,
    }
    if verdict.verdict == "success" and change is not None:
        return Outcome(Event.CHANGED, learned | _described(context, change))
    if verdict.verdict == "no_change":
        return Outcome(Event.UNCHANGED, learned | {"outcome": "no_change"})
    return await failed(
        context, plan, learned["agent_reason"], learned | {"resume_state": State.PREPARING.value}
    )


def without_secrets(context: Context, text: str) -> str:
    """What a program of the project or the agent said, fit for the plan."""
    return context.secrets.removed(Redactor(CREDENTIAL_KINDS).text(text))


def _described(context: Context, change: Change) -> Json:
    stat = [
        {
            "path": context.secrets.removed(shown_path(file.path)),
            "status": file.status,
            "added": file.added,
            "deleted": file.deleted,
        }
        for file in change.files[:100]
    ]
    return {"head_sha": change.head_sha, "diff_hash": change.diff_hash, "diff_stat": stat}


async def failed(context: Context, plan: Plan, why: str, learned: Json) -> Outcome:
    """One failed attempt: wait and try again, or, at the limit, park the item with its reason."""
    await context.ledger.record_failure(plan.issue_number)
    attempt = plan.attempt + 1
    learned = learned | {"attempt": attempt, "last_error": why}
    if attempt >= context.policy.failures_per_item:
        return Outcome(Event.BREAKER, learned | _parked(f"failed {attempt} times; the last: {why}"))
    at = timestamp(context.clock.now() + backoff_seconds(attempt))
    return Outcome(Event.FAULT, learned | {"why_waiting": why, "next_look_at": at})


def _parked(why: str) -> Json:
    return {"why_waiting": why, "outcome": "abandoned", "decision_required": True, "decision_blockers": [why]}


async def stored_change(context: Context, plan: Plan) -> tuple[Workspace, Change] | None:
    """The workspace and the collected change the plan speaks of, or None when this host lost them."""
    workspace = await context.repository.find(plan.issue_number)
    if workspace is None or plan.base_sha is None or plan.head_sha is None:
        return None
    try:
        change = await context.repository.load(workspace, base_sha=plan.base_sha, head_sha=plan.head_sha)
    except NeedsOperator:
        return None
    return (workspace, change) if change.diff_hash == plan.diff_hash else None


async def verify(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """The proof: with the test part alone the base fails, the head passes."""

    async def check() -> None:
        held.ensure_not_lost()
        await context.switch.running()

    plan = held.plan
    stored = await stored_change(context, plan)
    if stored is None:
        return lost_after_run(context, plan)
    proof = await context.verifier.prove(*stored, check=check)
    record = {
        "proved": proof.proved,
        "reason": without_secrets(context, proof.reason),
        "has_tests": proof.has_tests,
        "base_failed": proof.base_failed,
        "head_passed": proof.head_passed,
        "hooks_passed": proof.hooks_passed,
        "commands": [
            {**command, "output_tail": without_secrets(context, command.get("output_tail", ""))}
            for command in proof.commands
        ],
    }
    if plan.reproduction_environment_kind in LOCAL_KINDS:
        return Outcome(Event.LOCAL_RESULT, {"proof": record, "outcome": "worktree_created"})
    if proof.proved:
        return Outcome(Event.PROVED, {"proof": record})
    return Outcome(
        Event.NEEDS_OPERATOR,
        {
            "proof": record,
            "waiting_for": "decision",
            "decision_required": True,
            "decision_blockers": [record["reason"]],
            "why_waiting": f"not proved: {record['reason']}",
        },
    )


def exposure(plan: Plan, issue: Json) -> Outcome | None:
    """Why nothing of this item may become public, or None. The texts of a change are made for the visibility
    that the issue had when it was read."""
    if plan.security:
        why = "a security report: nothing is published, the maintainer decides"
    elif issue["visibility"] == "private" and not plan.private:
        why = f"the issue became private after it was read: /retry {plan.issue_number} starts over"
    else:
        return None
    return asks_decision([why])


def asks_decision(blockers: list[str]) -> Outcome:
    """Only a person can say how this goes on."""
    return Outcome(
        Event.NEEDS_OPERATOR,
        {
            "waiting_for": "decision",
            "decision_required": True,
            "decision_blockers": blockers,
            "why_waiting": blockers[0],
        },
    )


async def found_in(context: Context, change: Change) -> list[Finding]:
    """What the gates find in a change."""
    return await anyio.to_thread.run_sync(partial(review, change, context.policy, context.secrets))


def shortened(findings: list[str]) -> list[str]:
    """As many as somebody reads; the number of the others as the last."""
    more = len(findings) - FINDINGS_SHOWN
    return [*findings[:FINDINGS_SHOWN], f"and {more} more findings"] if more > 0 else findings


async def review_change(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """The diff through its gates. Unattended publishing needs auto_fix and not one finding."""
    plan = held.plan
    stored = await stored_change(context, plan)
    if stored is None:
        return lost_after_run(context, plan)
    if not (plan.proof or {}).get("proved"):
        raise Broken("a change without proof is never reviewed for publication")
    exposed = exposure(plan, issue)
    if exposed is not None:
        return exposed
    found = await found_in(context, stored[1])
    findings = [context.secrets.removed(str(finding)) for finding in found]
    final = [said for finding, said in zip(found, findings, strict=True) if finding.rule in FINAL]
    if final:
        asked = asks_decision(shortened(final))
        return Outcome(asked.event, asked.changes | {"findings": shortened(findings)})
    findings = shortened(findings)
    if plan.tainted:
        findings.append("tainted text: " + ", ".join(plan.tainted))
    approval = approval_for(plan, "shipit", context.forge.target, context.clock.now())
    if approval is not None or (context.policy.auto_fix and not findings):
        return Outcome(Event.CLEARED, {"findings": findings, "why_waiting": ""})
    why = findings[0] if findings else "auto_fix is off: publishing needs /shipit"
    return Outcome(
        Event.NEEDS_OPERATOR,
        {
            "findings": findings,
            "waiting_for": "shipit",
            "decision_required": True,
            "decision_blockers": findings or [why],
            "why_waiting": why,
        },
    )
