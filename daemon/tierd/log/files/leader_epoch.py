"""LeaderEpochFileCache: the lineage of a log, mirrored in its ``leader-epoch-checkpoint`` (log-format 3.4)."""

from pathlib import Path

import structlog

from tierd.log.files.checkpoints import LEADER_EPOCH_CHECKPOINT, ensure_checkpoint, load_lineage, write_lineage
from tierd.log.files.directory import partition_fields
from tierd.log.files.disk import Disk
from tierd.model import Lineage

log = structlog.get_logger()


class LeaderEpochFileCache:
    """Start offsets of a log's leader epochs, with the file that stores them (Kafka: LeaderEpochFileCache).

    One writer; the calls that write block and raise ``OSError``. A new epoch is on stable storage before ``lineage``
    has it. A truncation changes ``lineage`` at once and the file in ``write_pending``: a load repairs a file that still
    has the entries.

    Attributes:
        lineage: replaced as a whole, so that any thread may keep the value that it read.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        """Read the file in ``directory``; make an empty file if it is missing.

        Raises:
            CheckpointError: it cannot be understood.
            OSError: it cannot be read or made.
        """
        self._disk = disk
        self._path: Path | None = directory / LEADER_EPOCH_CHECKPOINT
        self._is_pending = False
        ensure_checkpoint(disk, self._path)
        self.lineage = load_lineage(disk, self._path)

    @property
    def is_empty(self) -> bool:
        """Return True if no epoch is known."""
        return not self.lineage.entries

    @property
    def is_pending(self) -> bool:
        """Return True if the file has yet to be written."""
        return self._is_pending

    @property
    def latest_epoch(self) -> int | None:
        """Return the epoch that is being written; None without one."""
        latest = self.lineage.latest
        return latest.epoch if latest else None

    def assign(self, *, epoch: int, start_offset: int) -> bool:
        """Add ``epoch`` at ``start_offset``, durably; return False when the cache had the entry already.

        Raises:
            ValueError: a negative epoch or offset.
        """
        lineage = self.lineage.assign(epoch=epoch, start_offset=start_offset)
        if lineage is self.lineage:
            return False
        self._write(lineage)
        self.lineage = lineage
        return True

    def truncate_from_end(self, offset: int) -> None:
        """Drop the epochs that begin at or after ``offset``; a negative offset drops nothing."""
        self._replace(self.lineage.truncated_from_end(offset))

    def truncate_from_start(self, offset: int) -> None:
        """Remove the entries below ``offset``; the epoch that covers it begins there afterwards."""
        self._replace(self.lineage.truncated_from_start(offset))

    def clear(self) -> None:
        """Forget every epoch, durably."""
        self._write(Lineage())
        self.lineage = Lineage()

    def write_pending(self) -> None:
        """Write the changes by truncations; a directory that is gone meanwhile is no error."""
        if not self._is_pending:
            return
        try:
            self._write(self.lineage)
        except FileNotFoundError:
            if self._path is not None and self._disk.status(self._path.parent) is not None:
                raise
            where = {} if self._path is None else partition_fields(self._path.parent)
            log.debug("leader_epochs_not_written", **where, file=str(self._path), problem="its directory is gone")

    def detach(self) -> None:
        """Write no more: the directory was renamed to be deleted or set aside."""
        self._path = None
        self._is_pending = False

    def _replace(self, lineage: Lineage) -> None:
        if lineage.entries != self.lineage.entries:
            self.lineage = lineage
            self._is_pending = self._path is not None

    def _write(self, lineage: Lineage) -> None:
        if self._path is not None:
            write_lineage(self._disk, self._path, lineage)
        self._is_pending = False
