"""The main job from report to verified resolution, with real processes, shown as it happens.

Writes demo-result.json and ends with "demo: ok" and exit 0 only after reading everything back from the server
and the bare repository.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BIN = Path(sys.executable).parent
DEADLINE_SECONDS = 120.0
AGENT_DEADLINE_SECONDS = 1_800.0
"""With a real agent, which thinks before it writes."""
PROGRESS_SECONDS = 10.0
STOPPED = ("failed", "refused", "cancelled", "backing_off")
INTERRUPTED = 130

STATS = '''"""Small statistics over lists of numbers."""


def mean(values):
    """The arithmetic mean."""
    return sum(values) / len(values)
'''
TESTS = """import unittest

from tally.stats import mean


class MeanTest(unittest.TestCase):
    def test_mean(self):
        self.assertEqual(mean([1, 2, 3]), 2)


if __name__ == "__main__":
    unittest.main()
"""
REPORT_TITLE = "mean([]) raises ZeroDivisionError"
REPORT_BODY = """Calling `tally.stats.mean` with an empty list crashes.

Steps to reproduce:

```python
from tally.stats import mean
mean([])
```

Traceback (most recent call last):
  File "tally/stats.py", line 6, in mean
    return sum(values) / len(values)
ZeroDivisionError: division by zero

Expected: 0.0, as the README says. Actual: the traceback above.
"""


class DemoFailed(Exception):
    """What did not happen, in one sentence."""


def say(who: str, text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {who:<14} {text}", flush=True)


def git(*arguments: str, cwd: Path | None = None) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Maintainer",
        "GIT_AUTHOR_EMAIL": "maintainer@example.org",
        "GIT_COMMITTER_NAME": "Maintainer",
        "GIT_COMMITTER_EMAIL": "maintainer@example.org",
    }
    done = subprocess.run(
        ["git", *arguments], cwd=cwd, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def make_project(folder: Path) -> Path:
    """A small real project with a real bug, released as v1.0.0, and its bare remote."""
    work, remote = folder / "tally", folder / "tally.git"
    for path, text in {
        "tally/__init__.py": "",
        "tally/stats.py": STATS,
        "tests/__init__.py": "",
        "tests/test_stats.py": TESTS,
        "README.md": "# tally\n\nSmall statistics. The mean of nothing is 0.0.\n",
    }.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text, encoding="utf-8")
    git("init", "-q", "-b", "main", cwd=work)
    git("add", ".", cwd=work)
    git("commit", "-q", "-m", "tally 1.0.0", cwd=work)
    git("tag", "v1.0.0", cwd=work)
    git("clone", "-q", "--bare", str(work), str(remote))
    return remote


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def process(name: str, command: list[str], log: Path, **environment: str) -> Iterator[None]:
    """One of our programs, in its own process group (Ctrl-C is ours alone), stopped by SIGTERM at the end."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            yield
            if running.poll() is not None:
                raise DemoFailed(f"{name} ended by itself with {running.returncode}; see {log}")
        finally:
            running.terminate()
            try:
                running.wait(30)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


def wait_for(what: str, read: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> Any:
    """Poll until ``read`` gives something true; a line every ten seconds shows that it still does."""
    started = said = time.monotonic()
    while (now := time.monotonic()) < started + seconds:
        found = read()
        if found:
            return found
        if now - said >= PROGRESS_SECONDS:
            said = now
            say("demo", f"waiting for {what}: {now - started:.0f} s of at most {seconds:.0f} s")
        time.sleep(0.1)
    raise DemoFailed(f"{what} did not happen within {seconds:.0f} s")


class Server:
    """The pool server as the operator reads it."""

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self._key = key

    def get(self, path: str) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, headers={"X-API-Key": self._key})
        with urllib.request.urlopen(request, timeout=10) as answer:
            body: dict[str, Any] = json.load(answer)
            return body

    def plan(self) -> dict[str, Any] | None:
        items = self.get("/entities?type=plan")["items"]
        return items[0]["fields"] if items else None


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url + "/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


