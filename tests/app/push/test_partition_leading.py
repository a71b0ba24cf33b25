"""Leadership of pushed partitions: what the source, the log dirs and doubts of standbys make of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from tests.fakes.eventually import eventually
from tests.replication.leader.led import NODE, LedSetup
from tests.replication.leader.memory_leader_log import MemoryLeaderLog
from tierd.app.push.leader_logs import LeaderLogs, OpenedLog
from tierd.app.push.partition_leading import PartitionLeading, SentTopicConfig, SentTopics
from tierd.app.push.pushed_partitions import PartitionsFound, PushedPartition
from tierd.control import Leadership, Role
from tierd.errors import LogDirOfflineError
from tierd.model import TopicIdPartition
from tierd.replication.model.messages import DeletedReplica

ORDERS = TopicIdPartition(UUID(int=1), "orders", 0)
NEWER = TopicIdPartition(UUID(int=2), "orders", 0)
LOG_DIR = Path("/log-dir")


class QueuedSource:
    """A ``LeadershipSource`` whose events the test puts."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, TopicIdPartition, int | None]] = []
        self._events: asyncio.Queue[Leadership] = asyncio.Queue()

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        self.calls.append(("observe", partition, leader_epoch))

    def forget(self, partition: TopicIdPartition) -> None:
        self.calls.append(("forget", partition, None))

    async def changes(self) -> AsyncIterator[Leadership]:
        while True:
            yield await self._events.get()

    def say(self, role: Role, epoch: int = 1, partition: TopicIdPartition = ORDERS) -> None:
        self._events.put_nowait(Leadership(partition, epoch, role))


class MemoryLogs(LeaderLogs):
    """Logs in memory; ``broken`` makes the next openings fail."""

    def __init__(self) -> None:
        self.open_logs: dict[TopicIdPartition, MemoryLeaderLog] = {}
        self.broken = self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def open(self, partition: TopicIdPartition, log_dir: Path, *, leader_epoch: int) -> OpenedLog:
        assert log_dir == LOG_DIR
        self.asked += 1
        await self.gate.wait()
        if self.broken:
            self.broken -= 1
            raise LogDirOfflineError("the disk is away")
        log = self.open_logs.setdefault(partition, MemoryLeaderLog(partition, leader_epoch=leader_epoch))
        log.leader_epoch = max(log.leader_epoch, leader_epoch)
        return OpenedLog(log)

    async def close(self, partition: TopicIdPartition) -> None:
        self.open_logs.pop(partition, None)


class LeadingStory:
    """A ``PartitionLeading`` over logs in memory."""

    def __init__(self, *, is_deletion_seen: bool = True) -> None:
        self.setup = LedSetup()
        self.source, self.logs = QueuedSource(), MemoryLogs()
        self.config: SentTopicConfig = (("cleanup.policy", "delete"),)
        self.leading = PartitionLeading(
            self.setup.led,
            self.setup.assignments,
            self.logs,
            self.source,
            orders=SentTopics(
                nodes=lambda: (NODE,), config_for=lambda _t, _d: self.config, is_deletion_seen=is_deletion_seen
            ),
            clock=self.setup.clock,
            random=lambda: 0.5,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.leading.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), task.exception()

    def find(self, *partitions: TopicIdPartition, deleted: TopicIdPartition | None = None, epoch: int = 1) -> None:
        gone = frozenset() if deleted is None else frozenset({(deleted.topic_id, deleted.partition)})
        here = {each: PushedPartition(each, LOG_DIR, epoch) for each in partitions}
        self.leading.found(PartitionsFound(here, deleted=gone))

    async def lead(self, partition: TopicIdPartition = ORDERS, epoch: int = 1) -> None:
        self.find(partition, epoch=epoch)
        self.source.say(Role.LEADER, epoch, partition)
        await eventually(lambda: self.epochs() == [(partition.topic_id, epoch)], what="the announcement")

    def epochs(self) -> list[tuple[UUID, int]]:
        told = self.setup.assignments.response_to(NODE.node_id, -1).partitions or ()
        return [(each.topic_id, each.leader_epoch) for each in told]

    def deleted(self) -> tuple[DeletedReplica, ...]:
        return self.setup.assignments.response_to(NODE.node_id, -1).deleted


async def test_partition_is_announced_with_its_settings_once_the_source_names_this_host() -> None:
    story = LeadingStory()
    async with story.running():
        story.find(ORDERS)
        assert story.source.calls == [("observe", ORDERS, 1)]
        assert story.epochs() == []

        await story.lead()

        told = story.setup.assignments.response_to(NODE.node_id, -1).partitions or ()
        assert [each.config for each in told] == [story.config]


async def test_follower_resigns_and_the_standby_keeps_its_copy() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()

        story.source.say(Role.FOLLOWER, 2)

        await eventually(lambda: not story.logs.open_logs, what="the end of the leadership")
        assert (story.epochs(), story.deleted()) == ([], ())


