"""Which build a reporter ran, read from the fields they filled and from what they wrote.

Fields win over text. In text a sha counts only where it is named as what ran: one inside a link, or cited
as the commit that broke or changed something, is history. A version counts when it is not that of the
system around the product (interpreter, compiler, driver, browser).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from formica.rules import build_patterns as patterns
from formica.rules.report_text import ReportText, read_report

__all__ = ["ReportedBuild", "extract", "is_development_version", "is_dirty_version", "version_sha"]

_TEXT_LIMIT = 16_000
_FULL_SHA = re.compile(r"^[0-9a-f]{7,40}$")
_REACH = 48
_MENTIONS = (
    patterns.NAMED,
    patterns.VERSION_WORD,
    patterns.LONE,
    patterns.USED,
    patterns.QUOTED,
    patterns.JSON_FIELD,
    patterns.ACTION,
)


@dataclass(frozen=True, slots=True)
class ReportedBuild:
    sha: str | None = None
    """7 to 40 hex digits, lower case."""
    version: str | None = None
    """As written, without quotes."""
    ref: str | None = None
    """A branch or tag."""
    channel: str | None = None
    patch_source: str | None = None
    """``reporter_patch_source_id``: where the changes of a fork can be had."""
    sha_stated: bool = False
    """Whether the sha was a field of its own."""
    version_stated: bool = False
    """Whether the version was a field that the reporter filled."""
    fork: bool = False
    dirty: bool = False
    """The reporter changed the code."""
    development: bool = False
    """A state between releases: a development version, a branch, a fresh checkout."""
    packaged: bool = False
    """Published as a package, binary or image, nightly ones included."""
    release_sha: bool = False
    """The sha is what a published build prints beside its version."""
    checkout: bool = False
    """The text shows a checkout of the repository, and nothing more exact."""
    from_source: bool = False
    latest_release: bool = False
    """"The latest version", without a number."""
    weak: bool = False
    """The version was filled in by the server."""
    evidence: tuple[str, ...] = ()

    @property
    def named_release(self) -> str | None:
        """The version to look for among the tags: without the marks of a changed tree."""
        if self.version is None or not is_dirty_version(self.version):
            return self.version
        return patterns.DIRTY.split(self.version)[0]

    def because(self, reason: str, **found: Any) -> ReportedBuild:
        """This build with what was found, and why."""
        return replace(self, evidence=(*self.evidence, reason), **found)


def version_sha(version: str) -> str | None:
    """The sha inside a version: ``1.2.3-dev+gabc1234``, ``v1.2.3-4-gabc1234-dirty``."""
    describe = patterns.DESCRIBE.search(version)
    if describe is not None:
        return describe[3].lower()
    pseudo = patterns.LOCKED_SHA.search(version)
    if pseudo is not None and pseudo["b"]:
        return pseudo["b"].lower()
    match = patterns.LOCAL_SHA.search(version)
    if match is None:
        return None
    sha = next(group for group in match.groups() if group)
    return sha.lower() if re.search(r"[a-f]", sha, re.IGNORECASE) or len(sha) >= 10 else None


def is_dirty_version(version: str) -> bool:
    return patterns.DIRTY.search(version) is not None


def is_development_version(version: str) -> bool:
    return patterns.DEVELOPMENT.search(version) is not None or version_sha(version) is not None


def _field(reporter: Mapping[str, Any], name: str) -> str | None:
    value = reporter.get(name)
    return value.strip() or None if isinstance(value, str) else None


def _surrounding(name: str) -> bool:
    name = re.sub(r"\bvs ?code\b|visual studio code", "vscode", name.strip().lower())
    return patterns.SURROUNDING_NAME.match(name) is not None


def _labelled_version(text: str) -> str | None:
    """The version a form or list gives: ``OpenCV => 4.5.4``, ``### DevTools version`` and the line below."""
    for pattern in (patterns.HEADING, patterns.LABELLED):
        for match in pattern.finditer(text):
            name, rest = re.sub(r"\([^)]*\)", "", match["name"]), match["rest"]
            if _surrounding(name) or patterns.EMPTY_VALUE.match(rest):
                continue
            version = patterns.ANY_VERSION.search(rest)
            if version is None:
                continue
            before = rest[: version.start()].strip(" \t\"'`(:vV")
            if "version" in match["name"].lower():
                if not _surrounding(before or name):
                    return version[0]
            elif len(before) <= 12 and len(name.split()) <= 3 and not _surrounding(before or name):
                return version[0]
    return None