async def call(url: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """One MCP tool call, as the reporter's agent makes it."""
    async with Client(f"{url}/mcp") as client:
        result = await client.call_tool(tool, arguments)
    content: dict[str, Any] = result.structured_content or {}
    if result.is_error:
        raise DemoFailed(f"{tool} answered {content}")
    return content


def reporter(url: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return anyio.run(call, url, tool, arguments)


def formica(config: Path, *words: str) -> str:
    """One operator command, typed for you."""
    say("operator", f"$ formica {' '.join(words)}")
    done = subprocess.run(
        [str(BIN / "formica"), *words, "--config", str(config)], capture_output=True, text=True, check=False
    )
    for line in (done.stdout + done.stderr).splitlines():
        say("", f"  {line}")
    if done.returncode != 0:
        raise DemoFailed(f"formica {words[0]} ended with {done.returncode}")
    return done.stdout


class Follower:
    """Shows each state the plan enters, and ends the demo where the plan would not get any further."""

    def __init__(self, server: Server, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self._seen = ""

    def until(self, wanted: str, *, with_change: bool = False) -> dict[str, Any]:
        """The plan, once it is in ``wanted``; ``with_change``: and there is something to review."""

        def read() -> dict[str, Any] | None:
            plan = self._server.plan()
            if plan is None:
                return None
            self._show(plan)
            arrived = plan["state"] == wanted and (plan.get("head_sha") or not with_change)
            if not arrived:
                self._refuse(plan)
            return plan if arrived else None

        what = f"the plan to be {wanted}" + (" with a change" if with_change else "")
        found: dict[str, Any] = wait_for(what, read, self._seconds)
        if found["state"] == "done" and found.get("outcome") != "pr_opened":
            raise DemoFailed(f"the plan ended with outcome {found.get('outcome')}; {reasons(found)}")
        return found

    def _show(self, plan: dict[str, Any]) -> None:
        if plan["state"] != self._seen:
            self._seen = plan["state"]
            why = f": {plan['why_waiting']}" if plan.get("why_waiting") else ""
            say("formica", f"plan is {plan['state']}{why}")

    def _refuse(self, plan: dict[str, Any]) -> None:
        if plan["state"] in STOPPED:
            raise DemoFailed(f"the plan is {plan['state']}; {reasons(plan)}")
        if plan.get("outcome") == "no_change" or (
            plan["state"] == "waiting_operator" and plan.get("waiting_for") == "decision"
        ):
            raise DemoFailed(f"the plan is {plan['state']}, outcome {plan.get('outcome')}; {reasons(plan)}")


def reasons(plan: dict[str, Any]) -> str:
    """Everything the plan says about why it does not go on."""
    named = {name: plan.get(name) for name in ("last_error", "why_waiting", "agent_reason")}
    proof = (plan.get("proof") or {}).get("reason")
    said = {name: value for name, value in {**named, "proof": proof}.items() if value}
    return "; ".join(f"{name}: {value}" for name, value in said.items()) or "it does not say why"


def write_config(folder: Path, url: str, key_file: Path, remote: Path, agent: str) -> Path:
    """Everything not named here is a default."""
    config = folder / "formica.toml"
    test = [sys.executable, "-m", "unittest", "-q"]
    config.write_text(
        f"""[server]
url = {json.dumps(url)}
key_file = {json.dumps(str(key_file))}

[repository]
url = {json.dumps(str(remote))}
test_command = {json.dumps(test)}

[agent]
command = {json.dumps(shlex.split(agent))}

[daemon]
state = {json.dumps(str(folder / "formica-state"))}
reconcile_seconds = 2
""",
        encoding="utf-8",
    )
    return config


def run(folder: Path, agent: str, scripted: bool) -> dict[str, Any]:
    remote = make_project(folder)
    say("demo", f"a project with a bug: {remote} (v1.0.0)")
    url = f"http://127.0.0.1:{free_port()}"
    state = folder / "pool-state"
    serve = [str(BIN / "pool-server"), "serve", "--port", url.rsplit(":", 1)[1], "--state", str(state)]
    with process("pool-server", serve, folder / "pool-server.log"):
        wait_for("pool server ready", lambda: is_ready(url))
        say("pool-server", f"ready at {url}; its first start wrote {state}/operator.key (0600)")
        key_file = state / "operator.key"
        config = write_config(folder, url, key_file, remote, agent)
        server = Server(url, key_file.read_text(encoding="utf-8").strip())
        with process(
            "formica", [str(BIN / "formica"), "run", "--config", str(config)], folder / "formica.log"
        ):
            say("formica", "running with every default: consent, dry_run = first, auto_fix off")
            if scripted:
                say("formica", "the coding agent is a scripted stand-in (scripts/demo_agent.py), not a model")
            follower = Follower(server, DEADLINE_SECONDS if scripted else AGENT_DEADLINE_SECONDS)
            return loop(folder, url, server, follower, config, remote)


def loop(
    folder: Path, url: str, server: Server, follower: Follower, config: Path, remote: Path
) -> dict[str, Any]:
    issue = reporter(
        url, "submit_issue", title=REPORT_TITLE, body=REPORT_BODY, kind="bug", reporter_app_version="1.0.0"
    )
    number, token = issue["issue_number"], issue["guest_access_token"]
    say("reporter", f"filed #{number} over MCP: {REPORT_TITLE}")

    follower.until("waiting_operator")
    say("operator", "the demo answers for you from here: go, then shipit")
    formica(config, "inbox")
    formica(config, "go", str(number))
    follower.until("waiting_operator", with_change=True)
    formica(config, "inbox")
    formica(config, "shipit", str(number))
    plan = follower.until("done")
    say("formica", f"pull request {plan['pr_url']}")
    show_diff(remote, plan)

    say("maintainer", "merging the pull request, as a person would")
    merge(folder, remote, plan)
    wait_for("the issue resolved", lambda: server.get(f"/issues/{number}")["status"] == "resolved")

    seen = reporter(url, "get_issue_status", issue_number=number, guest_access_token=token)
    say("reporter", f"get_issue_status says {seen['status']}: {seen['resolution']['summary']}")
    worked = reproduce_again(folder, remote)
    say("reporter", f"ran the steps again on the fixed build: mean([]) gives {worked}")
    reporter(
        url,
        "verify_resolution",
        issue_number=number,
        guest_access_token=token,
        worked=worked == "0.0",
        reporter_git_sha=seen["resolution"]["fixed_in_sha"],
    )
    final = reporter(url, "get_issue_status", issue_number=number, guest_access_token=token)
    show_thread(final)
    return read_back(server, remote, number, final)


def show_diff(remote: Path, plan: dict[str, Any]) -> None:
    for line in git("--git-dir", str(remote), "diff", plan["base_sha"], plan["head_sha"]).splitlines():
        say("", f"  {line}")


def merge(folder: Path, remote: Path, plan: dict[str, Any]) -> None:
    clone = folder / "maintainer"
    git("clone", "-q", str(remote), str(clone))
    git("merge", "-q", "--no-ff", "-m", f"Merge {plan['branch']}", f"origin/{plan['branch']}", cwd=clone)
    git("push", "-q", "origin", "main", cwd=clone)


def reproduce_again(folder: Path, remote: Path) -> str:
    installed = folder / "reporter"
    git("clone", "-q", str(remote), str(installed))
    program = "from tally.stats import mean; print(mean([]))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=installed, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def show_thread(status: dict[str, Any]) -> None:
    say("thread", f"#{status['issue_number']} {status['title']} is {status['status']}")
    for message in status["messages"]:
        for index, line in enumerate(message["body"].strip().splitlines()):
            say(message["author_role"] if index == 0 else "", f"  {line}")


def read_back(server: Server, remote: Path, number: int, final: dict[str, Any]) -> dict[str, Any]:
    """Nothing is believed: every claim is read again from where it lives."""
    plan = server.plan() or {}
    pull_request = server.get(plan["pr_url"].removeprefix(server.url))["fields"]
    branch_sha = git("--git-dir", str(remote), "rev-parse", f"refs/heads/{plan['branch']}")
    git("--git-dir", str(remote), "merge-base", "--is-ancestor", plan["head_sha"], "refs/heads/main")
    checks = {
        "the branch holds the approved commit": branch_sha == plan["head_sha"] == pull_request["head_sha"],
        "the base is the released commit": git("--git-dir", str(remote), "rev-parse", "v1.0.0")
        == plan["base_sha"],
        "the fix was proved": plan["proof"]["base_failed"] is True and plan["proof"]["head_passed"] is True,
        "there is one pull request, merged": pull_request["state"] == "merged"
        and len(server.get("/entities?type=pull_request")["items"]) == 1,
        "the reporter reads closed": final["status"] == "closed" and final["resolution"]["kind"] == "fixed",
    }
    for what, true in checks.items():
        say("read back", f"{'yes' if true else 'NO '} {what}")
    failed = [what for what, true in checks.items() if not true]
    if failed:
        raise DemoFailed(f"not true: {'; '.join(failed)}")
    return {
        "issue": number,
        "branch": plan["branch"],
        "base_sha": plan["base_sha"],
        "head_sha": plan["head_sha"],
        "pr": plan["pr_url"],
        "verification": plan["proof"],
        "final_status": final["status"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/demo",
        description="Report, plan, worktree, agent, verified fix, pull request, merge, verification: for real.",
        epilog="Example: scripts/demo --agent 'my-agent --headless'",
    )
    parser.add_argument(
        "--agent",
        metavar="COMMAND",
        help="another coding agent (waits 30 minutes); default: a scripted stand-in",
    )
    parser.add_argument("--keep", metavar="DIR", type=Path, help="work in this empty folder and keep it")
    chosen = parser.parse_args()
    agent = chosen.agent or shlex.join([sys.executable, str(HERE / "demo_agent.py")])
    result_file = ROOT / "demo-result.json"
    result_file.unlink(missing_ok=True)
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix=f"formica-demo-{secrets.token_hex(2)}-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        parser.error(f"--keep: {folder} is not empty")
    started = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        result = run(folder.resolve(), agent, scripted=chosen.agent is None)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print(f"\ndemo: interrupted; everything is kept in {folder}", file=sys.stderr)
        return INTERRUPTED
    except (DemoFailed, subprocess.CalledProcessError, OSError) as failed:
        print(f"demo: failed: {failed}\ndemo: everything is kept in {folder}", file=sys.stderr)
        return 1
    result_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if chosen.keep is None:
        shutil.rmtree(folder)
    kept = f"; logs, repositories and state are in {folder}" if chosen.keep else ""
    say("demo", f"wrote {result_file.name}{kept}")
    say("demo", f"the whole loop took {time.monotonic() - started:.0f} s")
    print("demo: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
