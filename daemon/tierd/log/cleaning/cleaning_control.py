"""CleaningControl: abort of a round by other threads, and limit of the rate of a round (``Throttle``)."""

from threading import Event, Lock
from typing import Final

from tierd.clock import Clock
from tierd.log.log_errors import CleaningAbortedError, CleaningNoSpaceError

_BURST_S: Final = 0.3


class Throttle:
    """Counter of the bytes that were read and written, which returns the pause after each piece.

    Kafka: log.cleaner.io.max.bytes.per.second.

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


class CleaningControl:
    """Control of one round: the round calls ``pause`` after each piece, and any thread may abort the round."""

    def __init__(self, name: str, *, clock: Clock, throttle: Throttle | None = None) -> None:
        """``name``: of the partition, for errors."""
        self._name = name
        self._clock = clock
        self._throttle = throttle or Throttle(None)
        self._aborted = Event()

    def abort(self) -> None:
        """End the round at its next piece, or its pause; any thread."""
        self._aborted.set()

    def passed(self, size_bytes: int) -> None:
        """Count bytes, and pause if they came too fast.

        Raises:
            CleaningAbortedError: the round is to end.
        """
        pause_s = self._throttle.pause_s(size_bytes, now_s=self._clock.monotonic_s())
        if self._aborted.is_set() or (pause_s and self._aborted.wait(pause_s)):
            raise self.aborted()

    def aborted(self) -> CleaningAbortedError:
        """Return the error that ends a round."""
        return CleaningAbortedError(f"{self._name}: the cleaning was aborted", remedy="it begins again by itself")

    def no_space(self, error: OSError) -> CleaningNoSpaceError:
        """Return the error that ends a round whose output finds no room."""
        return CleaningNoSpaceError(
            f"{self._name}: the disk has no room for its cleaned segments: {error}",
            remedy="free space, or raise the quota; the log is as it was, and is tried again every few minutes",
        )
