"""Which tests failed, read from what a test runner printed. Pure.

Known: pytest, unittest, go test, cargo test, Jest. An answer is given only where the names add up to the counts the
runner itself reports; anything else is None, because a name that was missed would look like a test that passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Suite", "read_suite"]


@dataclass(frozen=True, slots=True)
class Suite:
    """The failing tests by the runner's own names, and how many tests (go: packages) ran."""

    failing: frozenset[str]
    ran: int


_PYTEST_END = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s(?: \([\d:]+\))? ?=*$", re.MULTILINE)
_PYTEST_COUNT = re.compile(r"(\d+) (passed|failed|errors?|xfailed|xpassed)\b")
_PYTEST_NAME = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - .*)?$", re.MULTILINE)
_UNITTEST_END = re.compile(
    r"^Ran (\d+) tests? in [\d.]+s\n+(?:OK|FAILED|NO TESTS RAN)(?: \((.*)\))?$", re.MULTILINE
)
_UNITTEST_NAME = re.compile(r"^(?:FAIL|ERROR|UNEXPECTED SUCCESS): (.+)$", re.MULTILINE)
_UNITTEST_COUNT = re.compile(r"(?:failures|errors|unexpected successes)=(\d+)")
_GO_PACKAGE = re.compile(r"^(ok|FAIL)\s+(\S+)(?:\s+(\[.*\]|\(cached\)|[\d.]+s).*)?$", re.MULTILINE)
_GO_NAME = re.compile(r"^\s*--- FAIL: (\S+)", re.MULTILINE)
_CARGO_END = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;", re.MULTILINE)
_CARGO_NAMES = re.compile(r"^failures:\n((?:    \S+\n)+)", re.MULTILINE)
_JEST_END = re.compile(r"^Tests: +(?:(\d+) failed, )?(?:.*, )?(\d+) total$", re.MULTILINE)
_JEST_NAME = re.compile(r"^ +● (.+ › .+|\S.*)$", re.MULTILINE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class _Unclear(Exception):
    """A runner printed its end, and it does not fit the rest."""


def read_suite(output: str) -> Suite | None:
    """The failing tests in all that a test command printed, or None where that cannot be told for sure."""
    plain = _COLOUR.sub("", output).replace("\r\n", "\n")
    try:
        found = [suite for reader in _READERS if (suite := reader(plain)) is not None]
    except _Unclear:
        return None
    return found[0] if len(found) == 1 else None


def _pytest(output: str) -> Suite | None:
    ends = _PYTEST_END.findall(output)
    if not ends:
        return None
    if len(ends) > 1:
        raise _Unclear
    counts = {kind.rstrip("s"): int(count) for count, kind in _PYTEST_COUNT.findall(ends[0])}
    names = _PYTEST_NAME.findall(output)
    if len(names) != counts.get("failed", 0) + counts.get("error", 0):
        raise _Unclear
    return Suite(frozenset(names), sum(counts.values()))


def _unittest(output: str) -> Suite | None:
    ends = _UNITTEST_END.findall(output)
    if not ends:
        return None
    if len(ends) > 1:
        raise _Unclear
    names = _UNITTEST_NAME.findall(output)
    if len(names) != sum(map(int, _UNITTEST_COUNT.findall(ends[0][1]))):
        raise _Unclear
    return Suite(frozenset(names), int(ends[0][0]))


def _go(output: str) -> Suite | None:
    packages = [row for row in _GO_PACKAGE.findall(output) if row[2]]
    failed = [package for verdict, package, _ in packages if verdict == "FAIL"]
    names = _GO_NAME.findall(output)
    built = [package for verdict, package, note in packages if verdict == "FAIL" and "build failed" in note]
    if not packages:
        return None
    if (len(failed) > len(built)) != bool(names):
        raise _Unclear
    return Suite(frozenset([*names, *built]), len(packages))


def _cargo(output: str) -> Suite | None:
    ends = _CARGO_END.findall(output)
    if not ends:
        return None
    if "could not compile" in output:
        raise _Unclear
    names = [name for block in _CARGO_NAMES.findall(output) for name in block.split()]
    if len(names) != sum(int(failed) for _, failed in ends):
        raise _Unclear
    return Suite(frozenset(names), sum(int(passed) + int(failed) for passed, failed in ends))


def _jest(output: str) -> Suite | None:
    ends = _JEST_END.findall(output)
    if not ends:
        return None
    if len(ends) > 1:
        raise _Unclear
    names = set(_JEST_NAME.findall(output))
    if len(names) != int(ends[0][0] or 0):
        raise _Unclear
    return Suite(frozenset(names), int(ends[0][1]))


_READERS: tuple[Callable[[str], Suite | None], ...] = (_pytest, _unittest, _go, _cargo, _jest)
