"""What people read: strangers' words made inert, and our own sentences."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from formica.rules import messages
from formica.rules.messages import neutralise
from formica.rules.plan import Plan

MENTION = re.compile(r"(?<![A-Za-z0-9])@[\w-]")
REFERENCE = re.compile(r"#\d|\bGH-\d|/(?:issues?|pulls?|discussions|merge_requests)/\d|!\d", re.IGNORECASE)
CLOSING = re.compile(
    r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)\b[:\s]+(?:[\w.-]+/[\w.-]+)?(?:#\d|GH-\d|https?://\S+/issues/\d)",
    re.IGNORECASE,
)
MARKUP = re.compile(r"<[A-Za-z/!?]|-->|&#?\w+;|\]\(|`")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
PIECES = [
    *(
        "@",
        "#",
        "!",
        "<",
        ">",
        "&",
        "`",
        "[",
        "]",
        "(",
        ")",
        "\u200b",
        "\u202e",
        "\n",
        " ",
        "-",
        "_",
        "\\",
        "/",
        ".",
        "é",
    ),
    *(
        "@octocat",
        "@org/team",
        "#12",
        "GH-12",
        "gh-3",
        "Fixes #12",
        "closes: org/repo#3",
        "resolved",
        "fixed",
        "!7",
        "&#64;user",
    ),
    *(
        "https://github.com/o/r/issues/12",
        "/pull/3",
        "<!--",
        "-->",
        "<img src=x>",
        "&lt;",
        "![x](http://e.test/p.png)",
        "text",
    ),
]
bodies = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=40).map("".join)


@given(bodies, st.sampled_from([12, 60, 4_000]), st.booleans())
@example("Fixes #12, thanks @octocat and @org/team", 4_000, False)
@example("@\u200boctocat #\u200b12 &#64;octocat", 4_000, False)
@example("é@octocat _@octocat .@octocat", 4_000, True)
@settings(max_examples=1_000, deadline=None)
def test_no_text_stays_live(body: str, limit: int, lines: bool) -> None:
    """A thousand bodies: never a live mention, reference, closing keyword, markup or control character."""
    text = neutralise(body, limit=limit, lines=lines)
    for pattern in (MENTION, REFERENCE, CLOSING, MARKUP, CONTROL):
        assert pattern.search(text) is None, (pattern.pattern, text)
    assert len(text) <= limit
    assert lines or "\n" not in text
    assert neutralise(text, limit=limit, lines=lines) == text


@pytest.mark.parametrize(
    "text",
    [
        "parse() returns None instead of 0",
        "mail to someone@example.com, package left-pad@1.3.0, git@host.example:org/repo",
        "a < b && c > d, 50 % of 3 + 4 = x",
        "C# and F# and issue number 12",
    ],
)
def test_harmless_text_is_unchanged(text: str) -> None:
    """What no forge acts on stays as it was written."""
    assert neutralise(text) == text


def test_long_text_is_cut_between_words_and_never_inside_a_character() -> None:
    """The cut keeps whole words where it can, and combining marks with their letter."""
    assert neutralise("word " * 50, limit=23) == "word word word word…"
    assert neutralise("e\u0301" * 20, limit=12).removesuffix("…").count("e") == neutralise(
        "e\u0301" * 20, limit=12
    ).count("\u0301")


def plan(**changes: object) -> Plan:
    fields: dict[str, object] = {
        "issue_entity_id": "ent_0123456789abcdef01234567",
        "issue_number": 12,
        "name": "formica",
        "kind": "bug",
        "summary": "Ask @octocat: crash, fixes #7 <b>now</b>",
        "base_sha": "a" * 40,
        "head_sha": "b" * 40,
        "branch": "formica/issue-12",
        "pr_url": "https://forge.example/o/r/pulls/3",
        "diff_stat": [{"path": "src/list.py", "status": "M", "added": 2, "deleted": 1}],
        "proof": {
            "proved": True,
            "reason": "one test fails on the base",
            "base_failed": True,
            "head_passed": True,
        },
    }
    return Plan.model_validate({**fields, **changes})


SECRET = "Zanzibar quokka"


def test_a_private_report_leaves_no_word_outside_its_thread() -> None:
    """Title, body and commit of a private report hold nothing of its text, its build or its reporter."""
    private = plan(
        private=True,
        summary=f"{SECRET} leaks",
        app_version=SECRET,
        git_ref=SECRET,
        kind_reasons=[SECRET],
        reproduction_environment_evidence=[SECRET],
        proof={
            "proved": True,
            "reason": SECRET,
            "base_failed": True,
            "head_passed": True,
            "commands": [{"output_tail": SECRET}],
        },
    )
    marker = messages.marker("formica", private.issue_entity_id, 0)
    texts = [
        messages.pull_request_title(12, private.summary, private=True),
        messages.pull_request_body(private, marker),
        messages.commit_message(12, private.summary, private=True),
        messages.resolution_summary(private),
    ]
    for text in texts:
        assert not any(word in text for word in SECRET.split()), text


def test_public_texts_name_the_report_and_are_inert() -> None:
    """The reporter's words reach the pull request, and nothing in them is live."""
    marker = messages.marker("formica", "ent_1", 0)
    title = messages.pull_request_title(12, plan().summary, private=False)
    body = messages.pull_request_body(plan(), marker)
    commit = messages.commit_message(12, plan().summary, private=False)
    assert title.startswith("Fix report 12: Ask @ octocat: crash")
    assert "\n" not in title
    for text in (title, body.replace(marker, ""), commit):
        for pattern in (MENTION, re.compile(r"#\d"), CLOSING):
            assert pattern.search(text) is None, text
    assert len(commit.split("\n")[0]) <= 72
    assert commit.split("\n")[1] == ""
    assert "Formica-Report: 12" in commit


