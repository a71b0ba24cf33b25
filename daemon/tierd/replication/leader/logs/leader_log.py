"""The log of a led partition, as push replication reads it: a log that tierd owns, or a broker's log in tail mode."""

from typing import Protocol

from tierd.model import Lineage, TopicIdPartition


class FileRecords(Protocol):
    """Fixed byte range of open segment files with whole batches. It stays readable when the files are deleted.

    Attributes:
        first_offset: first offset of the range; the first batch may begin above it, after a compaction.
        next_offset: exclusive end of the range.
        size_bytes: 0 for an empty range.
    """

    first_offset: int
    next_offset: int
    size_bytes: int

    async def read(self, position: int, max_bytes: int) -> bytes:
        """Return the whole batches from byte ``position`` of the range on: one, or as many as fit ``max_bytes``.

        Raises:
            LogError: the range cannot be read any more.
        """

    def close(self) -> None:
        """Release the files."""


class LeaderLogListener(Protocol):
    """Receiver of the changes of a leader's log, in log order, on the event loop. No method may raise or block."""

    def on_append(self, append_offset: int, records: bytes, next_offset: int) -> None:
        """Take note of whole batches that the log has now.

        Args:
            append_offset: log end offset before the append.
            records: the batches as they are in the log.
            next_offset: log end offset after the append.
        """

    def on_high_watermark(self, high_watermark: int) -> None:
        """Take note of a higher high watermark; it follows the append that made it possible."""

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Take note of a higher log start offset."""

    def on_truncated(self, log_end_offset: int) -> None:
        """Take note that the log was cut back to ``log_end_offset``, or that records below it changed."""


class LeaderLog(Protocol):
    """Log of a led partition. The properties belong together: they change on the event loop only, between awaits."""

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition."""

    @property
    def leader_epoch(self) -> int:
        """Return the epoch of the present leadership; the lineage may end with a lower one before the first append."""

    @property
    def log_start_offset(self) -> int:
        """Return the first offset of the log."""

    @property
    def log_end_offset(self) -> int:
        """Return the offset of the next record."""

    @property
    def high_watermark(self) -> int:
        """Return the exclusive end of what consumers may read, or a lower bound of it."""

    @property
    def lineage(self) -> Lineage:
        """Return the leader epochs of the records."""

    def listen(self, listener: LeaderLogListener | None) -> None:
        """Report changes to ``listener`` from now on; None ends it. A log has at most one listener."""

    def file_records(self, from_offset: int, to_offset: int) -> FileRecords | None:
        """Return the records of ``[from_offset, to_offset)`` from open files, without blocking.

        None when the log has no open file of the range, or when ``from_offset`` lies inside a batch.
        """

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that holds or follows ``offset`` on: one, or as many as fit ``max_bytes``.

        Empty at the log end.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start or above the log end.
            LogError: the log cannot be read.
        """
