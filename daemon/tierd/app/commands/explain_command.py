"""``tierd explain``: the place of one record, with a read of the tier only where the tier alone has its offset."""

import asyncio
import contextlib

import structlog

from tierd.app.engine.row_reader import Located
from tierd.app.engine.tiered_log_reader import HostLogs, TieredLogReader, tiered_log_reader
from tierd.errors import TierError
from tierd.log import find_log_end_offset, last_stable_offset
from tierd.model import IsolationLevel, TopicPartition
from tierd.tiering import Explanation, Tier, explain

log = structlog.get_logger()


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
    from tierd.app.engine.tier_reads import tier_reads  # noqa: PLC0415 - most explanations need no record

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
