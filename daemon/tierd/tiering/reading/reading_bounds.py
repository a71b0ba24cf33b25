"""How far readers may go in a log, and whether it is still the one that they saw."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tierd.errors import RemoteResourceNotFoundError
from tierd.log import last_stable_offset
from tierd.model import IsolationLevel, RemoteLogSegmentMetadata
from tierd.tiering.reading.remote_indexes import RemoteIndexes
from tierd.tiering.reading.tiered_log import Tier, TieredLog

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadingBounds:
    """How far one reader may go. Both are exclusive.

    Attributes:
        end_offset: where it has to stop: the high watermark, or for committed reads the last stable offset.
        local_stable_offset: up to where the local log knows of every abort; what lies behind it, the tier knows.
    """

    end_offset: int
    local_stable_offset: int


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


async def reading_bounds(log: TieredLog, isolation: IsolationLevel, indexes: RemoteIndexes) -> ReadingBounds:
    """Say where a reader has to stop.

    Only decided data is copied, but the marker that decided it may lie behind the tier's end. So where the local log
    does not decide all that is in the tier, being behind or not there, the tier's own last stable offset counts: up to
    it every abort is known from the transaction indexes in the tier.

    Raises:
        LogError: the local log cannot be read.
        RemoteStorageError: what is open at the end of the tier is not known.
    """
    if isolation is IsolationLevel.READ_UNCOMMITTED:
        return ReadingBounds(log.end_offset, log.end_offset)
    local = await _local_stable_offset(log)
    if local >= log.remote_end_offset:
        return ReadingBounds(local, local)
    last = log.last_whole_segment
    remote = 0 if last is None else await indexes.stable_end(last)
    return ReadingBounds(max(local, remote, log.log_start_offset), local)


async def on_current(
    log: TieredLog, snapshot: Callable[[], Awaitable[TieredLog]], act: Callable[[TieredLog], Awaitable[T]]
) -> T:
    """Act on ``log``, and anew on a fresh look when segments were replaced and are gone meanwhile.

    Raises:
        RemoteResourceNotFoundError: objects are gone of which the metadata says that they are there.
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
    """Of the local log, as far as it is known to be committed; 0 where nothing is."""
    if log.scan is None or not log.scan.segments or log.high_watermark is None:
        return 0
    return await asyncio.to_thread(
        last_stable_offset, log.scan, high_watermark=log.high_watermark, log_start_offset=log.log_start_offset
    )
