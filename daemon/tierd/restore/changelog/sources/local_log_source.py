"""LocalLogSource: changelogs in the log dirs of this host, a broker's or our own (changelog-restore 3.1, 3.2)."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from tierd.errors import CorruptRecordError, MissingArtefactError, OffsetOutOfRangeError, SegmentChangedError
from tierd.log import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    AbortedTransaction,
    DirectoryKind,
    LocalLog,
    PartitionDirectory,
    PartitionScan,
    RecordBatch,
    SegmentFiles,
    find_log_end_offset,
    iter_batches,
    list_log_dir,
    read_batch_header,
    read_offset_checkpoint,
    recent_transactions,
    scan_partition,
)
from tierd.model import TopicPartition
from tierd.restore.changelog.sources.partition_changelog import (
    ChangelogBounds,
    ChangelogPiece,
    IsCompacted,
    require_no_hole,
)
from tierd.restore.changelog.sources.partitioned_source import CommittedPositions, DeleteRetention, PartitionedSource

_ATTEMPTS: Final = 5  # a broker that rolls and deletes may change the log under a few reads in a row


class LocalEnd(Enum):
    """The end of a local log, for readers."""

    HIGH_WATERMARK = "high watermark"
    """The checkpointed high watermark: a broker may still truncate what is above it."""

    LOG_END = "log end"
    """The last whole batch: for a log that is the only copy, or that has one replica."""


class LocalExtent(NamedTuple):
    """Offsets of a local log as its files and checkpoints have them.

    Attributes:
        first_offset: base of the first segment; the high watermark without segments.
        checkpointed_start: entry of ``log-start-offset-checkpoint``; None without one.
        first_dirty_offset: exclusive end of the offsets that the cleaner of this log may have cleaned; 0 without any.
    """

    first_offset: int
    checkpointed_start: int | None
    first_dirty_offset: int


@dataclass(frozen=True, slots=True)
class _View:
    """The files of the log at one moment, with what they say about transactions."""

    log: LocalLog
    bounds: ChangelogBounds
    extent: LocalExtent
    recent_aborted: tuple[AbortedTransaction, ...]


class LocalChangelog:
    """The replica of a changelog in one directory. One call at a time."""

    def __init__(self, directory: PartitionDirectory, *, is_compacted: bool, end: LocalEnd) -> None:
        """Read a replica.

        Args:
            directory: of the replica, of kind ``CURRENT``.
            is_compacted: holes between batches are normal.
            end: up to where records count.
        """
        self._directory = directory
        self._is_compacted = is_compacted
        self._end = end
        self._view: _View | None = None

    async def refresh(self) -> ChangelogBounds:
        """Look again, and return the bounds as they are now."""
        return (await self._refreshed()).bounds

    @property
    def topic_id(self) -> UUID | None:
        """Return the id of the topic; None while the broker has not written it."""
        return self._directory.topic_id

    async def extent(self) -> LocalExtent:
        """Return the offsets of the files and checkpoints at the last refresh."""
        return (await self._current()).extent

    async def read(self, offset: int, *, end_offset: int, max_bytes: int) -> ChangelogPiece:
        """Return the batches from ``offset`` on, of one segment.

        Raises:
            SegmentChangedError: the files changed; refresh, and read again.
        """
        view = await self._current()
        return await asyncio.to_thread(self._read, view.log, offset, end_offset, max_bytes)

    async def aborted(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return every aborted transaction that touches ``[start_offset, end_offset)`` and ended on this host.

        Raises:
            SegmentChangedError: the files changed; refresh, and read again.
        """
        view = await self._current()
        indexed = await asyncio.to_thread(view.log.aborted_transactions, start_offset, end_offset)
        return [*indexed, *(each for each in view.recent_aborted if _touches(each, start_offset, end_offset))]

    async def close(self) -> None:
        """Forget the files."""
        self._view = None

    async def _current(self) -> _View:
        return self._view or await self._refreshed()

    async def _refreshed(self) -> _View:
        for _ in range(_ATTEMPTS):
            try:
                self._view = await asyncio.to_thread(_view_of, self._directory, self._end)
            except SegmentChangedError:
                continue
            return self._view
        raise _changing(self._directory)

    def _read(self, log: LocalLog, offset: int, end_offset: int, max_bytes: int) -> ChangelogPiece:
        try:
            data = log.read(offset, max_bytes=max_bytes)
        except OffsetOutOfRangeError as error:  # the bounds had the offset
            raise SegmentChangedError(str(error)) from error
        batches = [each for each in self._checked(log.scan, offset, data) if each.base_offset < end_offset]
        partition = self._directory.topic_partition
        next_offset = batches[-1].last_offset + 1 if batches else end_offset
        if not self._is_compacted:
            require_no_hole(partition, offset, batches, end_offset=next_offset)
        return ChangelogPiece(batches, next_offset, sum(batch.size_bytes for batch in batches))

    def _checked(self, scan: PartitionScan, offset: int, data: bytes) -> Iterable[RecordBatch]:
        try:
            return [each for each in iter_batches(data, name=str(self._directory.path)) if each.last_offset >= offset]
        except CorruptRecordError as error:
            raise _located(scan, data, error) from error


