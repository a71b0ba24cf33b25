"""RoleKeeper within a running manager: leaders, followers, deleted topics, switches; several brokers over one store."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, PartitionWriter, SegmentShape
from tests.tiering.running import PlainSupervisor, StandingClock, running
from tests.tiering.setups import Session, Tier, partition_of
from tierd.config import CopySettings, ExpireSettings
from tierd.control import Leadership, Role
from tierd.errors import BackendUnavailableError
from tierd.metadata import MemoryKeyValueStore
from tierd.model import TopicIdPartition
from tierd.tiering import PartitionStatus, TopicPolicy
from tierd.tiering.local.partition_log import CopyLag

SHAPE = SegmentShape()  # 8 records a segment


class ScriptedLeadership:
    """Leadership source with roles set by the test."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Leadership] = asyncio.Queue()
        self.observed: set[TopicIdPartition] = set()

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        if leader_epoch is None:
            self.observed.add(partition)

    def forget(self, partition: TopicIdPartition) -> None:
        pass

    async def changes(self) -> AsyncIterator[Leadership]:
        while True:
            yield await self._events.get()

    def tell(self, partition: TopicIdPartition, epoch: int, role: Role) -> None:
        self._events.put_nowait(Leadership(partition, epoch, role))


class DownRows(MemoryKeyValueStore):
    """Key-value store that answers no read while it is down."""

    down = False

    async def get(self, key: str) -> bytes | None:
        if self.down:
            raise BackendUnavailableError("down")
        return await super().get(key)


class Broker:
    """Broker with the tierd over its one partition; several share the stores of a ``Tier``."""

    def __init__(
        self, tmp_path: Path, group: asyncio.TaskGroup, *, tier: Tier | None = None, broker_id: int = 1
    ) -> None:
        self.log_dir = LogDirWriter(tmp_path / f"kafka{broker_id}")
        self.clock = StandingClock()
        self.leadership = ScriptedLeadership()
        self.policy = TopicPolicy()
        self.supervisor = PlainSupervisor(group, self.clock)
        self.tier = Tier(
            tmp_path / str(broker_id),
            [self.log_dir.path],
            store=tier.store if tier else None,
            rows=tier.rows if tier else None,
        )
        self.tier.clock = self.clock
        self.broker_id = broker_id
        self.session = self.new_session()

    def new_session(self) -> Session:
        return self.tier.session(
            supervisor=self.supervisor,
            leadership=self.leadership,
            settings=CopySettings(),
            policies=lambda _: self.policy,
            expire=ExpireSettings(grace_s=0),
            broker_id=self.broker_id,
        )

    def fill(self, *, rolled: int = 2) -> PartitionWriter:
        writer = self.log_dir.add_partition("orders")
        writer.fill(rolled_segments=rolled, shape=SHAPE)
        self.log_dir.write_checkpoints()
        self.partition = partition_of(writer.path)
        return writer

    def tell(self, role: Role, epoch: int = 0) -> None:
        self.leadership.tell(self.partition, epoch, role)

    @property
    def status(self) -> PartitionStatus:
        (status,) = self.session.manager.status()
        return status

    @property
    def tasks(self) -> set[str]:
        """Return the kinds of tasks that run for the partition."""
        return {name.split()[0] for name in self.supervisor.statistics() if "orders" in name}

    async def until(self, condition: Callable[[PartitionStatus], bool], what: str) -> None:
        await eventually(lambda: condition(self.status), what=what)


@pytest.fixture
async def group() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


@pytest.fixture
def broker(tmp_path: Path, group: asyncio.TaskGroup) -> Broker:
    return Broker(tmp_path, group)


async def test_a_leader_copies_and_expires(broker: Broker) -> None:
    broker.fill()
    async with running(broker.session, broker.supervisor):
        broker.tell(Role.LEADER)
        await broker.until(lambda s: s.copied_through == 15 and s.role == "leader", "copied")
        assert broker.tasks == {"copy", "expire"}


@pytest.mark.spec("remote-tiering 194")
async def test_repeated_role_reports_start_one_task_of_each_kind(broker: Broker) -> None:
    broker.fill()
    async with running(broker.session, broker.supervisor):
        broker.tell(Role.LEADER)
        await broker.until(lambda s: s.copied_through == 15, "copied")
        before = broker.session.tiering.replicas.get(broker.partition)
        assert before is not None
        task = before.tasks.copy
        for _ in range(3):
            broker.tell(Role.LEADER)
        await broker.session.manager.sync()
        assert before.tasks.copy is task, "the same task, with its state"
        for epoch in (1, 1, 2):
            broker.tell(Role.FOLLOWER, epoch)
        await broker.until(lambda s: s.role == "follower", "following")
        assert broker.tasks == {"follow"}


