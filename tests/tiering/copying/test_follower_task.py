"""FollowerTask: its published state is true at the time of publication."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.remote_segments import FINISHED, segment, step
from tests.tiering.setups import CLUSTER_ID, Tier, delete_segment, partition_of
from tierd.errors import RemoteStorageNotReadyError
from tierd.log import PartitionScan, identify_directory, scan_partition
from tierd.metadata import Batch, Delete, RemoteLogMetadataManager
from tierd.metadata.rows.newest_epochs import EPOCHS_KEPT
from tierd.model import OffsetRange
from tierd.tiering.copying.follower_task import FollowerTask
from tierd.tiering.local.held_segment import HeldSegment
from tierd.tiering.local.hold import SegmentHold
from tierd.tiering.local.log_offsets import BrokerLogOffsets
from tierd.tiering.local.partition_log import PartitionLog


class WatchedLog(PartitionLog):
    """Log offsets that record the published state of a task at each hold and release."""

    def __init__(self, scan: PartitionScan, hold: SegmentHold, shown: Callable[[], int | None]) -> None:
        super().__init__(scan, hold)
        self._shown = shown
        self.shown_before: list[int | None] = []

    async def protect(
        self, *, copied_through: int, holes: Sequence[OffsetRange] = (), share: float = 1.0
    ) -> tuple[HeldSegment, ...]:
        self.shown_before.append(self._shown())
        return await super().protect(copied_through=copied_through, holes=holes, share=share)

    async def release(self) -> None:
        self.shown_before.append(self._shown())
        await super().release()


@pytest.mark.parametrize("is_copied", [True, False])
async def test_follower_publishes_the_frontier_after_it_has_held_the_segments_above(
    tmp_path: Path, is_copied: bool
) -> None:
    log_dir = LogDirWriter(tmp_path / "kafka")
    writer = log_dir.add_partition("orders")
    writer.fill(rolled_segments=2, shape=SegmentShape())
    log_dir.write_checkpoints()
    session = Tier(tmp_path, [log_dir.path]).session()
    await session.copy_once()
    writer.roll()
    directory = identify_directory(writer.path)
    assert directory is not None
    tasks: list[FollowerTask] = []
    log = WatchedLog(scan_partition(directory), session.hold, lambda: _shown(tasks))
    task = FollowerTask(
        log,
        metadata=session.metadata,
        log_offsets=BrokerLogOffsets(),
        slots=asyncio.Semaphore(1),
        interval_s=1,
        idle_interval_s=300,
        is_copied=lambda: is_copied,
    )
    tasks.append(task)

    await task.run_once()

    assert log.shown_before == [None]
    assert task.state.copied_through is not None
    assert task.state.copied_through.offset == 15
    held = session.hold.held((partition_of(writer.path).topic_id, 0))
    assert [each.base_offset for each in held] == ([16] if is_copied else [])


async def test_follower_whose_log_ends_before_the_epochs_of_the_row_finds_its_frontier_in_all_rows(
    tmp_path: Path,
) -> None:
    log_dir = LogDirWriter(tmp_path / "kafka")
    writer = log_dir.add_partition("orders")
    writer.fill(rolled_segments=1, shape=SegmentShape())
    log_dir.write_checkpoints()
    directory = identify_directory(writer.path)
    assert directory is not None
    log_of_a_replica_that_is_behind = scan_partition(directory)
    session = Tier(tmp_path, [log_dir.path]).session()
    await session.copy_once()
    view = session.metadata.view(partition_of(writer.path))
    (first,) = view.list()
    for epoch in range(1, EPOCHS_KEPT + 1):
        metadata = segment(
            epoch * 100,
            epoch * 100 + 9,
            epoch,
            partition=view.partition,
            leader_epoch=first.leader_epoch,
            session_id=first.session_id,
        )
        await session.metadata.add(metadata)
        await session.metadata.update(step(metadata, FINISHED))
    follower = RemoteLogMetadataManager(
        session.tier.rows, cluster_id=CLUSTER_ID, broker_id=2, session_id=first.session_id, clock=session.tier.clock
    )
    follower.follow(view.partition)
    assert not (await follower.read_epochs(view.partition)).is_complete
    task = FollowerTask(
        PartitionLog(log_of_a_replica_that_is_behind, session.hold),
        metadata=follower,
        log_offsets=BrokerLogOffsets(),
        slots=asyncio.Semaphore(1),
        interval_s=1,
        idle_interval_s=300,
    )

    await task.run_once()

    assert task.state.copied_through is not None
    assert task.state.copied_through.offset == first.end_offset


async def test_follower_keeps_its_holds_where_the_metadata_store_has_lost_its_contents(tmp_path: Path) -> None:
    log_dir = LogDirWriter(tmp_path / "kafka")
    writer = log_dir.add_partition("orders")
    writer.fill(rolled_segments=2, shape=SegmentShape())
    log_dir.write_checkpoints()
    session = Tier(tmp_path, [log_dir.path]).session()
    await session.copy_once()
    writer.roll()
    directory = identify_directory(writer.path)
    assert directory is not None
    follower = RemoteLogMetadataManager(
        session.tier.rows, cluster_id=CLUSTER_ID, broker_id=2, session_id=uuid4(), clock=session.tier.clock
    )
    follower.follow(directory.partition)
    task = FollowerTask(
        PartitionLog(scan_partition(directory), session.hold),
        metadata=follower,
        log_offsets=BrokerLogOffsets(),
        slots=asyncio.Semaphore(1),
        interval_s=1,
        idle_interval_s=300,
    )
    await task.run_once()
    key = (directory.partition.topic_id, 0)
    assert [each.base_offset for each in session.hold.held(key)] == [16]
    await session.tier.rows.apply(Batch([Delete(row) for row, _ in await session.tier.rows.scan("")]))
    with pytest.raises(RemoteStorageNotReadyError):
        await task.run_once()
    assert [each.base_offset for each in session.hold.held(key)] == [16]


class SteppedOver:
    """Follower whose leader had lost a segment before it was copied, and went on behind it."""

    def __init__(self, tmp_path: Path, *, deleted: int) -> None:
        """Let the leader copy the first segment and the third, and the follower's broker delete the first ones."""
        self.log_dir = LogDirWriter(tmp_path / "kafka")
        self.writer = self.log_dir.add_partition("orders")
        self.writer.fill(rolled_segments=4, shape=SegmentShape())
        self.log_dir.write_checkpoints()
        self.tier = Tier(tmp_path, [self.log_dir.path])
        self.leader = self.tier.session(hold_mode="none", broker_id=1)
        self.hold = SegmentHold(mode="link", hold_dir=tmp_path / "hold", max_bytes=None)
        self.partition = partition_of(self.writer.path)
        self.local = PartitionLog(self._scan(), self.hold)
        self._deleted = deleted
        self.reads = 0

    def _scan(self) -> PartitionScan:
        directory = identify_directory(self.writer.path)
        assert directory is not None
        return scan_partition(directory)

    async def lead(self) -> None:
        await self.leader.metadata.become_leader(self.partition, self.writer.leader_epoch)
        await self.leader.metadata.ensure_ready(self.partition)
        await self.leader.metadata.advance_log_start_offset(self.partition, 0)
        await self._copy(0)
        await self.follow()
        for base in range(0, self._deleted, 8):
            delete_segment(self.writer.path, base)
        await self.local.rescan()
        await self._copy(16)

    async def _copy(self, base: int) -> None:
        metadata = segment(
            base,
            base + 7,
            self.writer.leader_epoch,
            partition=self.partition,
            leader_epoch=self.writer.leader_epoch,
            session_id=self.leader.session_id,
        )
        await self.leader.metadata.add(metadata)
        await self.leader.metadata.update(step(metadata, FINISHED))

    async def follow(self) -> None:
        follower = RemoteLogMetadataManager(
            self.tier.rows, cluster_id=CLUSTER_ID, broker_id=2, session_id=uuid4(), clock=self.tier.clock
        )
        follower.follow(self.partition)
        self.task = FollowerTask(
            self.local,
            metadata=follower,
            log_offsets=BrokerLogOffsets(),
            slots=asyncio.Semaphore(1),
            interval_s=1,
            idle_interval_s=300,
        )
        await self.task.run_once()

    @property
    def held(self) -> list[int]:
        return [each.base_offset for each in self.hold.held(self.local.key)]


