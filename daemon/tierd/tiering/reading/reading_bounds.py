"""The bounds of a reader in a log, and repetition of a read on segments that were replaced."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tierd.errors import RemoteResourceNotFoundError
from tierd.log import LocalLog, last_stable_offset
from tierd.model import IsolationLevel, RemoteLogSegmentMetadata
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.tiered_log import Tier, TieredLog

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadingBounds:
    """The bounds of one reader. Both are exclusive.

    Attributes:
        end_offset: end of the read: the high watermark, or for committed reads the last stable offset.
        local_stable_offset: end of the offsets of which the local log knows every abort; the tier knows those behind.
    """

    end_offset: int
    local_stable_offset: int


def remote_end(log: TieredLog, metadata: RemoteLogSegmentMetadata, offset: int) -> int:
    """Return the exclusive end of a read of a segment from ``offset`` on. The end may lie in the local log."""
    end, local_start = log.readable_end(metadata, offset), log.local_start_offset
    if local_start is not None and offset < local_start < end and log.tier_of(local_start) is Tier.LOCAL:
        return local_start
    return end


def is_replaced(before: TieredLog, after: TieredLog) -> bool:
    """Return true if a readable segment of ``before`` is not readable in ``after``, so that its objects may be gone."""
    readable = {metadata.segment for metadata in after.finished}
    return any(metadata.segment not in readable for metadata in before.finished)


async def reading_bounds(log: TieredLog, isolation: IsolationLevel, indexes: RemoteIndexes) -> ReadingBounds:
    """Return the bounds of a reader.

    Only decided records are copied, but the marker that decided them may lie behind the end of the tier. The local log
    may be missing, or may end before the tier. Then the last stable offset of the tier counts: below it the transaction
    indexes in the tier tell every abort.

    Raises:
        LogError: the local log cannot be read.
        RemoteStorageError: the transactions that are open at the end of the tier are not known.
    """
    if isolation is IsolationLevel.READ_UNCOMMITTED:
        return ReadingBounds(log.end_offset, log.end_offset)
    local = await _local_stable_offset(log)
    if local >= log.remote_end_offset:
        return ReadingBounds(local, local)
    last = log.last_whole_segment
    remote = 0 if last is None else await indexes.stable_end(last)
    return ReadingBounds(max(local, remote, log.log_start_offset), local)


def local_log_of(log: TieredLog, bounds: ReadingBounds) -> LocalLog | None:
    """Return the local part of ``log``; None without committed local records."""
    if log.scan is None or not log.scan.segments or log.high_watermark is None:
        return None
    return LocalLog(log.scan, high_watermark=log.local_end_offset, last_stable_offset=bounds.local_stable_offset)


async def on_current(
    log: TieredLog, snapshot: Callable[[], Awaitable[TieredLog]], act: Callable[[TieredLog], Awaitable[T]]
) -> T:
    """Act on ``log``, and again on a new snapshot when segments were replaced and their objects are gone.

    Raises:
        RemoteResourceNotFoundError: objects are gone although the metadata still lists them.
    """
    while True:
        try:
            return await act(log)
        except RemoteResourceNotFoundError:
            fresh = await snapshot()
            if not is_replaced(log, fresh):
                raise
            log = fresh


async def _local_stable_offset(log: TieredLog) -> int:
    """Return the last stable offset of the local log below its end; 0 without committed records.

    A producer snapshot behind the end of a log that was cut back does not count: the markers that it knows of are gone,
    and the transaction indexes of the tier tell the aborts.
    """
    if log.scan is None or not log.scan.segments or log.high_watermark is None:
        return 0
    stable = log.local_stable_offset
    if stable is None:
        stable = await asyncio.to_thread(
            last_stable_offset, log.scan, high_watermark=log.local_end_offset, log_start_offset=log.log_start_offset
        )
    return min(stable, log.local_end_offset)
