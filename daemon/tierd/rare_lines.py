"""RareLines: log lines about what others cause again and again, as often as a person wants to read them."""

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from tierd.clock import Clock

REPEAT_AFTER_S: Final = 60.0
MOST_LINES: Final = 1000
"""Lines of all kinds within ``REPEAT_AFTER_S``: an outage of the store concerns all partitions at once."""


class RareLines:
    """Permission to write lines: one of a kind within ``REPEAT_AFTER_S``, and ``MOST_LINES`` of all kinds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written_s: OrderedDict[Hashable, float] = OrderedDict()  # the longest ago first

    def is_due(self, kind: Hashable) -> bool:
        """Return True if a line of this kind is to be written now, and count it as written."""
        now_s = self._clock.monotonic_s()
        while self._written_s and now_s - next(iter(self._written_s.values())) >= REPEAT_AFTER_S:
            self._written_s.popitem(last=False)
        if kind in self._written_s or len(self._written_s) >= MOST_LINES:
            return False
        self._written_s[kind] = now_s
        return True


class LinesPerSecond:
    """Permission to write a number of lines in each second; a line tells how many were left out before it."""

    def __init__(self, clock: Clock, *, most: int) -> None:
        self._clock = clock
        self._most = most
        self._since_s = -math.inf
        self._written = 0
        self._silent = 0

    def take(self) -> int | None:
        """Return the number of lines that were left out since the last one; None if this one is left out, too."""
        now_s = self._clock.monotonic_s()
        if now_s - self._since_s >= 1.0:
            self._since_s, self._written = now_s, 0
        if self._written >= self._most:
            self._silent += 1
            return None
        self._written += 1
        silent, self._silent = self._silent, 0
        return silent
