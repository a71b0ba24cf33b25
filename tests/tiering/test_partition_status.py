"""Status of a partition as an operator sees it, by role."""

from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tierd.control import Leadership, Role
from tierd.log import identify_directory, scan_partition
from tierd.tiering import SegmentHold, TaskHealth
from tierd.tiering.local.partition_log import CopyLag, PartitionLog
from tierd.tiering.partition_status import PartitionStatus, partition_status
from tierd.tiering.replicas.replica import RoleTasks


@pytest.fixture
async def local(tmp_path: Path) -> PartitionLog:
    writer = LogDirWriter(tmp_path / "kafka").add_partition("orders")
    writer.fill(rolled_segments=2, shape=SegmentShape())
    directory = identify_directory(writer.path)
    assert directory is not None
    hold = SegmentHold(mode="none", hold_dir=tmp_path / "hold", max_bytes=None)
    local = PartitionLog(scan_partition(directory), hold)
    await local.protect(copied_through=-1)
    return local


def _status(
    local: PartitionLog, role: Role | None, *, problem: str = "", health: TaskHealth | None = None
) -> PartitionStatus:
    return partition_status(
        local,
        leadership=Leadership(local.partition, 3, role) if role else None,
        tasks=RoleTasks(),
        health=health or TaskHealth(),
        paused=False,
        problem=problem,
    )


@pytest.mark.spec("remote-tiering 143")
async def test_a_follower_publishes_no_lag(local: PartitionLog) -> None:
    assert local.lag().segments == 2
    status = _status(local, Role.FOLLOWER)
    assert (status.lag, status.state) == (CopyLag(), "following")


@pytest.mark.spec("remote-tiering 143")
async def test_deleted_topic_publishes_no_lag(local: PartitionLog) -> None:
    status = _status(local, Role.DELETED)
    assert (status.lag, status.role, status.leader_epoch) == (CopyLag(), "deleted", None)


async def test_status_of_a_leader_whose_copies_are_switched_off_names_the_reason(local: PartitionLog) -> None:
    status = _status(local, Role.LEADER)
    assert (status.state, status.leader_epoch) == ("idle", 3)
    assert "switched off" in status.reason


async def test_status_of_a_log_that_was_never_led_is_waiting(local: PartitionLog) -> None:
    status = _status(local, None)
    assert (status.role, status.state) == ("unknown", "waiting")
    assert "leader-epoch-checkpoint" in status.reason


async def test_status_shows_a_problem_of_the_directory_first(local: PartitionLog) -> None:
    status = _status(local, Role.LEADER, problem="the disk is gone")
    assert (status.state, status.reason, status.last_error) == ("quarantined", "the disk is gone", "the disk is gone")


async def test_status_of_a_failed_task_has_its_error_and_its_remedy(local: PartitionLog) -> None:
    failed = TaskHealth(failures=2, last_error="torn batch", remedy="run tierd inspect")
    status = _status(local, Role.LEADER, health=failed)
    assert (status.state, status.last_error, status.remedy) == ("quarantined", "torn batch", "run tierd inspect")
