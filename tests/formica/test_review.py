"""The gates on a diff: each stops what it should, names file and line, and lets an honest change through."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from formica.rules.facts import FileText, Row
from formica.rules.policy import Policy
from formica.rules.protected import areas
from formica.rules.review import Finding, review, unpublishable
from formica.rules.secret_forms import LiveSecrets
from formica.settings import load, protected_areas
from tests.fakes.changes import Pair, change, changed, without_text

SHIPPED = Policy(protected=protected_areas(load(None)))
SECRET = "fk_Zq7Lw2Xv9Rb4Tn6Yp1Mc3Kd5"
LINES = "".join(f"line {number}\n" for number in range(200))


def findings(*pairs: Pair, policy: Policy = SHIPPED, secrets: LiveSecrets | None = None) -> list[Finding]:
    return review(change(*pairs), policy, secrets or LiveSecrets())


def rules(*pairs: Pair) -> set[str]:
    return {finding.rule for finding in findings(*pairs)}


def test_a_small_plain_change_has_no_findings() -> None:
    """Exactly at the limits nothing is found."""
    old = "".join(f"a{n}\n" for n in range(20))
    pairs = [changed(f"src/{n}.py", old, old.replace("a", "b")) for n in range(20)]
    assert findings(*pairs) == []
    assert findings(changed("link", None, "src/app.py", new_mode="120000")) == [], "a link inside the tree"


def test_a_finding_names_rule_file_and_line() -> None:
    """What the plan shows is `path:line: detail`, with the line of the new file."""
    token = "ghp_" + "R8uQ2mVx7Lw4Zp9Kc3Td6Yb1Nf5Hs0Jg2eWa"
    new = "a = 1\nb = 2\n" + f"key = '{token}'\n"
    (found,) = findings(changed("src/a.py", "a = 1\n", new))
    assert (found.rule, found.path, found.line) == ("secret", "src/a.py", 3)
    assert str(found) == f"src/a.py:3: {found.detail}"
    assert token not in str(found)


@pytest.mark.parametrize(
    ("pairs", "rule"),
    [
        ([changed(f"src/{n}.py", "a\n", "b\n") for n in range(21)], "size"),
        ([changed("src/a.py", None, LINES * 5)], "size"),
        ([changed(f"src/{n}.py", "a\n", None) for n in range(6)], "deletion"),
        ([changed("src/a.py", LINES, LINES[:700])], "deletion"),
        ([changed("data.bin", None, "x", binary=True)], "binary"),
        ([changed("link", None, "/etc/passwd", new_mode="120000")], "link"),
        ([changed("a/link", None, "../../etc/passwd", new_mode="120000")], "link"),
        ([changed("a/b/link", None, "c/../../../../etc", new_mode="120000")], "link"),
        ([changed("link", None, "~/.ssh/id_rsa", new_mode="120000")], "link"),
        ([changed("link", None, ".git/config", new_mode="120000")], "link"),
        ([changed("link", None, ".github/workflows", new_mode="120000")], "link"),
        ([changed("src/a.py", "code\n", "src/b.py", status="T", new_mode="120000")], "link"),
        ([changed("link", "a", "b\n", status="T", old_mode="120000")], "link"),
        ([changed("sub", None, "Subproject commit " + "d" * 40, new_mode="160000")], "submodule"),
        (
            [
                changed(
                    "sub", "Subproject commit 1", "Subproject commit 2", old_mode="160000", new_mode="160000"
                )
            ],
            "submodule",
        ),
        ([changed(".gitmodules", None, "[submodule]\n")], "submodule"),
        ([changed("sub/.GitModules ", None, "[submodule]\n")], "submodule"),
        ([changed("run.sh", "a\n", "a\n", new_mode="100755")], "mode"),
        ([changed("run.sh", None, "a\n", new_mode="100755")], "mode"),
        ([changed("run.sh", None, "a\n", new_mode="100666")], "mode"),
        ([changed("src/a.py", "a\n", "a\nx = '\u202e'\n")], "hidden_text"),
        ([changed("src/a.py", "a\n", "a\nad\u200bmin = 1\n")], "hidden_text"),
        ([changed("src/a.js", None, "x" * 4_001)], "long_line"),
        ([changed("src/a\u0440p.py", None, "x\n")], "disguised_name"),
        ([changed("src/\u200bapp.py", None, "x\n")], "disguised_name"),
        ([changed("src/app.py.", None, "x\n")], "disguised_name"),
        ([changed("src\\app.py", None, "x\n")], "disguised_name"),
        ([changed("src/App.py", None, "x\n"), changed("src/app.py", None, "x\n")], "disguised_name"),
        ([changed("src/a.py", "a\n", "b\n", added=2)], "unreadable"),
    ],
)
def test_what_a_diff_is_stopped_for(pairs: list[Pair], rule: str) -> None:
    """Sizes, deletions, binaries, links, submodules, modes, hidden text and disguised names each need a person."""
    assert rule in rules(*pairs)


def test_a_link_out_of_the_tree_is_told_from_one_inside() -> None:
    """The finding says that it leads out; one within the tree, however deep, needs nobody."""
    (out,) = findings(changed("a/b/l", None, "../../../x", new_mode="120000"))
    assert "out of the tree" in out.detail
    assert findings(changed("a/b/l", None, "../../x", new_mode="120000")) == []
    (unread,) = review(without_text(change(changed("l", None, "x", new_mode="120000")), "l"), Policy())[:1]
    assert "could not be read" in unread.detail


@pytest.mark.parametrize(
    ("path", "area"),
    [
        (".github/workflows/ci.yml", "ci"),
        (".GitHub/Workflows/ci.yml", "ci"),
        ("docker/Dockerfile.prod", "ci"),
        ("app/migrations/0001_init.py", "schema"),
        ("migrations/0001_init.py", "schema"),
        ("db/schema.rb", "schema"),
        ("src/auth/login.py", "security"),
        ("SECURITY.md", "security"),
        ("README.md", "foundation_docs"),
        ("ARCHITECTURE.md", "architecture"),
        (".husky/pre-commit", "hooks"),
        ("sub/.gitattributes", "hooks"),
        ("web/package-lock.json", "lockfiles"),
        ("uv.lock", "lockfiles"),
        ("bun.lock", "lockfiles"),
        (".gitea/workflows/x.yml", "ci"),
        (".forgejo/workflows/x.yml", "ci"),
        ("sub/.github/workflows/x.yml", "ci"),
        (".woodpecker.yml", "ci"),
        (".woodpecker/x.yml", "ci"),
        (".drone.yml", "ci"),
        (".cirrus.yml", "ci"),
        ("bitbucket-pipelines.yml", "ci"),
        ("appveyor.yml", "ci"),
        (".devcontainer/devcontainer.json", "ci"),
        ("pkg/.devcontainer/a.json", "ci"),
        (".vscode/tasks.json", "hooks"),
        ("pkg/.vscode/tasks.json", "hooks"),
        (".envrc", "hooks"),
        (".npmrc", "hooks"),
        (".husky", "hooks"),
        ("packages/a/.husky/pre-commit", "hooks"),
        (".pre-commit-hooks.yaml", "hooks"),
        ("pip.conf", "hooks"),
        ("uv.toml", "hooks"),
        ("bun.lockb", "lockfiles"),
        ("flake.lock", "lockfiles"),
        (".clinerules", "agent_instructions"),
        (".clinerules/a.md", "agent_instructions"),
        ("packages/a/.cursor/rules/x.mdc", "agent_instructions"),
        (".roo/rules.md", "agent_instructions"),
        (".kiro/steering/a.md", "agent_instructions"),
        ("Makefile", "build"),
        ("setup.py", "build"),
        ("tests/conftest.py", "build"),
        ("web/package.json", "build"),
        ("pyproject.toml", "build"),
        ("noxfile.py", "build"),
        ("AGENTS.md", "agent_instructions"),
        ("pkg/claude.md", "agent_instructions"),
        (".claude/settings.json", "agent_instructions"),
        (".cursor/rules/a.mdc", "agent_instructions"),
        (".github/instructions/x.instructions.md", "agent_instructions"),
        (".windsurfrules", "agent_instructions"),
        ("AGENTS.md ", "agent_instructions"),
        ("AGENTS.md.", "agent_instructions"),
        ("AGENTS.md::$DATA", "agent_instructions"),
        ("AGENTS\u200b.md", "agent_instructions"),
        ("\u0410GENTS.md", "agent_instructions"),
        ("\uff21\uff27\uff25\uff2e\uff34\uff33.md", "agent_instructions"),
        ("a\u0121ents.md".replace("\u0121", "g\u0307"), "agent_instructions"),
        (".github\\workflows\\ci.yml", "ci"),
        (".g\u0456thub/workflows/ci.yml", "ci"),
        (".github./workflows/ci.yml", "ci"),
        ("\u00adCODEOWNERS", "hooks"),
        ("package\u2010lock.json", "lockfiles"),
    ],
)
def test_protected_areas_are_found_whatever_the_disguise(path: str, area: str) -> None:
    """In any folder, in any case, with look-alike letters, invisible ones, or endings some systems drop."""
    assert area in areas(path, SHIPPED.protected)
    found = [finding for finding in findings(changed(path, None, "x\n")) if finding.rule == "protected"]
    assert any(finding.path == path and area in finding.detail for finding in found)


@pytest.mark.parametrize(
    "path",
    [
        "src/parser.py",
        "tests/test_author.py",
        "app/tasks.py",
        "src/setup_helpers.py",
        "docs/Makefile.md",
        "docs/usage.md",
        "authors.txt",
        "src/caf\u00e9.py",
        "\u6587\u6863/a.txt",
    ],
)
def test_ordinary_paths_are_free(path: str) -> None:
    """Ordinary code, tests, documentation and names in other scripts need nobody."""
    assert areas(path, SHIPPED.protected) == []
    assert findings(changed(path, None, "x\n")) == []


def test_the_shipped_areas_are_those_of_the_design() -> None:
    """policy.toml has every protected area that the design names."""
    assert set(SHIPPED.protected) == {
        "schema",
        "security",
        "foundation_docs",
        "architecture",
        "ci",
        "hooks",
        "lockfiles",
        "agent_instructions",
        "build",
    }
    assert Path("config/policy.toml").is_file()


def test_a_rename_is_both_of_its_names() -> None:
    """Moving a protected file away, or a file into a protected place, is found."""
    away = [changed(".github/workflows/ci.yml", "a\n", None), changed("old.yml", None, "a\n")]
    into = [changed("notes.md", "a\n", None), changed("docs/AGENTS.md", None, "a\n")]
    assert "protected" in rules(*away)
    assert "protected" in rules(*into)


def test_a_gate_that_fails_is_a_finding() -> None:
    """A gate that cannot judge says so, and the others still speak."""

    class Unreadable(LiveSecrets):
        def holds(self, text: str) -> bool:
            raise RuntimeError("broken")

        def find(self, lines: object) -> None:
            raise RuntimeError("broken")

    found = findings(changed("AGENTS.md", None, "x\n"), secrets=Unreadable())
    assert {finding.rule for finding in found} == {"gate_error", "protected"}
    assert any("secrets" in str(finding) and "RuntimeError" in str(finding) for finding in found)


def test_lines_nobody_could_read_are_a_finding_and_never_published() -> None:
    """A file whose lines are missing has nothing that vouches for it, whatever the operator says."""
    unread = without_text(change(changed("src/a.py", "a\n", "b\n")), "src/a.py")
    assert [finding.rule for finding in review(unread, SHIPPED)] == ["unreadable"]
    assert [finding.rule for finding in unpublishable(unread, LiveSecrets(), {})] == ["unreadable"]


def test_a_live_secret_is_found_on_every_surface() -> None:
    """In an added line, a name, the commit message, spread over files, or in a text of the pull request."""
    secrets = LiveSecrets([SECRET])
    encoded = base64.b64encode(f"key={SECRET}".encode()).decode()
    in_line = change(changed("src/a.py", "a\n", f"a\nb\nx = '{encoded}'\n"))
    assert [(f.path, f.line) for f in unpublishable(in_line, secrets, {})] == [("src/a.py", 3)]
    in_name = change(changed(f"src/{SECRET}.py", None, "x\n"))
    in_message = change(changed("src/a.py", "a\n", "b\n"), message=f"Fix {SECRET[::-1]}")
    half = len(SECRET) // 2
    spread = change(changed("a.py", None, SECRET[:half] + "\n"), changed("b.py", None, SECRET[half:] + "\n"))
    names = change(*(changed(f"x/{n}/{SECRET[n : n + 4]}.py", None, "x\n") for n in range(0, len(SECRET), 4)))
    for case in (in_name, in_message, spread, names):
        (found,) = unpublishable(case, secrets, {})
        assert found.rule == "live_secret"
        assert SECRET not in str(found)
        assert "live_secret" in {finding.rule for finding in review(case, SHIPPED, secrets)}
    plain = change(changed("src/a.py", "a\n", "b\n"))
    assert unpublishable(plain, secrets, {"branch": "formica/issue-1", "body": "ok"}) == []
    for text in (SECRET, SECRET.encode().hex(), f"see {SECRET[:9]}\u200b{SECRET[9:]}"):
        (found,) = unpublishable(plain, secrets, {"branch": "formica/issue-1", "body": text})
        assert "body" in found.detail
    (found,) = unpublishable(None, secrets, {"title": SECRET})
    assert "title" in found.detail


def test_secrets_in_binary_files_are_found_too() -> None:
    """A file that git calls binary is read all the same."""
    secrets = LiveSecrets([SECRET])
    found = findings(changed("data.bin", None, f"\0\1{SECRET}\2", binary=True), secrets=secrets)
    assert {"binary", "live_secret"} <= {finding.rule for finding in found}


def test_credentials_of_anybody_are_findings() -> None:
    """A key of a provider, a private key over several lines, a name of a file: found by shape, on its line."""
    pem = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq98vw2\nMHqKx93jkd02Lq\n-----END RSA PRIVATE KEY-----\n"
    (found,) = findings(changed("conf.txt", "a\n", "a\n" + pem))
    assert (found.rule, found.line) == ("secret", 3)
    named = "notes-" + "ghp_" + "R8uQ2mVx7Lw4Zp9Kc3Td6Yb1Nf5Hs0Jg2eWa"
    assert "secret" in rules(changed(named, None, "x\n"))


def test_a_path_is_shown_in_one_printable_line() -> None:
    """Line ends, terminal sequences and bytes that are not UTF-8 in a name do nothing where it is shown."""
    text = str(Finding("mode", "a\n\x1b[2J\udcff\u202e.py", 3, "mode"))
    assert text == "a\\n\\x1b[2J\\xff\\u202e.py:3: mode"
    text.encode("utf-8")


def test_a_file_too_large_to_be_read_whole_still_has_its_added_lines_judged() -> None:
    """Without the kept lines around, the added ones are looked at all the same."""
    made = change(changed("src/a.py", "a\n", f"a\n{SECRET}\n"))
    part = replace(made, texts={"src/a.py": FileText((Row("+", 90, 90, SECRET),), whole=False)})
    assert [f.line for f in unpublishable(part, LiveSecrets([SECRET]), {})] == [90]
