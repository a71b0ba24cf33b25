"""FrameMemory: bytes of the large frames that peers send, in all connections of a port together."""

from collections import deque
from collections.abc import Callable
from typing import Final

UNCOUNTED_BYTES: Final = 64 << 10
"""Frames of this size or less take no memory of the bound: a connection has such a buffer anyway."""


class FrameMemory:
    """Bound of one port. Connections that find no memory wait in line and read nothing meanwhile.

    A waiting connection never holds memory that another waits for longer than the deadlines of its own request.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Have ``limit_bytes``; one larger frame is admitted if no other is there."""
        self._limit_bytes = limit_bytes
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.used_bytes = 0

    @property
    def waiting(self) -> int:
        """Return the number of connections that wait."""
        return len(self._waiting)

    def take(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        """Take memory for a frame, and return True; or wait for it, until ``granted`` is called."""
        if size_bytes <= UNCOUNTED_BYTES:
            return True
        if self._waiting or not self._fits(size_bytes):
            self._waiting.append((size_bytes, granted))
            return False
        self.used_bytes += size_bytes
        return True

    def abandon(self, granted: Callable[[], None]) -> None:
        """Wait no more."""
        self._waiting = deque(entry for entry in self._waiting if entry[1] != granted)
        self._grant()

    def give_back(self, size_bytes: int) -> None:
        """Give back the memory of a frame."""
        if size_bytes <= UNCOUNTED_BYTES:
            return
        self.used_bytes -= size_bytes
        assert self.used_bytes >= 0, "memory was given back twice"
        self._grant()

    def _grant(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size_bytes, granted = self._waiting.popleft()
            self.used_bytes += size_bytes
            granted()

    def _fits(self, size_bytes: int) -> bool:
        return not self.used_bytes or self.used_bytes + size_bytes <= self._limit_bytes
