"""Every sentence people read in threads, commits and pull requests.

Ours is rendered from typed fields. A reporter's words appear only as the summary, and that only through
`neutralise`; of a private report nothing appears outside its own thread. A report is called ``report 12``:
``#12`` would point at whatever has that number on the forge.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from formica.rules.inert import neutralise
from formica.rules.plan import Plan

__all__ = [
    "commit_message",
    "how_to_verify",
    "marker",
    "merged_message",
    "neutralise",
    "outcome_message",
    "pull_request_body",
    "pull_request_title",
    "question",
    "released_message",
    "resolution_summary",
    "would_do",
]

_SUBJECT_LIMIT = 72
_TITLE_LIMIT = 200
_SUMMARY_LIMIT = 200
_EVIDENCE_LIMIT = 300
_FILES_SHOWN = 50
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]|-(?=-)")

_ASKED = {
    "reporter_git_sha": "the commit it was built from (reporter_git_sha: what `git rev-parse HEAD` prints)",
    "reporter_app_version": "the version it reports (reporter_app_version)",
    "reporter_git_ref": "the branch or tag it was built from (reporter_git_ref)",
    "reporter_channel": "the channel it was installed from (reporter_channel)",
    "reporter_ci_run_id": "the run it happened in (reporter_ci_run_id)",
    "reporter_patch_source_id": (
        "where the changed source can be read (reporter_patch_source_id: a fork's address, a branch or a patch)"
    ),
}


def question(needs: Iterable[str], evidence: Iterable[str]) -> str:
    """The one question that names exactly the missing fields, and what is known so far."""
    needs = list(needs)
    asked = [_ASKED.get(need, need) for need in needs]
    one_of = {"reporter_app_version", "reporter_git_sha"} == set(needs)
    lead = "To reproduce this I need to know which build you ran. Please answer with "
    if len(asked) == 1:
        lines = [f"{lead}{asked[0]}."]
    else:
        lines = [f"{lead}{'one of these' if one_of else 'what applies of this'}:", ""]
        lines += [f"- {item}" for item in asked]
    known = [neutralise(entry, limit=_EVIDENCE_LIMIT) for entry in evidence]
    if known:
        lines += ["", "What I have so far:", "", *(f"- {entry}" for entry in known)]
    lines += ["", "Any answer in one of these fields is enough; the work goes on by itself then."]
    return "\n".join(lines)


def marker(name: str, issue_entity_id: str, round: int) -> str:
    """The text by which a pull request of this item is recognised again; invisible when rendered."""
    parts = (_UNSAFE.sub("", part) for part in (name, issue_entity_id, str(round)))
    return f"<!-- formica-item: {'/'.join(parts)} -->"


def pull_request_title(issue_number: int, summary: str, *, private: bool) -> str:
    """One line, at most 200 characters. Of a private report not a word."""
    if private:
        return f"Fix a defect reported in private (report {issue_number})"
    return neutralise(
        f"Fix report {issue_number}: {neutralise(summary, limit=_SUMMARY_LIMIT)}", limit=_TITLE_LIMIT
    )


def commit_message(issue_number: int, summary: str, *, private: bool) -> str:
    """Subject, blank line, body and a trailer that names the report."""
    if private:
        subject = f"Fix a defect reported in private (report {issue_number})"
    else:
        subject = neutralise(f"Fix report {issue_number}: {neutralise(summary)}", limit=_SUBJECT_LIMIT)
    return (
        f"{subject}\n\nWritten by a coding agent that formica ran, with a test that fails without it.\n\n"
        f"Formica-Report: {issue_number}\n"
    )


def _proof_lines(plan: Plan) -> list[str]:
    proof = plan.proof or {}
    if not proof:
        return ["No proof was run."]
    lines = []
    if proof.get("base_failed") is not None:
        outcome = "fails" if proof["base_failed"] else "does NOT fail"
        lines.append(f"- with only the change's tests, the base {outcome}")
    if proof.get("head_passed") is not None:
        lines.append(
            f"- with the whole change, the project's tests {'pass' if proof['head_passed'] else 'do NOT pass'}"
        )
    if proof.get("hooks_passed") is not None:
        lines.append(f"- the project's own hooks {'pass' if proof['hooks_passed'] else 'do NOT pass'}")
    reason = str(proof.get("reason", ""))
    if reason and not plan.private:
        lines.append(f"- {neutralise(reason, limit=_EVIDENCE_LIMIT)}")
    return lines


def _file_lines(plan: Plan) -> list[str]:
    lines = [
        f"- {neutralise(str(entry['path']), limit=_EVIDENCE_LIMIT)} (+{entry['added']} -{entry['deleted']})"
        for entry in plan.diff_stat[:_FILES_SHOWN]
    ]
    more = len(plan.diff_stat) - len(lines)
    return [*lines, f"- and {more} more"] if more > 0 else lines


def pull_request_body(plan: Plan, marker: str, *, behind: int = 0) -> str:
    """Why, what, proof, and what merging means. Nothing of a private report, its reporter or its thread.
    ``behind`` is how many commits the default branch has that the base has not."""
    number = plan.issue_number
    if plan.private:
        lines = [f"This fixes a defect that was reported in private (report {number})."]
    else:
        lines = [f"This fixes report {number}: {neutralise(plan.summary, limit=_SUMMARY_LIMIT)}"]
    lines += ["", "**Proof**, run by formica apart from the agent that wrote the change:", ""]
    lines += _proof_lines(plan)
    if plan.diff_stat:
        lines += ["", "**Changed**", "", *_file_lines(plan)]
    lines += [
        "",
        f"Base {plan.base_sha}, head {plan.head_sha}.{_moved_on(behind)}",
        "",
        f"A coding agent wrote this change; formica checked it and opened this pull request. Formica never merges. "
        f"When a person merges it, report {number} is marked resolved and its reporter is asked to verify.",
        "",
        marker,
    ]
    return "\n".join(lines)


def _moved_on(behind: int) -> str:
    if not behind:
        return ""
    commits = "1 commit" if behind == 1 else f"{behind} commits"
    return f" The default branch has moved on by {commits} since: the proof holds for the base named here."


def would_do(plan: Plan, target: str) -> list[str]:
    """What executing the plan would do, step by step and exactly."""
    number = plan.issue_number
    if plan.security:
        return ["keep the report private", "show it to the maintainer", "publish nothing"]
    if plan.kind == "question":
        return ["show the question to the maintainer", "execute nothing"]
    kind = plan.reproduction_environment_kind
    if kind in ("local_commit", "local_branch"):
        return [
            f"check out commit {plan.git_sha or '(not known: ask for it)'} in a worktree of its own, detached",
            "run the coding agent there with the skill process-issues",
            "run the project's tests on what it changed",
            "tell the thread what was found at that commit, and the operator where the worktree is",
            "push nothing, open no pull request",
        ]
    return [
        f"fetch the default branch and open a worktree on branch formica/issue-{number}",
        "run the coding agent there with the skill process-issues",
        "prove the change: with its tests alone the base must fail, with all of it the tests must pass",
        f"check the diff against the limits and wait for formica shipit {number}, unless auto_fix is on and nothing was found",
        f"push that branch and open one pull request at {target}",
        "tell the thread, and after a person merges ask the reporter to verify",
    ]


def outcome_message(plan: Plan, _host: str = "") -> str:
    """How the work ended, for the thread. The host and its paths are the operator's business, not the thread's."""
    proof = (plan.proof or {}).get("proved")
    commit = (plan.git_sha or plan.base_sha or "")[:12]
    if plan.outcome == "pr_opened":
        return (
            f"A fix is proposed: {plan.pr_url}\n\nIts test fails on the present code and passes with the change. "
            f"A person decides whether to merge it; this thread will then say which build to verify. "
            f"To try it before: commit {plan.head_sha}."
        )
    if plan.outcome == "worktree_created":
        found = (
            "The problem was reproduced there, and a change that makes its test pass was found."
            if proof
            else "A change was tried there; it is not proved to fix the problem."
        )
        return (
            f"This was worked on at the commit you reported ({commit}), apart from the main line. {found} "
            "Nothing was published from it; the maintainer has the result."
        )
    if plan.outcome == "already_fixed":
        build = plan.fixed_in_version or (plan.merged_sha or "the present default branch")
        return f"This is fixed already. Please try {build} and say whether it still happens."
    if plan.outcome == "not_reproduced":
        return (
            f"This could not be reproduced{f' at {commit}' if commit else ''}. The smallest steps that show it, "
            "with the exact build, would help: answer here and it is looked at again."
        )
    if plan.outcome == "no_change":
        return (
            "This was worked on, and no change came out of it that could be proved. It stays open, "
            "and the maintainer has been told."
        )
    if plan.outcome == "answered":
        return "This question was answered. If the answer does not help, write here and a person will look."
    if plan.outcome == "abandoned":
        return "Work on this was cancelled by the maintainer. Anything new you write here is read."
    return "This was looked at; the maintainer has been told."


def resolution_summary(plan: Plan) -> str:
    """What the resolution says: by what it was fixed."""
    return f"Fixed by {plan.pr_url}." if plan.pr_url else "Fixed."


def how_to_verify(plan: Plan, merged_sha: str) -> str:
    """How the reporter verifies, before and after there is a release."""
    return (
        f"Run a build that contains commit {merged_sha}, repeat what failed in report {plan.issue_number}, "
        "then call verify_resolution with worked true or false and the build you ran."
    )


def merged_message(plan: Plan, merged_sha: str) -> str:
    """For the thread, when a person merged the fix."""
    return (
        f"The fix was merged ({plan.pr_url}), as commit {merged_sha}.\n\n{how_to_verify(plan, merged_sha)} "
        "A release that contains it will be named here."
    )


def released_message(version: str) -> str:
    """For the thread, when a release contains the fix."""
    return (
        f"The fix is in release {neutralise(version, limit=80)}. Please install it, repeat what failed, and call "
        "verify_resolution with worked true or false."
    )
