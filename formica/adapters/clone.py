"""An item's own repository and worktree, made before any agent runs.

The repository borrows the mirror's objects and has refs at the item's base alone, so that nothing it needs
goes when the mirror is pruned: the mirror keeps the base while the item lives.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path

import anyio

from formica.adapters.bare import make_bare_repository, write_repository_settings
from formica.adapters.collect import Author
from formica.adapters.git import Git
from formica.adapters.mirror import Mirror
from formica.errors import NeedsOperator

__all__ = ["Cloner", "overwrite", "write_links"]

CHECKOUT_SECONDS = 600.0
# Writing the files is what takes the time; with few files git does it in one process all the same.
_PARALLEL = (("checkout.workers", "0"),)


@dataclass(frozen=True, slots=True)
class Cloner:
    git: Git
    mirror: Mirror
    author: Author

    async def make(self, root: Path, base_sha: str, branch: str | None) -> None:
        """`repo.git` and `tree` below ``root``, on ``branch`` or detached. No hook, filter or line-ending
        conversion runs: the files are the blobs. ``NeedsOperator`` when git refuses to check the base out."""
        clone = root / "repo.git"
        await anyio.to_thread.run_sync(self._make_repository, clone, base_sha)
        await self.git.run(
            *("worktree", "add", "-q"),
            *(("--no-track", "-b", branch) if branch else ("--detach",)),
            *("--end-of-options", str(root / "tree"), base_sha),
            git_dir=clone,
            settings=_PARALLEL,
            doing="check out the base",
            failure=NeedsOperator,
            timeout_seconds=CHECKOUT_SECONDS,
        )

    async def move(self, root: Path, base_sha: str, branch: str | None) -> None:
        """Bring a worktree that was made for another place and base, and that no agent has seen, to
        ``branch`` or ``base_sha``: only the files that differ are written."""
        await anyio.to_thread.run_sync(self._readdress, root, base_sha)
        await self.git.run(
            *("checkout", "-q", "--force"),
            *(("--no-track", "-B", branch) if branch else ("--detach",)),
            base_sha,
            git_dir=root / "repo.git" / "worktrees" / "tree",
            work_tree=root / "tree",
            settings=_PARALLEL,
            doing="move a worktree to the base",
            failure=NeedsOperator,
            timeout_seconds=CHECKOUT_SECONDS,
        )

    def _make_repository(self, clone: Path, base_sha: str) -> None:
        make_bare_repository(
            clone,
            objects=[self.mirror.path / "objects"],
            object_format=self.mirror.object_format,
            refs={self._main: base_sha},
            head=self._main,
            user=(self.author.name, self.author.email),
        )

    def _readdress(self, root: Path, base_sha: str) -> None:
        clone = root / "repo.git"
        write_repository_settings(
            clone,
            object_format=self.mirror.object_format,
            user=(self.author.name, self.author.email),
        )
        (clone / "packed-refs").write_text(f"# pack-refs with: sorted \n{base_sha} {self._main}\n")
        (clone / "HEAD").write_text(f"ref: {self._main}\n")
        write_links(root)

    @property
    def _main(self) -> str:
        return f"refs/heads/{self.mirror.default_branch}"


def write_links(root: Path) -> None:
    """Make repository and worktree below ``root`` name each other at this place; blocking.

    Raises:
        OSError: one of the files is not there, or a link stands in the way.
    """
    links = {
        ("tree", ".git"): root / "repo.git" / "worktrees" / "tree",
        ("repo.git", "worktrees", "tree", "gitdir"): root / "tree" / ".git",
    }
    for path, target in links.items():
        text = b"gitdir: " if path[0] == "tree" else b""
        overwrite(root, path, text + os.fsencode(target) + b"\n")


def overwrite(root: Path, path: tuple[str, ...], content: bytes) -> None:
    """Put a new file in the place of an existing one below ``root``; no link an agent planted is followed,
    and what a hard link shares stays as it is."""
    *folders, name = path
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        fresh = f"{name}.{uuid.uuid4().hex}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(fresh, flags, 0o600, dir_fd=descriptor), "wb") as out:
            out.write(content)
        os.rename(fresh, name, src_dir_fd=descriptor, dst_dir_fd=descriptor)
    finally:
        os.close(descriptor)
