"""How tests look in each language: what declares one, what asserts, what switches it off. Pure.

Read line by line, as a diff is. Sources: the documentation of pytest, unittest, Jest, Vitest, Mocha, Playwright,
Go's testing, Rust's test attribute, JUnit 4 and 5, AssertJ, TestNG, Minitest and RSpec.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["Language", "Strength", "language_of"]

Strength = Literal[0, 1, 2]
"""0: no assertion, or one that cannot fail; 1: a loose one (truth, presence, type); 2: one that compares."""


@dataclass(frozen=True, slots=True)
class Language:
    """``declares`` names a test in its first group that matched; the other patterns are searched in a line
    without its comment."""

    suffixes: tuple[str, ...]
    comment: re.Pattern[str]
    declares: re.Pattern[str]
    marks: re.Pattern[str] | None
    """What must stand in one of the four lines above, or in the declaration, for it to be a test."""
    asserts: re.Pattern[str]
    loose: re.Pattern[str]
    empty: re.Pattern[str]
    """Assertions that hold whatever the code does."""
    skips: re.Pattern[str]

    def code(self, line: str) -> str:
        """The line without what the language ignores."""
        return self.comment.sub("", line).strip()

    def strength(self, line: str) -> Strength:
        code = self.code(line)
        if not self.asserts.search(code) or self.empty.search(code):
            return 0
        return 1 if self.loose.search(code) else 2

    def name(self, line: str) -> str | None:
        """The test that this line declares; for those with ``marks``, if it is one."""
        found = self.declares.search(self.code(line))
        return next((group for group in found.groups() if group), None) if found else None


_SLASHES = re.compile(r"(?:(?<![:\"'])//.*|/\*.*?\*/|^\s*/?\*.*)$")
_HASH = re.compile(r"(?:^|(?<=\s))#(?!\[).*$")
_EARLY = r"^if \(?(?:False|false|0)\)?\s*[:{]?$"

_PYTHON = Language(
    suffixes=(".py", ".pyi"),
    comment=_HASH,
    declares=re.compile(r"^(?:async )?def (test\w*)|^class (Test\w*)|^class (\w+)\(.*TestCase\)"),
    marks=None,
    asserts=re.compile(
        r"^assert\b|\bself\.(?:assert\w+|fail)\(|\bpytest\.(?:raises|warns|fail)\(|\bassert_\w+\(|\.assert_\w+\("
    ),
    loose=re.compile(
        r"^assert (?!.*(?:==|<|>|\bis\b|\bin\b))|^assert .*\bis not None\b|^assert .*!=|^assert (?:(?!==).)*\bin\b"
        r"|^assert (?:(?!==).)*[<>]|^assert .*\bor\b|\.assert(?:True|IsNotNone|In|IsInstance|NotEqual)\("
        r"|\.assert_called\(\)|(?:[rR]aises|pytest\.warns)\((?:Base)?Exception\b"
    ),
    empty=re.compile(
        r"^assert (?:True|1|not False|\"[^\"]*\"|'[^']*'|(\w+) == \1)(?:,.*)?$|\.assertTrue\(True\)"
    ),
    skips=re.compile(
        r"\bpytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip)\b|\bunittest\.(?:skip\w*|expectedFailure|SkipTest)\b"
        r"|\.skipTest\(|^@(?:skip\w*|expectedFailure)\b|\bSkipTest\b|\b__test__ = False|\bcollect_ignore"
        rf"|\bsuppress\((?:AssertionError|Exception)|^except (?:AssertionError|Exception|BaseException)?\s*:|^raise SkipTest|{_EARLY}"
    ),
)
_SCRIPT = Language(
    suffixes=(".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts", ".vue", ".svelte"),
    comment=_SLASHES,
    declares=re.compile(
        r"\b(?:it|test|specify)(?:\.(?:each|concurrent)\b.*?)?\(\s*(?:'([^']+)'|\"([^\"]+)\"|`([^`]+)`)"
    ),
    marks=None,
    asserts=re.compile(
        r"\bexpect\(|\bassert(?:\.\w+)?\(|\bt\.(?:is|deepEqual|true|false|throws\w*|equal)\(|\.should\b"
    ),
    loose=re.compile(
        r"\.(?:toBeTruthy|toBeDefined|toBeFalsy|toBeInstanceOf|toContain|toHaveBeenCalled|toMatchSnapshot)\("
        r"|\.not\.to|\.toBe(?:Greater|Less)\w*\(|expect\.any\w*\(|\bassert\([^=]*\)|\bassert\.ok\(|\.toThrow\(\)|\.ok\b"
    ),
    empty=re.compile(
        r"\bexpect\((true|false|\d+)\)\.\w+\(\1\)|\bassert(?:\.ok)?\((?:true|1)\)|\bexpect\(true\)\.toBeTruthy"
    ),
    skips=re.compile(
        r"\b(?:it|test|describe|context|suite|specify)\.(?:\w+\.)?(?:skip\w*|only|todo|fixme|fails|failing)\b"
        rf"|\b(?:xit|xtest|xdescribe|xcontext|xspecify|fit|fdescribe)\(|\bthis\.skip\(|\btest\.fail\(|{_EARLY}"
    ),
)
_GO = Language(
    suffixes=(".go",),
    comment=re.compile(r"(?<![:\"])//(?!go:build|\s*\+build).*$"),
    declares=re.compile(r"^func (?:\(.*?\) )?((?:Test|Fuzz|Example)\w*)\(|\bt\.Run\(\"([^\"]+)\""),
    marks=None,
    asserts=re.compile(
        r"\b[tb]\.(?:Error|Errorf|Fatal|Fatalf|Fail|FailNow)\(|\b(?:assert|require|is)\.\w+\(|\bcmp\.Diff\("
    ),
    loose=re.compile(
        r"\b(?:assert|require)\.(?:True|NotNil|NotEmpty|NotEqual|NoError|Error|Contains|NotZero)f?\("
    ),
    empty=re.compile(r"\b(?:assert|require)\.True\(t, true"),
    skips=re.compile(rf"\b[tb]\.Skip(?:f|Now)?\(|\btesting\.Short\(\)|//go:build |//\s*\+build |{_EARLY}"),
)
_RUST = Language(
    suffixes=(".rs",),
    comment=_SLASHES,
    declares=re.compile(r"^(?:pub )?(?:async )?fn (\w+)"),
    marks=re.compile(r"#\[(?:\w+::)?(?:test|rstest|test_case|quickcheck)\b"),
    asserts=re.compile(r"\b(?:debug_)?assert\w*!\(|\bpanic!\(|#\[should_panic|\.unwrap_err\("),
    loose=re.compile(r"\bassert!\((?:(?!==).)*\)|\bassert_ne!\(|#\[should_panic\]|\.is_(?:ok|some|err)\(\)"),
    empty=re.compile(r"\bassert!\(true\)|\bassert_eq!\((\w+), \1\)"),
    skips=re.compile(rf"#\[ignore\b|#\[cfg\((?:any\(\)|FALSE|not\(test\))|{_EARLY}"),
)
_JAVA = Language(
    suffixes=(".java", ".kt", ".kts", ".scala", ".groovy"),
    comment=_SLASHES,
    declares=re.compile(r"\b(?:void|fun|def)\s+(\w+|`[^`]+`)\s*\("),
    marks=re.compile(r"@(?:Test|ParameterizedTest|RepeatedTest|TestFactory|Property)\b"),
    asserts=re.compile(r"\b(?:assert|verify|fail|expect)\w*\s*\(|^assert\b|\.should\w*\(|\bexpected\s*="),
    loose=re.compile(
        r"\bassert(?:True|NotNull|NotEquals|NotSame)\s*\(|\.is(?:NotNull|NotEmpty|True|InstanceOf|Positive)\("
        r"|assertThrows\(\s*(?:Exception|Throwable|RuntimeException)\b|\.isNotEqualTo\("
    ),
    empty=re.compile(r"\bassertTrue\(\s*true\b|\bassertEquals\(\s*(\w+)\s*,\s*\1\s*\)"),
    skips=re.compile(
        r"@(?:\w+\.)*(?:Ignore|Disabled\w*|EnabledIf\w*|EnabledOn\w*|Pending)\b|\bassum(?:e|ing)(?:True|False|That|NotNull)?\s*\("
        rf"|\benabled\s*=\s*false|\bcatch \((?:AssertionError|Throwable|Exception) |{_EARLY}"
    ),
)
_RUBY = Language(
    suffixes=(".rb",),
    comment=_HASH,
    declares=re.compile(r"^def (test_\w+)|^(?:it|specify|test|example)\s*\(?\s*(?:'([^']+)'|\"([^\"]+)\")"),
    marks=None,
    asserts=re.compile(
        r"\b(?:assert|refute)\w*\b|\bexpect(?:\(|\s*\{| do)|\.(?:must|wont)_\w+|\.should\b|\bis_expected\b"
    ),
    loose=re.compile(
        r"^(?:assert|refute) |\bassert_(?:not_nil|respond_to|includes|kind_of|instance_of)\b|be_(?:truthy|present|nil|a)\b"
        r"|\.not_to\b|\.to_not\b|to include\b|raise_error\s*$|be [<>]"
    ),
    empty=re.compile(r"^assert true$|expect\((true|\d+)\)\.to eq\(?\s*\1"),
    skips=re.compile(
        r"^(?:skip|pending|omit)\b|^(?:xit|xspecify|xexample|xdescribe|xcontext|fit|fdescribe|fcontext)\b"
        rf"|\b(?:skip|pending|focus): |, :(?:skip|focus)\b|\brescue (?:Exception|Minitest::Assertion)|{_EARLY}|^return (?:if|unless)\b"
    ),
)
_ALL = (_PYTHON, _SCRIPT, _GO, _RUST, _JAVA, _RUBY)


def language_of(path: str) -> Language | None:
    """By the name's ending; None where tests cannot be read."""
    lowered = path.lower()
    return next((language for language in _ALL if lowered.endswith(language.suffixes)), None)
