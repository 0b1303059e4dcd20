"""Which tests failed, from what runners really print; where it cannot be told for sure, nothing is said."""

from __future__ import annotations

import pytest

from formica.rules.suite_output import Suite, read_suite

PYTEST = """.F.E                                                                     [100%]
=================================== FAILURES ===================================
E       assert 1 == 2
=========================== short test summary info ============================
FAILED tests/test_a.py::test_b[x y] - assert 1 == 2
ERROR tests/test_c.py - ImportError: no module
1 failed, 2 passed, 1 error in 0.12s
"""
UNITTEST = """F.E
======================================================================
ERROR: test_c (tests.test_c.C.test_c)
----------------------------------------------------------------------
FAIL: test_a (tests.test_a.A.test_a)
----------------------------------------------------------------------
Ran 3 tests in 0.001s

FAILED (failures=1, errors=1)
"""
GO = """--- FAIL: TestAdd (0.00s)
    calc_test.go:7: got 3
FAIL
FAIL	example.com/calc	0.002s
ok  	example.com/other	0.001s
# example.com/broken
FAIL	example.com/broken [build failed]
FAIL
"""
CARGO = """
running 2 tests
F.
failures:

---- tests::adds stdout ----
assertion failed

failures:
    tests::adds

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
"""
JEST = """FAIL src/add.test.js
  ● add › adds numbers

    expect(received).toBe(expected)

Tests:       1 failed, 2 passed, 3 total
"""


@pytest.mark.parametrize(
    ("output", "failing", "ran"),
    [
        (PYTEST, {"tests/test_a.py::test_b[x y]", "tests/test_c.py"}, 4),
        ("....\n4 passed in 0.01s\n", set(), 4),
        ("=== 4 passed, 1 warning in 61.01s (0:01:01) ===\n", set(), 4),
        ("\x1b[32m4 passed\x1b[0m in 0.01s\n", set(), 4),
        (UNITTEST, {"test_a (tests.test_a.A.test_a)", "test_c (tests.test_c.C.test_c)"}, 3),
        ("..\n-----\nRan 2 tests in 0.001s\n\nOK (skipped=1)\n", set(), 2),
        (GO, {"TestAdd", "example.com/broken"}, 3),
        ("ok  \texample.com/calc\t(cached)\n", set(), 1),
        (CARGO, {"tests::adds"}, 2),
        (JEST, {"add › adds numbers"}, 3),
    ],
)
def test_failing_tests_are_named(output: str, failing: set[str], ran: int) -> None:
    """The runner's own names, and how many ran."""
    assert read_suite(output) == Suite(frozenset(failing), ran)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "make: *** [test] Error 1\n",
        PYTEST.replace("FAILED tests/test_a.py::test_b[x y] - assert 1 == 2\n", ""),
        PYTEST + "1 passed in 0.1s\n",
        PYTEST + UNITTEST,
        UNITTEST.replace("FAIL: test_a (tests.test_a.A.test_a)\n", ""),
        UNITTEST.replace("Ran 3 tests in 0.001s\n", ""),
        GO.replace("--- FAIL: TestAdd (0.00s)\n", ""),
        CARGO.replace("    tests::adds\n", ""),
        JEST.replace("  ● add › adds numbers\n", ""),
    ],
)
def test_what_does_not_add_up_is_not_believed(output: str) -> None:
    """A name missed, a count missing, two runners in one output: nothing is said."""
    assert read_suite(output) is None
