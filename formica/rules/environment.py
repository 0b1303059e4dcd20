"""Where a report can be reproduced, verified against the repository and not guessed.

`judge` is a table of cases, first match wins. What the repository says beats what the text says; where
they disagree, or something is missing, one question names exactly the fields that would settle it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from formica.rules.facts import CommitFacts, RepositoryFacts
from formica.rules.reported_build import ReportedBuild, extract

__all__ = ["ENVIRONMENTS", "Environment", "ReportedBuild", "extract", "judge"]

ENVIRONMENTS = ("public_release", "local_commit", "local_branch", "unknown")

_SHA = "reporter_git_sha"
_VERSION = "reporter_app_version"
_PATCH = "reporter_patch_source_id"
_SHORT = 12
_RELEASE_REF = re.compile(r"v?\d{1,4}(?:\.\d{1,5}){1,3}$")


@dataclass(frozen=True, slots=True)
class Environment:
    kind: str
    """One of `ENVIRONMENTS`."""
    evidence: tuple[str, ...]
    """Sentences for people, what was claimed first, what was found after."""
    needs: tuple[str, ...] = ()
    """The ``reporter_*`` fields that would settle it; empty when nothing needs asking."""
    commit: str | None = None
    """The full sha to check out for a local kind; None: the default branch's head."""
    conflict: bool = False
    """Two things the reporter said cannot both be true."""
    weak: bool = False
    """Nothing was verified: the kind rests on a text, or on a version the server filled in."""


def judge(build: ReportedBuild, facts: RepositoryFacts | None) -> Environment:
    """The environment of a build. Without facts (no repository at hand) from the words alone."""
    if build.fork and build.patch_source is None:
        found = Environment("unknown", ("a fork: its changes are not in this repository",), (_PATCH,))
    elif facts is None:
        found = _by_words(build)
    elif build.sha is not None and facts.commit is not None:
        found = _by_commit(build, facts, facts.commit)
    elif build.version is not None:
        found = _by_version(build, facts)
    else:
        found = _by_ref(build, facts)
    evidence = (*build.evidence, *found.evidence)
    return replace(found, evidence=evidence or ("the report names no build",))


def _by_words(build: ReportedBuild) -> Environment:
    """Without a repository: the kind the words point to, always weak."""
    published = build.packaged or build.release_sha
    if build.sha is not None and not published:
        return Environment("local_commit", (), weak=True)
    if build.dirty or (build.development and not published):
        return Environment("local_branch", (), weak=True)
    if build.version is not None:
        return Environment("public_release", (), weak=True)
    if build.ref is not None:
        kind = "public_release" if _RELEASE_REF.match(build.ref) else "local_branch"
        return Environment(kind, (), weak=True)
    if build.packaged and build.channel is not None:
        return Environment(
            "public_release", (f"a published build of the {build.channel} channel",), weak=True
        )
    if build.latest_release:
        return Environment(
            "public_release", ("it says the latest release, without a number",), (_VERSION,), weak=True
        )
    if build.from_source:
        return Environment("unknown", ("built from source, of which state is not said",), (_SHA,))
    return Environment("unknown", (), (_VERSION, _SHA))


def _by_commit(build: ReportedBuild, facts: RepositoryFacts, commit: CommitFacts) -> Environment:
    short = commit.sha[:_SHORT]
    if commit.ambiguous:
        return Environment("unknown", (f"more than one commit begins with {short}",), (_SHA,))
    if not commit.exists:
        return _missing_commit(build, facts, short)
    clash = _clash(build, facts, commit)
    if clash is not None:
        return Environment("unknown", (clash,), (_VERSION, _SHA), conflict=True)
    if commit.release_tags:
        where = f"commit {short} is in release {commit.release_tags[0]}"
        if not build.dirty:
            return Environment("public_release", (where,))
        return Environment("local_commit", (where, "the reporter changed the code"), commit=commit.sha)
    if commit.on_default_branch:
        where = f"commit {short} is on {facts.default_branch} and in no release"
        return Environment("local_commit", (where,), commit=commit.sha)
    if commit.branches:
        where = f"commit {short} is on the branch {commit.branches[0]} only"
        return Environment("local_branch", (where,), commit=commit.sha)
    return Environment(
        "local_commit", (f"commit {short} is known and on no branch any more",), commit=commit.sha
    )


def _missing_commit(build: ReportedBuild, facts: RepositoryFacts, short: str) -> Environment:
    missing = f"commit {short} is not in this repository"
    if not build.sha_stated and facts.version_tag is not None:
        kind = "local_commit" if build.dirty else "public_release"
        named = f"version {build.version} is the release {facts.version_tag}"
        return Environment(
            kind, (missing, named), commit=facts.version_tag_sha if build.dirty else None, weak=True
        )
    if build.patch_source is not None:
        return Environment("unknown", (missing, f"its changes are to be had at {build.patch_source}"))
    return Environment(
        "unknown", (missing, "a fork, an unpushed commit or a rewritten branch"), (_SHA, _PATCH)
    )


def _clash(build: ReportedBuild, facts: RepositoryFacts, commit: CommitFacts) -> str | None:
    """How commit and version contradict each other, both having been stated as fields."""
    tag = facts.version_tag
    if tag is None or not build.version_stated or not build.sha_stated or commit.sha == facts.version_tag_sha:
        return None
    if not commit.release_tags or tag not in commit.release_tags:
        return f"version {build.version} is the release {tag}, which does not contain commit {commit.sha[:_SHORT]}"
    if commit.release_tags[0] != tag:
        return (
            f"version {build.version} is the release {tag}, "
            f"but commit {commit.sha[:_SHORT]} was released before, in {commit.release_tags[0]}"
        )
    return None


def _by_version(build: ReportedBuild, facts: RepositoryFacts) -> Environment:
    weak = build.weak
    if facts.version_tag is not None:
        named = f"version {build.version} is the release {facts.version_tag}"
        if build.dirty:
            changed = "the reporter changed the code"
            return Environment("local_commit", (named, changed), commit=facts.version_tag_sha, weak=weak)
        if build.development and not build.version_stated and build.ref is not None:
            return replace(_by_ref(build, facts), weak=True)
        return Environment("public_release", (named,), weak=weak)
    if build.ref is not None and facts.ref_exists:
        return _by_ref(build, facts)
    if facts.has_release_tags:
        return Environment(
            "unknown", (f"version {build.version} names no release",), (_VERSION, _SHA), weak=weak
        )
    if build.development or build.dirty:
        return Environment("unknown", ("a state between releases, of which commit is not said",), (_SHA,))
    unverified = f"the repository has no release tags, so version {build.version} cannot be checked"
    return Environment("public_release", (unverified,), weak=True)


def _by_ref(build: ReportedBuild, facts: RepositoryFacts) -> Environment:
    if build.ref is not None and facts.version_tag == build.ref:
        return Environment("public_release", (f"{build.ref} is a release",))
    if build.ref is not None and facts.ref_exists is False and build.ref != facts.default_branch:
        return Environment("unknown", (f"{build.ref} is no branch of this repository",), (_SHA,))
    if build.ref == facts.default_branch:
        head = f"{facts.default_branch} without a commit: taken as its present head"
        return Environment("local_branch", (head,), commit=facts.head_sha, weak=True)
    if build.ref is not None and facts.ref_exists:
        return Environment(
            "local_branch", (f"{build.ref} is a branch, the commit is not said",), (_SHA,), weak=True
        )
    if build.development or build.from_source or build.dirty:
        return Environment("unknown", ("a state between releases, of which commit is not said",), (_SHA,))
    return Environment("unknown", (), (_VERSION, _SHA))
