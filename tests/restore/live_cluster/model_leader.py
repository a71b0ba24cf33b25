"""A leader of one partition that takes batches by Kafka's rules (ProducerAppendInfo), and fails as it is told to."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple
from uuid import UUID

from kio.schema.fetch.v12 import FetchRequest
from kio.schema.list_offsets.v7 import ListOffsetsRequest
from kio.schema.produce.v9 import ProduceRequest
from kio.serial import entity_reader

from tests.control.connecting import plaintext
from tests.fakes.clock import FakeClock
from tests.log.logs import rows
from tierd.control import (
    BrokerAddress,
    ClusterMetadata,
    FetchedRecords,
    KafkaConnection,
    ListedPosition,
    LogBound,
    ProduceAnswer,
    ProduceOutcome,
    ProducerIdentity,
    Request,
    TopicKnowledge,
    TopicLeaders,
)
from tierd.control.cluster_metadata import PartitionLeader
from tierd.errors import KafkaUnreachableError
from tierd.log import BatchHeader, RecordBatch, iter_batches, parse_header
from tierd.model import OffsetRange, TopicPartition
from tierd.restore.live_cluster.batch_transform import AbortedRanges, BatchTransform, OutgoingBatch
from tierd.restore.live_cluster.committed_source import CommittedSource
from tierd.restore.live_cluster.target_cluster import TargetCluster

NAME = TopicPartition("orders", 0)
BROKER = BrokerAddress("127.0.0.1", 1, 1)
_REMEMBERED = 5


class Fault(Enum):
    """Outcome of one request with a batch."""

    REFUSED = auto()  # too few replicas are in sync: the batch is not in the log
    TAKEN_AND_REFUSED = auto()  # the replicas do not follow in time: the batch is in the log
    LOST_BEFORE = auto()  # the connection breaks, and the leader has not seen the request
    LOST_AFTER = auto()  # the connection breaks, and the batch is in the log
    FORGOTTEN = auto()  # the leader forgets the producer, then takes the batch
    REPLACED = auto()  # the topic is deleted and made anew, then the leader takes the batch


class _Taken(NamedTuple):
    """A batch that the leader recognizes."""

    base_sequence: int
    record_count: int
    base_offset: int


class ModelLeader:
    """The log, and what the leader knows of the one producer.

    Attributes:
        faults: of the next requests; those behind them succeed.
        forgets_at_loss: the leader forgets the producer whenever a connection breaks, as at a restart.
        requests: with a batch, so far.
        on_request: is called with their number.
        unreplicated: records at the end that the replicas do not have yet, at each question for the high watermark.
        empty_answers: of the next fetches; those behind them have the records.
    """

    def __init__(self, faults: Iterable[Fault | None] = (), *, forgets_at_loss: bool = False) -> None:
        self.faults = deque(faults)
        self.forgets_at_loss = forgets_at_loss
        self.requests = 0
        self.on_request: Callable[[int], None] = lambda _: None
        self.unreplicated = deque[int]()
        self.empty_answers = deque[FetchedRecords]()
        self.topic_id = UUID(int=1)
        self._log: list[bytes] = []
        self._end = 0
        self._known: deque[_Taken] = deque(maxlen=_REMEMBERED)

    @property
    def end(self) -> int:
        """Return the end of the log."""
        return self._end

    @property
    def values(self) -> list[bytes | None]:
        """Return the values of all records, in order."""
        batches = [each for data in self._log for each in iter_batches(data, name="target")]
        return [record.value for batch in batches for record in batch.records()]

    def cut(self, count: int) -> None:
        """Keep the first ``count`` batches, as a new leader that had no more."""
        del self._log[count:]
        self._end = header_of(self._log[-1]).last_offset + 1

    def remove(self, first: int, end: int) -> None:
        """Remove batches as compaction does, by their number: the offsets of the others stay."""
        del self._log[first:end]

    def forget(self) -> None:
        """Forget the producer."""
        self._known.clear()

    def replace(self) -> None:
        """Delete the topic, and make one of the same name."""
        self.forget()
        self._log.clear()
        self._end = 0
        self.topic_id = UUID(int=self.topic_id.int + 1)

    def append(self, data: bytes) -> ProduceOutcome:
        """Take a batch, recognize it, or refuse it."""
        header = header_of(data)
        for known in self._known:
            if (known.base_sequence, known.record_count) == (header.base_sequence, header.record_count):
                return ProduceOutcome("", known.base_offset, "")
        if self._known and header.base_sequence != self._known[-1].base_sequence + self._known[-1].record_count:
            return ProduceOutcome("out_of_order_sequence_number", -1, "")
        base_offset = self._end
        self._known.append(_Taken(header.base_sequence, header.record_count, base_offset))
        self._log.append(base_offset.to_bytes(8, "big") + data[8:])
        self._end += header.record_count
        return ProduceOutcome("", base_offset, "")

    def fetched(self, offset: int) -> FetchedRecords:
        """Return the batches from ``offset`` on."""
        if self.empty_answers:
            return self.empty_answers.popleft()
        found = [data for data in self._log if header_of(data).last_offset >= offset]
        return FetchedRecords("", b"".join(found[:3]), self._end, 0)


class _ModelConnection(KafkaConnection):
    """Connection to the leader: requests are carried out when they are sent."""

    def __init__(self, leader: ModelLeader) -> None:
        self._leader = leader
        self._outcomes: deque[ProduceOutcome | None] = deque()
        self._is_broken = False
        self._number = 0

    async def send(self, request: Request[Any]) -> int:
        await asyncio.sleep(0)
        self._number += 1
        self._outcomes.append(None if self._is_broken else self._carried_out(_batch_of(request)))
        return self._number

    def _carried_out(self, data: bytes) -> ProduceOutcome | None:
        leader = self._leader
        leader.requests += 1
        leader.on_request(leader.requests)
        fault = leader.faults.popleft() if leader.faults else None
        match fault:
            case Fault.REFUSED:
                return ProduceOutcome("not_enough_replicas", -1, "")
            case Fault.TAKEN_AND_REFUSED:
                outcome = leader.append(data)
                return outcome if outcome.error else ProduceOutcome("not_enough_replicas_after_append", -1, "")
            case Fault.LOST_BEFORE | Fault.LOST_AFTER:
                if fault is Fault.LOST_AFTER:
                    leader.append(data)
                if leader.forgets_at_loss:
                    leader.forget()
                self._is_broken = True
                return None
            case Fault.FORGOTTEN:
                leader.forget()
            case Fault.REPLACED:
                leader.replace()
            case None:
                pass
        return leader.append(data)

    async def receive(self, request: Request[Any], number: int, *, timeout_s: float) -> Any:  # noqa: ANN401 - of the connection
        await asyncio.sleep(0)
        outcome = self._outcomes.popleft()
        if outcome is None:
            raise KafkaUnreachableError("the connection broke", remedy="wait")
        return ProduceAnswer({NAME: outcome}, 0.0)

    def close(self) -> None:
        """Close nothing."""


class ModelCluster(TargetCluster):
    """Cluster of the leader alone."""

    def __init__(self, leader: ModelLeader) -> None:
        first = ClusterMetadata("cluster", (BROKER,), ())
        super().__init__(plaintext("127.0.0.1:1"), clock=FakeClock(), patience_s=600.0, first=first)
        self._leader = leader

    async def connect(self, node_id: int) -> KafkaConnection:
        return _ModelConnection(self._leader)

    async def leaders(self, topics: Collection[str]) -> Mapping[str, TopicLeaders]:
        await asyncio.sleep(0)
        leader = PartitionLeader(NAME.partition, 1, 0)
        return {NAME.topic: TopicLeaders(self._leader.topic_id, TopicKnowledge.KNOWN, (leader,))}

    async def ask(self, request: Request[Any]) -> Any:  # noqa: ANN401 - of the cluster
        assert request.name == "InitProducerId"
        return ProducerIdentity(7, 0)

    async def ask_leader(self, name: TopicPartition, request: Request[Any]) -> Any:  # noqa: ANN401 - of the cluster
        match request.name:
            case "Metadata":
                return await self.leaders([name.topic])
            case "Fetch":
                (topic,) = _decoded(FetchRequest, request).topics
                return self._leader.fetched(topic.partitions[0].fetch_offset)
            case "ListOffsets":
                return {name: ListedPosition("", self._listed(_decoded(ListOffsetsRequest, request)))}
        raise AssertionError(request.name)

    def _listed(self, request: ListOffsetsRequest) -> int:
        (topic,) = request.topics
        if int(topic.partitions[0].timestamp) == LogBound.EARLIEST:
            return 0
        lag = self._leader.unreplicated
        return self._leader.end - (lag.popleft() if lag and request.replica_id == -1 else 0)


class ListedSource(CommittedSource):
    """Source of batches that are given, of two records each; their values are their offsets."""

    def __init__(self, batches: int, *, timestamp_ms: int = 1) -> None:
        content = [
            rows(offset, [(timestamp_ms, b"key", b"%d" % offset), (timestamp_ms, b"key", b"%d" % (offset + 1))])
            for offset in range(0, batches * 2, 2)
        ]
        self.end_offset = batches * 2
        self._batches_given = list[RecordBatch](iter_batches(b"".join(content), name="source"))

    @property
    def values(self) -> list[bytes | None]:
        """Return the values of all records, in order."""
        return [record.value for batch in self._batches_given for record in batch.records()]

    @property
    def start_offset(self) -> int | None:
        return 0

    def changed_ms(self, start_offset: int, end_offset: int) -> int:
        return -1

    async def stable_end_offset(self, end_offset: int) -> int:
        return end_offset

    async def batches(
        self, transform: BatchTransform, *, start_offset: int, end_offset: int
    ) -> AsyncGenerator[list[OutgoingBatch], None]:
        for batch in self._batches_given if start_offset < end_offset else ():
            await asyncio.sleep(0)
            if sent := list(transform.feed(batch, AbortedRanges(), OffsetRange(start_offset, end_offset - 1))):
                yield sent


def header_of(data: bytes) -> BatchHeader:
    """Return the header of a batch."""
    header = parse_header(memoryview(data), 0, name="target", position=0)
    assert header is not None
    return header


def _batch_of(request: Request[Any]) -> bytes:
    (topic,) = _decoded(ProduceRequest, request).topic_data
    (partition,) = topic.partition_data
    assert partition.records is not None
    return bytes(partition.records)


def _decoded(kind: type[Any], request: Request[Any]) -> Any:  # noqa: ANN401 - each request has a class of its own
    frame = request.frame(1)
    _, size = entity_reader(kind.__header_schema__)(frame, 4)
    return entity_reader(kind)(frame, 4 + size)[0]
