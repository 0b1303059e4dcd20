"""The daemon's bare mirror of the maintainer's repository, which every item borrows its objects from."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio

from formica.adapters.git import OBJECT_ID, Git, Remote, write_repository_settings
from formica.adapters.source import Source, SourceReader
from formica.errors import Broken, NeedsOperator, Retryable

__all__ = ["Mirror"]

# Flaws in old commits of real projects that harm nobody; everything else fsck knows stays an error.
_OLD_FLAWS = ("zeroPaddedFilemode", "badTimezone", "missingSpaceBeforeDate", "missingSpaceBeforeEmail")
_KEEP = "refs/formica/keep"
_GC_SECONDS = 3_600.0
_GC = (("gc.auto", "2000"), ("gc.autoPackLimit", "50"), ("gc.autoDetach", "false"))


class Mirror:
    """``source`` is what the maintainer configured; ``default_branch`` None means the remote's HEAD."""

    def __init__(self, git: Git, state: Path, *, source: str, default_branch: str | None = None) -> None:
        self._git = git
        self._reader = SourceReader(git, source)
        self._configured_branch = default_branch
        self._mirrors = state / "mirrors"
        self._lock = anyio.Lock()
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

    async def find(self) -> None:
        """The mirror exists, as it was fetched last; the source is asked only when there is none yet."""
        if self._path is not None:
            return
        source = await self._reader.find()
        path = self._place(source.remote)
        known = await anyio.to_thread.run_sync(_format_of, path)
        if known is None:
            await self.refresh()
        elif self._path is None:
            async with self._lock:
                await self._open(source.remote, known)

    async def refresh(self) -> None:
        """Fetch branches and tags. ``Retryable`` when the source does not answer, ``Refused`` (rule
        ``dirty_tree_policy``) when the source is a checkout with uncommitted work, ``NeedsOperator`` when it
        is empty, cut short or has no default branch."""
        async with self._lock:
            source = await self._reader.find()
            if source.is_checkout:
                await self._reader.refuse_dirty(source)
            branch = self._configured_branch
            if branch is None or self._path is None:
                listing = await self._reader.listing(source.remote)
                branch = branch or listing.head_branch
                await self._open(source.remote, listing.object_format)
            if branch is None:
                raise NeedsOperator("the repository names no default branch: set [repository] default_branch")
            await self._fetch(source)
            if await self.resolve(f"refs/heads/{branch}") is None:
                raise NeedsOperator(
                    f"the repository has no branch {branch!r}; set [repository] default_branch"
                )
            self._branch = branch

    async def resolve(self, name: str) -> str | None:
        """The commit a full ref name or a sha means here, or None."""
        return await self._resolve_in(self.path, name)

    async def commit(self, sha: str) -> str | None:
        """The full sha when the commit is in the mirror, or only in the maintainer's clean checkout, from
        which it is then copied. ``Refused`` when that checkout is dirty."""
        found = await self.resolve(sha)
        if found is not None:
            return found if found.startswith(sha) else None
        source = await self._reader.find()
        if source.checkout is None or source.is_checkout:
            return None
        full = await self._resolve_in(source.checkout, sha)
        if full is None or not full.startswith(sha):
            return None  # a branch whose name looks like a sha is none
        await self._reader.refuse_dirty(source)
        await self._reader.refuse_incomplete(source.checkout)
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

    async def hold(self, commit: str | None) -> str | None:
        """Keep a commit, by default the head of the default branch, while something borrows it; its sha, or
        None when it is nowhere."""
        if commit is not None and await self.commit(commit) is None:
            return None
        async with self._lock:
            sha = await self.resolve(commit or f"refs/heads/{self._branch}")
            if sha is not None:
                await self._git.run(
                    *("update-ref", "--end-of-options", f"{_KEEP}/{sha}", sha),
                    git_dir=self.path,
                    doing="keep the base of an item",
                    failure=Retryable,
                )
            return sha

    async def release(self, sha: str) -> None:
        async with self._lock:
            await self._git.run(
                *("update-ref", "-d", "--end-of-options", f"{_KEEP}/{sha}"),
                git_dir=self.path,
                doing="release the base of an item",
                failure=Retryable,
            )

    async def kept(self) -> list[str]:
        """The commits held now."""
        listed = await self._git.run(
            *("for-each-ref", "--format=%(objectname)", _KEEP),
            git_dir=self.path,
            doing="list the bases that are kept",
        )
        return listed.text.split()

    async def behind(self, base_sha: str) -> int:
        """How many commits the default branch, as it was fetched last, has that ``base_sha`` has not."""
        if not OBJECT_ID.fullmatch(base_sha):
            raise NeedsOperator(f"{base_sha[:64]!r} names no commit")
        counted = await self._git.run(
            *("rev-list", "--count", "--end-of-options", f"refs/heads/{self._branch}", f"^{base_sha}"),
            git_dir=self.path,
            doing="compare the base with the default branch",
            failure=NeedsOperator,
        )
        return int(counted.text)

    async def tidy(self, *, at_once: bool = False) -> None:
        """Repack when git finds it worth while, and delete what has been unreachable for two weeks, or with
        ``at_once`` whatever is unreachable. What a living item borrows is reachable through its kept base."""
        if not at_once:
            await self._git.run(
                *("gc", "--auto", "--quiet"),
                git_dir=self.path,
                settings=_GC,
                doing="tidy the mirror",
                failure=Retryable,
                timeout_seconds=_GC_SECONDS,
            )
            return
        async with self._lock:
            await self._git.run(
                *("gc", "--quiet", "--prune=now"),
                git_dir=self.path,
                doing="tidy the mirror",
                failure=Retryable,
                timeout_seconds=_GC_SECONDS,
            )

    async def hooks_path(self) -> str | None:
        """`core.hooksPath` of the maintainer's checkout when it lies inside the tree, relative to it."""
        return await self._reader.hooks_path()

    async def _fetch(self, source: Source) -> None:
        await self._git.run(
            *("fetch", "-q", "--prune", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
            *("--end-of-options", source.remote.address),
            *("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"),
            git_dir=self.path,
            remote=source.remote,
            settings=[(f"fetch.fsck.{flaw}", "warn") for flaw in _OLD_FLAWS],
            doing="fetch the repository",
            failure=Retryable,
        )

    async def _resolve_in(self, git_dir: Path, name: str) -> str | None:
        output = await self._git.run(
            *("rev-parse", "-q", "--verify", "--end-of-options", f"{name}^{{commit}}"),
            git_dir=git_dir,
            doing="look for a commit",
            ok=(0, 1, 128),
        )
        return output.text if output.code == 0 else None

    async def _open(self, remote: Remote, object_format: str) -> None:
        """Make the mirror, or find it as a dead daemon left it: without its locks, with our settings alone."""
        if self._path is not None:
            return
        path = self._place(remote)
        if not await anyio.to_thread.run_sync((path / "HEAD").exists):
            await anyio.to_thread.run_sync(self._clear, path)
            await self._git.run(
                *("init", "-q", "--bare", f"--object-format={object_format}"),
                *("--initial-branch=none", "--end-of-options", str(path)),
                doing="make the mirror",
            )
        await anyio.to_thread.run_sync(_unlock, path)
        await anyio.to_thread.run_sync(_settle, path, object_format)
        self.object_format = object_format
        self._path = path

    def _place(self, remote: Remote) -> Path:
        name = hashlib.sha256(remote.address.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return self._mirrors / f"{name}.git"

    def _clear(self, path: Path) -> None:
        """A folder without HEAD is a mirror that was never finished; nothing in it is wanted."""
        self._mirrors.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


def _settle(mirror: Path, object_format: str) -> None:
    known = _format_of(mirror)
    if known not in (None, object_format):
        raise NeedsOperator(
            f"the repository now names its objects by {object_format}, the mirror has {known}: another "
            f"repository took its place; move {mirror} away to start over"
        )
    (mirror / "info").mkdir(exist_ok=True)
    write_repository_settings(mirror, object_format=object_format)
    for name in ("alternates", "http-alternates"):
        (mirror / "objects" / "info" / name).unlink(missing_ok=True)


def _format_of(mirror: Path) -> str | None:
    """How a finished mirror names its objects; None when there is none."""
    config = mirror / "config"
    if not ((mirror / "HEAD").exists() and config.exists()):
        return None
    return "sha256" if "objectformat = sha256" in config.read_text() else "sha1"


def _unlock(mirror: Path) -> None:
    """Remove the locks of a git that died. One that outlived its daemon still needs them."""
    locks = [*mirror.rglob("*.lock"), *mirror.glob("packed-refs.new")]
    if not locks:
        return
    if any(str(mirror).encode() in argument for argument in _arguments_of_processes()):
        raise Retryable(
            "a git that a killed daemon left still works in the mirror: waiting for it", after_seconds=5
        )
    for lock in locks:
        lock.unlink(missing_ok=True)


def _arguments_of_processes() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*"):
        if process.name != str(os.getpid()):
            with suppress(OSError):
                yield (process / "cmdline").read_bytes()