@pytest.mark.parametrize("deleted", [16, 24])
async def test_segments_that_the_leader_stepped_over_stay_held(tmp_path: Path, deleted: int) -> None:
    follower = SteppedOver(tmp_path, deleted=deleted)
    await follower.lead()
    assert follower.held == [8, 16, 24]

    await follower.task.run_once()

    assert follower.held == [8, 24]
    assert follower.task.state.copied_through is not None
    assert follower.task.state.copied_through.offset == 23


async def test_follower_that_becomes_the_leader_copies_what_the_former_leader_stepped_over(tmp_path: Path) -> None:
    follower = SteppedOver(tmp_path, deleted=24)
    await follower.lead()
    await follower.task.run_once()
    follower.writer.begin_epoch(follower.writer.leader_epoch + 1)
    follower.log_dir.write_checkpoints()

    successor = follower.tier.session(hold_mode="link", broker_id=2)
    successor.hold.recover()
    await successor.copy_once()

    assert successor.finished(follower.partition) == [(0, 7), (8, 15), (16, 23), (24, 31)]
    assert follower.hold.held(follower.local.key)  # of the process before; the successor released its own
    assert successor.hold.held(follower.local.key) == ()


def _shown(tasks: Sequence[FollowerTask]) -> int | None:
    copied = tasks[0].state.copied_through
    return None if copied is None else copied.offset
