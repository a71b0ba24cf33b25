"""``tierd offsets`` and ``tierd explain``: named offsets, points in time, and the place of one record."""

import asyncio
import contextlib

import structlog

from tierd.app.engine.deployment import Deployment
from tierd.app.engine.row_reader import Located
from tierd.app.engine.tier_reader import TierReader, tier_reader
from tierd.errors import TierError
from tierd.log import find_log_end_offset, last_stable_offset
from tierd.model import IsolationLevel, TimestampOffset, TopicPartition
from tierd.tiering import Explanation, FetchTask, OffsetSpec, Tier, TieredLog, explain

log = structlog.get_logger()


async def list_offsets(
    deployment: Deployment, name: TopicPartition, *, timestamp_ms: int | None
) -> dict[str, TimestampOffset | None]:
    """Return the named offsets of a partition; with ``timestamp_ms`` also ``time``, the first record not older than it.

    Raises:
        UnknownPartitionError: neither a log dir nor the metadata knows the name.
        TierError: a log or a store cannot be read.
    """
    asked: dict[str, int] = {
        "earliest": OffsetSpec.EARLIEST,
        "local": OffsetSpec.EARLIEST_LOCAL,
        "tiered": OffsetSpec.LATEST_TIERED,
        "pending": OffsetSpec.EARLIEST_PENDING_UPLOAD,
        "latest": OffsetSpec.LATEST,
    }
    if timestamp_ms is not None:
        asked["time"] = timestamp_ms
    async with tier_reader(deployment) as reader:
        task = reader.fetch_task(await reader.locate(name))
        return {which: await found_offset(reader, task, spec) for which, spec in asked.items()}


async def found_offset(reader: TierReader, task: FetchTask, timestamp_ms: int) -> TimestampOffset | None:
    """Return the first record no older than ``timestamp_ms``, or the place of an ``OffsetSpec``, within a deadline.

    Raises:
        TierError: a log or a store cannot be read, or the search took too long.
    """
    found = await reader.fetches.list_offset(task, timestamp_ms)
    if isinstance(found, TierError):
        raise found
    return found


async def explain_offset(reader: TierReader, located: Located, offset: int) -> Explanation:
    """Explain where ``offset`` is, and why.

    Raises:
        LogError: the local log cannot be read.
    """
    tiered = await reader.tiered_log(located)
    stable = end = tiered.remote_end_offset
    if tiered.scan is not None and tiered.high_watermark is not None:
        stable = await asyncio.to_thread(last_stable_offset, tiered.scan, high_watermark=tiered.high_watermark)
    if tiered.scan is not None:
        end = await asyncio.to_thread(find_log_end_offset, tiered.scan)
    return explain(
        tiered,
        offset,
        last_stable_offset=stable,
        log_end_offset=end,
        remote_key=reader.remote_key(tiered.remote_segment(offset)),
        next_record=await _next_record(reader, located, tiered, offset),
    )


async def _next_record(reader: TierReader, located: Located, tiered: TieredLog, offset: int) -> int | None:
    """Return the offset of the first record from ``offset`` on; the log end where there is none.

    The answer is None for an offset that is not remote, and where the store does not answer: the rest of the
    explanation needs no bytes.
    """
    if tiered.tier_of(offset) is Tier.LOCAL or not tiered.log_start_offset <= offset < tiered.end_offset:
        return None
    records = reader.fetch_task(located).records(offset, None, IsolationLevel.READ_UNCOMMITTED)
    try:
        async with contextlib.aclosing(records) as found:
            async for record in found:
                return record.offset
    except TierError as error:
        log.warning("offset_not_read", partition=str(located.partition), offset=offset, problem=str(error))
        return None
    return tiered.end_offset
