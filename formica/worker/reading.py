"""From a report to a decision: read, locate, ask, decide. Nothing here touches a repository but to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from formica.errors import Broken
from formica.rules import messages
from formica.rules.classification import classify, is_plainly_test
from formica.rules.environment import extract, judge
from formica.rules.pipeline import Event
from formica.rules.plan import AskedQuestion, Plan, readable, report_hash, timestamp
from formica.rules.policy import decide
from formica.rules.protected import areas
from formica.worker.context import Context, Outcome
from formica.worker.held import HeldPlan

Json = dict[str, Any]


def reporter_text(issue: Mapping[str, Any]) -> str:
    """What the reporter said, in order: the report and every later message of theirs."""
    said = [message["body"] for message in issue["messages"] if message["author_role"] == "reporter"]
    return "\n\n".join(said)


def reporter_build(issue: Mapping[str, Any]) -> dict[str, str]:
    """The reporter's fields; a later message corrects an earlier one."""
    build: dict[str, str] = dict(issue["reporter"])
    for message in issue["messages"]:
        given = message.get("reporter") or {}
        if message["author_role"] == "reporter" and given:
            if "reporter_app_version" in given:
                build.pop("reporter_app_version_source", None)
            build.update(given)
    return build


async def read(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Read the thread and classify it. A security report becomes private before anything else, and stays
    one whatever is said later."""
    learned: Json = {
        "entity_type": issue["entity_type"],
        "private": issue["visibility"] == "private",
        "tainted": taint(issue),
        "summary": messages.neutralise(issue["title"], limit=200),
        "message_ids": [message["message_id"] for message in issue["messages"]],
        "report_hash": report_hash(issue),
        "decision_blockers": [],
        "decision_required": False,
        "why_waiting": "",
        "next_look_at": None,
    }
    if is_plainly_test(issue["labels"]):
        why = "labelled as a test: nothing to do but clean it up"
        return Outcome(Event.SKIPPED, learned | {"outcome": "abandoned", "todos": [why], "why_waiting": why})
    found = classify(issue["title"], reporter_text(issue), issue["kind"], issue["labels"])
    security = found.security or held.plan.security
    if security and issue["visibility"] == "public":
        await context.issues.update_issue(issue["issue_number"], visibility="private")
        learned["private"] = True
    await _refer(context, held, issue)
    return Outcome(
        Event.CLASSIFIED,
        learned
        | {
            "kind": found.kind,
            "kind_confidence": found.confidence,
            "kind_reasons": [*found.reasons, *found.security_reasons],
            "security": security,
        },
    )


async def _refer(context: Context, held: HeldPlan, issue: Json) -> None:
    """Tie the plan to the issue and to each message it now rests on; again is the same."""
    known = set(held.plan.message_ids)
    fresh = [message["message_id"] for message in issue["messages"] if message["message_id"] not in known]
    for target in [issue["entity_id"], *fresh]:
        await context.issues.relate(held.entity_id, "REFERS_TO", target)


def taint(issue: Mapping[str, Any]) -> list[str]:
    """Every reason for which the issue or one of its messages is marked, once each."""
    reasons = list(issue.get("tainted", []))
    for message in issue["messages"]:
        reasons.extend(message.get("tainted", []))
    return list(dict.fromkeys(reasons))


async def locate(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Where the report can be reproduced, verified against the repository."""
    plan = held.plan
    build = extract(issue["title"], reporter_text(issue), reporter_build(issue))
    await context.repository.refresh()
    facts = await context.repository.facts(sha=build.sha, version=build.named_release, ref=build.ref)
    environment = judge(build, facts)
    learned: Json = {
        "reproduction_environment_kind": environment.kind,
        "reproduction_environment_evidence": list(environment.evidence),
        "git_sha": environment.commit or (facts.commit.sha if facts.commit and facts.commit.exists else None),
        "git_ref": build.ref,
        "app_version": build.version,
    }
    needs_build = environment.needs and plan.kind == "bug" and not plan.security
    if needs_build and not _asked_before(plan, environment.needs):
        question = AskedQuestion(
            needs=list(environment.needs), text=messages.question(environment.needs, environment.evidence)
        )
        return Outcome(Event.UNCLEAR, learned | {"questions": [*_dumped(plan), question.model_dump()]})
    return Outcome(Event.LOCATED, learned | _risk(issue, context))


def _asked_before(plan: Plan, needs: tuple[str, ...]) -> bool:
    """The same question is never put twice, however the answer turned out."""
    return any(set(needs) <= set(question.needs) for question in plan.questions)


def _dumped(plan: Plan) -> list[Json]:
    return [question.model_dump() for question in plan.questions]


def _risk(issue: Json, context: Context) -> Json:
    """Protected areas that the report itself points at."""
    words = {
        word.strip("`'\"()[]<>,.;:") for word in reporter_text(issue).split() if "/" in word or "." in word
    }
    named = sorted({area for word in words for area in areas(word, context.policy.protected)})
    todos = [f"protected: {area}" for area in named]
    return {"risk": "high" if named else "low", "todos": todos}


async def ask(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Put the open question into the thread: one message, once."""
    plan = held.plan
    if not plan.questions:
        raise Broken("a plan that asks has no question")
    question = plan.questions[-1]
    if context.policy.reporting_mode == "off":
        why = "reporting_mode is off: the question was not sent"
        return Outcome(
            Event.NOT_ASKED,
            {
                "decision_blockers": [why],
                "waiting_for": "decision",
                "why_waiting": why,
                "decision_required": True,
            },
        )
    step = f"question-{plan.round}-{'-'.join(sorted(question.needs))}"
    answer = await context.issues.add_message(
        plan.issue_number, question.text, step=step, question={"needs": question.needs, "text": question.text}
    )
    if answer is not None:
        question.message_id = answer["message_id"]
    question.asked_at = timestamp(context.clock.now())
    return Outcome(
        Event.ASKED,
        {
            "questions": [*_dumped(plan)[:-1], question.model_dump()],
            "outcome": "input_requested",
            "why_waiting": f"the reporter was asked for {', '.join(question.needs)}",
        },
    )


async def decide_plan(context: Context, held: HeldPlan, issue: Json) -> Outcome:
    """Through the gates: execute, hold back, or show it to the operator."""
    plan = held.plan
    others = await all_plans(context)
    decision = decide(plan, context.policy, others)
    learned: Json = {"why_waiting": decision.why, "next_look_at": None, "outcome": None}
    if decision.event is Event.HELD_BACK:
        rest = 600.0 if context.policy.reporting_mode == "off" else 15.0
        learned["next_look_at"] = timestamp(context.clock.now() + rest)
    if decision.event is Event.NEEDS_OPERATOR:
        learned |= {
            "waiting_for": decision.waiting_for,
            "decision_required": True,
            "decision_blockers": list(decision.blockers),
            "dry_run": decision.dry_run,
            "would_do": messages.would_do(plan, context.forge.target),
        }
    return Outcome(decision.event, learned)


async def all_plans(context: Context) -> list[Plan]:
    """Every readable plan of this daemon name."""
    found = [readable(entity, context.name) for entity in await context.issues.entities("plan")]
    return [plan for plan in found if plan is not None]