@pytest.mark.spec("remote-tiering 194")
async def test_broker_that_leads_again_continues_at_the_end_of_the_tier(broker: Broker) -> None:
    writer = broker.fill()
    async with running(broker.session, broker.supervisor):
        broker.tell(Role.LEADER)
        await broker.until(lambda s: s.copied_through == 15, "copied")
        broker.tell(Role.FOLLOWER, 1)
        await broker.until(lambda s: s.state == "following" and s.copied_through == 15, "following")
        writer.roll()
        writer.append([b"next"])
        broker.log_dir.write_checkpoints()
        await eventually(lambda: broker.session.hold.statistics().segments == 1, what="the rolled segment to be held")
        assert broker.status.lag == CopyLag(), "a follower has none"
        broker.tell(Role.LEADER, 2)
        await broker.until(lambda s: s.leader_epoch == 2 and s.copied_through == 19, "led again")
        assert broker.session.finished(broker.partition) == [(0, 7), (8, 15), (16, 19)]


@pytest.mark.spec("remote-tiering 140")
async def test_follower_without_an_answer_of_the_store_tries_again(broker: Broker) -> None:
    rows = DownRows()
    rows.down = True
    broker.tier.rows = rows
    broker.session = broker.new_session()
    broker.fill()
    async with running(broker.session, broker.supervisor):
        broker.tell(Role.FOLLOWER)
        await broker.until(lambda s: s.state == "quarantined", "quarantined")
        assert broker.session.hold.statistics().segments == 0
        rows.down = False
        broker.supervisor.retry()
        await broker.until(lambda s: s.state == "following", "following")


class TestTwoBrokers:
    async def test_follower_holds_segments_until_the_leader_has_copied_them(
        self, tmp_path: Path, group: asyncio.TaskGroup
    ) -> None:
        leader = Broker(tmp_path, group, broker_id=1)
        follower = Broker(tmp_path, group, tier=leader.tier, broker_id=2)
        writer, copy = leader.fill(), follower.fill()
        metadata = (writer.path / "partition.metadata").read_bytes()
        (copy.path / "partition.metadata").write_bytes(metadata)
        follower.partition = leader.partition
        (leader.log_dir.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 8\n")
        async with running(leader.session, leader.supervisor), running(follower.session, follower.supervisor):
            leader.tell(Role.LEADER)
            await leader.until(lambda s: s.copied_through == 7, "the first segment copied")
            follower.tell(Role.FOLLOWER)
            await follower.until(lambda s: s.copied_through == 7, "the follower to know")
            assert [held.base_offset for held in follower.session.hold.held(_key(follower))] == [8]
            leader.log_dir.write_checkpoints()
            await leader.until(lambda s: s.copied_through == 15, "the second segment copied")
            follower.clock.advance(31)
            await follower.until(lambda s: s.copied_through == 15, "the follower to know that too")
            await eventually(lambda: follower.session.hold.statistics().segments == 0, what="the hold to be let go")

    async def test_follower_releases_its_holds_when_copies_are_switched_off(self, broker: Broker) -> None:
        writer = broker.fill()
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.copied_through == 15, "copied")
            broker.tell(Role.FOLLOWER, 1)
            await broker.until(lambda s: s.state == "following" and s.copied_through == 15, "following")
            writer.roll()
            writer.append([b"next"])
            broker.log_dir.write_checkpoints()
            await eventually(lambda: broker.session.hold.statistics().segments == 1, what="the segment to be held")
            broker.policy = TopicPolicy(copy_enabled=False)
            await broker.session.manager.follow_policies()
            await eventually(lambda: broker.session.hold.statistics().segments == 0, what="the hold to be let go")

    async def test_follower_of_a_partition_that_was_never_led_holds_no_segment(self, broker: Broker) -> None:
        broker.fill()
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.FOLLOWER)
            await broker.until(lambda s: s.copied_through == -1, "looked at")
            assert broker.session.hold.statistics().segments == 0


def _key(broker: Broker) -> tuple[UUID, int]:
    return broker.partition.topic_id, broker.partition.partition


class TestSwitch:
    """KIP-950: copies stop, all other tasks continue."""

    @pytest.mark.spec("remote-tiering 253")
    async def test_switched_off_copies_stop_at_once_and_continue_there_when_switched_on(self, broker: Broker) -> None:
        writer = broker.fill()
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.copied_through == 15, "copied")
            broker.policy = TopicPolicy(copy_enabled=False)
            await broker.session.manager.follow_policies()
            writer.roll()
            writer.append([b"next"])
            broker.log_dir.write_checkpoints()
            await broker.session.manager.sync()
            assert broker.tasks == {"expire"}
            assert broker.status.lag == CopyLag()
            assert (broker.status.role, broker.status.state) == ("leader", "idle")
            assert "switched off" in broker.status.reason
            assert broker.session.hold.statistics().segments == 0
            records = await broker.session.read_all(writer.path)
            assert [record.offset for record in records] == list(range(21)), "copied segments stay readable"
            broker.policy = TopicPolicy()
            await broker.session.manager.follow_policies()
            await broker.until(lambda s: s.copied_through == 19, "copied again")
        assert broker.session.finished(broker.partition) == [(0, 7), (8, 15), (16, 19)]

    async def test_topic_with_copies_switched_off_is_claimed_and_expires(self, broker: Broker) -> None:
        broker.fill()
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.copied_through == 15, "copied")
        broker.policy = TopicPolicy(copy_enabled=False, retention_bytes=0)
        session = broker.session = broker.new_session()
        async with running(session, broker.supervisor):
            broker.tell(Role.LEADER)
            await eventually(
                lambda: session.metadata.is_ready(broker.partition) and not session.rows(broker.partition),
                what="everything to expire",
            )

    async def test_new_copy_delay_applies_from_the_next_pass_on(self, broker: Broker) -> None:
        broker.policy = TopicPolicy(copy_lag_ms=-1, copy_lag_bytes=-1)
        broker.fill()
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.state == "waiting" and "copy_lag" in s.reason, "delayed")
            assert broker.status.lag.segments == 2
            broker.policy = replace(broker.policy, copy_lag_ms=0)
            await broker.session.manager.follow_policies()
            await broker.until(lambda s: s.copied_through == 15, "copied")


