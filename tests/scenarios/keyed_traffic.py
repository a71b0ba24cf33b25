"""Producer that repeatedly writes a few keys, and the rules for readings of such a topic."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from types import TracebackType
from typing import NamedTuple, Self

from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_journalled import JournalledProducer, Sent
from tests.services.kafka_records import SentRecord

_JOIN_DEADLINE_S = 60.0
_PAUSE_S = 0.4


class SeenRecord(NamedTuple):
    """Record as a reader got it."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Reading:
    """Records of one reader, and the end of the log after the reading, which no record of it may exceed."""

    what: str
    records: Sequence[SeenRecord]
    log_end: int


class KeyedTraffic:
    """Bursts to some topics of one partition until the context ends, every fifth as a transaction, with a journal."""

    def __init__(self, cluster: KafkaCluster, topics: Sequence[str], *, keys: int, value_bytes: int) -> None:
        self._cluster = cluster
        self._topics = topics
        self._keys = keys
        self._value_bytes = value_bytes
        self._numbers = count()
        self._acknowledged: dict[str, dict[int, SentRecord]] = {topic: {} for topic in topics}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="keyed traffic", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(_JOIN_DEADLINE_S)
        if self._failure is not None:
            raise self._failure

    def journal(self, topic: str) -> dict[int, SentRecord]:
        """Return every acknowledged and committed record by its offset."""
        with self._lock:
            return dict(self._acknowledged[topic])

    def _run(self) -> None:
        random = Random("keyed traffic")
        plain = JournalledProducer(self._cluster.bootstrap)
        transactional = JournalledProducer(self._cluster.bootstrap, transactional_id="keyed traffic")
        try:
            for burst in count():
                if self._end.wait(_PAUSE_S):
                    return
                for topic in self._topics:
                    records = [self._record(random) for _ in range(random.randrange(5, 25))]
                    if burst % 5:
                        self._note(topic, plain.send(topic, 0, records))
                    else:
                        commit = random.random() > 1 / 3
                        self._note(topic, transactional.transact(topic, 0, records, commit=commit))
        except Exception as error:  # noqa: BLE001 - raised by the thread that joins this one
            self._failure = error

    def _note(self, topic: str, sent: Sent) -> None:
        assert not sent.failed, f"nothing happens to the broker in this story, yet {len(sent.failed)} records failed"
        with self._lock:
            self._acknowledged[topic].update(sent.acknowledged)

    def _record(self, random: Random) -> SentRecord:
        number = next(self._numbers)
        value = None if random.random() < 0.1 else (b"%d " % number).ljust(self._value_bytes, b".")
        key = b"key %d" % random.randrange(self._keys)
        return SentRecord(key=key, value=value, timestamp_ms=int(time.time() * 1000))


def assert_consistent(reading: Reading, journal: Mapping[int, SentRecord]) -> None:
    """Fail unless a reading of committed records is one that a log during its compaction may give.

    Offsets ascend, every record was acknowledged at its offset, and the last record read of a key is the latest one up
    to the end of the reading. Two exceptions are right: a later record of the key took its place during the reading, or
    the latest one is a tombstone and the reading has no older record of the key.
    """
    offsets = [record.offset for record in reading.records]
    assert offsets == sorted(set(offsets)), f"{reading.what}: offsets are not ascending"
    for record in reading.records:
        sent = journal.get(record.offset)
        assert sent is not None, f"{reading.what}: no producer committed a record at {record.offset}"
        assert (sent.key, sent.value) == (record.key, record.value), f"{reading.what}: {record.offset} differs"
    last = offsets[-1] if offsets else -1
    seen = {record.key: record.offset for record in reading.records}
    latest, later = _latest(journal, range(last + 1)), _latest(journal, range(last + 1, reading.log_end))
    for key, offset in latest.items():
        if seen.get(key) == offset or key in later:
            continue
        is_gone = journal[offset].value is None and key not in seen
        assert is_gone, f"{reading.what}: the latest record of {key!r} is at {offset}, the reading has {seen.get(key)}"


def _latest(journal: Mapping[int, SentRecord], offsets: range) -> dict[bytes | None, int]:
    return {journal[offset].key: offset for offset in sorted(journal) if offset in offsets}
