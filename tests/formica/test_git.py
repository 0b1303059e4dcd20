"""The hardened runner."""

from __future__ import annotations

import stat
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from formica.adapters.git import Git, Remote, redact
from formica.errors import NeedsOperator, Refused, Retryable
from tests.fakes.repositories import PATH, git


async def test_nothing_of_our_environment_reaches_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted GIT_DIR, ssh command or secret of the daemon is not in git's environment."""
    monkeypatch.setenv("GIT_DIR", "/somewhere")
    monkeypatch.setenv("GIT_SSH_COMMAND", "touch /tmp/never")
    monkeypatch.setenv("FORMICA_FORGE__TOKEN", "planted-secret")
    output = await Git(tmp_path, path=PATH).run("-c", "alias.show-env=!env", "show-env", doing="print it")
    assert "planted-secret" not in output.text
    assert "/somewhere" not in output.text
    assert "touch" not in output.text
    assert "GIT_TERMINAL_PROMPT=0" in output.text
    assert "GIT_CONFIG_NOSYSTEM=1" in output.text


async def test_configuration_is_ours_and_private(tmp_path: Path) -> None:
    """The configuration file lies in the state folder and only we can read it."""
    runner = Git(tmp_path, path=PATH)
    await runner.run("version", doing="say its version")
    assert stat.S_IMODE(runner.config_path.stat().st_mode) == 0o600
    assert runner.config_path.is_relative_to(tmp_path)


async def test_repository_settings_do_not_beat_ours(tmp_path: Path) -> None:
    """Hooks, fsmonitor and credential helpers of a repository's own configuration are overridden."""
    git(tmp_path, "init", "-q", "--bare", "r.git")
    for key in ("core.hooksPath", "core.fsmonitor", "credential.helper"):
        git(tmp_path / "r.git", "config", key, "/evil")
    runner = Git(tmp_path / "state", path=PATH)
    for key in ("core.hooksPath", "core.fsmonitor", "credential.helper"):
        value = await runner.run("config", "--get", key, git_dir=tmp_path / "r.git", doing="read a setting")
        assert value.text != "/evil"


async def test_a_call_has_a_time_limit(tmp_path: Path) -> None:
    """A git that hangs is ended with everything it started, and the act can be tried again later."""
    with pytest.raises(Retryable, match="wait for ever within"):
        await Git(tmp_path, path=PATH).run(
            *("-c", "alias.hang=!sleep 60 & sleep 60", "hang"), doing="wait for ever", timeout_seconds=0.2
        )


async def test_output_is_bounded(tmp_path: Path) -> None:
    """A git that prints without end is ended."""
    with pytest.raises(NeedsOperator, match="more to say"):
        await Git(tmp_path, path=PATH).run(
            *("-c", "alias.spam=!yes", "spam"), doing="stop", output_limit=100_000, timeout_seconds=20
        )


async def test_git_missing_is_said(tmp_path: Path) -> None:
    """Without git on PATH the maintainer is told so."""
    with pytest.raises(NeedsOperator, match="not installed"):
        await Git(tmp_path, path="/nonexistent").run("version", doing="say its version")


async def test_a_message_never_holds_a_credential(tmp_path: Path) -> None:
    """What git complains about is passed on without the user part of a URL."""
    assert redact("fatal: https://x:tok@h/r\n\x1b[1m") == "fatal: https://h/r  [1m"
    with pytest.raises(Retryable) as caught:
        await Git(tmp_path, path=PATH).run(
            *("ls-remote", "https://user:hunter2@127.0.0.1:1/r"),
            remote=Remote.parse("https://user:hunter2@127.0.0.1:1/r", relative_to=tmp_path),
            doing="reach it",
            failure=Retryable,
        )
    assert "hunter2" not in str(caught.value)


async def test_a_credential_reaches_the_helper_alone(tmp_path: Path) -> None:
    """A URL's credential is not in the address we pass, and git gets it from a pipe."""
    remote = Remote.parse("https://user:hunter2@example.com/r.git", relative_to=tmp_path)
    assert remote.address == "https://example.com/r.git"
    assert "hunter2" not in repr(remote)
    filled = await Git(tmp_path, path=PATH).run(
        *("credential", "fill"), remote=remote, stdin=b"url=https://example.com/r.git\n\n", doing="ask"
    )
    assert "username=user\npassword=hunter2" in filled.text


@pytest.mark.parametrize("address", ["ext::sh -c touch% x", "-u./x", "", "fd::7", "foo://h/r", "a\nb"])
def test_hostile_addresses_are_refused(address: str, tmp_path: Path) -> None:
    """An address that is an option, a remote helper or an unknown protocol is refused."""
    with pytest.raises(Refused):
        Remote.parse(address, relative_to=tmp_path)


def test_usual_addresses_are_understood(tmp_path: Path) -> None:
    """Paths, URLs and the short form of ssh mean what they mean to `git clone`."""
    assert Remote.parse("../o.git", relative_to=tmp_path / "a").address == str(tmp_path / "o.git")
    assert Remote.parse("file:///srv/o.git", relative_to=tmp_path).path == Path("/srv/o.git")
    assert Remote.parse("git@github.com:a/b.git", relative_to=tmp_path).protocol == "ssh"
    assert Remote.parse("https://github.com/a/b", relative_to=tmp_path).protocol == "https"


@pytest.mark.parametrize("text", ["a\0b", "lone \ud800 surrogate"])
async def test_what_no_argument_can_hold_is_said(tmp_path: Path, text: str) -> None:
    """A text that cannot be an argument fails like any other wrong argument, before anything is started."""
    with pytest.raises(NeedsOperator, match="look at it: an argument holds"):
        await Git(tmp_path, path=PATH).run("version", text, doing="look at it", failure=NeedsOperator)


async def test_a_call_cut_short_leaves_no_process(tmp_path: Path) -> None:
    """Cancelled at any moment, also while it is being started, a call leaves nothing running."""
    mark = f"formica-test-{tmp_path.name}-{id(tmp_path)}"
    runner = Git(tmp_path, path=PATH)
    await runner.run("version", doing="say its version")
    for steps in range(12):
        async with anyio.create_task_group() as group:
            group.start_soon(
                partial(runner.run, "-c", f"alias.hang=!exec sleep 60 # {mark}", "hang", doing="wait")
            )
            for _ in range(steps):
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert not await anyio.to_thread.run_sync(
        lambda: [p for p in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in read_bytes(p)]
    )


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
