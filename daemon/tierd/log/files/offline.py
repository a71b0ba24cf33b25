"""OfflineFlag: the mark of a log dir that failed, shared by every log in it (Kafka: LogDirFailureChannel)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from tierd.errors import LogDirOfflineError
from tierd.log.log_errors import CheckpointError

StorageFailure = OSError | CheckpointError
"""What takes a log dir offline: the disk's refusal, and a text file on it that cannot be understood."""


class OfflineFlag:
    """Flag that the first failing call on a log dir raises for good: only a restart may trust the disk again.

    Any thread may raise and read the flag.
    """

    def __init__(self, log_dir: Path, *, on_offline: Callable[[Path, StorageFailure], None] | None = None) -> None:
        self.log_dir = log_dir
        self._on_offline = on_offline
        self._cause: StorageFailure | None = None
        self._lock = Lock()

    @property
    def is_offline(self) -> bool:
        """Return True if a disk call failed since the start."""
        return self._cause is not None

    @property
    def cause(self) -> StorageFailure | None:
        """Return the first failure."""
        return self._cause

    def mark(self, error: StorageFailure) -> LogDirOfflineError:
        """Take the log dir offline; return the error to raise. The first failure stays the cause."""
        with self._lock:
            is_first = self._cause is None
            if is_first:
                self._cause = error
        if is_first and self._on_offline is not None:
            self._on_offline(self.log_dir, error)
        return self._error(error)

    def raise_if_offline(self) -> None:
        """Do nothing as long as the log dir is online.

        Raises:
            LogDirOfflineError: a call failed before.
        """
        if self._cause is not None:
            raise self._error(self._cause) from self._cause

    @contextmanager
    def storage(self) -> Iterator[None]:
        """Guard work on the disk: a failure takes the log dir offline.

        Raises:
            LogDirOfflineError: the log dir is offline, before the work or by it.
        """
        self.raise_if_offline()
        try:
            yield
        except (OSError, CheckpointError) as error:
            raise self.mark(error) from error

    def _error(self, cause: StorageFailure) -> LogDirOfflineError:
        return LogDirOfflineError(
            f"log dir {self.log_dir} is offline: {cause}", remedy="repair the disk, then start again"
        )
