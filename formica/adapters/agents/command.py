"""Any program as a coding agent: it finds its task in the file `FORMICA_PROMPT_FILE` and edits the tree.

Implements `AgentSession`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import anyio

from formica.adapters.items import ItemFolders
from formica.adapters.plain_files import fresh_file
from formica.adapters.sandbox import UNCONFINED, Sandbox, agent_environment, object_folders, run_command
from formica.errors import NeedsOperator
from formica.ports import AgentResult, AgentTask, CommandResult, StopCheck, Workspace

__all__ = ["CommandAgent"]

_LINE_LIMIT = 200
_LIMITS = {"memory": "memory", "processes": "processes", "disk": "disk space"}


class CommandAgent:
    """``argv`` is run as it is, without a shell; ``path`` is its PATH. A relative path to the program means
    a file of the folder the daemon was started in, never one of the tree. In ``sandbox`` it sees the tree, its
    repository and, to read, the objects that repository borrows."""

    name = "command"

    def __init__(self, argv: Sequence[str], *, path: str, sandbox: Sandbox = UNCONFINED) -> None:
        self._argv = list(argv)
        self._path = path
        self._sandbox = sandbox

    async def run(self, task: AgentTask, *, check: StopCheck) -> CommandResult:
        """One session in the item's tree; everything it started is dead afterwards."""
        run = task.workspace.root / "run"
        prompt = run / "prompt.md"
        try:
            await anyio.to_thread.run_sync(_write_private, prompt, task.prompt)
        except OSError as error:
            raise NeedsOperator(
                f"the agent's task cannot be written to {prompt}: {error.strerror}"
            ) from error
        program = await anyio.to_thread.run_sync(_outside_the_tree, self._argv[0])
        borrowed = await anyio.to_thread.run_sync(_borrowed_objects, task.workspace)
        return await run_command(
            [program, *self._argv[1:]],
            cwd=task.workspace.tree,
            env=agent_environment(self._path, run / "home", {"FORMICA_PROMPT_FILE": str(prompt)}),
            log_path=run / "agent.log",
            timeout_seconds=task.timeout_seconds,
            stall_seconds=task.stall_seconds,
            check=check,
            sandbox=self._sandbox,
            writable=[task.workspace.root / "repo.git"],
            readable=[prompt, *borrowed],
        )

    def verdict(self, result: CommandResult, *, changed: bool) -> AgentResult:
        """Exit 0 with a changed tree is success, without change ``no_change``, anything else no success."""
        said = _last_line(result.output_tail)
        after = f"; its last line was: {said}" if said else ""
        match result.reason, result.exit_code:
            case "exited", 0 if changed:
                return AgentResult("success", "The agent finished and changed the tree.", result)
            case "exited", 0:
                return AgentResult(
                    "no_change", f"The agent finished without changing anything{after}.", result
                )
            case "exited", code if code is not None and code < 0:
                return AgentResult("failed", f"The agent was ended by signal {-code}{after}.", result)
            case "exited", code:
                return AgentResult("failed", f"The agent ended with exit code {code}{after}.", result)
            case "timeout", _:
                reason = f"The agent was still at work after {result.seconds:.0f} s and was ended{after}."
                return AgentResult("timeout", reason, result)
            case "stalled", _:
                reason = (
                    f"The agent printed nothing, computed nothing and wrote nothing, and was ended{after}."
                )
                return AgentResult("stalled", reason, result)
            case "unstartable", _:
                return AgentResult("failed", f"The agent's program {said}.", result)
            case "memory" | "processes" | "disk" as limit, _:
                reason = f"The agent reached its limit of {_LIMITS[limit]} and was ended{after}."
                return AgentResult("failed", reason, result)
            case _:
                return AgentResult("failed", f"The agent was stopped before it finished{after}.", result)


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    plain = "".join(c if c.isprintable() else " " for c in lines[-1]) if lines else ""
    return plain.strip().rstrip(".")[:_LINE_LIMIT]


def _borrowed_objects(workspace: Workspace) -> list[Path]:
    """The objects of the mirror the item was made from, by our own marker: what the agent's repository says it
    borrows is the agent's to write."""
    state = workspace.root.parent.parent
    item = ItemFolders(state).read(workspace.issue_number)
    if item is None or not Path(item.marker.mirror).is_relative_to(state):
        return []
    return object_folders(Path(item.marker.mirror))


def _outside_the_tree(program: str) -> str:
    return os.path.abspath(program) if "/" in program else program  # noqa: PTH100 - must not follow a link


def _write_private(path: Path, text: str) -> None:
    if path.parent.is_symlink():
        path.parent.unlink()  # an earlier agent's work
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(fresh_file(path), "w", encoding="utf-8") as file:
        file.write(text)
