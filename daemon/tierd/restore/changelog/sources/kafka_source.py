"""KafkaSource: changelogs of a live cluster, read over the Kafka protocol (changelog-restore 3.1)."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from tierd.control import LogBound, Request, TopicLeaders, committed_position, fetch, list_offsets
from tierd.errors import KafkaError, KafkaUnreachableError, SegmentChangedError, UnknownPartitionError
from tierd.log import AbortedTransaction, RecordBatch, iter_batches
from tierd.model import IsolationLevel, Lineage, TopicPartition
from tierd.restore.changelog.sources.partition_changelog import (
    ChangelogBounds,
    ChangelogPiece,
    IsCompacted,
    require_no_hole,
)
from tierd.restore.changelog.sources.partitioned_source import DeleteRetention, PartitionedSource, translated

A = TypeVar("A")

_MAX_WAIT_S: Final = 0.5
_OUT_OF_RANGE: Final = "offset_out_of_range"
_UNSTABLE: Final = "unstable_offset_commit"


class ChangelogBrokers(Protocol):
    """Brokers of the cluster that has the changelogs, such as ``TargetCluster``.

    Raises, from every call:
        KafkaError: no broker answers.
    """

    async def leaders(self, topics: Collection[str]) -> Mapping[str, TopicLeaders]:
        """Return the leaders of those ``topics`` that exist."""

    async def ask_leader(self, name: TopicPartition, request: Request[A]) -> A:
        """Ask the present leader of a partition."""

    async def ask_coordinator(self, group: str, request: Request[A]) -> A:
        """Ask the present coordinator of a group."""

    async def patiently(self, call: Callable[[], Awaitable[A]], error_of: Callable[[A], str]) -> A:
        """Repeat ``call`` while its answer is an error that passes by itself, within the patience of the caller."""


class KafkaChangelog:
    """One changelog of a live cluster. Its end is the high watermark. One call at a time."""

    def __init__(self, partition: TopicPartition, brokers: ChangelogBrokers, *, is_compacted: bool) -> None:
        self._partition = partition
        self._brokers = brokers
        self._is_compacted = is_compacted
        self._stable_offset = 0
        self._aborted: tuple[AbortedTransaction, ...] = ()

    async def refresh(self) -> ChangelogBounds:
        """Ask the brokers for the bounds. The end is asked for last: what was asked before is not beyond it.

        Raises:
            UnknownPartitionError: the topic is gone.
            KafkaError: the brokers do not answer.
        """
        topic = await _topic(self._brokers, self._partition)
        if topic is None:
            raise UnknownPartitionError(
                f"{self._partition}: the cluster does not have this partition", remedy="name a topic that it has"
            )
        earliest = await self._listed(LogBound.EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        self._stable_offset = await self._listed(LogBound.LATEST, IsolationLevel.READ_COMMITTED)
        end = await self._listed(LogBound.LATEST, IsolationLevel.READ_UNCOMMITTED)
        return ChangelogBounds(
            earliest_offset=min(earliest, end),
            end_offset=end,
            stable_offset=min(self._stable_offset, end),
            topic_id=topic.topic_id,
            lineage=Lineage(),  # brokers tell the end of one epoch at a time, and no list of them
        )

    async def read(self, offset: int, *, end_offset: int, max_bytes: int) -> ChangelogPiece:
        """Return the batches from ``offset`` on.

        Raises:
            SegmentChangedError: the log begins above ``offset`` or ends below it now; refresh, and read again.
            CorruptSourceError: the topic is not compacted and has a hole at ``offset``.
            KafkaError: the leader does not answer, or does not have its high watermark yet.
        """
        # A reader of committed records has the last stable offset as its end, and needs the aborted transactions.
        is_committed = end_offset <= self._stable_offset
        level = IsolationLevel.READ_COMMITTED if is_committed else IsolationLevel.READ_UNCOMMITTED
        request = fetch(
            self._partition, from_offset=offset, max_bytes=max_bytes, max_wait_s=_MAX_WAIT_S, isolation=level
        )
        answer = await self._asked_leader(request, lambda each: each.error)
        if answer.error == _OUT_OF_RANGE:
            raise SegmentChangedError(f"{self._partition}: the leader does not have offset {offset} any more")
        _require_success(self._partition, answer.error)
        found = iter_batches(answer.records, name=f"{self._partition} as its leader sends it")
        batches = [each for each in found if each.last_offset >= offset and each.base_offset < end_offset]
        if not batches and (answer.last_stable_offset if is_committed else answer.high_watermark) < end_offset:
            raise KafkaUnreachableError(
                f"{self._partition}: its leader does not know its high watermark yet", remedy="retried"
            )
        self._aborted = tuple(_aborted(producer_id, first, batches) for producer_id, first in answer.aborted)
        next_offset = batches[-1].last_offset + 1 if batches else end_offset
        if not self._is_compacted:
            require_no_hole(self._partition, offset, batches, end_offset=next_offset)
        return ChangelogPiece(batches, next_offset, sum(batch.size_bytes for batch in batches))

    async def aborted(self, start_offset: int, end_offset: int) -> Sequence[AbortedTransaction]:
        """Return the aborted transactions of the last read, which touched ``[start_offset, end_offset)``."""
        return [each for each in self._aborted if each.first_offset < end_offset and each.last_offset >= start_offset]

    async def close(self) -> None:
        """Forget the last read."""
        self._aborted = ()

    async def _listed(self, bound: LogBound, isolation: IsolationLevel) -> int:
        request = list_offsets([self._partition], bound, isolation=isolation)
        answers = await self._asked_leader(request, lambda each: each[self._partition].error)
        _require_success(self._partition, answers[self._partition].error)
        return answers[self._partition].offset

    async def _asked_leader(self, request: Request[A], error_of: Callable[[A], str]) -> A:
        return await self._brokers.patiently(lambda: self._brokers.ask_leader(self._partition, request), error_of)


class KafkaChangelogs:
    """Changelogs of a live cluster."""

    def __init__(self, topics: Collection[str], brokers: ChangelogBrokers, *, is_compacted: IsCompacted) -> None:
        self._topics = frozenset(topics)
        self._brokers = brokers
        self._is_compacted = is_compacted

    async def list_partitions(self) -> frozenset[TopicPartition]:
        """Return the partitions of the topics that exist.

        Raises:
            KafkaError: no broker answers.
        """
        found = await self._brokers.leaders(self._topics)
        return frozenset(
            TopicPartition(topic, each.partition) for topic, known in found.items() for each in known.partitions
        )

    async def open(self, partition: TopicPartition) -> KafkaChangelog | None:
        """Open a changelog of one of the topics; None if the cluster does not have it.

        Raises:
            KafkaError: no broker answers.
        """
        if partition.topic not in self._topics or await _topic(self._brokers, partition) is None:
            return None
        return KafkaChangelog(partition, self._brokers, is_compacted=self._is_compacted(partition.topic))


class KafkaSource(PartitionedSource):
    """Source over topics of a live cluster; committed offsets come from the coordinators of the groups."""

    def __init__(
        self, topics: Collection[str], brokers: ChangelogBrokers, *, delete_retention: DeleteRetention
    ) -> None:
        """Read topics.

        Args:
            topics: the changelogs.
            brokers: of the cluster; their owner closes them after the source.
            delete_retention: which topics are compacted.
        """
        changelogs = KafkaChangelogs(topics, brokers, is_compacted=lambda topic: delete_retention(topic) is not None)
        super().__init__(changelogs, delete_retention=delete_retention)
        self._brokers = brokers

    async def committed_offset(self, group: str, partition: TopicPartition) -> int | None:
        """Return the committed offset of a consumer group; None where it has none.

        Raises:
            SourceUnavailableError: the coordinator does not answer, or the group has committed in a transaction that
                is open.
            RestoreError: the coordinator refuses the question.
        """
        return await translated(partition, self._committed(group, partition))

    async def _committed(self, group: str, partition: TopicPartition) -> int | None:
        request = committed_position(group, partition)
        answer = await self._brokers.patiently(
            lambda: self._brokers.ask_coordinator(group, request), lambda each: each.error
        )
        if answer.error == _UNSTABLE:
            raise KafkaUnreachableError(
                f"group {group} has committed its position in a transaction that is open", remedy="retried"
            )
        _require_success(partition, answer.error)
        return answer.offset


async def _topic(brokers: ChangelogBrokers, partition: TopicPartition) -> TopicLeaders | None:
    """Return the topic of a partition; None if the cluster does not have the partition."""
    topic = (await brokers.leaders([partition.topic])).get(partition.topic)
    if topic is None or all(each.partition != partition.partition for each in topic.partitions):
        return None
    return topic


def _require_success(partition: TopicPartition, error: str) -> None:
    if error:
        raise KafkaError(
            f"{partition}: the brokers answer {error}",
            remedy="grant the user the rights Describe and Read on the topic and on the group",
        )


def _aborted(producer_id: int, first_offset: int, batches: Sequence[RecordBatch]) -> AbortedTransaction:
    """Return an aborted transaction of a read. The answer does not have its marker, which may lie behind the read."""
    last_offset = batches[-1].last_offset if batches else first_offset
    return AbortedTransaction(producer_id, first_offset, max(last_offset, first_offset), first_offset)
