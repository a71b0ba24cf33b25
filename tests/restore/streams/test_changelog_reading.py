import asyncio
from contextlib import aclosing

import pytest

from tests.restore.streams.states import IDENTITY, records
from tierd.log import Record
from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.changelog.changelog_errors import ChangelogRangeError, CorruptSourceError, SourceUnavailableError
from tierd.restore.changelog.changelog_source import ChangelogIdentity, ChangelogRecords, ReadResult
from tierd.restore.streams.changelog_reading import changelog_reader

CHANGELOG = TopicPartition("c", 0)
LOG = records(*((b"k", b"%d" % number, number) for number in range(20)))


class ListedSource:
    """Source of ten offsets a read; every third offset is a control batch, which has no record."""

    def __init__(self, *, end: int = 20, earliest: int = 0) -> None:
        self.earliest = earliest
        self.end = end
        self.reads: list[int] = []
        self.reported: list[int] = []
        self.active = 0

    async def list_partitions(self) -> frozenset[TopicPartition]:
        return frozenset((CHANGELOG,))

    async def identity(self, partition: TopicPartition) -> ChangelogIdentity:
        return IDENTITY

    async def earliest_offset(self, partition: TopicPartition) -> int:
        return self.earliest

    async def end_offset(self, partition: TopicPartition, isolation: IsolationLevel) -> int:
        assert isolation is IsolationLevel.READ_COMMITTED
        return self.end

    async def committed_offset(self, group: str, partition: TopicPartition) -> int | None:
        return None

    async def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        is_encoded: bool = False,
    ) -> ReadResult:
        assert isolation is IsolationLevel.READ_COMMITTED
        self.reads.append(offset)
        self.active += 1
        try:
            await asyncio.sleep(0)
            return self.result(offset)
        finally:
            self.active -= 1

    def result(self, offset: int) -> ReadResult:
        rows = [row for row in LOG if offset <= row.offset < offset + 10 and row.offset % 3]
        return ReadResult(
            records=ChangelogRecords.of(rows), next_offset=min(offset + 10, 20), size_bytes=10, at_end=offset >= 20
        )


async def read_all(source: ListedSource, start: int | None = None) -> list[Record]:
    async with aclosing(changelog_reader(source, CHANGELOG, report=source.reported.append)(start)) as batches:
        return [row async for batch in batches for row in batch]


def offsets(rows: list[Record]) -> list[int]:
    return [row.offset for row in rows]


async def test_records_come_in_order_up_to_the_end() -> None:
    source = ListedSource()

    assert offsets(await read_all(source)) == [offset for offset in range(20) if offset % 3]
    assert (source.reads, source.reported) == ([0, 10], [6, 7])


async def test_read_begins_at_the_log_start_or_where_it_is_told() -> None:
    assert (await read_all(ListedSource(earliest=4)))[0].offset == 4
    assert (await read_all(ListedSource(earliest=4), 11))[0].offset == 11


async def test_records_behind_the_last_stable_offset_are_left_out() -> None:
    source = ListedSource(end=5)

    assert offsets(await read_all(source)) == [1, 2, 4]
    assert source.reads == [0]


async def test_empty_changelog_and_one_read_to_its_end_give_nothing() -> None:
    assert await read_all(ListedSource(end=0)) == []
    assert await read_all(ListedSource(), 20) == []


async def test_offset_beyond_the_end_is_out_of_range() -> None:
    with pytest.raises(ChangelogRangeError, match=r"offset 21 is outside the changelog, which has \[0, 20\)"):
        await read_all(ListedSource(), 21)


async def test_source_that_stands_still_is_an_error() -> None:
    class Standing(ListedSource):
        def result(self, offset: int) -> ReadResult:
            return ReadResult(records=ChangelogRecords(), next_offset=offset, size_bytes=0, at_end=False)

    with pytest.raises(CorruptSourceError, match="went no further"):
        await read_all(Standing())


async def test_failure_of_a_read_ahead_reaches_the_caller() -> None:
    class Failing(ListedSource):
        def result(self, offset: int) -> ReadResult:
            if offset:
                raise SourceUnavailableError("the store is away")
            return super().result(offset)

    with pytest.raises(SourceUnavailableError, match="away"):
        await read_all(Failing())


async def test_read_ahead_ends_with_the_caller() -> None:
    source = ListedSource()
    async with aclosing(changelog_reader(source, CHANGELOG, report=source.reported.append)(None)) as batches:
        await anext(batches)

    assert (source.reads, source.active) == ([0], 0)
