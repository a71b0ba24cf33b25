"""Cost of a loss of the host: what neither the tier nor a standby has."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fakes.log_dirs import FIRST_TIMESTAMP_MS, LogDirWriter, SegmentShape, write_log_dir
from tests.fakes.manual_clock import ManualClock
from tierd.app.daemon.unprotected_watch import RecordsAtRisk, UnprotectedWatch, worst_of
from tierd.control import Leadership, Role
from tierd.log import identify_directory, scan_partition
from tierd.model import TopicIdPartition
from tierd.tiering import ReplicaTable

SHAPE = SegmentShape(batches=2, records_per_batch=4, value_bytes=1000)
NOW_MS = FIRST_TIMESTAMP_MS + 60_000


@dataclass
class Table:
    """The part of a ``ReplicaTable`` that is read."""

    replicas: list[Any]

    def all(self) -> tuple[Any, ...]:
        return tuple(self.replicas)


def _path(log_dir: LogDirWriter) -> Path:
    (partition,) = log_dir.partitions.values()
    return partition.path


def replica(log_dir: LogDirWriter, *, copied_through: int | None, role: Role = Role.LEADER, copied: bool = True) -> Any:  # noqa: ANN401
    directory = identify_directory(_path(log_dir))
    assert directory is not None
    scan = scan_partition(directory)
    through = None if copied_through is None else SimpleNamespace(offset=copied_through)
    tasks = SimpleNamespace(copy=SimpleNamespace(state=SimpleNamespace(copied_through=through)) if copied else None)
    local = SimpleNamespace(partition=directory.partition, scan=scan)
    return SimpleNamespace(local=local, leadership=Leadership(directory.partition, 0, role), tasks=tasks)


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDirWriter:
    return write_log_dir(tmp_path, partitions=1, rolled_segments=2, shape=SHAPE)


def watch(*replicas: Any, standbys: Mapping[TopicIdPartition, RecordsAtRisk] | None = None) -> UnprotectedWatch:  # noqa: ANN401
    table = cast("ReplicaTable", Table(list(replicas)))
    return UnprotectedWatch(table, lambda: standbys or {}, clock=ManualClock(now_ms=NOW_MS))


def sizes(log_dir: LogDirWriter) -> list[int]:
    return [each.stat().st_size for each in sorted(_path(log_dir).glob("*.log"))]


async def test_segments_above_the_frontier_count_with_the_active_one(log_dir: LogDirWriter) -> None:
    first, *later = sizes(log_dir)
    assert first
    one = watch(replica(log_dir, copied_through=7))  # the first segment has 8 records
    await one.measure()
    (use,) = one.use()
    assert use.size_bytes == sum(later)
    assert 0 < use.seconds <= 60


async def test_nothing_in_the_tier_counts_everything_from_the_first_record_on(log_dir: LogDirWriter) -> None:
    one = watch(replica(log_dir, copied_through=-1))
    await one.measure()
    (use,) = one.use()
    assert (use.size_bytes, use.seconds) == (sum(sizes(log_dir)), 60.0)


async def test_topic_that_is_not_copied_counts_whole(log_dir: LogDirWriter) -> None:
    one = watch(replica(log_dir, copied_through=None, copied=False))
    await one.measure()
    assert one.use()[0].size_bytes == sum(sizes(log_dir))


async def test_frontier_that_is_not_known_and_followed_partitions_count_nothing(log_dir: LogDirWriter) -> None:
    one = watch(replica(log_dir, copied_through=None), replica(log_dir, copied_through=-1, role=Role.FOLLOWER))
    await one.measure()
    assert one.use() == []


async def test_records_that_a_standby_has_are_protected(log_dir: LogDirWriter) -> None:
    led = replica(log_dir, copied_through=-1)
    whole = watch(led, standbys={led.local.partition: RecordsAtRisk(0.0, 0)})
    await whole.measure()
    assert [(each.seconds, each.size_bytes) for each in whole.use()] == [(0.0, 0)]
    assert whole._not_in_tier == {}

    behind = watch(led, standbys={led.local.partition: RecordsAtRisk(2.5, 100)})
    await behind.measure()
    assert [(each.seconds, each.size_bytes) for each in behind.use()] == [(2.5, 100)]


async def test_pushed_partition_that_is_not_tiered_counts_what_the_standby_lacks(log_dir: LogDirWriter) -> None:
    partition = replica(log_dir, copied_through=-1).local.partition
    one = watch(standbys={partition: RecordsAtRisk(1.0, 7)})
    await one.measure()
    assert [(each.topic, each.seconds, each.size_bytes) for each in one.use()] == [(partition.topic, 1.0, 7)]


async def test_unused_room_of_a_preallocated_file_does_not_count(log_dir: LogDirWriter) -> None:
    active = max(_path(log_dir).glob("*.log"))
    with active.open("r+b") as file:
        file.truncate(64 << 20)
    one = watch(replica(log_dir, copied_through=-1))
    await one.measure()
    assert one.use()[0].size_bytes < 1 << 20


async def test_worst_is_the_partition_with_the_oldest_record(log_dir: LogDirWriter) -> None:
    led = replica(log_dir, copied_through=-1)
    one = watch(led)
    await one.measure()
    name = str(led.local.partition.topic_partition)
    assert worst_of(one.use()) == {"bytes": sum(sizes(log_dir)), "seconds": 60.0, "partition": name}
    assert worst_of([]) == {"bytes": 0, "seconds": 0.0, "partition": ""}
