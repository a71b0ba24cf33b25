"""Real broker with a tierd beside it, and the life of a tiered topic (remote-tiering 23, end to end).

In the form of tierd: ``tierd cat`` consumes, the broker applies local retention, and tierd the retention of the tier.
"""

import time
from collections.abc import Iterator
from random import Random

import pytest

from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Daemon, Installation, Settings
from tests.scenarios.stores import SpoilableS3
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until
from tierd.log import REPLICATION_OFFSET_CHECKPOINT, read_offset_checkpoint
from tierd.model import TopicPartition

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3")]

DEADLINE_S = 40.0
ONE_BATCH = 500  # room for one batch of one record of VALUE_BYTES, not for two
VALUE_BYTES = 300
TWO_BATCHES = 900  # room for two batches of one such record


class TieredTopic:
    """Topic with its sent records, and the tier beside it."""

    def __init__(self, cluster: KafkaCluster, tierd: Installation, s3: SpoilableS3, name: str) -> None:
        self.cluster = cluster
        self.tierd = tierd
        self.name = name
        self._s3 = s3
        self._random = Random(name)

    def create(self, *, segment_bytes: int = ONE_BATCH, partitions: int = 1) -> None:
        self.cluster.create_topic(self.name, segment_bytes=segment_bytes, partitions=partitions)

    def produce(self, count: int, *, partition: int = 0, timestamp_ms: int | None = None) -> None:
        """Send records, each in a batch of its own."""
        with self.cluster.producer() as producer:
            for _ in range(count):
                value = self._random.randbytes(VALUE_BYTES)
                now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
                producer.send(self.name, partition, [SentRecord(key=None, value=value, timestamp_ms=now_ms)])
                producer.flush()

    def segments(self, partition: int = 0) -> list[tuple[int, int]]:
        listed = self.tierd.segments(f"{self.name}-{partition}")
        return [(s["start_offset"], s["end_offset"]) for s in listed if s["state"] == "COPY_SEGMENT_FINISHED"]

    def wait_tiered(self, expected: list[tuple[int, int]], partition: int = 0) -> None:
        wait_until(
            lambda: self.segments(partition) == expected,
            what=f"{self.name}-{partition} to have {expected} in the tier",
            deadline_s=DEADLINE_S,
            last_seen=lambda: self.segments(partition),
            interval_s=0.2,
        )

    def let_local_go(self, *, but: int, partition: int = 0) -> None:
        """Lower retention of the broker until its first segment begins at ``but``, the active one."""
        self.cluster.alter_topic(self.name, {"retention.bytes": "1"})
        wait_until(
            lambda: self.cluster.base_offsets(self.name, partition)[0] == but,
            what="the broker's retention",
            deadline_s=DEADLINE_S,
        )

    def read(self, *options: str, partition: int = 0) -> list[int]:
        """Read the committed records, once the broker has checkpointed them: a reader of its files stops there."""
        committed, name = self.cluster.end_offset(self.name, partition), TopicPartition(self.name, partition)

        def written() -> int | None:
            directory = self.cluster.partition_dir(self.name, partition)
            if directory is None:
                return None
            return read_offset_checkpoint(directory.parent / REPLICATION_OFFSET_CHECKPOINT).get(name)

        wait_until(
            lambda: written() == committed,
            what=f"the high watermark {committed} of {name} in its log dir",
            deadline_s=DEADLINE_S,
            last_seen=written,
        )
        return [record["offset"] for record in self.tierd.cat(f"{self.name}-{partition}", *options)]

    def objects(self) -> list[str]:
        keys = self._s3.admin.keys(self._s3.bucket)
        return [key for key in keys if f"/{self.name}-" in key and "/catalogue/" not in key]

    def wait_empty(self) -> None:
        """Wait until no segment is left; the log start stays known."""

        def is_empty() -> bool:
            return [key for key in self.objects() if not key.endswith("/log-start.json")] == []

        wait_until(is_empty, what="an empty tier", deadline_s=DEADLINE_S, interval_s=0.2)


class Beside:
    """Broker and daemon that a test may give topics."""

    def __init__(self, cluster: KafkaCluster, tierd: Installation, daemon: Daemon, s3: SpoilableS3) -> None:
        self.cluster = cluster
        self.tierd = tierd
        self.daemon = daemon
        self._s3 = s3

    def topic(self, name: str) -> TieredTopic:
        return TieredTopic(self.cluster, self.tierd, self._s3, name)

    def set_topics(self, **defaults: object) -> None:
        """Change the topic settings in the file, and have the daemon read it."""
        self.tierd.configure({"topics": {"defaults": defaults}})
        self.daemon.reload()


