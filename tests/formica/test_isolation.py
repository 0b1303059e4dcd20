"""Runs in bubblewrap: what an agent that obeys every injected instruction can and cannot reach."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from formica.adapters.agents.command import CommandAgent
from formica.adapters.isolation import (
    UNCONFINED,
    Bubblewrap,
    Limits,
    Sandbox,
    choose_isolation,
    find_bubblewrap,
    object_folders,
)
from formica.adapters.sandbox import agent_environment
from formica.adapters.verification import LocalVerifier
from formica.errors import NeedsOperator, Refused
from formica.ports import AgentTask
from tests.fakes.repositories import make_project
from tests.fakes.sandboxes import PATH, Item, confined, go_on

LOOK = """\
import json, os, sys
def names(path):
    try: return sorted(os.listdir(path))
    except OSError: return None
print(json.dumps({path: names(path) for path in sys.argv[1:]}))
"""
TRY_TO_WRITE = """\
import sys
for path in sys.argv[1:]:
    try: open(path, "a").write("planted")
    except OSError as error: print(path, "refused", error.strerror)
"""


@pytest.fixture
def item(tmp_path: Path) -> Item:
    return Item(tmp_path / "state")


async def printed(item: Item, sandbox: Sandbox, code: str, *argv: object, **changes: Any) -> Any:
    result = await item.python(sandbox, code, *map(str, argv), **changes)
    assert result.exit_code == 0, result.output_tail
    return json.loads(result.output_tail)


async def test_nothing_of_the_host_but_toolchain_and_tree(item: Item, tmp_path: Path) -> None:
    """Home, the state folder, the checkout, /etc's keys, /root, /srv and /var are not there."""
    for secret in (item.state / "owner", tmp_path / "home" / ".ssh" / "id", tmp_path / "checkout" / "file"):
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_text("secret")
    (item.tree / "mine").write_text("")
    folders = [item.tree, item.state, item.root, tmp_path / "home", tmp_path / "checkout"]
    found = await printed(item, confined(), LOOK, *folders, "/", "/etc", "/run", "/var", "/srv", "/sys")
    assert found[str(item.tree)] == ["mine"]
    assert found[str(item.state)] == ["items"]
    assert found[str(item.root)] == ["repo.git", "run", "tree"]
    assert found[str(tmp_path / "home")] is None
    assert found[str(tmp_path / "checkout")] is None
    assert (found["/srv"], found["/sys"], found["/var"]) == (None, None, ["tmp"])
    assert found["/run"] == ["formica"]
    assert {"shadow", "ssh", "gshadow", "machine-id", "environment"} & set(found["/etc"]) == set()
    assert {"passwd", "group", "hosts"} <= set(found["/etc"])


async def test_nothing_but_the_tree_can_be_written(item: Item, tmp_path: Path) -> None:
    """The tree and the item's own repository; /tmp and HOME are the run's own and gone with it."""
    refused = ["/usr/planted", "/etc/planted", "/planted", "/dev/planted", "/run/planted", sys.executable]
    own = [item.tree / "a", item.clone / "b", "/tmp/c", item.root / "run" / "home" / "d"]
    elsewhere = [
        tmp_path / "e",
        item.state / "f",
        item.root / "g",
    ]  # below /tmp here: refused, or not the host's
    result = await item.python(confined(), TRY_TO_WRITE, *map(str, [*refused, *own, *elsewhere]))
    said = [line.partition(" refused")[0] for line in result.output_tail.splitlines()]
    assert said[: len(refused)] == refused
    assert set(said) & set(map(str, own)) == set()
    assert (item.tree / "a").exists()
    assert (item.clone / "b").exists()
    assert not any(path.exists() for path in (*elsewhere, item.root / "run" / "home" / "d", Path("/tmp/c")))
    found = await printed(item, confined(), LOOK, "/tmp", item.root / "run" / "home")
    assert "c" not in found["/tmp"], "a run finds nothing of the one before"
    assert found[str(item.root / "run" / "home")] == []


