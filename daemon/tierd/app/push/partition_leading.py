"""PartitionLeading: leads the partitions that the leadership source names, and resigns from all others.

::

    listing ──► LeadershipSource ──LEADER──► open the log ──► LedReplicators.lead ──► announced to the standbys
       │             ├──FOLLOWER──► LedReplicators.resign
       │             └──DELETED───► LedReplicators.delete
       └── gone from the log dirs ──► resign; or delete, where that is proof

Each partition is settled in a task of its own, so that a disk that hangs holds up its own partitions only.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog

from tierd.app.push.leader_logs import LeaderLogs, OpenedLog
from tierd.app.push.pushed_partitions import PartitionsFound, PushedPartition
from tierd.backoff import Backoff
from tierd.clock import Clock, wait_for_event
from tierd.control import Leadership, LeadershipSource, Role
from tierd.errors import TierError
from tierd.model import TopicIdPartition
from tierd.replication import LeaderAssignments, LedReplicators, PeerNode

log = structlog.get_logger()

_BACKOFF: Final = Backoff(base_s=0.5, cap_s=30.0)

SentTopicConfig = tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class PushedReplica:
    """A local partition whose topic is sent.

    Attributes:
        leader_epoch: the newest one that the leadership source was told.
        wanted: the leadership that this host has; None while another node leads, or none is known.
        applied: the leadership that the standbys were told.
        told: standbys and settings of the topic that they were told.
        is_gone: no log dir has the partition any more, or its topic is not sent.
        problem: why the log is not led although it should be; empty without a reason.
    """

    partition: TopicIdPartition
    log_dir: Path
    leader_epoch: int
    wanted: Leadership | None = None
    applied: Leadership | None = None
    opened: OpenedLog | None = None
    config: SentTopicConfig = ()
    told: tuple[tuple[PeerNode, ...], SentTopicConfig] | None = None
    is_gone: bool = False
    problem: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    @property
    def is_sent(self) -> bool:
        """Return True if the standbys are told that this host leads the partition."""
        return self.applied is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTopics:
    """Orders of the configuration.

    Attributes:
        nodes: the standbys.
        config_for: the settings that copies follow, by topic and log dir; empty while they are not known.
        is_deletion_seen: True where a directory that waits for its deletion proves that the topic was deleted; False
            where the cluster is asked.
    """

    nodes: Callable[[], tuple[PeerNode, ...]]
    config_for: Callable[[str, Path], SentTopicConfig]
    is_deletion_seen: bool


class PartitionLeading:
    """Leader of partitions, for one event loop. ``run`` is its task, and owns those of the partitions."""

    def __init__(
        self,
        led: LedReplicators,
        assignments: LeaderAssignments,
        logs: LeaderLogs,
        source: LeadershipSource,
        *,
        orders: SentTopics,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        """Lead nothing yet.

        Args:
            led: the led partitions.
            assignments: what the standbys are told.
            logs: opens the logs.
            source: of leadership, for this object alone.
            orders: of the configuration.
            clock: for the pauses after failures.
            random: in [0, 1), for jitter.
        """
        self._led = led
        self._assignments = assignments
        self._logs = logs
        self._source = source
        self._orders = orders
        self._clock = clock
        self._random = random
        self._replicas: dict[TopicIdPartition, PushedReplica] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Follow the leadership source until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for replica in list(self._replicas.values()):
                self._settle(replica)
            async for event in self._source.changes():
                self.take(event)

    def replicas(self) -> Iterable[PushedReplica]:
        """Return the local partitions whose topics are sent."""
        return list(self._replicas.values())

    # ---------------------------------------------------------------- events

    def found(self, listing: PartitionsFound) -> None:
        """Take note of a listing of the log dirs."""
        for found in listing.here.values():
            self._found(found)
        if not listing.is_complete:
            return
        for replica in self.replicas():
            if replica.partition not in listing.here and not replica.is_gone:
                is_deleted = self._orders.is_deletion_seen and listing.is_deleted(replica.partition)
                self._gone(replica, is_deleted=is_deleted and replica.applied is not None)

    def take(self, event: Leadership) -> None:
        """Take note of a role."""
        replica = self._replicas.get(event.partition)
        if event.role is Role.DELETED:
            if replica is not None:
                self._gone(replica, is_deleted=True)
            else:
                self._announce_deletion(event.partition)
        elif replica is not None and not replica.is_gone:
            replica.wanted = event if event.role is Role.LEADER else None
            self._settle(replica)

    def doubt(self, partition: TopicIdPartition, refused_epoch: int) -> None:
        """Lead a partition no further until the leadership source has answered again: a standby refused the epoch."""
        replica = self._replicas.get(partition)
        self._led.doubt_leadership(partition, refused_epoch)
        if replica is not None:
            log.warning("leadership_doubted", partition=str(partition), leader_epoch=refused_epoch)
            replica.applied = None
            replica.wanted = None
            self._source.forget(partition)
            self._source.observe(partition, replica.leader_epoch)

    def refresh(self) -> None:
        """Tell the standbys of changed nodes and settings of topics, and the source of newer leader epochs."""
        configs: dict[tuple[str, Path], SentTopicConfig] = {}
        nodes = self._orders.nodes()
        for replica in self._replicas.values():
            if replica.applied is not None and replica.opened is not None:
                key = (replica.partition.topic, replica.log_dir)
                if key not in configs:
                    configs[key] = self._orders.config_for(*key)
                replica.config = configs[key] or replica.config  # settings that are not known now do not change any
                if replica.told != (nodes, replica.config):
                    self._lead(replica, replica.opened)
                self._note_epoch(replica, replica.opened.log.leader_epoch)

    # ---------------------------------------------------------------- parts

    def _found(self, found: PushedPartition) -> None:
        replica = self._replicas.get(found.partition)
        if replica is None:
            replica = self._replicas[found.partition] = PushedReplica(found.partition, found.log_dir, -1)
        if replica.is_gone:
            replica.is_gone, replica.leader_epoch = False, -1  # the source is asked again
        replica.log_dir = found.log_dir
        self._note_epoch(replica, found.leader_epoch)

    def _note_epoch(self, replica: PushedReplica, leader_epoch: int) -> None:
        if leader_epoch > replica.leader_epoch:
            replica.leader_epoch = leader_epoch
            self._source.observe(replica.partition, leader_epoch)

    def _gone(self, replica: PushedReplica, *, is_deleted: bool) -> None:
        if not replica.is_gone:
            replica.is_gone, replica.wanted = True, None
            self._source.forget(replica.partition)
        if is_deleted:
            self._announce_deletion(replica.partition)
        else:
            self._led.resign(replica.partition)
        self._settle(replica)

    def _announce_deletion(self, partition: TopicIdPartition) -> None:
        log.info("push_partition_deleted", partition=str(partition))
        self._led.delete(partition)
        standbys = [node.node_id for node in self._orders.nodes()]
        self._assignments.delete(partition.topic_id, partition.partition, standbys)

    def _settle(self, replica: PushedReplica) -> None:
        replica.changed.set()
        if replica.task is None and self._group is not None:
            replica.task = self._group.create_task(self._bring_in_line(replica), name=f"lead {replica.partition}")

    async def _bring_in_line(self, replica: PushedReplica) -> None:
        """Lead, or resign, until that is what is wanted."""
        failures = 0
        try:
            while True:
                replica.changed.clear()
                try:
                    await self._step(replica)
                except TierError as error:
                    failures += 1
                    self._note_failure(replica, error, failures)
                    pause_s = _BACKOFF.delay_s(failures, random=self._random)
                    await wait_for_event(replica.changed, self._clock, pause_s)
                    continue
                replica.problem = ""
                if not replica.changed.is_set():
                    return
        finally:
            replica.task = None
            if replica.is_gone:
                self._replicas.pop(replica.partition, None)

    async def _step(self, replica: PushedReplica) -> None:
        wanted = replica.wanted
        if wanted is None:
            await self._leave(replica)
            return
        opened = await self._logs.open(replica.partition, replica.log_dir, leader_epoch=wanted.leader_epoch)
        if replica.wanted is wanted:
            replica.config = self._orders.config_for(replica.partition.topic, replica.log_dir) or replica.config
            replica.opened = opened
            self._lead(replica, opened)
            self._led.confirm_leadership(replica.partition)
            if replica.applied != wanted:
                log.info("partition_led", partition=str(replica.partition), leader_epoch=wanted.leader_epoch)
            replica.applied = wanted
        elif replica.wanted is None:
            await self._leave(replica)

    async def _leave(self, replica: PushedReplica) -> None:
        """Resign, and read the log no more. What is gone was resigned or deleted before."""
        if not replica.is_gone:
            self._led.resign(replica.partition)
        replica.applied = replica.opened = None
        await self._logs.close(replica.partition)

    def _lead(self, replica: PushedReplica, opened: OpenedLog) -> None:
        nodes = self._orders.nodes()
        replica.told = (nodes, replica.config)
        self._led.lead(
            opened.log,
            nodes,
            config=replica.config,
            is_internal_topic=replica.partition.topic.startswith("__"),
            raise_high_watermark=opened.raise_high_watermark,
        )

    def _note_failure(self, replica: PushedReplica, error: TierError, failures: int) -> None:
        if failures == 1:
            log.warning("partition_not_led", partition=str(replica.partition), problem=str(error), remedy=error.remedy)
        replica.problem = error.explained
