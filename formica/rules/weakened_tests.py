"""Tests that a change only made weaker. Pure.

Per file: assertions removed and not replaced, tests deleted or no longer run, skips added, comparisons loosened,
expected values changed. What only moved to another test file of the change is not lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from formica.rules.assertion_forms import Language, language_of
from formica.rules.facts import Change, FileChange, FileText, Row
from formica.rules.finding import Finding
from formica.rules.testfiles import is_test_path, is_test_settings

__all__ = ["weakened_tests"]

RULE = "weakened_test"
_MARKS_ABOVE = 4
_VALUE = re.compile(
    r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|`[^`]*`|(?<![\w.])-?\d[\w.]*|\b(?:[Tt]rue|[Ff]alse|None|null|nil)\b"
)
_TOLERANCE = re.compile(
    r"\b(abs|rel|delta|places|atol|rtol|epsilon|be_within)\b\s*[=(:]?\s*=?\s*([\d.]+(?:e-?\d+)?)"
)
_FEWER_IS_LOOSER = {"places"}
_WORD = re.compile(r"\w")
# Closing brackets and `end` are everybody's.
_WORDY = 4
_RETURN = re.compile(r"^\s*return;?\s*$")
_CHOOSES_TESTS = re.compile(
    r"addopts|--ignore|--deselect|\s-k\s|\s-m\s|testpaths|norecursedirs|collect_ignore|python_(?:files|functions|classes)"
    r"|testPathIgnorePatterns|testMatch|testRegex|passWithNoTests|--bail|<exclude|<skipTests|<skip>|testFailureIgnore"
    r"|surefire|\"test\"\s*:|\|\|\s*true|exclude:|pytest_(?:collection|runtest|ignore|sessionfinish|report)\w*|\b_exit\(",
    re.IGNORECASE,
)


def weakened_tests(change: Change) -> Iterator[Finding]:
    """Every place where the change's tests say less than those of the base."""
    moved = _moved_lines(change)
    for file in change.files:
        text = change.texts.get(file.path)
        if text is None:
            continue
        if is_test_settings(file.path):
            yield from _settings(file.path, text)
        if not is_test_path(file.path):
            continue
        language = language_of(file.path)
        if file.status == "D":
            if not _is_moved(text, moved):
                yield Finding(RULE, file.path, None, "test file deleted")
        elif language is not None:
            if not text.whole:
                yield Finding(RULE, file.path, None, "the test file is too large to be compared")
            yield from _File(file, text, language, moved).findings()


def _moved_lines(change: Change) -> Mapping[str, int]:
    """Lines that test files of the change gained, by how often."""
    gained: Counter[str] = Counter()
    for file in change.files:
        if is_test_path(file.path) and file.path in change.texts:
            gained.update(row.text.strip() for row in change.texts[file.path].added if row.text.strip())
    return gained


def _is_moved(text: FileText, gained: Mapping[str, int]) -> bool:
    lines = [row.text.strip() for row in text.removed if row.text.strip()]
    return bool(lines) and 10 * sum(1 for line in lines if gained.get(line)) >= 9 * len(lines)


def _settings(path: str, text: FileText) -> Iterator[Finding]:
    for row in text.added:
        if _CHOOSES_TESTS.search(row.text):
            yield Finding(RULE, path, row.new, "changes which tests are run, or whether their failure counts")