@pytest.fixture(scope="module")
def broker(shared_kafka: MakeCluster) -> KafkaCluster:
    """Start one node with two log dirs."""
    return shared_kafka(nodes=1, version="4.3.1", log_dir_count=2)


@pytest.fixture
def beside(
    broker: KafkaCluster, make_installation: MakeInstallation, spoilable_s3: SpoilableS3, request: pytest.FixtureRequest
) -> Iterator[Beside]:
    topic = request.node.name.removeprefix("test_")
    kafka = {"bootstrap_servers": [broker.address(1)], "refresh": "300ms"}
    settings: Settings = {
        "leadership": {"source": "kafka", "kafka": kafka},
        "topics": {"include": [f"{topic}.*"]},
        "expire": {"interval": "300ms", "grace": "0s"},
    }
    tierd = make_installation(broker.log_dirs_of(1), remote=spoilable_s3.remote(), settings=settings)
    with tierd.daemon() as daemon:
        yield Beside(broker, tierd, daemon, spoilable_s3)


@pytest.fixture
def topic(beside: Beside, request: pytest.FixtureRequest) -> TieredTopic:
    """Return a topic named as the test, so that the tests of a module share only the broker."""
    return beside.topic(request.node.name.removeprefix("test_"))


@pytest.mark.spec("remote-tiering 246")
def test_segments_of_one_batch_are_tiered_and_read_back(topic: TieredTopic) -> None:
    topic.create()
    topic.produce(3)
    topic.wait_tiered([(0, 0), (1, 1)])
    topic.let_local_go(but=2)
    topic.cluster.stop(1)
    topic.cluster.start(1)
    assert topic.read("--from", "1", "--to", "2") == [1, 2]


@pytest.mark.spec("remote-tiering 247")
def test_segments_of_two_batches_are_tiered_and_read_back(topic: TieredTopic) -> None:
    topic.create(segment_bytes=TWO_BATCHES)
    topic.produce(5)
    topic.wait_tiered([(0, 1), (2, 3)])
    topic.let_local_go(but=4)
    assert topic.read("--from", "1") == [1, 2, 3, 4]


@pytest.mark.spec("remote-tiering 249")
def test_retention_by_size_deletes_segments_of_the_tier(topic: TieredTopic, beside: Beside) -> None:
    topic.create()
    topic.produce(4)
    topic.wait_tiered([(0, 0), (1, 1), (2, 2)])
    topic.let_local_go(but=3)
    beside.set_topics(retention_bytes=1)
    topic.wait_empty()
    assert topic.read() == [3]


@pytest.mark.spec("remote-tiering 250")
def test_retention_by_time_deletes_segments_of_the_tier(topic: TieredTopic, beside: Beside) -> None:
    topic.create()
    topic.produce(3, timestamp_ms=int(time.time() * 1000) - 60_000)
    topic.produce(1, timestamp_ms=int(time.time() * 1000) + 600_000)
    topic.wait_tiered([(0, 0), (1, 1), (2, 2)])
    topic.let_local_go(but=3)
    beside.set_topics(retention="1s")
    topic.wait_empty()
    assert topic.read() == [3]


@pytest.mark.spec("remote-tiering 251")
def test_deleted_records_are_removed_from_the_tier(topic: TieredTopic) -> None:
    topic.create(segment_bytes=TWO_BATCHES)
    topic.produce(5)
    topic.wait_tiered([(0, 1), (2, 3)])
    topic.cluster.delete_records(topic.name, 0, 3)
    topic.wait_tiered([(2, 3)])
    assert topic.read() == [3, 4]
    topic.cluster.stop(1)  # the next leadership has another epoch
    topic.cluster.start(1)
    topic.produce(4)
    topic.wait_tiered([(2, 3), (4, 5), (6, 7)])
    topic.cluster.delete_records(topic.name, 0, 7)
    topic.wait_tiered([(6, 7)])
    assert topic.read() == [7, 8]


