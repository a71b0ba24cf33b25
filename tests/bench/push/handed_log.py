"""Logs of a leader for the benchmark: batches in memory that are handed over, and the watch on what is acknowledged."""

from collections.abc import Callable

from tierd.model import Lineage, TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords, LeaderLogListener


class HandedLog:
    """A ``LeaderLog`` that keeps no record: its standby gets what is appended, or nothing.

    The high watermark is what the standby has acknowledged.
    """

    def __init__(self, partition: TopicIdPartition, on_acknowledged: Callable[[], None]) -> None:
        """Begin empty, in leader epoch 1; ``on_acknowledged`` is called when the high watermark has risen."""
        self.partition = partition
        self.leader_epoch = 1
        self.log_start_offset = self.log_end_offset = self.high_watermark = 0
        self.lineage = Lineage().assign(epoch=1, start_offset=0)
        self._on_acknowledged = on_acknowledged
        self._listener: LeaderLogListener | None = None

    def listen(self, listener: LeaderLogListener | None) -> None:
        """Report changes to ``listener``."""
        self._listener = listener

    def hand_over(self, batch: bytes, next_offset: int) -> None:
        """Append a batch that begins at the log end."""
        assert self._listener is not None, "the partition is led"
        append_offset, self.log_end_offset = self.log_end_offset, next_offset
        self._listener.on_append(append_offset, batch, next_offset)

    def raise_high_watermark(self, high_watermark: int) -> None:
        """Take note of an acknowledgement."""
        self.high_watermark = high_watermark
        self._on_acknowledged()
        if self._listener is not None:
            self._listener.on_high_watermark(high_watermark)

    def file_records(self, from_offset: int, to_offset: int) -> FileRecords | None:
        """Return the empty range at the log end, with which a session begins."""
        return EmptyRange(to_offset) if from_offset == to_offset else None

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Return nothing: a standby that fetches has to be at the log end."""
        assert offset == self.log_end_offset, f"a session has ended, and {max_bytes} bytes are not there"
        return b""


class EmptyRange:
    """The ``FileRecords`` of no record."""

    def __init__(self, offset: int) -> None:
        """Begin and end at ``offset``."""
        self.first_offset = self.next_offset = offset
        self.size_bytes = 0

    async def read(self, position: int, max_bytes: int) -> bytes:
        """Return nothing."""
        del position, max_bytes
        return b""

    def close(self) -> None:
        """Release nothing."""
