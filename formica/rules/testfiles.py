"""Which paths of a repository are tests, and which command runs them. Pure.

| ecosystem | a path is a test when |
|---|---|
| any | it is below a folder `test`, `tests`, `testing`, `spec`, `specs`, `__tests__` or `e2e` |
| Python | `test_*.py`, `*_test.py`, `tests.py`, `conftest.py` |
| JavaScript, TypeScript | `*.test.*`, `*.spec.*`, `*-test.*`, `__snapshots__/` |
| Go | `*_test.go` |
| Rust | `tests/`, `*_test.rs`, `tests.rs` |
| Java, Kotlin, Scala | `src/test/`, `*Test.java`, `*Tests.java`, `*IT.java`, `*Spec.kt` and so on |
| Ruby | `*_test.rb`, `test_*.rb`, `*_spec.rb` |
| C# | `*Test.cs`, `*Tests.cs`, folders named `*.Test` or `*.Tests` |
| PHP | `*Test.php` |

A file that only configures tests (`pytest.ini`, `jest.config.js`) is none: it could make any test pass.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

__all__ = ["LOCK_FILES", "detect_test_command", "is_lock_path", "is_test_path", "is_test_settings"]

LOCK_FILES = frozenset(
    {
        ".nvmrc",
        ".npmrc",
        ".python-version",
        ".ruby-version",
        ".tool-versions",
        "Cargo.lock",
        "Cargo.toml",
        "Gemfile",
        "Gemfile.lock",
        "Pipfile.lock",
        "build.gradle",
        "build.gradle.kts",
        "bun.lock",
        "bun.lockb",
        "composer.lock",
        "environment.yml",
        "go.mod",
        "go.sum",
        "go.work.sum",
        "gradle.lockfile",
        "mix.lock",
        "npm-shrinkwrap.json",
        "package-lock.json",
        "package.json",
        "pdm.lock",
        "pixi.lock",
        "pnpm-lock.yaml",
        "pnpm-workspace.yaml",
        "poetry.lock",
        "pom.xml",
        "pyproject.toml",
        "rust-toolchain.toml",
        "setup.cfg",
        "setup.py",
        "uv.lock",
        "yarn.lock",
    }
)
"""Names of the files that decide what `setup_command` installs, in any folder."""

_FOLDERS = frozenset({"test", "tests", "testing", "spec", "specs", "__tests__", "__snapshots__", "e2e"})
_FOLDER = re.compile(r"[\w.-]+\.(?:Unit|Integration)?Tests?")
_NAMES = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?:test_[^/]*|[^/]*_test|tests|conftest)\.pyi?",
        r"[^/]+[.-](?:test|spec)\.(?:[cm]?[jt]sx?|vue|svelte)",
        r"[^/]+_test\.(?:go|rs|rb|exs|dart|cc|cpp|c)",
        r"tests?\.rs",
        r"(?:test_[^/]*|[^/]*_spec)\.rb",
        r"(?:[^/]*[a-z0-9])?(?:Test|Tests|IT|TestCase|Spec)\.(?:java|kt|kts|scala|groovy)",
        r"[^/]*Tests?\.(?:cs|vb|fs|php|swift)",
    )
)
# A file of these names inside a test folder still decides how tests run, not what they say.
_CONFIGURATION = frozenset(
    {"pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "package.json", "Makefile"}
)
_REQUIREMENTS = re.compile(r"(?:[\w.-]*requirements|constraints)[\w.-]*\.(?:txt|in|lock)")
_SETTINGS = re.compile(
    r"pytest\.ini|\.?pytest\.toml|tox\.ini|setup\.cfg|pyproject\.toml|conftest\.py|noxfile\.py|package\.json|[Mm]akefile"
    r"|GNUmakefile|(?:jest|vitest|karma|playwright|cypress|ava)\.conf(?:ig)?\.\w+|\.mocharc.*|\.jestrc.*|phpunit\.xml.*"
    r"|pom\.xml|build\.gradle(?:\.kts)?|testng\.xml|Cargo\.toml|\.rspec|Rakefile|nextest\.toml",
    re.IGNORECASE,
)
_MAKE_TARGET = re.compile(r"^test\s*:(?!=)", re.MULTILINE)
_NPM_TEST = re.compile(r'"scripts"\s*:\s*\{[^{}]*"test"\s*:\s*"(?!echo \\"Error: no test specified)')


def is_test_path(path: str) -> bool:
    """Whether ``path`` (relative, `/`-separated) is a test or something only tests use."""
    *folders, name = path.split("/")
    if name in _CONFIGURATION:
        return False
    if any(folder in _FOLDERS or _FOLDER.fullmatch(folder) for folder in folders):
        return True
    return any(pattern.fullmatch(name) for pattern in _NAMES)


def is_test_settings(path: str) -> bool:
    """Whether the file can decide which tests are run and whether their failure counts."""
    return _SETTINGS.fullmatch(path.rpartition("/")[2]) is not None


def is_lock_path(path: str) -> bool:
    """Whether the file says what `setup_command` installs."""
    name = path.rpartition("/")[2]
    below = "requirements/" in f"{path}" and name.endswith((".txt", ".in"))
    return name in LOCK_FILES or below or _REQUIREMENTS.fullmatch(name) is not None


def detect_test_command(
    paths: Collection[str], *, package_json: str = "", makefile: str = ""
) -> Sequence[str] | None:
    """The command for a repository with these ``paths``, or None. The two texts are the root's files."""
    root = {path for path in paths if "/" not in path}
    python_tests = any(path.endswith(".py") and is_test_path(path) for path in paths)
    if python_tests or root & {"pytest.ini", "conftest.py"}:
        return ["python3", "-m", "pytest", "-q"]
    if "package.json" in root and _NPM_TEST.search(package_json):
        return ["npm", "test", "--silent"]
    if "go.mod" in root:
        return ["go", "test", "./..."]
    if "Cargo.toml" in root:
        return ["cargo", "test", "--quiet"]
    if "pom.xml" in root:
        return ["mvn", "-q", "-B", "test"]
    if root & {"Makefile", "makefile", "GNUmakefile"} and _MAKE_TARGET.search(makefile):
        return ["make", "test"]
    return None
