"""How fast the daemon wakes, and what it costs while nothing happens.

    python bench/daemon.py [--issues 20] [--idle-seconds 30]

A real server and a real daemon on this machine; reports are filed one after the other. Prints, from the moment the
report was answered: when its plan exists, when the agent process runs, when the pull request is open; then CPU and
memory of the idle daemon. The floor beside it is one `git clone --shared` with a worktree and one start of the agent's
interpreter, measured in the same run. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.loop.harness import Daemon, People, Project, git, unattended, wait_for
from tests.servers import PoolServer

AGENT = "fix(); test(); pathlib.Path({started!r}).open('a').write(f'{{time.time()}}\\n')\n"
NO_LIMITS = {"POOL_RATE_ANONYMOUS_PER_MINUTE": "0", "POOL_RATE_GUEST_PER_MINUTE": "0"}
TICKS = 100.0


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def line(what: str, values: list[float], goal: str = "") -> None:
    print(
        f"{what:<42} p50 {statistics.median(values) * 1000:7.0f} ms   p95 {percentile(values, 0.95) * 1000:7.0f} ms   {goal}"
    )


def floor(project: Project, folder: Path) -> float:
    """Seconds for what no daemon can do without: a clone, a worktree, an interpreter."""
    started = time.monotonic()
    clone = folder / f"floor-{time.monotonic_ns()}"
    git("clone", "-q", "--bare", "--shared", str(project.remote), str(clone))
    git(
        "--git-dir",
        str(clone),
        "worktree",
        "add",
        "-q",
        "--no-track",
        "-b",
        "floor",
        str(clone) + "-tree",
        "main",
    )
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.monotonic() - started


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_megabytes(pid: int) -> float:
    for row in Path(f"/proc/{pid}/status").read_text().splitlines():
        if row.startswith("VmRSS:"):
            return int(row.split()[1]) / 1024
    return 0.0


def measure(folder: Path, issues: int, idle_seconds: float) -> None:
    project_folder = folder / "project"
    project_folder.mkdir()
    project = Project(project_folder)
    started_file = folder / "started.txt"
    limits = {"max_prs_per_hour": 1_000, "max_open_prs": 1_000, "minutes_per_day": 1e6}
    options = unattended(**limits)
    options["daemon"] = {"reconcile_seconds": 60}
    (folder / "pool").mkdir()
    with PoolServer(folder / "pool", NO_LIMITS) as server:
        people = People(server, project.name)
        daemon = Daemon(
            folder / "daemon", project, server, AGENT.format(started=str(started_file)), **options
        )
        with daemon:
            wait_for("the subscription", lambda: (daemon.state / "subscription.json").exists())
            planned, started, opened, floors = [], [], [], []
            for index in range(issues):
                number = people.report(title=f"mean([]) raises, case {index}")["issue_number"]
                filed_wall, filed = time.time(), time.monotonic()
                wait_for("the plan", lambda number=number: people.plan(number), 60)
                planned.append(time.monotonic() - filed)
                people.wait_state(number, "done", seconds=120)
                opened.append(time.monotonic() - filed)
                started.append(float(started_file.read_text().splitlines()[-1]) - filed_wall)
                floors.append(floor(project, folder))
            line("floor: clone, worktree, interpreter", floors)
            line("report -> plan exists (seen by polling)", planned)
            line("report -> agent process runs", started, "goal: p95 < 1000 ms")
            line("report -> pull request, reported", opened)
            print(
                f"agent start beside the floor: {statistics.median(started) / statistics.median(floors):.1f} x"
            )
            assert daemon.process is not None
            pid = daemon.process.pid
            before = cpu_seconds(pid)
            time.sleep(idle_seconds)
            used = cpu_seconds(pid) - before
            print(f"idle for {idle_seconds:.0f} s: {used / idle_seconds:.2%} of one core (goal < 1 %)")
            print(f"resident memory: {resident_megabytes(pid):.0f} MB (goal < 120 MB)")
        people.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--issues", type=int, default=20)
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="formica-bench-") as folder:
        measure(Path(folder), chosen.issues, chosen.idle_seconds)


if __name__ == "__main__":
    main()
