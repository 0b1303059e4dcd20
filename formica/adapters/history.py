"""What the mirror says about a commit, a version or a ref a reporter named. Read with GitPython.

Everything here blocks; the caller runs it in a thread. Only ever opened on our own mirror: GitPython adds
the daemon's whole environment to git's, so what could mislead git there is set over it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from formica.errors import Retryable
from formica.ports import CommitFacts, RepositoryFacts

if TYPE_CHECKING:
    from git import Repo

__all__ = ["is_release_tag", "read_facts"]

_SHA = re.compile(r"[0-9a-f]{4,64}")
_RELEASE = re.compile(
    r"(?:[A-Za-z][\w.-]*[-_/@])?[vV]?(?P<version>\d+(?:\.\d+)+(?:[-.+_]?[0-9A-Za-z]+)*)", re.ASCII
)
_COMMIT_LIMIT = 50


def is_release_tag(name: str) -> bool:
    """``1.2``, ``v1.2.3-rc.1``, ``release-1.2.3``, ``package@1.2.3``."""
    return _RELEASE.fullmatch(name) is not None


def read_facts(
    mirror: Path,
    config: Path,
    *,
    default_branch: str,
    sha: str | None,
    version: str | None,
    ref: str | None,
) -> RepositoryFacts:
    """Facts for the environment check. Text that is no sha, version or ref name simply is not found."""
    # Imported here: importing GitPython runs `git version`, and importing a package of ours does nothing.
    from git import GitError, Repo

    try:
        with Repo(mirror) as repo:
            return _read(repo, config, default_branch, sha, version, ref)
    except GitError as error:
        raise Retryable(f"the mirror could not be read ({type(error).__name__})") from error


def _read(
    repo: Repo, config: Path, default_branch: str, sha: str | None, version: str | None, ref: str | None
) -> RepositoryFacts:
    repo.git.update_environment(
        GIT_DIR=str(repo.git_dir),
        GIT_CONFIG_GLOBAL=str(config),
        GIT_CONFIG_NOSYSTEM="1",
        GIT_CONFIG_COUNT="0",
        GIT_TERMINAL_PROMPT="0",
        GIT_NO_LAZY_FETCH="1",
        LC_ALL="C.UTF-8",
    )
    tags = {tag.name: tag.path for tag in repo.tags}
    tag = _version_tag(list(tags), version)
    return RepositoryFacts(
        default_branch=default_branch,
        head_sha=_peel(repo, f"refs/heads/{default_branch}"),
        commit=None if sha is None else _commit_facts(repo, sha.strip().lower(), default_branch),
        version_tag=tag,
        version_tag_sha=None if tag is None else _peel(repo, tags[tag]),
        ref_exists=None if ref is None else _ref_exists(repo, ref),
        has_release_tags=any(map(is_release_tag, tags)),
    )


def _peel(repo: Repo, ref: str) -> str:
    return str(repo.git.rev_parse("--verify", "--end-of-options", f"{ref}^{{commit}}"))


def _commit_facts(repo: Repo, sha: str, default_branch: str) -> CommitFacts:
    found = _commits(repo, sha)
    if len(found) != 1:
        return CommitFacts(sha=sha, exists=bool(found), ambiguous=len(found) > 1)
    full = found[0]
    listed = repo.git.for_each_ref(
        f"--contains={full}", "--sort=creatordate", "--format=%(refname)", "refs/heads", "refs/tags"
    ).splitlines()
    heads = [name.removeprefix("refs/heads/") for name in listed if name.startswith("refs/heads/")]
    branches = tuple(name for name in heads if not name.startswith("formica/"))
    tags = tuple(name.removeprefix("refs/tags/") for name in listed if name.startswith("refs/tags/"))
    return CommitFacts(
        sha=full,
        exists=True,
        on_default_branch=default_branch in branches,
        branches=branches,
        release_tags=tuple(filter(is_release_tag, tags)),
    )


def _commits(repo: Repo, sha: str) -> list[str]:
    """The commits whose sha begins so, at most ``_COMMIT_LIMIT`` looked at."""
    if not _SHA.fullmatch(sha):
        return []
    names = repo.git.rev_parse(f"--disambiguate={sha}").splitlines()[:_COMMIT_LIMIT]
    return [name for name in names if repo.git.cat_file("-t", name) == "commit"]


def _version_tag(tags: list[str], version: str | None) -> str | None:
    wanted = (version or "").strip().lower().removeprefix("v")
    if not wanted:
        return None
    exact = [name for name in tags if name.lower() in (wanted, f"v{wanted}")]
    prefixed = [
        name
        for name in tags
        if (match := _RELEASE.fullmatch(name)) is not None and match["version"].lower() == wanted
    ]
    return next(iter(exact or sorted(prefixed)), None)


def _ref_exists(repo: Repo, ref: str) -> bool:
    name = ref.strip()
    for prefix in ("refs/heads/", "refs/tags/", "refs/remotes/origin/", "origin/", "heads/", "tags/"):
        if name.startswith(prefix):
            name = name.removeprefix(prefix)
            break
    paths = {reference.path for reference in repo.references}
    return f"refs/heads/{name}" in paths or f"refs/tags/{name}" in paths