class LocalChangelogs:
    """Changelogs in the log dirs of this host."""

    def __init__(self, log_dirs: Sequence[Path], *, is_compacted: IsCompacted, end: LocalEnd) -> None:
        self._log_dirs = tuple(log_dirs)
        self._is_compacted = is_compacted
        self._end = end

    async def list_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions with a replica on this host."""
        return frozenset(await asyncio.to_thread(_directories, self._log_dirs))

    async def open(self, partition: TopicPartition) -> LocalChangelog | None:
        """Open the replica of ``partition``; None without one."""
        directory = (await asyncio.to_thread(_directories, self._log_dirs)).get(partition)
        if directory is None:
            return None
        return LocalChangelog(directory, is_compacted=self._is_compacted(partition.topic), end=self._end)


class LocalLogSource(PartitionedSource):
    """Source over the partition directories of this host, beside a running broker or without one."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        delete_retention: DeleteRetention,
        groups: CommittedPositions | None = None,
        end: LocalEnd = LocalEnd.HIGH_WATERMARK,
    ) -> None:
        """Read log dirs.

        Args:
            log_dirs: with the partition directories.
            delete_retention: which topics are compacted.
            groups: committed offsets; None where they are not known.
            end: up to where records count.
        """
        changelogs = LocalChangelogs(log_dirs, is_compacted=lambda topic: delete_retention(topic) is not None, end=end)
        super().__init__(changelogs, delete_retention=delete_retention, groups=groups)


def _view_of(directory: PartitionDirectory, wanted_end: LocalEnd) -> _View:
    """Return the log as it is now. The checkpoints are read first, since their offsets only grow."""
    partition, log_dir = directory.topic_partition, directory.path.parent
    start = read_offset_checkpoint(log_dir / LOG_START_OFFSET_CHECKPOINT).get(partition)
    high_watermark = read_offset_checkpoint(log_dir / REPLICATION_OFFSET_CHECKPOINT).get(partition)
    dirty = read_offset_checkpoint(log_dir / CLEANER_OFFSET_CHECKPOINT).get(partition, 0)
    scan = scan_partition(directory)
    log_end = find_log_end_offset(scan)
    if wanted_end is LocalEnd.LOG_END:
        high_watermark = log_end
    elif high_watermark is None:
        raise MissingArtefactError(
            f"{log_dir / REPLICATION_OFFSET_CHECKPOINT}: no high watermark of {partition}",
            remedy="let the broker run for some seconds; for the only copy of a log, read to the log end",
        )
    high_watermark = min(high_watermark, log_end)  # a power cut may have taken records that were replicated
    # The log may begin in the tier: a transaction may be open that began below the first segment that is here.
    recent = recent_transactions(scan, high_watermark=high_watermark, log_start_offset=0)
    log = LocalLog(scan, high_watermark=high_watermark, last_stable_offset=recent.last_stable_offset)
    earliest = min(max(log.log_start_offset, start or 0), high_watermark)
    bounds = ChangelogBounds(
        earliest_offset=earliest,
        end_offset=high_watermark,
        stable_offset=recent.last_stable_offset,
        topic_id=directory.topic_id,
        lineage=scan.lineage,
    )
    return _View(log, bounds, LocalExtent(log.log_start_offset, start, dirty), recent.aborted)


def _located(scan: PartitionScan, data: bytes, error: CorruptRecordError) -> CorruptRecordError:
    """Return ``error`` with segment and position in its file instead of the position in ``data``."""
    base_offset = int.from_bytes(data[error.position : error.position + 8], "big")
    segment = _segment_of(scan.segments, base_offset)
    if segment is None:
        return error
    _, position, _ = read_batch_header(segment, base_offset)
    return CorruptRecordError(segment.log, max(position, 0), "wrong checksum of the batch")


def _segment_of(segments: Sequence[SegmentFiles], offset: int) -> SegmentFiles | None:
    return next((each for each in reversed(segments) if each.base_offset <= offset), None)


def _touches(transaction: AbortedTransaction, start_offset: int, end_offset: int) -> bool:
    return transaction.last_offset >= start_offset and transaction.first_offset < end_offset


def _changing(directory: PartitionDirectory) -> SegmentChangedError:
    return SegmentChangedError(
        f"{directory.path}: the log changed {_ATTEMPTS} times in a row", remedy="read again, or stop the broker"
    )


def _directories(log_dirs: Sequence[Path]) -> dict[TopicPartition, PartitionDirectory]:
    found = (each for path in log_dirs for each in list_log_dir(path).partitions)
    return {each.topic_partition: each for each in found if each.kind is DirectoryKind.CURRENT}
