"""Kafka's requests that write and read records, as bytes; no I/O.

Versions are those that Kafka 3.1 to 4.3 understand. Produce is written by hand, because kio copies the records thrice.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import FetchRequest, FetchResponse
from kio.schema.fetch.v12 import request as fetch_parts
from kio.schema.init_producer_id.v4 import InitProducerIdRequest, InitProducerIdResponse
from kio.schema.list_offsets.v7 import ListOffsetsRequest, ListOffsetsResponse
from kio.schema.list_offsets.v7 import request as list_parts
from kio.schema.produce.v9 import ProduceResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from tierd.control.kafka_framing import REQUEST_NAMES, Request, decoded, error_name, typed_request
from tierd.model import IsolationLevel, TopicPartition

_ALL_REPLICAS: Final = -1
_CONSUMER: Final = BrokerId(-1)
_DEBUGGING_CONSUMER: Final = BrokerId(-2)  # a leader lists it the end of its log (Kafka: DEBUGGING_REPLICA_ID)
_LEVELS: Final = {IsolationLevel.READ_UNCOMMITTED: i8(0), IsolationLevel.READ_COMMITTED: i8(1)}


class LogBound(IntEnum):
    """Bound of a partition's log, as a ListOffsets request names it."""

    EARLIEST = -2  # the first offset
    LATEST = -1  # the high watermark


class ProducerIdentity(NamedTuple):
    """Producer id and epoch that a cluster has issued."""

    id: int
    epoch: int


class ProduceOutcome(NamedTuple):
    """A leader's answer about one batch.

    Attributes:
        error: Kafka's name of the error; empty for success.
        base_offset: offset of the first record; -1 where the leader does not know it.
        message: the leader's words.
    """

    error: str
    base_offset: int
    message: str


class ProduceAnswer(NamedTuple):
    """A broker's answer to a request with batches.

    Attributes:
        throttle_s: how long the broker reads nothing more from this connection, because a quota is used up (KIP-219).
    """

    outcomes: Mapping[TopicPartition, ProduceOutcome]
    throttle_s: float


class FetchedRecords(NamedTuple):
    """A leader's answer about one partition.

    Attributes:
        error: Kafka's name of the error; empty for success.
        records: whole batches, the last of which may be incomplete; the first may begin below the wanted offset.
        high_watermark: exclusive end of what consumers may read.
        last_stable_offset: exclusive end of what readers of committed records may read.
        aborted: producer id and first offset of the aborted transactions in ``records``, for a reader of committed
            records.
    """

    error: str
    records: bytes
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()


class ListedPosition(NamedTuple):
    """A leader's answer about an offset of one partition; ``error`` is empty for success."""

    error: str
    offset: int


