"""From a reviewed change to a pull request and a word in the thread: publish, report."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio

from formica.errors import Broken, NeedsOperator, Refused
from formica.ports import PullRequest, PullRequestDraft, Workspace
from formica.rules import messages
from formica.rules.facts import Change
from formica.rules.pipeline import Event
from formica.rules.plan import Plan, timestamp
from formica.rules.policy import approval_for
from formica.rules.review import unpublishable
from formica.rules.secret_forms import LiveSecrets
from formica.worker.context import Context, Outcome
from formica.worker.executing import asks_decision, exposure, found_in, lost_after_run, stored_change
from formica.worker.held import HeldPlan
from pool_server.contract.redaction import find

Json = dict[str, Any]


async def publish(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Push the approved bytes and open one pull request: looked for before it is made, read back after."""
    plan = held.plan
    exposed = exposure(plan, issue)
    if exposed is not None:
        return exposed
    draft = await _draft(context, plan)
    existing = await context.forge.find(branch=draft.branch, marker=draft.marker)
    if existing is None:
        made = await _make(context, held, draft)
        if isinstance(made, Outcome):
            return made
        existing = made
    elif existing.state == "closed":
        raise NeedsOperator(f"a person closed {existing.url}; /retry {plan.issue_number} opens another")
    outcome = _published(existing, draft.head_sha)
    await context.ledger.settle_pull_request(plan.issue_number, plan.round)
    return outcome


async def _make(context: Context, held: HeldPlan, draft: PullRequestDraft) -> PullRequest | Outcome:
    """The pull request, or why there is none now. What was pushed before a crash needs no worktree any more."""
    plan = held.plan
    stored = await stored_change(context, plan)
    if stored is None and not await _is_pushed(context, plan, draft):
        return lost_after_run(context, plan)
    workspace, change = stored or (None, None)
    if not await _permitted(context, plan, change):
        return Outcome(Event.APPROVAL_VOID, {"why_waiting": "the approval does not cover what there is now"})
    leak = await anyio.to_thread.run_sync(partial(leaked, plan, draft, change, context.secrets))
    if leak:
        return asks_decision(leak)
    budget = await context.ledger.reserve_pull_request(plan.issue_number, plan.round, context.forge)
    if not budget.allowed:
        at = timestamp(budget.next_look_at or context.clock.now() + 300.0)
        return Outcome(Event.HELD_BACK, {"why_waiting": budget.why, "next_look_at": at})
    intent = _intent(context, plan, draft)
    await held.write({"intent": intent, "approvals": _consumed(context, plan)})
    return await _open(context, held, workspace, draft)


async def _is_pushed(context: Context, plan: Plan, draft: PullRequestDraft) -> bool:
    """Whether this very publication got as far as the push, and nobody touched the branch since."""
    return _is_begun(context, plan) and await context.repository.remote_branch(draft.branch) == draft.head_sha


async def _open(
    context: Context, held: HeldPlan, workspace: Workspace | None, draft: PullRequestDraft
) -> PullRequest:
    """Push and create, each after a last look at the switch and the lease, and read back what is there."""
    there = await context.repository.remote_branch(draft.branch)
    if workspace is not None and there != draft.head_sha:
        await context.switch.confirm()
        held.ensure_held()
        await _push(context, held, workspace, draft, there)
    await context.switch.confirm()
    held.ensure_held()
    created = await context.forge.create(draft)
    there = await context.repository.remote_branch(draft.branch)
    found = await context.forge.read(branch=draft.branch, marker=draft.marker)
    if there != draft.head_sha or found is None:
        raise NeedsOperator(f"{created.url} was opened but does not read back as published")
    return found


async def _push(
    context: Context, held: HeldPlan, workspace: Workspace, draft: PullRequestDraft, there: str | None
) -> None:
    try:
        await context.repository.push(workspace, head_sha=draft.head_sha, branch=draft.branch, expected=there)
    except NeedsOperator:
        if await context.forge.find(branch=draft.branch, marker=draft.marker) is None:
            await context.ledger.give_back_pull_request(held.plan.issue_number, held.plan.round)
        raise


