"""The whole loop with runs in bubblewrap, unattended, and an agent that does what no agent should."""

from __future__ import annotations

from pathlib import Path

from tests.loop.harness import Daemon, People, Project, unattended
from tests.servers import PoolServer

OBEDIENT = """
import glob, socket
def quietly(act):
    try: act()
    except Exception as error: print(type(error).__name__)
for folder in (os.path.expanduser("~root"), {checkout!r}, {state!r}, {remote!r} + "/hooks"):
    quietly(lambda: pathlib.Path(folder, "planted").write_text("x"))
for secret in ({state!r} + "/owner", {checkout!r} + "/README.md", {config!r}):
    quietly(lambda: pathlib.Path("stolen").write_text(pathlib.Path(secret).read_text()))
for environ in glob.glob("/proc/[0-9]*/environ"):
    quietly(lambda: "FORMICA_SERVER__KEY" in open(environ).read() and pathlib.Path("stolen").write_text("key"))
quietly(lambda: socket.create_connection(("127.0.0.1", {port}), timeout=5) and pathlib.Path("stolen").write_text("net"))
if os.fork() == 0:
    os.setsid(); time.sleep(600)
fix(); test()
subprocess.run(["git", "commit", "-qam", "fixed"], check=True)
"""


def test_an_unattended_agent_in_bubblewrap_publishes_its_fix_and_nothing_else(
    tmp_path: Path, project: Project, server: PoolServer, people: People
) -> None:
    """Proactive and auto_fix start with isolation; what the agent stole or planted is nowhere."""
    before = project.fingerprint()
    folder = tmp_path / "daemon"
    script = OBEDIENT.format(
        checkout=str(project.checkout),
        state=str(folder / "state"),
        remote=str(project.remote),
        config=str(folder / "formica.toml"),
        port=int(server.url.rpartition(":")[2]),
    )
    options = unattended() | {"agent": {"sandbox": "required"}}
    with Daemon(folder, project, server, script, **options) as daemon:
        number = people.report()["issue_number"]
        plan = people.wait_state(number, "done")
        assert plan["outcome"] == "pr_opened", plan
        assert daemon.stop() == 0
    assert project.fingerprint() == before
    assert list(tmp_path.rglob("planted")) == []
    listed = project.files(plan["head_sha"])
    assert "stolen" not in listed
    assert "tally/stats.py" in listed
