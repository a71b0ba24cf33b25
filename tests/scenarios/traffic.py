"""Producers of every kind that fill a real broker from a seed, until they are stopped."""

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from random import Random
from types import TracebackType
from typing import Self

from tests.services.kafka_cluster import CODECS, KafkaBroker, RecordProducer
from tests.services.kafka_records import random_records

SMALL_SEGMENT_BYTES = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    """Topic and the kind of producer that writes to it."""

    name: str
    codec: str = "none"
    idempotent: bool = False
    transactional: bool = False
    partitions: int = 1
    segment_bytes: int = SMALL_SEGMENT_BYTES
    value_bytes: int = 300
    configs: dict[str, str] = field(default_factory=dict)

    @property
    def partition_names(self) -> list[str]:
        """Return the names of the partitions, as of their directories."""
        return [f"{self.name}-{partition}" for partition in range(self.partitions)]


EVERY_KIND = (
    TopicPlan(name="plain"),
    *(TopicPlan(name=f"codec-{codec}", codec=codec) for codec in CODECS if codec != "none"),
    TopicPlan(name="stamped", configs={"message.timestamp.type": "LogAppendTime"}),
    TopicPlan(name="idempotent", idempotent=True),
    TopicPlan(name="transactional", transactional=True),
    TopicPlan(name="many", partitions=12),
    TopicPlan(name="tiny.segments", segment_bytes=4_096, value_bytes=60),
)


class Traffic:
    """Producers of some topics. ``burst`` sends a few records; as a context manager they send in the background."""

    def __init__(self, broker: KafkaBroker, topics: tuple[TopicPlan, ...], *, seed: int, pause_s: float = 0.02) -> None:
        self._broker = broker
        self._topics = topics
        self._random = Random(seed)
        self._pause_s = pause_s
        self._producers: dict[str, RecordProducer] = {}
        self._stack = ExitStack()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic")
        self._failure: Exception | None = None

    def create_topics(self) -> None:
        """Create every topic."""
        for topic in self._topics:
            self._broker.create_topic(
                topic.name, partitions=topic.partitions, segment_bytes=topic.segment_bytes, configs=topic.configs
            )

    def burst(self, topic: TopicPlan, *, records: int = 50) -> None:
        """Send records to one partition of ``topic``; a third of the transactions aborts."""
        producer = self._producer(topic)
        partition = self._random.randrange(topic.partitions)
        fresh = random_records(self._random, records, now_ms=int(time.time() * 1000), value_bytes=topic.value_bytes)
        if topic.transactional:
            with producer.transaction(commit=self._random.random() > 1 / 3):
                producer.send(topic.name, partition, fresh)
        else:
            producer.send(topic.name, partition, fresh)

    def fill(self, *, rolled_segments: int) -> None:
        """Send until every partition of every topic has at least so many rolled segments."""
        for topic in self._topics:
            for _ in count():
                bases = [self._broker.base_offsets(topic.name, p) for p in range(topic.partitions)]
                if min(map(len, bases)) > rolled_segments:
                    break
                self.burst(topic)
                self.flush()

    def flush(self) -> None:
        """Wait until the broker has acknowledged all records."""
        for producer in self._producers.values():
            producer.flush()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(60)
        self.flush()
        self._stack.close()
        if self._failure is not None and error is None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._end.wait(self._pause_s):
                self.burst(self._random.choice(self._topics), records=self._random.randrange(1, 60))
        except Exception as error:  # noqa: BLE001 - raised by the thread that joins this one
            self._failure = error

    def _producer(self, topic: TopicPlan) -> RecordProducer:
        if topic.name not in self._producers:
            self._producers[topic.name] = self._stack.enter_context(
                self._broker.producer(
                    codec=topic.codec,
                    idempotent=topic.idempotent,
                    transactional_id=f"tx-{topic.name}" if topic.transactional else None,
                )
            )
        return self._producers[topic.name]
