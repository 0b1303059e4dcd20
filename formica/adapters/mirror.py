"""The daemon's bare mirror of the maintainer's repository.

The source is a URL, a bare repository, or the maintainer's checkout. A checkout is only ever read: its
`remote.origin.url` names the real source, and only when it has no remote is it the source itself.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from formica.adapters.git import Git, Remote
from formica.adapters.tree import Found, blob_sha
from formica.errors import Broken, NeedsOperator, Refused, Retryable

__all__ = ["Mirror"]

# Flaws in old commits of real projects that harm nobody; everything else fsck knows stays an error.
_OLD_FLAWS = ("zeroPaddedFilemode", "badTimezone", "missingSpaceBeforeDate", "missingSpaceBeforeEmail")


@dataclass(frozen=True, slots=True)
class _Source:
    remote: Remote
    checkout: Path | None
    """The git directory of the maintainer's checkout, when one was named."""
    work_tree: Path | None
    is_checkout: bool
    """The checkout is itself the source: it has no remote."""


class Mirror:
    """``source`` is what the maintainer configured; ``default_branch`` None means the remote's HEAD."""

    def __init__(self, git: Git, state: Path, *, source: str, default_branch: str | None = None) -> None:
        self._git = git
        self._source_text = source
        self._configured_branch = default_branch
        self._mirrors = state / "mirrors"
        self._lock = anyio.Lock()
        self._source: _Source | None = None
        self._path: Path | None = None
        self._branch = ""
        self.object_format = "sha1"

    @property
    def path(self) -> Path:
        if self._path is None:
            raise Broken("the mirror was read before it was made")
        return self._path

    @property
    def default_branch(self) -> str:
        return self._branch

    async def ensure(self) -> None:
        """The mirror exists and knows its default branch; fetches only when it must."""
        if not self._branch:
            await self.refresh()

    async def refresh(self) -> None:
        """Fetch branches and tags. ``Retryable`` when the source does not answer, ``Refused`` (rule
        ``dirty_tree_policy``) when the source is a checkout with uncommitted work."""
        async with self._lock:
            source = await self._find_source()
            if source.is_checkout:
                await self._refuse_dirty(source)
            branch = self._configured_branch or await self._remote_head(source.remote)
            path = await self._make(source.remote)
            await self._git.run(
                *("fetch", "-q", "--prune", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
                *("--end-of-options", source.remote.address),
                *("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"),
                git_dir=path,
                remote=source.remote,
                settings=[(f"fetch.fsck.{flaw}", "warn") for flaw in _OLD_FLAWS],
                doing="fetch the repository",
                failure=Retryable,
            )
            self._path = path
            if await self.resolve(f"refs/heads/{branch}") is None:
                raise NeedsOperator(
                    f"the repository has no branch {branch!r}; set [repository] default_branch"
                )
            self._branch = branch

    async def head(self) -> str:
        """The sha of the default branch in the mirror."""
        sha = await self.resolve(f"refs/heads/{self._branch}")
        if sha is None:
            raise NeedsOperator(f"the repository has no branch {self._branch!r}")
        return sha

    async def resolve(self, name: str) -> str | None:
        """The commit a full ref name or a sha means here, or None."""
        return await self._resolve_in(self.path, name)

    async def _resolve_in(self, git_dir: Path, name: str) -> str | None:
        output = await self._git.run(
            *("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}"),
            git_dir=git_dir,
            doing="look for a commit",
            ok=(0, 1, 128),
        )
        return output.text if output.code == 0 else None

    async def commit(self, sha: str) -> str | None:
        """The full sha when the commit is in the mirror, or only in the maintainer's clean checkout, from
        which it is then copied. ``Refused`` when that checkout is dirty."""
        found = await self.resolve(sha)
        if found is not None:
            return found if found.startswith(sha) else None
        source = await self._find_source()
        if source.checkout is None or source.is_checkout:
            return None
        full = await self._resolve_in(source.checkout, sha)
        if full is None or not full.startswith(sha):
            return None  # a branch whose name looks like a sha is none
        await self._refuse_dirty(source)
        await self.take(source.checkout, full, f"refs/formica/local/{full}")
        return full

    async def take(self, repository: Path, sha: str, ref: str) -> None:
        """Copy a commit from another repository of this host to ``ref`` of the mirror."""
        async with self._lock:
            await self._git.run(
                *("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
                *("--end-of-options", str(repository), f"+{sha}:{ref}"),
                git_dir=self.path,
                doing="copy a commit to the mirror",
                failure=Retryable,
            )

    async def keep(self, sha: str) -> None:
        """Hold ``sha`` while an item borrows it."""
        async with self._lock:
            await self._git.run(
                *("update-ref", "--end-of-options", f"refs/formica/keep/{sha}", sha),
                git_dir=self.path,
                doing="keep the base of an item",
            )

    async def release(self, sha: str) -> None:
        async with self._lock:
            await self._git.run(
                *("update-ref", "-d", "--end-of-options", f"refs/formica/keep/{sha}"),
                git_dir=self.path,
                doing="release the base of an item",
            )

    async def hooks_path(self) -> str | None:
        """`core.hooksPath` of the maintainer's checkout when it lies inside the tree, relative to it."""
        source = await self._find_source()
        if source.checkout is None:
            return None
        value = await self._read_setting(source.checkout, "core.hooksPath")
        inside = bool(value) and not value.startswith(("/", "~")) and ".." not in Path(value).parts
        return value if inside else None

    async def _find_source(self) -> _Source:
        if self._source is None:
            here = await anyio.to_thread.run_sync(os.getcwd)
            remote = Remote.parse(self._source_text, relative_to=Path(here))
            folder = remote.path
            git_dir = await anyio.to_thread.run_sync(_checkout_git_dir, folder) if folder else None
            if folder is None or git_dir is None:
                self._source = _Source(remote, None, None, is_checkout=False)
            else:
                self._source = await self._source_of_checkout(folder, git_dir)
        return self._source

    async def _source_of_checkout(self, folder: Path, git_dir: Path) -> _Source:
        common = await self._git.run(
            *("rev-parse", "--path-format=absolute", "--git-common-dir"),
            git_dir=git_dir,
            doing="read the checkout",
            failure=NeedsOperator,
        )
        url = await self._read_setting(git_dir, "remote.origin.url")
        if not url:
            names = await self._git.run(
                *("config", "-z", "--name-only", "--get-regexp", r"^remote\..*\.url$"),
                git_dir=git_dir,
                doing="read the checkout's remotes",
                ok=(0, 1),
            )
            if len(names.fields) > 1:
                raise NeedsOperator(
                    "the checkout has several remotes and none is origin: set [repository] url"
                )
            url = await self._read_setting(git_dir, names.text.rstrip("\0")) if names.fields else ""
        if url:
            return _Source(Remote.parse(url, relative_to=folder), git_dir, folder, is_checkout=False)
        return _Source(Remote(common.text, "file"), git_dir, folder, is_checkout=True)

    async def _read_setting(self, git_dir: Path, key: str) -> str:
        output = await self._git.run(
            *("config", "-z", "--get", key), git_dir=git_dir, doing="read the checkout's settings", ok=(0, 1)
        )
        return output.text.rstrip("\0")

    async def _refuse_dirty(self, source: _Source) -> None:
        """Neither the index is written nor a filter of the checkout run: stat data decides, and where git
        must compare contents it compares plain bytes."""
        assert source.checkout is not None
        assert source.work_tree is not None
        drivers = await self._git.run(
            *(
                "config",
                "-z",
                "--name-only",
                "--get-regexp",
                r"^filter\..*\.(clean|smudge|process|required)$",
            ),
            git_dir=source.checkout,
            doing="read the checkout's filters",
            ok=(0, 1),
        )
        names = {os.fsdecode(key).rpartition(".")[0] for key in drivers.fields}
        off = [(f"{name}.{key}", "") for name in sorted(names) for key in ("clean", "smudge", "process")]
        off += [(f"{name}.required", "false") for name in sorted(names)]
        questions: tuple[Sequence[str], ...] = (
            ("diff-index", "-z", "--name-only", "--cached", "--ignore-submodules=dirty", "HEAD"),
            ("ls-files", "-z", "--others", "--exclude-standard"),
            ("diff-files", "-z", "--raw", "--ignore-submodules=dirty", "--no-ext-diff"),
        )
        for question in questions:
            output = await self._git.run(
                *question,
                git_dir=source.checkout,
                work_tree=source.work_tree,
                settings=off,
                doing="look for uncommitted work in the checkout",
                failure=NeedsOperator,
            )
            changed = output.fields
            if "--raw" in question:
                changed = await anyio.to_thread.run_sync(_really_changed, source.work_tree, changed)
            if changed:
                name = changed[0].decode("utf-8", "replace")
                raise Refused(
                    f"the checkout has uncommitted work ({name!r}), and what was asked for is only there: "
                    "commit it first",
                    rule="dirty_tree_policy",
                )

    async def _remote_head(self, remote: Remote) -> str:
        output = await self._git.run(
            *("ls-remote", "--symref", "--end-of-options", remote.address, "HEAD"),
            remote=remote,
            doing="reach the repository",
            failure=Retryable,
        )
        first = output.text.partition("\t")[0]
        if not first.startswith("ref: refs/heads/"):
            raise NeedsOperator("the repository names no default branch: set [repository] default_branch")
        return first.removeprefix("ref: refs/heads/")

    async def _make(self, remote: Remote) -> Path:
        name = hashlib.sha256(remote.address.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        path = self._mirrors / f"{name}.git"
        if not await anyio.to_thread.run_sync((path / "HEAD").exists):
            await anyio.to_thread.run_sync(self._clear, path)
            self.object_format = await self._format_of(remote)
            await self._git.run(
                *("init", "-q", "--bare", f"--object-format={self.object_format}"),
                *("--initial-branch=none", "--end-of-options", str(path)),
                doing="make the mirror",
            )
        else:
            shown = await self._git.run(
                "rev-parse", "--show-object-format", git_dir=path, doing="read the mirror"
            )
            self.object_format = shown.text
        return path

    def _clear(self, path: Path) -> None:
        """A folder without HEAD is a mirror that was never finished; nothing in it is wanted."""
        self._mirrors.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)

    async def _format_of(self, remote: Remote) -> str:
        listed = await self._git.run(
            *("ls-remote", "--end-of-options", remote.address, "HEAD"),
            remote=remote,
            doing="reach the repository",
            failure=Retryable,
        )
        return "sha256" if len(listed.text.partition("\t")[0]) == 64 else "sha1"


def _really_changed(tree: Path, raw: Sequence[bytes]) -> list[bytes]:
    """The paths of `diff-files --raw` but those whose stat data alone changed, as after a copy."""
    changed = []
    for facts, path in zip(raw[::2], raw[1::2], strict=True):
        old_mode, new_mode, sha, _, status = facts[1:].decode("ascii").split(" ")
        found = Found(new_mode, 0)
        object_format = "sha256" if len(sha) == 64 else "sha1"
        if status != "M" or old_mode != new_mode or blob_sha(tree, path, found, object_format) != sha:
            changed.append(path)
    return changed


def _checkout_git_dir(folder: Path) -> Path | None:
    """The `.git` of a checkout; None for a bare repository or a folder that is none."""
    inner = folder / ".git"
    return inner if inner.exists() else None
