"""The folders of items below the state folder: made with our marker, removed only with it.

All functions block; callers run them in threads. Nothing here starts git or follows a link an agent
could have planted.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from formica.errors import NeedsOperator

__all__ = ["Item", "ItemFolders", "Marker", "delete_tree"]

_MARKER = "formica-item.json"
_TREE_FOLDERS = ("repo.git", "tree", "run")


@dataclass(frozen=True, slots=True)
class Marker:
    """What makes a folder ours. ``root`` is where it was made: elsewhere, its clone is broken."""

    issue_number: int
    base_sha: str
    branch: str | None
    root: str
    mirror: str
    state: Literal["making", "ready", "warm"]
    """``warm``: a worktree made in advance, for no issue yet (number 0), that no agent has seen."""


@dataclass(frozen=True, slots=True)
class Item:
    root: Path
    marker: Marker

    @property
    def whole(self) -> bool:
        """Finished, at the place it was made for, with all its folders."""
        return self.marker.state == "ready" and self._complete

    @property
    def usable(self) -> bool:
        """A finished worktree made in advance."""
        return self.marker.state == "warm" and self._complete

    @property
    def _complete(self) -> bool:
        return self.marker.root == str(self.root) and all(
            _is_folder(self.root / name) for name in _TREE_FOLDERS
        )


class ItemFolders:
    """`<state>/items/<n>`, `<state>/warm/<id>` for worktrees made in advance, and `<state>/trash`, where a
    folder goes before it is deleted."""

    def __init__(self, state: Path) -> None:
        self._items = state / "items"
        self._warm = state / "warm"
        self._trash = state / "trash"
        self._passing: set[str] = set()
        """Names in the trash of folders this process is making."""

    def root(self, issue_number: int) -> Path:
        return self._items / str(int(issue_number))

    def read(self, issue_number: int) -> Item | None:
        """The item's folder, whole or not; ``NeedsOperator`` when something else is in its place."""
        root = self.root(issue_number)
        if not os.path.lexists(root):
            return None
        marker = self._marker(root)
        if marker is None or marker.issue_number != issue_number:
            raise NeedsOperator(f"{root} is not a folder formica made: move it away")
        return Item(root, marker)

    def all(self) -> list[Item]:
        """Every item with a readable marker that is in its own place."""
        return [
            item for item in self._marked(self._items) if item.root == self.root(item.marker.issue_number)
        ]

    def warm(self) -> list[Item]:
        """Every worktree made in advance, finished or not."""
        return [item for item in self._marked(self._warm) if item.marker.issue_number == 0]

    def create(self, marker: Marker) -> Item:
        """An empty folder at its place that carries its marker from its first moment on."""
        item = Item(Path(marker.root), marker)
        item.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._trash / f"new-{uuid.uuid4().hex}"
        self._passing.add(fresh.name)
        try:
            fresh.mkdir(mode=0o700)
            self._write(fresh, marker)
            (fresh / "run").mkdir(mode=0o700)
            fresh.rename(item.root)
        finally:
            self._passing.discard(fresh.name)
        return item

    def new_warm_root(self) -> Path:
        return self._warm / uuid.uuid4().hex

    def adopt(self, warm: Item, marker: Marker) -> Item:
        """Give a worktree made in advance to an item. A crash in between leaves a half-made folder."""
        item = Item(Path(marker.root), marker)
        item.root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write(warm.root, marker)
        warm.root.rename(item.root)
        return item

    def finish(self, item: Item, state: Literal["ready", "warm"] = "ready") -> Item:
        ready = Item(item.root, replace(item.marker, state=state))
        self._write(ready.root, ready.marker)
        return ready

    def rewrite(self, root: Path, marker: Marker) -> None:
        self._write(root, marker)

    def discard(self, item: Item) -> Path:
        """Move an item to the trash, from which it is deleted later; where it is now."""
        self._trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        doomed = self._trash / f"{item.root.name}-{uuid.uuid4().hex}"
        item.root.rename(doomed)
        return doomed

    def remove(self, issue_number: int) -> None:
        """Delete the item's folder and prove that it is gone."""
        item = self.read(issue_number)
        if item is None:
            return
        doomed = self.discard(item)
        delete_marked(doomed)
        if os.path.lexists(item.root) or os.path.lexists(doomed):
            raise NeedsOperator(f"the folder of issue {issue_number} could not be removed: {doomed}")

    def junk(self) -> list[Path]:
        """What a crash left in the trash; what this process is making there is not named."""
        return [item.root for item in self._marked(self._trash) if item.root.name not in self._passing]

    def delete(self, junk: Path) -> None:
        """Delete one folder of the trash that carries our marker."""
        if junk.parent == self._trash and self._marker(junk) is not None:
            delete_marked(junk)

    def _marked(self, parent: Path) -> list[Item]:
        if not _is_folder(parent):
            return []
        found = [(path, self._marker(path)) for path in sorted(parent.iterdir())]
        return [Item(path, marker) for path, marker in found if marker is not None]

    def _marker(self, root: Path) -> Marker | None:
        if not _is_folder(root):
            return None
        try:
            descriptor = os.open(root / _MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, encoding="utf-8") as file:
                known = json.loads(file.read(10_000))
            return Marker(**known) if isinstance(known["issue_number"], int) else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def _write(self, root: Path, marker: Marker) -> None:
        fresh = root / f"{_MARKER}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(marker), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(root / _MARKER)


def delete_marked(root: Path) -> None:
    """Delete a folder of ours, its marker last: what a crash leaves is known as ours again."""
    for path in root.iterdir():
        if path.name == _MARKER:
            continue
        if _is_folder(path):
            delete_tree(path)
        else:
            path.unlink()
    delete_tree(root)


def delete_tree(path: Path) -> None:
    """Delete a folder of ours; links in it are removed, never followed, and closed folders opened."""

    def open_and_retry(function: Callable[..., Any], name: str, _info: Any) -> None:
        parent = Path(name).parent
        for folder in (parent, Path(name)):
            if _is_folder(folder):
                folder.chmod(0o700)
        if function in (os.unlink, os.rmdir) and os.path.lexists(name):
            function(name)
        elif _is_folder(Path(name)):
            shutil.rmtree(name, onerror=open_and_retry)

    if not os.path.lexists(path):
        return
    try:
        shutil.rmtree(path, onerror=open_and_retry)
    except OSError as error:
        raise NeedsOperator(f"{path} could not be removed: {error.strerror}") from error


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False
