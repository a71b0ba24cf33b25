"""StaleSegments: copied segments whose records the local log does not have any more, though no leader epoch tells.

A broker that is killed keeps its leader epoch in some versions, and loses what was not flushed. What was copied of that
is no part of the log: the log ends before it, or has grown again over the same offsets with other records. After an
unclean election the lineage hides such segments; within one epoch nothing does, so they are ended here.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import LogError, RemoteStorageError, SegmentChangedError
from tierd.log import (
    OffsetIndex,
    PartitionScan,
    RecordBatch,
    SegmentFiles,
    compare_with_local,
    find_log_end_offset,
    iter_batches,
    read_batch_header,
)
from tierd.metadata import OwnBranch, PartitionView, effective_lineage
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.remote import RemoteStorageManager
from tierd.tiering.copying.copied_part import CopiedPart, newest_part, parts_from_the_newest
from tierd.tiering.local.broker_state import BrokerOffsets
from tierd.tiering.local.held_segment import FileState, HeldSegment
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.ledger import DeleteReason

log = structlog.get_logger()

DIVERGED_GRACE_S: Final = 7 * 86_400.0
_TAIL_BYTES: Final = 64 << 10
_UNKNOWN_AT_MOST: Final = 8  # segments of which cleaners left nothing to compare, before the others are left unread


class LocalVerdict(Enum):
    """Result of the comparison of a copied segment with the local log."""

    SAME = auto()
    DIFFERENT = auto()
    ABSENT = auto()
    """The local log ends before the segment does."""
    UNKNOWN = auto()
    """Nothing is left to compare, or one side cannot be read."""


@dataclass(frozen=True, slots=True)
class _Witness:
    """The local batch that proved a copied segment to be of the log; what is appended behind it changes nothing.

    Attributes:
        segment_id: the id of the copied segment.
        inode: the inode of the local log file.
        position: the position of the batch in that file.
        header: the header of the batch, its checksum included.
    """

    segment_id: UUID
    inode: int
    position: int
    header: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleSegmentTools:
    """Collaborators, the same for every partition.

    Attributes:
        remote: reads the tier.
        deletion: begins the deletion of a segment.
        clock: dates the end of a grace.
        grace_s: the time for which an expired segment can be taken back; at least a week for a stale one.
        broker_id: this broker; the times of local files prove something about its own copies only.
    """

    remote: RemoteStorageManager
    deletion: SegmentDeletion
    clock: Clock
    grace_s: float
    broker_id: int


class StaleSegments:
    """Stale segments of one leadership. The newest copied segment is compared when the log at its end has changed."""

    def __init__(self, local: PartitionLog, tools: StaleSegmentTools) -> None:
        self._local = local
        self._tools = tools
        self._witness: _Witness | None = None
        self._as_copied: tuple[int, int, FileState] | None = None
        self._is_undecided = False

    @property
    def is_undecided(self) -> bool:
        """Return True if the local log is empty or ends below what was copied, and only time tells if that is lost."""
        return self._is_undecided

    def copied(self, held: HeldSegment) -> None:
        """Take note of the file that a segment was copied from."""
        self._as_copied = (held.base_offset, held.next_base_offset, held.log_file)

    async def end(self, view: PartitionView, offsets: BrokerOffsets) -> bool:
        """Begin the end of every stale segment, newest first; return whether there was one.

        Cancelled or failed anywhere, the rows say what is left, and the next call goes on with it.

        Raises:
            RemoteStorageError: a retriable one: the store does not answer now.
            LogError: the directory cannot be listed now.
            TierError: a step of a deletion failed.
        """
        scan = self._local.scan
        self._is_undecided = False
        newest = newest_part(_branch_of(view, scan))
        if newest is None or not newest.may_be_compared(scan):
            return False
        is_original = self._is_original(newest, view)
        if await asyncio.to_thread(self._is_proven, newest, scan, is_original=is_original):
            return False
        scan = await self._local.rescan()  # another leader may have copied what is younger than the listing
        branch = _branch_of(view, scan)
        newest = newest_part(branch)
        if newest is None or not newest.may_be_compared(scan):
            return False
        stale = await self._find(branch, scan, offsets)
        if not stale and not self._is_undecided:
            self._witness = await asyncio.to_thread(_witness_of, newest, scan)
        for metadata, detail in stale:
            await self._end(metadata, detail)
        return bool(stale)

    def _is_original(self, newest: CopiedPart, view: PartitionView) -> bool:
        """Return whether the row is as this broker's own copy left it: no compaction, and no other broker's copy."""
        metadata = newest.metadata
        is_compacted = metadata.end_offset < (view.compacted_to or 0)
        return metadata.broker_id == self._tools.broker_id and not is_compacted

    def _is_proven(self, newest: CopiedPart, scan: PartitionScan, *, is_original: bool) -> bool:
        """Return whether the local log at the end of ``newest`` is what it was when it was copied, or was compared."""
        found = _witness_of(newest, scan)
        if found is None:
            return False
        if found != self._witness and not self._is_as_copied(newest, scan, is_original=is_original):
            return False
        self._witness = found
        return True

    def _is_as_copied(self, newest: CopiedPart, scan: PartitionScan, *, is_original: bool) -> bool:
        segment, metadata = _segment_at(newest.end_offset, scan), newest.metadata
        bounds = (metadata.start_offset, metadata.end_offset + 1)
        if (segment.base_offset, segment.next_base_offset) != bounds:
            return False
        try:
            state = FileState.of(segment.log)
        except LogError:
            return False
        if self._as_copied == (*bounds, state):
            return True
        # Rolled, of the size of the copy, and not changed since it was finished: the broker and this process have one
        # clock. A merge or an erasure, which finish later than the copy, have another size.
        is_unchanged = state.mtime_ns // 1_000_000 < metadata.event_timestamp_ms
        return is_original and state.size_bytes == metadata.size_bytes and is_unchanged

    async def _find(
        self, branch: OwnBranch, scan: PartitionScan, offsets: BrokerOffsets
    ) -> list[tuple[RemoteLogSegmentMetadata, str]]:
        """Return the stale segments with the reason, newest first: all from the earliest that differs on."""
        log_end = await self._log_end(scan)
        if log_end is None:
            return []
        suspects: list[CopiedPart] = []
        first: tuple[CopiedPart, str] | None = None
        unknown = 0
        for part in parts_from_the_newest(branch):
            if not part.may_be_compared(scan) or unknown == _UNKNOWN_AT_MOST:
                break
            verdict, detail = await self._judge(part, scan, offsets, log_end)
            if verdict is LocalVerdict.SAME:
                break
            suspects.append(part)
            if verdict is LocalVerdict.UNKNOWN:
                unknown += 1
            else:
                first = (part, detail)
        if first is None:
            return []
        # Behind a record that differs nothing is of the log, also where cleaners left nothing to compare.
        stale = [each.metadata for each in suspects if each.end_offset >= first[0].start_offset]
        return [(each, first[1]) for each in stale if self._has_local_start(each, scan)]

    async def _log_end(self, scan: PartitionScan) -> int | None:
        """Return the end of the local log; None while it is unknown, and for an empty log, which may be a new disk."""
        try:
            end = await asyncio.to_thread(find_log_end_offset, scan)
        except LogError as error:
            self._not_compared(error)
            return None
        self._is_undecided = end == scan.segments[0].base_offset
        return None if self._is_undecided else end

    async def _judge(
        self, part: CopiedPart, scan: PartitionScan, offsets: BrokerOffsets, log_end: int
    ) -> tuple[LocalVerdict, str]:
        if part.end_offset >= log_end:
            # Only a broker that is at work says that it lost what it had committed: files that are being restored,
            # or that a broker has yet to recover, do not.
            high_watermark = offsets.high_watermark
            is_certain = high_watermark is not None and high_watermark <= part.end_offset
            self._is_undecided = not is_certain
            return (
                LocalVerdict.ABSENT if is_certain else LocalVerdict.UNKNOWN
            ), f"the local log ends at offset {log_end}"
        tail = await self._tail(part)
        if tail is None:
            return LocalVerdict.UNKNOWN, ""
        try:
            found = await asyncio.to_thread(compare_with_local, scan, tail)
        except LogError as error:
            self._not_compared(error)
            return LocalVerdict.UNKNOWN, ""
        if found.differs_at is not None:
            return LocalVerdict.DIFFERENT, f"the local log has another record at offset {found.differs_at}"
        return (LocalVerdict.SAME if found.records else LocalVerdict.UNKNOWN), ""

    def _not_compared(self, error: LogError) -> None:
        """Report that the local log cannot be read; the next pass reads again what changed under the reader."""
        self._is_undecided = self._is_undecided or isinstance(error, SegmentChangedError)
        log.warning("log_not_compared", partition=str(self._local.partition), problem=str(error))

    async def _tail(self, part: CopiedPart) -> Sequence[RecordBatch] | None:
        """Fetch the last batches of a part; None where they cannot be read, which ``tierd verify`` reports."""
        metadata = part.metadata
        try:
            content = await self._tools.remote.fetch_index(metadata, IndexType.OFFSET)
            index = OffsetIndex.from_bytes(content, metadata.start_offset, f"{metadata.segment}, its offset index")
            tail = part.tail(index, _TAIL_BYTES)
            if tail is None:
                return ()
            data = await self._tools.remote.fetch_log_segment(metadata, tail)
            return await asyncio.to_thread(_batches_of, part, data, tail.start)
        except LogError as error:
            log.warning("segment_not_compared", segment=str(metadata.segment), problem=str(error))
        except RemoteStorageError as error:
            if error.retriable:
                raise
            log.warning("segment_not_compared", segment=str(metadata.segment), problem=str(error))
        return None

    def _has_local_start(self, metadata: RemoteLogSegmentMetadata, scan: PartitionScan) -> bool:
        """Return whether the local log reaches as far down as the segment, so that nothing good is only in the tier."""
        if scan.segments[0].base_offset <= metadata.start_offset:
            return True
        log.error(
            "segment_differs_from_log",
            partition=str(self._local.partition),
            segment=str(metadata.segment),
            remedy=f"its first records are in the tier only: see tierd verify --deep {self._local.partition}",
        )
        return False

    async def _end(self, metadata: RemoteLogSegmentMetadata, detail: str) -> None:
        deletion = self._tools.deletion
        with deletion.exclusively(metadata) as alone:
            if not alone:
                return
            grace_s = max(self._tools.grace_s, DIVERGED_GRACE_S)
            after_ms = self._tools.clock.now_ms() + round(grace_s * 1000)
            await deletion.begin(metadata, reason=DeleteReason.DIVERGED, detail=detail, delete_after_ms=after_ms)
        log.warning(
            "segment_diverged",
            partition=str(self._local.partition),
            segment=str(metadata.segment),
            start_offset=metadata.start_offset,
            end_offset=metadata.end_offset,
            why=detail,
            remedy="the broker lost records that were copied; tierd undelete --force takes them back for a week",
        )


def _branch_of(view: PartitionView, scan: PartitionScan) -> OwnBranch:
    return OwnBranch(view, effective_lineage(view, scan.lineage))


def _segment_at(offset: int, scan: PartitionScan) -> SegmentFiles:
    return next(segment for segment in reversed(scan.segments) if segment.base_offset <= offset)


def _batches_of(part: CopiedPart, data: bytes, position: int) -> list[RecordBatch]:
    """Return the batches of the part that ``data``, fetched from ``position`` on, holds. Blocking."""
    batches = iter_batches(data, name=str(part.metadata.segment), position=position)
    return [batch for batch in batches if batch.last_offset <= part.end_offset]


def _witness_of(part: CopiedPart, scan: PartitionScan) -> _Witness | None:
    """Read the header of the local batch that holds a part's last offset; None where it is damaged. Blocking."""
    segment = _segment_at(part.end_offset, scan)
    try:
        found = read_batch_header(segment, part.end_offset)
    except LogError:
        return None
    return _Witness(part.metadata.segment.id, *found)
