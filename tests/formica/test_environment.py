"""Where a report can be reproduced: read from fields and text, verified against the repository."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formica.rules.environment import ENVIRONMENTS, Environment, extract, judge
from formica.rules.facts import CommitFacts, RepositoryFacts

OLD = "0a1b2c3d" * 5
NEW = "a1b2c3d4" * 5
SIDE = "deadbee1" * 5
TAGS = {"v1.0.0": OLD, "v1.1.0": "b" * 40}


def facts(
    sha: str | None = None,
    version: str | None = None,
    ref: str | None = None,
    *,
    tags: bool = True,
    ambiguous: bool = False,
) -> RepositoryFacts:
    """A repository with releases v1.0.0 (OLD) and v1.1.0, NEW on main after them, SIDE on the branch topic."""
    known = {
        OLD: CommitFacts(OLD, True, True, ("main",), tuple(TAGS) if tags else ()),
        NEW: CommitFacts(NEW, True, True, ("main",)),
        SIDE: CommitFacts(SIDE, True, False, ("topic",)),
    }
    commit = None
    if sha is not None:
        full = next((name for name in known if name.startswith(sha)), None)
        commit = (
            CommitFacts(sha, True, ambiguous=True)
            if ambiguous
            else known.get(full or "", CommitFacts(sha, False))
        )
    tag = next((name for name in TAGS if tags and version in (name, name.removeprefix("v"))), None)
    return RepositoryFacts(
        default_branch="main",
        head_sha=NEW,
        commit=commit,
        version_tag=tag,
        version_tag_sha=TAGS.get(tag or ""),
        ref_exists=None if ref is None else ref in ("main", "topic", *TAGS),
        has_release_tags=tags,
    )


def judged(text: str = "", *, tags: bool = True, ambiguous: bool = False, **fields: Any) -> Environment:
    reporter = {f"reporter_{name}": value for name, value in fields.items()}
    build = extract("It fails", text, reporter)
    known = facts(build.sha, build.named_release, build.ref, tags=tags, ambiguous=ambiguous)
    return judge(build, known)


SHA, VERSION, PATCH = "reporter_git_sha", "reporter_app_version", "reporter_patch_source_id"


@pytest.mark.parametrize(
    ("fields", "kind", "commit", "needs"),
    [
        ({"git_sha": OLD}, "public_release", None, ()),
        ({"git_sha": OLD[:9]}, "public_release", None, ()),
        ({"git_sha": NEW.upper()}, "local_commit", NEW, ()),
        ({"git_sha": SIDE}, "local_branch", SIDE, ()),
        ({"git_sha": "f" * 40}, "unknown", None, (SHA, PATCH)),
        ({"git_sha": "f" * 40, "patch_source_id": "https://example.org/fork"}, "unknown", None, ()),
        ({"app_version": "1.0.0"}, "public_release", None, ()),
        ({"app_version": "v1.1.0"}, "public_release", None, ()),
        ({"app_version": "9.9.9"}, "unknown", None, (VERSION, SHA)),
        ({"app_version": "1.2.0-dev"}, "unknown", None, (VERSION, SHA)),
        ({"app_version": f"1.2.0-dev+g{NEW[:8]}"}, "local_commit", NEW, ()),
        ({"app_version": f"v1.1.0-4-g{NEW[:7]}"}, "local_commit", NEW, ()),
        ({"app_version": f"v1.1.0-4-g{NEW[:7]}-dirty"}, "local_commit", NEW, ()),
        ({"app_version": f"v1.0.0-0-g{OLD[:7]}-dirty"}, "local_commit", OLD, ()),
        ({"app_version": "1.0.0+local"}, "local_commit", OLD, ()),
        ({"app_version": "1.0.0-dirty"}, "local_commit", OLD, ()),
        ({"git_sha": OLD, "app_version": "1.0.0"}, "public_release", None, ()),
        ({"git_sha": NEW, "app_version": "1.2.0-dev"}, "local_commit", NEW, ()),
        ({"git_sha": "", "app_version": "  "}, "unknown", None, (VERSION, SHA)),
        ({"git_sha": "not a sha", "app_version": "1.0.0"}, "public_release", None, ()),
        ({"app_version": "8.0", "git_ref": "main"}, "local_branch", NEW, ()),
        ({"git_ref": "topic"}, "local_branch", None, (SHA,)),
        ({"git_ref": "gone"}, "unknown", None, (SHA,)),
    ],
)
def test_fields_are_verified_against_the_repository(
    fields: dict[str, Any], kind: str, commit: str | None, needs: tuple[str, ...]
) -> None:
    """What a reporter's fields claim is checked: commit, release, branch; what is missing is named exactly."""
    found = judged(**fields)
    assert (found.kind, found.commit, found.needs) == (kind, commit, needs), found.evidence
    assert found.evidence


