"""Stock broker and tierd in turn on one log dir: each continues where the other stopped."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.golden.unpack import OracleRecord
from tests.log.cleaning.cleaners import clean
from tests.log.logs import clean_up
from tests.log.reading import read_whole_log
from tests.scenarios.conftest import MakeBroker
from tests.services.kafka_cluster import CODECS, KafkaBroker
from tests.services.kafka_records import SentRecord, random_records
from tierd.clock import SystemClock
from tierd.log import ControlRecordType, NewRecord, Producer, encode_batch, encode_end_marker
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NO_PRODUCER
from tierd.model import TopicPartition

pytestmark = pytest.mark.service("kafka")

VERSIONS = ("3.9.2", "4.3.1")
SEGMENT_BYTES = 16_384
NOW_MS = 1_780_000_000_000
EPOCHS = (0, 1, 2)  # epochs of tierd as a leader; the broker that starts afterwards leads with a later one
COMPLAINTS = ("Recovering unflushed segment", "Corruption found", "Found a corrupted", "Could not find offset index")
CONFIG = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "600", "segment.index.bytes": "4096"}
Records = dict[TopicPartition, list[OracleRecord]]


class Topics:
    """Topics that both write to."""

    BY_CODEC = tuple(f"plain-{codec}" for codec in CODECS)
    MANY = tuple(f"many-{n}" for n in range(10))
    TRANSACTIONS = "transactions"
    IDEMPOTENT = "idempotent"
    RETAINED = "retained"
    ALL = (*BY_CODEC, *MANY, TRANSACTIONS, IDEMPOTENT, RETAINED)


class SharedLogDir:
    """Log dir in turn of a broker and of ``tierd``."""

    def __init__(self, broker: KafkaBroker, seed: int) -> None:
        self.broker = broker
        self.path = broker.log_dirs[0]
        self.random = Random(seed)

    def create_topics(self) -> None:
        for topic in Topics.ALL:
            configs = {name: value for name, value in CONFIG.items() if name != "segment.bytes"}
            self.broker.create_topic(topic, configs=configs, segment_bytes=SEGMENT_BYTES)

    def restart_broker(self, times: int) -> None:
        """Restart the broker; every start is another leader epoch."""
        for _ in range(times):
            self.broker.stop()
            self.broker.start()

    @contextmanager
    def tierd(self) -> Iterator[LogManager]:
        with LogManager([self.path], LogManagerSettings(config_for=config_of)) as manager:
            yield manager

    def consumed(self, *, committed: bool) -> Records:
        records = self.broker.consume_all([(topic, 0) for topic in Topics.ALL], committed=committed)
        return {TopicPartition(topic, p): list(map(as_known, found)) for (topic, p), found in records.items()}

    def complaints(self) -> list[str]:
        """Return the messages of the broker about logs at its start, without those about its own metadata."""
        text = (self.path.parent / "node1" / "server.log").read_text(errors="replace")
        lines = [line for line in text.splitlines() if "__cluster_metadata" not in line]
        return [line for line in lines if any(complaint in line for complaint in COMPLAINTS)]

    def records(self, count: int) -> list[SentRecord]:
        return list(random_records(self.random, count, now_ms=NOW_MS))


def config_of(topic: str) -> LogConfig:
    if topic.startswith("__"):
        return LogConfig(cleanup_policy=frozenset({"compact"}))
    retention = {"retention.bytes": str(3 * SEGMENT_BYTES)} if topic == Topics.RETAINED else {"retention.ms": "-1"}
    return LogConfig.from_kafka(CONFIG | retention)


def as_known(record: object) -> OracleRecord:
    """Return a consumed record with null for an unknown epoch, as this client has it."""
    assert isinstance(record, dict)
    return OracleRecord(**record)  # type: ignore[typeddict-item]  # the same keys, checked by the comparison


def read_by_tierd(manager: LogManager) -> tuple[Records, Records]:
    found = {TopicPartition(topic, 0): read_whole_log(log_of(manager, topic)) for topic in Topics.ALL}
    return {p: f.records for p, f in found.items()}, {p: f.committed for p, f in found.items()}


def log_of(manager: LogManager, topic: str) -> UnifiedLog:
    log = manager.get(TopicPartition(topic, 0))
    assert log is not None, topic
    return log


def append(log: UnifiedLog, data: bytes, epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
    log.append_as_leader(data, leader_epoch=epoch, now_ms=NOW_MS, origin=origin)
    log.update_high_watermark(log.log_end_offset)


def new_records(shared: SharedLogDir, count: int) -> list[NewRecord]:
    return [NewRecord(r.key, r.value, r.timestamp_ms, tuple(r.headers)) for r in shared.records(count)]


def write_everything(shared: SharedLogDir, manager: LogManager, epochs: tuple[int, ...]) -> None:
    """Write with every codec, overlapping transactions and several leader epochs over several segments; then retain."""
    codecs = dict(zip(Topics.BY_CODEC, Compression, strict=True))
    for epoch in epochs:
        for topic in (*Topics.BY_CODEC, *Topics.MANY, Topics.RETAINED):
            codec = codecs.get(topic, Compression.NONE)
            for _ in range(2 if topic in Topics.MANY else 20):
                append(log_of(manager, topic), encode_batch(new_records(shared, 9), compression=codec), epoch)
        write_transactions(shared, log_of(manager, Topics.TRANSACTIONS), epoch)
    clean_up(manager, now_ms=SystemClock().now_ms())
    assert log_of(manager, Topics.RETAINED).log_start_offset > 0


def write_transactions(shared: SharedLogDir, log: UnifiedLog, epoch: int) -> None:
    """Write with three producers at once; one of three transactions is aborted. None is left open."""
    for round_number in range(4):
        for step in range(3):
            for producer_id in (900, 901, 902):
                sequence = ((epoch * 4 + round_number) * 3 + step) * 5
                producer = Producer(producer_id, 0, sequence)
                append(log, encode_batch(new_records(shared, 5), producer=producer, is_transactional=True), epoch)
        for producer_id in (901, 900, 902):
            kind = ControlRecordType.ABORT if producer_id == 901 else ControlRecordType.COMMIT
            marker = encode_end_marker(
                kind=kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=epoch, timestamp_ms=NOW_MS
            )
            append(log, marker, epoch, AppendOrigin.COORDINATOR)


@pytest.fixture
def make_shared(make_broker: MakeBroker) -> Callable[[str], SharedLogDir]:
    def make(version: str) -> SharedLogDir:
        return SharedLogDir(make_broker(version), seed=11)

    return make


@pytest.mark.parametrize("version", VERSIONS)
def test_broker_and_tierd_continue_each_others_log(version: str, make_shared: Callable[[str], SharedLogDir]) -> None:
    shared = make_shared(version)
    shared.create_topics()
    with shared.broker.producer(idempotent=True) as producer:
        producer.send(Topics.IDEMPOTENT, 0, shared.records(60))
        producer.flush()
        shared.restart_broker(times=2)
        producer.send(Topics.IDEMPOTENT, 0, shared.records(60))
        producer.flush()
        shared.broker.stop()

        with shared.tierd() as manager:
            write_everything(shared, manager, EPOCHS)
            written, committed = read_by_tierd(manager)
        shared.broker.start()

        assert shared.complaints() == []
        assert shared.consumed(committed=False) == written
        assert shared.consumed(committed=True) == committed
        before = shared.broker.end_offset(Topics.IDEMPOTENT, 0)
        producer.send(Topics.IDEMPOTENT, 0, shared.records(60))
        producer.flush()
        assert shared.broker.end_offset(Topics.IDEMPOTENT, 0) == before + 60
    with shared.broker.producer(transactional_id="together") as producer:
        for commit in (True, False):
            with producer.transaction(commit=commit):
                producer.send(Topics.TRANSACTIONS, 0, shared.records(30))
    everything, committed = shared.consumed(committed=False), shared.consumed(committed=True)
    shared.broker.stop()

    with shared.tierd() as manager:
        assert read_by_tierd(manager) == (everything, committed)
        append(log_of(manager, Topics.IDEMPOTENT), encode_batch(new_records(shared, 9)), epoch=9)
        assert log_of(manager, Topics.IDEMPOTENT).log_end_offset == before + 69


@pytest.mark.parametrize("version", VERSIONS)
def test_broker_recovers_the_log_of_a_killed_tierd(
    version: str, make_shared: Callable[[str], SharedLogDir], tmp_path: Path
) -> None:
    shared = make_shared(version)
    shared.create_topics()
    shared.restart_broker(times=2)
    shared.broker.stop()
    with shared.tierd() as manager:
        write_everything(shared, manager, EPOCHS)
        expected = read_by_tierd(manager)
        manager.checkpoint_recovery_points()
        manager.checkpoint_log_start_offsets()
        shutil.copytree(shared.path, tmp_path / "as-killed")
    shutil.rmtree(shared.path)
    (tmp_path / "as-killed").rename(shared.path)

    shared.broker.start()

    assert (shared.consumed(committed=False), shared.consumed(committed=True)) == expected


def test_broker_continues_a_log_that_tierd_has_cleaned(make_shared: Callable[[str], SharedLogDir]) -> None:
    shared, partition = make_shared("4.3.1"), TopicPartition("cleaned", 0)
    settings = CONFIG | {"cleanup.policy": "compact", "retention.ms": "-1", "min.cleanable.dirty.ratio": "1.0"}
    configs = {name: value for name, value in settings.items() if name != "segment.bytes"}
    shared.broker.create_topic(partition.topic, configs=configs, segment_bytes=SEGMENT_BYTES)
    shared.restart_broker(times=1)
    shared.broker.stop()

    with LogManager([shared.path], LogManagerSettings(config_for=lambda _: LogConfig.from_kafka(settings))) as manager:
        log = log_of(manager, partition.topic)
        for number in range(400):
            value = None if number % 7 == 0 else shared.random.randbytes(200)
            records = [NewRecord(b"key-%d" % shared.random.randrange(40), value, NOW_MS)]
            producer = Producer(900, 0, number // 2) if number % 2 else NO_PRODUCER
            append(log, encode_batch(records, producer=producer), epoch=0)
        size_bytes, end_offset = log.size_bytes, log.log_end_offset
        manager.set_cleaner_offset(partition, clean(log, cleaned_to=None, now_ms=NOW_MS))
        assert log.size_bytes < size_bytes / 2
        written = read_whole_log(log).records
    shared.broker.start()

    assert shared.complaints() == []
    consumed = shared.broker.consume_all([(partition.topic, 0)], committed=False)[partition.topic, 0]
    assert list(map(as_known, consumed)) == written
    assert shared.broker.end_offset(partition.topic, 0) == end_offset
    with shared.broker.producer(idempotent=True) as producing:
        producing.send(partition.topic, 0, [record for record in shared.records(40) if record.key is not None])
        producing.flush()
    shared.broker.stop()
    with LogManager([shared.path], LogManagerSettings(config_for=lambda _: LogConfig.from_kafka(settings))) as manager:
        assert manager.cleaner_offset(partition) is not None
        assert read_whole_log(log_of(manager, partition.topic)).records[: len(written)] == written