async def test_no_process_and_no_environment_but_its_own(item: Item, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc shows the run alone; no environment in it holds anything of the daemon's."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    code = """\
import glob, json
read = lambda path: open(path, "rb").read().decode(errors="replace")
print(json.dumps([[read(p + "/cmdline").replace("\\0", " "), read(p + "/environ")] for p in glob.glob("/proc/[0-9]*")]))
"""
    found = await printed(item, confined(), code)
    assert len(found) <= 3
    assert "planted" not in json.dumps(found)
    assert str(os.getpid()) not in [command.split(" ")[0] for command, _ in found]


async def test_no_network_at_all(item: Item) -> None:
    """Neither the host's loopback, nor its abstract sockets, nor a route to anywhere, nor a name server."""
    code = """\
import json, socket, sys
def tries(make):
    try: make(); return True
    except OSError: return False
def datagram():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(("192.0.2.1", 9))
def abstract():
    socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[2])
print(json.dumps([
    tries(lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5)),
    tries(datagram), tries(abstract), tries(lambda: socket.getaddrinfo("example.com", 80)),
]))
"""
    name = f"formica-test-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        port = listener.getsockname()[1]
        assert await printed(item, confined(), code, port, name) == [False] * 4
        assert (await printed(item, UNCONFINED, code, port, name))[0], "the control reaches the host"


async def test_no_descriptor_of_ours_is_inherited(item: Item) -> None:
    """Only the closed input and the log's pipe; no socket, no file of the daemon."""
    code = "import json, os; print(json.dumps([os.readlink('/proc/self/fd/' + n) for n in '012'] + sorted(os.listdir('/proc/self/fd'))))"
    found = await printed(item, confined(), code)
    assert found[0] == "/dev/null"
    assert found[3:] == ["0", "1", "2", "3"], "3 is the listing itself"


async def test_new_namespaces_and_privileges_are_refused(item: Item) -> None:
    """No user namespace, no mount, no capability, no change of identity."""
    code = """\
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
def setuid():
    try: os.setuid(0); return 0
    except OSError: return -1
status = open("/proc/self/status").read()
print(json.dumps({
    "namespace": libc.unshare(0x10000000), "mount": libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), "setuid": setuid(),
    "uid": os.getuid(), "capabilities": status.partition("CapEff:")[2].split()[0], "no_new_privs": "NoNewPrivs:\\t1" in status,
}))
"""
    found = await printed(item, confined(), code)
    assert (found["namespace"], found["mount"], found["setuid"], found["uid"]) == (-1, -1, -1, 1000)
    assert int(found["capabilities"], 16) == 0
    assert found["no_new_privs"]


async def test_no_key_of_the_users_session_is_inherited(item: Item) -> None:
    """The kernel keeps keys for a login session; a run has a session keyring of its own, and an empty one."""
    search = """\
import ctypes, json, sys
number = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
print(json.dumps(libc.syscall(number, 10, -3, b"user", b"formica-test", 0)))
"""
    numbers = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(os.uname().machine)
    assert numbers is not None, "add this machine's numbers of add_key and keyctl"
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.syscall(numbers[1], 1, None) > 0, "a session keyring for this test"
    key = libc.syscall(numbers[0], b"user", b"formica-test", b"secret", 6, -3)
    assert key > 0
    for sandbox in (confined(), UNCONFINED):
        assert await printed(item, sandbox, search, numbers[1]) == -1
    assert libc.syscall(numbers[1], 10, -3, b"user", b"formica-test", 0) == key, "the control finds it"


async def test_no_secret_is_on_a_command_line(item: Item) -> None:
    """What the host's process list shows of a run is neither its program, nor its environment."""
    code = "import pathlib, time; pathlib.Path('started').touch(); time.sleep(60)"
    seen: list[bytes] = []

    def look() -> None:
        if (item.tree / "started").exists():
            for entry in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    seen.append(entry.read_bytes())
            raise Refused("enough")

    async def check() -> None:
        await anyio.to_thread.run_sync(look)

    env = agent_environment(PATH, item.root / "run" / "home", {"TOKEN": "s3cret-value"})
    with pytest.raises(Refused):
        await item.python(confined(), code, env=env, check=check)
    outer = [words for words in seen if words.startswith(b"/usr/bin/bwrap\0") or b"launcher" in words]
    assert outer
    assert not any(b"s3cret-value" in words or b"pathlib" in words for words in outer)


async def test_exit_codes_and_signals_come_through(item: Item) -> None:
    """As without isolation: the code, a signal as a negative number, and what cannot start says so."""
    sandbox = confined()
    assert (await item.run(sandbox, "sh", "-c", "exit 7")).exit_code == 7
    assert (await item.run(sandbox, "sh", "-c", "kill -9 $$")).exit_code == -9
    missing = await item.run(sandbox, "no-such-program")
    assert (missing.reason, missing.exit_code) == ("unstartable", None)
    hidden = item.state / "hidden"
    hidden.write_text("#!/bin/sh\n")
    hidden.chmod(0o755)
    assert (await item.run(sandbox, str(hidden))).reason == "unstartable"


async def test_a_program_of_home_runs_with_its_interpreter(item: Item, tmp_path: Path) -> None:
    """A script below home, named by its absolute path, is there and nothing beside it."""
    home = tmp_path / "home"
    script = home / "tools" / "agent.py"
    script.parent.mkdir(parents=True)
    script.write_text(LOOK)
    (script.parent / "credentials").write_text("secret")
    sandbox = confined(words=[str(script)], home=home)
    result = await item.run(sandbox, sys.executable, str(script), str(script.parent), str(home))
    assert json.loads(result.output_tail) == {str(script.parent): ["agent.py"], str(home): ["tools"]}


async def test_the_agent_commits_in_its_tree(tmp_path: Path) -> None:
    """With the mirror's objects to read and its own repository to write; the prompt lies outside the tree."""
    project = make_project(tmp_path, {"code.py": "old\n"})
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    script = tmp_path / "agent.sh"
    script.write_text(
        'cp "$FORMICA_PROMPT_FILE" prompt\ngit log --oneline >log && git show HEAD:code.py >was || exit 3\n'
        "echo new >code.py; git commit -qam change && git status --porcelain\n"
    )
    sandbox = confined(words=[str(script)], hidden=[project.state, project.checkout])
    agent = CommandAgent(["sh", str(script)], path=PATH, sandbox=sandbox)
    task = AgentTask(workspace, prompt="do it", timeout_seconds=60, stall_seconds=60)
    result = await agent.run(task, check=go_on)
    assert result.exit_code == 0, result.output_tail
    assert (workspace.tree / "prompt").read_text() == "do it"
    assert (workspace.tree / "was").read_text() == "old\n"
    before = {path: path.stat().st_mtime_ns for path in project.state.rglob("mirrors/**/*")}
    change = await repository.collect(workspace, message="Change")
    assert {file.path for file in change.files} == {"code.py", "log", "prompt", "was"}
    assert before == {path: path.stat().st_mtime_ns for path in before}


async def test_borrowed_objects_are_only_the_mirrors(tmp_path: Path) -> None:
    """What an agent writes into its own alternates is not shown to the next run."""
    project = make_project(tmp_path, {"code.py": "old\n"})
    workspace = await project.repository().prepare(1, commit=None)
    secret = tmp_path / "other.git" / "objects"
    secret.mkdir(parents=True)
    alternates = workspace.root / "repo.git" / "objects" / "info" / "alternates"
    alternates.write_text(alternates.read_text() + f"{secret}\n")
    agent = CommandAgent(["ls", "-d", str(secret)], path=PATH, sandbox=confined())
    task = AgentTask(workspace, prompt="p", timeout_seconds=60, stall_seconds=60)
    assert "No such file" in (await agent.run(task, check=go_on)).output_tail


async def test_verification_runs_in_the_same_isolation(tmp_path: Path) -> None:
    """Set-up, tests and hooks see no more than the agent did."""
    spy = "import pathlib, sys\nprint(pathlib.Path(sys.argv[1]).exists())\nsys.exit(1)\n"
    project = make_project(tmp_path, {"tests/test_a.py": "pass\n", "spy.py": spy})
    repository = project.repository()
    workspace = await repository.prepare(1, commit=None)
    (workspace.tree / "tests" / "test_b.py").write_text("pass\n")
    (workspace.tree / "code.py").write_text("pass\n")
    change = await repository.collect(workspace, message="Change")
    command = [sys.executable, "spy.py", str(project.checkout)]
    for sandbox, sees in ((confined(), "False"), (UNCONFINED, "True")):
        verifier = LocalVerifier(project.git(), path=PATH, test_command=command, sandbox=sandbox)
        proof = await verifier.prove(workspace, change, check=go_on)
        assert proof.commands[0]["output_tail"] == f"{sees}\n"


async def test_a_link_in_the_place_of_a_folder_is_refused(item: Item, tmp_path: Path) -> None:
    """What was planted while there was no isolation does not choose what is bound."""
    item.clone.rmdir()
    item.clone.symlink_to(tmp_path)
    with pytest.raises(NeedsOperator, match="link"):
        await item.run(confined(), "true")


def test_isolation_is_chosen_by_setting_and_host() -> None:
    """auto and required take bubblewrap where it works; required refuses to go without; off never has it."""
    there = Bubblewrap(Path("/usr/bin/bwrap"), True)
    assert choose_isolation("auto", there) == choose_isolation("required", there) == there
    assert choose_isolation("off", there) is None
    assert choose_isolation("auto", "it is missing") is None
    with pytest.raises(Refused, match="it is missing") as caught:
        choose_isolation("required", "it is missing")
    assert caught.value.rule == "agent.sandbox"


def test_bubblewrap_is_tried_out(tmp_path: Path) -> None:
    """A missing one and one that does not work here are not taken for isolation, and the reason is told."""
    assert isinstance(find_bubblewrap(PATH), Bubblewrap)
    missing = find_bubblewrap(str(tmp_path))
    assert isinstance(missing, str)
    assert "install" in missing
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    told = find_bubblewrap(str(tmp_path))
    assert isinstance(told, str)
    assert "No permissions" in told


def test_the_folders_of_objects_follow_alternates(tmp_path: Path) -> None:
    """A repository of ours, what it borrows from, and no further round."""
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        info = tmp_path / name / "objects" / "info"
        info.mkdir(parents=True)
        (info / "alternates").write_text(f"# ours\n{tmp_path / other / 'objects'}\n")
    assert object_folders(tmp_path / "a") == [tmp_path / name / "objects" for name in "abc"]
    assert object_folders(tmp_path / "none") == []


def test_limits_without_isolation_leave_other_processes_alone() -> None:
    """The kernel counts a user's processes on the whole host, so that limit is only set in a namespace."""
    plain = Sandbox(limits=Limits())
    started = plain.start(["true"], cwd=Path("/"), env={"HOME": "/"}, writable=[], readable=[], socket=None)
    assert "RLIMIT_NPROC" not in "".join(started.descriptors.values())
    assert not started.namespaced
