"""Real broker, lost partition directories: restored from the tier, served as before, and written on."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.scenarios.broker_complaints import complaints
from tests.scenarios.broker_steps import Oracle, consume_all, rolled_through
from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Installation
from tests.scenarios.oracle import assert_same_records
from tests.scenarios.traffic import TopicPlan, Traffic
from tests.services.kafka_cluster import KafkaBroker

pytestmark = pytest.mark.service("kafka")

TOPICS = (
    TopicPlan(name="plain", partitions=2),
    TopicPlan(name="zstd", codec="zstd"),
    TopicPlan(name="idempotent", idempotent=True),
    TopicPlan(name="transactional", transactional=True),
)
GROUP = "billing"


def commit(broker: KafkaBroker, topic: str, offset: int) -> None:
    """Commit ``offset`` of partition 0 for the group."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 2})
    try:
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def committed(broker: KafkaBroker, topic: str) -> int:
    """Return the committed offset of partition 0 for the group."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 2})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        return int(found.offset)
    finally:
        consumer.close()


def lose_partitions(broker: KafkaBroker) -> list[str]:
    """Remove the directory of every partition; ``meta.properties`` and Kafka's own topics stay."""
    names = [name for topic in TOPICS for name in topic.partition_names]
    for name in names:
        shutil.rmtree(broker.log_dirs[0] / name)
    return names


def restored(tierd: Installation, *arguments: str) -> dict[str, dict[str, Any]]:
    """Restore and return the outcome of each partition."""
    ended = tierd.ask("restore", *arguments, "--yes", "--json")
    assert ended.exit_code == 0, ended.output
    return {outcome["partition"]: outcome for outcome in ended.json()["restored"]}


def below(oracle: Oracle, ends: dict[str, int]) -> Oracle:
    """Return the records of the oracle below the end of each partition."""
    return {
        name: (
            [record for record in everything if record["offset"] < ends[name]],
            [record for record in read_committed if record["offset"] < ends[name]],
        )
        for name, (everything, read_committed) in oracle.items()
    }


def assert_same(actual: Oracle, expected: Oracle) -> None:
    for name, (everything, read_committed) in expected.items():
        assert_same_records(actual[name][0], everything, what=name)
        assert_same_records(actual[name][1], read_committed, what=f"{name} committed")


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_lost_partition_directories_come_back_with_their_offsets(
    version: str, make_broker: MakeBroker, make_installation: MakeInstallation, tmp_path: Path
) -> None:
    broker = make_broker(version)
    tierd = make_installation(broker.log_dirs)
    traffic = Traffic(broker, TOPICS, seed=15)
    traffic.create_topics()
    traffic.fill(rolled_segments=2)
    oracle = consume_all(broker, TOPICS)
    commit(broker, "plain", 30)
    with tierd.daemon() as daemon:
        daemon.wait_copied(rolled_through(broker, TOPICS))
    broker.stop(1)
    names = lose_partitions(broker)
    into = str(broker.log_dirs[0])

    outcomes = restored(tierd, "partition", *names, "--into", into, "--mode", "last-copy")

    ends = {name: outcome["end_offset"] for name, outcome in outcomes.items()}
    for name, outcome in outcomes.items():
        assert ends[name] == tierd.frontier(name) + 1 or outcome["dropped"], outcome
    broker.start(1)
    assert_same(consume_all(broker, TOPICS), below(oracle, ends))
    Traffic(broker, TOPICS, seed=16).fill(rolled_segments=4)
    after = consume_all(broker, TOPICS)
    assert_same(below(after, ends), below(oracle, ends))
    for name, outcome in outcomes.items():
        written = [record["offset"] for record in after[name][0] if record["offset"] >= ends[name]]
        assert written, f"{name}: nothing could be written"
        assert written[0] >= outcome["log_end_offset"] >= max(record["offset"] for record in oracle[name][0]) + 1
    assert committed(broker, "plain") == 30
    assert complaints(tmp_path / "kafka" / "node1" / "server.log") == []
    with tierd.daemon() as daemon:
        daemon.wait_copied(rolled_through(broker, TOPICS))
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output


def test_wiped_log_dir_of_a_broker_comes_back_with_its_directory_id(
    make_broker: MakeBroker, make_installation: MakeInstallation, tmp_path: Path
) -> None:
    topics = (TopicPlan(name="plain", partitions=4), TopicPlan(name="transactional", transactional=True, partitions=2))
    broker = make_broker(log_dir_count=2)
    tierd = make_installation(broker.log_dirs)
    traffic = Traffic(broker, topics, seed=17)
    traffic.create_topics()
    traffic.fill(rolled_segments=1)
    oracle = consume_all(broker, topics)
    with tierd.daemon() as daemon:
        daemon.wait_copied(rolled_through(broker, topics))
        daemon.wait_until(lambda: list(tierd.store_dir.rglob("catalogue/nodes/1.json")), what="the catalogue")
    kept, wiped = broker.log_dirs
    names = sorted(path.name for path in wiped.iterdir() if path.is_dir() and path.name in oracle)
    assert names, "the broker has put nothing into this log dir"
    identity = (wiped / "meta.properties").read_text()
    broker.stop(1)
    shutil.rmtree(wiped)
    wiped.mkdir()

    outcomes = restored(tierd, "log-dir", "--into", str(wiped), "--mode", "last-copy", "--for-broker", "1")

    assert sorted(outcomes) == names
    assert (wiped / "meta.properties").read_text() == identity
    assert not any((kept / name).exists() for name in names)
    broker.start(1)
    Traffic(broker, topics, seed=18).fill(rolled_segments=2)
    ends = {name: outcome["end_offset"] for name, outcome in outcomes.items()}
    after = consume_all(broker, topics)
    lost = {name: oracle[name] for name in names}
    assert_same(below({name: after[name] for name in names}, ends), below(lost, ends))
    assert complaints(tmp_path / "kafka" / "node1" / "server.log") == []
