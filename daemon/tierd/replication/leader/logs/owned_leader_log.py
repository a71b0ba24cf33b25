"""OwnedLeaderLog: the LeaderLog of a partition whose log tierd owns, a log of a LogService.

::

    writer's thread: append, truncation, log start ──LogObserver──► event loop: OwnedLeaderLog ──► listener

The log's writer hands over what it wrote before it answers the appends, and starts no further job before the event loop
has taken it: so what waits for the event loop is one job of the writer at most.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Self

from tierd.errors import LogError, OffsetOutOfRangeError, SegmentChangedError
from tierd.log import AppendedRecords, PartitionWriter, UnifiedLog
from tierd.model import Lineage, TopicIdPartition
from tierd.replication.leader.logs.leader_log import FileRecords, LeaderLogListener
from tierd.replication.leader.logs.open_segments import OpenRange, OpenSegments, whole_batches_end
from tierd.replication.leader.logs.shared_file import SharedFile

_MAGIC_AT: Final = 16


class OwnedLeaderLog:
    """Log of one partition, as the event loop knows it. ``open`` makes it; ``close`` ends the reports of its writer."""

    def __init__(
        self, partition: TopicIdPartition, writer: PartitionWriter, segments: OpenSegments, *, leader_epoch: int
    ) -> None:
        """Begin with the log as it is now. ``open`` is for all callers."""
        log = writer.log
        self._partition = partition
        self._writer = writer
        self._segments = segments
        self._leader_epoch = leader_epoch
        self._loop = asyncio.get_running_loop()
        self._listener: LeaderLogListener | None = None
        self._cuts = 0
        self._log_start_offset, self._log_end_offset = log.local_log_start_offset, log.log_end_offset
        self._high_watermark, self._lineage = log.high_watermark, log.leader_epochs

    @classmethod
    async def open(
        cls, partition: TopicIdPartition, writer: PartitionWriter, segments: OpenSegments, *, leader_epoch: int
    ) -> Self:
        """Return the log of ``writer``, which reports every change from now on.

        Args:
            partition: the partition.
            writer: of its log.
            segments: open files, shared by all owned logs.
            leader_epoch: of the present leadership.

        Raises:
            LogError: as ``LogWriter.run``.
        """
        opened = cls(partition, writer, segments, leader_epoch=leader_epoch)
        await writer.run(opened._attach)  # between two appends, so that none is missed
        return opened

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition."""
        return self._partition

    @property
    def leader_epoch(self) -> int:
        """Return the epoch of the present leadership."""
        return self._leader_epoch

    @property
    def log_start_offset(self) -> int:
        """Return the first offset on local disk; the tier has what lies below it in a tiered log."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """Return the offset of the next record."""
        return self._log_end_offset

    @property
    def high_watermark(self) -> int:
        """Return the exclusive end of what consumers may read."""
        return self._high_watermark

    @property
    def lineage(self) -> Lineage:
        """Return the leader epochs of the records."""
        return self._lineage

    def listen(self, listener: LeaderLogListener | None) -> None:
        """Report changes to ``listener`` from now on; None ends it."""
        self._listener = listener
        if listener is None:
            self._segments.drop(self._partition)

    def begin_leadership(self, leader_epoch: int) -> None:
        """Take note of a newer leader epoch; the replicator looks at it with ``check_leader_epoch``."""
        self._leader_epoch = max(self._leader_epoch, leader_epoch)

    def raise_high_watermark(self, high_watermark: int) -> None:
        """Set a higher high watermark, in the log first; the listener hears of it before the call returns."""
        log = self._writer.log
        with suppress(ValueError):  # a truncation that was not reported yet has cut the log below it
            log.maybe_increment_high_watermark(high_watermark)
        self._note_high_watermark(min(high_watermark, log.high_watermark))

    async def close(self) -> None:
        """End the reports of the writer.

        Raises:
            LogError: as ``LogWriter.run``.
        """
        self.listen(None)
        await self._writer.run(lambda log: log.observe(None))

    # ---------------------------------------------------------------- reads

    def file_records(self, from_offset: int, to_offset: int) -> FileRecords | None:
        """Return the records of ``[from_offset, to_offset)`` if they are new appends in the open active segment.

        None otherwise, and when a bound is not the beginning of an append. The empty range at the end needs no file.
        """
        if from_offset == to_offset == self._log_end_offset:
            return OpenRange(None, self._run, first_offset=from_offset, next_offset=to_offset, begin=0, end=0)
        recent = self._segments.get(self._partition)
        if recent is None or not from_offset <= to_offset <= self._log_end_offset:
            return None
        return recent.range_from(from_offset, to_offset, self._run)

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
        cuts = self._cuts
        found = await self._writer.read(partial(_read, offset=offset, max_bytes=max_bytes))
        if self._cuts != cuts:
            raise SegmentChangedError(f"{self._partition}: cut back while it was read", remedy="read again")
        # What the writer has written and not reported yet is left out.
        end = whole_batches_end(found, before_offset=self._log_end_offset)
        if not end and len(found) > _MAGIC_AT and found[_MAGIC_AT] != 2:
            raise LogError(f"{self._partition}: a batch of an old format at {offset} cannot be sent to a standby")
        return found[:end]

    async def _run(self, read: Callable[[], bytes]) -> bytes:
        return await self._writer.read(lambda _: read())

    # ---------------------------------------------------------------- the observer, in threads that change the log

    def on_appended(self, appends: Sequence[AppendedRecords], lineage: Lineage) -> None:
        """Hand over appends, with an open file of the last one's segment unless that is open."""
        path, file = appends[-1].path, None
        if self._listener is not None and not self._segments.has_file(self._partition, path):
            with suppress(OSError):  # without a file, standbys read by offset
                file = SharedFile.open(path)
        if not self._hand_over(self._take_appends, appends, lineage, file) and file is not None:
            file.release()

    def on_high_watermark(self, high_watermark: int) -> None:
        """Hand over a high watermark."""
        self._hand_over(self._note_high_watermark, high_watermark)

    def on_log_start_offset(self, log_start_offset: int) -> None:
        """Hand over a log start offset."""
        self._hand_over(self._take_log_start, log_start_offset)

    def on_truncated(self, log_end_offset: int, log_start_offset: int, lineage: Lineage) -> None:
        """Hand over a truncation."""
        self._hand_over(self._take_truncation, log_end_offset, log_start_offset, lineage)

    def _hand_over(self, take: Callable[..., None], *what: object) -> bool:
        """Call ``take`` on the event loop; return False when the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(take, *what)
        except RuntimeError:
            return False
        return True

    def _attach(self, log: UnifiedLog) -> None:
        log.observe(self)
        bounds = (log.log_end_offset, log.local_log_start_offset, log.high_watermark, log.leader_epochs)
        self._hand_over(self._take_bounds, *bounds)

    # ---------------------------------------------------------------- on the event loop

    def _take_bounds(self, log_end: int, log_start: int, high_watermark: int, lineage: Lineage) -> None:
        self._log_end_offset, self._log_start_offset = log_end, log_start
        self._high_watermark, self._lineage = high_watermark, lineage

    def _take_appends(self, appends: Sequence[AppendedRecords], lineage: Lineage, file: SharedFile | None) -> None:
        self._lineage = lineage
        for append in appends:
            self._log_end_offset = append.next_offset
            if self._listener is not None:
                self._segments.add(self._partition, append, file if append.path == appends[-1].path else None)
                self._listener.on_append(append.append_offset, append.records, append.next_offset)
        if file is not None:
            file.release()

    def _note_high_watermark(self, high_watermark: int) -> None:
        """Take a higher watermark; a lower one comes with a truncation, or was overtaken."""
        reached = min(high_watermark, self._log_end_offset)
        if reached > self._high_watermark:
            self._high_watermark = reached
            if self._listener is not None:
                self._listener.on_high_watermark(reached)

    def _take_log_start(self, log_start_offset: int) -> None:
        if log_start_offset > self._log_start_offset:
            self._log_start_offset = log_start_offset
            if self._listener is not None:
                self._listener.on_log_start_offset(log_start_offset)

    def _take_truncation(self, log_end: int, log_start: int, lineage: Lineage) -> None:
        self._cuts += 1
        self._segments.drop(self._partition)
        self._take_bounds(log_end, log_start, max(min(self._high_watermark, log_end), log_start), lineage)
        if self._listener is not None:
            self._listener.on_truncated(log_end)


def _read(log: UnifiedLog, *, offset: int, max_bytes: int) -> bytes:
    if offset == log.log_end_offset:
        return b""
    return log.read(offset, max_bytes=max_bytes, isolation=None).records
