"""``tierd restore`` with a catalogue: cuts at a time, known ends, replicas, brokers, and the identity of a log dir."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cli.catalogues import catalogued, seen, write_catalogue
from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter, SegmentShape
from tests.scenarios.command import CommandResult
from tests.scenarios.installation import Installation
from tierd.model import TopicIdPartition
from tierd.restore.catalogue.catalogue_objects import CataloguedNode

DAY_MS = 86_400_000
FOREVER = ("--retention", "-1")


def restore(tierd: Installation, into: Path, *arguments: str) -> CommandResult:
    return tierd.tierd("restore", "log-dir", "--into", str(into), "--mode", "last-copy", *arguments)


def plan(tierd: Installation, into: Path, *arguments: str, exit_code: int = 0) -> Mapping[str, Any]:
    ended = restore(tierd, into, *arguments, "--dry-run", "--json")
    assert ended.exit_code == exit_code, ended.output
    answer = ended.json()
    return {**answer, **next(each for each in answer["partitions"] if each["partition"] == "orders-0")}


def at(ms: int) -> tuple[str, str]:
    return "--to-time", str(ms)


def test_time_is_a_cut_at_the_last_positions_before_it(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    positions = [
        seen(orders, node_id=1, taken_ms=1_000_000, end_offset=5, epoch=1),
        seen(orders, node_id=2, taken_ms=990_000, end_offset=7, epoch=2),  # a later leader, seen earlier
        seen(orders, node_id=1, taken_ms=2_000_000, end_offset=11, epoch=3),
    ]
    asyncio.run(write_catalogue(copied.store_dir, positions=positions))
    early = plan(copied, into, *FOREVER, *at(1_010_000))
    assert (early["target_offset"], early["end_offset"]) == (7, 7)
    assert early["time_rule"] == ("by the positions of the catalogue: broker 1, 10.0 s before; broker 2, 20.0 s before")
    assert plan(copied, into, *FOREVER, *at(2_000_000))["end_offset"] == 11
    assert plan(copied, into, *FOREVER, *at(900_000), exit_code=4)["refused"]


def test_times_of_records_refine_the_cut_where_brokers_stamp_them(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    taken_ms = FIRST_TIMESTAMP_MS - 60_000
    positions = [seen(orders, node_id=1, taken_ms=taken_ms, end_offset=1)]
    topic = catalogued(orders, replicas=(1,), config={"message.timestamp.type": "LogAppendTime"})
    asyncio.run(write_catalogue(copied.store_dir, positions=positions))
    moment = at(FIRST_TIMESTAMP_MS + 3)
    assert plan(copied, into, *FOREVER, *moment)["target_offset"] == 1
    asyncio.run(write_catalogue(copied.store_dir, topics=[topic]))
    assert plan(copied, into, *FOREVER, *moment)["target_offset"] == 3


def test_known_log_end_is_missing_and_is_not_issued_again(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    shutil.rmtree(into / "orders-0")
    positions = [seen(orders, node_id=1, taken_ms=2_000_000, end_offset=30, committed=44)]
    asyncio.run(write_catalogue(copied.store_dir, positions=positions))
    found = plan(copied, into, *FOREVER)
    assert (found["end_offset"], found["known_end_offset"]) == (12, 44)
    assert [(each["start_offset"], each["end_offset"]) for each in found["missing"]] == [(12, 30)]
    ended = restore(copied, into, *FOREVER, "--yes", "--json")
    assert ended.exit_code == 0, ended.output
    assert ended.json()["restored"][0]["log_end_offset"] == 45


def test_retention_of_the_catalogue_decides_what_is_expired(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    asyncio.run(
        write_catalogue(
            copied.store_dir, topics=[catalogued(orders, replicas=(1,), config={"retention.ms": str(DAY_MS)})]
        )
    )
    refused = plan(copied, into, exit_code=4)
    assert refused["findings"][0]["text"].startswith("the topic's retention is over")
    assert plan(copied, into, "--skip-expired", exit_code=4)["left_out"]


def test_replica_needs_no_broker_where_the_catalogue_has_the_policy_in_force(
    copied: Installation, into: Path, orders: TopicIdPartition
) -> None:
    replica = ("--mode", "replica")
    refused = plan(copied, into, *replica, exit_code=4)
    assert refused["refused"]
    (finding,) = refused["findings"]
    assert "it is not known whether the topic is compacted" in finding["text"]
    assert "cleanup_policy" in finding["remedy"]
    topic = catalogued(orders, replicas=(1,), effective={"cleanup.policy": "delete"})
    asyncio.run(write_catalogue(copied.store_dir, topics=[topic]))
    assert not plan(copied, into, *replica)["refused"]


def test_other_replicas_must_be_down(copied: Installation, into: Path, orders: TopicIdPartition) -> None:
    asyncio.run(write_catalogue(copied.store_dir, topics=[catalogued(orders, replicas=(1, 2, 3))]))
    refused = restore(copied, into, *FOREVER, "--for-broker", "1", "--yes")
    assert refused.exit_code == 4, refused.output
    assert "brokers 2, 3 have replicas" in refused.stderr
    allowed = plan(copied, into, *FOREVER, "--for-broker", "1", "--others-down")
    assert [finding["severity"] for finding in allowed["findings"]] == ["warning"]


def test_log_dir_takes_the_partitions_of_its_broker(copied: Installation, into: Path, orders: TopicIdPartition) -> None:
    unknown = plan(copied, into, *FOREVER, "--for-broker", "2", exit_code=4)
    assert unknown["findings"][0]["text"] == "the catalogue does not say which brokers have replicas of it"
    asyncio.run(write_catalogue(copied.store_dir, topics=[catalogued(orders, replicas=(1,))]))
    other = restore(copied, into, *FOREVER, "--for-broker", "2", "--dry-run", "--json")
    assert "orders-0" not in [each["partition"] for each in other.json()["partitions"]]
    assert plan(copied, into, *FOREVER, "--for-broker", "1")["partition"] == "orders-0"


def test_topic_that_only_a_standby_has_does_not_hold_up_the_others(
    copied: Installation, into: Path, orders: TopicIdPartition, tmp_path: Path
) -> None:
    asyncio.run(write_catalogue(copied.store_dir, topics=[catalogued(orders, replicas=(1,))]))
    writer = LogDirWriter(tmp_path / "standby").add_partition("young")
    writer.fill(rolled_segments=1, shape=SegmentShape())
    standby = ("--standby", str(tmp_path / "standby"))
    ended = restore(copied, into, *FOREVER, "--for-broker", "1", *standby, "--dry-run", "--json")
    assert ended.exit_code == 0, ended.output
    plans = {each["partition"]: (each["refused"], each["left_out"]) for each in ended.json()["partitions"]}
    assert (plans["orders-0"], plans["young-0"]) == ((False, False), (True, True))


def test_wiped_log_dir_gets_its_identity_back(copied: Installation, into: Path, orders: TopicIdPartition) -> None:
    identity = (into / "meta.properties").read_text()
    node = CataloguedNode(
        node_id=1,
        meta_properties={str(into): identity},
        metadata_snapshot=None,
        metadata_snapshot_name="",
        observed_ms=1,
    )
    asyncio.run(write_catalogue(copied.store_dir, topics=[catalogued(orders, replicas=(1,))], nodes=[node]))
    copied.configure({"cluster_id": "dGllcmQtc3ludGhldGljLQ", "node_id": 1})
    shutil.rmtree(into)
    into.mkdir()
    assert not plan(copied, into, *FOREVER)["writes_meta_properties"]
    assert plan(copied, into, *FOREVER, "--for-broker", "1")["writes_meta_properties"]
    assert not (into / "meta.properties").exists()
    ended = restore(copied, into, *FOREVER, "--for-broker", "1", "--yes")
    assert ended.exit_code == 0, ended.output
    assert (into / "meta.properties").read_text() == identity


def test_partition_of_another_log_dir_is_left_out(copied: Installation, into: Path, tmp_path: Path) -> None:
    second = LogDirWriter(tmp_path / "second")
    second.write_checkpoints()
    copied.configure({"log_dirs": [{"path": str(path), "owner": "kafka"} for path in (into, second.path)]})
    left_out = plan(copied, second.path, *FOREVER, exit_code=4)
    assert left_out["left_out"]
    assert left_out["findings"][0]["text"].startswith(f"{into} has it")
