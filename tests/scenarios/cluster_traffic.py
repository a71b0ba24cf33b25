"""Producers that write to a cluster during faults, and record the outcome of every record."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from types import TracebackType
from typing import Self

from tests.scenarios.journal import Journal
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_journalled import JournalledProducer
from tests.services.kafka_records import SentRecord, random_records

SEGMENT_BYTES = 8_192
_JOIN_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicatedTopic:
    """Topic with its replicas, the preferred leader of each partition first."""

    name: str
    replicas: tuple[tuple[int, ...], ...]
    transactional: bool = False
    min_in_sync: int = 2

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Return name and number of each partition."""
        return [(self.name, number) for number in range(len(self.replicas))]


class ClusterTraffic:
    """Sender of bursts, in the background to active topics and to others on request, with a journal of its records."""

    def __init__(self, cluster: KafkaCluster, *, seed: int, pause_s: float = 0.05) -> None:
        self.journal = Journal()
        self._cluster = cluster
        self._seed = seed
        self._pause_s = pause_s
        self._numbers = count()
        self._active: list[ReplicatedTopic] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(transactional,), name=f"traffic-{transactional}", daemon=True)
            for transactional in (False, True)
        ]
        self._failure: Exception | None = None
        self._plain = JournalledProducer(cluster.bootstrap)

    def create(self, topic: ReplicatedTopic) -> None:
        """Create the topic; nothing is sent to it yet."""
        self._cluster.create_topic(
            topic.name,
            replicas=topic.replicas,
            segment_bytes=SEGMENT_BYTES,
            configs={"min.insync.replicas": str(topic.min_in_sync)},
        )

    def switch_on(self, *topics: ReplicatedTopic) -> None:
        """Send to these topics from now on."""
        with self._lock:
            self._active += topics

    def fill(self, topic: ReplicatedTopic, *, rolled_segments: int) -> None:
        """Send until every partition has rolled so many more segments, deleted ones included."""
        random = Random(f"{self._seed} fill {topic.name}")
        for name, partition in topic.partitions:
            target = self._bases(name, partition)[-1]
            for _ in range(rolled_segments):
                while self._bases(name, partition)[-1] == target:
                    self.send(name, partition, self.unique_records(random, 20))
                target = self._bases(name, partition)[-1]

    def begin_anew(self) -> None:
        """Send as another producer from now on: the cluster has lost the state of this one."""
        self._plain.close()

    def send(self, topic: str, partition: int, records: Sequence[SentRecord]) -> None:
        """Send records outside of any transaction, from the thread of the story."""
        self._note(topic, partition, self._plain, records)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.stop()
        self._end.set()

    def stop(self) -> None:
        """Send no more; return when the outcome of every record is known."""
        self._end.set()
        for thread in self._threads:
            thread.join(_JOIN_DEADLINE_S)
            assert not thread.is_alive(), f"{thread.name} did not end"
        if self._failure is not None:
            raise self._failure

    def _run(self, transactional: bool) -> None:
        random = Random(f"{self._seed} {transactional}")
        producer = JournalledProducer(self._cluster.bootstrap, transactional_id="story" if transactional else None)
        try:
            while not self._end.wait(self._pause_s):
                with self._lock:
                    chosen = [topic for topic in self._active if topic.transactional is transactional]
                if chosen:
                    self._burst(random, producer, random.choice(chosen))
        except Exception as error:  # noqa: BLE001 - raised by the thread that joins this one
            self._failure = error

    def _burst(self, random: Random, producer: JournalledProducer, topic: ReplicatedTopic) -> None:
        name, partition = random.choice(topic.partitions)
        records = self.unique_records(random, random.randrange(1, 30))
        if not topic.transactional:
            self._note(name, partition, producer, records)
            return
        sent = producer.transact(name, partition, records, commit=random.random() > 1 / 3)
        self.journal.acknowledge(name, partition, sent.acknowledged)
        self.journal.doubt(name, partition, sent.failed)
        self.journal.abort(name, partition, sent.aborted)

    def _note(self, topic: str, partition: int, producer: JournalledProducer, records: Sequence[SentRecord]) -> None:
        sent = producer.send(topic, partition, records)
        self.journal.acknowledge(topic, partition, sent.acknowledged)
        self.journal.doubt(topic, partition, sent.failed)

    def unique_records(self, random: Random, number: int) -> list[SentRecord]:
        """Return records with unique values."""
        plain = random_records(random, number, now_ms=int(time.time() * 1000), value_bytes=200)
        return [
            SentRecord(
                key=record.key,
                value=b"%d:" % next(self._numbers) + (record.value or b""),
                timestamp_ms=record.timestamp_ms,
                headers=record.headers,
            )
            for record in plain
        ]

    def _bases(self, topic: str, partition: int) -> list[int]:
        return self._cluster.leader_base_offsets(topic, partition)
