"""A program that may do all we may, without any isolation: it outlives no run and makes no worker hang."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import pytest

from formica.adapters.agents.command import CommandAgent
from formica.adapters.isolation import UNCONFINED
from formica.adapters.sandbox import end_leftover_run
from formica.adapters.stamps import Stamps, copy_index
from formica.adapters.transcripts import TranscriptFolder
from formica.errors import NeedsOperator, Retryable, Stopped
from formica.ports import AgentTask, Workspace
from formica.rules.secret_forms import LiveSecrets
from tests.fakes.sandboxes import Item, go_on

FAKES = Path(__file__).parents[1] / "fakes" / "agents"
ROGUE = [sys.executable, str(FAKES / "rogue.py")]
RUN_ID = "7a1e5b1c-0000-4000-8000-000000000001"
SPOILT = {
    "fifo": "os.unlink('../run/agent.log'); os.mkfifo('../run/agent.log')",
    "zero": "os.unlink('../run/agent.log'); os.symlink('/dev/zero', '../run/agent.log')",
    "file": "os.unlink('../run/agent.log'); os.symlink('/etc/passwd', '../run/agent.log')",
    "folder": "os.unlink('../run/agent.log'); os.mkdir('../run/agent.log')",
    "no run": "import shutil; shutil.rmtree('../run')",
    "no item": "import shutil; root = os.path.abspath('..'); os.chdir('/'); shutil.rmtree(root)",
    "no record": "import shutil; shutil.rmtree('../../../runs', ignore_errors=True)",
    "record": (
        "record = next(p for p in ('../../../runs/7/run.json', '../run/run.json') if os.path.exists(p)); "
        "os.unlink(record); os.makedirs(record + '/x')"
    ),
}


@pytest.fixture
def item(tmp_path: Path) -> Item:
    return Item(tmp_path / "state")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def appears(path: Path) -> int:
    with anyio.fail_after(20):
        while True:
            with suppress(OSError, ValueError):
                return int(await anyio.Path(path).read_text())
            await anyio.sleep(0.01)


@pytest.mark.parametrize("kind", ["kill", "forge"])
async def test_who_kills_its_supervisor_ends_with_the_run(item: Item, tmp_path: Path, kind: str) -> None:
    """Detached and with an empty environment; a report it wrote itself is not believed."""
    with pytest.raises(Retryable, match="signal 9"), anyio.fail_after(25):
        await item.run(UNCONFINED, *ROGUE, kind, str(tmp_path / "pid"))
    pid = await appears(tmp_path / "pid")
    try:
        assert not alive(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_what_is_ours_lives_on(item: Item, tmp_path: Path) -> None:
    """A program of ours that started during the run is no orphan of it."""
    async with anyio.create_task_group() as group:

        async def start() -> None:
            await appears(tmp_path / "pid")
            async with await anyio.open_process([sys.executable, "-c", "input()"]) as ours:
                (tmp_path / "go").touch()
                await ended.wait()
                assert ours.returncode is None
                assert alive(ours.pid)
                ours.kill()

        ended = anyio.Event()
        group.start_soon(start)
        with pytest.raises(Retryable):
            await item.run(UNCONFINED, *ROGUE, "kill-later", str(tmp_path / "pid"), str(tmp_path / "go"))
        ended.set()


async def test_a_frozen_supervisor_delays_no_stop(item: Item, tmp_path: Path) -> None:
    """A program that stopped its supervisor, again and again, is ended within the grace and two seconds."""
    said: list[float] = []

    async def check() -> None:
        if await anyio.Path(tmp_path / "pid").exists():
            said.append(anyio.current_time())
            raise Stopped("paused")

    with pytest.raises(Stopped), anyio.fail_after(25):
        await item.run(UNCONFINED, *ROGUE, "freeze", str(tmp_path / "pid"), check=check, grace_seconds=1.0)
    assert anyio.current_time() - said[0] < 4.5
    assert not alive(await appears(tmp_path / "pid"))


@pytest.mark.parametrize("kind", SPOILT)
async def test_a_spoilt_log_is_read_all_the_same(item: Item, tmp_path: Path, kind: str) -> None:
    """What the program printed comes back although it replaced or removed the log, its folder or the record."""
    code = f"import os\nprint('first', flush=True)\n{SPOILT[kind]}\nprint('last')"
    with anyio.fail_after(20):
        result = await item.python(UNCONFINED, code)
    assert (result.reason, result.exit_code, result.output_tail) == ("exited", 0, "first\nlast\n")
    assert result.log_path.read_bytes() == b"first\nlast\n"
    assert result.log_hash == hashlib.sha256(b"first\nlast\n").hexdigest()
    assert not list((item.state / "runs").rglob("run.json"))
    await end_leftover_run(item.root)
    assert not (item.state / "runs" / "7").exists()


async def test_a_blown_up_log_is_cut(item: Item) -> None:
    """A program that makes its log a terabyte long keeps nobody busy reading it."""
    code = "import os\nprint('said', flush=True)\nos.truncate('../run/agent.log', 1 << 40)"
    with anyio.fail_after(20):
        result = await item.python(UNCONFINED, code, log_limit=100_000)
    assert result.log_path.stat().st_size < 101_000


@pytest.mark.parametrize("kind", ["garbage", "flood"])
async def test_garbage_in_the_report_is_not_believed(item: Item, tmp_path: Path, kind: str) -> None:
    """Neither broken JSON with a killed supervisor nor megabytes before a true report mislead us."""
    with anyio.fail_after(25):
        if kind == "garbage":
            with pytest.raises(Retryable, match="signal 9"):
                await item.run(UNCONFINED, *ROGUE, kind, str(tmp_path / "pid"))
        else:
            result = await item.run(UNCONFINED, *ROGUE, kind, str(tmp_path / "pid"))
            assert (result.reason, result.exit_code) == ("exited", 3)


@pytest.mark.parametrize("place", ["run", "run/home"])
async def test_a_file_in_place_of_a_folder_is_told(item: Item, place: str) -> None:
    """What an earlier run put there is one sentence for people, not a bare error of the system."""
    (item.root / place).parent.mkdir(exist_ok=True)
    (item.root / place).touch()
    with pytest.raises(NeedsOperator, match="in the place"):
        await item.python(UNCONFINED, "")


async def test_a_folder_that_cannot_be_worked_in_is_an_outcome(item: Item) -> None:
    """Removed meanwhile: nothing was started."""
    item.tree.rmdir()
    assert (await item.python(UNCONFINED, "")).reason == "unstartable"


async def test_the_task_replaces_what_is_there(item: Item, tmp_path: Path) -> None:
    """A folder, or a link of the whole run folder to somewhere else, in place of the task's file."""
    workspace = Workspace(issue_number=8, root=item.root, tree=item.tree, branch="b", base_sha="0" * 40)
    task = AgentTask(workspace=workspace, prompt="do it", timeout_seconds=20, stall_seconds=20)
    agent = CommandAgent(["/bin/sh", "-c", 'cat "$FORMICA_PROMPT_FILE"'], path="/usr/bin:/bin")
    (item.root / "run" / "prompt.md").mkdir(parents=True)
    assert (await agent.run(task, check=go_on)).output_tail == "do it"
    elsewhere = tmp_path / "elsewhere"
    (item.root / "run").rename(elsewhere)
    before = sorted(elsewhere.iterdir())
    (elsewhere / "prompt.md").write_text("untouched")
    (item.root / "run").symlink_to(elsewhere)
    assert (await agent.run(task, check=go_on)).output_tail == "do it"
    assert ((elsewhere / "prompt.md").read_text(), sorted(elsewhere.iterdir())) == ("untouched", before)


