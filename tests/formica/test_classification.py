"""What a report is taken for: its kind, how sure, and whether it tells of a vulnerability."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import formica.rules
from formica.rules.classification import KINDS, UNSURE_BELOW, classify, is_plainly_test
from formica.rules.report_text import read_report
from tests.formica import report_samples


@pytest.mark.parametrize(("kind", "title", "body"), report_samples.KINDS)
def test_plain_reports_in_six_languages_are_told_apart(kind: str, title: str, body: str) -> None:
    """A plainly worded bug, request or question is taken for what it is, in each of the languages we name."""
    found = classify(title, body)
    assert found.kind == kind, found.reasons
    assert found.reasons


def test_the_hint_is_evidence_and_not_the_answer() -> None:
    """A reporter's hint moves a doubtful report, and does not turn a crash with a stack trace into a wish."""
    crash = ("Crash when saving", "Steps to reproduce:\n1. save\n2. look\n```\npanicked at src/io.rs:3\n```")
    assert classify(*crash, hint="enhancement").kind == "bug"
    doubtful = ("The list", "It has ten rows.")
    assert {classify(*doubtful, hint=kind).kind for kind in KINDS} == set(KINDS)
    assert classify(*doubtful, hint="nonsense") == classify(*doubtful)


def test_confidence_grows_with_agreement_and_unsure_follows_it() -> None:
    """An answer with more behind it is surer; below the threshold it is called unsure, and still given."""
    vague = classify("It", "")
    clear = classify(
        "[Bug] Crash on start", "It crashes. ```\nTraceback (most recent call last):\n```", "bug"
    )
    assert vague.unsure
    assert vague.kind in KINDS
    assert clear.confidence > 0.9 > UNSURE_BELOW > vague.confidence
    assert not clear.unsure


def test_templates_and_ticked_boxes_are_not_the_reporters_words() -> None:
    """Instructions in comments and boxes of a template change nothing; the form's field for the type does."""
    boilerplate = "<!-- feature request: would be nice -->\n- [x] I report a bug, this is not a question\n"
    assert classify("The list", boilerplate + "It has ten rows.") == classify("The list", "It has ten rows.")
    report = read_report("t", boilerplate + "### Issue type\n\nFeature Request\n\nType: <b>Bug</b>\n")
    assert report.declared == ("feature request", "bug")
    assert classify("The list", "### Issue type\n\nFeature Request\n").kind == "enhancement"


def test_vulnerabilities_are_recognised() -> None:
    """At least 95 of 100 vulnerability reports are taken for one, each with its reason."""
    missed = [
        title for title, body in report_samples.VULNERABILITIES if not classify(title, body).security_reasons
    ]
    assert len(report_samples.VULNERABILITIES) >= 100
    assert len(missed) <= 0.05 * len(report_samples.VULNERABILITIES), missed


def test_what_only_looks_like_a_vulnerability_stays_public() -> None:
    """Words of security in a harmless report make it private in at most 5 of 100 cases."""
    taken = [title for title, body in report_samples.LOOKALIKES if classify(title, body).security]
    assert len(report_samples.LOOKALIKES) >= 80
    assert len(taken) <= 0.05 * len(report_samples.LOOKALIKES), taken


@pytest.mark.parametrize(
    "title",
    [
        *(
            "Remote code execution in the loader",
            "Stored XSS in titles",
            "SQL injection in search",
            "CVE-2024-12345",
        ),
        *(
            "Path traversal in downloads",
            "Authentication bypass",
            "Private key exposed",
            "API key leaked in the log",
        ),
        *(
            "Privilege escalation to operator",
            "SSRF in webhooks",
            "Vulnerabilidade na busca",
            "存在SQL注入漏洞",
        ),
    ],
)
def test_a_plainly_named_vulnerability_is_never_missed(title: str) -> None:
    """The title alone is enough when it names the vulnerability."""
    assert classify(title, "").security


def test_a_security_label_is_enough() -> None:
    """A report that somebody labelled as security is treated as one, whatever it says."""
    assert classify("The list", "It has ten rows.", labels=["Security"]).security


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([], False),
        (["test"], True),
        (["bug", "Test-Flow"], True),
        (["test-cleanup"], True),
        (["testing", "tests", "needs-test"], False),
    ],
)
def test_only_the_three_test_labels_mark_a_test(labels: list[str], expected: bool) -> None:
    """An issue is plainly a test by one of three exact labels, and by nothing that resembles them."""
    assert is_plainly_test(labels) is expected


@given(st.text(max_size=400), st.text(max_size=2_000))
@settings(max_examples=150, deadline=None)
def test_any_text_gets_an_answer(title: str, body: str) -> None:
    """No text makes the rules fail, and the confidence is a probability."""
    found = classify(title, body)
    assert found.kind in KINDS
    assert 0.333 <= found.confidence <= 1


@pytest.mark.parametrize(
    "piece", ["\n", " ", "?", "1. x\n", "`", "<!--", "a: ", "../", "user \n", "at (", "token "]
)
def test_hostile_bodies_cost_no_more_than_their_length(piece: str) -> None:
    """The largest body the server takes, made of one repeated piece, is read within two seconds."""
    body = (piece * 65_536)[:65_536]
    began = time.process_time()
    classify(body[:256], body)
    assert time.process_time() - began < 2.0


def test_the_rules_do_no_input_or_output() -> None:
    """No module of the rules imports anything that reaches outside the process."""
    forbidden = {
        "os",
        "logging",
        "anyio",
        "asyncio",
        "httpx",
        "sqlite3",
        "git",
        "subprocess",
        "socket",
        "pathlib",
    }
    for path in Path(formica.rules.__path__[0]).glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[0] for name in names} & forbidden, path.name