class TestDeletedTopic:
    @pytest.mark.spec("remote-tiering 189")
    async def test_tier_of_a_deleted_topic_is_kept_by_default(self, broker: Broker) -> None:
        broker.fill()
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.copied_through == 15, "copied")
            broker.tell(Role.DELETED)
            await broker.until(lambda s: s.role == "deleted", "deleted")
            assert broker.tasks == set()
            assert broker.session.metadata.statistics().partitions == 0
        assert broker.session.recorder.deletes == 0

    async def test_tier_is_deleted_with_the_topic_if_the_policy_demands_it(self, broker: Broker) -> None:
        broker.policy = TopicPolicy(delete_with_topic=True)
        broker.fill()
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.copied_through == 15, "copied")
            broker.tell(Role.DELETED)
            await eventually(lambda: broker.session.recorder.deletes == 2, what="both segments to go")
            await eventually(lambda: not _objects(broker), what="the store to be empty")

    @pytest.mark.parametrize("delete_with_topic", [False, True])
    async def test_series_of_a_deleted_topic_are_dropped(self, broker: Broker, *, delete_with_topic: bool) -> None:
        broker.policy = TopicPolicy(delete_with_topic=delete_with_topic)
        broker.fill()
        recorder = broker.session.recorder
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.copied_through == 15, "copied")
            assert recorder.forgotten == []
            broker.tell(Role.DELETED)
            await eventually(lambda: "orders" in recorder.forgotten, what="the series to be dropped")
            if delete_with_topic:
                await eventually(lambda: recorder.deletes == 2, what="both segments to go")
                await eventually(lambda: len(recorder.forgotten) == 2, what="what the removal counted to be dropped")

    async def test_tier_of_a_topic_deleted_while_tierd_was_down_is_deleted(self, broker: Broker) -> None:
        broker.policy = TopicPolicy(delete_with_topic=True)
        writer = broker.fill()
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.copied_through == 15, "copied")
        partition = partition_of(writer.path)
        shutil.rmtree(writer.path)
        broker.session = broker.new_session()
        async with running(broker.session, broker.supervisor):
            await eventually(lambda: partition in broker.leadership.observed, what="the cluster to be asked")
            broker.leadership.tell(partition, 0, Role.DELETED)
            await eventually(lambda: not _objects(broker), what="the store to be empty")

    async def test_retained_objects_are_counted_by_the_leader_only(self, broker: Broker) -> None:
        writer = broker.fill()
        partition = partition_of(writer.path)
        deletion = broker.session.tiering.deletion
        async with running(broker.session, broker.supervisor):
            broker.tell(Role.LEADER)
            await broker.until(lambda s: s.copied_through == 15, "copied")
            deletion._retained[partition] = {UUID(int=1): 1e9}
            broker.tell(Role.FOLLOWER, epoch=1)
            await broker.until(lambda s: s.role == "follower", "followed")
            await eventually(lambda: deletion.retained_of(partition) == 0, what="it to be forgotten")


def _objects(broker: Broker) -> list[str]:
    store = broker.tier.store
    return [key for key in getattr(store, "_objects", ()) if "/orders" in key]


@pytest.mark.spec("remote-tiering 189")
@pytest.mark.spec("remote-tiering 191")
async def test_partition_whose_directory_is_gone_has_no_task_and_is_forgotten(broker: Broker) -> None:
    writer = broker.fill()
    async with running(broker.session, broker.supervisor):
        broker.tell(Role.LEADER)
        await broker.until(lambda s: s.copied_through == 15, "copied")
        writer.path.rename(writer.path.with_name("orders-0.0123456789abcdef0123456789abcdef-delete"))
        await eventually(lambda: broker.session.manager.status() == (), what="the partition to be forgotten")
        await eventually(lambda: not broker.tasks, what="its tasks to end")
        await eventually(
            lambda: broker.session.metadata.statistics().partitions == 0, what="its metadata to be forgotten"
        )
    assert broker.session.recorder.deletes == 0, "its objects are not touched"
