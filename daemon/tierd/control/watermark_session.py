"""WatermarkSession: a fetch session with a broker that asks for offsets, not for records (KIP-227); no I/O.

A Fetch that waits at the high watermark of a partition is answered as soon as the high watermark moves. The records in
the answer, one batch at most, are dropped::

    full request, epoch 0 ──► session id ──► difference, epoch 1 ──► difference, epoch 2 ──► ...
         ▲                        │ 0: the broker keeps no session        │ the broker forgot the session
         └────────────────────────┴───────────────────────────────────────┘
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Final, NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import FetchRequest, FetchResponse
from kio.schema.fetch.v13 import request as fetch_parts
from kio.schema.fetch.v13.response import PartitionData
from kio.static.primitive import i32, i32Timedelta, i64

from tierd.control.kafka_framing import Request, error_name, typed_request
from tierd.model import PartitionKey, TopicIdPartition

PARTITIONS_PER_REQUEST: Final = 1_000  # an answer is decoded in about ten milliseconds, on the event loop
_NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1  # a request outside of any session
_LAST_EPOCH: Final = (1 << 31) - 1
_FORGOTTEN: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
        ErrorCode.inconsistent_topic_id,
    }
)


class Watermark(NamedTuple):
    """Offsets of one partition as a replica has them; the first two are exclusive ends."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class WatermarkAnswer(NamedTuple):
    """A broker's answer about some partitions.

    Attributes:
        error: Kafka's name of the error of the whole request; empty for success.
        session_id: 0 where the broker keeps no session.
        watermarks: by topic id and partition; of a session only those that changed.
        errors: Kafka's name of the error of each partition that has one.
        size_bytes: of the records that came along.
    """

    error: str
    session_id: int
    watermarks: Mapping[PartitionKey, Watermark]
    errors: Mapping[PartitionKey, str]
    size_bytes: int = 0

    @property
    def is_session_lost(self) -> bool:
        """Return True if the broker does not know the session, or not in this epoch."""
        return any(self.error == code.name for code in _FORGOTTEN)


def key_of(partition: TopicIdPartition) -> PartitionKey:
    """Return the key of a partition in answers."""
    return partition.topic_id, partition.partition


def ask_watermarks(offsets: Mapping[PartitionKey, int]) -> Request[WatermarkAnswer]:
    """Ask for the offsets of now, outside of any session; ``offsets`` are as in ``WatermarkSession.request``."""
    return _fetch(offsets.items(), (), session_id=_NO_SESSION, epoch=_FINAL_EPOCH, max_wait_s=0.0)


class WatermarkSession:
    """The client's side of one session, over one connection."""

    def __init__(self) -> None:
        self._id = _NO_SESSION
        self._epoch = 0
        self._asked: dict[PartitionKey, int] = {}

    @property
    def covered(self) -> Collection[PartitionKey]:
        """Return the partitions that the last request asked for."""
        return self._asked.keys()

    def request(self, offsets: Mapping[PartitionKey, int], *, max_wait_s: float) -> Request[WatermarkAnswer]:
        """Ask for the offsets of some partitions as soon as one of them has moved.

        Of more than ``PARTITIONS_PER_REQUEST`` new partitions the others join the session with later requests, and the
        broker answers at once. A broker without sessions is asked for the first partitions only.

        Args:
            offsets: the known high watermark of each partition, or a lower offset of its log.
            max_wait_s: time after which the broker answers in any case.
        """
        changed = {key: offset for key, offset in offsets.items() if self._asked.get(key) != offset}
        now = dict(list(changed.items())[:PARTITIONS_PER_REQUEST])
        gone = [key for key in self._asked if key not in offsets]
        self._asked.update(now)
        for key in gone:
            del self._asked[key]
        return _fetch(
            now.items(),
            gone if self._id else (),
            session_id=self._id,
            epoch=self._epoch,
            max_wait_s=0.0 if len(now) < len(changed) else max_wait_s,
        )

    def take(self, answer: WatermarkAnswer) -> None:
        """Take note of the answer to the last request."""
        if answer.error or answer.session_id == _NO_SESSION:
            self._id, self._epoch = _NO_SESSION, 0
            self._asked = {}
            return
        self._id = answer.session_id
        self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1


def _fetch(
    offsets: Iterable[tuple[PartitionKey, int]],
    gone: Iterable[PartitionKey],
    *,
    session_id: int,
    epoch: int,
    max_wait_s: float,
) -> Request[WatermarkAnswer]:
    topics: defaultdict[UUID, list[fetch_parts.FetchPartition]] = defaultdict(list)
    for (topic_id, number), offset in offsets:
        topics[topic_id].append(
            fetch_parts.FetchPartition(partition=i32(number), fetch_offset=i64(offset), partition_max_bytes=i32(1))
        )
    forgotten: defaultdict[UUID, list[i32]] = defaultdict(list)
    for topic_id, number in gone:
        forgotten[topic_id].append(i32(number))
    request = FetchRequest(
        max_wait=i32Timedelta.parse(timedelta(seconds=max_wait_s)),
        min_bytes=i32(1 if max_wait_s else 0),
        max_bytes=i32(1),
        session_id=i32(session_id),
        session_epoch=i32(epoch),
        topics=tuple(
            fetch_parts.FetchTopic(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
        forgotten_topics_data=tuple(
            fetch_parts.ForgottenTopic(topic_id=topic_id, partitions=tuple(numbers))
            for topic_id, numbers in forgotten.items()
        ),
    )
    return typed_request(request, FetchResponse, _answer)


def _answer(response: FetchResponse) -> WatermarkAnswer:
    found = [
        ((topic.topic_id, each.partition_index), each)
        for topic in response.responses
        if topic.topic_id is not None
        for each in topic.partitions
    ]
    return WatermarkAnswer(
        error=error_name(response.error_code),
        session_id=response.session_id,
        watermarks={key: _watermark(each) for key, each in found if each.error_code is ErrorCode.none},
        errors={key: each.error_code.name for key, each in found if each.error_code is not ErrorCode.none},
        size_bytes=sum(len(each.records or b"") for _, each in found),
    )


def _watermark(data: PartitionData) -> Watermark:
    return Watermark(data.high_watermark, data.last_stable_offset, data.log_start_offset)
