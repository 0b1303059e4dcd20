"""The `command` adapter: any program as an agent."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from formica.adapters.agents.command import CommandAgent
from formica.ports import AgentTask, CommandResult, Workspace

PATH = os.environ["PATH"]
AGENT = """\
import os, pathlib, sys
prompt = os.environ["FORMICA_PROMPT_FILE"]
pathlib.Path("seen").write_text(pathlib.Path(prompt).read_text())
pathlib.Path("where").write_text(os.getcwd() + " " + prompt)
print(sys.stdin.read() == "")
"""


async def go_on() -> None:
    return None


def workspace(root: Path) -> Workspace:
    (root / "tree").mkdir()
    return Workspace(
        issue_number=7, root=root, tree=root / "tree", branch="formica/issue-7", base_sha="1" * 40
    )


async def test_the_program_finds_its_prompt_outside_the_tree(tmp_path: Path) -> None:
    """It runs in the worktree with stdin closed, and the private prompt file lies elsewhere."""
    item = workspace(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    agent = CommandAgent([sys.executable, str(tmp_path / "agent.py")], path=PATH)
    task = AgentTask(item, prompt="fix the thing – now", timeout_seconds=30, stall_seconds=30)
    for _ in range(2):
        result = await agent.run(task, check=go_on)
        assert (result.exit_code, result.output_tail) == (0, "True\n")
    assert (item.tree / "seen").read_text() == "fix the thing – now"
    where, prompt = (item.tree / "where").read_text().split(" ")
    assert Path(where) == item.tree
    assert not Path(prompt).is_relative_to(item.tree)
    assert stat.S_IMODE((tmp_path / "run" / "prompt.md").stat().st_mode) == 0o600


async def test_a_relative_program_is_never_one_of_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`./agent` means the daemon's folder; an agent cannot plant itself a successor."""
    item = workspace(tmp_path)
    planted = item.tree / "agent"
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    mine = tmp_path / "agent"
    mine.write_text("#!/bin/sh\necho mine\n")
    mine.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    task = AgentTask(item, prompt="p", timeout_seconds=30, stall_seconds=30)
    result = await CommandAgent(["./agent"], path=PATH).run(task, check=go_on)
    assert result.output_tail == "mine\n"


@pytest.mark.parametrize(
    ("reason", "code", "changed", "verdict", "says"),
    [
        ("exited", 0, True, "success", "changed the tree"),
        ("exited", 0, False, "no_change", "without changing"),
        ("exited", 1, True, "failed", "exit code 1"),
        ("exited", 1, False, "failed", "exit code 1"),
        ("exited", -9, True, "failed", "signal 9"),
        ("timeout", None, True, "timeout", "600 s"),
        ("stalled", None, True, "stalled", "printed nothing"),
        ("stopped", None, True, "failed", "stopped"),
        ("unstartable", None, False, "failed", "no such file"),
    ],
)
def test_no_proof_of_success_is_not_success(
    reason: str, code: int | None, changed: bool, verdict: str, says: str
) -> None:
    """The verdict is a table of reason, exit code and change; its sentence carries the last line."""
    tail = "first\nno such file\x1b[0m\n\n"
    result = CommandResult(
        exit_code=code,
        reason=reason,  # type: ignore[arg-type]  # a parameter of the table above
        seconds=600.4,
        output_tail=tail,
        log_path=Path("/log"),
        log_hash="",
    )
    answer = CommandAgent(["agent"], path=PATH).verdict(result, changed=changed)
    assert answer.verdict == verdict
    assert says in answer.reason
    assert answer.reason.isprintable()
    assert verdict == "success" or "no such file" in answer.reason
