"""Throttle: the pauses with which the cleaner keeps to a rate (Kafka: log.cleaner.io.max.bytes.per.second)."""

from threading import Lock
from typing import Final

_BURST_S: Final = 0.3


class Throttle:
    """Counter of the bytes that were read and written, which returns the pause after each piece.

    Any number of threads may call it: the cleaners of all log dirs share one rate.
    """

    def __init__(self, bytes_per_s: int | None) -> None:
        """Begin; None is no limit."""
        self._bytes_per_s = bytes_per_s
        self._lock = Lock()
        self._free_at_s: float | None = None  # when what was counted has taken its time

    def pause_s(self, size_bytes: int, *, now_s: float) -> float:
        """Count bytes; return how long to wait, 0 as long as the work is within a short burst of the rate."""
        if self._bytes_per_s is None:
            return 0.0
        with self._lock:
            begun_s = now_s if self._free_at_s is None else max(self._free_at_s, now_s)
            self._free_at_s = begun_s + size_bytes / self._bytes_per_s
            ahead_s = self._free_at_s - now_s
        return ahead_s if ahead_s > _BURST_S else 0.0
