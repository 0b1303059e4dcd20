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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from formica.errors import NeedsOperator

__all__ = ["Item", "ItemFolders", "Marker"]

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
    state: Literal["making", "ready"]


@dataclass(frozen=True, slots=True)
class Item:
    root: Path
    marker: Marker

    @property
    def whole(self) -> bool:
        """Finished, at the place it was made for, with all its folders."""
        return (
            self.marker.state == "ready"
            and self.marker.root == str(self.root)
            and all(_is_folder(self.root / name) for name in _TREE_FOLDERS)
        )


class ItemFolders:
    """`<state>/items/<n>`, and `<state>/trash`, where a folder goes before it is deleted."""

    def __init__(self, state: Path) -> None:
        self._items = state / "items"
        self._trash = state / "trash"

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
        """Every item with a readable marker."""
        if not _is_folder(self._items):
            return []
        found = [(path, self._marker(path)) for path in sorted(self._items.iterdir())]
        return [Item(path, marker) for path, marker in found if marker is not None]

    def create(self, marker: Marker) -> Item:
        """An empty folder at its place that carries its marker from its first moment on."""
        self._trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._items.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = self._trash / f"new-{uuid.uuid4().hex}"
        fresh.mkdir(mode=0o700)
        item = Item(self.root(marker.issue_number), marker)
        self._write(fresh, marker)
        (fresh / "run").mkdir(mode=0o700)
        fresh.rename(item.root)
        return item

    def finish(self, item: Item) -> Item:
        ready = Item(item.root, Marker(**{**asdict(item.marker), "state": "ready"}))
        self._write(ready.root, ready.marker)
        return ready

    def remove(self, issue_number: int) -> None:
        """Delete the item's folder and prove that it is gone."""
        item = self.read(issue_number)
        if item is None:
            return
        self._trash.mkdir(mode=0o700, parents=True, exist_ok=True)
        doomed = self._trash / f"{issue_number}-{uuid.uuid4().hex}"
        item.root.rename(doomed)
        delete_tree(doomed)
        if os.path.lexists(item.root) or os.path.lexists(doomed):
            raise NeedsOperator(f"the folder of issue {issue_number} could not be removed: {doomed}")

    def sweep(self) -> int:
        """Delete what a crash left in the trash; the number of folders that went. Only for a daemon that
        has not begun to work: a folder being made passes through the trash too."""
        if not _is_folder(self._trash):
            return 0
        left = [path for path in self._trash.iterdir() if self._marker(path) is not None]
        for path in left:
            delete_tree(path)
        return len(left)

    def _marker(self, root: Path) -> Marker | None:
        if not _is_folder(root):
            return None
        try:
            descriptor = os.open(root / _MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, encoding="utf-8") as file:
                known = json.loads(file.read(10_000))
            return Marker(**known)
        except (OSError, ValueError, TypeError):
            return None

    def _write(self, root: Path, marker: Marker) -> None:
        fresh = root / f"{_MARKER}.new"
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(asdict(marker), file)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(root / _MARKER)


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
