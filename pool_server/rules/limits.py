"""Rate limits as sliding windows, exact to the call. Pure: the caller passes the time in."""

from __future__ import annotations

import math
from collections import deque


class SlidingWindow:
    """At most ``limit`` admissions per ``seconds`` for each subject; a limit of 0 admits everything.

    A refused call does not count. Subjects without a call in the window are forgotten.
    """

    def __init__(self, limit: int, seconds: float = 60.0) -> None:
        self._limit = limit
        self._seconds = seconds
        self._admitted: dict[str, deque[float]] = {}
        self._swept = -math.inf

    def admit(self, subject: str, now: float) -> int | None:
        """None if admitted, else whole seconds (at least 1) until the next call would be.

        ``now``: seconds on any clock that does not run backwards.
        """
        if self._limit <= 0:
            return None
        self._sweep(now)
        admitted = self._admitted.setdefault(subject, deque())
        while admitted and admitted[0] <= now - self._seconds:
            admitted.popleft()
        if len(admitted) < self._limit:
            admitted.append(now)
            return None
        # In this order the wait cannot round up past the window.
        return max(1, math.ceil(admitted[0] - now + self._seconds))

    def _sweep(self, now: float) -> None:
        if now - self._swept < self._seconds:
            return
        self._swept = now
        idle = [name for name, seen in self._admitted.items() if not seen or seen[-1] <= now - self._seconds]
        for name in idle:
            del self._admitted[name]
