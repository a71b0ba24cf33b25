"""WatermarkBroker: a scripted broker whose logs have no records, only offsets that a test moves (Fetch, KIP-227)."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v13 import FetchRequest, FetchResponse
from kio.schema.fetch.v13.response import FetchableTopicResponse, PartitionData
from kio.schema.request_header.v2 import RequestHeader
from kio.serial import entity_reader
from kio.static.primitive import Records, i32, i32Timedelta, i64

from tests.fakes.kafka_broker import ScriptedBroker, encoded
from tierd.control.watermark_session import Watermark
from tierd.model import PartitionKey

RECORDS = Records(b"one batch")
_PATIENCE_S = 20.0


@dataclass(slots=True)
class WatermarkBroker(ScriptedBroker):
    """Broker that answers Fetch.

    Attributes:
        logs: the offsets of each partition; others are unknown topic ids.
        has_sessions: False for a broker whose cache of sessions is full.
        fetches: (session id, session epoch, partitions asked for) of every Fetch.
        sessions: by id, the partitions with the offset asked at and what was answered last.
        is_patient: requests of a session wait for a move of a partition longer than they ask for.
    """

    logs: dict[PartitionKey, Watermark] = field(default_factory=dict)
    has_sessions: bool = True
    is_patient: bool = False
    fetches: list[tuple[int, int, int]] = field(default_factory=list)
    sessions: dict[int, dict[PartitionKey, int]] = field(default_factory=dict)
    _answered_last: dict[tuple[int, PartitionKey], object] = field(default_factory=dict)
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def move(self, key: PartitionKey, high_watermark: int, last_stable_offset: int | None = None) -> None:
        """Set the offsets of a partition, and answer the requests that wait for that."""
        stable = high_watermark if last_stable_offset is None else last_stable_offset
        self.logs[key] = Watermark(high_watermark, stable, 0)
        self._moved.set()

    def forget_sessions(self) -> None:
        """Know no session any more, as after a restart."""
        self.sessions.clear()

    async def _answered(self, request: bytes) -> bytes:
        header, at = entity_reader(RequestHeader)(request, 0)
        if header.request_api_key != 1:
            return self._framed(request)
        fetch = entity_reader(FetchRequest)(request, at)[0]
        body = header.correlation_id.to_bytes(4, "big") + b"\0" + encoded(await self._fetched(fetch))
        return len(body).to_bytes(4, "big") + body

    async def _fetched(self, request: FetchRequest) -> FetchResponse:
        asked: dict[PartitionKey, int] = {
            (topic.topic_id, each.partition): each.fetch_offset
            for topic in request.topics
            if topic.topic_id is not None
            for each in topic.partitions
        }
        self.fetches.append((request.session_id, request.session_epoch, len(asked)))
        session_id = request.session_id
        if session_id and session_id not in self.sessions:
            return _response(ErrorCode.fetch_session_id_not_found, 0, {})
        if not session_id and request.session_epoch == 0 and self.has_sessions:
            session_id = i32(len(self.sessions) + 1)
            self.sessions[session_id] = {}
        offsets = self.sessions[session_id] if session_id else dict[PartitionKey, int]()
        offsets.update(asked)
        for topic in request.forgotten_topics_data:
            for number in topic.partitions:
                assert topic.topic_id is not None
                offsets.pop((topic.topic_id, number), None)
        await self._wait_for_bytes(offsets, request)
        changed = dict(self._news_of(session_id, offsets, everything=not request.session_id))
        return _response(ErrorCode.none, session_id, changed)

    async def _wait_for_bytes(self, offsets: dict[PartitionKey, int], request: FetchRequest) -> None:
        def has_bytes() -> bool:
            return any(key not in self.logs or self.logs[key].high_watermark != at for key, at in offsets.items())

        is_patient = self.is_patient and bool(request.session_id)
        max_wait_s = _PATIENCE_S if is_patient else request.max_wait / timedelta(seconds=1)
        try:
            async with asyncio.timeout(max_wait_s):
                while request.min_bytes and not has_bytes():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            pass

    def _news_of(
        self, session_id: int, offsets: dict[PartitionKey, int], *, everything: bool
    ) -> Iterator[tuple[PartitionKey, PartitionData]]:
        for key, offset in offsets.items():
            found = self.logs.get(key)
            last = (session_id, key)
            if not everything and found is not None and self._answered_last.get(last) == found:
                continue
            self._answered_last[last] = found
            yield key, _data(key, found, offset)


def _data(key: PartitionKey, found: Watermark | None, offset: int) -> PartitionData:
    error = ErrorCode.unknown_topic_id if found is None else ErrorCode.none
    if found is not None and not found.log_start_offset <= offset <= found.high_watermark:
        error = ErrorCode.offset_out_of_range
    if found is None or error is not ErrorCode.none:
        return PartitionData(
            partition_index=i32(key[1]),
            error_code=error,
            high_watermark=i64(-1),
            aborted_transactions=None,
            records=None,
        )
    return PartitionData(
        partition_index=i32(key[1]),
        error_code=error,
        high_watermark=i64(found.high_watermark),
        last_stable_offset=i64(found.last_stable_offset),
        log_start_offset=i64(found.log_start_offset),
        aborted_transactions=None,
        records=RECORDS if offset < found.high_watermark else Records(b""),
    )


def _response(error: ErrorCode, session_id: int, changed: dict[PartitionKey, PartitionData]) -> FetchResponse:
    topics: dict[UUID, list[PartitionData]] = {}
    for (topic_id, _), data in changed.items():
        topics.setdefault(topic_id, []).append(data)
    return FetchResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        error_code=error,
        session_id=i32(session_id),
        responses=tuple(
            FetchableTopicResponse(topic_id=topic_id, partitions=tuple(partitions))
            for topic_id, partitions in topics.items()
        ),
    )
