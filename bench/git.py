"""A workspace ready, collected and removed, beside plain git on the same repository.

Usage: python bench/git.py [--files 300 3000 10000] [--repeat 5] [--rounds N] [--folder DIR]. Everything it
writes is removed. Plain git is `git clone --shared` + `git worktree add`, then `git add` + `commit` + a fetch
into a bare repository, then
a bundle of the change and `rm -r`: what ours saves before it removes. Each repetition does ours and plain git in turn; ratios are of medians.
Cold has no worktree made in advance, warm moves one that is a commit old. With --rounds, workspaces are made
and removed four at a time so many rounds over, and every leftover is a failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from formica.adapters.workspace import GitRepository
from tests.fakes.repositories import Project, git, make_project

FILE_BYTES = 3_500
COLD_FACTOR, COLD_MILLISECONDS = 1.3, 100.0
WARM_MILLISECONDS = 500.0
Times = dict[str, list[float]]


def project_of(folder: Path, files: int) -> Project:
    """A project of ``files`` text files, twenty a folder, each with bytes of its own."""
    folder.mkdir(parents=True)
    project = make_project(folder, {"README.md": "bench\n"})
    for number in range(files):
        path = project.checkout / f"package{number // 20:04}" / f"module{number:05}.py"
        path.parent.mkdir(exist_ok=True)
        line = f"VALUE_{number} = '{number:05}'\n"
        path.write_text(line * (FILE_BYTES // len(line)))
    project.commit({}, "all files")
    git(project.origin, "gc", "-q")
    return project


async def timed(name: str, times: Times, act: Callable[[], Awaitable[object]]) -> None:
    started = time.perf_counter()
    await act()
    times.setdefault(name, []).append((time.perf_counter() - started) * 1000)


def run_raw(*arguments: str) -> None:
    """git with nobody's configuration, as fast as it is."""
    identity = {"GIT_AUTHOR_NAME": "b", "GIT_AUTHOR_EMAIL": "b@example.com"}
    identity |= {"GIT_COMMITTER_NAME": "b", "GIT_COMMITTER_EMAIL": "b@example.com"}
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **identity}
    subprocess.run(["git", *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)


async def raw_round(project: Project, folder: Path, times: Times) -> None:
    clone, tree, clean = folder / "clone.git", folder / "tree", folder / "clean.git"
    bundle = folder.with_suffix(".bundle")

    async def ready() -> None:
        run_raw("clone", "-q", "--bare", "--shared", str(project.origin), str(clone))
        run_raw(f"--git-dir={clone}", "worktree", "add", "-q", "-b", "work", str(tree), "main")

    async def collect() -> None:
        run_raw("-C", str(tree), "add", "-A")
        run_raw("-C", str(tree), "commit", "-q", "-m", "change")
        run_raw("init", "-q", "--bare", str(clean))
        (clean / "objects" / "info" / "alternates").write_text(f"{project.origin}/objects\n")
        run_raw(
            f"--git-dir={clean}", "fetch", "-q", str(clone), "work:refs/heads/work", "main:refs/heads/main"
        )

    async def remove() -> None:
        run_raw(f"--git-dir={clean}", "bundle", "create", "-q", str(bundle), "work", "^main")
        shutil.rmtree(folder)

    await anyio.Path(folder).mkdir()
    await timed("raw ready", times, ready)
    change(tree)
    await timed("raw collect", times, collect)
    await timed("raw remove", times, remove)


def change(tree: Path) -> None:
    for number in range(3):
        (tree / f"new{number}.txt").write_text("new\n")
    (tree / "README.md").write_text("changed\n")


async def our_round(repository: GitRepository, kind: str, times: Times) -> None:
    started = time.perf_counter()
    workspace = await repository.prepare(1, commit=None)
    times.setdefault(f"{kind} ready", []).append((time.perf_counter() - started) * 1000)
    change(workspace.tree)
    await timed(f"{kind} collect", times, partial(repository.collect, workspace, message="Change"))
    await timed(f"{kind} remove", times, partial(repository.dispose, 1))


async def measure(folder: Path, files: int, repeat: int) -> bool:
    """One line an act; whether every goal was met."""
    project = project_of(folder / f"p{files}", files)
    repository = project.repository()
    await repository.refresh()
    times: Times = {}
    for number in range(repeat):
        await raw_round(project, folder / "raw", times)
        await our_round(repository, "cold", times)
        await repository.maintain_once()
        project.commit({"README.md": f"bench {number}\n"})
        await our_round(repository, "warm", times)
    medians = {name: statistics.median(values) for name, values in times.items()}
    met = medians["warm ready"] < WARM_MILLISECONDS
    print(f"\n{files} files, medians of {repeat} in ms")
    for act in ("ready", "collect", "remove"):
        raw, cold, warm = (medians[f"{kind} {act}"] for kind in ("raw", "cold", "warm"))
        limit = COLD_FACTOR * raw + COLD_MILLISECONDS
        met = met and cold <= limit
        print(
            f"  {act:8} raw {raw:6.0f}   cold {cold:6.0f} ({cold / raw:4.2f}x, goal {limit:6.0f})   "
            f"warm {warm:6.0f} ({warm / raw:4.2f}x)"
        )
    print(
        f"  goal: cold at most {COLD_FACTOR} x raw + {COLD_MILLISECONDS:.0f} ms, warm ready under "
        f"{WARM_MILLISECONDS:.0f} ms: {'met' if met else 'MISSED'}"
    )
    return met


async def rounds(folder: Path, count: int) -> bool:
    """Four workspaces made and removed at once, ``count`` times; whether nothing failed and nothing is left."""
    project = project_of(folder / "rounds", 20)
    repository = project.repository()
    started = time.perf_counter()
    for _ in range(count):
        async with anyio.create_task_group() as group:
            for issue_number in range(1, 5):
                group.start_soon(partial(repository.prepare, issue_number, commit=None))
        async with anyio.create_task_group() as group:
            for issue_number in range(1, 5):
                group.start_soon(repository.dispose, issue_number)
    left = [path for name in ("items", "trash") for path in (project.state / name).iterdir()]
    (mirror,) = (project.state / "mirrors").iterdir()
    refs = git(mirror, "for-each-ref", "--format=%(refname)").splitlines()
    stray = [name for name in refs if name != "refs/heads/main"]
    print(
        f"\n{count} rounds of 4 made and removed at once: {time.perf_counter() - started:.0f} s, none failed"
    )
    print(f"  left behind: {len(left)} folders, {len(stray)} refs")
    return not left and not stray


async def run(chosen: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="formica-bench-", dir=chosen.folder) as name:
        folder = Path(name)
        if chosen.rounds:
            return 0 if await rounds(folder, chosen.rounds) else 1
        met = [await measure(folder, files, chosen.repeat) for files in chosen.files]
        return 0 if all(met) else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, nargs="+", default=[300, 3_000, 10_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where to work; default: the temporary folder"
    )
    return anyio.run(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
