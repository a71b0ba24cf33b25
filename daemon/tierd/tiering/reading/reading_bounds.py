"""How far readers may go in a log, and whether it is still the one that they saw."""

import asyncio

from tierd.log import last_stable_offset
from tierd.model import RemoteLogSegmentMetadata
from tierd.tiering.reading.tiered_log import Isolation, Tier, TieredLog


def remote_end(log: TieredLog, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
    """Exclusive end of what is read of ``metadata`` from ``offset`` on; it may reach into the local log."""
    end, local_start = log.readable_end(metadata, offset), log.local_start_offset
    if local_start is not None and offset < local_start < end and log.tier_of(local_start) is Tier.LOCAL:
        return local_start
    return end


def is_replaced(before: TieredLog, after: TieredLog) -> bool:
    """Whether some segment that could be read was replaced or deleted meanwhile, so that its objects may be gone."""
    readable = {metadata.segment for metadata in after.finished}
    return any(metadata.segment not in readable for metadata in before.finished)


async def exclusive_end(log: TieredLog, isolation: Isolation) -> int:
    """Where a reader has to stop: the high watermark, or for committed reads the last stable offset.

    Raises:
        LogError: the local log cannot be read.
    """
    if isolation is Isolation.READ_UNCOMMITTED or log.scan is None or not log.scan.segments:
        return log.end_offset
    if log.high_watermark is None:
        return log.end_offset
    decided = await asyncio.to_thread(last_stable_offset, log.scan, high_watermark=log.high_watermark)
    return max(decided, log.remote_end_offset)  # only decided data is ever copied