async def _permitted(context: Context, plan: Plan, change: Change | None) -> bool:
    """auto_fix with a clean diff, a valid ``/shipit``, or the one this very publication already used.

    Without the ``change`` at hand, what the review found in it counts."""
    if not (plan.proof or {}).get("proved") or plan.security:
        return False
    findings = plan.findings if change is None else await found_in(context, change)
    if context.policy.auto_fix and not plan.tainted and not findings:
        return True
    return _approved(context, plan)


def _approved(context: Context, plan: Plan) -> bool:
    """A person said yes to these bytes: just now, or before the crash that this publication survived."""
    if approval_for(plan, "shipit", context.forge.target, context.clock.now()) is not None:
        return True
    return bool((plan.intent or {}).get("approved")) and _is_begun(context, plan)


def _is_begun(context: Context, plan: Plan) -> bool:
    intent = plan.intent or {}
    begun = (intent.get("head_sha"), intent.get("diff_hash"), intent.get("target"))
    return None not in begun and begun == (plan.head_sha, plan.diff_hash, context.forge.target)


def _intent(context: Context, plan: Plan, draft: PullRequestDraft) -> Json:
    return {
        "branch": draft.branch,
        "head_sha": draft.head_sha,
        "diff_hash": draft.diff_hash,
        "target": context.forge.target,
        "marker": draft.marker,
        "approved": _approved(context, plan),
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
        body=messages.pull_request_body(plan, marker, behind=await context.repository.behind(plan.base_sha)),
        marker=marker,
    )


def _remote_branch_name(plan: Plan) -> str:
    """A pushed commit is never rewritten, so a later round gets a branch of its own."""
    return f"{plan.branch}" if plan.round == 0 else f"{plan.branch}-{plan.round + 1}"


def leaked(plan: Plan, draft: PullRequestDraft, change: Change | None, secrets: LiveSecrets) -> list[str]:
    """What must not leave, whoever approved it: secrets of this daemon in any form on any surface, credentials
    in any text of ours, anything personal from a private issue, and a change that nobody could read.

    Without the change at hand its bytes are on the forge already; only our texts are looked at."""
    surfaces = {"title": draft.title, "body": draft.body, "branch": draft.branch}
    found = [str(finding) for finding in unpublishable(change, secrets, surfaces)]
    if change is not None:
        surfaces["commit message"] = change.message
    if plan.private and change is not None:
        surfaces["diff"] = "\n".join(row.text for text in change.texts.values() for row in text.added)
        surfaces["file names"] = "\n".join(file.path for file in change.files)
    return found + [
        f"the pull request's {surface} still holds {finding.kind}"
        for surface, text in surfaces.items()
        for finding in find(text)
    ]


def _published(pull_request: PullRequest, head_sha: str) -> Outcome:
    """What became of it since, the watch finds out: it closes the loop, so it must see the merge."""
    if pull_request.head_sha != head_sha:
        raise NeedsOperator(f"{pull_request.url} holds another commit than the one approved")
    return Outcome(
        Event.PUBLISHED,
        {
            "pr_url": pull_request.url,
            "pr_state": "open",
            "outcome": "pr_opened",
            "waiting_for": None,
            "decision_required": False,
            "decision_blockers": [],
            "why_waiting": "",
            "next_look_at": None,
        },
    )


async def report(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Tell the thread how it ended: one message a round. What was done stays done when the thread will not
    hear of it."""
    plan = held.plan
    unsaid = ""
    try:
        await context.issues.add_message(
            plan.issue_number, messages.outcome_message(plan, context.host), step=f"report-{plan.round}"
        )
        if plan.outcome != "pr_opened" and issue["status"] == "in_progress":
            await context.switch.confirm()
            await context.issues.update_issue(plan.issue_number, status="open")
    except Refused as refusal:
        unsaid = f"the thread was not told: {refusal}"
    return Outcome(Event.REPORTED, {"why_waiting": unsaid, "next_look_at": None, "decision_required": False})