@dataclass(frozen=True, slots=True)
class _Test:
    """One declared test: its lines from ``first`` up to, not including, ``end``, as indices of rows."""

    name: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class _File:
    file: FileChange
    text: FileText
    language: Language
    moved: Mapping[str, int]

    def findings(self) -> Iterator[Finding]:
        yield from self._switched_off()
        if self.file.status == "A":
            return
        lost = list(self._lost_tests())
        yield from lost
        yield from self._loosened()
        if not lost:
            yield from self._lost_assertions()

    # --- skips --------------------------------------------------------------------------------------------

    def _switched_off(self) -> Iterator[Finding]:
        before = Counter(self.language.code(row.text) for row in self.text.removed)
        new = self.text.new
        for at, row in enumerate(new):
            if row.mark != "+":
                continue
            code = self.language.code(row.text)
            if before[code] > 0:
                before[code] -= 1
            elif self.language.skips.search(code):
                yield self._found(row.new, "a test is skipped, ignored or the only one run")
            elif _RETURN.match(row.text) and _goes_on(row, new[at + 1 :]):
                yield self._found(row.new, "a test ends before its last lines")

    # --- tests --------------------------------------------------------------------------------------------

    def _lost_tests(self) -> Iterator[Finding]:
        old = _tests(self.text.old, self.language)
        new = _tests(self.text.new, self.language)
        old_names, new_names = Counter(test.name for test in old), Counter(test.name for test in new)
        places = {row.new: number for number, row in enumerate(self.text.new)}
        for test in old:
            body = self.text.old[test.first : test.end]
            stays = body[0].mark == " " and new_names[test.name] > 0
            if stays or old_names[test.name] <= new_names[test.name] or self._declared_elsewhere(body):
                continue
            if not self._is_renamed(body, new, old_names, places):
                yield self._found(body[0].new, f"the test {test.name} is deleted or no longer run")

    def _declared_elsewhere(self, body: Sequence[Row]) -> bool:
        """Its declaration and nearly all its lines were added to another test file of the change."""
        lines = [row.text.strip() for row in body if row.text.strip()]
        here = Counter(row.text.strip() for row in self.text.added)
        kept = sum(1 for line in lines if self.moved.get(line, 0) > here[line])
        return self.moved.get(lines[0], 0) > here[lines[0]] and 10 * kept >= 9 * len(lines)

    def _is_renamed(
        self, body: Sequence[Row], new: Sequence[_Test], old_names: Counter[str], places: Mapping[int, int]
    ) -> bool:
        """Most of its lines stayed, and they stand in a test with a name that is new."""
        lines = [row for row in body[1:] if len(_WORD.findall(row.text)) >= _WORDY]
        kept = [row for row in lines if row.mark == " "]
        if 2 * len(kept) <= len(lines):
            return False
        place = places[kept[0].new]
        holder = next((test for test in reversed(new) if test.first <= place < test.end), None)
        return holder is not None and holder.name not in old_names

    # --- assertions ---------------------------------------------------------------------------------------

    def _lost_assertions(self) -> Iterator[Finding]:
        """Per test that there was before: what it asserts now is not less than what it asserted."""
        for removed, added in self._per_test():
            strong = [row for row in removed if self.language.strength(row.text)]
            gained = sum(1 for row in added if self.language.strength(row.text))
            elsewhere = Counter(row.text.strip() for row in self.text.added)
            lost = [
                row for row in strong if self.moved.get(row.text.strip(), 0) <= elsewhere[row.text.strip()]
            ]
            if len(lost) > gained:
                count = len(lost) - gained
                detail = f"{count} assertion{'s' if count > 1 else ''} removed and not replaced"
                yield self._found(lost[0].new, detail)

    def _per_test(self) -> Iterator[tuple[list[Row], list[Row]]]:
        """Removed and added rows, test by test; what stands outside of all tests is one group."""
        groups: dict[str, tuple[list[Row], list[Row]]] = {}
        inside = ""
        for row in self.text.rows:
            inside = self.language.name(row.text) or inside
            removed, added = groups.setdefault(inside, ([], []))
            if row.mark == "-":
                removed.append(row)
            elif row.mark == "+":
                added.append(row)
        yield from groups.values()

    def _loosened(self) -> Iterator[Finding]:
        for before, after in _replaced(self.text.rows):
            for old, new in _pairs(before, after, self.language):
                yield from self._compared(old, new)

    def _compared(self, old: Row, new: Row) -> Iterator[Finding]:
        was, now = self.language.code(old.text), self.language.code(new.text)
        strength = self.language.strength(new.text)
        if strength and strength < self.language.strength(old.text):
            yield self._found(new.new, "an assertion compares less exactly than before")
        elif _is_wider(was, now):
            yield self._found(new.new, "a tolerance was widened")
        elif _TOLERANCE.sub("", was) != _TOLERANCE.sub("", now) and _VALUE.sub("_", was) == _VALUE.sub(
            "_", now
        ):
            yield self._found(new.new, "an expected value was changed")

    def _found(self, line: int, detail: str) -> Finding:
        return Finding(RULE, self.file.path, line, detail)


def _tests(rows: Sequence[Row], language: Language) -> list[_Test]:
    starts = []
    for at, row in enumerate(rows):
        name = language.name(row.text)
        if name is None:
            continue
        above = [language.code(near.text) for near in rows[max(at - _MARKS_ABOVE, 0) : at + 1]]
        if language.marks is None or any(language.marks.search(line) for line in above):
            starts.append((name, at))
    ends = [*(at for _, at in starts[1:]), len(rows)] if starts else []
    return [_Test(name, at, end) for (name, at), end in zip(starts, ends, strict=True)]


def _replaced(rows: Sequence[Row]) -> Iterator[tuple[list[Row], list[Row]]]:
    """Each run of changed lines, as what was there and what is."""
    before: list[Row] = []
    after: list[Row] = []
    for row in rows:
        if row.mark == "-":
            before.append(row)
        elif row.mark == "+":
            after.append(row)
        elif before or after:
            yield before, after
            before, after = [], []
    yield before, after


def _pairs(before: Sequence[Row], after: Sequence[Row], language: Language) -> Iterator[tuple[Row, Row]]:
    """Old assertions with the new ones that took their place, in order; one that stayed pairs with itself."""
    stayed = {row.text.strip() for row in after}
    old = [row for row in before if language.strength(row.text) and row.text.strip() not in stayed]
    same = {row.text.strip() for row in before}
    new = [row for row in after if language.strength(row.text) and row.text.strip() not in same]
    yield from zip(old, new, strict=False)


def _is_wider(was: str, now: str) -> bool:
    before, after = dict(_TOLERANCE.findall(was)), dict(_TOLERANCE.findall(now))
    for name in before.keys() & after.keys():
        old, new = float(before[name].rstrip(".")), float(after[name].rstrip("."))
        if (new < old) if name in _FEWER_IS_LOOSER else (new > old):
            return True
    return not before and bool(after)


def _goes_on(row: Row, following: Sequence[Row]) -> bool:
    """Whether the next line stands as deep as this one: what follows a return there never runs."""
    following_row = next((after for after in following if after.text.strip()), None)
    return following_row is not None and _depth(following_row.text) == _depth(row.text)


def _depth(text: str) -> str:
    return text[: len(text) - len(text.lstrip())]
