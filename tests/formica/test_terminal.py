"""What a reporter or an agent wrote never drives the operator's terminal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from formica.rules.plan import Plan
from formica.rules.plan_text import plan_markdown, printable

ESCAPE = "\x1b]0;owned\x07\x1b[2J"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    """An escape sequence in a stored field comes out as its name."""
    plan = Plan(
        issue_entity_id="ent_" + "0" * 24,
        issue_number=7,
        name="formica",
        app_version=f"1.0{ESCAPE}",
        reproduction_environment_evidence=[f"the text names {ESCAPE}"],
    )
    shown = printable(plan_markdown(plan))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\\x1b]0;owned\\x07" in shown
    assert shown.startswith("# Plan for #7")


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_only_line_feeds_and_tabs_survive_of_the_unprintable(text: str) -> None:
    """Whatever the text, nothing but printable characters, line feeds and tabs reaches the terminal."""
    assert all(character in "\n\t" or character.isprintable() for character in printable(text))
