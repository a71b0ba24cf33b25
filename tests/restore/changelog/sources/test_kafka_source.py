"""KafkaSource, over a real broker."""

import re
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from tests.contracts.changelog_source import ChangelogSourceContract
from tests.control.connecting import plaintext
from tests.fakes.eventually import succeeds_in_the_end
from tests.restore.changelog.sources.changelog_fixtures import COMMITTED, UNCOMMITTED
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_groups import ConsumerGroups
from tests.services.kafka_records import SentRecord
from tierd.clock import SystemClock
from tierd.model import IsolationLevel, TopicPartition
from tierd.restore.changelog.changelog_errors import ChangelogRangeError, SourceUnavailableError
from tierd.restore.changelog.changelog_source import ChangelogSource
from tierd.restore.changelog.sources.kafka_source import KafkaSource
from tierd.restore.live_cluster.target_cluster import TargetCluster, open_target

pytestmark = pytest.mark.service("kafka")

DEADLINE_S = 60.0
PAGE = Path(__file__).parents[4] / "docs" / "state-stores.md"


@pytest.fixture(scope="module")
def cluster(shared_kafka: MakeCluster) -> KafkaCluster:
    """Start one broker for all tests."""
    return shared_kafka(nodes=1)


@pytest.fixture
async def brokers(cluster: KafkaCluster) -> AsyncIterator[TargetCluster]:
    """Connect to the broker."""
    async with open_target(plaintext(cluster.bootstrap), clock=SystemClock(), patience_s=DEADLINE_S) as opened:
        yield opened


def new_topic(cluster: KafkaCluster) -> TopicPartition:
    """Create an empty topic."""
    name = f"changelog-{uuid4().hex[:8]}"
    cluster.create_topic(name)
    return TopicPartition(name, 0)


def counted(start: int, end: int) -> list[SentRecord]:
    """Return records with the keys k<n> and the values v<n>."""
    return [SentRecord(key=b"k%d" % n, value=b"v%d" % n, timestamp_ms=n) for n in range(start, end)]


def of_ten_records(cluster: KafkaCluster) -> TopicPartition:
    """Create a topic that has two batches of five records."""
    partition = new_topic(cluster)
    with cluster.producer() as producer:
        for start in (0, 5):
            producer.send(partition.topic, 0, counted(start, start + 5))
            producer.flush()
    return partition


@pytest.fixture(scope="module")
def ten_records(cluster: KafkaCluster) -> TopicPartition:
    """Return the changelog of the contract, which no test changes."""
    return of_ten_records(cluster)


class TestKafkaSource(ChangelogSourceContract):
    @pytest.fixture
    def partition(self, ten_records: TopicPartition) -> TopicPartition:
        return ten_records

    @pytest.fixture
    async def source(self, ten_records: TopicPartition, brokers: TargetCluster) -> AsyncIterator[ChangelogSource]:
        source = source_of(ten_records, brokers)
        yield source
        await source.close()


def source_of(partition: TopicPartition, brokers: TargetCluster) -> KafkaSource:
    return KafkaSource([partition.topic], brokers, delete_retention=lambda _: None)


async def values_of(source: KafkaSource, partition: TopicPartition, isolation: IsolationLevel) -> list[bytes | None]:
    """Return all values, read in pieces as small as can be."""
    offset, found = await source.earliest_offset(partition), list[bytes | None]()
    while True:
        read = await source.read(partition, offset, max_bytes=1, isolation=isolation)
        found += read.records.values
        if read.next_offset == offset:
            assert read.at_end
            return found
        offset = read.next_offset


async def test_committed_read_leaves_out_aborted_records_and_ends_where_a_transaction_is_open(
    cluster: KafkaCluster, brokers: TargetCluster
) -> None:
    partition = new_topic(cluster)
    with cluster.producer(transactional_id=f"of {partition}") as producer:
        for start, is_committed in ((0, True), (30, False), (60, True)):
            with producer.transaction(commit=is_committed):
                producer.send(partition.topic, 0, counted(start, start + 30))
        producer.begin_transaction()
        producer.send(partition.topic, 0, counted(90, 91))
        producer.flush()
        source = source_of(partition, brokers)
        everything = [b"v%d" % n for n in range(91)]
        assert await values_of(source, partition, COMMITTED) == everything[:30] + everything[60:90]
        assert await values_of(source, partition, UNCOMMITTED) == everything
        # Three transactions of 30 records with a marker each, then the record of the open one.
        assert await source.end_offset(partition, COMMITTED) == 93
        assert await source.end_offset(partition, UNCOMMITTED) == 94

        producer.end_transaction(commit=True)

    assert await values_of(source, partition, COMMITTED) == everything[:30] + everything[60:]
    identity = await source.identity(partition)
    assert identity.topic_id == cluster.topic_id(partition.topic)
    await source.close()


async def test_read_below_a_log_start_that_has_moved_is_out_of_range(
    cluster: KafkaCluster, brokers: TargetCluster
) -> None:
    partition = of_ten_records(cluster)
    source = source_of(partition, brokers)
    assert await source.earliest_offset(partition) == 0
    cluster.delete_records(partition.topic, 0, 7)

    with pytest.raises(ChangelogRangeError) as caught:
        await source.read(partition, 2, max_bytes=1000, isolation=UNCOMMITTED)

    assert (caught.value.earliest_offset, caught.value.end_offset) == (7, 10)
    assert await values_of(source, partition, UNCOMMITTED) == [b"v7", b"v8", b"v9"]
    await source.close()


async def test_committed_offset_is_that_of_the_coordinator_and_waits_for_an_open_transaction(
    cluster: KafkaCluster, brokers: TargetCluster, ten_records: TopicPartition
) -> None:
    group = f"group-{uuid4().hex[:8]}"
    source = source_of(ten_records, brokers)
    ConsumerGroups(cluster).commit(group, {(ten_records.topic, 0): 4})
    assert await source.committed_offset(group, ten_records) == 4
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"of {group}"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    position = ClientPartition(ten_records.topic, 0, 8)
    producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), DEADLINE_S)

    with pytest.raises(SourceUnavailableError, match="in a transaction that is open"):
        await source.committed_offset(group, ten_records)

    producer.commit_transaction(DEADLINE_S)
    consumer.close()

    async def has_moved() -> None:
        assert await source.committed_offset(group, ten_records) == 8

    # The marker reaches the coordinator of the group a moment later.
    await succeeds_in_the_end(has_moved, despite=SourceUnavailableError, deadline_s=DEADLINE_S)
    await source.close()


def test_program_of_the_documents_fills_a_store(
    cluster: KafkaCluster, ten_records: TopicPartition, tmp_path: Path
) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    program = program.replace("kafka:9092", cluster.bootstrap).replace("app-counts-changelog", ten_records.topic)

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    with closing(sqlite3.connect(tmp_path / "counts" / "store" / "store.sqlite")) as connection:
        found = dict(connection.execute("SELECT key, value FROM data"))
    assert found == {b"k%d" % n: b"v%d" % n for n in range(10)}
