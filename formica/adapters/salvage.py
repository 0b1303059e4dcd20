"""Nothing an agent made is deleted before it is in quarantine, as a verified bundle or as it stands.

The agent's repository is never opened: its refs are read as text and its objects borrowed by a repository
of ours. A bundle needs the base commit, which the mirror and its source have.
"""

from __future__ import annotations

import os
import stat
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import anyio

from formica.adapters.collect import BYTES_LIMIT, COLLECTED, Author, Collector
from formica.adapters.git import OBJECT_ID, Git
from formica.adapters.items import Item
from formica.adapters.mirror import Mirror
from formica.errors import FormicaError, NeedsOperator, Retryable

__all__ = ["PUSHED", "Salvage"]

PUSHED = "refs/formica/pushed"
_REF_LIMIT = 200
_TEXT_LIMIT = 1_000_000
_IGNORED_LIMIT = 20 * 1024 * 1024


class Salvage:
    """Puts what an item holds, and no remote does, into ``quarantine``."""

    def __init__(self, git: Git, mirror: Mirror, quarantine: Path, author: Author) -> None:
        self._git = git
        self._mirror = mirror
        self._quarantine = quarantine
        self._author = author

    async def save(self, item: Item) -> Path | None:
        """The bundle, the whole folder where no bundle could be made, or None when nothing is at stake."""
        if item.marker.state == "making":
            return None  # no agent runs before the folder is finished
        await anyio.to_thread.run_sync(lambda: self._quarantine.mkdir(0o700, parents=True, exist_ok=True))
        name = f"issue-{item.marker.issue_number}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
        target = self._quarantine / f"{name}-{uuid.uuid4().hex[:8]}"
        scratch = item.root / "salvage"
        collector = Collector(
            self._git,
            objects=[self._borrowed(item), item.root / "repo.git" / "objects"],
            object_format=self._mirror.object_format,
            scratch=scratch,
            author=self._author,
        )
        try:
            return await self._bundle(item, collector, target.with_suffix(".bundle"))
        except Retryable:
            raise
        except FormicaError:
            await anyio.to_thread.run_sync(_move, item.root, target)
            return target
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(collector.remove)

    async def _bundle(self, item: Item, collector: Collector, bundle: Path) -> Path | None:
        await anyio.to_thread.run_sync(_check_objects, item.root / "repo.git", item.marker.mirror)
        base = item.marker.base_sha
        published = await self._published_tree(item)
        snapshot = await self._snapshot(item, collector, published)
        staging = collector.staging
        shas = await anyio.to_thread.run_sync(lambda: list(_agent_shas(item.root / "repo.git")))
        wanted = list(dict.fromkeys([snapshot, *shas]))
        trees = await self._trees(staging, [base, *wanted])
        in_mirror = await self._trees(self._mirror.path, wanted)
        safe = {trees.get(base), published}
        refs: dict[str, str] = {}
        for sha in wanted:
            if sha not in trees or sha in in_mirror:
                continue
            if not await self._trees_since(staging, base, sha) <= safe:
                refs[f"refs/salvage/{len(refs)}"] = sha
        if not refs:
            return None
        await self._git.run(
            *("update-ref", "--stdin", "-z"),
            git_dir=staging,
            stdin="".join(f"create {name}\0{sha}\0" for name, sha in refs.items()).encode(),
            doing="name what is saved",
        )
        await self._git.run(
            *("bundle", "create", "-q", "--end-of-options", str(bundle), *refs, f"^{base}"),
            git_dir=staging,
            doing="bundle unpushed work",
            failure=NeedsOperator,
        )
        await self._git.run(
            *("bundle", "verify", "-q", "--end-of-options", str(bundle)),
            git_dir=self._mirror.path,
            doing="verify a bundle of unpushed work",
            failure=NeedsOperator,
        )
        return bundle

    async def _snapshot(self, item: Item, collector: Collector, published: str | None) -> str:
        """The tree as a commit in the collector's staging repository. Ignored files are taken too, unless
        they are too many to keep: when the rest is published already, that is soon."""
        base, tree = item.marker.base_sha, item.root / "tree"
        message = f"Work left in the tree of issue {item.marker.issue_number}"
        if not await anyio.to_thread.run_sync(tree.is_dir):
            await collector.make()
            return base
        limit = BYTES_LIMIT
        if published is not None:
            plain = await collector.commit(tree, base, message=message, agent_index=None)
            if (await self._trees(collector.staging, [plain])).get(plain) == published:
                limit = _IGNORED_LIMIT
        try:
            return await collector.commit(
                tree, base, message=message, agent_index=None, ignored_too=True, bytes_limit=limit
            )
        except NeedsOperator:
            return await collector.commit(tree, base, message=message, agent_index=None)

    def _borrowed(self, item: Item) -> Path:
        """The objects of the mirror the item was made from, wherever the state folder is now."""
        return self._mirror.path.parent / Path(item.marker.mirror).name / "objects"

    async def _published_tree(self, item: Item) -> str | None:
        clean = item.root / "in.git"
        if not await anyio.to_thread.run_sync(clean.is_dir):
            return None
        found = await self._git.run(
            *("rev-parse", "-q", "--verify", "--end-of-options", COLLECTED),
            git_dir=clean,
            doing="read the collected change",
            ok=(0, 1, 128),
        )
        if found.code != 0 or await self._mirror.resolve(f"{PUSHED}/{found.text}") is None:
            return None
        return (await self._trees(clean, [found.text])).get(found.text)

    async def _trees_since(self, git_dir: Path, base: str, sha: str) -> set[str | None]:
        """The trees of a commit and of everything between it and the base: what was committed and taken back
        again is work too."""
        listed = await self._git.run(
            *("rev-list", "--no-commit-header", "--format=%T", "--end-of-options", sha, f"^{base}"),
            git_dir=git_dir,
            doing="list the agent's commits",
            failure=NeedsOperator,
        )
        return set(listed.text.split())

    async def _trees(self, git_dir: Path, shas: Sequence[str]) -> dict[str, str]:
        """The tree of each commit that is there."""
        answer = await self._git.run(
            *("cat-file", "--batch-check=%(objectname)"),
            git_dir=git_dir,
            stdin="".join(f"{sha}^{{tree}}\n" for sha in shas).encode(),
            doing="look for commits",
            failure=NeedsOperator,
        )
        found = answer.text.split("\n")
        return {sha: tree for sha, tree in zip(shas, found, strict=True) if OBJECT_ID.fullmatch(tree)}


