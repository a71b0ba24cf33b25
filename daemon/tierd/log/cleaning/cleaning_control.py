"""CleaningControl: abort of a round by other threads, and limit of the rate of a round."""

from threading import Event

from tierd.clock import Clock
from tierd.log.cleaning.throttle import Throttle
from tierd.log.log_errors import CleaningAbortedError, CleaningNoSpaceError


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