def init_producer_id() -> Request[ProducerIdentity | str]:
    """Ask any broker for a new producer id; the answer is Kafka's name of the error where there is none."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout=i32Timedelta.parse(timedelta(seconds=60))
    )

    def parse(response: InitProducerIdResponse) -> ProducerIdentity | str:
        if response.error_code is not ErrorCode.none:
            return response.error_code.name
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    return typed_request(request, InitProducerIdResponse, parse)


def list_offsets(
    partitions: Collection[TopicPartition],
    bound: LogBound,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    counts_unreplicated: bool = False,
) -> Request[Mapping[TopicPartition, ListedPosition]]:
    """Ask the leader of ``partitions`` for a bound of each.

    With ``READ_COMMITTED``, LATEST is the last stable offset; with ``counts_unreplicated`` it is the end of the
    leader's log.
    """
    topics = tuple(
        list_parts.ListOffsetsTopic(
            name=TopicName(topic),
            partitions=tuple(
                list_parts.ListOffsetsPartition(partition_index=i32(number), timestamp=i64(bound)) for number in numbers
            ),
        )
        for topic, numbers in _by_topic(partitions).items()
    )
    asker = _DEBUGGING_CONSUMER if counts_unreplicated else _CONSUMER
    request = ListOffsetsRequest(replica_id=asker, isolation_level=_LEVELS[isolation], topics=topics)
    return typed_request(request, ListOffsetsResponse, _listed)


def fetch(
    name: TopicPartition,
    *,
    from_offset: int,
    max_bytes: int,
    max_wait_s: float,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> Request[FetchedRecords]:
    """Ask the leader of a partition for its records from an offset on.

    With ``READ_COMMITTED`` they end at the last stable offset; those of aborted transactions are among them.
    """
    partition = fetch_parts.FetchPartition(
        partition=i32(name.partition), fetch_offset=i64(from_offset), partition_max_bytes=i32(max_bytes)
    )
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(seconds=max_wait_s)),
        min_bytes=i32(1),
        max_bytes=i32(max_bytes),
        isolation_level=_LEVELS[isolation],
        topics=(fetch_parts.FetchTopic(topic=TopicName(name.topic), partitions=(partition,)),),
        forgotten_topics_data=(),
    )
    return typed_request(request, FetchResponse, _fetched)


def produce(
    batches: Mapping[TopicPartition, Sequence[bytes | memoryview]], *, timeout_s: float
) -> Request[ProduceAnswer]:
    """Send one batch of each partition to their leader, which answers when all in-sync replicas have the batches.

    Args:
        batches: the pieces of each batch, which are joined.
        timeout_s: how long the leader waits for its followers.
    """
    body = _produce_body(batches, timeout_s)

    def frame(correlation_id: int) -> bytes:
        header = b"\x00\x00\x00\x09" + correlation_id.to_bytes(4, "big") + b"\x00\x05tierd\x00"
        size = len(header) + sum(map(len, body))
        return b"".join((size.to_bytes(4, "big"), header, *body))

    return Request(
        name=REQUEST_NAMES[0], frame=frame, answer=lambda content: _produced(decoded(ProduceResponse, content))
    )


def _produce_body(
    batches: Mapping[TopicPartition, Sequence[bytes | memoryview]], timeout_s: float
) -> list[bytes | memoryview]:
    """Return the pieces of ProduceRequest version 9.

    ::

        transactionalId = null | acks i16 | timeoutMs i32 | topics: name, partitions: index i32, size, records
    """
    head = b"\x00" + _ALL_REPLICAS.to_bytes(2, "big", signed=True) + int(timeout_s * 1000).to_bytes(4, "big")
    topics: dict[str, list[tuple[int, Sequence[bytes | memoryview]]]] = {}
    for partition, pieces in batches.items():
        topics.setdefault(partition.topic, []).append((partition.partition, pieces))
    body: list[bytes | memoryview] = [head + _uvarint(len(topics) + 1)]
    for topic, numbered in topics.items():
        name = topic.encode()
        body.append(_uvarint(len(name) + 1) + name + _uvarint(len(numbered) + 1))
        for number, pieces in numbered:
            body.append(number.to_bytes(4, "big") + _uvarint(sum(map(len, pieces)) + 1))
            body += pieces
            body.append(b"\x00")
        body.append(b"\x00")
    body.append(b"\x00")
    return body


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, Sequence[int]]:
    topics: dict[str, list[int]] = {}
    for name in partitions:
        topics.setdefault(name.topic, []).append(name.partition)
    return topics


def _produced(response: ProduceResponse) -> ProduceAnswer:
    outcomes = {
        TopicPartition(topic.name, each.index): ProduceOutcome(
            error_name(each.error_code), each.base_offset, each.error_message or ""
        )
        for topic in response.responses
        for each in topic.partition_responses
    }
    return ProduceAnswer(outcomes, response.throttle_time / timedelta(seconds=1))


def _listed(response: ListOffsetsResponse) -> Mapping[TopicPartition, ListedPosition]:
    return {
        TopicPartition(topic.name, each.partition_index): ListedPosition(error_name(each.error_code), each.offset)
        for topic in response.topics
        for each in topic.partitions
    }


def _fetched(response: FetchResponse) -> FetchedRecords:
    if response.error_code is not ErrorCode.none:
        return FetchedRecords(response.error_code.name, b"", -1, -1)
    for each in (each for topic in response.responses for each in topic.partitions):
        return FetchedRecords(
            error_name(each.error_code),
            each.records or b"",
            each.high_watermark,
            each.log_start_offset,
            each.last_stable_offset,
            tuple((aborted.producer_id, aborted.first_offset) for aborted in each.aborted_transactions or ()),
        )
    return FetchedRecords("", b"", -1, -1)
