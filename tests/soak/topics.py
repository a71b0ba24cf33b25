"""Topics of a soak and the producers that write to them."""

import threading
import time
from itertools import count
from random import Random
from types import TracebackType
from typing import Self

from tests.scenarios.cluster_traffic import ClusterTraffic, ReplicatedTopic
from tests.services.kafka_cluster import KafkaBroker
from tests.services.kafka_journalled import JournalledProducer
from tests.services.kafka_records import SentRecord
from tests.soak.keyed_journal import KeyedJournal

PLAIN = ReplicatedTopic(name="plain", replicas=((1,), (1,)), min_in_sync=1)
TRANSACTIONS = ReplicatedTopic(name="transactions", replicas=((1,),), transactional=True, min_in_sync=1)
PREALLOCATED = ReplicatedTopic(name="preallocated", replicas=((1,),), min_in_sync=1)
CUT_BACK = ReplicatedTopic(name="cut-back", replicas=((1,),), min_in_sync=1)
RECREATED = ReplicatedTopic(name="recreated", replicas=((1,),), min_in_sync=1)
BUSY = (PLAIN, TRANSACTIONS, PREALLOCATED)
DELETED_ONLY = (*BUSY, CUT_BACK, RECREATED)
COMPACTED = "compacted"
CONFIGS = {
    TRANSACTIONS.name: {"preallocate": "true"},
    PREALLOCATED.name: {"preallocate": "true"},
    COMPACTED: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.5",
        "delete.retention.ms": "2000",
        "segment.ms": "5000",
        "file.delete.delay.ms": "60000",
    },
}
_SEGMENT_BYTES = 16_384
_KEYS = 60
_JOIN_DEADLINE_S = 120.0


class SoakTraffic:
    """Background producers of a soak, with a journal of every record that they sent."""

    def __init__(self, broker: KafkaBroker, *, seed: int) -> None:
        self.records = ClusterTraffic(broker, seed=seed, pause_s=0.4)
        self.keyed = KeyedJournal()
        self._broker = broker
        self._seed = seed
        self._end = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._send_keyed, name="traffic-keyed", daemon=True)

    def create_topics(self) -> None:
        """Create every topic of the soak."""
        for topic in DELETED_ONLY:
            create(self._broker, topic.name, partitions=len(topic.replicas))
        create(self._broker, COMPACTED)

    def __enter__(self) -> Self:
        self.records.__enter__()
        self.records.switch_on(*BUSY)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self.records.__exit__(kind, error, trace)

    def stop(self) -> None:
        """Send no more; return when the outcome of every record is known."""
        self._end.set()
        self.records.stop()
        self._thread.join(_JOIN_DEADLINE_S)
        assert not self._thread.is_alive(), "the keyed traffic did not end"
        if self._failure is not None:
            raise self._failure

    def fill(self, topic: ReplicatedTopic, *, rolled_segments: int) -> None:
        """Send to ``topic`` from this thread until each partition rolled ``rolled_segments`` more segments."""
        self.records.fill(topic, rolled_segments=rolled_segments)

    def _send_keyed(self) -> None:
        random, numbers = Random(f"{self._seed} keyed"), count()
        plain = JournalledProducer(self._broker.bootstrap)
        transactional = JournalledProducer(self._broker.bootstrap, transactional_id="soak-keyed")
        try:
            while not self._end.wait(0.5):
                records = [_keyed_record(random, next(numbers)) for _ in range(random.randrange(5, 25))]
                if random.random() < 0.8:
                    self.keyed.note(plain.send(COMPACTED, 0, records))
                else:
                    commit = random.random() > 1 / 3
                    self.keyed.note(transactional.transact(COMPACTED, 0, records, commit=commit))
        except Exception as error:  # noqa: BLE001 - raised by stop() in the thread of the soak
            self._failure = error


def create(broker: KafkaBroker, name: str, *, partitions: int = 1) -> None:
    """Create one topic of the soak."""
    broker.create_topic(
        name,
        replicas=[[1]] * partitions,
        segment_bytes=_SEGMENT_BYTES,
        configs={"min.insync.replicas": "1"} | CONFIGS.get(name, {}),
    )


def _keyed_record(random: Random, number: int) -> SentRecord:
    return SentRecord(
        key=b"key %d" % random.randrange(_KEYS),
        value=None if random.random() < 0.1 else b"%d ".ljust(150, b".") % number,
        timestamp_ms=int(time.time() * 1000),
        headers=(("number", b"%d" % number),),
    )
