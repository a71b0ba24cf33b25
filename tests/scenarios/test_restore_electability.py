"""Three real brokers that lost a partition: one gets it back, and the empty ones must not lead (DESIGN 13, trap 4)."""

import shutil
import time
from random import Random

import pytest

from tests.scenarios.command import CommandResult
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Installation
from tests.services.kafka_cluster import KafkaCluster
from tests.services.kafka_fixtures import MakeCluster
from tests.services.kafka_records import random_records
from tests.services.waiting import wait_until

pytestmark = pytest.mark.service("kafka")

NODES = (1, 2, 3)
ORDERS = ("orders", 0)


def fill(cluster: KafkaCluster) -> None:
    """Write some segments."""
    random = Random(4)
    with cluster.producer() as producer:
        while len(cluster.leader_base_offsets(*ORDERS)) < 4:
            producer.send(*ORDERS, random_records(random, 40, now_ms=int(time.time() * 1000)))
            producer.flush()


def tier_of(cluster: KafkaCluster, make_installation: MakeInstallation) -> Installation:
    """Copy the rolled segments of broker 1 into a tier, with a catalogue that has the replicas."""
    kafka = {"source": "kafka", "kafka": {"bootstrap_servers": [cluster.address(1)], "refresh": "500ms"}}
    settings = {"leadership": kafka, "catalogue": {"interval": "1s"}}
    tierd = make_installation(cluster.log_dirs_of(1), settings=settings)
    with tierd.daemon() as daemon:
        daemon.wait_copied({"orders-0": cluster.leader_base_offsets(*ORDERS)[-1] - 1})
        daemon.wait_until(lambda: any(tierd.store_dir.glob("*/catalogue/topics/orders-*")), what="the topic")
    return tierd


def restored(tierd: Installation, cluster: KafkaCluster, *arguments: str) -> CommandResult:
    """Restore the partition into the log dir of broker 1."""
    (log_dir,) = cluster.log_dirs_of(1)
    verb = ("log-dir", "--into", str(log_dir), "--mode", "last-copy", "--for-broker", "1", "--topic", "orders")
    return tierd.ask("restore", *verb, "--retention", "-1", *arguments)


def test_replicas_that_come_up_empty_fetch_the_restored_one_once_it_leads(
    kafka_cluster: MakeCluster, make_installation: MakeInstallation
) -> None:
    cluster = kafka_cluster(nodes=3, version="4.3.1", has_own_controller=True)
    cluster.create_topic("orders", replicas=[NODES], segment_bytes=16_384)
    fill(cluster)
    tierd = tier_of(cluster, make_installation)
    wait_until(lambda: cluster.in_sync(*ORDERS) == set(NODES), what="all replicas in sync", deadline_s=90)
    before = cluster.consume_all([ORDERS])[ORDERS]
    cluster.stop(*NODES)
    for node in NODES:
        for log_dir in cluster.log_dirs_of(node):
            shutil.rmtree(log_dir / "orders-0", ignore_errors=True)

    refused = restored(tierd, cluster, "--yes")
    ended = restored(tierd, cluster, "--others-down", "--yes", "--json")

    assert refused.exit_code == 4, refused.output
    assert "brokers 2, 3 have replicas" in refused.stderr
    assert "stop them, then say --others-down" in refused.stderr
    assert ended.exit_code == 0, ended.output
    (outcome,) = ended.json()["restored"]
    cluster.start(1)
    if cluster.leader(*ORDERS) != 1:  # the last one in sync was another
        cluster.elect_unclean(*ORDERS)
    wait_until(lambda: cluster.leader(*ORDERS) == 1, what="the restored replica to lead", deadline_s=90)
    cluster.start(2, 3)
    wait_until(lambda: cluster.in_sync(*ORDERS) == set(NODES), what="all replicas in sync again", deadline_s=120)
    kept = [record for record in before if record["offset"] < outcome["end_offset"]]
    assert len(kept) >= 40
    for node in NODES:
        cluster.reassign(*ORDERS, [node, *(other for other in NODES if other != node)])
        cluster.elect_preferred(*ORDERS)
        wait_until(lambda n=node: cluster.leader(*ORDERS) == n, what=f"broker {node} to lead", deadline_s=90)  # type: ignore[misc]  # the default binds the loop's value
        assert cluster.consume_all([ORDERS])[ORDERS] == kept, node
