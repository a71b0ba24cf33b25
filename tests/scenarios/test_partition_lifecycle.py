"""Partitions that appear, grow, are deleted, recreated, renamed and moved while tierd follows the log dirs."""

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter, PartitionWriter, SegmentShape
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.installation import Daemon, Installation
from tierd.model import uuid_to_text

SHAPE = SegmentShape()
SEGMENT_RECORDS = SHAPE.batches * SHAPE.records_per_batch


@pytest.fixture
def broker_dirs(tmp_path: Path) -> tuple[LogDirWriter, LogDirWriter]:
    """Two log dirs of one broker."""
    dirs = (LogDirWriter(tmp_path / "disk-1"), LogDirWriter(tmp_path / "disk-2"))
    for log_dir in dirs:
        log_dir.write_checkpoints()
    return dirs


@pytest.fixture
def tierd(broker_dirs: tuple[LogDirWriter, LogDirWriter], make_installation: MakeInstallation) -> Installation:
    return make_installation([log_dir.path for log_dir in broker_dirs])


def grow(log_dir: LogDirWriter, partition: PartitionWriter, *, rolled_segments: int) -> int:
    """Write segments and checkpoint them; return the last rolled offset."""
    partition.fill(rolled_segments=rolled_segments, shape=SHAPE)
    log_dir.write_checkpoints()
    return int(partition.active_segment.stem) - 1


def listed(daemon: Daemon) -> set[str]:
    return {entry["partition"] for entry in daemon.status()["partitions"]}


def test_partitions_that_appear_and_grow_are_copied(
    tierd: Installation, broker_dirs: tuple[LogDirWriter, LogDirWriter]
) -> None:
    first, second = broker_dirs
    with tierd.daemon() as daemon:
        orders = first.add_partition("orders")
        daemon.wait_copied({"orders-0": grow(first, orders, rolled_segments=2)})
        daemon.wait_copied({"orders-0": grow(first, orders, rolled_segments=2)})
        daemon.wait_copied({"orders-1": grow(second, second.add_partition("orders", 1), rolled_segments=1)})
        assert listed(daemon) == {"orders-0", "orders-1"}
    assert len(tierd.cat("orders-0")) == orders.end_offset


def test_a_topic_deleted_and_recreated_under_its_name_is_another_topic(
    tierd: Installation, broker_dirs: tuple[LogDirWriter, LogDirWriter]
) -> None:
    log_dir, _ = broker_dirs
    old = log_dir.add_partition("orders")
    rolled = grow(log_dir, old, rolled_segments=3)
    with tierd.daemon() as daemon:
        daemon.wait_copied({"orders-0": rolled})
        deleted = log_dir.path / f"orders-0.{uuid4().hex}-delete"
        old.path.rename(deleted)
        daemon.wait_until(lambda: "orders-0" not in listed(daemon), what="the partition to be gone")
        shutil.rmtree(deleted)

        new = log_dir.add_partition("orders")
        rolled = grow(log_dir, new, rolled_segments=1)
        daemon.wait_copied({"orders-0": rolled})

        entry = daemon.partition("orders-0")
        assert entry is not None
        assert entry["topic_id"] == uuid_to_text(new.topic_id)
        assert entry["copied_through"] == rolled
    stored = [path.name for path in tierd.store_dir.rglob("orders-*") if path.is_dir()]
    assert sorted(stored) == sorted(f"orders-{uuid_to_text(partition.topic_id)}" for partition in (old, new))
    assert [record["offset"] for record in tierd.cat("orders-0")] == list(range(new.end_offset))


@pytest.mark.parametrize("suffix", ["delete", "stray", "future"])
def test_stray_replica_is_not_copied(
    suffix: str, tierd: Installation, broker_dirs: tuple[LogDirWriter, LogDirWriter]
) -> None:
    log_dir, _ = broker_dirs
    aside = log_dir.add_partition("aside")
    grow(log_dir, aside, rolled_segments=2)
    aside.path.rename(log_dir.path / f"aside-0.{uuid4().hex}-{suffix}")
    rolled = grow(log_dir, log_dir.add_partition("orders"), rolled_segments=1)
    with tierd.daemon() as daemon:
        daemon.wait_copied({"orders-0": rolled})
        assert daemon.partition("aside-0") is None or daemon.status()["states"].get("copying", 0) == 0
    assert list(tierd.store_dir.rglob("aside-*")) == []


def test_copying_of_a_replica_moved_between_log_dirs_continues_at_its_last_offset(
    tierd: Installation, broker_dirs: tuple[LogDirWriter, LogDirWriter]
) -> None:
    source, target = broker_dirs
    partition = source.add_partition("orders")
    rolled = grow(source, partition, rolled_segments=2)
    with tierd.daemon() as daemon:
        daemon.wait_copied({"orders-0": rolled})
        before = tierd.segments("orders-0")

        future = target.path / f"orders-0.{uuid4().hex}-future"
        shutil.copytree(partition.path, future)
        source.partitions.pop(partition.partition)
        future.rename(target.path / "orders-0")  # the broker's order: the new one first, then the old one away
        partition.path.rename(source.path / f"orders-0.{uuid4().hex}-delete")
        partition.path = target.path / "orders-0"
        target.partitions[partition.partition] = partition
        source.write_checkpoints()
        rolled = grow(target, partition, rolled_segments=2)

        daemon.wait_copied({"orders-0": rolled})
    after = tierd.segments("orders-0")
    assert [s["segment_id"] for s in after][: len(before)] == [s["segment_id"] for s in before]
    assert [record["offset"] for record in tierd.cat("orders-0")] == list(range(partition.end_offset))


def test_copying_continues_without_a_gap_in_a_new_leader_epoch(
    tierd: Installation, broker_dirs: tuple[LogDirWriter, LogDirWriter]
) -> None:
    log_dir, _ = broker_dirs
    partition = log_dir.add_partition("orders", leader_epoch=3)
    with tierd.daemon() as daemon:
        daemon.wait_copied({"orders-0": grow(log_dir, partition, rolled_segments=2)})
        partition.begin_epoch(7)
        daemon.wait_copied({"orders-0": grow(log_dir, partition, rolled_segments=2)})
    epochs = {record["leaderEpoch"] for record in tierd.cat("orders-0")}
    assert epochs == {3, 7}
    assert tierd.ask("verify", "--deep").exit_code == 0


def test_paused_partitions_wait_and_are_copied_when_resumed(
    tierd: Installation, broker_dirs: tuple[LogDirWriter, LogDirWriter]
) -> None:
    log_dir, _ = broker_dirs
    orders, bills = log_dir.add_partition("orders"), log_dir.add_partition("bills")
    with tierd.daemon() as daemon:
        daemon.wait_copied({"orders-0": grow(log_dir, orders, rolled_segments=1)})
        assert tierd.ask("pause", "orders-0").exit_code == 0
        rolled = grow(log_dir, orders, rolled_segments=2)
        daemon.wait_copied({"bills-0": grow(log_dir, bills, rolled_segments=2)})
        entry = daemon.partition("orders-0")
        assert entry is not None
        assert (entry["state"], entry["copied_through"]) == ("paused", SEGMENT_RECORDS - 1)
        assert tierd.ask("resume", "orders-0").exit_code == 0
        daemon.wait_copied({"orders-0": rolled})
