"""Consumption of a served log as by a client: whole batches of each answer, without markers and aborted records."""

import asyncio
from collections.abc import AsyncIterator

from tests.contracts.served_log import content_of
from tierd.log import Record, committed_batches, data_batches, iter_batches
from tierd.model import IsolationLevel
from tierd.serve.kafka.served.served_log import LogRead, ServedLog

WAIT_S = 20.0
COMMITTED, UNCOMMITTED = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED


async def read(
    log: ServedLog,
    offset: int,
    *,
    max_bytes: int = 1 << 20,
    isolation: IsolationLevel = UNCOMMITTED,
    at_least_one: bool = True,
) -> LogRead:
    """Read once, and again while the tier has not answered."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await log.read(
                offset, max_bytes=max_bytes, isolation=isolation, at_least_one=at_least_one, max_wait_s=WAIT_S
            )
            if not found.is_pending:
                return found


async def consumed(
    log: ServedLog, isolation: IsolationLevel, *, max_bytes: int = 1 << 20, start: int | None = None
) -> AsyncIterator[Record]:
    """Yield what a consumer gets from the log start, or ``start``, to the end."""
    offset = (await log.bounds()).log_start_offset if start is None else start
    while True:
        found = await read(log, offset, max_bytes=max_bytes, isolation=isolation)
        batches = list(iter_batches(content_of(found), name="answer"))
        if not batches:
            return
        wanted = committed_batches(batches, found.aborted) if isolation is COMMITTED else data_batches(batches)
        for batch in wanted:
            for record in batch.records():
                if record.offset >= offset:
                    yield record
        assert batches[-1].last_offset >= offset, "an answer brings its reader forward"
        offset = batches[-1].last_offset + 1


async def offsets(log: ServedLog, isolation: IsolationLevel = UNCOMMITTED, *, start: int | None = None) -> list[int]:
    """Return the offsets of the records that a consumer gets."""
    return [record.offset async for record in consumed(log, isolation, start=start)]
