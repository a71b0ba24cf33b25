"""Steps of stories in which real brokers lose whole disks: topics of every kind, commands of the page, complaints."""

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.scenarios.broker_steps import Oracle, consume_all, rolled_through
from tests.scenarios.installation import Daemon, Installation
from tests.scenarios.living_producers import LivingProducers
from tests.scenarios.oracle import Record, assert_same_records
from tests.scenarios.restore_page import printed_commands
from tests.scenarios.traffic import TopicPlan, Traffic
from tests.services.kafka_cluster import CODECS, KafkaBroker, KafkaCluster
from tests.services.kafka_groups import ConsumerGroups
from tests.services.kafka_records import SentRecord
from tests.services.waiting import wait_until
from tierd.log import newest_metadata_snapshot

VERSIONS = ("3.9.2", "4.3.1")
CLUSTER_ID = "dGllcmQtdGVzdGtpdC0wMQ"  # of tests/services/kafka/kafka.sh
PAGE_CLUSTER_ID, PAGE_LOG_DIR = "dGllcmQtc3ludGhldGljLQ", "/var/lib/kafka/data"  # of docs/restore.md
NEW_CLUSTER_ID = "dGllcmQtdGVzdGtpdC0wMg"
TOPICS = (
    TopicPlan(name="plain", partitions=2),
    *(TopicPlan(name=f"codec-{codec}", codec=codec) for codec in CODECS if codec != "none"),
    TopicPlan(name="stamped", configs={"message.timestamp.type": "LogAppendTime"}),
    TopicPlan(name="idempotent", idempotent=True),
    TopicPlan(name="transactional", transactional=True),
)
COMPACTED = TopicPlan(
    name="compacted", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}, value_bytes=200
)
ALL_TOPICS = (*TOPICS, COMPACTED)
LOG_START = 7  # of plain-1, inside of its first segment
PROPERTIES = {"metadata.log.max.snapshot.interval.ms": "1000", "log.cleaner.backoff.ms": "200"}
SETTINGS = {
    "catalogue": {"interval": "1s"},
    "topics": {"overrides": [{"match": "compacted", "cleanup_policy": "compact"}]},
}
GROUP = "billing"
COMMITTED = {("plain", 0): 30, ("transactional", 0): 20}
ONLY_BROKER = "The disk of the only broker is wiped"
ONE_OF_SEVERAL = "The disk of one of several brokers is wiped"
WHOLE_CLUSTER = "The whole cluster is gone"


def run_printed(
    tierd: Installation, heading: str, verb: str, replaced: Mapping[str, str], *options: str
) -> dict[str, Any]:
    """Run the commands of a section of the page that have this verb, in their order; return the last answer.

    ``options`` are added to each.
    """
    commands = [each for each in printed_commands(heading, replaced) if each[:2] == ["restore", verb]]
    assert "--dry-run" in commands[0]
    assert "--dry-run" not in commands[-1]
    for arguments in commands:
        ended = tierd.ask(*arguments, *options, "--json")
        assert ended.exit_code == 0, ended.output
    answer: dict[str, Any] = ended.json()
    return answer


def ends_of(answer: dict[str, Any]) -> dict[str, int]:
    """Return the end of the restored records of each partition."""
    assert [each for each in answer["restored"] if each["problem"]] == []
    return {each["partition"]: each["end_offset"] for each in answer["restored"]}


def below(oracle: Oracle, ends: dict[str, int]) -> Oracle:
    """Return the records of the oracle below the end of each partition."""
    return {
        name: (
            [record for record in everything if record["offset"] < ends[name]],
            [record for record in committed if record["offset"] < ends[name]],
        )
        for name, (everything, committed) in oracle.items()
    }


def assert_same(actual: Oracle, expected: Oracle) -> None:
    for name, (everything, committed) in expected.items():
        assert_same_records(actual[name][0], everything, what=name)
        assert_same_records(actual[name][1], committed, what=f"{name} committed")


def wipe(log_dir: Path) -> None:
    """Put a new disk in the place of a log dir."""
    shutil.rmtree(log_dir)
    log_dir.mkdir()


def catalogued_node(tierd: Installation) -> dict[str, Any]:
    """Return the object of the only node."""
    (file,) = tierd.store_dir.glob("*/catalogue/nodes/*.json")
    content: dict[str, Any] = json.loads(file.read_bytes())
    return content


def wait_catalogued(daemon: Daemon, tierd: Installation, broker: KafkaBroker) -> None:
    """Wait until the catalogue has cluster metadata that is later than anything that happened until now."""
    newest = newest_metadata_snapshot(broker.log_dirs)
    before = "" if newest is None else newest.name
    daemon.wait_until(
        lambda: catalogued_node(tierd)["metadata_snapshot_name"] > before, what="a later snapshot in the catalogue"
    )


