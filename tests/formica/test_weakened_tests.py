"""A change may add to tests, move and rename them; what it takes from them needs a person."""

from __future__ import annotations

import pytest

from formica.rules.finding import Finding
from formica.rules.weakened_tests import weakened_tests
from tests.fakes.changes import Pair, change, changed

PYTHON = """import pytest
from app import add


def test_add():
    assert add(2, 3) == 5
    assert add(0, 0) == 0


def test_raises():
    with pytest.raises(ValueError):
        add(None, 1)
    assert add(1.0, 2.0) == pytest.approx(3.0, abs=1e-6)
"""
SCRIPT = """describe('add', () => {
  it('adds', () => {
    expect(add(2, 3)).toBe(5);
    expect(add(0, 0)).toBe(0);
  });
  test("throws", () => {
    expect(() => add(null)).toThrow(TypeError);
  });
});
"""
GO = """package calc

func TestAdd(t *testing.T) {
	if got := Add(2, 3); got != 5 {
		t.Errorf("got %d", got)
	}
	require.Equal(t, 0, Add(0, 0))
}

func TestSub(t *testing.T) {
	assert.Equal(t, 1, Sub(3, 2))
}
"""
RUST = """#[cfg(test)]
mod tests {
    #[test]
    fn adds() {
        assert_eq!(add(2, 3), 5);
        assert_eq!(add(0, 0), 0);
    }

    #[test]
    #[should_panic(expected = "overflow")]
    fn overflows() {
        add(i32::MAX, 1);
    }
}
"""
JAVA = """class AddTest {
    @Test
    void adds() {
        assertEquals(5, add(2, 3));
        assertThat(add(0, 0)).isEqualTo(0);
    }

    @Test
    public void refuses() {
        assertThrows(IllegalArgumentException.class, () -> add(null, 1));
    }
}
"""
RUBY = """class AddTest < Minitest::Test
  def test_adds
    assert_equal 5, add(2, 3)
    assert_equal 0, add(0, 0)
  end

  it 'refuses' do
    expect { add(nil, 1) }.to raise_error(ArgumentError)
  end
end
"""
FILES = {
    "tests/test_add.py": PYTHON,
    "src/add.test.ts": SCRIPT,
    "calc/add_test.go": GO,
    "tests/add.rs": RUST,
    "src/test/java/AddTest.java": JAVA,
    "test/add_test.rb": RUBY,
}


def found(*pairs: Pair) -> list[Finding]:
    return list(weakened_tests(change(*pairs)))


def edited(path: str, *edits: tuple[str, str]) -> list[Finding]:
    text = FILES[path]
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new, 1)
    return found(changed(path, FILES[path], text))


PY, TS, GO_FILE, RS, JV, RB = FILES

