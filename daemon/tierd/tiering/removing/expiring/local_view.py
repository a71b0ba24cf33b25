"""LocalLogView: the local log as expiration sees it, and the report of a raised log start."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from tierd.log import PartitionScan, SegmentFiles, data_bytes
from tierd.model import TopicIdPartition
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.removing.expiring.branch_segments import LocalSegment
from tierd.tiering.removing.expiring.partition_expiration import LocalFacts


class LocalLogView(Protocol):
    """Local log of one partition."""

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition of the log."""

    async def facts(self, *, sizes: bool) -> LocalFacts:
        """Return the facts about the log; with ``sizes`` also the sizes of its segments.

        Raises:
            TierError: the log cannot be read now.
        """

    async def raise_log_start(self, offset: int) -> None:
        """Take note, durably, that nothing below ``offset`` is read any more.

        Raises:
            TierError: the log refuses it, or its disk has failed.
        """


class ReplicaLogView:
    """Replica in the partition's directory, a broker's or tierd's own."""

    def __init__(self, local: PartitionLog, offsets: LogOffsets) -> None:
        self._local = local
        self._offsets = offsets

    @property
    def partition(self) -> TopicIdPartition:
        """Return the partition of the log."""
        return self._local.partition

    async def facts(self, *, sizes: bool) -> LocalFacts:
        """Return the facts as last scanned; the end is the high watermark, or the active segment's base if higher."""
        offsets = await self._offsets.offsets(self._local.log_dir, self.partition)
        return await facts_of(self._local.scan, offsets.high_watermark, sizes=sizes)

    async def raise_log_start(self, offset: int) -> None:
        """Raise the log start of a log that tierd owns; a broker's log start is the broker's own."""
        await self._offsets.raise_log_start(self._local.log_dir, self.partition, offset)


async def facts_of(scan: PartitionScan, high_watermark: int | None, *, sizes: bool) -> LocalFacts:
    """Return the facts about a log from a scan of its directory and its high watermark.

    Without sizes they have the active segment alone: a plan asks the others for nothing but their sizes.
    """
    segments = await asyncio.to_thread(_sized, scan.segments) if sizes else _unsized(scan.segments[-1:])
    reached = segments[-1].base_offset if segments else 0
    return LocalFacts(scan.lineage, max(reached, high_watermark or 0), high_watermark, segments)


def _unsized(segments: Sequence[SegmentFiles]) -> tuple[LocalSegment, ...]:
    return tuple(LocalSegment(s.base_offset, s.next_base_offset, 0) for s in segments)


def _sized(segments: Sequence[SegmentFiles]) -> tuple[LocalSegment, ...]:
    return tuple(LocalSegment(s.base_offset, s.next_base_offset, data_bytes(s)) for s in segments)
