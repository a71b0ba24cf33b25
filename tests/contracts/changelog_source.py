"""Promises of every ``ChangelogSource`` (changelog-restore 3.2). Provide the fixtures ``source`` and ``partition``.

The source has the changelog ``partition`` with the offsets 0 to 9, nothing else. The record at n has the key ``k<n>``
and the value ``v<n>``. A batch has at most five records; none is transactional. No consumer group has read them.
"""

import pytest

from tierd.errors import UnknownPartitionError
from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.changelog.changelog_errors import ChangelogRangeError
from tierd.restore.changelog.changelog_source import ChangelogRecords, ChangelogSource, ReadResult

LEVELS = pytest.mark.parametrize("isolation", IsolationLevel)
UNKNOWN = TopicPartition("unknown", 0)


async def read(source: ChangelogSource, partition: TopicPartition, offset: int, *, max_bytes: int) -> ReadResult:
    return await source.read(partition, offset, max_bytes=max_bytes, isolation=IsolationLevel.READ_UNCOMMITTED)


class ChangelogSourceContract:
    async def test_bounds_are_the_log_start_and_the_exclusive_end(
        self, source: ChangelogSource, partition: TopicPartition
    ) -> None:
        assert await source.earliest_offset(partition) == 0
        for isolation in IsolationLevel:
            assert await source.end_offset(partition, isolation) == 10

    async def test_partitions_are_listed(self, source: ChangelogSource, partition: TopicPartition) -> None:
        assert partition in await source.list_partitions()
        assert UNKNOWN not in await source.list_partitions()

    async def test_identity_is_the_same_each_time(self, source: ChangelogSource, partition: TopicPartition) -> None:
        assert await source.identity(partition) == await source.identity(partition)

    async def test_group_without_commits_has_no_committed_offset(
        self, source: ChangelogSource, partition: TopicPartition
    ) -> None:
        assert await source.committed_offset("never-seen", partition) is None

    @LEVELS
    @pytest.mark.parametrize("offset", range(10))
    async def test_read_from_any_offset_returns_the_records_from_there_to_the_end(
        self, source: ChangelogSource, partition: TopicPartition, offset: int, isolation: IsolationLevel
    ) -> None:
        result = await source.read(partition, offset, max_bytes=1 << 20, isolation=isolation)
        assert result.records.offsets == list(range(offset, 10))
        assert result.records.keys == [b"k%d" % number for number in range(offset, 10)]
        assert result.records.values == [b"v%d" % number for number in range(offset, 10)]
        assert (result.next_offset, result.at_end) == (10, True)
        assert 0 <= result.remote_bytes <= result.size_bytes
        assert len(list(result.records)) == 10 - offset  # every column is as long as the others
        encoded = await source.read(partition, offset, max_bytes=1 << 20, isolation=isolation, is_encoded=True)
        assert list(encoded.records) == list(result.records)
        assert (len(encoded.records), encoded.next_offset) == (10 - offset, 10)
        assert (encoded.records.first_offset, encoded.records.last_offset) == (offset, 9)

    async def test_small_reads_make_progress_and_return_every_record_once(
        self, source: ChangelogSource, partition: TopicPartition
    ) -> None:
        position, found = 0, ChangelogRecords()
        while position < 10:
            result = await read(source, partition, position, max_bytes=1)
            assert result.next_offset > position
            found.extend(result.records)
            position = result.next_offset
        assert found.offsets == list(range(10))

    async def test_read_at_the_end_returns_nothing_at_once(
        self, source: ChangelogSource, partition: TopicPartition
    ) -> None:
        result = await read(source, partition, 10, max_bytes=1000)
        assert (len(result.records), result.next_offset, result.at_end) == (0, 10, True)

    @LEVELS
    @pytest.mark.parametrize("offset", [11, 1000])
    async def test_read_beyond_the_end_is_out_of_range(
        self, source: ChangelogSource, partition: TopicPartition, offset: int, isolation: IsolationLevel
    ) -> None:
        with pytest.raises(ChangelogRangeError) as caught:
            await source.read(partition, offset, max_bytes=1000, isolation=isolation)
        error = caught.value
        assert (error.partition, error.offset, error.earliest_offset, error.end_offset) == (partition, offset, 0, 10)

    async def test_unknown_partition_is_an_error_of_every_call(self, source: ChangelogSource) -> None:
        for call in (
            source.identity(UNKNOWN),
            source.earliest_offset(UNKNOWN),
            source.end_offset(UNKNOWN, IsolationLevel.READ_COMMITTED),
            read(source, UNKNOWN, 0, max_bytes=1000),
        ):
            with pytest.raises(UnknownPartitionError):
                await call