@pytest.mark.parametrize(
    ("sha", "version"), [(NEW, "1.0.0"), (OLD, "1.1.0"), (SIDE, "1.1.0")], ids=["newer", "older", "aside"]
)
def test_commit_and_version_that_disagree_are_a_conflict(sha: str, version: str) -> None:
    """A commit that is not the named release's is a contradiction: unknown, and both are asked for."""
    found = judged(git_sha=sha, app_version=version)
    assert (found.kind, found.conflict, found.needs) == ("unknown", True, (VERSION, SHA))


def test_a_version_of_the_server_is_weak_and_contradicts_nothing() -> None:
    """The version the server filled in is weak evidence: a commit beats it, and so does the text."""
    server: dict[str, Any] = {"app_version": "1.0.0", "app_version_source": "server"}
    alone, beside = judged(**server), judged(git_sha=NEW, **server)
    assert (alone.kind, alone.weak) == ("public_release", True)
    assert (beside.kind, beside.conflict) == ("local_commit", False)
    assert judged("It happens on the main branch.", **server).kind == "local_branch"


def test_an_ambiguous_commit_is_asked_for_in_full() -> None:
    """An abbreviation that two commits share decides nothing."""
    found = judged(git_sha="a1b2c3d", ambiguous=True)
    assert (found.kind, found.needs) == ("unknown", (SHA,))


def test_a_fork_is_unknown_until_its_source_is_named() -> None:
    """A fork's code is not in the repository: its patch source is asked for, and nothing else."""
    text = "I run my own fork, version 1.0.0."
    assert judged(text).kind == "unknown"
    assert judged(text).needs == (PATCH,)
    assert judged(text, git_sha=NEW, patch_source_id="https://example.org/fork").kind == "local_commit"


def test_changed_code_is_never_a_release() -> None:
    """Whoever patched a release did not run the release."""
    found = judged("I patched the parser module locally.", app_version="1.0.0")
    assert (found.kind, found.commit) == ("local_commit", OLD)


