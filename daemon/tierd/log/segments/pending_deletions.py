"""PendingDeletions: files renamed to ``*.deleted``, until their time to be unlinked (file.delete.delay.ms)."""

import sys
from collections.abc import Iterable
from heapq import heappop, heappush
from pathlib import Path

from tierd.log.files.disk import Disk, unlink_if_there
from tierd.log.records.log_config import MAX_LONG
from tierd.log.segments.leftovers import DELETED


class PendingDeletions:
    """Queue of names in one partition directory, in memory. After a crash the next load unlinks the files."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, str]] = []  # invariant: a heap

    def __len__(self) -> int:
        return len(self._due)

    @property
    def next_due_ms(self) -> int | None:
        """Return the time at which the next deletion is due; None when no deletion waits."""
        return self._due[0][0] if self._due else None

    def add(self, names: Iterable[str], *, due_ms: int) -> None:
        """Unlink ``names`` once ``due_ms`` has come.

        Raises:
            ValueError: a name that is not marked as deleted, and may belong to a new file by then.
        """
        marked = tuple(names)
        for name in marked:
            if not name.endswith(DELETED):
                raise ValueError(f"{name} does not end with {DELETED}")
        for name in marked:
            heappush(self._due, (due_ms, name))

    def run_due(self, directory: Path, *, now_ms: int, limit: int = sys.maxsize) -> int:
        """Unlink the files that are due; return their number. A name that is gone already is no error.

        Args:
            directory: where the names are.
            now_ms: wall clock.
            limit: no more names now; the rest at the next call.

        Raises:
            OSError: the disk failed; the other files stay in the queue.
        """
        removed = 0
        while limit > 0 and self._due and self._due[0][0] <= now_ms:
            removed += unlink_if_there(self._disk, directory / self._due[0][1])
            heappop(self._due)
            limit -= 1
        return removed

    def run_all(self, directory: Path) -> int:
        """Unlink everything at once, as when the directory itself goes; return how many files that were."""
        return self.run_due(directory, now_ms=MAX_LONG)
