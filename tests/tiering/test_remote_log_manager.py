"""RemoteLogManager over live directories: partitions appear, grow, move and disappear."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, PartitionWriter, SegmentShape
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.interruption import InterruptedObjectStore, Interruption
from tests.tiering.running import PlainSupervisor, StandingClock, running
from tests.tiering.setups import Session, Tier, delete_segment, partition_of
from tierd.config import CopySettings
from tierd.control import LeadershipSource, StaticLeadership
from tierd.errors import BackendUnavailableError, UnknownPartitionError
from tierd.log import KnownDirectory, LogDirListing, list_log_dir
from tierd.metadata import Batch, MemoryKeyValueStore
from tierd.model import RemoteLogSegmentState, SoftDelete, TopicPartition
from tierd.remote import Body, Tombstone
from tierd.tiering import PartitionStatus
from tierd.tiering.topic_policy import FindTopicPolicy, TopicPolicy

SHAPE = SegmentShape()  # 8 records a segment


class World:
    """One or more log dirs, and a running tierd over them."""

    def __init__(self, tmp_path: Path, group: asyncio.TaskGroup, *, log_dirs: int = 1) -> None:
        self.log_dirs = [LogDirWriter(tmp_path / f"kafka{number}") for number in range(log_dirs)]
        self.log_dir = self.log_dirs[0]
        self.calls = Interruption(at=None)
        self.tier = Tier(tmp_path, [log_dir.path for log_dir in self.log_dirs])
        self.tier.store = InterruptedObjectStore(self.tier.store, self.calls)
        self.clock = StandingClock()
        self.tier.clock = self.clock
        self.group = group
        self.policies: FindTopicPolicy = lambda _: TopicPolicy()
        self.new_session()

    def new_session(self, settings: CopySettings | None = None, leadership: LeadershipSource | None = None) -> Session:
        self.supervisor = PlainSupervisor(self.group, self.clock)
        self.session = self.tier.session(
            supervisor=self.supervisor, settings=settings, leadership=leadership, policies=self.policies
        )
        return self.session

    def passive_session(self) -> Session:
        """Return a session whose tasks the test runs by itself, pass by pass."""
        return self.tier.session(policies=self.policies)

    def run(self) -> contextlib.AbstractAsyncContextManager[None]:
        return running(self.session, self.supervisor)

    def add(self, topic: str = "orders", *, rolled: int = 2) -> PartitionWriter:
        writer = self.log_dir.add_partition(topic)
        writer.fill(rolled_segments=rolled, shape=SHAPE)
        self.log_dir.write_checkpoints()
        return writer

    def roll(self, writer: PartitionWriter) -> None:
        writer.roll()
        writer.append([b"next"])
        self.log_dir.write_checkpoints()

    def status(self, name: str = "orders-0") -> PartitionStatus | None:
        return next((s for s in self.session.manager.status() if str(s.partition) == name), None)

    async def until(self, condition: Callable[[PartitionStatus], bool], what: str, name: str = "orders-0") -> None:
        def holds() -> bool:
            status = self.status(name)
            return status is not None and condition(status)

        await eventually(holds, what=f"{name}: {what}; it is {self.status(name)}")

    async def copied_through(self, offset: int, name: str = "orders-0") -> None:
        await self.until(lambda s: s.copied_through == offset, f"copied through {offset}", name)


def move_into_one_segment(path: Path, log_dir: Path) -> Path:
    """Move a replica as a broker does: append the remaining records to a new log with segments of its own."""
    new, logs = log_dir / path.name, sorted(path.glob("*.log"))
    new.mkdir()
    (new / logs[0].name).write_bytes(b"".join(log.read_bytes() for log in logs))
    for name in ("partition.metadata", "leader-epoch-checkpoint"):
        shutil.copy(path / name, new / name)
    path.rename(path.with_name(f"{path.name}.{uuid4().hex}-delete"))
    return new


@pytest.fixture
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


@pytest.fixture
def world(tmp_path: Path, group: asyncio.TaskGroup) -> World:
    return World(tmp_path, group)


class TestFollowing:
    async def test_partition_that_exists_at_the_start_is_copied(self, world: World) -> None:
        world.add()
        async with world.run():
            await world.copied_through(15)

    async def test_partitions_that_are_being_loaded_are_those_in_that_state_at_every_moment(self, world: World) -> None:
        for topic in ("orders", "payments", "refunds"):
            world.add(topic)
        manager, loading = world.session.manager, set[int]()
        async with world.run(), asyncio.timeout(30):
            while not (status := manager.status()) or any(s.copied_through != 15 for s in status):
                assert manager.loading() == tuple(s.partition for s in status if s.state == "loading")
                loading.add(len(manager.loading()))
                await asyncio.sleep(0)
        assert max(loading) > 0
        assert manager.loading() == ()

    async def test_a_partition_that_appears_and_grows_is_followed_without_a_timer(self, world: World) -> None:
        async with world.run():
            writer = world.add()
            await world.copied_through(15)
            world.roll(writer)
            await world.copied_through(19)
        assert all(delay_s < 1 or delay_s > 200 for delay_s in world.clock.sleeps_s), "only the reconcile waits"

    async def test_topic_created_again_is_copied_from_its_beginning(self, world: World) -> None:
        writer = world.add()
        async with world.run():
            await world.copied_through(15)
            old = partition_of(writer.path)
            renamed = writer.path.with_name(f"orders-0.{uuid4().hex}-delete")
            writer.path.rename(renamed)
            again = world.add(rolled=1)
            await world.until(lambda s: s.copied_through == 7, "the new topic copied")
            shutil.rmtree(renamed)
            new = partition_of(again.path)
        assert new != old
        assert world.session.finished(new) == [(0, 7)]

    async def test_a_deleted_topic_ends_its_task_and_its_holds(self, world: World) -> None:
        writer = world.add()
        (world.log_dir.path / "replication-offset-checkpoint").write_text("0\n0\n")
        async with world.run():
            await eventually(lambda: world.session.hold.statistics().segments == 2, what="two holds")
            writer.path.rename(writer.path.with_name(f"orders-0.{uuid4().hex}-delete"))
            await eventually(lambda: world.status() is None, what="the partition to be forgotten")
            await eventually(lambda: not world.session.hold.statistics().segments, what="the holds to be dropped")
            assert not [name for name in world.supervisor.statistics() if "orders" in name]

    async def test_deletion_that_had_begun_in_a_topic_is_ended_after_the_topic_is_deleted(self, world: World) -> None:
        writer = world.add()
        async with world.run():
            await world.copied_through(15)
            partition, metadata = partition_of(writer.path), world.session.metadata
            row = min(metadata.view(partition).list(), key=lambda each: each.start_offset)
            now_ms, after_ms = world.clock.now_ms(), world.clock.now_ms() + 900_000
            deleting = row.advance(
                RemoteLogSegmentState.DELETE_SEGMENT_STARTED,
                event_timestamp_ms=now_ms,
                broker_id=row.broker_id,
                soft_delete=SoftDelete("retention_time", after_ms),
            )
            await metadata.update(deleting)
            await world.session.storage.write_tombstone(row, Tombstone("retention_time", now_ms, after_ms, 1))
            writer.path.rename(writer.path.with_name(f"orders-0.{uuid4().hex}-delete"))
            await eventually(lambda: world.status() is None, what="the partition to be forgotten")
            recorder = world.session.recorder
            await eventually(lambda: 900 in world.clock.sleeps_s, what="the deletion to wait for its grace")
            assert recorder.deletes == 0
            world.clock.advance(900)
            await eventually(lambda: recorder.deletes == 1, what="the objects to be deleted")

    @pytest.mark.parametrize("suffix", ["future", "stray", "delete"])
    async def test_renamed_directories_are_not_copied(self, world: World, suffix: str) -> None:
        writer = world.add()
        writer.path.rename(writer.path.with_name(f"orders-0.{uuid4().hex}-{suffix}"))
        async with world.run():
            assert world.session.manager.status() == ()

    async def test_copying_continues_after_a_partition_moved_between_log_dirs(
        self, tmp_path: Path, group: asyncio.TaskGroup
    ) -> None:
        world = World(tmp_path, group, log_dirs=2)
        writer = world.add()
        async with world.run():
            await world.copied_through(15)
            world.roll(writer)
            await world.copied_through(19)
            moved = world.log_dirs[1].path / writer.path.name
            writer.path.rename(moved)
            await world.until(lambda s: s.directory == str(moved), "found in the other log dir")
            checkpoint = "replication-offset-checkpoint"
            shutil.copy(world.log_dir.path / checkpoint, world.log_dirs[1].path / checkpoint)
            await world.until(lambda s: s.state == "idle" and s.copied_through == 19, "idle")
        assert world.session.finished(partition_of(moved)) == [(0, 7), (8, 15), (16, 19)]

    @pytest.mark.parametrize("after", ["the move", "a restart", "another broker's election"])
    async def test_moved_and_compacted_replica_of_one_active_segment_keeps_its_copied_offset(
        self, tmp_path: Path, group: asyncio.TaskGroup, after: str
    ) -> None:
        world = World(tmp_path, group, log_dirs=2)
        world.policies = lambda _: TopicPolicy(cleanup_policy=frozenset({"compact"}))
        world.new_session()
        writer = world.add()
        moved_to = world.log_dirs[1].path / writer.path.name

        async def move() -> None:
            moved = move_into_one_segment(writer.path, world.log_dirs[1].path)
            checkpoint = "replication-offset-checkpoint"
            shutil.copy(world.log_dir.path / checkpoint, world.log_dirs[1].path / checkpoint)
            if after == "the move":
                await world.until(lambda s: s.directory == str(moved) and s.state == "idle", "found there")

        async with world.run():
            await world.copied_through(15)
            if after == "the move":
                await move()
                await world.copied_through(15)
                assert world.session.finished(partition_of(moved_to)) == [(0, 7), (8, 15)]
        if after != "the move":
            await move()
            world.new_session(leadership=StaticLeadership() if after == "a restart" else StaticLeadership(["none"]))
            async with world.run():
                await world.until(lambda s: s.copied_through is not None, "looked at")
                await world.copied_through(15)

    async def test_a_replica_that_moves_between_two_listings_keeps_its_holds(
        self, tmp_path: Path, group: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = World(tmp_path, group, log_dirs=2)
        writer = world.add()
        (world.log_dir.path / "replication-offset-checkpoint").write_text("0\n0\n")
        listings = 0

        def list_unlucky(log_dir: Path, *, known: Mapping[str, KnownDirectory]) -> LogDirListing:
            nonlocal listings
            listings += 1
            listing = list_log_dir(log_dir, known=known)
            # The first listing of the third reconcile is too early for one log dir, and too late for the other.
            return replace(listing, partitions=()) if listings in (5, 6) else listing

        session = world.passive_session()
        await session.copy_once()
        assert session.hold.statistics().segments == 2
        delete_segment(writer.path, 0)
        monkeypatch.setattr("tierd.tiering.replicas.replica_scanner.list_log_dir", list_unlucky)
        listings = 4
        await session.copy_once()
        assert listings == 8
        assert session.hold.statistics().segments == 2, "one of the segments has no name but that of its hold"

    async def test_a_higher_leader_epoch_is_claimed_by_a_new_task(self, world: World) -> None:
        writer = world.add()
        async with world.run():
            await world.until(lambda s: s.leader_epoch == 0 and s.state == "idle", "led at epoch 0")
            writer.begin_epoch(4)
            world.roll(writer)
            await world.until(lambda s: s.leader_epoch == 4 and s.copied_through == 19, "led at epoch 4")

    async def test_directory_that_gets_its_topic_id_later_is_copied_then(self, world: World) -> None:
        writer = world.add()
        metadata = writer.path / "partition.metadata"
        content = metadata.read_bytes()
        metadata.unlink()
        async with world.run():
            assert world.session.manager.status() == ()
            metadata.write_bytes(content)
            await world.copied_through(15)

    async def test_offline_log_dir_keeps_its_holds_and_copying_continues_in_the_others(
        self, tmp_path: Path, group: asyncio.TaskGroup
    ) -> None:
        world = World(tmp_path, group, log_dirs=2)
        world.add()
        (world.log_dir.path / "replication-offset-checkpoint").write_text("0\n0\n")
        async with world.run():
            await eventually(lambda: world.session.hold.statistics().segments == 2, what="two holds")
            away = world.log_dir.path.rename(tmp_path / "unmounted")
            await world.until(lambda s: s.state == "quarantined" and "log dir" in s.reason, "offline")
            assert world.session.hold.statistics().segments == 2
            other = world.log_dirs[1].add_partition("payments")
            other.fill(rolled_segments=1, shape=SHAPE)
            world.log_dirs[1].write_checkpoints()
            await world.copied_through(7, "payments-0")
            away.rename(world.log_dir.path)
            world.log_dir.write_checkpoints()
            world.clock.advance(1000)  # the reconcile finds the log dir again
            world.supervisor.retry()
            await world.copied_through(15)


class TestWaiting:
    async def test_new_high_watermark_wakes_the_task_that_waits_for_it(self, world: World) -> None:
        world.add()
        checkpoint = world.log_dir.path / "replication-offset-checkpoint"
        content = checkpoint.read_text()
        checkpoint.write_text("0\n1\norders 0 8\n")
        async with world.run():
            await world.copied_through(7)
            new = checkpoint.with_name("new.tmp")
            new.write_text(content)
            new.rename(checkpoint)
            await world.copied_through(15)

    async def test_idle_partitions_make_no_calls_to_the_store(self, world: World) -> None:
        world.add()
        async with world.run():
            await world.until(lambda s: s.state == "idle", "idle")
            calls, reconciled = world.calls.calls, world.session.recorder.succeeded.count("reconcile")
            for _ in range(3):
                world.log_dir.write_checkpoints()
            world.clock.advance(1000)
            await eventually(
                lambda: world.session.recorder.succeeded.count("reconcile") > reconciled, what="another reconcile"
            )
            assert world.calls.calls <= calls + 1, "the one listing of unfinished uploads after the start"

    async def test_lag_is_updated_while_the_task_fails(self, world: World) -> None:
        class DownRows(MemoryKeyValueStore):
            async def apply(self, batch: Batch) -> None:
                raise BackendUnavailableError("down")

        world.tier.rows = DownRows()
        world.new_session()
        writer = world.add()
        async with world.run():
            await world.until(lambda s: s.state == "quarantined" and s.lag.segments == 2, "both segments behind")
            world.roll(writer)
            await world.until(lambda s: s.lag.segments == 3, "the third one too")
            status = world.status()
            assert status is not None
            assert status.lag.bytes == sum((writer.path / f"{base:020d}.log").stat().st_size for base in (0, 8, 16))
            assert status.lag.oldest_ms == (writer.path / f"{0:020d}.log").stat().st_mtime_ns // 1_000_000
            assert status.last_error is not None
            assert world.session.hold.statistics().segments == 3, "and they are held"

    async def test_lag_grows_while_an_upload_hangs(self, world: World) -> None:
        class StuckStore(MemoryObjectStore):
            async def put(self, key: str, body: Body) -> None:
                await asyncio.Event().wait()

        world.tier.store = StuckStore()
        world.new_session()
        writer = world.add()
        async with world.run():
            await world.until(lambda s: s.state == "copying" and s.lag.segments == 2, "the first one under way")
            world.roll(writer)
            await world.until(lambda s: s.lag.segments == 3, "the third one behind too")
            status = world.status()
            assert status is not None
            assert status.lag.oldest_ms == (writer.path / f"{0:020d}.log").stat().st_mtime_ns // 1_000_000


class TestControl:
    async def test_paused_partition_waits_and_is_copied_when_resumed(self, world: World) -> None:
        world.session.manager.pause()
        world.add()
        async with world.run():
            await world.until(lambda s: s.state == "paused" and s.lag.segments == 2, "paused")
            world.session.manager.resume()
            await world.copied_through(15)

    async def test_sync_returns_after_a_pass_of_each_partition(self, world: World) -> None:
        writer = world.add()
        async with world.run():
            await world.copied_through(15)
            writer.roll()
            writer.append([b"x"])
            world.log_dir.write_checkpoints()
            (status,) = await world.session.manager.sync([TopicPartition("orders", 0)])
            assert status.copied_through == 19

    async def test_current_status_has_the_high_watermark_of_a_partition_that_fails(self, world: World) -> None:
        writer = world.add()
        (writer.path / f"{0:020d}.log").write_bytes(bytes(100))
        async with world.run():
            await world.until(lambda s: s.last_error is not None, "failing")
            writer.append([b"x"])
            world.log_dir.write_checkpoints()
            (status,) = await world.session.manager.current_status()
        assert status.high_watermark == writer.end_offset

    async def test_current_status_has_the_last_high_watermark_while_the_checkpoint_is_unreadable(
        self, world: World
    ) -> None:
        world.add()
        async with world.run():
            await world.copied_through(15)
            await world.until(lambda s: s.high_watermark == 20, "a high watermark seen")
            (world.log_dir.path / "replication-offset-checkpoint").write_text("damaged")
            (status,) = await world.session.manager.current_status()
        assert status.high_watermark == 20

    async def test_no_copy_begins_after_the_intake_is_stopped(self, world: World) -> None:
        world.session.manager.stop_intake()
        world.add()
        async with world.run():
            await world.until(lambda s: s.state == "waiting", "waiting")
            status = world.status()
            assert status is not None
            assert (status.copied_through, status.reason) == (-1, "tierd is stopping")

    async def test_a_single_pass_refuses_a_partition_that_is_not_here(self, world: World) -> None:
        world.add()
        with pytest.raises(UnknownPartitionError, match="payments-3"):
            await world.passive_session().copy_once("orders-0", "payments-3")

    async def test_one_failing_partition_does_not_keep_the_others_from_being_copied(self, world: World) -> None:
        writer = world.add("orders")
        world.add("payments")
        (writer.path / f"{0:020d}.log").write_bytes(bytes(100))
        outcomes = await world.passive_session().copy_once()
        assert outcomes["orders-0"].error is not None
        assert outcomes["payments-0"].error is None


class TestHolds:
    async def test_a_queued_segment_outlives_its_deletion_and_a_restart(self, world: World) -> None:
        writer = world.add()
        checkpoint = world.log_dir.path / "replication-offset-checkpoint"
        content = checkpoint.read_text()
        checkpoint.write_text("0\n0\n")
        async with world.run():
            await eventually(lambda: world.session.hold.statistics().segments == 2, what="two holds")
        delete_segment(writer.path, 0)
        delete_segment(writer.path, 8)
        checkpoint.write_text(content)
        world.new_session()
        async with world.run():
            await world.copied_through(15)
            await world.until(lambda s: s.state == "idle", "idle")
            assert world.session.hold.statistics().segments == 0
        assert world.session.finished(partition_of(writer.path)) == [(0, 7), (8, 15)]
        assert world.session.recorder.gaps == []
