"""What a run sees of the host, as arguments of bubblewrap. Pure: a profile in, a list of words out.

Nothing is visible but what is named: the system's programs and the toolchain read-only, the run's own
folders writable, and an empty HOME and /tmp. Mounts are made from the root downwards, so a path below
another covers that part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ARGUMENTS_DESCRIPTOR", "ETC", "SCRATCH", "Profile", "arguments", "descriptors"]

ARGUMENTS_DESCRIPTOR = 102
_FIRST_FILE_DESCRIPTOR = 103
SCRATCH, _OTHER_SCRATCH, _SHARED_MEMORY = "/tmp", "/var/tmp", "/dev/shm"  # noqa: S108 - a run's own, empty
IDENTITY = 1000
"""The user and group id inside; outside it is the daemon's own."""

ETC = (
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/crypto-policies",
    "/etc/java",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/magic",
    "/etc/maven",
    "/etc/mime.types",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/timezone",
)
"""What programs need of /etc where it exists; keys, users and the network's set-up are not among it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One run's view. Paths are absolute, exist, and mean the same inside; sizes are bytes."""

    home: Path
    cwd: Path
    system: Mapping[Path, str] = field(default_factory=dict)
    """Folders of the root: where a link leads, or "" for a folder bound as it is."""
    readable: Sequence[Path] = ()
    hidden_folders: Sequence[Path] = ()
    """Never visible, though a folder above them may be."""
    hidden_files: Sequence[Path] = ()
    writable: Sequence[Path] = ()
    placed: Mapping[Path, Path] = field(default_factory=dict)
    """A place inside, and the file or socket of ours that is shown there read-only."""
    scratch_bytes: int = 1 << 30
    disable_userns: bool = True

    @property
    def keeps_home(self) -> bool:
        """HOME is a folder of the caller's, not an empty one that goes with the run."""
        return any(self.home.is_relative_to(folder) for folder in self.writable)


def arguments(profile: Profile) -> list[str]:
    """Everything but the program, for ``bwrap --args``."""
    words = ["--unshare-all", "--unshare-user", "--uid", str(IDENTITY), "--gid", str(IDENTITY)]
    if profile.disable_userns:
        words.append("--disable-userns")
    words += ["--die-with-parent", "--new-session", "--clearenv"]
    for path, target in sorted(profile.system.items()):
        words += ["--symlink", target, str(path)] if target else ["--ro-bind", str(path), str(path)]
    for shared in ETC:
        words += ["--ro-bind-try", shared, shared]
    for number, name in enumerate(_files(profile), _FIRST_FILE_DESCRIPTOR):
        words += ["--perms", "0444", "--file", str(number), name]
    size = ["--size", str(profile.scratch_bytes)]
    words += ["--proc", "/proc", "--dev", "/dev", *size, "--tmpfs", _SHARED_MEMORY, "--remount-ro", "/dev"]
    words += [*size, "--perms", "1777", "--tmpfs", SCRATCH, "--symlink", SCRATCH, _OTHER_SCRATCH]
    for mount in _mounts(profile):
        words += mount
    return [*words, "--remount-ro", "/", "--chdir", str(profile.cwd)]


def descriptors(profile: Profile) -> dict[str, str]:
    """The descriptors `arguments` speaks of and the texts to be read from them, its own words included."""
    files = {
        str(number): text for number, text in enumerate(_files(profile).values(), _FIRST_FILE_DESCRIPTOR)
    }
    return {str(ARGUMENTS_DESCRIPTOR): "".join(f"{word}\0" for word in arguments(profile)), **files}


def _files(profile: Profile) -> dict[str, str]:
    """Users, groups and names of a machine that knows only the run."""
    return {
        "/etc/passwd": f"root:x:0:0:root:/:/bin/false\nagent:x:{IDENTITY}:{IDENTITY}::{profile.home}:/bin/sh\n"
        "nobody:x:65534:65534::/:/bin/false\n",
        "/etc/group": f"root:x:0:\nagent:x:{IDENTITY}:\nnogroup:x:65534:\n",
        "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }


def _mounts(profile: Profile) -> Iterator[list[str]]:
    """From the root downwards; of several for one path the last in this table holds."""
    table: dict[Path, list[str]] = {}
    for path in profile.readable:
        table[path] = ["--ro-bind", str(path), str(path)]
    covered = [*profile.readable, *(path for path, target in profile.system.items() if not target)]
    for path in (*profile.hidden_folders, *profile.hidden_files):
        if any(path.is_relative_to(folder) for folder in covered):
            folder = path in profile.hidden_folders
            table[path] = ["--tmpfs", str(path)] if folder else ["--ro-bind", "/dev/null", str(path)]
    if not profile.keeps_home:
        table[profile.home] = ["--size", str(profile.scratch_bytes), "--tmpfs", str(profile.home)]
    for path in profile.writable:
        table[path] = ["--bind", str(path), str(path)]
    for place, path in profile.placed.items():
        table[place] = ["--ro-bind", str(path), str(place)]
    for path in sorted(table, key=lambda path: (len(path.parts), path)):
        yield table[path]
