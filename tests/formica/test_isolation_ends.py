"""Nothing of a run goes on without end, grows without end, or outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from formica.adapters.isolation import Limits, Sandbox
from formica.errors import Stopped
from tests.fakes.sandboxes import Item, confined

FAKES = Path(__file__).parents[1] / "fakes" / "agents"
MEGABYTE = 1 << 20
# Bounded, in case the limit fails: a test must not take the machine with it.
BOMB = "import os, time\nfor _ in range(400):\n  if os.fork() == 0: time.sleep(30); os._exit(0)\ntime.sleep(30)\n"
EAT = """\
import os, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        kept = bytearray(os.urandom(1 << 20) * int(sys.argv[2]))
        time.sleep(30); os._exit(0)
time.sleep(30)
"""
FILL = "import sys\nwith open(sys.argv[1], 'wb') as f:\n  for _ in range(300): f.write(b'x' * (1 << 20)); f.flush()\n"
FILL_UNSEEN = (
    "import os, sys, time\nopen_files = []\nfor n in range(30):\n  f = open('f', 'wb'); os.unlink('f'); open_files.append(f)\n"
    "  f.write(b'x' * (10 << 20)); f.flush()\ntime.sleep(30)\n"
)


@pytest.fixture
def item(tmp_path: Path) -> Item:
    return Item(tmp_path / "state")


def sandboxes(limits: Limits) -> list[Sandbox]:
    return [confined(limits=limits), Sandbox(limits=limits)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def with_word(word: str) -> list[int]:
    """Living processes of the host that carry ``word`` on their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in entry.read_bytes().split(b"\0"):
                found.append(int(entry.parent.name))
    return [pid for pid in found if alive(pid)]


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.01)


async def test_a_fork_bomb_ends(item: Item) -> None:
    """Over its number of processes a run is ended whole, at once and with that reason."""
    for sandbox in sandboxes(Limits(processes=60)):
        result = await item.python(sandbox, BOMB, str(item.root))
        assert (result.reason, result.exit_code) == ("processes", None)
        assert result.seconds < 20
        assert with_word(str(item.root)) == []


async def test_memory_is_limited_for_one_and_for_all(item: Item) -> None:
    """One process finds no memory over the limit; many that share it out are ended together."""
    for sandbox in sandboxes(Limits(memory_bytes=150 * MEGABYTE)):
        alone = await item.python(sandbox, "bytearray(200 << 20)")
        assert (alone.reason, alone.exit_code) == ("exited", 1)
        assert "MemoryError" in alone.output_tail
        assert (await item.python(sandbox, EAT, "4", "60")).reason == "memory"


async def test_the_disk_is_limited(item: Item) -> None:
    """What a run adds to its folders ends it: many files, one large one, and one whose name is gone."""
    many = "import sys\nfor n in range(30): open(f'{n}', 'wb').write(b'x' * (10 << 20))\nimport time; time.sleep(30)\n"
    for sandbox in sandboxes(Limits(disk_bytes=80 * MEGABYTE)):
        for code in (many, FILL_UNSEEN):
            result = await item.python(sandbox, code)
            assert result.reason == "disk", result.output_tail
            for path in item.tree.iterdir():
                path.unlink()
        one = await item.python(sandbox, FILL, "large")
        assert one.reason == "disk" or "File too large" in one.output_tail
        (item.tree / "large").unlink()


async def test_what_was_there_before_does_not_count(item: Item) -> None:
    """A large repository is no large run."""
    (item.tree / "large").write_bytes(b"x" * 20 * MEGABYTE)
    for sandbox in sandboxes(Limits(disk_bytes=10 * MEGABYTE)):
        result = await item.python(
            sandbox, "import time; open('small', 'w').write('x' * (2 << 20)); time.sleep(1)"
        )
        assert result.reason == "exited"


async def test_scratch_space_is_limited(item: Item) -> None:
    """/tmp, HOME and shared memory are full at their size, and the run may go on."""
    sandbox = confined(limits=Limits(scratch_bytes=MEGABYTE))
    for path in ("/tmp/large", str(item.root / "run" / "home" / "large"), "/dev/shm/large"):
        result = await item.python(sandbox, FILL, path)
        assert (result.reason, result.exit_code) == ("exited", 1)
        assert "No space left" in result.output_tail


async def test_no_core_is_written(item: Item) -> None:
    """Neither a dump of memory nor more open files than allowed."""
    code = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    for sandbox in sandboxes(Limits(open_files=100)):
        assert (await item.python(sandbox, code)).output_tail == "0 100\n"


async def test_escaped_children_die_with_the_run(item: Item) -> None:
    """setsid, double fork and deaf ones inside the namespace are gone when the program is."""
    sandbox = confined(words=[str(FAKES / "pathological.py")])
    result = await item.run(sandbox, sys.executable, str(FAKES / "pathological.py"), "escape", str(item.tree))
    assert (result.reason, result.exit_code) == ("exited", 0)
    assert len(list(item.tree.glob("*.pid"))) == 5
    assert with_word(str(item.tree)) == []


async def test_a_stopped_program_gets_its_grace(item: Item) -> None:
    """It hears TERM inside its namespace and can still write; a deaf one ends after the grace."""
    code = """\
import pathlib, signal, sys, time
def end(*_): pathlib.Path("heard").touch(); sys.exit()
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "deaf" else end)
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""
    for kind in ("well", "deaf"):

        async def check(kind: str = kind) -> None:
            if await anyio.Path(item.tree / kind).exists():
                raise Stopped("enough")

        with pytest.raises(Stopped), anyio.fail_after(20):
            await item.python(confined(), code, kind, str(item.root), check=check, grace_seconds=1.0)
        assert with_word(str(item.root)) == []
    assert (item.tree / "heard").exists()


@contextmanager
def daemon_with_a_run(item: Item) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon of its own with an isolated run whose children escape and that never ends."""
    argv = [sys.executable, str(FAKES / "confined_daemon.py"), str(item.state)]
    environment = {**os.environ, "PYTHONPATH": str(FAKES.parents[2])}
    with subprocess.Popen(argv, env=environment) as daemon:
        try:
            yield daemon
        finally:
            daemon.kill()
            for pid in with_word(str(item.tree)):
                os.kill(pid, signal.SIGKILL)


async def test_nothing_survives_the_death_of_daemon_and_supervisor(item: Item) -> None:
    """SIGKILL of both at once: the namespace dies with them, without anybody's help."""
    item.tree.rmdir()
    item.clone.rmdir()
    with daemon_with_a_run(item) as daemon:
        await until((item.tree / "main.pid").exists)
        supervisor = json.loads((item.state / "runs" / "7" / "run.json").read_text())["pid"]
        assert len(with_word(str(item.tree))) > 5
        os.kill(daemon.pid, signal.SIGSTOP)
        os.kill(supervisor, signal.SIGKILL)
        os.kill(daemon.pid, signal.SIGKILL)
        await until(lambda: with_word(str(item.tree)) == [])
