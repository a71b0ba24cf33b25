"""``tierd offsets`` and ``tierd explain``: named offsets, the offset of a time, and the place of an offset."""

import asyncio
import contextlib
from typing import TYPE_CHECKING

import structlog

from tierd.app.engine.row_reader import Located
from tierd.app.engine.tiered_log_reader import HostLogs, TieredLogReader, tiered_log_reader
from tierd.errors import TierError
from tierd.log import find_log_end_offset, last_stable_offset
from tierd.model import IsolationLevel, TimestampOffset, TopicPartition
from tierd.tiering import Explanation, OffsetSpec, Tier, TieredLog, explain, named_offset, search_timed_out

# The object store with its readers takes as long as the rest of the answer, and only a search for a time needs them,
# or the explanation of an offset that the tier alone has.
if TYPE_CHECKING:
    from tierd.tiering import FetchService, FetchTask

log = structlog.get_logger()

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
            from tierd.app.engine.host_caches import tier_reads  # noqa: PLC0415 - as above

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


async def explain_offset(host: HostLogs, name: TopicPartition, offset: int) -> Explanation:
    """Explain where ``offset`` is, and why. A record is read only where the tier alone has ``offset``.

    Args:
        host: the places of the metadata, the logs and the objects.
        name: the partition.
        offset: the offset of a record, which need not exist.

    Raises:
        ConfigError: cluster or node are not known.
        UnknownPartitionError: neither a log dir nor the metadata knows the name.
        TierError: the local log or the metadata cannot be read, or the object store cannot be opened.
    """
    async with tiered_log_reader(host) as logs:
        located = await logs.locate(name)
        tiered = await logs.tiered_log(located)
        stable = end = tiered.remote_end_offset
        if tiered.scan is not None and tiered.high_watermark is not None:
            stable = await asyncio.to_thread(last_stable_offset, tiered.scan, high_watermark=tiered.high_watermark)
        if tiered.scan is not None:
            end = await asyncio.to_thread(find_log_end_offset, tiered.scan)
        next_record = None
        if tiered.tier_of(offset) is Tier.REMOTE and tiered.log_start_offset <= offset < tiered.end_offset:
            next_record = await _next_record(host, logs, located, offset, end_offset=tiered.end_offset)
    return explain(
        tiered,
        offset,
        last_stable_offset=stable,
        log_end_offset=end,
        remote_key=logs.remote_key(tiered.remote_segment(offset)),
        next_record=next_record,
    )


async def _next_record(
    host: HostLogs, logs: TieredLogReader, located: Located, offset: int, *, end_offset: int
) -> int | None:
    """Return the offset of the first record from ``offset`` on; ``end_offset`` where there is none.

    The answer is None where the store does not answer: the rest of the explanation needs no bytes.
    """
    from tierd.app.engine.host_caches import tier_reads  # noqa: PLC0415 - most explanations need no record

    async with tier_reads(host) as fetches:
        task = fetches.task(lambda: logs.tiered_log(located))
        try:
            async with contextlib.aclosing(task.records(offset, None, IsolationLevel.READ_UNCOMMITTED)) as found:
                async for record in found:
                    return record.offset
        except TierError as error:
            log.warning("offset_not_read", partition=str(located.partition), offset=offset, problem=str(error))
            return None
    return end_offset
