"""Real broker: the catalogue in the bucket has topics, positions and consumer groups as the broker has them."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import MakeBroker, MakeInstallation
from tests.scenarios.installation import Installation, Settings
from tests.scenarios.traffic import TopicPlan, Traffic
from tests.services.kafka_cluster import KafkaBroker
from tests.services.kafka_groups import ConsumerGroups

pytestmark = pytest.mark.service("kafka")

ORDERS = TopicPlan(name="orders", partitions=2, configs={"retention.bytes": "123456789"})
EVERY_SECOND: Settings = {"catalogue": {"interval": "1s"}}


def groups(tierd: Installation, *options: str) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Return committed offset and lag by group, topic and partition, from ``tierd groups``."""
    result = tierd.ask("groups", "--json", *options)
    assert result.exit_code == 0, result.output
    return {(row["group"], row["topic"], row["partition"]): (row["offset"], row["lag"]) for row in result.json()}


def catalogued(tierd: Installation, kind: str) -> dict[str, Any]:
    """Return the one object of a kind in the catalogue."""
    (file,) = tierd.store_dir.glob(f"*/catalogue/{kind}/*.json")
    content: dict[str, Any] = json.loads(file.read_bytes())
    return content


def has_snapshot(tierd: Installation) -> bool:
    """Return True if the node in the catalogue has a snapshot of the cluster metadata."""
    node = catalogued(tierd, "nodes")
    return bool(node["metadata_snapshot_name"]) and len(node["secret"]["plain"]) > 0


def leadership(broker: KafkaBroker, source: str) -> Settings:
    kafka = {"source": "kafka", "kafka": {"bootstrap_servers": [broker.bootstrap], "refresh": "1s"}}
    return {"leadership": kafka} if source == "kafka" else {}


@pytest.mark.parametrize(("version", "source"), [("3.9.2", "static"), ("4.3.1", "kafka")])
def test_groups_of_the_catalogue_are_those_of_the_broker(
    version: str, source: str, make_broker: MakeBroker, make_installation: MakeInstallation, tmp_path: Path
) -> None:
    broker = make_broker(version, properties={"metadata.log.max.snapshot.interval.ms": "4000"})
    consumers = ConsumerGroups(broker)
    traffic = Traffic(broker, (ORDERS,), seed=15)
    traffic.create_topics()
    traffic.fill(rolled_segments=1)
    tierd = make_installation(broker.log_dirs, settings=EVERY_SECOND | leadership(broker, source))
    with tierd.daemon() as daemon:
        consumers.commit("billing", {("orders", 0): 12, ("orders", 1): 3})
        consumers.commit("gone", {("orders", 0): 1})
        daemon.wait_until(lambda: len(groups(tierd)) == 3, what="the first commits in the catalogue")
        first_ms = int(time.time() * 1000)
        consumers.commit_in_transaction("audit", {("orders", 0): 9}, commit=True)
        consumers.commit_in_transaction("billing", {("orders", 0): 5}, commit=False)
        consumers.commit("billing", {("orders", 1): 4})
        consumers.delete("gone")
        oracle = consumers.described()
        assert oracle.keys() == {("billing", "orders", 0), ("billing", "orders", 1), ("audit", "orders", 0)}

        daemon.wait_until(lambda: groups(tierd) == oracle, what="the later commits in the catalogue")

        before = groups(tierd, "--at", str(first_ms))
        assert {key: offset for key, (offset, _) in before.items()} == {
            ("billing", "orders", 0): 12,
            ("billing", "orders", 1): 3,
            ("gone", "orders", 0): 1,
        }
        daemon.wait_until(lambda: has_snapshot(tierd), what="a snapshot of the cluster metadata in the catalogue")
        assert daemon.status()["catalogue"]["problems"] == {}
        assert daemon.metrics()["tierd_catalogue_groups"] == 2
    assert_topic_and_node(tierd, broker, source)
    verified = tierd.ask("verify", "--json")
    assert (verified.exit_code, verified.json_lines()) == (0, [])

    cluster_id = catalogued(tierd, "nodes")["cluster_id"]
    elsewhere = make_installation([tmp_path / "no-disk"], name="elsewhere", remote=tierd.settings["remote"])
    elsewhere.configure({"cluster_id": cluster_id})
    broker.kill()
    assert groups(elsewhere) == oracle


def assert_topic_and_node(tierd: Installation, broker: KafkaBroker, source: str) -> None:
    """Assert that the catalogue has the topic as far as its source tells, and the identity of the log dir."""
    topic = catalogued(tierd, "topics")
    newest = topic["versions"][-1]
    assert (topic["topic"], newest["partition_count"], newest["assignment"]) == ("orders", 2, [[0, [1]], [1, [1]]])
    told = {"retention.bytes": "123456789"} if source == "kafka" else {}
    assert newest["config"].items() >= told.items()
    assert newest["replication_factor"] == (1 if source == "kafka" else 0)
    (log_dir,) = broker.log_dirs
    assert catalogued(tierd, "nodes")["meta_properties"] == {
        str(log_dir): (log_dir / "meta.properties").read_text(encoding="latin-1")
    }