def _mentioned_version(text: str) -> str | None:
    """A version in running text: ``pytest 3.7``, ``foo==1.2.3``, ``version 4.8``, ``v1.2.3``."""
    found: list[tuple[int, str]] = []
    for pattern in _MENTIONS:
        for match in pattern.finditer(text):
            before = text[max(0, match.start("version") - _REACH) : match.start("version")]
            name = match["name"] if "name" in match.groupdict() else before.split("\n")[-1]
            words = name.replace("@", " ").split()
            if any(_surrounding(word) for word in words) or _surrounding(name):
                continue
            if patterns.NOT_RUN.search(before.split("\n")[-1]):
                continue
            found.append((match.start("version"), match["version"]))
            break
    return min(found)[1].rstrip(".") if found else None


def _text_version(report: ReportText) -> str | None:
    return (
        _labelled_version(report.prose[:_TEXT_LIMIT])
        or _mentioned_version(report.title)
        or _mentioned_version(report.full[:_TEXT_LIMIT])
    )


def _text_sha(text: str) -> str | None:
    locked = patterns.LOCKED_SHA.search(text)
    if locked is not None:
        return next(group for group in locked.groups() if group).lower()
    for pattern in (patterns.SHA_RUN, patterns.SHA_AFTER):
        for match in pattern.finditer(text):
            before = text[max(0, match.start() - _REACH) : match.start()].split("\n")[-1]
            after = text[match.end("sha") : match.end("sha") + _REACH].split("\n")[0]
            if patterns.HISTORY_AFTER.match(after):
                continue
            inside = text[max(0, match.start("sha") - _REACH) : match.start("sha")].split("\n")[-1]
            if patterns.HISTORY.search(before) and not patterns.RAN.search(inside):
                continue
            return match["sha"].lower()
    return None


def _text_branch(text: str) -> str | None:
    match = patterns.ON_BRANCH.search(text)
    if match is not None:
        return next(group for group in match.groups() if group)
    return None


def _release_hash(text: str) -> tuple[str, str] | None:
    """Version and hash as published builds print them side by side."""
    match = patterns.BUILD_HASH.search(text)
    if match is not None:
        version = match["version"] or match["version2"]
        sha = match["sha"] or match["sha2"]
        if re.search(r"[a-f]", sha) and not is_development_version(version):
            return version, sha.lower()
    suffix = patterns.SUFFIX_SHA.search(text)
    if suffix is not None and ".99" not in suffix["version"]:
        return suffix["version"], suffix["sha"].lower()
    return None


def _fork(report: ReportText) -> bool:
    for match in patterns.FORK.finditer(report.prose[:_TEXT_LIMIT]):
        around = report.prose[max(0, match.start() - 60) : match.end() + 60]
        if not patterns.FORK_NOT_RUN.search(around):
            return True
    return False


def _from_fields(reporter: Mapping[str, Any]) -> ReportedBuild:
    sha = (_field(reporter, "reporter_git_sha") or "").lower()
    version = _field(reporter, "reporter_app_version")
    ref = _field(reporter, "reporter_git_ref")
    weak = reporter.get("reporter_app_version_source") == "server"
    evidence = [
        f"{name} is {value}"
        for name, value in (("the reporter's commit", sha), ("the reporter's ref", ref))
        if value
    ]
    if version:
        evidence.append(
            f"the version {version} was filled in by the server"
            if weak
            else f"the reporter's version is {version}"
        )
    return ReportedBuild(
        sha=sha if _FULL_SHA.match(sha) else None,
        version=version,
        ref=ref.removeprefix("refs/heads/").removeprefix("refs/tags/") if ref else None,
        channel=_field(reporter, "reporter_channel"),
        patch_source=_field(reporter, "reporter_patch_source_id"),
        sha_stated=bool(_FULL_SHA.match(sha)),
        version_stated=bool(version) and not weak,
        dirty=bool(version) and is_dirty_version(version or ""),
        weak=weak,
        evidence=tuple(evidence),
    )


