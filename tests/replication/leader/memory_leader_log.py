"""MemoryLeaderLog: a led log in memory, whose changes reach its listener at once."""

from tests.replication.leader.push_story import HeldRange, batch, topic_partition
from tierd.errors import OffsetOutOfRangeError
from tierd.model import Lineage, TopicIdPartition
from tierd.replication.leader.logs.leader_log import LeaderLogListener
from tierd.replication.leader.logs.record_memory import batch_bounds


class MemoryLeaderLog:
    """A ``LeaderLog`` of batches in memory. All of them are in an open file, unless ``has_open_files`` is False."""

    def __init__(self, partition: TopicIdPartition | None = None, *, leader_epoch: int = 1) -> None:
        self.partition = partition or topic_partition()
        self.leader_epoch = leader_epoch
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.lineage = Lineage()
        self.batches: list[bytes] = []
        self.has_open_files = True
        self.ranges: list[HeldRange] = []
        self.listener: LeaderLogListener | None = None

    def listen(self, listener: LeaderLogListener | None) -> None:
        assert listener is None or self.listener is None
        self.listener = listener

    def append(self, *, count: int = 1, size: int = 100) -> None:
        """Append a batch of the present leader epoch."""
        start = self.log_end_offset
        data = batch(start, count=count, size=size, epoch=self.leader_epoch)
        self.batches.append(data)
        self.lineage = self.lineage.assign(epoch=self.leader_epoch, start_offset=start)
        self.log_end_offset = start + count
        if self.listener is not None:
            self.listener.on_append(start, data, self.log_end_offset)

    def raise_high_watermark(self, offset: int) -> None:
        assert self.high_watermark < offset <= self.log_end_offset
        self.high_watermark = offset
        if self.listener is not None:
            self.listener.on_high_watermark(offset)

    def raise_log_start(self, offset: int) -> None:
        """Delete the records below ``offset``, as DeleteRecords does: the batch that holds it stays."""
        assert offset <= self.high_watermark
        self.log_start_offset = offset
        self.lineage = self.lineage.truncated_from_start(offset)
        self.batches = [each for each in self.batches if _bounds(each)[1] > offset]
        if self.listener is not None:
            self.listener.on_log_start_offset(offset)

    def truncate(self, offset: int) -> None:
        self.batches = [each for each in self.batches if _bounds(each)[1] <= offset]
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.lineage = self.lineage.truncated_from_end(offset)
        if self.listener is not None:
            self.listener.on_truncated(offset)

    def lose_and_grow(self, offset: int, *, count: int) -> None:
        """Lose the records from ``offset`` on and get others in the same epoch, before the listener hears of it."""
        listener, self.listener = self.listener, None
        self.truncate(offset)
        self.append(count=count)
        self.listener = listener
        if listener is not None:
            listener.on_truncated(self.log_end_offset)

    def file_records(self, from_offset: int, to_offset: int) -> HeldRange | None:
        begins = {_bounds(each)[0] for each in self.batches} | {self.log_end_offset}
        if from_offset not in begins or (not self.has_open_files and from_offset < to_offset):
            return None
        data = b"".join(each for each in self.batches if from_offset <= _bounds(each)[0] < to_offset)
        held = HeldRange(from_offset, to_offset, data)
        self.ranges.append(held)
        return held

    async def read(self, offset: int, max_bytes: int) -> bytes:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(f"{offset} is not in the log", remedy="none")
        taken = b""
        for each in self.batches:
            if _bounds(each)[1] <= offset:
                continue
            if taken and len(taken) + len(each) > max_bytes:
                break
            taken += each
        return taken


def _bounds(data: bytes) -> tuple[int, int]:
    (bounds,) = batch_bounds(data)
    return bounds.base_offset, bounds.next_offset