def test_without_release_tags_a_version_is_believed_weakly() -> None:
    """Where nothing was ever tagged a version cannot be checked: public release, and the evidence says so."""
    found = judged(tags=False, app_version="3.1")
    assert (found.kind, found.weak) == ("public_release", True)
    assert "no release tags" in " ".join(found.evidence)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("I built from source, on main.", "local_branch"),
        ("On the `develop` branch.", "local_branch"),
        ("I'm on the branch `fix-parser`.", "local_branch"),
        ("Tested against current master.", "local_branch"),
        ("git clone https://example.org/a/b.git && cd b && make", "local_branch"),
        ("pip install git+https://example.org/a/b", "local_branch"),
        ("Library(4.9.0-dev) Error: assertion failed", "local_branch"),
        ("Fresh sources from git", "local_branch"),
        ("在最新的 main 上出现", "local_branch"),
        ("It fails on CI: https://ci.example.org/actions/runs/12", "local_branch"),
        ("version 1.2.3-dev+gabc1234 crashes", "local_commit"),
        ("app v1.2.3-4-gabc1234-dirty", "local_commit"),
        ("git describe says v0.9-12-gdeadbee", "local_commit"),
        ("HEAD is 3f2a1bc9e", "local_commit"),
        ("The code is based on the commit `3f2a1bc9e1d2`.", "local_commit"),
        ("current master (3f2a1bc9e1d2)", "local_commit"),
        ("app @ git+https://example.org/a/app@3f2a1bc9e1d2c3b4a596", "local_commit"),
        ("go.mod: example.org/app v0.0.0-20240501120000-3f2a1bc9e1d2", "local_commit"),
        ("Core version v22.99.0-b223c3c21e89", "local_commit"),
        ("foo==1.2.3 in requirements.txt", "public_release"),
        ("docker run acme/app:1.4.2", "public_release"),
        ("- App version: 2.0\n- Python version: 3.11", "public_release"),
        ("### App version\n\n2.0.1\n", "public_release"),
        ("Version: 1.80.0\nCommit: 660393deaaa6d1996740ff4880f1bad43768c814", "public_release"),
        ("tool version 17.06.0-ce, build 02c1d87", "public_release"),
        ("using the nightly build of yesterday", "public_release"),
        ("Erro na versão 1.2.3", "public_release"),
        ("Works on 1.1, fails on 1.2", "public_release"),
        ("commit 3f2a1bc9 broke it; I am on 1.2.0", "public_release"),
        ("runs on Ubuntu 22.04 with Python 3.12 and CUDA 12.1", "unknown"),
        ("- Python version: 3.11\n- OS: Windows 11\n- GCC: 9.4.0", "unknown"),
        ("since commit 3f2a1bc9e the thing fails", "unknown"),
        ("See https://example.org/a/b/commit/3f2a1bc9e1d2 for an example", "unknown"),
        ("https://codesandbox.io/s/demo-forked-x1", "unknown"),
        ("Deprecated in Thing V2.0 to be removed in V3.0", "unknown"),
        ("sha256:3f2a1bc9e1d23f2a1bc9e1d23f2a1bc9e1d2 mismatch", "unknown"),
        ("I built it from source.", "unknown"),
        ("", "unknown"),
    ],
)
def test_text_alone_says_what_it_can(text: str, kind: str) -> None:
    """Without a repository the words decide: what ran counts, the system around it and history do not."""
    build = extract("It fails", text, {})
    found = judge(build, None)
    assert found.kind == kind, (found.evidence, build)
    assert found.evidence


def test_fields_beat_text() -> None:
    """A filled field is what ran, whatever else the text mentions."""
    build = extract(
        "x", "Also tried v9.9 and current master (3f2a1bc9e1d2).", {"reporter_app_version": "1.0.0"}
    )
    assert (build.version, build.sha, build.ref) == ("1.0.0", None, None)


def test_the_release_of_a_changed_build_is_looked_up_without_its_marks() -> None:
    """``1.0.0+local`` asks the repository for 1.0.0."""
    assert extract("x", "", {"reporter_app_version": "1.0.0+local"}).named_release == "1.0.0"
    assert extract("x", "", {"reporter_app_version": "1.0.0-rc1"}).named_release == "1.0.0-rc1"


@given(
    st.text(max_size=200),
    st.text(max_size=1_500),
    st.dictionaries(st.sampled_from([SHA, VERSION]), st.text()),
)
@settings(max_examples=150, deadline=None)
def test_any_text_gets_an_environment(title: str, body: str, reporter: dict[str, str]) -> None:
    """No text makes the rules fail, and each answer has evidence."""
    build = extract(title, body, reporter)
    for known in (None, facts(build.sha, build.named_release, build.ref)):
        found = judge(build, known)
        assert found.kind in ENVIRONMENTS
        assert found.evidence


@pytest.mark.parametrize(
    "piece", ["\n", " ", "v1.2 ", "commit ", "a: ", "on main ", "abcdef0123", "git+x", "1."]
)
def test_hostile_bodies_cost_no_more_than_their_length(piece: str) -> None:
    """The largest body the server takes, made of one repeated piece, is read within two seconds."""
    body = (piece * 65_536)[:65_536]
    began = time.process_time()
    extract(body[:256], body, {})
    assert time.process_time() - began < 2.0
