"""Producers of every kind that write to a broker until its host is lost, with what they know of each record."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from types import TracebackType
from typing import Final, Self

from tests.scenarios.journal import Journal
from tests.scenarios.traffic import TopicPlan
from tests.services.kafka_cluster import KafkaBroker
from tests.services.kafka_journalled import JournalledProducer, Sent
from tests.services.kafka_records import SentRecord

PLAIN: Final = TopicPlan(name="plain", partitions=2)
TRANSACTIONAL: Final = TopicPlan(name="transactional", transactional=True)
COMPACTED: Final = TopicPlan(
    name="compacted", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}, value_bytes=200
)
TOPICS: Final = (PLAIN, TRANSACTIONAL, COMPACTED)
_KEYS: Final = 40
_DEADLINE_S: Final = 4.0  # after the loss, producers wait that long for the broker
_JOIN_S: Final = 60.0
_ABORTED: Final = 1 / 3

PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Producing:
    """A producer of its own, and the pause between two of its bursts."""

    name: str
    burst: Callable[[JournalledProducer, Random], None]
    pause_s: float
    transactional_id: str | None = None


class LossTraffic:
    """Traffic of one life of the broker; a context manager. ``journal`` outlives it.

    Attributes:
        acknowledged_at_s: monotonic times at which a producer knew that its record is in the log for good, by
            partition and offset.
        log_starts: offsets below which records may be deleted, by partition; from one life to the next.
        passed: topics that were made, written and deleted.
    """

    def __init__(
        self, broker: KafkaBroker, journal: Journal, log_starts: dict[PartitionName, int], *, seed: str
    ) -> None:
        self.acknowledged_at_s: defaultdict[PartitionName, dict[int, float]] = defaultdict(dict)
        self.log_starts = log_starts
        self.passed: list[str] = []
        self._broker = broker
        self._journal = journal
        self._seed = seed
        self._numbers = count()
        self._end = threading.Event()
        self._failure: Exception | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(each,), name=f"traffic {each.name}", daemon=True)
            for each in (
                _Producing("plain", self._send_plain, 0.01),
                _Producing("transactional", self._transact, 0.01, transactional_id="loss"),
                _Producing("compacted", self._send_keys, 0.03),
                _Producing("orders", self._give_orders, 0.4),
            )
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cease()
        if error is None:
            self.join()

    def cease(self) -> None:
        """Begin no burst any more."""
        self._end.set()

    def join(self) -> None:
        """Return when the outcome of every record is known, or unknown for good."""
        for thread in self._threads:
            thread.join(_JOIN_S)
            assert not thread.is_alive(), f"{thread.name} did not end"
        if self._failure is not None:
            raise self._failure

    def _run(self, producing: _Producing) -> None:
        random = Random(f"{self._seed} {producing.name}")
        producer = JournalledProducer(
            self._broker.bootstrap, transactional_id=producing.transactional_id, deadline_s=_DEADLINE_S
        )
        try:
            while not self._end.wait(producing.pause_s * random.random()):
                producing.burst(producer, random)
        except Exception as error:  # noqa: BLE001 - raised by the thread that joins this one
            if not self._end.is_set():  # orders to a broker that is lost meanwhile fail
                self._failure = error

    def _send_plain(self, producer: JournalledProducer, random: Random) -> None:
        self._note((PLAIN.name, random.randrange(PLAIN.partitions)), producer, self._records(random, PLAIN))

    def _send_keys(self, producer: JournalledProducer, random: Random) -> None:
        records = [
            SentRecord(key=b"%d" % random.randrange(_KEYS), value=each.value, timestamp_ms=each.timestamp_ms)
            for each in self._records(random, COMPACTED)
        ]
        self._note((COMPACTED.name, 0), producer, records)

    def _transact(self, producer: JournalledProducer, random: Random) -> None:
        records, commit = self._records(random, TRANSACTIONAL), random.random() > _ABORTED
        where = (TRANSACTIONAL.name, 0)
        sent = producer.transact(*where, records, commit=commit)
        known_at_s = time.monotonic()
        self._journal.acknowledge(*where, sent.acknowledged)
        self.acknowledged_at_s[where].update(dict.fromkeys(sent.acknowledged, known_at_s))
        self._journal.abort(*where, sent.aborted)
        if commit and sent.is_end_asked:  # nobody may read the records of other failures
            self._journal.doubt(*where, sent.failed)

    def _give_orders(self, producer: JournalledProducer, random: Random) -> None:
        """Delete records, or make a topic, write to it and delete it."""
        if random.random() < 1 / 2:
            where = (PLAIN.name, 1)
            written = [*self.acknowledged_at_s[where]]
            if written:
                before = random.choice(written[: len(written) // 2 + 1])
                self.log_starts[where] = max(before, self.log_starts.get(where, 0))
                self._broker.delete_records(*where, before)
            return
        name = f"passing-{random.randrange(10**9)}"
        self._broker.create_topic(name)
        producer.send(name, 0, self._records(random, PLAIN))
        self._broker.delete_topic(name)
        self.passed.append(name)

    def _note(self, where: PartitionName, producer: JournalledProducer, records: Sequence[SentRecord]) -> None:
        sent: Sent = producer.send(*where, records)
        self._journal.acknowledge(*where, sent.acknowledged)
        self._journal.doubt(*where, sent.failed)
        self.acknowledged_at_s[where].update(sent.acknowledged_at_s)

    def _records(self, random: Random, topic: TopicPlan) -> list[SentRecord]:
        now_ms = int(time.time() * 1000)
        return [
            SentRecord(
                key=None,
                value=f"{self._seed} {next(self._numbers)} ".encode()
                + random.randbytes(topic.value_bytes // 2).hex().encode(),
                timestamp_ms=now_ms,
            )
            for _ in range(random.randrange(1, 30))
        ]
