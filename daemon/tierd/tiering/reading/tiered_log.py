"""The local and remote segments of a partition as one log, at one moment. Decisions only, no I/O."""

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Self

from tierd.errors import OffsetOutOfRangeError
from tierd.log import PartitionScan
from tierd.metadata import OwnBranch, PartitionView, ReadableRange, effective_lineage
from tierd.model import Lineage, OffsetRange, RemoteLogSegmentMetadata, TopicIdPartition
from tierd.tiering.copy_plan import deleted_records_before, local_log_start


class Tier(Enum):
    """The place that a read takes bytes from."""

    LOCAL = "local"
    REMOTE = "remote"


@dataclass(frozen=True)
class TieredLog:
    """The facts about one partition that a reader needs.

    Attributes:
        view: the remote segments.
        scan: the local segments; None on a host without a replica.
        high_watermark: exclusive end of committed local data; None until the broker has written it.
        log_start_checkpoint: the entry of ``log-start-offset-checkpoint``; None without an entry.
        held: offsets of segments that tierd holds on this host to copy them, as far as it is known. No reader reads
            them there.
        local_stable_offset: exclusive end of the decided records of the local log, at most the high watermark; None
            where the log itself has to be asked.
        cut_at: exclusive end of the local files where they end below the high watermark (``find_cut_end``); else None.
    """

    partition: TopicIdPartition
    view: PartitionView
    scan: PartitionScan | None
    high_watermark: int | None
    log_start_checkpoint: int | None = None
    held: tuple[OffsetRange, ...] = ()
    local_stable_offset: int | None = None
    cut_at: int | None = None

    def moved(self, *, high_watermark: int | None, local_stable_offset: int | None, cut_at: int | None) -> Self:
        """Return the same segments with other ends of their committed and decided records, and of the local files."""
        moved = replace(self, high_watermark=high_watermark, local_stable_offset=local_stable_offset, cut_at=cut_at)
        # Neither depends on these ends, and of a large tier they take longer than a read.
        vars(moved).update(lineage=self.lineage, branch=self.branch)
        return moved

    @cached_property
    def lineage(self) -> Lineage:
        """Return the leader epochs of the local log and of the tier."""
        return effective_lineage(self.view, self.scan.lineage if self.scan else Lineage())

    @cached_property
    def branch(self) -> OwnBranch:
        """Return the remote segments of our own branch of the log."""
        return OwnBranch(self.view, self.lineage)

    @property
    def finished(self) -> tuple[RemoteLogSegmentMetadata, ...]:
        """Return the readable remote segments, ascending."""
        return self.branch.finished

    @property
    def local_start_offset(self) -> int | None:
        """Return the first offset on local disk; None without local segments."""
        if self.scan is None or not self.scan.segments:
            return None
        return self.scan.segments[0].base_offset

    @property
    def local_end_offset(self) -> int:
        """Return the exclusive end of the committed offsets on local disk; 0 without a high watermark."""
        end = self.high_watermark or 0
        return end if self.cut_at is None else min(end, self.cut_at)

    @cached_property
    def log_start_offset(self) -> int:
        """Return the first offset that may be read, from the local log or from the tier."""
        segments = self.scan.segments if self.scan else ()
        if not self.finished and self.view.log_start_offset is None:
            checkpointed = self.log_start_checkpoint
            return max(self._held_below(local_log_start(segments, checkpointed=checkpointed)), checkpointed or 0)
        start = self.view.log_start_offset
        if start is None:
            start = deleted_records_before(
                checkpointed=self.log_start_checkpoint, segments=segments, high_watermark=self.high_watermark
            )
        # A checkpoint beyond ``start`` may be the retention of another leader: the leader's copy task decides that.
        first_remote = self.finished[0].first_readable_offset if self.finished else None
        first_local = None if self.local_start_offset is None else self._held_below(self.local_start_offset)
        firsts = [first for first in (first_remote, first_local) if first is not None]
        return max(start or 0, min(firsts, default=0))

    def _held_below(self, start: int) -> int:
        """Return the start of the held segments that end at ``start``; ``start`` without one.

        They are a part of the log that no reader finds until they are copied. A reader who is told a later start would
        skip them for good.
        """
        for each in sorted(self.held, key=lambda held: held.start, reverse=True):
            if each.end + 1 == start:
                start = each.start
        return start

    @property
    def remote_end_offset(self) -> int:
        """Return the exclusive end of our own branch in the tier; 0 when the tier has nothing of our branch."""
        return self.branch.end_offset

    @property
    def last_whole_segment(self) -> RemoteLogSegmentMetadata | None:
        """Return the last remote segment that lies completely in our own branch; None without one."""
        return self.branch.last_whole

    @property
    def end_offset(self) -> int:
        """Return the exclusive end of uncommitted reads: the high watermark, or the end of the tier if that is larger.

        The end is never below the log start: where every segment has expired, only the log start tells the end.
        """
        return max(self.high_watermark or 0, self.remote_end_offset, self.log_start_offset)

    def tier_of(self, offset: int) -> Tier:
        """Return the place to read ``offset`` from. The local log is preferred where both have the offset.

        Behind the end of a local log that was cut back, the tier is read. It has committed records only, since tierd
        copies no others. Where a new leader cut the log back, the offsets behind the cut are of the new leader's epoch:
        ``remote_segment`` finds no segment of an earlier epoch there, and the reader waits (``is_awaited``). Where no
        new epoch has begun, the tier has the last records that were committed at these offsets, which a consumer of any
        other host reads as well.
        """
        local_start = self.local_start_offset
        local = local_start is not None and local_start <= offset < self.local_end_offset
        return Tier.LOCAL if local else Tier.REMOTE

    def is_awaited(self, offset: int) -> bool:
        """Return True if the local log was cut back before ``offset``, which was committed, and the tier lacks it too.

        The broker gets such a record back from another replica, or cuts the log back for good and lowers the high
        watermark. Until then a consumer waits: an error or a later offset would make it skip the record.
        """
        is_cut_off = self.cut_at is not None and self.cut_at <= offset < (self.high_watermark or 0)
        return is_cut_off and self.remote_segment(offset) is None

    def awaited(self, offset: int) -> int | None:
        """Return the first offset from ``offset`` on that ``is_awaited``; None without one."""
        if self.cut_at is None:
            return None
        hole = next(self.branch.holes(max(offset, self.cut_at), self.high_watermark or 0), None)
        return None if hole is None else hole.start

    def remote_segment(self, offset: int) -> RemoteLogSegmentMetadata | None:
        """Return the readable segment that holds ``offset`` in the epoch that wrote the offset."""
        return self.branch.segment_for(offset)

    def readable_end(self, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
        """Return the exclusive end of our own branch in a segment, from ``offset`` on; see ``OwnBranch``."""
        return self.branch.readable_end(metadata, offset)

    def next_indexed_segment(self, offset: int) -> ReadableRange | None:
        """Return the first segment from ``offset`` on that may name aborted transactions (remote-tiering 14.4).

        Another branch of the log may have written segments, or ends of segments, under one of our epochs: a broker that
        lost its end, or another leader, wrote their offsets again. Such segments do not count. A hole ends nothing: a
        marker behind it may decide about records before it.
        """
        readable = self.branch.readable_ranges(offset, min(self.remote_end_offset, self.branch.indexed_end_offset))
        return next((part for part in readable if not part.metadata.txn_index_empty), None)

    def hole_from(self, offset: int) -> int | None:
        """Return the first offset from ``offset`` on in neither place, before the end of the log; None without one."""
        return self.branch.hole_from(offset, local_start=self.local_start_offset, local_end=self.local_end_offset)

    def next_available(self, offset: int) -> int | None:
        """Return the first offset after a hole at ``offset``; None when no offset follows."""
        found = (self.branch.next_answered(offset), self.local_start_offset)
        return min((start for start in found if start is not None and start > offset), default=None)

    def require_readable(self, offset: int) -> None:
        """Check that ``offset`` lies between log start and end, the end included.

        Raises:
            OffsetOutOfRangeError: ``offset`` is below the log start or above the end.
        """
        if not self.log_start_offset <= offset <= max(self.end_offset, self.log_start_offset):
            raise OffsetOutOfRangeError(
                f"{self.partition}: offset {offset} is out of range [{self.log_start_offset}, {self.end_offset})",
                remedy=f"read from {self.log_start_offset} on, or ask tierd explain {self.partition} {offset}",
            )

    def is_held(self, offset: int) -> bool:
        """Return True if tierd holds a segment with ``offset`` on this host, so that it is copied later."""
        return any(each.start <= offset <= each.end for each in self.held)

    def missing(self, offset: int) -> OffsetOutOfRangeError:
        """Return the error for an offset inside the log that no reader finds in the local log or in the tier."""
        if self.is_awaited(offset):
            return OffsetOutOfRangeError(
                f"{self.partition}: offset {offset} is not in the tier, and the files of the local log end at "
                f"{self.cut_at}, below the high watermark {self.high_watermark}",
                remedy="start the broker: it gets the records back from another replica, or cuts its log back for "
                f"good; a read that ends below offset {offset} gets the records before it",
            )
        following = self.next_available(offset)
        remedy = "nothing follows it" if following is None else f"the next readable offset is {following}"
        if self.is_held(offset):
            return OffsetOutOfRangeError(
                f"{self.partition}: offset {offset} is not in the tier yet, and the broker has deleted its file; tierd "
                "holds its segment and copies it",
                remedy=f"{remedy}; tierd status says what the copy waits for",
            )
        return OffsetOutOfRangeError(
            f"{self.partition}: offset {offset} is in neither tier: no copy of it and no file of the broker's is there",
            remedy=f"{remedy}; tierd status says whether a segment still waits to be copied, tierd verify "
            f"{self.partition} what is missing",
        )
