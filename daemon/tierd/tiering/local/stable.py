"""End of the committed and decided part of a log, found with little reading."""

import asyncio
from collections.abc import Sequence

from tierd.errors import TierError
from tierd.log import PartitionScan, last_stable_offset, read_producer_snapshot
from tierd.tiering.local.held_segment import HeldSegment, SegmentFile


async def stable_offset(due: Sequence[HeldSegment], scan: PartitionScan, high_watermark: int | None) -> int:
    """Return a bound below which every record is committed and decided; -1 when there is nothing to copy below it.

    The broker takes a producer snapshot at every roll: without an open transaction at the end of the last
    candidate, the last stable offset lies at or above that end, and no batch has to be read.
    """
    below = [held for held in due if high_watermark is not None and held.next_base_offset <= high_watermark]
    if not below or high_watermark is None:
        return -1
    newest = below[-1]
    if await asyncio.to_thread(_without_open_transaction, newest):
        return newest.next_base_offset
    return await asyncio.to_thread(last_stable_offset, scan, high_watermark=high_watermark)


def _without_open_transaction(held: HeldSegment) -> bool:
    path = held.path(SegmentFile.PRODUCER_SNAPSHOT)
    if path is None:
        return False
    try:
        entries = read_producer_snapshot(path)
    except (TierError, OSError):
        return False  # the long way finds out; the copy itself reports what is wrong with it
    return all(entry.current_txn_first_offset < 0 for entry in entries)
