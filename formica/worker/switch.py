"""The kill switch: any ``daemon_config`` with ``active: false`` stops all processing.

`confirm` asks the server before every effect. While agents run, `watch` asks every few seconds, so that a
running agent is stopped within ten seconds of the write; an unreachable server stops it after a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import anyio

from formica.errors import FormicaError, Retryable, Stopped
from formica.ports import Issues

WATCH_SECONDS = 2.0
UNREACHABLE_SECONDS = 60.0


class Switch:
    """``monotonic`` gives local seconds; only differences are used."""

    def __init__(
        self, issues: Issues, monotonic: Callable[[], float], *, watch_seconds: float = WATCH_SECONDS
    ) -> None:
        self._issues = issues
        self._watch_seconds = watch_seconds
        self._monotonic = monotonic
        self._reached_at = monotonic()
        self._draining_since: float | None = None
        self._drain_seconds = 0.0
        self.paused_by: str | None = None
        """The key of the config entity that says stop, or None."""

    async def ensure(self) -> None:
        """Make the default switch, on, if there is none yet."""
        await self._issues.create_entity("daemon_config", "default", {"active": True})

    async def confirm(self) -> None:
        """Ask the server now.

        Raises:
            Stopped: switched off, or this daemon drains.
            Retryable: the server did not answer, so nothing may be done.
        """
        await self._read()
        if self.paused_by is not None:
            raise Stopped(f"stopped by daemon_config {self.paused_by!r}: active is false")
        if self._draining_since is not None:
            raise Stopped("this daemon is stopping")

    async def settle(self) -> None:
        """Ask the server now whether what was just done may be written down: a drain's grace allows that.

        Raises:
            Stopped: switched off, or the grace is over.
            Retryable: the server did not answer.
        """
        await self._read()
        await self.running()

    async def running(self) -> None:
        """Whether a run in hand may go on, from what `watch` saw; no request is made.

        Raises:
            Stopped: switched off, unreachable for a minute, or the drain's grace is over.
        """
        if self.paused_by is not None:
            raise Stopped(f"stopped by daemon_config {self.paused_by!r}: active is false")
        if self._monotonic() - self._reached_at > UNREACHABLE_SECONDS:
            raise Stopped("the pool server has been unreachable for a minute")
        if (
            self._draining_since is not None
            and self._monotonic() - self._draining_since > self._drain_seconds
        ):
            raise Stopped("this daemon is stopping and the grace is over")

    def drain(self, seconds: float) -> None:
        """No new effects from here on; what runs has ``seconds`` to end."""
        self._draining_since = self._monotonic()
        self._drain_seconds = seconds

    @property
    def draining(self) -> bool:
        return self._draining_since is not None

    async def refresh(self) -> None:
        """Read the switch without drawing a conclusion; a server that does not answer changes nothing."""
        with suppress(FormicaError):
            await self._read()

    async def watch(self, busy: Callable[[], bool]) -> None:
        """Keep the switch fresh while anything runs."""
        while True:
            await anyio.sleep(self._watch_seconds)
            if busy():
                await self.refresh()
            else:
                self._reached_at = self._monotonic()

    async def _read(self) -> None:
        with anyio.move_on_after(10) as limit:
            configs = await self._issues.entities("daemon_config")
        if limit.cancelled_caught:
            raise Retryable("the pool server did not answer within 10 s")
        self._reached_at = self._monotonic()
        off = [config for config in configs if config["fields"].get("active") is not True]
        self.paused_by = (off[0]["key"] or off[0]["entity_id"]) if off else None
