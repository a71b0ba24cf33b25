"""LoadProgress: the rest of a start (log-format 12: remainingLogsToRecover, remainingSegmentsToRecover)."""

from dataclasses import dataclass
from pathlib import Path
from threading import Lock, current_thread


@dataclass(frozen=True, slots=True)
class RemainingLoad:
    """Logs and segments that are left to load; both mappings are empty when no load is going on.

    Attributes:
        logs: number of logs, by log dir.
        segments: number of segments to recover in a thread's present log, by (log dir, thread name).
    """

    logs: dict[Path, int]
    segments: dict[tuple[Path, str], int]


class LoadProgress:
    """Counter of the logs and segments that are left while a manager starts; any thread may count and read."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._logs: dict[Path, int] = {}
        self._segments: dict[tuple[Path, str], int] = {}

    @property
    def remaining(self) -> RemainingLoad:
        """Return the logs and segments that are left now."""
        with self._lock:
            return RemainingLoad(dict(self._logs), dict(self._segments))

    def begin(self, log_dir: Path, *, logs: int) -> None:
        """Note that a log dir with ``logs`` logs is going to be loaded."""
        with self._lock:
            self._logs[log_dir] = logs

    def log_done(self, log_dir: Path) -> int:
        """Note that one log of the log dir was loaded or failed; return the number of logs that are left."""
        with self._lock:
            self._logs[log_dir] -= 1
            return self._logs[log_dir]

    def segments_left(self, log_dir: Path, count: int) -> None:
        """Note the number of segments that are left to recover in the log that this thread loads."""
        with self._lock:
            self._segments[log_dir, current_thread().name] = count

    def end(self) -> None:
        """Forget all logs and segments: the load is over."""
        with self._lock:
            self._logs.clear()
            self._segments.clear()