def position(broker: KafkaCluster, topic: str, partition: int) -> int:
    """Return the committed offset of the group."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "log_level": 2})
    try:
        (found,) = consumer.committed([TopicPartition(topic, partition)], timeout=30)
        return int(found.offset)
    finally:
        consumer.close()


def fill_compacted(broker: KafkaBroker, *, rolled_segments: int) -> None:
    """Send records of a few keys, until so many segments are rolled."""
    random = Random(rolled_segments)
    with broker.producer() as producer:
        for _ in count():
            values = [random.randbytes(100).hex().encode() for _ in range(30)]
            now_ms = int(time.time() * 1000)
            producer.send(
                COMPACTED.name,
                0,
                [SentRecord(key=b"%d" % random.randrange(40), value=each, timestamp_ms=now_ms) for each in values],
            )
            producer.flush()
            if len(broker.base_offsets(COMPACTED.name, 0)) > rolled_segments:
                break


def write_everywhere(broker: KafkaBroker, *, seed: int) -> None:
    """Send some records with new producers to every partition."""
    traffic = Traffic(broker, TOPICS, seed=seed)
    for topic in TOPICS:
        for _ in range(8 if topic.partitions > 1 else 3):  # each burst is to one partition, chosen from the seed
            traffic.burst(topic)
    traffic.flush()
    fill_compacted(broker, rolled_segments=0)


def wait_cleaned(broker: KafkaBroker) -> None:
    """Wait until the broker has cleaned the compacted topic, so that offsets of it have no records."""
    partition = (COMPACTED.name, 0)
    wait_until(
        lambda: len(broker.consume_all([partition])[partition]) < broker.end_offset(*partition),
        what="the broker to clean",
        deadline_s=60,
        interval_s=0.5,
    )


def latest(found: Iterable[Record]) -> dict[str, Record]:
    """Return the latest record of each key, without the leader epoch."""
    return {record["key"]: {**record, "leaderEpoch": 0} for record in found}


def fill_and_copy(broker: KafkaBroker, tierd: Installation, living: LivingProducers) -> Oracle:
    """Fill the topics, copy what has rolled, and return what a consumer read before the disk was lost."""
    Traffic(broker, ALL_TOPICS, seed=15).create_topics()
    traffic = Traffic(broker, TOPICS, seed=15)
    traffic.fill(rolled_segments=1)
    living.send()
    broker.delete_records("plain", 1, LOG_START)
    with tierd.daemon() as daemon:
        broker.stop(1)
        broker.start(1)  # a later leader epoch; a killed broker may forget its log starts
        traffic.fill(rolled_segments=2)
        fill_compacted(broker, rolled_segments=2)
        living.send()
        wait_cleaned(broker)
        ConsumerGroups(broker).commit(GROUP, COMMITTED)
        oracle = consume_all(broker, ALL_TOPICS)
        assert oracle["plain-1"][0][0]["offset"] == LOG_START
        living.assert_nothing_lost(oracle)
        active = broker.base_offsets(COMPACTED.name, 0)[-1]
        cleaned = max(each["offset"] for each in oracle["compacted-0"][0] if each["offset"] < active)
        daemon.wait_copied(rolled_through(broker, TOPICS) | {"compacted-0": cleaned})
        daemon.wait_until(lambda: f'"{GROUP}"' in tierd.ask("groups", "--json").output, what="the group")
        wait_catalogued(daemon, tierd, broker)
    return oracle


def assert_goes_on(broker: KafkaBroker, oracle: Oracle, ends: dict[str, int], living: LivingProducers) -> None:
    """Fail unless the broker serves what was restored, and takes records of producers of every kind behind it."""
    restored = below(oracle, ends)
    assert_serves(consume_all(broker, ALL_TOPICS), restored)
    living.forget()
    for _ in range(3):
        living.send()
    write_everywhere(broker, seed=16)
    after = consume_all(broker, ALL_TOPICS)
    assert_serves(below(after, ends), restored, is_cleaned=True)
    living.assert_nothing_lost(after)
    assert_offsets_new(after, oracle, ends)


def assert_serves(found: Oracle, restored: Oracle, *, is_cleaned: bool = False) -> None:
    """Fail unless a consumer finds what was restored; of the compacted topic the latest record of each key.

    With ``is_cleaned`` the broker may have cleaned the compacted topic since.
    """
    plain = {name: records for name, records in restored.items() if name != "compacted-0"}
    assert_same(found, plain)
    got, wanted = (latest(each["compacted-0"][0]) for each in (found, restored))
    assert got.items() <= wanted.items() if is_cleaned else got == wanted


def assert_offsets_new(after: Oracle, oracle: Oracle, ends: dict[str, int]) -> None:
    """Fail unless every partition was written to, above all offsets of before the loss."""
    for name, end in ends.items():
        written = [record["offset"] for record in after[name][0] if record["offset"] >= end]
        assert written, f"{name}: nothing could be written"
        assert written[0] > max(record["offset"] for record in oracle[name][0]), f"{name}: an offset was issued twice"
