"""Three real brokers, each a controller too: the disk of one is wiped, and then the disks of all."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import OFFSET_STORED, Consumer, TopicPartition

from tests.scenarios.broker_complaints import complaints
from tests.scenarios.cluster_lab import NODES, ClusterLab
from tests.scenarios.cluster_traffic import SEGMENT_BYTES, ReplicatedTopic
from tests.scenarios.lost_disks import (
    CLUSTER_ID,
    GROUP,
    ONE_OF_SEVERAL,
    ONLY_BROKER,
    PAGE_CLUSTER_ID,
    PAGE_LOG_DIR,
    PROPERTIES,
    VERSIONS,
    ends_of,
    latest,
    position,
    run_printed,
    wipe,
)
from tests.scenarios.oracle import assert_same_records
from tests.scenarios.stores import SpoilableS3
from tests.scenarios.warm_tierd import WarmTierd
from tests.services.faulty_path import FaultyPath
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_groups import ConsumerGroups
from tests.services.kafka_records import ConsumedRecord, SentRecord, random_records
from tests.services.waiting import wait_until
from tierd.log import newest_metadata_snapshot

pytestmark = [pytest.mark.service("kafka"), pytest.mark.service("s3"), pytest.mark.service("redis")]

ORDERS = ReplicatedTopic(name="orders", replicas=((1, 2, 3), (2, 3, 1), (3, 1, 2)))
PAYMENTS = ReplicatedTopic(name="payments", replicas=((3, 2, 1),), transactional=True)
KEYED = ReplicatedTopic(name="keyed", replicas=((2, 3, 1),))
PLAIN = [*ORDERS.partitions, *PAYMENTS.partitions]
COMMITTED = {("orders", 0): 11, ("orders", 2): 5, ("payments", 0): 30}
CLEANED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TRANSACTION = 20  # records
Found = Mapping[tuple[str, int], list[ConsumedRecord]]


@pytest.fixture
def three_brokers(  # noqa: PLR0917 - fixtures
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kafka_cluster: MakeCluster,
    redis_url: str,
    spoilable_s3: SpoilableS3,
    faulty_path_to: Callable[[str], FaultyPath],
    warm_tierd: WarmTierd,
) -> Iterator[ClusterLab]:
    """Start three brokers of a version with a tierd each, and end them with the test."""
    lab = ClusterLab(
        tmp_path,
        kafka_cluster(nodes=3, version=request.param, properties=PROPERTIES),
        metadata={"backend": "redis", "redis": {"url": redis_url}},
        s3=spoilable_s3,
        own_paths={node: faulty_path_to(spoilable_s3.service.endpoint_url) for node in NODES},
        warm=warm_tierd,
        seed=19,
    )
    with lab:
        yield lab


def fill(lab: ClusterLab) -> None:
    """Write a plain topic, a transactional and a compacted one, and commit positions of a group."""
    cluster, random = lab.cluster, Random(23)
    for topic in (ORDERS, PAYMENTS):
        lab.traffic.create(topic)
    cluster.create_topic(KEYED.name, replicas=KEYED.replicas, segment_bytes=SEGMENT_BYTES, configs=CLEANED)
    lab.traffic.fill(ORDERS, rolled_segments=2)
    with cluster.producer(transactional_id="payments") as producer:
        for number in count():
            with producer.transaction(commit=number % 3 != 1):
                now_ms = int(time.time() * 1000)
                producer.send("payments", 0, random_records(random, TRANSACTION, now_ms=now_ms, value_bytes=200))
            if number >= 5 and len(cluster.leader_base_offsets("payments", 0)) > 2:
                break
    with cluster.producer() as producer:
        while len(cluster.leader_base_offsets("keyed", 0)) <= 2:
            producer.send("keyed", 0, keyed_records(random))
            producer.flush()
    ConsumerGroups(cluster).commit(GROUP, COMMITTED)


def keyed_records(random: Random) -> list[SentRecord]:
    now_ms = int(time.time() * 1000)
    return [
        SentRecord(key=b"%d" % random.randrange(40), value=random.randbytes(100).hex().encode(), timestamp_ms=now_ms)
        for _ in range(30)
    ]


def has_catalogued_topics(lab: ClusterLab) -> bool:
    """Return True if the catalogue has every topic."""
    keys = lab.s3.admin.keys(lab.s3.bucket)
    return all(any(f"/catalogue/topics/{topic.name}-" in key for key in keys) for topic in (ORDERS, PAYMENTS, KEYED))


def server_log(cluster: KafkaCluster, node: int) -> Path:
    """Return the log of a broker."""
    (log_dir,) = cluster.log_dirs_of(node)
    return log_dir.parent / "server.log"


def assert_group_continues(cluster: KafkaCluster, found: Found) -> None:
    """Fail unless a consumer of the group reads on at the first record that is not committed."""
    for (topic, partition), committed in COMMITTED.items():
        assert position(cluster, topic, partition) == committed
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, OFFSET_STORED)])
            messages = consumer.consume(1, timeout=60)
        finally:
            consumer.close()
        following = next(record["offset"] for record in found[topic, partition] if record["offset"] >= committed)
        assert [message.offset() for message in messages] == [following], (topic, partition)


def lead(lab: ClusterLab, node: int, partitions: list[tuple[str, int]]) -> None:
    """Make a node the leader of partitions."""
    lab.cluster.reassign_all(partitions, [node, *(other for other in NODES if other != node)])
    for name, number in partitions:
        lab.cluster.elect_preferred(name, number)
        lab.wait_led(name, number, by=[node])


def wait_node_catalogued(lab: ClusterLab) -> None:
    """Wait until the catalogue has cluster metadata that is later than anything that happened until now."""
    log_dirs = [log_dir for node in NODES for log_dir in lab.cluster.log_dirs_of(node)]
    newest = newest_metadata_snapshot(log_dirs)
    before = "" if newest is None else newest.name

    def names() -> list[str]:
        s3 = lab.s3
        keys = [key for key in s3.admin.keys(s3.bucket) if "/catalogue/nodes/" in key]
        return [json.loads(s3.admin.read(s3.bucket, key))["metadata_snapshot_name"] for key in keys]

    wait_until(
        lambda: any(name > before for name in names()),
        what=f"cluster metadata behind {before} in the catalogue",
        deadline_s=90,
        last_seen=names,
        interval_s=0.5,
    )


@pytest.mark.parametrize("three_brokers", VERSIONS, indirect=True)
def test_one_of_three_brokers_comes_back_after_its_disk_was_wiped_and_all_of_them_do(
    three_brokers: ClusterLab,
) -> None:
    lab, cluster = three_brokers, three_brokers.cluster
    fill(lab)
    everything = [*PLAIN, *KEYED.partitions]
    lab.wait_in_sync(everything)
    lab.wait_copied(PLAIN)
    (log_dir,) = cluster.log_dirs_of(3)
    identity = (log_dir / "meta.properties").read_text()
    lab.daemons[3].wait_until(
        lambda: has_catalogued_topics(lab) and lab.daemons[3].status()["catalogue"]["written"].get("node"),
        what="the topics and node 3 in the catalogue",
    )
    lab.daemons[3].stop()
    cluster.kill(3)
    wipe(log_dir)
    others = [cluster.address(1), cluster.address(2)]  # the lab names the own broker alone, which is down
    lab.hosts[3].configure({"leadership": {"kafka": {"bootstrap_servers": others}}})
    places = {PAGE_LOG_DIR: str(log_dir), PAGE_CLUSTER_ID: CLUSTER_ID, "1": "3"}

    answer = run_printed(lab.hosts[3], ONE_OF_SEVERAL, "log-dir", places)

    assert answer["node"]["metadata_snapshot"] == ""
    assert "fetches it from the controllers 1, 2" in answer["node"]["findings"][0]["text"]
    assert (log_dir / "meta.properties").read_text() == identity
    assert ends_of(answer).keys() == {f"{topic}-{number}" for topic, number in PLAIN}
    wait_until(
        lambda: cluster.quorum_leader() in {1, 2},
        what="another leader of the controllers",
        deadline_s=60,
        last_seen=cluster.quorum_leader,
    )
    cluster.start(3)
    lab.traffic.fill(ORDERS, rolled_segments=1)
    lab.wait_in_sync(everything)
    before = cluster.consume_all(everything, committed=True)
    lead(lab, 3, everything)
    after = cluster.consume_all(everything, committed=True)
    for each in PLAIN:
        assert_same_records(after[each], before[each], what=f"{each[0]}-{each[1]}")
    assert latest(after["keyed", 0]) == latest(before["keyed", 0])
    assert_group_continues(cluster, after)
    assert complaints(server_log(cluster, 3)) == []
    lab.daemons[3].start()
    lab.daemons[3].wait_ready()
    lose_all_disks(lab, after)


def lose_all_disks(lab: ClusterLab, oracle: Found) -> None:
    """Wipe the disks of all nodes, restore each, and compare what they serve with what there was before."""
    cluster = lab.cluster
    everything = [*PLAIN, *KEYED.partitions]
    lab.wait_copied(PLAIN)
    active = cluster.leader_base_offsets("keyed", 0)[-1]
    cleaned = max(record["offset"] for record in oracle["keyed", 0] if record["offset"] < active)
    lab.wait_copied_through("keyed", 0, cleaned)
    wait_node_catalogued(lab)
    identities = {node: (cluster.log_dirs_of(node)[0] / "meta.properties").read_text() for node in NODES}
    ids = {topic.name: cluster.topic_id(topic.name) for topic in (ORDERS, PAYMENTS, KEYED)}
    for daemon in lab.daemons.values():
        daemon.stop()
    cluster.kill(*NODES)
    ends: dict[int, dict[str, int]] = {}
    names = set()
    for node in NODES:
        (log_dir,) = cluster.log_dirs_of(node)
        wipe(log_dir)
        places = {PAGE_LOG_DIR: str(log_dir), PAGE_CLUSTER_ID: CLUSTER_ID, "1": str(node)}

        answer = run_printed(lab.hosts[node], ONLY_BROKER, "log-dir", places, "--others-down")

        names.add(answer["node"]["metadata_snapshot"])
        ends[node] = ends_of(answer)
        assert (log_dir / "meta.properties").read_text() == identities[node]
        assert (log_dir / "__cluster_metadata-0").is_dir()
    assert len(names) == 1  # all get the same snapshot
    assert "" not in names
    assert ends[1] == ends[2] == ends[3]
    assert ends[1].keys() == {f"{topic}-{number}" for topic, number in everything}
    cluster.start()
    lab.wait_in_sync(everything)
    assert {topic.name: cluster.topic_id(topic.name) for topic in (ORDERS, PAYMENTS, KEYED)} == ids
    run_printed(lab.hosts[1], ONLY_BROKER, "groups", {"kafka:9092": cluster.bootstrap})
    for node in (1, 3):
        lead(lab, node, everything)
        found = cluster.consume_all(everything, committed=True)
        for topic, number in everything:
            name = f"{topic}-{number}"
            kept = [record for record in oracle[topic, number] if record["offset"] < ends[1][name]]
            assert len(kept) >= TRANSACTION, name
            if topic == KEYED.name:
                assert latest(found[topic, number]) == latest(kept)
            else:
                assert_same_records(found[topic, number], kept, what=f"{name} led by {node}")
    assert_group_continues(cluster, found)
    assert [line for node in NODES for line in complaints(server_log(cluster, node))] == []
    assert_written_behind(lab, oracle)


def assert_written_behind(lab: ClusterLab, oracle: Found) -> None:
    """Fail unless every partition takes records, above all offsets of before the loss."""
    cluster, random = lab.cluster, Random(29)
    with cluster.producer(idempotent=True) as producer:
        for each in oracle:
            producer.send(*each, keyed_records(random))
    with cluster.producer(transactional_id="payments") as producer, producer.transaction(commit=True):
        producer.send("payments", 0, keyed_records(random))
    written = cluster.consume_all([*oracle], committed=True)
    for each, known in oracle.items():
        new = [record["offset"] for record in written[each] if record["offset"] > known[-1]["offset"]]
        between = [record for record in written[each] if record["offset"] <= known[-1]["offset"]]
        assert len(new) == 30 * (2 if each == ("payments", 0) else 1) or each == ("keyed", 0), each
        assert new, each
        assert {record["value"] for record in between} <= {record["value"] for record in known}, each