@contextmanager
def daemon_with_a_rogue(item: Item, pid: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, str(FAKES / "daemon.py"), str(item.root), *ROGUE, "leave", str(pid)]
    with subprocess.Popen(argv, env={**os.environ, "PYTHONPATH": str(FAKES.parents[2])}) as daemon:
        try:
            yield daemon
        finally:
            daemon.kill()


async def test_the_next_daemon_ends_one_that_killed_both(item: Item, tmp_path: Path) -> None:
    """Without environment, its supervisor and the daemon killed: it was recorded while it ran."""
    record = item.state / "runs" / "7" / "run.json"
    with daemon_with_a_rogue(item, tmp_path / "pid") as daemon:
        pid = await appears(tmp_path / "pid")
        with anyio.fail_after(20):
            while pid not in [below[0] for below in json.loads(record.read_text())["below"]]:
                await anyio.sleep(0.01)
        os.kill(daemon.pid, signal.SIGSTOP)
        os.kill(json.loads(record.read_text())["pid"], signal.SIGKILL)
        daemon.kill()
        assert await end_leftover_run(item.root)
        assert not alive(pid)
        assert not record.exists()


@pytest.mark.parametrize("content", ["[" * 100_000, "{}", '{"pid": -1, "start_time": 1}', "fifo", "folder"])
async def test_a_spoilt_record_stops_nothing(item: Item, content: str) -> None:
    """A record that says nothing, or that is no file at all, is removed."""
    record = item.state / "runs" / "7" / "run.json"
    record.parent.mkdir(parents=True)
    if content == "fifo":
        os.mkfifo(record)
    elif content == "folder":
        (record / "below").mkdir(parents=True)
    else:
        record.write_text(content)
    with anyio.fail_after(20):
        assert not await end_leftover_run(item.root)
    assert not record.parent.exists()


async def test_no_pipe_or_device_is_waited_for(item: Item, tmp_path: Path) -> None:
    """The copy of the index and the log of a session, replaced by a pipe and by an endless device."""
    os.mkfifo(item.root / "checked-out.index")
    with anyio.fail_after(20):
        assert await anyio.to_thread.run_sync(Stamps.read, item.root, "sha1") == Stamps()
    index = item.clone / "worktrees" / "tree" / "index"
    index.parent.mkdir(parents=True)
    index.write_bytes(b"index")
    await anyio.to_thread.run_sync(copy_index, item.root)
    assert (item.root / "checked-out.index").read_bytes() == b"index"
    folder = TranscriptFolder(tmp_path / "transcripts", LiveSecrets([]))
    with anyio.fail_after(20):
        kept = await folder.keep(7, RUN_ID, prompt="p", log_path=Path("/dev/zero"))
    assert kept is not None
    assert "could not be read" in (tmp_path / "transcripts" / kept.name).read_text()
