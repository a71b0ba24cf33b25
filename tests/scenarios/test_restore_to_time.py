"""Real broker: records sent by the clock, and a group that commits, restored to a moment in the middle."""

import asyncio
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition

from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Daemon, Installation, Settings
from tests.services.kafka_cluster import KafkaBroker, RecordProducer
from tests.services.kafka_groups import ConsumerGroups
from tests.services.kafka_records import ConsumedRecord, SentRecord
from tests.services.waiting import wait_until
from tierd.remote import EMPTY_RING, ObjectKeyFactory
from tierd.remote.backends.files.filesystem_object_store import FilesystemObjectStore
from tierd.restore import CatalogueStorage
from tierd.restore.catalogue.catalogue_objects import Positions

pytestmark = pytest.mark.service("kafka")

PARTITIONS = 6
GROUP = "billing"
BURST = 5
TICK_S = 0.1
FUTURE_ROUND = 8
HALF_AN_HOUR_MS = 30 * 60_000
PARTITIONS_OF = [(topic, number) for topic in ("created", "stamped") for number in range(PARTITIONS)]
Everything = Mapping[tuple[str, int], Sequence[ConsumedRecord]]


@dataclass(frozen=True, slots=True)
class Tick:
    """One round of the producer: as many records to every partition.

    Attributes:
        sent_ms: before the first record was sent.
    """

    sent_ms: int


