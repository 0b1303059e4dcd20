"""The pipeline is a table.

A plan is always in one *state*. Each state has at most one *effect*, which the worker performs; an effect
ends in exactly one *event*; the table says which state follows. Everything else (operators' words, the
reporter's answer, a merge) is an event too. An event that the table does not know in a state is illegal:
it raises and changes nothing. Entering a state twice does no harm, because every effect looks before it acts;
so a crash anywhere is repaired by performing the present state's effect again.

The diagram in ARCHITECTURE.md is printed from these tables (``diagram()``) and tested against them.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "ACTIVE",
    "EFFECTS",
    "END",
    "EXECUTING",
    "GATED",
    "STATUS",
    "TRANSITIONS",
    "Effect",
    "Event",
    "IllegalMove",
    "State",
    "diagram",
    "step",
]


class State(StrEnum):
    RECEIVED = "received"
    CLASSIFIED = "classified"
    ASKING = "asking"
    AWAITING_INPUT = "awaiting_input"
    PLANNED = "planned"
    WAITING_OPERATOR = "waiting_operator"
    CLAIMED = "claimed"
    PREPARING = "preparing"
    WORKING = "working"
    VERIFYING = "verifying"
    REVIEWING = "reviewing"
    PUBLISHING = "publishing"
    REPORTING = "reporting"
    DONE = "done"
    BACKING_OFF = "backing_off"
    REFUSED = "refused"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Effect(StrEnum):
    """What the worker does in a state. The value names the worker's method."""

    READ = "read"
    LOCATE = "locate"
    ASK = "ask"
    DECIDE = "decide"
    CLAIM = "claim"
    PREPARE = "prepare"
    WORK = "work"
    VERIFY = "verify"
    REVIEW = "review"
    PUBLISH = "publish"
    REPORT = "report"


class Event(StrEnum):
    # ends of effects
    CLASSIFIED = "classified"
    SKIPPED = "skipped"
    LOCATED = "located"
    UNCLEAR = "unclear"
    ASKED = "asked"
    NOT_ASKED = "not_asked"
    EXECUTABLE = "executable"
    HELD_BACK = "held_back"
    NEEDS_OPERATOR = "needs_operator"
    STARTED = "started"
    PREPARED = "prepared"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    PROVED = "proved"
    LOCAL_RESULT = "local_result"
    CLEARED = "cleared"
    WORKSPACE_LOST = "workspace_lost"
    PUBLISHED = "published"
    APPROVAL_VOID = "approval_void"
    REPORTED = "reported"
    # ends of any effect
    FAULT = "fault"
    BREAKER = "breaker"
    REFUSAL = "refusal"
    # from outside
    ANSWERED = "answered"
    REPORT_CHANGED = "report_changed"
    GO = "go"
    SHIPIT = "shipit"
    REJECT = "reject"
    RETRY = "retry"
    DUE = "due"
    ISSUE_ENDED = "issue_ended"
    REOPENED = "reopened"


EFFECTS: dict[State, Effect] = {
    State.RECEIVED: Effect.READ,
    State.CLASSIFIED: Effect.LOCATE,
    State.ASKING: Effect.ASK,
    State.PLANNED: Effect.DECIDE,
    State.CLAIMED: Effect.CLAIM,
    State.PREPARING: Effect.PREPARE,
    State.WORKING: Effect.WORK,
    State.VERIFYING: Effect.VERIFY,
    State.REVIEWING: Effect.REVIEW,
    State.PUBLISHING: Effect.PUBLISH,
    State.REPORTING: Effect.REPORT,
}

ACTIVE: frozenset[State] = frozenset(EFFECTS)
"""States with an effect: a worker holding the plan's lease moves them on."""

EXECUTING: frozenset[State] = frozenset(
    {State.CLAIMED, State.PREPARING, State.WORKING, State.VERIFYING, State.REVIEWING, State.PUBLISHING}
)
"""States that need one of the ``max_workers`` places."""

GATED: frozenset[State] = EXECUTING | {State.PLANNED, State.REPORTING}
"""States whose effect a limit can hold back: the plan stays where it is until ``next_look_at``."""

END: frozenset[State] = frozenset({State.DONE, State.REFUSED, State.FAILED, State.CANCELLED})

RESUME = None
"""As a target: the state the plan was in before it backed off (``Plan.resume_state``)."""

