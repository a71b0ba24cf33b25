"""PendingDeletions: files renamed to ``*.deleted``, until it is time to unlink them (file.delete.delay.ms)."""

from collections.abc import Iterable
from pathlib import Path

from tierd.log.files.disk import Disk, unlink_if_there
from tierd.log.segments.leftovers import DELETED


class PendingDeletions:
    """A queue of names in one partition directory. It lives in memory: what a crash leaves, the next load unlinks."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._due: list[tuple[int, tuple[str, ...]]] = []

    def __len__(self) -> int:
        return sum(len(names) for _, names in self._due)

    @property
    def next_due_ms(self) -> int | None:
        """When the next of them is due; None when nothing waits."""
        return min((due_ms for due_ms, _ in self._due), default=None)

    def add(self, names: Iterable[str], *, due_ms: int) -> None:
        """Unlink ``names`` once ``due_ms`` has come.

        Raises:
            ValueError: a name that is not marked as deleted, and may belong to a new file by then.
        """
        marked = tuple(names)
        for name in marked:
            if not name.endswith(DELETED):
                raise ValueError(f"{name} does not end with {DELETED}")
        self._due.append((due_ms, marked))

    def run_due(self, directory: Path, *, now_ms: int) -> int:
        """Unlink what is due; return how many files that were. A name that is gone already is no error.

        Raises:
            OSError: the disk failed; what was not tried yet stays in the queue.
        """
        removed = 0
        waiting = [entry for entry in self._due if entry[0] > now_ms]
        due = [entry for entry in self._due if entry[0] <= now_ms]
        while due:
            self._due = due + waiting
            removed += sum(unlink_if_there(self._disk, directory / name) for name in due[0][1])
            due.pop(0)
        self._due = waiting
        return removed

    def run_all(self, directory: Path) -> int:
        """Unlink everything at once, as when the directory itself goes; return how many files that were."""
        return self.run_due(directory, now_ms=max((due_ms for due_ms, _ in self._due), default=0))
