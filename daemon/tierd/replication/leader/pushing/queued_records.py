"""Records and watermarks that wait in a session's slot until the follower has them."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from tierd.errors import CorruptRecordError
from tierd.replication.leader.logs.leader_log import FileRecords
from tierd.replication.leader.logs.record_memory import RecordsRef, batch_at, batch_bounds


class RecordsSpan(NamedTuple):
    """Offsets of the batches of an append, and the leader epoch of the last one."""

    base_offset: int
    end_offset: int
    last_epoch: int

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return the span of ``data``.

        Raises:
            CorruptRecordError: the bytes are not whole batches of magic 2.
        """
        if not data:
            raise CorruptRecordError("records to push", 0, "no batch")
        first = last = batch_at(data, 0)
        while last.end_position < len(data):
            last = batch_at(data, last.end_position)
        return cls(first.base_offset, last.next_offset, last.leader_epoch)


class QueuedRecords:
    """Batches of one append or chunk that the follower has not acknowledged.

    Attributes:
        ref: the shared bytes.
        position: byte of ``ref`` at which the batches begin that the follower lacks.
        start_offset: log end offset that the follower is expected to have before them.
        end_offset: log end offset of a follower that has them all.
        last_epoch: leader epoch of the last batch.
        queued_at_s: monotonic time of the append.
    """

    __slots__ = ("end_offset", "last_epoch", "position", "queued_at_s", "ref", "start_offset")

    def __init__(self, ref: RecordsRef, start_offset: int, span: RecordsSpan, queued_at_s: float) -> None:
        """Describe all of ``ref``; ``span`` is that of its bytes."""
        self.ref = ref
        self.position = 0
        self.start_offset = start_offset
        self.end_offset, self.last_epoch = span.end_offset, span.last_epoch
        self.queued_at_s = queued_at_s

    @property
    def size_bytes(self) -> int:
        """Return the bytes that the follower lacks."""
        return self.ref.size_bytes - self.position

    def position_within(self, max_bytes: int) -> int:
        """Return the end of the largest run of whole batches of at most ``max_bytes``; at least one batch."""
        end = self.position
        for batch in batch_bounds(self.ref.data, self.position):
            if end > self.position and batch.end_position - self.position > max_bytes:
                break
            end = batch.end_position
        return end

    def end_offset_at(self, position: int) -> int:
        """Return the end offset of the batch that ends at byte ``position``."""
        return next(
            each.next_offset for each in batch_bounds(self.ref.data, self.position) if each.end_position == position
        )

    def skip_to(self, offset: int) -> int | None:
        """Drop the batches below ``offset``; return the epoch of the last dropped one.

        None, and nothing changes, when ``offset`` is not between two batches.
        """
        dropped = None
        for batch in batch_bounds(self.ref.data, self.position):
            if batch.next_offset > offset:
                if batch.base_offset < offset or dropped is None:
                    return None
                break
            dropped = batch
        if dropped is None:
            return None
        self.position, self.start_offset = dropped.end_position, offset
        return dropped.leader_epoch


@dataclass(slots=True)
class OpeningRange:
    """File range that a session begins with.

    Attributes:
        file: open until the follower has the range, or the session ends.
        position: byte behind what the follower has.
        chunk: what is being sent.
        reservation: memory of the chunk that is being read.
    """

    file: FileRecords
    queued_at_s: float
    position: int = 0
    chunk: QueuedRecords | None = None
    reservation: RecordsRef | None = None

    @property
    def needs_chunk(self) -> bool:
        """Return True if more is to be read."""
        return self.chunk is None and self.reservation is None and self.position < self.file.size_bytes

    @property
    def is_sent(self) -> bool:
        """Return True if the follower has the whole range."""
        return self.chunk is None and self.reservation is None and self.position >= self.file.size_bytes


class PendingOffset:
    """High watermark or log start offset on its way to a follower; only the newest value counts.

    Attributes:
        newest: of the leader; -1 for none.
        confirmed: largest value that the follower has acknowledged in this session.
        since_s: monotonic time since which the follower lacks a value.
    """

    __slots__ = ("confirmed", "newest", "since_s")

    def __init__(self) -> None:
        """Begin without a value."""
        self.newest = -1
        self.confirmed = -1
        self.since_s = 0.0

    def raise_to(self, offset: int, now_s: float) -> bool:
        """Take a new value; return False if it is not above the last one."""
        if offset <= self.newest:
            return False
        if self.newest <= self.confirmed:
            self.since_s = now_s
        self.newest = offset
        return True

    def to_send(self, log_end_offset: int) -> int:
        """Return the value for a follower that then has ``log_end_offset``; -1 if it would learn nothing.

        A follower takes no value above its log end offset. It gets the rest with the records.
        """
        offset = min(self.newest, log_end_offset)
        return offset if offset > self.confirmed else -1

    def confirm(self, offset: int, now_s: float) -> None:
        """Take note of a value that the follower has."""
        if offset > self.confirmed:
            self.confirmed, self.since_s = offset, now_s
