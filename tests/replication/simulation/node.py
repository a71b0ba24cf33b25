"""SimulatedNode: one daemon: its disk, and its process, which may die, and begin again on what the disk has.

The process is made of the daemon's own parts: push manager, led replicators and server of a leader; appender, fetchers
and watches of a standby. Only the logs, the keeper of the copies and the connections are of the simulation.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

from tests.replication.simulation.history import History
from tests.replication.simulation.network import SimulatedNetwork
from tests.replication.simulation.observed_pushes import ObservedPushes
from tests.replication.simulation.simulated_log import SimulatedLeaderLog, SimulatedLog
from tests.replication.simulation.world import NodeClock, NodeLoop, SimulatedWorld
from tierd.model import TopicIdPartition
from tierd.replication.follower.assignment_watch import AssignmentWatch
from tierd.replication.follower.follower_appender import FollowerAppender
from tierd.replication.follower.leader_connection import LeaderConnection
from tierd.replication.follower.pull_changes import PullChanges
from tierd.replication.follower.pull_fetcher import PullFetcher
from tierd.replication.follower.record_intake import RecordIntake
from tierd.replication.follower.replica_keeper import ReplicaKeeper
from tierd.replication.follower.rules.assignment_book import AssignmentBook, AssignmentStep, KeepReplica, KeptReplica
from tierd.replication.follower.rules.followed_partition import FollowedPartition, LeaderClaim
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_replicas import StandbyReplica, StandbyReplicas
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.leader.assignments import LeaderAssignments
from tierd.replication.leader.leader_server import PushLeaderServer
from tierd.replication.leader.led_replicators import LedReplicators
from tierd.replication.leader.pushing.push_actions import PushLeader
from tierd.replication.leader.pushing.push_manager import PushManager
from tierd.replication.leader.pushing.push_settings import PushSettings
from tierd.replication.leader.replicas.replicator_settings import ReplicatorSettings
from tierd.replication.model.messages import AppendRecordsRequest
from tierd.replication.model.push_session import PeerIdentity, PeerNode

_CLUSTER = "cluster"


class NodeSettings:
    """Settings of all daemons of a simulation."""

    def __init__(
        self,
        push: PushSettings,
        replicator: ReplicatorSettings,
        standby: StandbySettings,
        *,
        leader_ids: Sequence[int],
        is_owned: bool,
        delete_retention_s: float | None,
    ) -> None:
        self.push = push
        self.replicator = replicator
        self.standby = standby
        self.leader_ids = leader_ids
        self.is_owned = is_owned
        self.delete_retention_s = delete_retention_s


class NodeDisk:
    """Disk of a node, which outlives its processes.

    Attributes:
        logs: by partition.
        kept: the standby's file: the copies and their leaders.
        synced_s: the standby's file: when each copy had everything.
        aside: copies that were set aside.
    """

    def __init__(self, history: Callable[[TopicIdPartition], History], *, is_compacted: bool) -> None:
        self.logs: dict[TopicIdPartition, SimulatedLog] = {}
        self.kept: tuple[KeptReplica, ...] = ()
        self.synced_s: dict[TopicIdPartition, float] = {}
        self.aside: list[SimulatedLog] = []
        self._history = history
        self._is_compacted = is_compacted

    def log(self, partition: TopicIdPartition) -> SimulatedLog:
        """Return the log of a partition, a new one at first."""
        found = self.logs.get(partition)
        if found is None:
            found = self.logs[partition] = SimulatedLog(self._history(partition), is_compacted=self._is_compacted)
        return found


class SimulatedKeeper(ReplicaKeeper):
    """Keeper of the copies of a node, whose logs are on the simulated disk."""

    def __init__(
        self,
        disk: NodeDisk,
        replicas: StandbyReplicas,
        settings: NodeSettings,
        clock: NodeClock,
        *,
        on_leader: Callable[[KeptReplica], None],
    ) -> None:
        """Follow what was kept before; ``on_leader`` is called before another leader is followed."""
        self.book = AssignmentBook(disk.kept)
        self._disk = disk
        self._replicas = replicas
        self._node_settings = settings
        self._clock = clock
        self._on_leader = on_leader
        self._is_push_enabled = True
        self._first_session_ids: dict[TopicIdPartition, int] = {}
        for kept in disk.kept:
            self._keep_copy(kept, is_begin=True)

    async def carry_out(self, steps: Sequence[AssignmentStep]) -> None:
        self._disk.kept = self.book.kept
        for step in steps:
            if isinstance(step, KeepReplica):
                self._keep_copy(step.replica)

    async def keep_lost_copy(self, replica: StandbyReplica) -> None:
        partition = replica.partition
        self._replicas.remove(replica)
        self._first_session_ids[partition] = replica.followed.state.session_id + 1
        self._disk.aside.append(self._disk.logs.pop(partition))
        self._disk.synced_s.pop(partition, None)
        for kept in self.book.kept:
            if kept.partition == partition:
                self._keep_copy(kept)

    async def save(self) -> None:
        for replica in self._replicas:
            sync = replica.followed.sync
            if sync.synced_at_s is not None and not sync.is_rebuilding:
                self._disk.synced_s[replica.partition] = sync.synced_at_s

    def enable_push(self, is_enabled: bool) -> None:
        self._is_push_enabled = is_enabled
        for replica in self._replicas:
            replica.followed.enable_push(is_enabled, now_s=self._clock.monotonic_s())
            self._replicas.wake(replica)

    def _keep_copy(self, kept: KeptReplica, *, is_begin: bool = False) -> None:
        partition, now_s = kept.partition, self._clock.monotonic_s()
        self._on_leader(kept)
        replica = self._replicas.get(partition.topic_id, partition.partition)
        if replica is None:
            followed = FollowedPartition(
                partition,
                now_s=now_s,
                times=self._node_settings.standby.times,
                is_push_enabled=self._is_push_enabled,
                first_session_id=self._first_session_ids.pop(partition, 0),
            )
            followed.delete_retention_s = self._node_settings.delete_retention_s
            if is_begin:
                followed.sync.synced_at_s = self._disk.synced_s.get(partition)
            replica = StandbyReplica(followed, self._disk.log(partition))
            self._replicas.add(replica)
        replica.followed.follow(kept.leader, now_s=now_s)
        self._replicas.wake(replica)


class SimulatedNode:
    """One node. ``boot`` begins a process; the methods below it are calls inside its turn."""

    def __init__(
        self,
        node_id: int,
        world: SimulatedWorld,
        network: SimulatedNetwork,
        disk: NodeDisk,
        settings: NodeSettings,
        *,
        on_doubt: Callable[["SimulatedNode", TopicIdPartition], None],
        on_watermark: Callable[["SimulatedNode", TopicIdPartition], None],
    ) -> None:
        self.node_id = node_id
        self.disk = disk
        self.is_alive = False
        self.is_paused = False
        self.backlog: list[Callable[[], None]] = []
        self.process_epoch = 100 * node_id
        self.led_logs: dict[TopicIdPartition, SimulatedLeaderLog] = {}
        self.all_pushes: list[ObservedPushes] = []
        self._world = world
        self._network = network
        self._settings = settings
        self._on_doubt = on_doubt
        self._on_watermark = on_watermark
        self._clock = NodeClock(world)

    @property
    def identity(self) -> PeerIdentity:
        return PeerIdentity(self.node_id, self.process_epoch)

    @property
    def is_running(self) -> bool:
        return self.is_alive and not self.is_paused

    # Life

    def boot(self) -> None:
        """Begin a process."""
        assert not self.is_alive
        self.process_epoch += 1
        self.is_alive, self.is_paused, self.backlog = True, False, []
        self.loop = NodeLoop(self._world)
        self._rng = Random(self._world.rng.random())
        self._main = self.loop.create_task(self._run(), name=f"node {self.node_id}")
        self._main.add_done_callback(self.loop.note_end)
        self._world.begin(self)

    def die(self, *, is_silent: bool) -> None:
        """End the process at once; its logs stay as they are."""
        self.is_alive = self.is_paused = False
        self._network.drop_node(self, is_silent=is_silent)
        for log in self.disk.logs.values():
            log.is_online = False  # what the cancelled tasks do does not reach the disk
        while tasks := asyncio.all_tasks(self.loop):
            for task in tasks:
                task.cancel()
            self.loop.run_due()
        self.loop.close()
        for log in self.disk.logs.values():
            log.is_online = True
            log.restart()
        self.led_logs = {}

    async def _run(self) -> None:
        settings, clock = self._settings, self._clock
        self.assignments = LeaderAssignments(clock)
        self.manager = PushManager(
            settings.push,
            PushLeader(_CLUSTER, self.node_id, self.process_epoch),
            self._to_peer,
            on_leadership_doubted=self._doubt,
            now_s=clock.monotonic_s,
            jitter=self._rng.random,
        )
        self.pushes = ObservedPushes(self.manager, now_s=clock.monotonic_s, trace=self._trace)
        self.all_pushes.append(self.pushes)
        self.led = LedReplicators(
            self.pushes, self.assignments, settings.replicator, process_epoch=self.process_epoch, clock=clock
        )
        self.server = PushLeaderServer(self.led, self.assignments, clock=clock)
        identity = StandbyIdentity(cluster_id=_CLUSTER, node_id=self.node_id, process_epoch=self.process_epoch)
        self.replicas = StandbyReplicas()
        self.keeper = SimulatedKeeper(self.disk, self.replicas, settings, clock, on_leader=self._on_other_leader)
        self.intake = RecordIntake(max_bytes=settings.standby.max_memory_bytes)
        changes = PullChanges(self.intake, clock=clock, keep_lost_copy=self.keeper.keep_lost_copy)
        self.watches: dict[int, AssignmentWatch] = {}
        self.appender = FollowerAppender(
            identity, self.replicas, self.intake, clock=clock, on_unknown_epoch=self._hurry
        )
        self.manager.startup()
        tasks = [asyncio.create_task(self._tick(), name="ticks")]
        is_standby = settings.is_owned or self.node_id not in settings.leader_ids  # brokers copy from each other
        for leader_id in settings.leader_ids:
            if is_standby and leader_id != self.node_id:
                tasks += self._follow(leader_id, changes, identity)
        await asyncio.gather(*tasks)

    def _follow(
        self, leader_id: int, changes: PullChanges, identity: StandbyIdentity
    ) -> Iterable["asyncio.Task[None]"]:
        settings, clock = self._settings.standby, self._clock
        watched, fetched = (LeaderConnection(leader_id, self._to_leader) for _ in range(2))
        watch = self.watches[leader_id] = AssignmentWatch(
            leader_id, watched, self.keeper, identity=identity, clock=clock, settings=settings
        )
        fetcher = PullFetcher(
            leader_id,
            fetched,
            self.replicas,
            changes,
            identity=identity,
            clock=clock,
            settings=settings.fetch,
            on_stale_view=self._hurry,
        )
        yield asyncio.create_task(watch.run(random=self._rng.random), name=f"assignments of {leader_id}")
        yield asyncio.create_task(fetcher.run(random=self._rng.random), name=f"fetch from {leader_id}")

    async def _tick(self) -> None:
        """Do what a daemon does once a second: as a leader, as a standby's watchdog, and for the standby's file."""
        while True:
            await self._clock.sleep(self._settings.standby.tick_s)
            self.led.advance()
            for replica in self.replicas:
                if not replica.lock.locked() and replica.followed.check_silence(now_s=self._world.now_s):
                    self._trace(f"leader of {replica.partition.partition} is silent")
                    self.replicas.wake(replica)
            await self.keeper.save()

    # Orders

    def lead(self, partition: TopicIdPartition, *, leader_epoch: int, nodes: Sequence[PeerNode]) -> None:
        """Lead a partition; as its follower, the node fences all earlier leaders."""
        claim, is_owned = LeaderClaim(self.node_id, leader_epoch), self._settings.is_owned
        if is_owned:
            kept = KeptReplica(partition, claim)
            others = [each for each in self.keeper.book.kept if each.partition != partition]
            self.keeper.book = AssignmentBook([*others, kept])
            self.disk.kept = self.keeper.book.kept
            self.keeper._keep_copy(kept)
        log = self.led_logs.get(partition)
        if log is None:
            log = self.led_logs[partition] = SimulatedLeaderLog(
                partition,
                self.disk.log(partition),
                leader_epoch=leader_epoch,
                on_watermark=lambda: self._on_watermark(self, partition),
                on_corruption=self._note_corruption,
            )
        log.leader_epoch = leader_epoch
        raise_high_watermark = log.raise_high_watermark if is_owned else None
        self.led.lead(log, nodes, raise_high_watermark=raise_high_watermark)

    def resign(self, partition: TopicIdPartition) -> None:
        """Lead a partition no more."""
        if self.led_logs.pop(partition, None) is not None:
            self._trace(f"resigns from partition {partition.partition}")
            self.led.resign(partition)

    def close(self) -> None:
        """End the sessions, as a daemon that stops does."""
        self._main.cancel()
        self.led.close()
        self.led_logs = {}
        self.manager.shutdown()

    def followed(self, partition: TopicIdPartition) -> FollowedPartition | None:
        """Return the state of a copy; None without one."""
        replica = self.replicas.get(partition.topic_id, partition.partition)
        return None if replica is None else replica.followed

    async def handle(self, request: Any, peer: PeerIdentity) -> Any:  # noqa: ANN401 - any request, and its answer
        """Answer a request of a peer."""
        if isinstance(request, AppendRecordsRequest):
            return await self.appender.append_records(request, peer)
        return await self.server.handlers[type(request)](request, peer)

    # Parts

    def _on_other_leader(self, kept: KeptReplica) -> None:
        led = self.led_logs.get(kept.partition)
        if kept.leader.node_id != self.node_id and led is not None and led.leader_epoch < kept.leader.leader_epoch:
            self.resign(kept.partition)

    def _doubt(self, partition: TopicIdPartition, leader_epoch: int) -> None:
        self._trace(f"leadership {leader_epoch} of partition {partition.partition} is in doubt")
        self.led.doubt_leadership(partition, leader_epoch)
        self._on_doubt(self, partition)

    def _note_corruption(self) -> None:
        self._network.corruptions += 1

    def _hurry(self, _leader_id: int) -> None:
        for watch in self.watches.values():
            watch.hurry()

    async def _to_peer(self, node: PeerNode) -> Any:  # noqa: ANN401 - a channel of either protocol
        return await self._network.connect(self, node.node_id)

    async def _to_leader(self, leader_id: int) -> Any:  # noqa: ANN401 - a channel of either protocol
        async with asyncio.timeout(self._settings.push.request_timeout_s):
            return await self._network.connect(self, leader_id)

    def _trace(self, text: str) -> None:
        if self._world.is_traced:
            self._world.trace(f"node {self.node_id}: {text}")
