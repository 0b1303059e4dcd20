"""Bare repositories of ours, written file by file: nothing of a template, and no program started."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["PLAIN_ATTRIBUTES", "make_bare_repository", "write_repository_settings"]

# With these no attribute of a tracked .gitattributes converts bytes or hides a diff: blobs are files.
PLAIN_ATTRIBUTES = "* -text !eol -ident -filter -working-tree-encoding !diff !merge\n"


def make_bare_repository(
    path: Path,
    *,
    objects: Sequence[Path],
    object_format: str = "sha1",
    refs: Mapping[str, str] | None = None,
    head: str = "refs/heads/none",
    user: tuple[str, str] | None = None,
) -> None:
    """A bare repository that borrows ``objects``; blocking. No attribute applies in it. ``refs`` are full
    names to full shas, ``user`` the name and address that sign in it."""
    for folder in ("objects/info", "objects/pack", "refs/heads", "info"):
        (path / folder).mkdir(mode=0o700, parents=True)
    write_repository_settings(path, object_format=object_format, user=user)
    (path / "HEAD").write_text(f"ref: {head}\n")
    if refs:
        rows = "".join(f"{sha} {name}\n" for name, sha in sorted(refs.items()))
        (path / "packed-refs").write_text(f"# pack-refs with: sorted \n{rows}")
    (path / "objects" / "info" / "alternates").write_bytes(
        b"".join(os.fsencode(folder) + b"\n" for folder in objects)
    )


def write_repository_settings(path: Path, *, object_format: str, user: tuple[str, str] | None = None) -> None:
    """The whole configuration and the attributes of a bare repository of ours; blocking."""
    version, extension = (0, "") if object_format == "sha1" else (1, f"objectformat = {object_format}")
    text = f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n"
    text += f"[extensions]\n\t{extension}\n" if extension else ""
    text += f"[user]\n\tname = {_setting(user[0])}\n\temail = {_setting(user[1])}\n" if user else ""
    for name, content in (("config", text), ("info/attributes", PLAIN_ATTRIBUTES)):
        fresh = path / f"{name}.new"
        fresh.unlink(missing_ok=True)
        fresh.write_text(content)
        fresh.replace(path / name)


def _setting(value: str) -> str:
    plain = "".join(c if c.isprintable() else " " for c in value)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
