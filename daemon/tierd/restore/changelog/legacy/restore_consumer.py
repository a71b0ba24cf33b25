"""RestoreConsumer: a source in the shape of the consumer that the old reader has: assigned, sought, polled (1.1)."""

import asyncio
from collections.abc import Collection, Iterable

import structlog

from tierd.clock import Clock
from tierd.errors import TierError, UnknownPartitionError
from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.changelog.changelog_errors import ChangelogRangeError, InvalidOffsetsError, SourceUnavailableError
from tierd.restore.changelog.changelog_source import ChangelogRecords, ChangelogSource, ReadResult

log = structlog.get_logger()


class RestoreConsumer:
    """Positions in the changelogs of a source. It has no group, and nothing is reset by itself.

    One poll reads about ``fetch_bytes``, and of one changelog ``partition_bytes``.

    Attributes:
        assignment: the changelogs that ``poll`` reads.
        subscription: topics that a client of the source has subscribed to; the reader refuses such a client.
    """

    def __init__(
        self,
        source: ChangelogSource,
        *,
        clock: Clock,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        fetch_bytes: int = 50 << 20,
        partition_bytes: int = 1 << 20,
        subscription: Collection[str] = (),
    ) -> None:
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.subscription = frozenset(subscription)
        self._source = source
        self._clock = clock
        self._isolation = isolation
        self._fetch_bytes = fetch_bytes
        self._partition_bytes = partition_bytes
        self._positions: dict[TopicPartition, int | None] = {}  # None: the beginning, not looked up yet

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assignment; changelogs that stay keep their positions."""
        self.assignment = frozenset(partitions)
        self._positions = {each: self._positions.get(each) for each in self.assignment}

    def unsubscribe(self) -> None:
        """Give up the assignment."""
        self.assign(())

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move the position of an assigned changelog."""
        self._positions[partition] = offset

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        """Move the positions of assigned changelogs to their beginnings."""
        for partition in partitions:
            self._positions[partition] = None

    async def position(self, partition: TopicPartition) -> int:
        """Return the next offset that is read.

        Raises:
            SourceUnavailableError: the beginning cannot be looked up now.
        """
        position = self._positions[partition]
        if position is None:
            position = self._positions[partition] = await self._source.earliest_offset(partition)
        return position

    async def list_topics(self) -> dict[str, frozenset[TopicPartition]]:
        """Return the partitions of every topic.

        Raises:
            SourceUnavailableError: the source does not answer now.
        """
        topics: dict[str, set[TopicPartition]] = {}
        for partition in await self._source.list_partitions():
            topics.setdefault(partition.topic, set()).add(partition)
        return {topic: frozenset(partitions) for topic, partitions in topics.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the exclusive ends of the changelogs, without those that the source does not know.

        Raises:
            SourceUnavailableError: one of them cannot be told now.
        """
        ends = {}
        for partition in sorted(partitions):
            try:
                ends[partition] = await self._source.end_offset(partition, self._isolation)
            except UnknownPartitionError as error:
                log.debug("changelog_unknown", partition=str(partition), error=str(error))
        return ends

    async def poll(self, timeout_s: float) -> dict[TopicPartition, ChangelogRecords]:
        """Read once from every assigned changelog, at the same time; wait ``timeout_s`` if nothing is there.

        A changelog whose source does not answer has no records this time.

        Raises:
            InvalidOffsetsError: positions lie outside their changelogs; no position was moved.
            CorruptSourceError: a changelog is damaged; no position was moved.
        """
        polled = sorted(self.assignment)
        max_bytes = min(self._partition_bytes, self._fetch_bytes // max(len(polled), 1))
        reads = await asyncio.gather(*(self._read(partition, max_bytes) for partition in polled))
        for read in reads:
            if isinstance(read, TierError) and not isinstance(read, ChangelogRangeError | SourceUnavailableError):
                raise read
        invalid = [read for read in reads if isinstance(read, ChangelogRangeError)]
        if invalid:
            raise InvalidOffsetsError(invalid)
        records, has_moved = {}, False
        for partition, read in zip(polled, reads, strict=True):
            if isinstance(read, ReadResult):
                has_moved = has_moved or read.next_offset != self._positions[partition]
                self._positions[partition] = read.next_offset
                records[partition] = read.records
        if not has_moved:
            await self._clock.sleep(timeout_s)
        return records

    async def _read(self, partition: TopicPartition, max_bytes: int) -> ReadResult | TierError:
        try:
            position = await self.position(partition)
            return await self._source.read(partition, position, max_bytes=max_bytes, isolation=self._isolation)
        except SourceUnavailableError as error:
            log.warning("changelog_not_read", partition=str(partition), error=str(error))
            return error
        except TierError as error:
            return error