_forward: dict[tuple[State, Event], State | None] = {
    (State.RECEIVED, Event.CLASSIFIED): State.CLASSIFIED,
    (State.RECEIVED, Event.SKIPPED): State.CANCELLED,
    (State.CLASSIFIED, Event.LOCATED): State.PLANNED,
    (State.CLASSIFIED, Event.UNCLEAR): State.ASKING,
    (State.ASKING, Event.ASKED): State.AWAITING_INPUT,
    (State.ASKING, Event.NOT_ASKED): State.WAITING_OPERATOR,
    (State.AWAITING_INPUT, Event.ANSWERED): State.RECEIVED,
    (State.PLANNED, Event.EXECUTABLE): State.CLAIMED,
    (State.PLANNED, Event.NEEDS_OPERATOR): State.WAITING_OPERATOR,
    (State.CLAIMED, Event.STARTED): State.PREPARING,
    (State.CLAIMED, Event.NEEDS_OPERATOR): State.WAITING_OPERATOR,
    (State.CLAIMED, Event.REPORT_CHANGED): State.RECEIVED,
    (State.PREPARING, Event.PREPARED): State.WORKING,
    (State.WORKING, Event.CHANGED): State.VERIFYING,
    (State.WORKING, Event.UNCHANGED): State.REPORTING,
    (State.WORKING, Event.WORKSPACE_LOST): State.PREPARING,
    (State.VERIFYING, Event.PROVED): State.REVIEWING,
    (State.VERIFYING, Event.LOCAL_RESULT): State.REPORTING,
    (State.VERIFYING, Event.NEEDS_OPERATOR): State.WAITING_OPERATOR,
    (State.VERIFYING, Event.WORKSPACE_LOST): State.PREPARING,
    (State.REVIEWING, Event.CLEARED): State.PUBLISHING,
    (State.REVIEWING, Event.NEEDS_OPERATOR): State.WAITING_OPERATOR,
    (State.REVIEWING, Event.WORKSPACE_LOST): State.PREPARING,
    (State.PUBLISHING, Event.PUBLISHED): State.REPORTING,
    (State.PUBLISHING, Event.APPROVAL_VOID): State.REVIEWING,
    (State.PUBLISHING, Event.NEEDS_OPERATOR): State.WAITING_OPERATOR,
    (State.PUBLISHING, Event.WORKSPACE_LOST): State.PREPARING,
    (State.REPORTING, Event.REPORTED): State.DONE,
    (State.BACKING_OFF, Event.DUE): RESUME,
    (State.WAITING_OPERATOR, Event.GO): State.CLAIMED,
    (State.WAITING_OPERATOR, Event.SHIPIT): State.PUBLISHING,
    (State.WAITING_OPERATOR, Event.REPORT_CHANGED): State.RECEIVED,
    (State.PLANNED, Event.REPORT_CHANGED): State.RECEIVED,
    (State.DONE, Event.REOPENED): State.WAITING_OPERATOR,
}

_RETRYABLE = END | {State.WAITING_OPERATOR, State.BACKING_OFF, State.AWAITING_INPUT, State.PLANNED}

TRANSITIONS: dict[tuple[State, Event], State | None] = (
    _forward
    | {(state, Event.HELD_BACK): state for state in GATED}
    | {(state, Event.FAULT): State.BACKING_OFF for state in ACTIVE}
    | {(state, Event.BREAKER): State.FAILED for state in ACTIVE}
    | {(state, Event.REFUSAL): State.REFUSED for state in ACTIVE}
    | {(state, Event.REJECT): State.CANCELLED for state in State if state not in END}
    | {(state, Event.ISSUE_ENDED): State.CANCELLED for state in State if state not in END}
    | {(state, Event.RETRY): State.RECEIVED for state in _RETRYABLE}
)

STATUS: dict[State, str] = {
    State.RECEIVED: "draft",
    State.CLASSIFIED: "draft",
    State.ASKING: "awaiting_input",
    State.AWAITING_INPUT: "awaiting_input",
    State.PLANNED: "draft",
    State.WAITING_OPERATOR: "draft",
    State.CLAIMED: "approved",
    State.PREPARING: "executing",
    State.WORKING: "executing",
    State.VERIFYING: "executing",
    State.REVIEWING: "executing",
    State.PUBLISHING: "executing",
    State.REPORTING: "executing",
    State.BACKING_OFF: "executing",
    State.DONE: "executed",
    State.REFUSED: "abandoned",
    State.FAILED: "abandoned",
    State.CANCELLED: "abandoned",
}
"""A plan's ``status`` follows from its state by this table alone."""


class IllegalMove(Exception):
    """The table knows no such event in this state. Nothing was changed."""


def step(state: State, event: Event, *, resume: State | None = None) -> State:
    """The state after ``event``; ``resume`` is where a plan that backed off goes on.

    Raises:
        IllegalMove: the table has no such row, or a plan backed off from nowhere.
    """
    if (state, event) not in TRANSITIONS:
        raise IllegalMove(f"{event} is not possible in state {state}")
    target = TRANSITIONS[state, event]
    if target is not None:
        return target
    if resume is None or resume not in ACTIVE:
        raise IllegalMove("a plan that backs off must say from which state")
    return resume


def diagram() -> str:
    """The forward moves as a Mermaid state diagram; the moves open to every state are one note."""
    lines = ["stateDiagram-v2", "    [*] --> received"]
    for (state, event), target in _forward.items():
        lines.append(f"    {state} --> {target or 'resume_state'}: {event}")
    lines.extend(f"    {state} --> [*]" for state in sorted(END))
    lines.append("    note right of received")
    lines.append(
        "        any state with an effect: fault to backing_off, breaker to failed, refusal to refused"
    )
    lines.append(f"        held_back stays in {', '.join(sorted(GATED))}")
    lines.append("        any state but an end: reject or issue_ended to cancelled")
    retryable = ", ".join(sorted(_RETRYABLE))
    lines.append(f"        retry to received from {retryable}")
    lines.append("    end note")
    return "\n".join(lines)
