"""What can go wrong, named by what to do next.

FormicaError
├── Retryable       a passing fault: the same act again later, with growing delay
├── Refused         a rule or limit of ours says no: nothing was done, nothing will be without a change
├── NeedsOperator   only a person can decide or repair this
└── Broken          a bug, or a state that must not exist: stop this item and say so

Foreign exceptions stop at their adapter, in one mapping each.
"""

__all__ = ["Broken", "FormicaError", "LeaseLost", "NeedsOperator", "Refused", "Retryable", "Stopped"]


class FormicaError(Exception):
    """Base of all. ``str()`` is one sentence for people and never holds a secret."""


class Retryable(FormicaError):
    """A passing fault. ``after_seconds`` is the earliest sensible next try, if the other side said so."""

    def __init__(self, message: str, *, after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


class Refused(FormicaError):
    """A rule or limit says no. ``rule`` is the setting or rule that said it."""

    def __init__(self, message: str, *, rule: str = "") -> None:
        super().__init__(message)
        self.rule = rule


class NeedsOperator(FormicaError):
    """Only a person can go on from here."""


class Broken(FormicaError):
    """A bug or an impossible state."""


class LeaseLost(FormicaError):
    """Somebody else owns the plan now: everything in hand is dropped, nothing more is written."""


class Stopped(FormicaError):
    """The kill switch, a drain or an unreachable server stops this run before its next effect."""
