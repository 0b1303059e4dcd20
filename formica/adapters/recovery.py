"""What a daemon that was killed left behind: put right at the start, in an instant, and deleted later.

Only folders below the state folder that carry our marker are touched, and of items only those that no agent
ever saw; whatever an agent may have worked in stays until its plan says otherwise. All functions block.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from formica.adapters.clone import overwrite, write_links
from formica.adapters.items import Item, ItemFolders

__all__ = ["Recovery"]


class Recovery:
    """For a daemon that holds the state folder and has not begun to work."""

    def __init__(self, state: Path, folders: ItemFolders) -> None:
        self._mirrors = state / "mirrors"
        self._folders = folders

    def run(self) -> list[Path]:
        """Bring moved items home and half-made folders to the trash; everything of the trash that waits to
        be deleted."""
        for item in self._folders.all():
            if item.marker.state == "making":
                self._folders.discard(item)
            elif item.marker.root != str(item.root):
                self._bring_home(item)
        for item in self._folders.warm():
            if not item.usable:
                self._folders.discard(item)
        return self._folders.junk()

    def _bring_home(self, item: Item) -> None:
        """The state folder was moved: the absolute paths in an item are those of the old place. An item where
        that cannot be done stays as it is: not whole, so it is saved and replaced when its issue is worked on."""
        mirror = self._mirrors / Path(item.marker.mirror).name
        borrowed = os.fsencode(mirror / "objects") + b"\n"
        alternates = ("objects", "info", "alternates")
        try:
            overwrite(item.root, ("repo.git", *alternates), borrowed)
            if (item.root / "in.git").is_dir():
                overwrite(item.root, ("in.git", *alternates), borrowed)
            write_links(item.root)
            marker = replace(item.marker, root=str(item.root), mirror=str(mirror))
            self._folders.rewrite(item.root, marker)
        except OSError:
            return