class Clockwork:
    """Producer that sends by the clock, and a group that commits what it has sent.

    In partition 1 of the topic with CreateTime every other record is a minute late. Partition 2 has a record of the
    future.

    Attributes:
        ticks: the rounds, in order. Round ``n`` has the offsets from ``n * BURST`` on, in every partition.
    """

    def __init__(self, broker: KafkaBroker, producer: RecordProducer) -> None:
        self.ticks: list[Tick] = []
        self._broker = broker
        self._producer = producer
        self._groups = ConsumerGroups(broker)
        self._random = Random(13)

    def run_until(self, reached: Callable[[], bool]) -> None:
        """Send round after round until the condition holds."""

        def is_reached() -> bool:
            self._send_round()
            return bool(reached())

        wait_until(is_reached, what="enough in catalogue and tier", deadline_s=120, interval_s=TICK_S)

    def _send_round(self) -> None:
        sent_ms = int(time.time() * 1000)
        for partition in PARTITIONS_OF:
            self._producer.send(*partition, self._records(partition, sent_ms))
        self._producer.flush()
        self.ticks.append(Tick(sent_ms))
        self._groups.commit(GROUP, dict.fromkeys(PARTITIONS_OF, len(self.ticks) * BURST))

    def _records(self, partition: tuple[str, int], now_ms: int) -> list[SentRecord]:
        times = [now_ms] * BURST
        if partition == ("created", 1):
            times[1::2] = [now_ms - 60_000] * (BURST // 2)
        if partition == ("created", 2) and len(self.ticks) == FUTURE_ROUND:
            times[0] = now_ms + HALF_AN_HOUR_MS
        return [SentRecord(key=None, value=self._random.randbytes(700), timestamp_ms=each) for each in times]


def catalogued(tierd: Installation, cluster_id: str) -> list[Positions]:
    """Return all positions objects of the catalogue, the oldest first."""

    async def read() -> list[Positions]:
        store = FilesystemObjectStore(tierd.store_dir)
        storage = CatalogueStorage(store, ObjectKeyFactory("", cluster_id), EMPTY_RING)
        found = [await storage.read_positions(key) for key in sorted(await storage.list_positions())]
        await store.close()
        return found

    return asyncio.run(read())


def watermarks(positions: Positions) -> dict[tuple[str, int], int]:
    """Return the high watermarks of the topics."""
    return {(each.topic, each.partition): offsets.high_watermark for each, offsets in positions.partitions.items()}


def commits(positions: Positions) -> dict[tuple[str, int], int]:
    """Return the committed offsets of the group."""
    groups = (each.groups.get(GROUP, {}) for each in positions.coordinated.values())
    found = {partition: commit for each in groups for partition, commit in each.items()}
    return {(each.topic, each.partition): commit.offset for each, commit in found.items()}


def since(broker: KafkaBroker, at_ms: int) -> dict[tuple[str, int], int]:
    """Return the first offset with a time not before ``at_ms``, by the broker; the log end where there is none."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "asks", "log_level": 2})
    try:
        asked = [ClientPartition(topic, number, at_ms) for topic, number in PARTITIONS_OF]
        found = consumer.offsets_for_times(asked, timeout=30)
    finally:
        consumer.close()
    offsets = {(str(each.topic), int(each.partition)): int(each.offset) for each in found}
    return {each: offset if offset >= 0 else broker.end_offset(*each) for each, offset in offsets.items()}


def committed(broker: KafkaBroker) -> dict[tuple[str, int], int]:
    """Return the committed offsets of the group, by the broker."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 2})
    try:
        found = consumer.committed([ClientPartition(*each) for each in PARTITIONS_OF], timeout=30)
    finally:
        consumer.close()
    return {(str(each.topic), int(each.partition)): int(each.offset) for each in found}


def restore(tierd: Installation, broker: KafkaBroker, *arguments: str) -> dict[tuple[str, int], int]:
    """Lose the partitions of the stopped broker, restore them, and return the end of each."""
    (log_dir,) = broker.log_dirs
    for topic, number in PARTITIONS_OF:
        shutil.rmtree(log_dir / f"{topic}-{number}")
    verb = ("log-dir", "--into", str(log_dir), "--mode", "last-copy", "--topic", "created|stamped")
    ended = tierd.ask("restore", *verb, *arguments, "--yes", "--json")
    assert ended.exit_code == 0, ended.output
    ends = {each["partition"]: each["end_offset"] for each in ended.json()["restored"]}
    return {(topic, number): ends[f"{topic}-{number}"] for topic, number in PARTITIONS_OF}


def below(everything: Everything, ends: Mapping[tuple[str, int], int]) -> Everything:
    return {each: [record for record in found if record["offset"] < ends[each]] for each, found in everything.items()}


def cluster_id_of(broker: KafkaBroker) -> str:
    """Return the id of the cluster."""
    identity = (broker.log_dirs[0] / "meta.properties").read_text()
    (found,) = (line.removeprefix("cluster.id=") for line in identity.splitlines() if "cluster.id" in line)
    return found


def fill_catalogue_and_tier(broker: KafkaBroker, daemon: Daemon, tierd: Installation) -> tuple[list[Tick], int]:
    """Send by the clock until the catalogue and the tier have the time before and behind a moment in the middle.

    Returns:
        The rounds, and the moment in milliseconds.
    """

    cluster_id = cluster_id_of(broker)

    def positions() -> int:
        return len(list(tierd.store_dir.glob("*/catalogue/positions/*")))

    def has_all() -> bool:
        """Return True if the catalogue has a record and a commit of every partition."""
        newest = catalogued(tierd, cluster_id)[-1:]
        found = [dict.fromkeys(PARTITIONS_OF, 0) | of(cut) for cut in newest for of in (watermarks, commits)]
        return bool(found) and all(min(offsets[each] for each in PARTITIONS_OF) >= BURST for offsets in found)

    with broker.producer() as producer:
        clockwork = Clockwork(broker, producer)
        clockwork.run_until(lambda: len(clockwork.ticks) >= 20 and has_all())
        moment_ms, before, in_log = clockwork.ticks[-1].sent_ms + 2, positions(), len(clockwork.ticks) * BURST
        clockwork.run_until(
            lambda: (
                positions() >= before + 3
                and min(broker.base_offsets(*each)[-1] for each in PARTITIONS_OF) > in_log + 4 * BURST
            )
        )
    daemon.wait_copied({f"{topic}-{n}": broker.base_offsets(topic, n)[-1] - 1 for topic, n in PARTITIONS_OF})
    return clockwork.ticks, moment_ms


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_partitions_and_groups_come_back_as_they_were_at_a_moment(
    version: str, make_broker: MakeBroker, make_installation: MakeInstallation
) -> None:
    broker = make_broker(version, properties={"replica.high.watermark.checkpoint.interval.ms": "300"})
    for topic, kind in (("created", "CreateTime"), ("stamped", "LogAppendTime")):
        configs = {"message.timestamp.type": kind}
        broker.create_topic(topic, partitions=PARTITIONS, segment_bytes=16_384, configs=configs)
    kafka = {"source": "kafka", "kafka": {"bootstrap_servers": [broker.bootstrap], "refresh": "1s"}}
    settings: Settings = {"catalogue": {"interval": "1s"}, "leadership": kafka}
    tierd = make_installation(broker.log_dirs, settings=settings)
    with tierd.daemon() as daemon:
        ticks, moment_ms = fill_catalogue_and_tier(broker, daemon, tierd)
    everything = broker.consume_all(PARTITIONS_OF)
    by_timestamp = since(broker, moment_ms)
    cut = [each for each in catalogued(tierd, cluster_id_of(broker)) if each.taken_ms <= moment_ms][-1]
    assert_cut_by_the_clock(ticks, cut, moment_ms)

    broker.stop(1)
    ends = restore(tierd, broker, "--to-time", str(moment_ms))
    broker.start(1)

    for each in PARTITIONS_OF:
        is_stamped = each[0] == "stamped"
        assert ends[each] == max(watermarks(cut)[each], by_timestamp[each] if is_stamped else 0), each
    stamps = [record["timestamp"] for number in range(PARTITIONS) for record in everything["stamped", number]]
    assert sum(ends["stamped", number] for number in range(PARTITIONS)) == sum(each < moment_ms for each in stamps)
    assert broker.consume_all(PARTITIONS_OF) == below(everything, ends)
    ended = tierd.ask("restore", "groups", GROUP, "--to", broker.bootstrap, "--at", str(moment_ms))
    assert ended.exit_code == 0, ended.output
    assert committed(broker) == {each: min(commits(cut)[each], watermarks(cut)[each]) for each in PARTITIONS_OF}
    assert all(committed(broker)[each] <= ends[each] for each in PARTITIONS_OF)

    broker.stop(1)
    ends = restore(tierd, broker, "--to-time", str(moment_ms), "--by-timestamp")
    broker.start(1)

    assert ends == by_timestamp
    assert ends["created", 2] == FUTURE_ROUND * BURST  # its first record that is not older than the moment
    assert broker.consume_all(PARTITIONS_OF) == below(everything, ends)


def assert_cut_by_the_clock(ticks: Sequence[Tick], cut: Positions, moment_ms: int) -> None:
    """Compare the cut with the clock: it has records of every partition, and none that was sent later."""
    sent = sum(tick.sent_ms <= cut.taken_ms for tick in ticks) * BURST
    assert 0 < sent < len(ticks) * BURST
    assert ticks[0].sent_ms < cut.taken_ms <= moment_ms < ticks[-1].sent_ms
    assert all(BURST <= offset <= sent for offset in watermarks(cut).values())
    assert all(BURST <= offset <= sent for offset in commits(cut).values())
