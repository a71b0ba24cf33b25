"""Begin and end of the tier for one log, by metadata and directory (remote-tiering 10.2, 10.3)."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from tierd.errors import LogError
from tierd.log import PartitionScan, find_log_end_offset
from tierd.metadata import OwnBranch, PartitionView, TierEpochs, effective_lineage
from tierd.model import Lineage, OffsetRange, RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.tiering.copy_plan import (
    NOTHING_COPIED,
    CopiedThrough,
    highest_copied,
    initial_log_start_offset,
    local_log_start,
)
from tierd.tiering.local.broker_state import BrokerOffsets
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.removing.ledger import DeleteReason

log = structlog.get_logger()

_ANY_END: Final = (1 << 63) - 1


async def find_frontier(tier: TierEpochs, scan: PartitionScan, *, is_compacted: bool) -> CopiedThrough:
    """Return what of the log that was scanned is in the tier, along its own lineage.

    A broker that moves a compacted replica to another log dir appends what is left of its records to a new log, whose
    active segment may begin far below what was copied. Then the batches of that segment say how far the log reaches.
    """
    found = frontier(tier, scan)
    if not is_compacted or found == frontier(tier, scan, log_end_offset=_ANY_END):
        return found
    try:
        log_end_offset = await asyncio.to_thread(find_log_end_offset, scan)
    except LogError as error:
        log.warning("log_end_not_found", partition=str(scan.directory.partition), problem=str(error))
        return found
    return frontier(tier, scan, log_end_offset=log_end_offset)


def frontier(tier: TierEpochs, scan: PartitionScan, *, log_end_offset: int | None = None) -> CopiedThrough:
    """Return what of the log that was scanned is in the tier, along its own lineage.

    ``log_end_offset``: exclusive; by default the base of the active segment, an offset that the log surely reaches.
    """
    reached = scan.segments[-1].base_offset if scan.segments else 0
    return highest_copied(
        effective_lineage(tier, scan.lineage),
        tier.copied_offset_for_epoch,
        log_end_offset=reached if log_end_offset is None else log_end_offset,
    )


def abandoned_epochs(view: PartitionView, local: Lineage) -> tuple[int, ...]:
    """Return the epochs of the tier that are of a branch which the log has abandoned, as its own epochs prove.

    A broker forgets the epochs below its log start, and a host without a replica knows none: the tier alone would then
    give the offsets of such an epoch to it, although another epoch of the log has them.

    Args:
        view: the rows of the tier.
        local: the leader epochs of the log; between its first and its last one it has all.
    """
    first, latest = local.earliest, local.latest
    if first is None or latest is None or latest.epoch - first.epoch < len(local.entries):
        return ()
    known = {entry.epoch for entry in local.entries}
    return tuple(sorted(e for e in view.first_offsets() if first.epoch < e < latest.epoch and e not in known))


def is_cut_below_compaction(view: PartitionView, copied: CopiedThrough) -> bool:
    """Return whether the log has lost records that compaction has used, so that the tier may lack older ones.

    A compaction removes a record whose key has a later one. Where the log is cut back below the later one, as by an
    unclean election, readers find neither of them in the tier.

    Args:
        view: the rows of the tier.
        copied: the frontier, found with the end of the log.
    """
    compacted_to = view.compacted_to
    if compacted_to is None or copied.offset + 1 >= compacted_to:
        return False
    return any(
        metadata.end_offset > copied.offset and metadata.start_offset < compacted_to and _was_of_the_log(metadata)
        for metadata in view.list()
    )


def _was_of_the_log(metadata: RemoteLogSegmentMetadata) -> bool:
    """Return whether a segment was read until the log lost its records, or is read still."""
    if metadata.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED:
        return True
    return metadata.soft_delete is not None and metadata.soft_delete.reason == DeleteReason.DIVERGED


def first_log_start(view: PartitionView, scan: PartitionScan, offsets: BrokerOffsets) -> int:
    """Return the start of the total log of a partition whose log start no leader has stored yet."""
    local = local_log_start(scan.segments, checkpointed=offsets.log_start_offset) if scan.segments else None
    return initial_log_start_offset(
        effective_lineage(view, scan.lineage), view.list_epoch, local_log_start_offset=local
    )


def holes(
    view: PartitionView,
    scan: PartitionScan,
    offsets: BrokerOffsets,
    *,
    log_start_offset: int,
    copied_through: int,
    held: Iterable[HeldSegment] = (),
) -> tuple[OffsetRange, ...]:
    """Return the offsets below the frontier that this host has and no reader finds in the tier, ascending.

    A segment that was copied and whose metadata is lost leaves such a hole, for example where a rebuild found its
    manifest damaged. The local log has the records from its own log start on, and its leader epochs reach as far down.
    Below that, ``held`` segments have what an earlier leader had lost before it was copied.
    """
    if not scan.segments or scan.lineage.earliest is None:
        return ()
    local = local_log_start(scan.segments, checkpointed=offsets.log_start_offset)
    at, end = max(log_start_offset, local, scan.lineage.earliest.start_offset), copied_through + 1
    end = min(end, scan.segments[-1].base_offset)  # the active segment is copied once it is rolled
    below = held_holes(view, scan, held, log_start_offset=log_start_offset, below=min(at, copied_through + 1))
    return (*below, *OwnBranch(view, effective_lineage(view, scan.lineage)).holes(at, end))


def held_holes(
    view: PartitionView, scan: PartitionScan, held: Iterable[HeldSegment], *, log_start_offset: int, below: int
) -> tuple[OffsetRange, ...]:
    """Return the offsets of ``held`` segments that no reader finds in the tier, from the log start up to ``below``."""
    branch = OwnBranch(view, effective_lineage(view, scan.lineage))
    return tuple(
        hole
        for each in held
        for hole in branch.holes(max(each.base_offset, log_start_offset), min(each.next_base_offset, below))
    )


def copied_without_hole(
    copied: CopiedThrough, found: Sequence[OffsetRange], scan: PartitionScan, *, log_start_offset: int
) -> CopiedThrough:
    """Return how far the tier goes without a hole that the log may have to fill.

    Args:
        copied: the frontier.
        found: the holes below it, ascending.
        scan: the scan of the log, which has lost all below its first segment.
        log_start_offset: the start of the total log; nothing below it is wanted.
    """
    wanted = max(log_start_offset, scan.segments[0].base_offset if scan.segments else 0)
    first = next((hole for hole in found if hole.end >= wanted), None)
    if first is None or first.start > copied.offset:
        return copied
    epoch = scan.lineage.epoch_for(first.start - 1)
    return NOTHING_COPIED if epoch is None else CopiedThrough(first.start - 1, epoch)


def began_anew_at(scan: PartitionScan, offsets: BrokerOffsets, *, log_start_offset: int) -> int | None:
    """Return the begin of a log that ends below the tier's log start; None for any other log.

    The disk of such a log was replaced, or an unclean election cut the log. Until the log had grown beyond that start,
    its segments would be copied and no consumer could read them.
    """
    if offsets.high_watermark is None or not scan.segments:
        return None
    reached = max(offsets.high_watermark, scan.segments[-1].base_offset)
    return scan.segments[0].base_offset if reached < log_start_offset else None


async def ends_below(scan: PartitionScan, offset: int) -> bool:
    """Return whether the batches of the log end below ``offset``; False where their end cannot be found.

    Every log that is in sync has all offsets up to the log start. The high watermark that its broker wrote last may lie
    below: a broker writes it every few seconds, and a new leader takes over the log start that records were deleted to.
    """
    try:
        return await asyncio.to_thread(find_log_end_offset, scan) < offset
    except LogError as error:
        log.warning("log_end_not_found", partition=str(scan.directory.partition), problem=str(error))
        return False
