"""What a plan points to on this host: the change as it was judged, the record of the agent's session, folders."""

from __future__ import annotations

from typing import Any

import anyio

from formica.adapters import state_folder
from formica.adapters.change import DIFF_TEXT_LIMIT
from formica.adapters.transcripts import read_transcript
from formica.errors import NeedsOperator
from formica.ports import Repository
from formica.rules.plan import Plan
from formica.settings import Settings

__all__ = ["TRANSCRIPTS", "state_of", "stored_change", "transcript"]

Json = dict[str, Any]
TRANSCRIPTS = "transcripts"


async def stored_change(settings: Settings, plan: Plan, repository: Repository) -> Json:
    """The plan's change as it is stored on this host: {issue_number, state, says, base_sha, head_sha, diff_hash,
    text}. ``state``: ``whole`` (its sha256 is the plan's), ``altered``, ``elsewhere``, ``gone`` or ``none``."""
    row: Json = plan.model_dump(include={"issue_number", "base_sha", "head_sha", "diff_hash"}) | {
        "text": None
    }
    if plan.head_sha is None or plan.base_sha is None:
        return row | {"state": "none", "says": f"#{plan.issue_number} has no change yet: it is {plan.state}"}
    if plan.home != await anyio.to_thread.run_sync(state_folder.owner_of, settings.state_folder):
        where = f"on host {plan.host}, in the state folder of the daemon that made it"
        return row | {"state": "elsewhere", "says": f"the change lies {where}: ask there"}
    workspace = await repository.find(plan.issue_number)
    try:
        if workspace is None:
            raise NeedsOperator(f"the change of #{plan.issue_number} is not kept here any more")
        stored = await repository.load(workspace, base_sha=plan.base_sha, head_sha=plan.head_sha)
    except NeedsOperator as gone:
        branch = (plan.intent or {}).get("branch")
        there = f"; it was published as {branch}: {plan.pr_url}" if branch and plan.pr_url else ""
        return row | {"state": "gone", "says": f"{gone}{there}"}
    if stored.diff_hash != plan.diff_hash:
        says = f"altered: its sha256 is {stored.diff_hash}, the plan says {plan.diff_hash}"
        return row | {"state": "altered", "says": says, "text": stored.diff}
    cut = len(stored.diff) >= DIFF_TEXT_LIMIT
    # No command to read the rest by hand: git would obey what a run may have planted in that folder.
    says = f"only the first {DIFF_TEXT_LIMIT} characters are shown" if cut else ""
    return row | {"state": "whole", "says": says, "text": stored.diff}


def state_of(settings: Settings, plan: Plan) -> str | None:
    """The state folder that the plan's paths are below, when the plan was worked on from it."""
    folder = settings.state_folder
    return str(folder) if plan.home is not None and plan.home == state_folder.owner_of(folder) else None


def transcript(settings: Settings, plan: Plan) -> Json:
    """The record of the plan's last agent session: {issue_number, transcript, state, says, hash, text}.

    ``state``: ``whole`` (its sha256 is the plan's), ``altered``, ``elsewhere``, ``gone`` or ``none``.
    """
    row: Json = {
        "issue_number": plan.issue_number,
        "transcript": plan.transcript,
        "hash": plan.transcript_hash,
        "text": None,
    }
    if plan.transcript is None:
        return row | {"state": "none", "says": "no agent session of this plan has a record"}
    stored = read_transcript(settings.state_folder / TRANSCRIPTS, plan.transcript)
    if stored is not None:
        whole = stored[1] == plan.transcript_hash
        says = "" if whole else f"altered: its sha256 is {stored[1]}, the plan says {plan.transcript_hash}"
        return row | {"state": "whole" if whole else "altered", "says": says, "text": stored[0]}
    if plan.home != state_folder.owner_of(settings.state_folder):
        where = f"on host {plan.host}, in the state folder of the daemon that ran it"
        return row | {"state": "elsewhere", "says": f"{plan.transcript} lies {where}"}
    return row | {"state": "gone", "says": f"{plan.transcript} is not kept any more"}
