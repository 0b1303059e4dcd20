"""`formica triage`: rows in, the contract's eight keys out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from formica.rules.facts import CommitFacts, RepositoryFacts
from formica.rules.triage import parse_rows, reported_build, triage_row

KEYS = [
    "id",
    "kind",
    "kind_confidence",
    "unsure",
    "security",
    "environment",
    "environment_evidence",
    "questions",
]


def row(**fields: Any) -> dict[str, Any]:
    report = {
        "id": 7,
        "title": "Crash on start",
        "body": "It crashes with KeyError: 'x'. Steps to reproduce: start it.",
    }
    return {**report, **fields}


def test_a_row_has_exactly_the_contracts_keys() -> None:
    """Each line holds the eight keys of the contract in their order, whatever else came in, as plain JSON."""
    answer = triage_row(row(unknown_key=[1], labels=["bug"], kind="bug"), None)
    assert list(answer) == KEYS
    assert json.loads(json.dumps(answer)) == answer
    assert answer["id"] == 7
    assert answer["kind"] == "bug"
    assert isinstance(answer["kind_confidence"], float)


def test_a_bug_without_a_build_gets_one_question() -> None:
    """A bug whose build is unknown gets one question with the needed fields; a wish or a security report none."""
    asked = triage_row(row(), None)["questions"]
    assert [question["needs"] for question in asked] == [["reporter_app_version", "reporter_git_sha"]]
    assert "reporter_git_sha" in asked[0]["text"]
    assert triage_row(row(body="It crashes on version 1.2.3"), None)["questions"] == []
    wish = row(title="Feature request: dark mode", body="It would be nice to have.")
    assert triage_row(wish, None)["questions"] == []
    secret = triage_row(row(title="SQL injection", body="' OR 1=1"), None)
    assert (secret["security"], secret["questions"]) == (True, [])


def test_fields_and_repository_decide_the_environment() -> None:
    """Fields of ``submit_issue`` in the row are evidence, and the repository verifies them."""
    stated = row(reporter_git_sha="a" * 40)
    assert reported_build(stated).sha == "a" * 40
    assert triage_row(stated, None)["environment"] == "local_commit"
    released = RepositoryFacts(
        "main", "b" * 40, CommitFacts("a" * 40, True, True, ("main",), ("v1",)), None, None, None, True
    )
    assert triage_row(stated, released)["environment"] == "public_release"
    assert triage_row(stated, released)["environment_evidence"][-1] == "commit aaaaaaaaaaaa is in release v1"


@pytest.mark.parametrize(
    "text",
    [
        '[{"title": "a", "body": "b"}, {"title": "c", "body": null, "id": "x"}]',
        '{"title": "a", "body": "b"}\n\n{"title": "c", "body": "", "id": "x"}\n',
        '\ufeff{"title": "a", "body": "b"}\r\n{"title": "c", "body": "", "id": "x"}',
    ],
    ids=["array", "lines", "lines with a mark and carriage returns"],
)
def test_arrays_and_lines_are_read_alike(text: str) -> None:
    """A JSON array and JSON lines give the same rows; a missing id is the position, an empty body is fine."""
    rows = parse_rows(text)
    assert [(entry["id"], entry["title"], entry["body"]) for entry in rows] == [(1, "a", "b"), ("x", "c", "")]


def test_one_object_over_several_lines_is_one_row() -> None:
    """A pretty-printed object is a file of one report."""
    assert len(parse_rows('{\n  "title": "a",\n  "body": "b"\n}\n')) == 1
    assert parse_rows("  \n ") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"title": "a", "body": "b"}\n\n{"title": "a"', "line 3 is not JSON"),
        ('{"title": "a", "body": "b"}\n{"title": "a"}', "line 2 has no body"),
        ('{"body": "b"}', "line 1 has no title"),
        ('[{"title": "a", "body": "b"}, 3]', "row 2 is not an object"),
        ('{"title": 3, "body": "b"}', "line 1: title and body must be text"),
        ("hello", "line 1 is not JSON"),
        ("[" * 100_000, "line 1 is nested too deeply|line 1 is not JSON"),
    ],
)
def test_a_bad_file_names_the_line(text: str, message: str) -> None:
    """What cannot be read is one sentence with the line or row in it."""
    with pytest.raises(ValueError, match=message):
        parse_rows(text)