@pytest.mark.spec("remote-tiering 252")
def test_tier_is_deleted_with_its_topic(topic: TieredTopic, beside: Beside) -> None:
    beside.set_topics(delete_with_topic=True)
    topic.create(partitions=2)
    for partition in range(2):
        topic.produce(3, partition=partition)
        topic.wait_tiered([(0, 0), (1, 1)], partition)
    topic.cluster.delete_topic(topic.name)
    wait_until(lambda: topic.objects() == [], what="the tier to go with its topic", deadline_s=90, interval_s=0.3)


@pytest.mark.spec("remote-tiering 253")
def test_switched_off_copies_continue_when_switched_on(topic: TieredTopic, beside: Beside) -> None:
    topic.create(segment_bytes=TWO_BATCHES)
    topic.produce(5)
    topic.wait_tiered([(0, 1), (2, 3)])
    beside.set_topics(copy=False)
    topic.produce(2)
    assert topic.read() == [0, 1, 2, 3, 4, 5, 6]
    assert topic.segments() == [(0, 1), (2, 3)]
    beside.set_topics(copy=True)
    topic.wait_tiered([(0, 1), (2, 3), (4, 5)])
    # The offset is within a segment: a log start at its base would be retention of the broker, which the tier ignores.
    topic.cluster.delete_records(topic.name, 0, 3)
    topic.wait_tiered([(2, 3), (4, 5)])
    beside.tierd.configure({"topics": {"exclude": [topic.name]}})
    beside.daemon.reload()
    deleted = topic.tierd.ask("delete-partition", f"{topic.name}-0", "--yes", "--now")
    assert deleted.exit_code == 0, deleted.output
    wait_until(lambda: topic.objects() == [], what="nothing to be left", deadline_s=DEADLINE_S, interval_s=0.2)
    assert topic.read() == [3, 4, 5, 6]


@pytest.mark.spec("remote-tiering 254")
def test_tiering_that_is_enabled_later_copies_existing_segments(topic: TieredTopic, beside: Beside) -> None:
    beside.set_topics(copy=False)
    topic.create(partitions=2)
    for partition in range(2):
        topic.produce(3, partition=partition)
    beside.set_topics(copy=True)
    for partition in range(2):
        topic.produce(2, partition=partition)
        topic.wait_tiered([(n, n) for n in range(4)], partition)
        topic.let_local_go(but=4, partition=partition)
        assert topic.read(partition=partition) == [0, 1, 2, 3, 4]


@pytest.mark.spec("remote-tiering 256")
def test_added_partitions_are_tiered(topic: TieredTopic) -> None:
    topic.create()
    topic.produce(3)
    topic.wait_tiered([(0, 0), (1, 1)])
    topic.cluster.add_partitions(topic.name, 3)
    for partition in (1, 2):
        topic.produce(2 + partition, partition=partition)
        topic.wait_tiered([(n, n) for n in range(1 + partition)], partition)
        assert topic.read(partition=partition) == list(range(2 + partition))
    assert topic.read() == [0, 1, 2]


@pytest.mark.spec("remote-tiering 258")
def test_active_segment_that_retention_rolled_is_tiered(topic: TieredTopic) -> None:
    topic.create()
    topic.produce(4)
    topic.wait_tiered([(0, 0), (1, 1), (2, 2)])
    topic.cluster.alter_topic(topic.name, {"retention.ms": "1"})
    topic.wait_tiered([(0, 0), (1, 1), (2, 2), (3, 3)])
    wait_until(
        lambda: topic.cluster.base_offsets(topic.name, 0) == [4], what="the broker's retention", deadline_s=DEADLINE_S
    )
    assert topic.read() == [0, 1, 2, 3]


@pytest.mark.spec("remote-tiering 259")
def test_replica_that_moved_to_another_log_dir_is_tiered_further(topic: TieredTopic) -> None:
    topic.create()
    topic.produce(3)
    topic.wait_tiered([(0, 0), (1, 1)])
    here = topic.cluster.partition_dir(topic.name, 0)
    assert here is not None
    there = next(path for path in topic.cluster.log_dirs_of(1) if path != here.parent)
    topic.cluster.reassign(topic.name, 0, [1], log_dir=there)
    wait_until(
        lambda: topic.cluster.partition_dir(topic.name, 0) == there / here.name,
        what="the replica to be in its new place",
        deadline_s=DEADLINE_S,
    )
    topic.produce(2)
    topic.wait_tiered([(0, 0), (1, 1), (2, 2), (3, 3)])
    topic.let_local_go(but=4)
    assert topic.read() == [0, 1, 2, 3, 4]
