"""The endpoint and a real broker get the same Fetch requests, and answer the same partitions and batches."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from tests.fakes.served_log import FakeServedLog
from tests.serve.kafka.answers.raw_client import RawClient
from tests.serve.kafka.fetching.fetch_endpoint import FetchEndpoint, Kio, Want, fetch_request, told
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import SentRecord
from tierd.log import iter_batches
from tierd.model import IsolationLevel
from tierd.serve.kafka.client_errors import fetch_code_in_version
from tierd.serve.kafka.fetching.fetch_round import FetchLimits
from tierd.serve.kafka.served.served_log import FileSlice, LogBounds, LogRead

pytestmark = pytest.mark.service("kafka")

PARTITIONS = 4
TOPICS = ("orders", "payments")
BATCHES = 12
LOG_START = 3
RECORD_BYTES = (20, 900, 300, 5000, 100)


@pytest.fixture(scope="module")
def broker(shared_kafka: MakeCluster) -> KafkaCluster:
    """Return a broker with batches of many sizes. Partitions 0 are empty; one partition has lost its first batches."""
    cluster = shared_kafka(nodes=1, version="4.3.1")
    for topic in TOPICS:
        cluster.create_topic(topic, partitions=PARTITIONS)
    with cluster.producer() as producer:
        for batch in range(BATCHES):
            for number in range(1, PARTITIONS):
                value = b"x" * RECORD_BYTES[(batch + number) % len(RECORD_BYTES)]
                for topic in TOPICS:
                    producer.send(topic, number, [SentRecord(key=None, value=value, timestamp_ms=1_700_000_000_000)])
            producer.flush()
    cluster.delete_records("orders", 2, LOG_START)
    return cluster


class SlicedLog(FakeServedLog):
    """A local log that cuts its reads at the limit, also within a batch, as a broker does."""

    async def read(
        self,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        at_least_one: bool,
        max_wait_s: float,
        bounds: LogBounds | None = None,
    ) -> LogRead:
        bounds = await self.bounds()
        wanted = [batch for batch in self.batches if batch.last_offset >= offset]
        size_bytes = sum(batch.size_bytes for batch in wanted)
        if wanted and wanted[0].size_bytes > max_bytes:
            size_bytes = wanted[0].size_bytes if at_least_one else 0
        whole = await super().read(
            offset, max_bytes=size_bytes, isolation=isolation, at_least_one=at_least_one, max_wait_s=max_wait_s
        )
        [piece] = whole.records or (None,)
        if not isinstance(piece, FileSlice):
            return LogRead((), bounds)
        size_bytes = min(piece.size_bytes, max(max_bytes, wanted[0].size_bytes))
        return LogRead((FileSlice(piece.path, piece.inode, piece.position, size_bytes),), bounds)


class Seen(NamedTuple):
    """One partition of an answer, as a client sees it; ``batches`` are the base offsets of whole batches."""

    topic: str | UUID
    partition: int
    error: str
    bounds: tuple[int, int, int]
    batches: tuple[int, ...]
    size_bytes: int
    has_aborted_list: bool


@dataclass
class Pair:
    """A client of the broker and the endpoint over the same batches, and the session that each of them has."""

    client: RawClient
    endpoint: FetchEndpoint
    topic_ids: dict[str, UUID]
    sessions: tuple[int, int] = (0, 0)
    steps: list[str] = field(default_factory=list)

    async def ask(self, version: int, epoch: int, **fields: Kio) -> Sequence[Seen]:
        """Send the same request to both; return what both answer."""
        of_broker: Kio = await self.client.ask(
            fetch_request(version=version, session=(self.sessions[0], epoch), **fields)
        )
        found = await self.endpoint.ask(fetch_request(version=version, session=(self.sessions[1], epoch), **fields))
        response: Kio = found.response
        ours = [_seen(key, each.fields, each.records) for key, each in told(found).items()]
        theirs = [_as_ours(each, version) for each in _seen_in(of_broker)]
        context = "\n".join([*self.steps, f"v{version} epoch {epoch}: {fields}"])
        assert _errors_last(ours) == theirs, context
        if version >= 7:
            assert response.error_code == of_broker.error_code, context
            assert bool(response.session_id) == bool(of_broker.session_id), context
            if response.error_code is ErrorCode.none:
                self.sessions = (of_broker.session_id, response.session_id)
        self.steps.append(f"v{version} epoch {epoch}: {len(ours)} partitions")
        return ours


def _seen_in(response: Kio) -> Iterator[Seen]:
    for topic in response.responses:
        named = topic.topic_id if response.__version__ >= 13 else topic.topic
        for fields in topic.partitions:
            yield _seen((named, fields.partition_index), fields, fields.records or b"")


def _seen(key: tuple[str | UUID, int], fields: Kio, records: bytes) -> Seen:
    return Seen(
        *key,
        fields.error_code.name,
        (fields.high_watermark, fields.last_stable_offset, getattr(fields, "log_start_offset", -1)),
        tuple(batch.base_offset for batch in iter_batches(records, name="answer")),
        len(records),
        bool(records) and fields.aborted_transactions is not None,
    )


def _as_ours(of_broker: Seen, version: int) -> Seen:
    """Return what the endpoint answers instead: it never says that an offset above the end is out of range."""
    if of_broker.error == "offset_out_of_range" and of_broker.partition in (0, 1):
        return of_broker._replace(error=fetch_code_in_version(ErrorCode.offset_not_available, version).name)
    return of_broker


def _errors_last(seen: Sequence[Seen]) -> list[Seen]:
    """Return the partitions in the order of a broker, which puts those at the end that it does not know."""
    return sorted(seen, key=lambda each: each.error.startswith("unknown_topic"))


@pytest.fixture
async def pair(broker: KafkaCluster, tmp_path: Path) -> AsyncIterator[Pair]:
    host, _, port = broker.address(1).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        endpoint = FetchEndpoint(FetchLimits(failure_pause_s=0.0))
        topic_ids = {topic: broker.topic_id(topic) for topic in TOPICS}
        pair = Pair(RawClient(reader, writer), endpoint, topic_ids)
        for topic, topic_id in topic_ids.items():
            endpoint.served.add_topic(topic, partitions=PARTITIONS, topic_id=topic_id)
            for number in range(PARTITIONS):
                log = await copied_log(pair.client, topic, number)
                log.keep_in(tmp_path / f"{topic}-{number}.log")
                endpoint.served.put_log(topic, number, log)
        yield pair
    finally:
        writer.close()
        await writer.wait_closed()


async def copied_log(client: RawClient, topic: str, number: int) -> SlicedLog:
    """Return a log with the broker's batches and log start."""
    log = SlicedLog()
    log.log_start_offset = LOG_START if (topic, number) == ("orders", 2) else 0
    answer: Kio = await client.ask(fetch_request([Want(topic, number, log.log_start_offset)], version=12))
    [topic_answer] = answer.responses
    [fields] = topic_answer.partitions
    for batch in iter_batches(fields.records or b"", name=topic):
        log.append_encoded(bytes(batch.data))
    assert fields.high_watermark == log.log_end_offset
    return log