def _move(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError as error:
        raise NeedsOperator(f"unpushed work in {folder} could not be saved: {error.strerror}") from error


def _check_objects(repository: Path, mirror: str) -> None:
    """``NeedsOperator`` when an agent made its object store something git could hang on, or lead it to other
    repositories of this host: then it is never read."""
    store = repository / "objects"
    alternates = store / "info" / "alternates"
    if not store.is_dir():
        return
    for folder, folders, names in os.walk(store, followlinks=False):
        for name in [*folders, *names]:
            mode = os.lstat(Path(folder) / name).st_mode
            if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise NeedsOperator(f"the agent's object store holds {name!r}, which is no file")
    if store.is_symlink() or (store / "info" / "http-alternates").exists():
        raise NeedsOperator("the agent's object store leads elsewhere")
    if alternates.exists() and _text_of(alternates) != f"{mirror}/objects\n":
        raise NeedsOperator("the agent's object store borrows from elsewhere")


def _agent_shas(repository: Path) -> Iterator[str]:
    """Object names in the agent's refs, its heads and the log of its stash."""
    files = [repository / "packed-refs", repository / "logs" / "refs" / "stash"]
    files += list((repository / "worktrees").glob("*/HEAD"))
    for folder, _, names in os.walk(repository / "refs", followlinks=False):
        files += [Path(folder) / name for name in names]
    found = 0
    for file in files:
        for sha in OBJECT_ID.findall(_text_of(file)):
            found += 1
            if found > _REF_LIMIT:
                raise NeedsOperator(f"the agent left more than {_REF_LIMIT} refs")
            yield sha


def _text_of(file: Path) -> str:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as source:
        return source.read(_TEXT_LIMIT).decode("ascii", "replace")
