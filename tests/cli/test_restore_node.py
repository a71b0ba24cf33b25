"""``tierd restore log-dir --for-broker``: what comes back of a node whose whole disk was wiped."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.catalogues import catalogued, write_catalogue
from tests.fakes.log_dirs import CLUSTER_ID, LogDirWriter
from tests.restore.catalogue.metadata_snapshots import NAME, cluster_snapshot
from tests.scenarios.command import CommandResult
from tests.scenarios.installation import Installation
from tierd.log import Producer, list_log_dir
from tierd.log.records.batch_builder import encode_batch
from tierd.log.records.new_record import NewRecord
from tierd.model import TopicIdPartition
from tierd.restore.catalogue.catalogue_objects import CataloguedNode


def restore(tierd: Installation, into: Path, *arguments: str) -> CommandResult:
    wanted = ("--mode", "last-copy", "--retention", "-1", "--for-broker", "1")
    return tierd.tierd("restore", "log-dir", "--into", str(into), *wanted, *arguments)


def plan(tierd: Installation, into: Path, *arguments: str, exit_code: int = 0) -> Mapping[str, Any]:
    ended = restore(tierd, into, *arguments, "--dry-run", "--json")
    assert ended.exit_code == exit_code, ended.output
    answer = ended.json()
    assert isinstance(answer, dict)
    return answer


def lose(tierd: Installation, into: Path, snapshot: bytes) -> str:
    """Write the catalogue of the node, wipe its disk, and return the identity of the log dir."""
    listed = [each.partition for each in list_log_dir(into).partitions]
    identity = (into / "meta.properties").read_text()
    node = CataloguedNode(
        node_id=1,
        meta_properties={str(into): identity},
        metadata_snapshot=snapshot,
        metadata_snapshot_name=NAME,
        observed_ms=1_700_000_000_000,
        metadata_log_dir=str(into),
    )
    topics = [catalogued(each, replicas=(1,)) for each in listed]
    asyncio.run(write_catalogue(tierd.store_dir, topics=topics, nodes=[node]))
    tierd.configure({"cluster_id": CLUSTER_ID, "node_id": 1})
    shutil.rmtree(into)
    into.mkdir()
    return identity


def test_wiped_disk_of_the_only_controller_comes_back_with_its_cluster_metadata(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    identity = lose(copied, into, cluster_snapshot({orders: (1,)}, next_producer_id=1000))
    planned = plan(copied, into)
    assert planned["writes_meta_properties"]
    assert planned["node"] == {
        "refused": False,
        "metadata_snapshot": NAME,
        "metadata_node_id": 1,
        "metadata_observed_ms": 1_700_000_000_000,
        "next_producer_id": 1000,
        "findings": [],
    }
    assert list(into.iterdir()) == []
    ended = restore(copied, into, "--yes")
    assert ended.exit_code == 0, ended.output
    assert f"the snapshot {NAME} of node 1, seen 2023-11-14" in ended.stdout
    assert f"restored __cluster_metadata-0: {NAME}" in ended.stdout
    assert (into / "meta.properties").read_text() == identity
    assert (into / "__cluster_metadata-0" / NAME).read_bytes() == cluster_snapshot(
        {orders: (1,)}, next_producer_id=1000
    )
    assert (into / "orders-0").is_dir()
    again = restore(copied, into, "--yes")
    assert again.exit_code == 0, again.output


def test_newest_snapshot_of_any_node_is_restored(copied: Installation, into: Path, orders: TopicIdPartition) -> None:
    lose(copied, into, cluster_snapshot({orders: (1,)}))
    later = "00000000000000000500-0000000008.checkpoint"
    other = CataloguedNode(
        node_id=2,
        meta_properties={},
        metadata_snapshot=cluster_snapshot({orders: (1,)}),
        metadata_snapshot_name=later,
        observed_ms=1,
        metadata_log_dir="/data",
    )
    asyncio.run(write_catalogue(copied.store_dir, nodes=[other]))
    found = plan(copied, into)["node"]
    assert (found["metadata_snapshot"], found["metadata_node_id"]) == (later, 2)


def test_cluster_metadata_is_left_to_a_live_quorum(copied: Installation, into: Path, orders: TopicIdPartition) -> None:
    identity = lose(copied, into, cluster_snapshot({orders: (1,)}, controllers=(1, 2, 3), brokers=(1, 2, 3)))
    node = plan(copied, into)["node"]
    assert (node["metadata_snapshot"], [each["severity"] for each in node["findings"]]) == ("", ["warning"])
    ended = restore(copied, into, "--yes")
    assert ended.exit_code == 0, ended.output
    assert (into / "meta.properties").read_text() == identity
    assert not (into / "__cluster_metadata-0").exists()


def test_whole_quorum_that_is_down_gets_its_cluster_metadata_back(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    lose(copied, into, cluster_snapshot({orders: (1,)}, controllers=(1, 2, 3), brokers=(1, 2, 3)))
    ended = restore(copied, into, "--others-down", "--yes")
    assert ended.exit_code == 0, ended.output
    assert "warning node: " in ended.stdout
    assert (into / "__cluster_metadata-0" / NAME).exists()


def test_broker_that_runs_on_later_cluster_metadata_keeps_the_restore_from_beginning(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    lose(copied, into, cluster_snapshot({orders: (1,)}, brokers=(1, 2)))
    assert plan(copied, into, exit_code=4)["node"]["refused"]
    refused = restore(copied, into, "--yes")
    assert refused.exit_code == 4, refused.output
    assert "broker 2 may have cluster metadata" in refused.stderr
    assert list(into.iterdir()) == []


def test_leader_epoch_above_that_of_the_cluster_metadata_is_refused(
    tierd: Installation, into: Path, log_dir: LogDirWriter
) -> None:
    events = log_dir.add_partition("events", leader_epoch=3)
    events.append([b"a"])
    events.roll()
    events.append([b"b"])
    log_dir.write_checkpoints()
    assert tierd.tierd("copy", "--once").exit_code == 0
    partition = TopicIdPartition(events.topic_id, "events", 0)
    lose(tierd, into, cluster_snapshot({partition: (1,)}, leader_epoch=2))
    refused = restore(tierd, into, "--topic", "events", "--yes")
    assert refused.exit_code == 0, "a part of a log dir gets no cluster metadata"
    shutil.rmtree(into / "events-0")
    refused = restore(tierd, into, "--yes")
    assert refused.exit_code == 4, refused.output
    assert "leader epoch 3" in refused.stderr


def test_partition_of_a_topic_that_the_cluster_metadata_does_not_know_is_left_out(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    lose(copied, into, cluster_snapshot({TopicIdPartition(orders.topic_id, "orders", 7): (1,)}))
    found = next(each for each in plan(copied, into)["partitions"] if each["partition"] == "orders-0")
    assert found["left_out"]
    assert "does not know the partition yet" in found["findings"][0]["text"]


def test_part_of_a_log_dir_gets_neither_identity_nor_cluster_metadata(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    lose(copied, into, cluster_snapshot({orders: (1,)}))
    ended = restore(copied, into, "--topic", "orders", "--yes")
    assert ended.exit_code == 0, ended.output
    assert "no broker starts on it yet" in ended.stdout
    assert not (into / "meta.properties").exists()
    assert not (into / "__cluster_metadata-0").exists()
    whole = restore(copied, into, "--yes")
    assert whole.exit_code == 0, whole.output
    assert (into / "meta.properties").exists()


def test_producer_id_that_brokers_would_issue_again_stops_the_restore_before_the_cluster_metadata(
    tierd: Installation, into: Path, log_dir: LogDirWriter
) -> None:
    payments = log_dir.add_partition("payments")
    batch = encode_batch([NewRecord(b"k", b"v", 1)], producer=Producer(1000, 0, 0), leader_epoch=0)
    payments.append_batch(batch, 1)
    payments.roll()
    payments.append([b"active"])
    log_dir.write_checkpoints()
    assert tierd.tierd("copy", "--once").exit_code == 0
    lose(
        tierd, into, cluster_snapshot({TopicIdPartition(payments.topic_id, "payments", 0): (1,)}, next_producer_id=1000)
    )
    stopped = restore(tierd, into, "--yes")
    assert stopped.exit_code == 4, stopped.output
    assert "producer id 1000" in stopped.stderr
    assert not (into / "meta.properties").exists()
    assert not (into / "__cluster_metadata-0").exists()


def test_log_dir_that_was_formatted_anew_is_refused(copied: Installation, into: Path, orders: TopicIdPartition) -> None:
    lose(copied, into, cluster_snapshot({orders: (1,)}))
    LogDirWriter(into)
    refused = restore(copied, into, "--yes")
    assert refused.exit_code == 4, refused.output
    assert "was formatted anew" in refused.stderr
