"""Nothing that a run leaves can make a plan unwritable."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from formica.rules.storable import LIMIT_BYTES, storable

SHA = "4f0c2d1a9b8e7f6d5c4b3a29180f7e6d5c4b3a29"
TOKEN = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"


def test_long_lists_are_cut_and_say_so() -> None:
    """Four thousand findings become a few and the number of the others."""
    kept = storable(
        {"findings": [f"tests/e{number}.sh: new executable {'x' * 60}" for number in range(4_000)]}
    )
    assert kept["findings"][-1].startswith("… and ")
    assert len(json.dumps(kept)) <= LIMIT_BYTES


def test_names_that_are_not_utf8_are_spelled_out() -> None:
    """A file name with stray bytes is written in a form that every JSON reader takes."""
    kept = storable({"diff_stat": [{"path": "tests/bad\udcff.txt"}]})
    assert kept["diff_stat"][0]["path"] == "tests/bad\\udcff.txt"


def test_credentials_in_output_are_redacted_and_hashes_are_not() -> None:
    """A test that printed a token costs the token, not the plan."""
    kept = storable(
        {"proof": {"output_tail": f"token {TOKEN}"}, "head_sha": SHA, "lease": None, "attempt": 2}
    )
    assert TOKEN not in json.dumps(kept)
    assert (kept["head_sha"], kept["lease"], kept["attempt"]) == (SHA, None, 2)


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5)
            ),
            max_leaves=20,
        ),
        max_size=6,
    )
)
def test_whatever_it_is_it_can_be_sent(fields: dict[str, object]) -> None:
    """The result is valid JSON in UTF-8, and doing it twice changes nothing more."""
    kept = storable(fields)
    json.dumps(kept, ensure_ascii=False).encode("utf-8")
    assert storable(kept) == kept
