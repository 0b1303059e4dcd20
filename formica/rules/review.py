"""The gates on a diff: everything in it that needs a person, with file and line. Pure.

Each gate yields findings; one that fails is a finding too, so nothing passes because it could not be judged.
A secret of the daemon itself is more than a finding: nobody's word publishes it (see `unpublishable`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from formica.rules.facts import Change, FileChange, FileText
from formica.rules.finding import Finding
from formica.rules.policy import Policy
from formica.rules.protected import areas, is_disguised, plain_path
from formica.rules.secret_forms import LiveSecrets
from formica.rules.weakened_tests import weakened_tests
from pool_server.contract.redaction import CREDENTIAL_KINDS, find, normalise

__all__ = ["FINAL", "Finding", "review", "unpublishable"]

SHARE_LOST = 0.5
"""A file that loses more than this share of its lines is mostly deleted."""
SHARE_LOST_FROM = 40
LONG_LINE = 4_000
LINK, GITLINK, ABSENT = "120000", "160000", "000000"
NO_SECRETS = LiveSecrets()
FINAL = frozenset({"live_secret", "unreadable", "message"})
"""Rules whose findings no approval overrides."""


@dataclass(frozen=True, slots=True)
class _Case:
    change: Change
    policy: Policy
    secrets: LiveSecrets


def review(change: Change, policy: Policy, secrets: LiveSecrets = NO_SECRETS) -> list[Finding]:
    """What in a change needs a person. Empty only when every gate looked at everything and found nothing."""
    case = _Case(change, policy, secrets)
    findings: list[Finding] = []
    for name, gate in _GATES.items():
        try:
            findings.extend(gate(case))
        except Exception as error:  # noqa: BLE001 - a gate that cannot judge must not let anything pass
            failed = f"the gate for {name} failed ({type(error).__name__}): look at the whole diff"
            findings.append(Finding("gate_error", "", None, failed))
    return list(dict.fromkeys(findings))


def unpublishable(change: Change | None, secrets: LiveSecrets, texts: Mapping[str, str]) -> list[Finding]:
    """Why this may not leave whoever says so: secrets of this daemon in the change or in ``texts`` (surface,
    for example ``branch``, to its text), or a change that could not be read."""
    found = []
    if change is not None:
        found = [*_unreadable(_Case(change, Policy(), secrets)), *_live(change, secrets)]
    found += [
        Finding("live_secret", "", None, f"the {surface} holds a secret of this daemon")
        for surface, text in texts.items()
        if secrets.holds(text)
    ]
    return found


# --- places and sizes -------------------------------------------------------------------------------------


def _protected(case: _Case) -> Iterator[Finding]:
    for file in case.change.files:
        for area in areas(file.path, case.policy.protected):
            yield Finding("protected", file.path, None, f"protected area {area}")
        if file.status != "D" and is_disguised(file.path):
            detail = f"the name is not what it looks like: {plain_path(file.path)!a}"
            yield Finding("disguised_name", file.path, None, detail)


def _names(case: _Case) -> Iterator[Finding]:
    """Two names that some file systems take for one: one would overwrite the other there."""
    seen: dict[str, str] = {}
    for file in case.change.files:
        if file.status != "A":
            continue
        other = seen.setdefault(plain_path(file.path), file.path)
        if other != file.path:
            yield Finding("disguised_name", file.path, None, "the same name as another new file's")


def _sizes(case: _Case) -> Iterator[Finding]:
    files, policy = case.change.files, case.policy
    lines = sum(file.added + file.deleted for file in files)
    if len(files) > policy.max_files:
        yield Finding("size", "", None, f"{len(files)} files changed, the limit is {policy.max_files}")
    if lines > policy.max_lines:
        yield Finding("size", "", None, f"{lines} lines changed, the limit is {policy.max_lines}")


def _deletions(case: _Case) -> Iterator[Finding]:
    deleted = [file for file in case.change.files if file.status == "D"]
    limit = case.policy.max_deleted_files
    if len(deleted) > limit:
        yield Finding("deletion", "", None, f"{len(deleted)} files deleted, the limit is {limit}")
    for file in case.change.files:
        text = case.change.texts.get(file.path)
        if file.status != "M" or text is None or not text.whole:
            continue
        old, lost = len(text.old), len(text.removed) - len(text.added)
        if lost >= SHARE_LOST_FROM and lost > SHARE_LOST * old:
            detail = f"{lost} of {old} lines deleted and not replaced"
            yield Finding("deletion", file.path, text.removed[0].new, detail)


# --- kinds of files ---------------------------------------------------------------------------------------


def _modes(case: _Case) -> Iterator[Finding]:
    for file in case.change.files:
        modes = (file.old_mode, file.new_mode)
        plain = not {LINK, GITLINK} & set(modes)
        if file.status in ("M", "T") and modes[0] != modes[1] and plain:
            yield Finding("mode", file.path, None, f"mode changed from {modes[0]} to {modes[1]}")
        elif file.status == "A" and file.new_mode == "100755":
            yield Finding("mode", file.path, None, "new executable (mode 100755)")
        elif file.new_mode not in ("100644", "100755", LINK, GITLINK, ABSENT):
            yield Finding("mode", file.path, None, f"unusual mode {file.new_mode}")


def _binaries(case: _Case) -> Iterator[Finding]:
    for file in case.change.files:
        if file.binary:
            yield Finding("binary", file.path, None, "binary")


def _links(case: _Case) -> Iterator[Finding]:
    for file in case.change.files:
        if file.new_mode == LINK:
            detail = _link(file, case)
            if detail:
                yield Finding("link", file.path, None, detail)
        elif file.old_mode == LINK and file.status == "T":
            yield Finding("link", file.path, None, "was a symbolic link and is a file now")


def _link(file: FileChange, case: _Case) -> str:
    """Why the link needs a person, or nothing for a new link to an ordinary place of the tree."""
    text = case.change.texts.get(file.path)
    target = "\n".join(row.text for row in text.added) if text is not None else ""
    if not target:
        return "symbolic link to a place that could not be read"
    place = _inside(file.path, target)
    if place is None:
        return f"symbolic link out of the tree: {target[:200]!a}"
    if file.status != "A":
        return f"symbolic link changed, now to {target[:200]!a}"
    named = areas(place, case.policy.protected)
    if named or plain_path(place).split("/")[0] == ".git":
        return f"symbolic link into protected area {', '.join(named) or '.git'}: {target[:200]!a}"
    return ""


def _inside(path: str, target: str) -> str | None:
    """The place of the tree that the link points at, or None. A ``..`` after a name counts as out: the name
    may be a link itself, and then nobody knows where it leads."""
    parts = target.replace("\\", "/").split("/")
    climbs = 0
    while parts and parts[0] in ("..", "."):
        climbs += parts.pop(0) == ".."
    folders = path.split("/")[:-1]
    if target.startswith(("/", "\\", "~")) or ":" in target or ".." in parts or climbs > len(folders):
        return None
    rest = [part for part in parts if part not in ("", ".")]
    return "/".join([*folders[: len(folders) - climbs], *rest])


def _submodules(case: _Case) -> Iterator[Finding]:
    for file in case.change.files:
        if GITLINK in (file.old_mode, file.new_mode):
            yield Finding("submodule", file.path, None, "submodule")
        elif plain_path(file.path).rpartition("/")[2] == ".gitmodules":
            yield Finding("submodule", file.path, None, "submodule settings")


# --- lines ------------------------------------------------------------------------------------------------


def _unreadable(case: _Case) -> Iterator[Finding]:
    for file in case.change.files:
        text = case.change.texts.get(file.path)
        if text is None:
            yield Finding(
                "unreadable", file.path, None, "its lines could not be read, so nothing vouches for them"
            )
        elif not file.binary and LINK not in (file.old_mode, file.new_mode):
            counted = (len(text.added), len(text.removed))
            if counted != (file.added, file.deleted) and GITLINK not in (file.old_mode, file.new_mode):
                yield Finding("unreadable", file.path, None, "git counts other lines than were read")


def _hidden(case: _Case) -> Iterator[Finding]:
    for path, text in case.change.texts.items():
        for row in text.added:
            kinds = normalise(row.text)[1]
            if kinds:
                detail = (
                    f"characters that cannot be seen: {', '.join(sorted(kinds)).lower().replace('_', ' ')}"
                )
                yield Finding("hidden_text", path, row.new, detail)
            if len(row.text) > LONG_LINE:
                yield Finding("long_line", path, row.new, f"a line of {len(row.text)} characters")


def _live(change: Change, secrets: LiveSecrets) -> Iterator[Finding]:
    """Secrets of this daemon in added lines, in names, in the commit message, or spread over them."""
    found = False
    for path, text in change.texts.items():
        rows = text.added
        hit = secrets.find([row.text for row in rows])
        if hit is not None:
            found = True
            yield Finding("live_secret", path, rows[hit.last].new, "a secret of this daemon")
    for file in change.files:
        if secrets.holds(file.path):
            found = True
            yield Finding("live_secret", "", None, "the name of a changed file holds a secret of this daemon")
    if secrets.holds(change.message):
        found = True
        yield Finding("live_secret", "", None, "the commit message holds a secret of this daemon")
    if not found and secrets.holds(_everything(change)):
        yield Finding("live_secret", "", None, "a secret of this daemon is spread over several files")


def _everything(change: Change) -> str:
    texts = ["\n".join(row.text for row in text.added) for text in change.texts.values()]
    names = ["\n".join(file.path for file in change.files), "\n".join(_name(file) for file in change.files)]
    return "\n".join([*texts, *names])


def _name(file: FileChange) -> str:
    return file.path.rpartition("/")[2].partition(".")[0]


def _secrets(case: _Case) -> Iterator[Finding]:
    yield from _live(case.change, case.secrets)
    for path, text in case.change.texts.items():
        yield from _shaped(path, text)
    for file in case.change.files:
        if find(file.path, CREDENTIAL_KINDS):
            yield Finding("secret", "", None, "the name of a changed file looks like a credential")
    for found in find(case.change.message, CREDENTIAL_KINDS):
        yield Finding("message", "", None, f"the commit message holds what looks like a {found.kind.lower()}")


def _shaped(path: str, text: FileText) -> Iterator[Finding]:
    rows = text.added
    joined = "\n".join(row.text for row in rows)
    for found in find(joined, CREDENTIAL_KINDS):
        line = rows[joined.count("\n", 0, found.start)].new
        kind = found.kind.lower().replace("_", " ")
        yield Finding("secret", path, line, f"looks like a {kind}")


_GATES: dict[str, Callable[[_Case], Iterator[Finding]]] = {
    "protected areas": _protected,
    "names": _names,
    "sizes": _sizes,
    "deletions": _deletions,
    "modes": _modes,
    "binaries": _binaries,
    "links": _links,
    "submodules": _submodules,
    "readable lines": _unreadable,
    "hidden text": _hidden,
    "secrets": _secrets,
    "weakened tests": lambda case: weakened_tests(case.change),
}