@dataclass
class RandomClient:
    """A client that follows KIP-227, over and over with other partitions, offsets and limits."""

    random: Random
    pair: Pair
    version: int
    epoch: int = 0
    held: dict[tuple[str | UUID, int], Want] = field(default_factory=dict)

    async def step(self) -> None:
        if self.epoch <= 0 or self.random.random() < 0.1:
            self.epoch, self.held = 0, {}
        wants = self._changes()
        forget: list[tuple[str | UUID, int]] = []
        if self.epoch and len(self.held) > 2 and self.random.random() < 0.3:
            forget = [self.random.choice(list(self.held))]
        limits = {
            "max_bytes": self.random.choice([0, 500, 3000, 20_000, 1 << 20]),
            "isolation": self.random.choice([0, 1]),
            "min_bytes": 0,
        }
        self.held |= {(want.topic, want.partition): want for want in wants}
        for each in forget:
            del self.held[each]
        await self.pair.ask(self.version, self.epoch, wants=wants, forget=forget, **limits)
        self.epoch = self.epoch + 1 if self.pair.sessions[0] else 0

    def _changes(self) -> list[Want]:
        fewest = 0 if self.epoch else 1
        chosen = self.random.sample(range(PARTITIONS), self.random.randint(fewest, PARTITIONS))
        return [self._want(self.random.choice(TOPICS), number) for number in chosen]

    def _want(self, topic: str, number: int) -> Want:
        offset = self.random.choice([0, 1, LOG_START, 5, BATCHES - 1, BATCHES])
        if number in (0, 1) and self.random.random() < 0.2:
            offset = 100  # these begin at offset 0, so that nothing else is out of range
        return Want(
            self.pair.topic_ids[topic] if self.version >= 13 else topic,
            number if self.random.random() < 0.95 else PARTITIONS + 5,
            offset if number else min(offset, 0) or (100 if offset == 100 else 0),
            max_bytes=self.random.choice([0, 400, 2000, 1 << 20]),
            epoch=self.random.choice([-1, -1, 0, 7]) if self.version >= 9 else -1,
        )


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 16, 18])
async def test_random_fetches_are_answered_as_by_the_broker(pair: Pair, version: int) -> None:
    client = RandomClient(Random(version), pair, version)
    for _ in range(40):
        await client.step()
    assert any("epoch 3" in step for step in pair.steps) == (version >= 7), "sessions went on"


async def test_broken_sessions_are_refused_as_by_the_broker(pair: Pair) -> None:
    orders = pair.topic_ids["orders"]
    await pair.ask(13, 0, wants=[Want(orders, 1), Want(orders, 2, LOG_START)])
    await pair.ask(13, 5)
    await pair.ask(12, 1)
    await pair.ask(13, 1, forget=[(orders, 1)])
    assert await pair.ask(13, 2, forget=[(orders, 2)]) == []
    assert pair.sessions == (0, 0), "a session without partitions is closed"
    pair.sessions = (12345, 12345)
    await pair.ask(13, 1)


async def test_divergence_and_unknown_topics_are_answered_as_by_the_broker(pair: Pair) -> None:
    orders = pair.topic_ids["orders"]
    [same] = await pair.ask(13, -1, wants=[Want(orders, 1, 5, last_epoch=0)])
    assert same.batches
    await pair.ask(13, -1, wants=[Want(UUID(int=77), 0), Want(orders, 1)])
    await pair.ask(12, -1, wants=[Want("absent", 0), Want("orders", 1)])
