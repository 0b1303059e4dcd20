"""Which folders outside the system's own a program needs: what the commands name, PATH, and what these lead to.

All functions block. Nothing is run: links, the first line of scripts, `pyvenv.cfg` and the layout of install
prefixes say where an interpreter lives.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Toolchain", "ToolchainFinder", "system_folders"]

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
# A folder that holds one of these is an interpreter's install prefix.
_PREFIX_MARKS = (
    "pyvenv.cfg",
    "lib/python*/os.py",
    "lib64/python*/os.py",
    "include/node/node.h",
    "lib/node_modules/npm",
    "lib/jrt-fs.jar",
    "jre/lib/rt.jar",
    "lib/ruby/*/set.rb",
    "lib/perl5/*/strict.pm",
    "lib/rustlib",
    "pkg/tool",
    "libexec/pyenv",
    "libexec/rbenv",
    "libexec/nodenv",
    "boot/plexus-classworlds.license",
    "lib/gradle-*.jar",
    "asdf.sh",
    "tools/image",
)
_BIN_FOLDERS = ("bin", "sbin", "shims", "libexec", "Scripts")
_FIRST_LINE = 512


@dataclass(frozen=True, slots=True)
class Toolchain:
    """``folders`` are bound read-only at their own paths (files among them); ``variables`` are what programs
    need to find them with another HOME; ``left_out`` are words and folders of PATH that would have shown
    too much, each with its reason."""

    folders: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def system_folders() -> dict[Path, str]:
    """The root's folders of programs and libraries, and where the links among them lead."""
    found = {}
    for name in map(Path, _SYSTEM):
        if name.is_symlink():
            found[name] = str(name.readlink())
        elif name.is_dir():
            found[name] = ""
    return found


class ToolchainFinder:
    """``words`` are those of all commands, ``path`` the PATH of runs, ``home`` the daemon user's home and
    ``private`` folders and files that are never shown. What a folder of PATH leads to is looked up again
    when the folder changed."""

    def __init__(self, words: Sequence[str], *, path: str, home: Path, private: Sequence[Path] = ()) -> None:
        self._words = [Path(word) for word in words if word.startswith("/")]
        self._path = [Path(folder) for folder in dict.fromkeys(path.split(":")) if folder.startswith("/")]
        self._home = home
        self._private = private
        self._reached: dict[Path, tuple[int, tuple[Path, ...]]] = {}

    def find(self) -> Toolchain:
        wanted: list[Path] = []
        left_out: dict[str, None] = {}
        for path in (*self._words, *self._path):
            if not os.path.lexists(path) or _is_system(path):
                continue
            problem = self._too_wide(path)
            if problem:
                left_out[f"{path}: {problem}"] = None
            else:
                wanted += [path, Path(os.path.realpath(path))]
        for word in self._words:
            wanted += self._reached_from(word)
        for folder in self._path:
            wanted += self._reached_in(folder)
        usable = (path for path in wanted if not _is_system(path) and not self._too_wide(path))
        return Toolchain(
            folders=tuple(_outermost(path for path in usable if path.exists())),
            variables=self._variables(),
            left_out=tuple(left_out),
        )

    def _variables(self) -> dict[str, str]:
        rustup = self._home / ".rustup"
        return {"RUSTUP_HOME": str(rustup)} if rustup in self._launcher_homes() else {}

    def _launcher_homes(self) -> list[Path]:
        """What a launcher of PATH keeps elsewhere below home: rustup its toolchains."""
        rustup = self._home / ".rustup"
        used = any((folder / "rustup").exists() for folder in self._path)
        return [rustup] if used and rustup.is_dir() else []

    def _reached_in(self, folder: Path) -> tuple[Path, ...]:
        try:
            changed = folder.stat().st_mtime_ns
        except OSError:
            return ()
        known = self._reached.get(folder)
        if known is None or known[0] != changed:
            reached = dict.fromkeys([*self._scan(folder), *_prefix_of(folder)])
            known = self._reached[folder] = (changed, tuple(reached))
        return (*known[1], *self._launcher_homes())

    def _scan(self, folder: Path) -> Iterator[Path]:
        """Every program of a folder; in the system's own only links that lead out of it."""
        links_only = _is_system(folder) and not folder.is_relative_to("/usr/local")
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.is_symlink() or not (links_only or entry.is_dir()):
                        yield from self._reached_from(Path(entry.path))

    def _reached_from(self, program: Path, depth: int = 0) -> Iterator[Path]:
        """What one program needs besides itself: its real file, its package, its interpreter, their prefixes."""
        real = Path(os.path.realpath(program))
        if not real.is_file():
            return
        yield from _prefix_of(program.parent)
        if real != program and not _is_system(real):
            yield real
            yield from _prefix_of(real.parent)
            yield from _package_of(real)
        interpreter = _interpreter(real)
        if interpreter is not None and depth < 4 and not _is_system(Path(os.path.realpath(interpreter))):
            yield interpreter
            yield from self._reached_from(interpreter, depth + 1)

    def _too_wide(self, path: Path) -> str:
        """Why this would show more than a toolchain, or nothing."""
        real = Path(os.path.realpath(path))
        homes = {self._home, Path(os.path.realpath(self._home))}
        if any(home.is_relative_to(shown) for home in homes for shown in (path, real)):
            return "it holds the home folder"
        if real == Path("/"):
            return "it is the whole host"
        if real in {home / ".local" for home in homes}:
            return "it holds more than programs"
        if any(real.is_relative_to(os.path.realpath(private)) for private in self._private):
            return "it is private"
        return ""


def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _SYSTEM)


def _prefix_of(folder: Path) -> list[Path]:
    """The install prefixes that a folder of programs belongs to: its own and, for a virtual environment,
    that of the interpreter it was made from."""
    if folder.name not in _BIN_FOLDERS:
        return []
    prefix = folder.parent
    if not any(next(prefix.glob(mark), None) is not None for mark in _PREFIX_MARKS):
        return []
    found = [prefix]
    with suppress(OSError, UnicodeDecodeError):
        for line in (prefix / "pyvenv.cfg").read_text().splitlines():
            name, _, value = line.partition("=")
            if name.strip() == "home" and value.strip().startswith("/"):
                base = Path(value.strip())
                found += [base.parent, Path(os.path.realpath(base / "python3")).parent.parent]
    return found


def _package_of(real: Path) -> list[Path]:
    """The outermost `node_modules` a program lies in: its package needs the others."""
    parts = real.parts
    return [Path(*parts[: parts.index("node_modules") + 1])] if "node_modules" in parts else []


def _interpreter(program: Path) -> Path | None:
    """The absolute path a script's first line names."""
    try:
        with program.open("rb") as file:
            line = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return None
    words = line.removeprefix(b"#!").split()
    if not line.startswith(b"#!") or not words or not words[0].startswith(b"/"):
        return None
    return Path(os.fsdecode(words[0]))


def _outermost(paths: Iterable[Path]) -> list[Path]:
    """Each path once, without those below another."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(other) for other in kept):
            kept.append(path)
    return sorted(kept)