def test_the_pull_request_says_what_was_proved_and_is_recognised_again() -> None:
    """The body carries the marker once, the proof, the files and the exact base and head."""
    marker = messages.marker("formica", "ent_1", 2)
    body = messages.pull_request_body(plan(), marker)
    assert body.count(marker) == 1
    for part in ("the base fails", "tests pass", "src/list.py (+2 -1)", "a" * 40, "b" * 40, "never merges"):
        assert part in body
    assert messages.marker("formica", "ent_1", 1) != marker
    assert messages.marker("--> <b>", "ent_1", 0) == "<!-- formica-item: -b/ent_1/0 -->"
    failed = plan(proof={"proved": False, "reason": "", "base_failed": False, "head_passed": False})
    assert messages.pull_request_body(failed, marker).count("NOT") == 2


@pytest.mark.parametrize("needs", [("reporter_git_sha",), ("reporter_app_version", "reporter_git_sha")])
def test_a_question_names_exactly_the_fields_it_needs(needs: tuple[str, ...]) -> None:
    """One question, with each needed field by its name, what is known, and nothing else."""
    text = messages.question(needs, ["version 9.9 names no release", "@octocat said #3"])
    for field in ("reporter_git_sha", "reporter_app_version", "reporter_patch_source_id", "reporter_git_ref"):
        assert (field in text) is (field in needs)
    assert "version 9.9 names no release" in text
    assert MENTION.search(text) is None


@pytest.mark.parametrize(
    ("outcome", "parts"),
    [
        ("pr_opened", ["https://forge.example/o/r/pulls/3", "b" * 40, "which build to verify"]),
        ("worktree_created", ["c" * 12, "apart from the main line"]),
        ("not_reproduced", ["could not be reproduced", "smallest steps"]),
        ("already_fixed", ["fixed already", "1.4.0"]),
        ("no_change", ["stays open"]),
        ("answered", ["answered"]),
        ("abandoned", ["cancelled"]),
    ],
)
def test_each_outcome_has_its_own_words(outcome: str, parts: list[str]) -> None:
    """The thread is told how it ended, and what the reporter can do; never on which host or path."""
    local = plan(
        outcome=outcome,
        git_sha="c" * 40,
        fixed_in_version="1.4.0",
        host="laptop-7",
        worktree_path="items/12/tree",
    )
    text = messages.outcome_message(local, "laptop-7")
    for part in parts:
        assert part in text
    assert "laptop-7" not in text
    assert "items/12" not in text


def test_merged_and_released_say_how_to_verify() -> None:
    """When a fix ships the reporter learns the exact build and the call that confirms it."""
    merged = messages.merged_message(plan(), "d" * 40)
    assert "d" * 40 in merged
    assert "verify_resolution" in merged
    assert "d" * 40 in messages.how_to_verify(plan(), "d" * 40)
    assert "1.4.0" in messages.released_message("1.4.0")
    assert messages.resolution_summary(plan()) == "Fixed by https://forge.example/o/r/pulls/3."


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        (
            {"reproduction_environment_kind": "public_release"},
            "open one pull request at forge",
            "push nothing",
        ),
        (
            {"reproduction_environment_kind": "local_commit", "git_sha": "c" * 40},
            "push nothing",
            "pull request at",
        ),
        ({"security": True}, "publish nothing", "pull request at"),
        ({"kind": "question"}, "execute nothing", "pull request at"),
    ],
)
def test_a_dry_run_says_exactly_what_would_happen(changes: dict[str, object], said: str, unsaid: str) -> None:
    """Each kind of work is listed step by step, and what would not happen is not listed."""
    steps = "\n".join(messages.would_do(plan(**changes), "forge"))
    assert said in steps
    assert unsaid not in steps


@pytest.mark.parametrize(
    "title",
    [
        "Crash [skip ci]",
        "Crash [ci skip] now",
        "***NO_CI*** crash",
        "Crash [[no ci]]",
        "Crash skip-checks: true",
        "[Skip Actions] crash",
    ],
)
def test_a_title_gives_no_order_to_a_ci(title: str) -> None:
    """What continuous integration reads out of a subject is broken up; the words stay for people."""
    for rendered in (
        messages.pull_request_title(7, title, private=False),
        messages.commit_message(7, title, private=False).splitlines()[0],
    ):
        assert not re.search(r"\[[^\]]*(ci|skip)[^\]]*\]|\*\*\*|skip-checks:", rendered, re.IGNORECASE)
        assert re.search(r"ci|skip", rendered, re.IGNORECASE)