async def test_newer_epoch_is_announced_over_the_same_log() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()
        log = story.logs.open_logs[ORDERS]

        await story.lead(epoch=5)

        assert story.logs.open_logs[ORDERS] is log


async def test_partition_that_waits_for_its_deletion_is_deleted_on_the_standbys() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()

        story.find(deleted=ORDERS)

        assert story.deleted() == (DeletedReplica(ORDERS.topic_id, 0),)
        await eventually(lambda: not story.logs.open_logs, what="the log to be closed")
        assert story.source.calls[-1] == ("forget", ORDERS, None)


async def test_directory_that_waits_for_its_deletion_proves_nothing_where_the_cluster_is_asked() -> None:
    story = LeadingStory(is_deletion_seen=False)
    async with story.running():
        await story.lead()

        story.find(deleted=ORDERS)
        assert (story.epochs(), story.deleted()) == ([], ())
        await eventually(lambda: not list(story.leading.replicas()), what="the end of the replica")

        story.source.say(Role.DELETED)
        await eventually(lambda: story.deleted() == (DeletedReplica(ORDERS.topic_id, 0),), what="the deletion")


async def test_partition_that_was_never_led_is_not_deleted_on_the_standbys() -> None:
    story = LeadingStory()
    async with story.running():
        story.find(ORDERS)
        story.find(deleted=ORDERS)
        await eventually(lambda: not list(story.leading.replicas()), what="the end of the replica")
    assert story.deleted() == ()


async def test_partition_that_vanishes_from_incomplete_listings_stays_led() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()

        story.leading.found(PartitionsFound({}, is_complete=False))

        assert story.epochs() == [(ORDERS.topic_id, 1)]


async def test_topic_that_is_made_again_takes_the_place_of_the_deleted_one() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()

        story.find(NEWER, deleted=ORDERS)
        story.source.say(Role.LEADER, 0, NEWER)

        await eventually(lambda: story.epochs() == [(NEWER.topic_id, 0)], what="the newer topic")
        assert story.deleted() == (DeletedReplica(ORDERS.topic_id, 0),)


async def test_doubted_leadership_is_asked_for_again_and_confirmed() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()
        replicator = story.setup.led.find(ORDERS.topic_id, 0)
        assert replicator is not None

        story.leading.doubt(ORDERS, 1)

        assert story.source.calls[-2:] == [("forget", ORDERS, None), ("observe", ORDERS, 1)]
        (why,) = [each.why_not_pushed for each in replicator.statuses()]
        assert why.startswith("node 1 or another standby knows a newer leader epoch; the leadership source is asked")

        story.source.say(Role.LEADER, 1)
        await eventually(
            lambda: replicator.statuses()[0].why_not_pushed.startswith("the standby has not fetched yet"),
            what="a confirmation",
        )


async def test_doubted_leadership_that_another_node_has_is_resigned() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()
        story.leading.doubt(ORDERS, 1)

        story.source.say(Role.FOLLOWER, 2)

        await eventually(lambda: not story.logs.open_logs, what="the end of the leadership")
        assert story.epochs() == []


async def test_log_that_cannot_be_opened_is_tried_again_and_named() -> None:
    story = LeadingStory()
    story.logs.broken = 1
    async with story.running():
        story.find(ORDERS)
        story.source.say(Role.LEADER)
        await eventually(lambda: story.setup.clock.sleeping > 0, what="the pause")
        (replica,) = story.leading.replicas()
        assert replica.problem == "the disk is away"

        story.setup.clock.advance(1)

        await eventually(lambda: story.epochs() == [(ORDERS.topic_id, 1)], what="the announcement")
        assert replica.problem == ""


async def test_role_that_changes_while_the_log_is_opened_is_the_one_that_counts() -> None:
    story = LeadingStory()
    story.logs.gate.clear()
    async with story.running():
        story.find(ORDERS)
        story.source.say(Role.LEADER)
        await eventually(lambda: story.logs.asked == 1, what="the opening")
        story.source.say(Role.FOLLOWER, 2)
        (replica,) = story.leading.replicas()
        await eventually(lambda: replica.wanted is None, what="the second role")

        story.logs.gate.set()

        await eventually(lambda: replica.task is None, what="the end of the step")
        assert (story.epochs(), story.logs.open_logs) == ([], {})


async def test_changed_settings_reach_the_standby_and_unknown_ones_do_not() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()
        version = story.setup.assignments.response_to(NODE.node_id, -1).version

        story.leading.refresh()
        story.config = ()
        story.leading.refresh()
        assert story.setup.assignments.response_to(NODE.node_id, -1).version == version

        story.config = (("cleanup.policy", "compact"),)
        story.leading.refresh()
        told = story.setup.assignments.response_to(NODE.node_id, -1).partitions or ()
        assert [each.config for each in told] == [story.config]


async def test_epoch_that_the_log_has_first_is_told_to_the_source() -> None:
    story = LeadingStory()
    async with story.running():
        await story.lead()
        story.logs.open_logs[ORDERS].leader_epoch = 7

        story.leading.refresh()

        assert story.source.calls[-1] == ("observe", ORDERS, 7)