WEAKER = [
    # an assertion is gone, or cannot fail any more
    (PY, "    assert add(0, 0) == 0\n", "", "1 assertion removed"),
    (PY, "    assert add(0, 0) == 0\n", "    # assert add(0, 0) == 0\n", "1 assertion removed"),
    (PY, "    assert add(0, 0) == 0\n", "    assert True\n", "1 assertion removed"),
    (PY, "    assert add(2, 3) == 5\n    assert add(0, 0) == 0\n", "    pass\n", "2 assertions removed"),
    (TS, "    expect(add(0, 0)).toBe(0);\n", "", "1 assertion removed"),
    (TS, "    expect(add(0, 0)).toBe(0);\n", "    // expect(add(0, 0)).toBe(0);\n", "1 assertion removed"),
    (TS, "    expect(add(0, 0)).toBe(0);\n", "    expect(true).toBe(true);\n", "1 assertion removed"),
    (GO_FILE, '		t.Errorf("got %d", got)\n', "", "1 assertion removed"),
    (GO_FILE, "	require.Equal(t, 0, Add(0, 0))\n", "", "1 assertion removed"),
    (RS, "        assert_eq!(add(0, 0), 0);\n", "", "1 assertion removed"),
    (RS, "        assert_eq!(add(0, 0), 0);\n", "        assert!(true);\n", "1 assertion removed"),
    (JV, "        assertThat(add(0, 0)).isEqualTo(0);\n", "", "1 assertion removed"),
    (RB, "    assert_equal 0, add(0, 0)\n", "", "1 assertion removed"),
    # a test is gone, or not run
    (PY, PYTHON[PYTHON.index("def test_raises") :], "", "test_raises is deleted"),
    (PY, "def test_raises", "def check_raises", "test_raises is deleted or no longer run"),
    (TS, SCRIPT[SCRIPT.index("  test(") : SCRIPT.index("});\n});") + 4], "", "throws is deleted"),
    (TS, '  test("throws"', '  helper("throws"', "throws is deleted or no longer run"),
    (GO_FILE, GO[GO.index("func TestSub") :], "", "TestSub is deleted"),
    (GO_FILE, "func TestSub", "func testSub", "TestSub is deleted or no longer run"),
    (RS, "    #[test]\n    fn adds", "    fn adds", "adds is deleted or no longer run"),
    (RS, RUST[: RUST.index("    #[test]\n    #[should")][43:], "", "adds is deleted"),
    (JV, "    @Test\n    void adds", "    void adds", "adds is deleted or no longer run"),
    (JV, JAVA[JAVA.index("    @Test\n    public") :], "}\n", "refuses is deleted"),
    (RB, "  def test_adds", "  def adds", "test_adds is deleted or no longer run"),
    (RB, RUBY[RUBY.index("  it 'refuses'") :], "end\n", "refuses is deleted"),
    # a test is switched off
    (PY, "def test_add():", "@pytest.mark.skip\ndef test_add():", "skipped"),
    (PY, "def test_add():", "@pytest.mark.xfail(reason='later')\ndef test_add():", "skipped"),
    (PY, "def test_add():\n", "def test_add():\n    pytest.skip('x')\n", "skipped"),
    (PY, "def test_add():\n", "def test_add():\n    if False:\n        pass\n", "skipped"),
    (PY, "def test_add():\n", "def test_add():\n    return\n", "ends before"),
    (PY, "import pytest\n", "import pytest\npytestmark = pytest.mark.skipif(True, reason='')\n", "skipped"),
    (TS, "it('adds'", "it.skip('adds'", "skipped"),
    (TS, "it('adds'", "xit('adds'", "skipped"),
    (TS, "it('adds'", "it.only('adds'", "the only one"),
    (TS, "describe('add'", "describe.skip('add'", "skipped"),
    (TS, "it('adds'", "it.todo('adds'", "skipped"),
    (GO_FILE, "func TestAdd(t *testing.T) {\n", "func TestAdd(t *testing.T) {\n	t.Skip()\n", "skipped"),
    (GO_FILE, "package calc\n", "//go:build never\n\npackage calc\n", "skipped"),
    (RS, "    #[test]\n    fn adds", "    #[test]\n    #[ignore]\n    fn adds", "skipped"),
    (JV, "    @Test\n    void adds", "    @Test\n    @Disabled\n    void adds", "skipped"),
    (JV, "    @Test\n    void adds", "    @Ignore @Test\n    void adds", "skipped"),
    (JV, "    void adds() {\n", "    void adds() {\n        assumeTrue(false);\n", "skipped"),
    (RB, "  def test_adds\n", "  def test_adds\n    skip\n", "skipped"),
    (RB, "  it 'refuses'", "  xit 'refuses'", "skipped"),
    # it says less exactly what it expects
    (PY, "assert add(2, 3) == 5", "assert add(2, 3)", "less exactly"),
    (PY, "assert add(2, 3) == 5", "assert add(2, 3) is not None", "less exactly"),
    (PY, "assert add(2, 3) == 5", "assert add(2, 3) == 6", "expected value was changed"),
    (PY, "pytest.raises(ValueError)", "pytest.raises(Exception)", "less exactly"),
    (PY, "abs=1e-6", "abs=10.0", "tolerance was widened"),
    (TS, "expect(add(2, 3)).toBe(5)", "expect(add(2, 3)).toBeDefined()", "less exactly"),
    (TS, "expect(add(2, 3)).toBe(5)", "expect(add(2, 3)).toBe(6)", "expected value was changed"),
    (GO_FILE, "assert.Equal(t, 1, Sub(3, 2))", "assert.NotNil(t, Sub(3, 2))", "less exactly"),
    (GO_FILE, "assert.Equal(t, 1, Sub(3, 2))", "assert.Equal(t, 2, Sub(3, 2))", "expected value was changed"),
    (RS, "assert_eq!(add(2, 3), 5)", "assert!(add(2, 3) > 0)", "less exactly"),
    (RS, "assert_eq!(add(2, 3), 5)", "assert_eq!(add(2, 3), 6)", "expected value was changed"),
    (JV, "assertEquals(5, add(2, 3))", "assertNotNull(add(2, 3))", "less exactly"),
    (JV, "assertThrows(IllegalArgumentException", "assertThrows(Exception", "less exactly"),
    (RB, "assert_equal 5, add(2, 3)", "assert add(2, 3)", "less exactly"),
    (RB, "raise_error(ArgumentError)", "raise_error", "less exactly"),
]


@pytest.mark.parametrize(("path", "old", "new", "says"), WEAKER)
def test_what_only_got_weaker_is_found(path: str, old: str, new: str, says: str) -> None:
    """Removed assertions, deleted or renamed-away tests, skips, and loosened expectations, on their line."""
    findings = edited(path, (old, new))
    assert any(says in finding.detail for finding in findings), findings
    assert all(finding.path == path and finding.line for finding in findings)


