"""From a reviewed change to a pull request and a word in the thread: publish, report."""

from __future__ import annotations

from typing import Any

from formica.errors import Broken, NeedsOperator
from formica.ports import PullRequest, PullRequestDraft
from formica.rules import messages
from formica.rules.facts import Change
from formica.rules.pipeline import Event
from formica.rules.plan import Plan, timestamp
from formica.rules.policy import approval_for, review
from formica.worker.context import Context, Outcome
from formica.worker.executing import LOST, stored_change
from formica.worker.held import HeldPlan
from pool_server.contract.redaction import find

Json = dict[str, Any]


async def publish(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Push the approved bytes and open one pull request: looked for before it is made, read back after."""
    plan = held.plan
    stored = await stored_change(context, plan)
    if stored is None:
        return LOST
    workspace, change = stored
    if not _permitted(context, plan, change):
        return Outcome(Event.APPROVAL_VOID, {"why_waiting": "the approval does not cover what there is now"})
    draft = await _draft(context, plan)
    leak = leaked(plan, draft, change)
    if leak:
        return Outcome(
            Event.NEEDS_OPERATOR,
            {
                "waiting_for": "decision",
                "decision_required": True,
                "decision_blockers": leak,
                "why_waiting": leak[0],
            },
        )
    existing = await context.forge.find(branch=draft.branch, marker=draft.marker)
    if existing is not None:
        return await _adopt(existing, plan, change.head_sha)
    budget = await context.ledger.reserve_pull_request(plan.issue_number, context.forge)
    if not budget.allowed:
        at = timestamp(budget.next_look_at or context.clock.now() + 300.0)
        return Outcome(Event.HELD_BACK, {"why_waiting": budget.why, "next_look_at": at})
    await held.write({"intent": _intent(draft, context), "approvals": _consumed(context, plan)})
    there = await context.repository.remote_branch(draft.branch)
    await context.switch.confirm()
    held.ensure_held()
    await context.repository.push(workspace, head_sha=change.head_sha, branch=draft.branch, expected=there)
    await context.switch.confirm()
    held.ensure_held()
    created = await context.forge.create(draft)
    return _published(await _read_back(context, draft, created), change.head_sha)


def _permitted(context: Context, plan: Plan, change: Change) -> bool:
    """auto_fix with a clean diff, a valid ``/shipit``, or the one this very publication already used."""
    if not (plan.proof or {}).get("proved") or plan.security:
        return False
    if context.policy.auto_fix and not plan.tainted and not review(change, context.policy):
        return True
    if approval_for(plan, "shipit", context.forge.target, context.clock.now()) is not None:
        return True
    intent = plan.intent or {}
    begun = (intent.get("head_sha"), intent.get("diff_hash"), intent.get("target"))
    return bool(intent.get("approved")) and begun == (change.head_sha, change.diff_hash, context.forge.target)


def _intent(draft: PullRequestDraft, context: Context) -> Json:
    return {
        "branch": draft.branch,
        "head_sha": draft.head_sha,
        "diff_hash": draft.diff_hash,
        "target": context.forge.target,
        "marker": draft.marker,
        "approved": True,
    }


def _consumed(context: Context, plan: Plan) -> list[Json]:
    """Single use: the approval is spent by the same write that records the intent."""
    approval = approval_for(plan, "shipit", context.forge.target, context.clock.now())
    return [
        entry.model_dump() | {"used": entry.used or (approval is not None and entry.id == approval.id)}
        for entry in plan.approvals
    ]


async def _draft(context: Context, plan: Plan) -> PullRequestDraft:
    if plan.branch is None or plan.base_sha is None or plan.head_sha is None or plan.diff_hash is None:
        raise Broken("a plan without branch, base and head cannot be published")
    facts = await context.repository.facts(sha=None, version=None, ref=None)
    marker = messages.marker(context.name, plan.issue_entity_id, plan.round)
    return PullRequestDraft(
        issue_number=plan.issue_number,
        issue_entity_id=plan.issue_entity_id,
        branch=_remote_branch_name(plan),
        base_branch=facts.default_branch,
        base_sha=plan.base_sha,
        head_sha=plan.head_sha,
        diff_hash=plan.diff_hash,
        title=messages.pull_request_title(plan.issue_number, plan.summary, private=plan.private),
        body=messages.pull_request_body(plan, marker),
        marker=marker,
    )


def _remote_branch_name(plan: Plan) -> str:
    """A pushed commit is never rewritten, so a later round gets a branch of its own."""
    return f"{plan.branch}" if plan.round == 0 else f"{plan.branch}-{plan.round + 1}"


def leaked(plan: Plan, draft: PullRequestDraft, change: Change) -> list[str]:
    """What must not leave: credentials in any text of ours, and anything personal from a private issue."""
    surfaces = {"title": draft.title, "body": draft.body, "branch": draft.branch}
    if plan.private:
        surfaces["diff"] = "\n".join(
            line[1:]
            for line in change.diff.splitlines()
            if line.startswith("+") and not line.startswith("+++")
        )
    return [
        f"the pull request's {surface} still holds {finding.kind}"
        for surface, text in surfaces.items()
        for finding in find(text)
    ]


async def _adopt(existing: PullRequest, plan: Plan, head_sha: str) -> Outcome:
    """A pull request of this item is there already: ours from before a crash, or one a person closed."""
    if existing.state == "closed":
        raise NeedsOperator(f"a person closed {existing.url}; /retry {plan.issue_number} opens another")
    return _published(existing, head_sha)


async def _read_back(context: Context, draft: PullRequestDraft, created: PullRequest) -> PullRequest:
    there = await context.repository.remote_branch(draft.branch)
    found = await context.forge.read(branch=draft.branch, marker=draft.marker)
    if there != draft.head_sha or found is None:
        raise NeedsOperator(f"{created.url} was opened but does not read back as published")
    return found


def _published(pull_request: PullRequest, head_sha: str) -> Outcome:
    if pull_request.head_sha != head_sha:
        raise NeedsOperator(f"{pull_request.url} holds another commit than the one approved")
    return Outcome(
        Event.PUBLISHED,
        {
            "pr_url": pull_request.url,
            "pr_state": pull_request.state,
            "outcome": "pr_opened",
            "waiting_for": None,
            "decision_required": False,
            "decision_blockers": [],
            "why_waiting": "",
            "next_look_at": None,
        },
    )


async def report(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Tell the thread how it ended: one message a round."""
    plan = held.plan
    await context.issues.add_message(
        plan.issue_number, messages.outcome_message(plan, context.host), step=f"report-{plan.round}"
    )
    if plan.outcome != "pr_opened" and issue["status"] == "in_progress":
        await context.issues.update_issue(plan.issue_number, status="open")
    return Outcome(Event.REPORTED, {"why_waiting": "", "next_look_at": None, "decision_required": False})
