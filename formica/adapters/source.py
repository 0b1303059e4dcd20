"""Where the mirror is fetched from, and what is wrong with it when it cannot be.

A checkout is only ever read: its `remote.origin.url` names the real source, and only when it has no remote
is it the source itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio

from formica.adapters.git import Git, Remote
from formica.adapters.tree import Found, blob_sha
from formica.errors import NeedsOperator, Refused, Retryable

__all__ = ["Listing", "Source", "SourceReader"]

_FILTERS = r"^filter\..*\.(clean|smudge|process|required)$"


@dataclass(frozen=True, slots=True)
class Source:
    remote: Remote
    checkout: Path | None
    """The git directory of the maintainer's checkout, when one was named."""
    work_tree: Path | None
    is_checkout: bool
    """The checkout is itself the source: it has no remote."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository says of itself before anything is fetched."""

    head_branch: str | None
    object_format: str


class SourceReader:
    """``text`` is what the maintainer configured."""

    def __init__(self, git: Git, text: str) -> None:
        self._git = git
        self._text = text
        self._source: Source | None = None

    async def find(self) -> Source:
        if self._source is None:
            here = await anyio.to_thread.run_sync(os.getcwd)
            remote = await anyio.to_thread.run_sync(_parse, self._text, Path(here))
            folder = remote.path
            git_dir = await anyio.to_thread.run_sync(_checkout_git_dir, folder) if folder else None
            if folder is None or git_dir is None:
                self._source = Source(remote, None, None, is_checkout=False)
            else:
                self._source = await self._of_checkout(folder, git_dir)
        return self._source

    async def listing(self, remote: Remote) -> Listing:
        """Its default branch, read live. ``NeedsOperator`` when it is empty, ``Retryable`` when it does not
        answer."""
        await self._refuse_missing(remote)
        output = await self._git.run(
            *("ls-remote", "--symref", "--end-of-options", remote.address, "HEAD", "refs/heads/*"),
            remote=remote,
            doing="reach the repository",
            failure=Retryable,
        )
        rows = [row.partition("\t") for row in output.text.splitlines()]
        shas = [first for first, _, _ in rows if not first.startswith("ref: ")]
        heads = [first for first, _, name in rows if name == "HEAD" and first.startswith("ref: refs/heads/")]
        if not shas:
            raise NeedsOperator(f"the repository {remote.address} is empty: it has no commit to start from")
        return Listing(
            heads[0].removeprefix("ref: refs/heads/") if heads else None,
            "sha256" if len(shas[0]) == 64 else "sha1",
        )

    async def refuse_incomplete(self, git_dir: Path) -> None:
        """``NeedsOperator`` for a repository of this host whose objects or history were cut: what is fetched
        from it cannot be built on."""
        if await anyio.to_thread.run_sync(_has_shallow_file, git_dir):
            raise NeedsOperator(
                f"{git_dir} is a shallow clone, its history is cut: run `git fetch --unshallow` there, or set "
                "[repository] url to the complete repository"
            )
        promised = await self._git.run(
            *("config", "-z", "--name-only", "--get-regexp"),
            r"^(extensions\.partialclone|remote\..*\.promisor)$",
            git_dir=git_dir,
            doing="read the source's settings",
            ok=(0, 1),
            failure=NeedsOperator,
        )
        if promised.fields:
            raise NeedsOperator(
                f"{git_dir} is a partial clone, objects are missing in it: set [repository] url to the "
                "complete repository"
            )

    async def refuse_dirty(self, source: Source) -> None:
        """``Refused`` (rule ``dirty_tree_policy``) for uncommitted work. Neither the index is written nor a
        filter of the checkout run: stat data decides, and where git must compare contents it compares plain
        bytes."""
        assert source.checkout is not None
        assert source.work_tree is not None
        off = await self._filters_off(source.checkout)
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

    async def hooks_path(self) -> str | None:
        """`core.hooksPath` of the maintainer's checkout when it lies inside the tree, relative to it."""
        source = await self.find()
        if source.checkout is None:
            return None
        value = await self._read_setting(source.checkout, "core.hooksPath", "--local", "--includes")
        inside = bool(value) and not value.startswith(("/", "~")) and ".." not in Path(value).parts
        return value if inside else None

    async def _of_checkout(self, folder: Path, git_dir: Path) -> Source:
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
            remote = await anyio.to_thread.run_sync(_parse, url, folder)
            return Source(remote, git_dir, folder, is_checkout=False)
        return Source(Remote(common.text, "file"), git_dir, folder, is_checkout=True)

    async def _refuse_missing(self, remote: Remote) -> None:
        if remote.path is None:
            return
        if not await anyio.to_thread.run_sync(remote.path.is_dir):
            raise NeedsOperator(f"there is no repository at {remote.path}")
        git_dir = await anyio.to_thread.run_sync(_checkout_git_dir, remote.path)
        await self.refuse_incomplete(git_dir or remote.path)

    async def _read_setting(self, git_dir: Path, key: str, *scope: str) -> str:
        output = await self._git.run(
            *("config", *scope, "-z", "--get", key),
            git_dir=git_dir,
            doing="read the checkout's settings",
            ok=(0, 1),
        )
        return output.text.rstrip("\0")

    async def _filters_off(self, git_dir: Path) -> list[tuple[str, str]]:
        """Settings that switch off every filter driver the checkout's configuration names."""
        drivers = await self._git.run(
            *("config", "-z", "--name-only", "--get-regexp", _FILTERS),
            git_dir=git_dir,
            doing="read the checkout's filters",
            ok=(0, 1),
        )
        names = sorted({os.fsdecode(key).rpartition(".")[0] for key in drivers.fields})
        off = [(f"{name}.{key}", "") for name in names for key in ("clean", "smudge", "process")]
        return off + [(f"{name}.required", "false") for name in names]


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


def _has_shallow_file(git_dir: Path) -> bool:
    real = git_dir
    if git_dir.is_file():
        real = git_dir.parent / git_dir.read_text().removeprefix("gitdir:").strip()
    common = real / "commondir"
    if common.is_file():
        real = real / common.read_text().strip()
    shallow = real / "shallow"
    return shallow.is_file() and shallow.stat().st_size > 0


def _parse(text: str, folder: Path) -> Remote:
    return Remote.parse(text, relative_to=folder)
