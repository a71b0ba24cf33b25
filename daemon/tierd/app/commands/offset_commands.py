"""``tierd offsets``: named offsets, and the offset of a point in time."""

import asyncio
from typing import TYPE_CHECKING

from tierd.app.engine.row_reader import Located
from tierd.app.engine.tiered_log_reader import HostLogs, TieredLogReader, tiered_log_reader
from tierd.errors import TierError
from tierd.model import TimestampOffset, TopicPartition
from tierd.tiering import OffsetSpec, TieredLog, named_offset, search_timed_out

# The object store with its readers takes as long as the rest of the answer, and only a search for a time needs them.
if TYPE_CHECKING:
    from tierd.tiering import FetchService, FetchTask

_NAMED = {
    "earliest": OffsetSpec.EARLIEST,
    "local": OffsetSpec.EARLIEST_LOCAL,
    "tiered": OffsetSpec.LATEST_TIERED,
    "pending": OffsetSpec.EARLIEST_PENDING_UPLOAD,
    "latest": OffsetSpec.LATEST,
}


async def list_offsets(
    host: HostLogs, name: TopicPartition, *, timestamp_ms: int | None
) -> dict[str, TimestampOffset | None]:
    """Return the named offsets of a partition; with ``timestamp_ms`` also ``time``, the first record not older than it.

    Args:
        host: the place of the metadata and of the logs.
        name: the partition.
        timestamp_ms: None for the named offsets alone, which need no object of the tier.

    Raises:
        ConfigError: cluster or node are not known.
        UnknownPartitionError: neither a log dir nor the metadata knows the name.
        TierError: a log or a store cannot be read, or took too long.
    """
    async with tiered_log_reader(host) as logs:
        located = await logs.locate(name)
        tiered = await _within_limit(logs, located, limit_s=host.config.fetch.timestamp_timeout_s)
        found = {which: named_offset(tiered, spec) for which, spec in _NAMED.items()}
        if timestamp_ms is not None:
            from tierd.app.engine.tier_reads import tier_reads  # noqa: PLC0415 - as above

            async with tier_reads(host) as fetches:
                task = fetches.task(lambda: logs.tiered_log(located))
                found["time"] = await found_offset(fetches, task, timestamp_ms)
    return found


async def _within_limit(logs: TieredLogReader, located: Located, *, limit_s: float) -> TieredLog:
    try:
        async with asyncio.timeout(limit_s):
            return await logs.tiered_log(located)
    except TimeoutError as error:
        raise search_timed_out(OffsetSpec.EARLIEST, limit_s=limit_s) from error


async def found_offset(fetches: "FetchService", task: "FetchTask", timestamp_ms: int) -> TimestampOffset | None:
    """Return the first record no older than ``timestamp_ms``, or the place of an ``OffsetSpec``, within a deadline.

    Raises:
        TierError: a log or a store cannot be read, or the search took too long.
    """
    found = await fetches.list_offset(task, timestamp_ms)
    if isinstance(found, TierError):
        raise found
    return found
