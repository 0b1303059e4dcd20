"""Which paths are tests, which decide how tests run, and which command runs them."""

from __future__ import annotations

import os

import pytest

from formica.rules.testfiles import detect_test_command, is_lock_path, is_test_path, is_test_settings


@pytest.mark.parametrize(
    "path",
    [
        *("tests/test_a.py", "pkg/tests/helper.py", "a_test.py", "conftest.py", "src/a.test.ts"),
        *("src/__tests__/a.js", "a.spec.tsx", "pkg/a_test.go", "tests/it.rs", "src/test/java/A.java"),
        *(
            "src/AppTest.java",
            "spec/a_spec.rb",
            "App.Tests/A.cs",
            "ATests.cs",
            "tests/ATest.php",
            "e2e/x.txt",
        ),
    ],
)
def test_tests_are_recognised(path: str) -> None:
    """The usual places and names of tests, per ecosystem."""
    assert is_test_path(path)


@pytest.mark.parametrize(
    "path",
    [
        *("src/app.py", "latest.py", "contest.py", "src/attest.go", "protest/a.py", "testing.md"),
        *(
            "src/Latest.java",
            "Contest.cs",
            "pytest.ini",
            "tests/pytest.ini",
            "package.json",
            "src/inspect.ts",
        ),
    ],
)
def test_other_files_are_not(path: str) -> None:
    """Names that only look alike, and files that configure how tests run."""
    assert not is_test_path(path)


def test_commands_are_detected_from_files() -> None:
    """Each ecosystem by its own sign; a package without a test script has no test command."""
    assert detect_test_command({"go.mod"}) == ["go", "test", "./..."]
    assert detect_test_command({"Cargo.toml", "src/lib.rs"}) == ["cargo", "test", "--quiet"]
    assert detect_test_command({"pom.xml"}) == ["mvn", "-q", "-B", "test"]
    scripts = '{"scripts": {"build": "x", "test": "jest"}}'
    assert detect_test_command({"package.json"}, package_json=scripts) == ["npm", "test", "--silent"]
    none = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
    assert detect_test_command({"package.json"}, package_json=none) is None
    assert detect_test_command({"Makefile"}, makefile="all:\n\ntest: all\n\t./t\n") == ["make", "test"]
    assert detect_test_command({"Makefile"}, makefile="test := x\n") is None
    assert detect_test_command({"README.md"}) is None
    assert os.sep == "/"


@pytest.mark.parametrize(
    "path",
    [
        "pytest.ini",
        "pkg/conftest.py",
        "jest.config.ts",
        "web/vitest.config.mjs",
        ".mocharc.json",
        "pom.xml",
        "Makefile",
    ],
)
def test_settings_of_tests_are_known(path: str) -> None:
    """What can leave tests out, or make their failure count for nothing."""
    assert is_test_settings(path)
    assert not is_test_settings(f"{path}.md") or path.startswith(".")


@pytest.mark.parametrize(
    "path",
    [
        "package-lock.json",
        "web/yarn.lock",
        "requirements.txt",
        "dev-requirements.txt",
        "requirements/test.txt",
        "go.sum",
    ],
)
def test_lock_files_are_known_in_every_folder(path: str) -> None:
    """What says which packages a set-up installs."""
    assert is_lock_path(path)
    assert not is_lock_path(f"docs/{path}.md")


def test_detection_has_an_order() -> None:
    """Python's tests before npm's before make's, and a lone settings file is enough for pytest."""
    every = {"tests/test_a.py", "package.json", "Makefile", "go.mod"}
    texts = {"package_json": '{"scripts": {"test": "jest"}}', "makefile": "test:\n\t./t\n"}
    assert detect_test_command(every, **texts) == ["python3", "-m", "pytest", "-q"]
    assert detect_test_command(every - {"tests/test_a.py"}, **texts) == ["npm", "test", "--silent"]
    assert detect_test_command({"Makefile", "go.mod"}, **texts) == ["go", "test", "./..."]
    assert detect_test_command({"pytest.ini"}) == ["python3", "-m", "pytest", "-q"]
