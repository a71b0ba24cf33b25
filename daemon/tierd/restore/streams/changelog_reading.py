"""changelog_reader: the committed records of a changelog, from any source, for ``restore_streams_store``."""

from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.changelog.changelog_errors import ChangelogRangeError, CorruptSourceError
from tierd.restore.changelog.changelog_source import ChangelogRecords, ChangelogSource, ReadResult
from tierd.restore.streams.streams_restore import ReadChangelog
from tierd.tasks import one_ahead

READ_BYTES: Final = 8 << 20
"""Bytes of the log to read at a time; each read waits several times for the interpreter while tables are written."""


def changelog_reader(
    source: ChangelogSource,
    partition: TopicPartition,
    *,
    report: Callable[[int], None],
    read_bytes: int = READ_BYTES,
) -> ReadChangelog:
    """Return a function that reads ``partition`` up to the last stable offset as it was when the function was called.

    Records of aborted transactions are left out. What follows the last stable offset is the tail that Streams restores
    itself. One read runs ahead of the records that the caller works on.

    Args:
        source: has the changelog.
        partition: the changelog.
        report: is called with the number of records of each batch.
        read_bytes: bytes of the log to read at a time.
    """

    async def read(start_offset: int | None) -> AsyncGenerator[ChangelogRecords]:
        end = await source.end_offset(partition, IsolationLevel.READ_COMMITTED)
        earliest = await source.earliest_offset(partition)
        offset = earliest if start_offset is None else start_offset
        if offset > end:
            raise ChangelogRangeError(partition, offset=offset, earliest_offset=earliest, end_offset=end)
        if offset == end:
            return
        results = one_ahead(_results(source, partition, offset, end, read_bytes), name=f"read {partition}")
        async with aclosing(results):
            async for result in results:
                records = result.records
                if len(records) and records.last_offset >= end:
                    records = records.part(0, bisect_left(records.offsets, end))
                if len(records):
                    report(len(records))
                    yield records

    return read


async def _results(
    source: ChangelogSource, partition: TopicPartition, offset: int, end_offset: int, read_bytes: int
) -> AsyncGenerator[ReadResult, None]:
    """Yield what reads give from ``offset`` on, up to the one that reaches ``end_offset``."""
    while True:
        result = await source.read(
            partition, offset, max_bytes=read_bytes, isolation=IsolationLevel.READ_COMMITTED, is_encoded=True
        )
        is_last = result.at_end or result.next_offset >= end_offset
        if result.next_offset <= offset and not is_last:
            raise CorruptSourceError(partition, f"a read at offset {offset} went no further and was not at the end")
        yield result
        if is_last:
            return
        offset = result.next_offset
