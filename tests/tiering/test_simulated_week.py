"""Week of two brokers, one of them with ten thousand partitions, most of them idle: no resource grows.

The large broker runs all week, so that a leak at any event is found in the end; the small one, which shares some
partitions with it, is restarted every day, and so is the large one once the week is over.
"""

import asyncio
import gc
import logging
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import structlog

from tests.fakes.eventually import eventually
from tests.fakes.log_dirs import LogDirWriter, PartitionWriter, make_batch
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.running import StandingClock
from tests.tiering.setups import Session, Tier, delete_segment, partition_of
from tests.tiering.usage import Usage, assert_steady
from tierd.app.daemon.task_supervisor import TaskSupervisor
from tierd.config import ExpireSettings
from tierd.control import Leadership, Role
from tierd.metadata import MemoryKeyValueStore
from tierd.model import TopicIdPartition
from tierd.tiering import TopicPolicy

PARTITIONS = 10_000
SHARED = 100  # of them: replicas on both brokers
BUSY = 30  # of those: they roll a segment a day
PASSING = 15  # partitions of a topic that is made every day, and deleted the same day
MOVED = 30  # leaderships that move every day, half of them of busy partitions
STEPS = 3  # a day
STEP_S = 86_400.0 / STEPS
GRACE_S = 3_600.0
KEPT = 2  # segments of each busy partition in both tiers together
KEPT_LOCAL = 1  # and in the local one
BATCH = make_batch([b"x" * 100] * 4)
RECORDS = 4

SETTLED_DAY = 3  # its end has the leftovers of any day: tombstones are kept for one day, and for the days before
DAYS = SETTLED_DAY + 7
# Of every epoch that anything was copied in, the highest offset stays for good (remote-tiering 6.6): one row, which
# both brokers' views have.
MARKS_A_DAY = MOVED // 2
MARKED_A_DAY = Counter(
    {
        "RemoteLogLeaderEpochState": 2 * MARKS_A_DAY,
        "MemoryKeyValueStore._keys": MARKS_A_DAY,
        "MemoryKeyValueStore._values": MARKS_A_DAY,
    }
)
# Each broker's reader keeps the manifests of the last segments that it looked into, such as those that another broker
# copied and that are compared with the local log when a leadership moves. So many fill up in the course of the days,
# beside those of the copies and looks that are under way when the usage is counted.
KEPT_MANIFESTS = 2 * 64 + 8
MANIFEST_PARTS = frozenset(
    {"OpenSegment", "ChunkLayout", "SegmentManifest", "ManifestCompression", "LogArtefact", "IndexArtefact", "LogChunk"}
)
MEMORY_ALLOWED_ANEW = 1.4  # the allocator cannot reuse every page of an ended session for the next one


class Cluster:
    """Leaders of all partitions. A partition that was never moved belongs to broker 1, epoch 0."""

    def __init__(self) -> None:
        self._leaders: dict[TopicIdPartition, tuple[int, int]] = {}
        self.views: dict[int, ClusterView] = {}

    def leader(self, partition: TopicIdPartition) -> tuple[int, int]:
        """Return broker and epoch of the leader."""
        return self._leaders.get(partition, (1, 0))

    def move(self, partition: TopicIdPartition) -> int:
        """Move the leadership to the other of the two brokers; return the new epoch."""
        broker_id, epoch = self.leader(partition)
        self._leaders[partition] = (3 - broker_id, epoch + 1)
        self._tell(partition)
        return epoch + 1

    def delete(self, partition: TopicIdPartition) -> None:
        self._leaders.pop(partition, None)
        for view in self.views.values():
            view.tell(Leadership(partition, 0, Role.DELETED))

    def role(self, partition: TopicIdPartition, broker_id: int) -> Leadership:
        leader_id, epoch = self.leader(partition)
        return Leadership(partition, epoch, Role.LEADER if broker_id == leader_id else Role.FOLLOWER)

    def _tell(self, partition: TopicIdPartition) -> None:
        for broker_id, view in self.views.items():
            view.tell(self.role(partition, broker_id))


