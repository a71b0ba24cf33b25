"""TailedLog: the LeaderLog of a partition that a broker on this host leads, as far as its files were followed."""

import os
from collections.abc import Callable
from dataclasses import replace

from tierd.errors import OffsetOutOfRangeError, SegmentChangedError
from tierd.log import PartitionDirectory
from tierd.model import Lineage, TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords, LeaderLogListener
from tierd.replication.tail.tail_reads import LogDirThreads, TailScans
from tierd.replication.tail.tail_records import OpenTails, TailRecords
from tierd.replication.tail.tail_values import ANYTHING_CHANGED, TailAppend, TailLimit, TailPoll, TailPosition


class TailedLog:
    """The log of one partition. Its follower calls ``apply`` and ``raise_watermark``; both tell the listener.

    The watermark that the listener hears of never lies above the log end: a higher one waits for the records.
    """

    def __init__(
        self,
        partition: TopicIdPartition,
        position: TailPosition,
        *,
        limit: TailLimit,
        threads: Callable[[], LogDirThreads],
        scans: TailScans,
        open_tails: OpenTails,
    ) -> None:
        """Begin at a place in the log.

        Args:
            partition: the partition.
            position: the place.
            limit: the end of what is taken.
            threads: gives the threads of the log dir in which the log is now.
            scans: for reads by offset.
            open_tails: the files that are open, of all logs.
        """
        self._partition = partition
        self._limit = limit
        self._threads = threads
        self._scans = scans
        self._open_tails = open_tails
        self._listener: LeaderLogListener | None = None
        self.position = position
        self._announced_epoch = -1
        self._restarts = 0
        self._log_end_offset = position.next_offset
        self._lineage = position.known_lineage
        self._known_watermark = self._known_start = -1
        self._log_start_offset = min(position.first_base, position.next_offset)
        self._high_watermark = self._log_start_offset

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition."""
        return self._partition

    @property
    def leader_epoch(self) -> int:
        """Return the newest epoch that the broker has written, or that was announced; 0 before either."""
        written = self.position.lineage.latest
        return max(written.epoch if written is not None else 0, self._announced_epoch)

    @property
    def log_start_offset(self) -> int:
        """Return the first offset of the log."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Return the offset behind the last batch that was taken."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        """Return the highest watermark that was heard of and has its records here; a lower bound of the broker's."""
        return self._high_watermark

    @property
    def lineage(self) -> Lineage:
        """Return the leader epochs up to the log end."""
        return self._lineage

    @property
    def limit_offset(self) -> int | None:
        """Return the offset that no batch to be taken may reach; None without a limit."""
        return None if self._limit is TailLimit.LEO else max(self._known_watermark, 0)

    @property
    def wants_descriptor(self) -> bool:
        """Return True if the active file is to stay open when the log grows."""
        return self._listener is not None and not self._open_tails.has_file(self._partition, self.position.inode)

    def listen(self, listener: LeaderLogListener | None) -> None:
        """Report changes to ``listener`` from now on; None ends it."""
        self._listener = listener
        if listener is None:
            self._open_tails.drop(self._partition)

    # ---------------------------------------------------------------- reads

    def file_records(self, from_offset: int, to_offset: int) -> FileRecords | None:
        """Return the records of ``[from_offset, to_offset)`` if the log grew lately and they are in its active file.

        None otherwise, and when a bound lies inside a batch. The empty range at the log end needs no file.
        """
        if from_offset == to_offset == self._log_end_offset:
            return TailRecords(None, self._threads(), first_offset=from_offset, next_offset=to_offset, begin=0, end=0)
        recent = self._open_tails.get(self._partition)
        if recent is None or not from_offset <= to_offset <= self._log_end_offset:
            return None
        return recent.records(from_offset, to_offset, self._threads())

    async def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that holds or follows ``offset`` on: one, or as many as fit ``max_bytes``.

        Empty at the log end.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start or above the log end.
            LogError: the log cannot be read.
        """
        if not self._log_start_offset <= offset <= self._log_end_offset:
            raise OffsetOutOfRangeError(
                f"{self._partition}: offset {offset} is not in [{self._log_start_offset}, {self._log_end_offset}]",
                remedy="read from an offset in that range",
            )
        if offset == self._log_end_offset:
            return b""
        position, end_offset, restarts = self.position, self._log_end_offset, self._restarts
        data = await self._threads().run(
            lambda: self._scans.read(position.directory, offset, end_offset=end_offset, max_bytes=max_bytes)
        )
        if self._restarts != restarts:
            raise SegmentChangedError(f"{self._partition}: cut back while it was read", remedy="read again")
        return data

    # ---------------------------------------------------------------- changes

    def apply(self, poll: TailPoll) -> None:
        """Take the result of a poll, and tell the listener. The descriptor of the poll is kept or closed."""
        for append in poll.appends:
            self._append(append, poll.descriptor if append is poll.appends[-1] else -1)
        if self._listener is None and poll.descriptor >= 0:
            os.close(poll.descriptor)
        self.position = poll.position
        if poll.is_restarted:
            self._restart()
        self._lineage = poll.position.known_lineage
        self._offer_bounds()

    def move(self, directory: PartitionDirectory) -> None:
        """Go on in another directory, which the next poll compares with what was taken."""
        self.position = replace(self.position, directory=directory, directory_mtime_ns=ANYTHING_CHANGED, drained=None)

    def announce_leader_epoch(self, leader_epoch: int) -> None:
        """Take note of the epoch of the present leadership, which the broker's files may not have yet."""
        self._announced_epoch = max(self._announced_epoch, leader_epoch)

    def raise_watermark(self, high_watermark: int, log_start_offset: int = -1) -> bool:
        """Take note of offsets of the broker; lower ones are ignored. Return True if more may be taken now."""
        rose = high_watermark > self._known_watermark
        self._known_watermark = max(self._known_watermark, high_watermark)
        self._known_start = max(self._known_start, log_start_offset)
        self._offer_bounds()
        return rose and self._limit is TailLimit.HWM

    def _append(self, append: TailAppend, descriptor: int) -> None:
        self._log_end_offset = append.next_offset
        self._lineage = append.lineage
        if self._listener is not None:
            self._open_tails.add(self._partition, append, descriptor)
            self._listener.on_append(append.append_offset, append.records, append.next_offset)

    def _restart(self) -> None:
        self._restarts += 1
        self._open_tails.drop(self._partition)
        self._log_end_offset = end = self.position.next_offset
        self._lineage = self.position.known_lineage
        # An unclean election may have cut committed records off. The watermark of before counts no more above the end.
        self._known_watermark = min(self._known_watermark, end)
        self._high_watermark = min(self._high_watermark, end)
        self._log_start_offset = min(self._log_start_offset, end)
        self._known_start = min(self._known_start, end)
        if self._listener is not None:
            self._listener.on_truncated(end)

    def _offer_bounds(self) -> None:
        """Tell of a higher watermark, then of a higher log start: a log start above the watermark is impossible."""
        end = self._log_end_offset
        start = min(max(self._known_start, self.position.first_base), end)
        watermark = min(max(self._known_watermark, start), end)
        if watermark > self._high_watermark:
            self._high_watermark = watermark
            if self._listener is not None:
                self._listener.on_high_watermark(watermark)
        if start > self._log_start_offset:
            self._log_start_offset = start
            if self._listener is not None:
                self._listener.on_log_start_offset(start)