ADDED = {
    PY: "\n\ndef test_empty():\n    assert add() == 0\n",
    TS: "it('is empty', () => {\n  expect(add()).toBe(0);\n});\n",
    GO_FILE: "\nfunc TestEmpty(t *testing.T) {\n	require.Equal(t, 0, Add())\n}\n",
    RS: "#[test]\nfn empty() {\n    assert_eq!(add(), 0);\n}\n",
    JV: "class EmptyTest {\n    @Test\n    void empty() {\n        assertEquals(0, add());\n    }\n}\n",
    RB: "class EmptyTest < Minitest::Test\n  def test_empty\n    assert_equal 0, add\n  end\nend\n",
}


@pytest.mark.parametrize("path", FILES)
def test_a_new_test_is_no_finding(path: str) -> None:
    """A test more, at the end of an old file or in a new one, is what is wanted."""
    assert found(changed(path, FILES[path], FILES[path] + ADDED[path])) == []
    assert found(changed(path, None, ADDED[path])) == []


@pytest.mark.parametrize(("path", "old", "new", "says"), WEAKER)
def test_a_new_test_does_not_make_up_for_what_another_lost(path: str, old: str, new: str, says: str) -> None:
    """Every fix adds a test; it must not hide what the change took from an old one."""
    text = FILES[path].replace(old, new, 1) + ADDED[path]
    findings = found(changed(path, FILES[path], text))
    assert any(says in finding.detail for finding in findings), findings


STRONGER = [
    (PY, "assert add(0, 0) == 0", "assert add(0, 0) == 0, 'zero'"),
    (PY, "    assert add(0, 0) == 0\n", "    assert add(0, 0) == 0\n    assert add(1, 0) == 1\n"),
    (PY, "def test_add()", "def test_add_small()"),
    (PY, "pytest.raises(ValueError)", "pytest.raises(ValueError, match='None')"),
    (PY, "abs=1e-6", "abs=1e-9"),
    (TS, "it('adds'", "it('adds numbers'"),
    (TS, "toThrow(TypeError)", "toThrow(RangeError)"),
    (GO_FILE, "func TestSub(", "func TestSubtract("),
    (RS, "    fn adds()", "    fn adds_small()"),
    (JV, "void adds()", "void addsSmall()"),
    (RB, "def test_adds", "def test_adds_small"),
]


@pytest.mark.parametrize(("path", "old", "new"), STRONGER)
def test_a_test_may_be_renamed_and_sharpened(path: str, old: str, new: str) -> None:
    """A new name for the same test, one more assertion, a narrower tolerance: nobody is asked."""
    assert edited(path, (old, new)) == []


def test_a_deleted_test_file_is_found_unless_it_only_moved() -> None:
    """Its lines elsewhere among the tests are the same tests; among other files they are not."""
    gone = changed(PY, PYTHON, None)
    assert [finding.detail for finding in found(gone)] == ["test file deleted"]
    assert found(gone, changed("tests/unit/test_add.py", None, PYTHON)) == []
    assert found(gone, changed("notes.txt", None, PYTHON)) != []
    half = PYTHON[: len(PYTHON) // 2]
    assert found(gone, changed("tests/unit/test_add.py", None, half)) != []


def test_a_test_moved_to_another_file_is_not_lost() -> None:
    """The same declaration and lines in another test file of the change."""
    rest, moved = PYTHON[: PYTHON.index("def test_raises")], PYTHON[PYTHON.index("def test_raises") :]
    pairs = (changed(PY, PYTHON, rest), changed("tests/test_raises.py", None, "import pytest\n\n" + moved))
    assert found(*pairs) == []
    assert found(pairs[0]) != []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("pytest.ini", "addopts = --ignore=tests/test_add.py"),
        ("pyproject.toml", 'addopts = "-k not add"'),
        ("package.json", '"test": "jest || true"'),
        ("jest.config.js", "  testPathIgnorePatterns: ['add'],"),
        ("pom.xml", "<testFailureIgnore>true</testFailureIgnore>"),
        ("conftest.py", "collect_ignore = ['tests/test_add.py']"),
        ("tests/conftest.py", "def pytest_collection_modifyitems(items): items.clear()"),
    ],
)
def test_settings_that_choose_the_tests_are_found(path: str, line: str) -> None:
    """Which tests are run, and whether their failure counts, is not decided by the change."""
    (first, *_) = found(changed(path, "a\n", f"a\n{line}\n"))
    assert (first.path, first.line) == (path, 2)


def test_other_files_are_no_tests() -> None:
    """Assertions and skips of ordinary code are its own business."""
    assert found(changed("src/add.py", PYTHON, "x = 1\n")) == []
    assert found(changed("pyproject.toml", "a\n", 'a\nversion = "2"\n')) == []