class ClusterView:
    """LeadershipSource of one process of one broker."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._observed: set[TopicIdPartition] = set()
        self._events: asyncio.Queue[Leadership] = asyncio.Queue()
        cluster.views[broker_id] = self

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        if partition not in self._observed:
            self._observed.add(partition)
            self.tell(self._cluster.role(partition, self._broker_id))

    def forget(self, partition: TopicIdPartition) -> None:
        self._observed.discard(partition)

    async def changes(self) -> AsyncIterator[Leadership]:
        while True:
            yield await self._events.get()

    def tell(self, event: Leadership) -> None:
        self._events.put_nowait(event)


class Broker:
    """One broker, and the process of tierd beside it."""

    def __init__(self, broker_id: int, tmp_path: Path, world: "World") -> None:
        self.broker_id = broker_id
        self.log_dir = LogDirWriter(tmp_path / f"kafka{broker_id}", node_id=broker_id)
        self._world = world
        self._tier = Tier(tmp_path / str(broker_id), [self.log_dir.path], store=world.objects, rows=world.rows)
        self._tier.clock = world.clock

    def start(self) -> None:
        self.supervisor = TaskSupervisor(self._world.group, clock=self._world.clock, random=lambda: 0.5)
        self.session: Session = self._tier.session(
            supervisor=self.supervisor,
            leadership=ClusterView(self._world.cluster, self.broker_id),
            expire=ExpireSettings(grace_s=GRACE_S),
            policies=policy_of,
            broker_id=self.broker_id,
        )
        self._running = asyncio.create_task(self.session.manager.run(), name=f"manager {self.broker_id}")

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])
        await self.supervisor.drain(0)
        self.session.hold.close()

    @property
    def reconciles(self) -> int:
        return self.session.recorder.succeeded.count("reconcile")

    @property
    def is_busy(self) -> bool:
        manager = self.session.manager
        is_looking = manager._upkeep._events._arrived.is_set() or manager._log_dirs._lock.locked()
        return is_looking or self.supervisor.running_passes > 0

    def copied_through(self, partition: TopicIdPartition) -> int:
        """-1 where this broker copies nothing."""
        replica = self.session.tiering.replicas.get(partition)
        task = replica.tasks.copy if replica else None
        copied = task.state.copied_through if task else None
        return copied.offset if copied else -1

    def knows(self, partition: TopicIdPartition) -> bool:
        return self.session.tiering.replicas.get(partition) is not None

    def tasks(self) -> int:
        """Return the number of running tasks of partitions."""
        return sum(name.startswith(("copy ", "expire ", "follow ")) for name in self.supervisor.statistics())

    def failing(self) -> list[str]:
        health = self.supervisor.statistics().items()
        return [f"{name}: {each.last_error}" for name, each in health if each.failures]


class World:
    """Both brokers, and the stores below them."""

    def __init__(self, tmp_path: Path, group: asyncio.TaskGroup) -> None:
        self.group = group
        self.clock = StandingClock()
        self.cluster = Cluster()
        self.objects, self.rows = MemoryObjectStore(), MemoryKeyValueStore()
        self.large, self.small = (Broker(number, tmp_path, self) for number in (1, 2))
        self.shared: list[tuple[PartitionWriter, PartitionWriter]] = []
        self.passing: list[PartitionWriter] = []

    @property
    def brokers(self) -> tuple[Broker, Broker]:
        return self.large, self.small

    def make_partitions(self) -> None:
        topic_id = uuid4()
        for number in range(SHARED):
            replicas = tuple(b.log_dir.add_partition("shared", number, topic_id=topic_id) for b in self.brokers)
            self.shared.append((replicas[0], replicas[1]))
        for _ in range(KEPT + 1):
            self.roll()
        _link_many(self.large.log_dir, "idle", PARTITIONS - SHARED)
        for number in range(0, SHARED, 2):
            self.move(number)

    def roll(self) -> None:
        """Give every busy partition another segment, and let its brokers delete old ones."""
        for replicas in self.shared[:BUSY]:
            for writer in replicas:
                writer.append_batch(BATCH, RECORDS)
                writer.roll()
        self.write_checkpoints()

    def retain(self) -> None:
        """Let the brokers delete old local segments with their epochs."""
        for writer in (writer for replicas in self.shared[:BUSY] for writer in replicas):
            bases = sorted(int(file.stem) for file in writer.path.glob("*.log"))
            for base in bases[: -KEPT_LOCAL - 1]:
                delete_segment(writer.path, base)
            writer.forget_epochs_below(bases[-KEPT_LOCAL - 1])

    def move(self, number: int) -> None:
        epoch = self.cluster.move(partition_of(self.shared[number][0].path))
        for writer in self.shared[number]:
            writer.begin_epoch(epoch)

    def make_topic(self, day: int) -> None:
        topic_id = uuid4()
        self.passing = [self.large.log_dir.add_partition(f"passing{day}", n, topic_id=topic_id) for n in range(PASSING)]
        for writer in self.passing:
            writer.append_batch(BATCH, RECORDS)
            writer.roll()
        self.write_checkpoints()

    def delete_topic(self) -> list[TopicIdPartition]:
        gone = [partition_of(writer.path) for writer in self.passing]
        for writer in self.passing:
            del self.large.log_dir.partitions[writer.partition]
            shutil.rmtree(writer.path)
        for partition in gone:
            self.cluster.delete(partition)
        self.passing = []
        self.write_checkpoints()
        return gone

    def write_checkpoints(self) -> None:
        for broker in self.brokers:
            broker.log_dir.write_checkpoints()

    def all_copied(self) -> bool:
        """Return True if the leaders have copied all rolled segments."""
        return all(
            self.brokers[self.cluster.leader(partition)[0] - 1].copied_through(partition) == writer.end_offset - 1
            for writer in [*(replicas[0] for replicas in self.shared[:BUSY]), *self.passing]
            for partition in (TopicIdPartition(writer.topic_id, writer.partition.topic, writer.partition.partition),)
        )

    def is_quiet(self) -> bool:
        return not any(broker.is_busy for broker in self.brokers)

    async def started(self, broker: Broker, *, partitions: int) -> None:
        wait = broker.session.manager.first_reconcile_done.is_set
        await _eventually(wait, f"all of broker {broker.broker_id} to be found")
        # A leader copies and expires, a follower follows.
        leaders = [self.cluster.leader(partition_of(replicas[0].path))[0] for replicas in self.shared]
        led = leaders.count(broker.broker_id)
        expected = partitions + led + (partitions - SHARED)
        await _eventually(lambda: broker.tasks() == expected, f"tasks of broker {broker.broker_id}")
        await _eventually(lambda: not broker.supervisor.running_passes, "every first pass to end")

    async def step(self) -> None:
        """Let eight hours pass, and wait for all work that they cause."""
        self.write_checkpoints()  # a broker does so every minute
        seen = [broker.reconciles for broker in self.brokers]
        self.clock.advance(STEP_S)
        await _eventually(
            lambda: all(b.reconciles > n for b, n in zip(self.brokers, seen, strict=True)), "both to look at everything"
        )
        await _eventually(self.all_copied, "all that has rolled to be copied")
        await _eventually(self.is_quiet, "every pass to end")

    async def live_a_day(self, day: int) -> None:
        await self.small.stop()
        self.small.start()
        await self.started(self.small, partitions=SHARED)
        self.roll()
        self.make_topic(day)
        await self.step()
        for number in range(BUSY - MOVED // 2, BUSY + MOVED // 2):
            self.move(number)
        self.retain()
        await self.step()
        gone = self.delete_topic()
        await _eventually(lambda: not any(map(self.large.knows, gone)), "the topic to be gone")
        for _ in range(STEPS - 2):
            await self.step()
        for broker in self.brokers:
            assert not broker.failing()
            broker.session.recorder.succeeded.clear()
            broker.session.recorder.copied.clear()
        self.clock.sleeps_s.clear()


def _marks(days: int, settled: Usage) -> Counter[str]:
    """Return the parts that may have come to stay in so many days after the settled one."""
    marks = Counter({name: each * days for name, each in MARKED_A_DAY.items()})
    kept = settled.parts["SegmentManifest"]
    for name, count in settled.parts.items():
        if name.partition(".")[0] in MANIFEST_PARTS:
            marks[name] += count // kept * (KEPT_MANIFESTS - kept)
    return marks


def policy_of(topic: str) -> TopicPolicy:
    return TopicPolicy(retention_bytes=KEPT * len(BATCH), delete_with_topic=topic.startswith("passing"))


def _link_many(log_dir: LogDirWriter, topic: str, count: int) -> None:
    """Make many idle partitions quickly: all of them share their files, and lack the empty ones."""
    made = log_dir.add_partition(topic, 0, topic_id=uuid4()).path
    files = [file for file in made.iterdir() if not file.name.endswith("index")]
    for number in range(1, count):
        path = log_dir.path / f"{topic}-{number}"
        path.mkdir()
        for file in files:
            (path / file.name).hardlink_to(file)


async def _eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait like ``eventually``, with rare checks: a check costs more than the awaited work."""
    await eventually(condition, what=what, deadline_s=120, interval_s=0.02)