def _current_state(text: str) -> str | None:
    """How the text says that a state between releases was run, if it says so."""
    current = patterns.CURRENT.search(text)
    if current is not None:
        return f"the text says “{current[0].strip()[:60]}”"
    clone = patterns.CLONE.search(text)
    if clone is not None and not patterns.TAG_CHECKOUT.search(text):
        return "the text clones the repository without naming a version"
    if patterns.CI.search(text):
        return "it happened in the project's own automation"
    return None


def _read_version(build: ReportedBuild, report: ReportText, text: str) -> ReportedBuild:
    """The version from the text, when no field gave one or only the server did."""
    if build.version is not None and not build.weak:
        return build
    written = _text_version(report)
    if written is not None:
        return build.because(f"the text names version {written}", version=written, weak=False)
    image = patterns.IMAGE.search(text)
    if image is not None and build.version is None and re.match(r"v?\d", image["tag"]):
        return build.because(f"the text names the image {image[0]}", version=image["tag"], packaged=True)
    return build


def _read_sha(build: ReportedBuild, text: str) -> ReportedBuild:
    """The sha from the version or, when no field says what ran, from the text."""
    if build.sha is not None:
        return build
    inside = version_sha(build.version) if build.version is not None else None
    if inside is not None:
        return build.because(f"the version carries commit {inside}", sha=inside)
    if build.version_stated:
        return build
    printed = _release_hash(text)
    if printed is not None:
        version, sha = printed
        return build.because(
            f"a published build prints {version} with {sha}", version=version, sha=sha, release_sha=True
        )
    sha_run = _text_sha(text)
    if sha_run is not None:
        return build.because(f"the text says that commit {sha_run} ran", sha=sha_run)
    describe = patterns.DESCRIBE.search(text)
    if describe is not None:
        return build.because(f"the text holds {describe[0]}", sha=describe[3].lower())
    return build


def _read_state(build: ReportedBuild, text: str) -> ReportedBuild:
    """Branches, development versions and fresh checkouts, when no field says what ran."""
    if build.version is not None and is_development_version(build.version):
        build = replace(build, development=True)
    if build.sha_stated or build.version_stated:
        return build
    between = patterns.BETWEEN_RELEASES.search(text)
    if between is not None:
        build = build.because(f"the text names {between[0]}, a state between releases", development=True)
    branch = _text_branch(text) if build.ref is None else None
    if branch is not None:
        ref = None if branch.lower() == "head" else branch
        return build.because(f"the text names the branch {branch}", ref=ref, development=True)
    if build.version is None and build.sha is None and build.ref is None:
        state = _current_state(text)
        if state is not None:
            return build.because(state, development=True, checkout=True)
    return build


def _read_changes(build: ReportedBuild, report: ReportText) -> ReportedBuild:
    """Forks and changes of the reporter's own; they count beside any field."""
    if _fork(report):
        build = build.because("the text says that it is a fork", fork=True)
    patched = patterns.PATCHED.search(report.prose[:_TEXT_LIMIT])
    if patched is not None:
        build = build.because(f"the text says “{patched[0].strip()[:60]}”", dirty=True)
    if build.version is not None and is_dirty_version(build.version):
        build = replace(build, dirty=True)
    return build


def extract(title: str, body: str, reporter: Mapping[str, Any] | None = None) -> ReportedBuild:
    """The build behind a report. Total on any text; says why in `evidence`."""
    report = read_report(title, body)
    text = f"{report.title}\n{report.full}"[:_TEXT_LIMIT]
    build = _read_version(_from_fields(reporter or {}), report, text)
    build = _read_state(_read_sha(build, text), text)
    build = _read_changes(build, report)
    named = patterns.CHANNEL.search(text)
    channel = next(group for group in named.groups() if group).lower() if named is not None else None
    version = build.version or ""
    dated = patterns.DATED.search(version) is not None and patterns.LOCKED_SHA.search(version) is None
    installed = not build.checkout and patterns.BINARY.search(text) is not None
    return replace(
        build,
        channel=build.channel or channel,
        packaged=build.packaged or dated or installed,
        from_source=patterns.SOURCE.search(text) is not None,
        latest_release=patterns.LATEST_RELEASE.search(text) is not None,
    )
