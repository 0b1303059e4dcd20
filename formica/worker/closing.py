"""After the pull request: watch it, and close the loop when people merge it."""

from __future__ import annotations

from typing import Any

from formica.errors import FormicaError
from formica.ports import VersionMismatch
from formica.rules import messages
from formica.rules.pipeline import END
from formica.rules.plan import Plan
from formica.worker.context import Context

Json = dict[str, Any]


def watches(plan: Plan) -> bool:
    """Whether a merge, a closing or a release of this plan's pull request is still news."""
    if plan.state not in END or plan.outcome != "pr_opened":
        return False
    return plan.pr_state in (None, "open") or (plan.pr_state == "merged" and not plan.fixed_in_version)


async def watch(context: Context, entity: Json, plan: Plan) -> None:
    """One look at one published plan. Every act is repeatable: a crash in between is made good next time."""
    if context.policy.reporting_mode == "off":
        return
    if plan.pr_state == "merged":
        await _watch_release(context, entity, plan)
        return
    marker = messages.marker(context.name, plan.issue_entity_id, plan.round)
    branch = (plan.intent or {}).get("branch") or plan.branch or ""
    pull_request = await context.forge.read(branch=branch, marker=marker)
    if pull_request is None:
        return
    merged_sha = pull_request.merge_sha if pull_request.state == "merged" else None
    if merged_sha is None and pull_request.state != "closed" and plan.head_sha and plan.base_sha:
        merged_sha = await context.repository.merged(head_sha=plan.head_sha, base_sha=plan.base_sha)
    if merged_sha is not None:
        await _close_loop(context, entity, plan, merged_sha)
    elif pull_request.state == "merged":
        why = f"{plan.pr_url} is marked as merged, but the default branch does not hold the change"
        if plan.why_waiting != why:
            await _write(context, entity, {"why_waiting": why})
    elif pull_request.state == "closed":
        why = f"a person closed {plan.pr_url}: no second one without /retry {plan.issue_number}"
        await _write(context, entity, {"pr_state": "closed", "why_waiting": why})


async def _close_loop(context: Context, entity: Json, plan: Plan, merged_sha: str) -> None:
    await context.switch.confirm()
    resolution = {
        "kind": "fixed",
        "summary": messages.resolution_summary(plan),
        "pr_url": plan.pr_url,
        "fixed_in_sha": merged_sha,
        "verify": messages.how_to_verify(plan, merged_sha),
    }
    results = await context.issues.bulk_close([plan.issue_entity_id, *plan.cluster], resolution)
    refused = [result for result in results if not result["ok"] and result["error_code"] != "ERR_NOT_FOUND"]
    if refused:
        raise FormicaError(f"resolving #{plan.issue_number} was refused: {refused[0]['message']}")
    await context.switch.confirm()
    await context.issues.add_message(
        plan.issue_number, messages.merged_message(plan, merged_sha), step=f"merged-{plan.round}"
    )
    await _write(context, entity, {"pr_state": "merged", "merged_sha": merged_sha, "why_waiting": ""})
    await context.repository.dispose(plan.issue_number)


async def _watch_release(context: Context, entity: Json, plan: Plan) -> None:
    facts = await context.repository.facts(sha=plan.merged_sha, version=None, ref=None)
    if facts.commit is None or not facts.commit.release_tags:
        return
    version = facts.commit.release_tags[0]
    issue = await context.issues.issue(issue_number=plan.issue_number)
    await context.switch.confirm()
    if issue["resolution"] is not None:
        resolution = {
            "kind": "fixed",
            "summary": issue["resolution"]["summary"],
            "fixed_in_version": version,
        }
        await context.issues.resolve(plan.issue_number, resolution)
    await context.switch.confirm()
    await context.issues.add_message(
        plan.issue_number, messages.released_message(version), step=f"released-{plan.round}"
    )
    await _write(context, entity, {"fixed_in_version": version})


async def _write(context: Context, entity: Json, fields: Json) -> None:
    try:
        await context.issues.patch_entity(entity["entity_id"], fields, version=entity["version"])
    except VersionMismatch:
        return  # somebody else moved it; the next look starts from what is there
