"""ServedLog: one partition as the endpoint reads it, local log and tier as one log."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tierd.log import AbortedTransaction
from tierd.model import EpochEndOffset, IsolationLevel, TimestampOffset
from tierd.open_file import OpenFile


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Bounds of a partition's log at one moment. Offsets are exclusive, but for the log start.

    Attributes:
        high_watermark: end of the records that a consumer of the broker could read, as far as this daemon knows.
        last_stable_offset: end of the decided records; at most the high watermark.
        leader_epoch: latest epoch of the log that this daemon knows; -1 for a log without epochs.
        is_end_known: False where a newer end may exist that this daemon does not know, such as on a host without a
            replica of the partition. The latest offset is then not answered, and an offset beyond the end is not out
            of range: clients would reset their positions.
        local_start_offset: records from here on are read as ``FileSlice``, so that a read of them needs no memory; None
            where any read may return ``bytes``.
    """

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    leader_epoch: int
    is_end_known: bool
    local_start_offset: int | None = None

    def end_offset(self, isolation: IsolationLevel) -> int:
        """Return the exclusive end of a read."""
        is_committed = isolation is IsolationLevel.READ_COMMITTED
        return self.last_stable_offset if is_committed else self.high_watermark


@dataclass(frozen=True, slots=True)
class FileSlice:
    """Bytes of a local segment or of a cached chunk, which a connection sends from the file.

    The file is opened when it is sent, unless it is ``opened``. If it is gone, or is another file (``inode``), nothing
    of this slice was sent, and the connection has to be closed: the client asks again.
    """

    path: Path
    inode: int
    position: int
    size_bytes: int
    opened: OpenFile | None = None


@dataclass(frozen=True, slots=True)
class LogRead:
    """Records of one read.

    Attributes:
        records: whole batches from the one that holds the wanted offset, or follows it. The last batch of a
            ``FileSlice`` of a local segment may be cut off, as in the answers of a broker. Batches of the tier are
            whole, but one of them may lie across two slices.
        bounds: of the log when it was read.
        aborted: the aborted transactions that touch the records; empty for uncommitted reads.
        throttled_ms: nothing was read, for the reads of the tier are held back so long by their quota.
        is_pending: the tier did not answer within the deadline of the read, which goes on in the background: read
            again.
        has_more: records follow these, and another read returns them: the end of a segment or ``max_bytes`` ended this
            read, not the end of the log. A client that wants more bytes does not wait for them then.
    """

    records: tuple[bytes | FileSlice, ...]
    bounds: LogBounds
    aborted: tuple[AbortedTransaction, ...] = ()
    throttled_ms: int = 0
    is_pending: bool = False
    has_more: bool = False

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes of all records."""
        return sum(len(each) if isinstance(each, bytes) else each.size_bytes for each in self.records)


class ServedLog(Protocol):
    """Log of one partition. Any number of calls may run at once; a cancelled call leaves nothing behind."""

    async def bounds(self) -> LogBounds:
        """Return the bounds of the log now.

        Raises:
            TierError: they are not known now.
        """

    async def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        at_least_one: bool,
        max_wait_s: float,
        bounds: LogBounds | None = None,
    ) -> LogRead:
        """Return records from ``offset`` on; none at the end of the log.

        Args:
            offset: between log start and end, the end included.
            max_bytes: bound on the bytes; the first batch may exceed it when ``at_least_one``.
            isolation: committed reads end at the last stable offset and name aborted transactions.
            at_least_one: return the first batch, whatever its size.
            max_wait_s: deadline of a read of the tier.
            bounds: that the caller has just asked for: the read need not look at the log again.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start, above the end, or neither local nor in the tier.
            TierError: the log, the metadata or the store cannot be read now.
        """

    async def list_offset(self, timestamp_ms: int, *, isolation: IsolationLevel) -> TimestampOffset | None:
        """Return the first record that is no older than a timestamp, or the place that an ``OffsetSpec`` names.

        Raises:
            ValueError: a negative number that is no ``OffsetSpec``.
            TierError: the log, the metadata or the store cannot be read now.
        """

    async def epoch_end(self, leader_epoch: int) -> EpochEndOffset:
        """Return the largest epoch at or below ``leader_epoch`` and its exclusive end; (-1, -1) when not known.

        Raises:
            TierError: the log or the metadata cannot be read now.
        """

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` on the event loop whenever bounds may have moved, until the returned function is called.

        While a listener is there, the bounds are kept as fresh as this daemon can; calls may come without a change.
        """
