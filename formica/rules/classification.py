"""What a report is: a bug, an enhancement or a question; and whether it tells of a vulnerability.

A small linear model over words and shape: each sign found adds its weights, and the softmax of the sums
is the confidence. The reporter's hint and labels are more signs, not the answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from formica.rules import security
from formica.rules.body_features import BODY_FEATURES
from formica.rules.report_text import ReportText, read_report
from formica.rules.title_features import TITLE_FEATURES, Feature

__all__ = ["KINDS", "UNSURE_BELOW", "Classification", "classify", "is_plainly_test"]

KINDS = ("bug", "enhancement", "question")
UNSURE_BELOW = 0.55
"""Below this confidence about half of the answers are wrong."""

_TEST_LABELS = frozenset({"test", "test-flow", "test-cleanup"})
_PROSE_LIMIT = 8_000
_FULL_LIMIT = 12_000
_HINT_WEIGHT = 1.2
_LABEL_WEIGHT = 0.8
_REASONS_SHOWN = 5
_LABEL_KINDS = (
    (re.compile(r"\b(?:bug|defect|regression|crash)\b"), "bug"),
    (re.compile(r"\b(?:enhancement|feature|improvement|proposal|idea)\b"), "enhancement"),
    (re.compile(r"\b(?:question|support|help|usage|discussion)\b"), "question"),
)
_COMPILED = tuple(
    (feature, re.compile(feature.pattern, re.IGNORECASE | re.MULTILINE))
    for feature in (*TITLE_FEATURES, *BODY_FEATURES)
)


@dataclass(frozen=True, slots=True)
class Classification:
    kind: str
    """Always the best of `KINDS`, however unsure."""
    confidence: float
    """0 to 1: how often an answer like this one is right."""
    unsure: bool
    security: bool
    security_reasons: tuple[str, ...]
    reasons: tuple[str, ...]
    """What spoke for the kind, the weightiest first."""


def _found(report: ReportText) -> list[Feature]:
    parts = {
        "title": report.title,
        "prose": report.prose[:_PROSE_LIMIT],
        "full": report.full[:_FULL_LIMIT],
        "declared": "\n".join(report.declared),
    }
    return [feature for feature, pattern in _COMPILED if pattern.search(parts[feature.part])]


def _given(hint: str | None, labels: Iterable[str]) -> list[tuple[str, float, str]]:
    """Kind, weight and reason of what the reporter stated."""
    given: list[tuple[str, float, str]] = []
    if hint in KINDS:
        given.append((str(hint), _HINT_WEIGHT, f"the reporter calls it {hint}"))
    named = {kind for label in labels for pattern, kind in _LABEL_KINDS if pattern.search(label.lower())}
    given.extend((kind, _LABEL_WEIGHT, f"a label says {kind}") for kind in sorted(named))
    return given


def _softmax(sums: list[float]) -> list[float]:
    top = max(sums)
    powers = [math.exp(value - top) for value in sums]
    whole = sum(powers)
    return [power / whole for power in powers]


def classify(title: str, body: str, hint: str | None = None, labels: Iterable[str] = ()) -> Classification:
    """The best kind with its confidence and reasons. Total on any text, linear in its length."""
    labels = tuple(labels)
    report = read_report(title, body)
    found = _found(report)
    given = _given(hint, labels)
    sums = [sum(feature.weights[index] for feature in found) for index in range(len(KINDS))]
    for kind, weight, _ in given:
        sums[KINDS.index(kind)] += weight
    chances = _softmax(sums)
    best = max(range(len(KINDS)), key=chances.__getitem__)
    weighed = [(feature.weights[best], feature.reason) for feature in found if feature.weights[best] > 0]
    weighed += [(weight, reason) for kind, weight, reason in given if kind == KINDS[best]]
    weighed.sort(key=lambda pair: -pair[0])
    security_reasons = security.recognise(report, labels)
    return Classification(
        kind=KINDS[best],
        confidence=round(chances[best], 3),
        unsure=chances[best] < UNSURE_BELOW,
        security=bool(security_reasons),
        security_reasons=security_reasons,
        reasons=tuple(reason for _, reason in weighed[:_REASONS_SHOWN])
        or ("nothing speaks clearly for a kind",),
    )


def is_plainly_test(labels: Iterable[str]) -> bool:
    """Whether an issue is somebody's test of the intake, to be cleaned up and never worked."""
    return any(label.strip().lower() in _TEST_LABELS for label in labels)