@contextmanager
def _no_automatic_collection() -> Iterator[None]:
    """Switch the automatic garbage collection off: it would scan a million live objects again and again in vain."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_simulated_week_leaks_no_task_no_descriptor_and_no_memory(tmp_path: Path) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    asyncio.get_running_loop().set_debug(False)  # which keeps a traceback for each of thousands of tasks
    with _no_automatic_collection():  # ``Usage`` collects, and so does the end of each day that is not measured
        await _live_a_week(tmp_path)


async def _live_a_week(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        world = World(tmp_path, group)
        world.make_partitions()
        for broker, partitions in ((world.large, PARTITIONS), (world.small, SHARED)):
            broker.start()
            await world.started(broker, partitions=partitions)
        for day in range(1, SETTLED_DAY + 1):
            await world.live_a_day(day)
            gc.collect()
        Usage()  # the first access to an object gives it a dictionary of its own
        settled = Usage()
        print(f"settled: {settled}, {time.process_time():.1f} s of CPU")  # shown when it fails
        days = [settled]
        for day in range(SETTLED_DAY + 1, DAYS + 1):
            await world.live_a_day(day)
            usage = Usage()
            print(f"day {day}: {usage}, {time.process_time():.1f} s of CPU")
            usage.assert_no_more_than(settled, marks=_marks(day - SETTLED_DAY, settled))
            days.append(usage)
        assert_steady(days, marks_a_day=MARKED_A_DAY, filling=MANIFEST_PARTS)
        await world.large.stop()
        gc.collect()
        world.large.start()
        await world.started(world.large, partitions=PARTITIONS)
        await world.step()
        anew = Usage()
        anew.assert_no_more_than(settled, marks=_marks(DAYS - SETTLED_DAY, settled))
        assert anew.resident_bytes <= settled.resident_bytes * MEMORY_ALLOWED_ANEW
        for broker in world.brokers:
            await broker.stop()
    for broker in world.brokers:
        shutil.rmtree(broker.log_dir.path)
