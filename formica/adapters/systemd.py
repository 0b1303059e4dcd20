"""systemd's notification socket (sd_notify), when there is one."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

__all__ = ["notifier"]


def notifier(address: str | None) -> Callable[[str], None]:
    """A function that sends one state string, or does nothing outside systemd."""
    if not address:
        return lambda _state: None
    target = "\0" + address[1:] if address.startswith("@") else address

    def notify(state: str) -> None:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.connect(target)
            channel.send(state.encode())

    return notify
