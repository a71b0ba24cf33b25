"""LeaderSide: sends the partitions that this host leads to its standbys."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tierd.app.push.leader_logs import LeaderLogs
from tierd.app.push.partition_leading import PartitionLeading, SentTopicConfig, SentTopics
from tierd.app.push.pushed_partitions import PushedPartitions
from tierd.app.push.room_settings import manager_settings, replicator_settings, standby_nodes, tail_settings
from tierd.clock import Clock
from tierd.config import PushReplicationSettings
from tierd.control import LeadershipSource
from tierd.log import LogService
from tierd.model import TopicIdPartition
from tierd.replication import (
    LeaderAssignments,
    LedReplicators,
    OnSession,
    OpenAppendChannel,
    PushLeader,
    PushLeaderServer,
    PushManager,
    PushSessionEndReason,
    ReplicatorStatus,
    TailFollower,
    UnprotectedRecords,
    unprotected,
)
from tierd.tasks import end_tasks

_REFRESH_S: Final = 30.0  # changed settings are told at once; this is for what no event tells
_STATUS_AGE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPartitions:
    """The log dirs of this host, and the leadership of the partitions in them.

    Attributes:
        broker_log_dirs: of a broker, followed in tail mode.
        own_log_dirs: that tierd owns.
        service: of the logs in ``own_log_dirs``; None without one.
        source: of leadership, for push replication alone.
        close_source: closes the connections of ``source``.
        is_cluster_asked: the source knows from the cluster if a topic was deleted.
        config_for: the settings that copies follow, by topic and log dir; empty while they are not known.
    """

    broker_log_dirs: Sequence[Path]
    own_log_dirs: Sequence[Path]
    service: LogService | None
    source: LeadershipSource
    close_source: Callable[[], None]
    is_cluster_asked: bool
    config_for: Callable[[str, Path], SentTopicConfig]


class LeaderSide:
    """Leader's side of one daemon. Made on the event loop, which it then belongs to; ``run`` is its task."""

    def __init__(
        self,
        leader: PushLeader,
        settings: Callable[[], PushReplicationSettings],
        open_channel: OpenAppendChannel,
        local: HostPartitions,
        *,
        on_session: OnSession,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        """Build the parts; nothing is read or sent.

        Args:
            leader: this process, as its requests name it.
            settings: return those in force.
            open_channel: connects to a standby.
            local: partitions.
            on_session: called when a session begins or ends.
            clock: time.
            random: in [0, 1), for jitter.
        """
        push = settings()
        self._settings = settings
        self._close_source = local.close_source
        self._statuses: tuple[ReplicatorStatus, ...] = ()
        self._counted_s, self._counted_changes = float("-inf"), 0
        self._clock = clock
        self.manager = PushManager(
            manager_settings(push),
            leader,
            open_channel,
            on_leadership_doubted=self._doubt,
            on_session=on_session,
            now_s=clock.monotonic_s,
        )
        self.tail = TailFollower(local.broker_log_dirs, tail_settings(push), clock=clock, random=random)
        assignments = LeaderAssignments(clock)
        self.led = LedReplicators(
            self.manager, assignments, replicator_settings(push), process_epoch=leader.process_epoch, clock=clock
        )
        self.server = PushLeaderServer(self.led, assignments, clock=clock)
        self._logs = LeaderLogs(self.tail, local.service, local.own_log_dirs)
        self.leading = PartitionLeading(
            self.led,
            assignments,
            self._logs,
            local.source,
            orders=SentTopics(
                nodes=lambda: standby_nodes(settings()),
                config_for=local.config_for,
                is_deletion_seen=not local.is_cluster_asked,
            ),
            clock=clock,
            random=random,
        )
        self._partitions = PushedPartitions(
            [*local.broker_log_dirs, *local.own_log_dirs], wants=lambda topic: settings().wants(topic), clock=clock
        )

    async def run(self, stopping: asyncio.Event) -> None:
        """Send until ``stopping`` is set; then tell the standbys, and return. A cancellation tells none.

        Raises:
            ExceptionGroup: a bug of the push manager, or of a task.
        """
        async with asyncio.TaskGroup() as group, self._sending():
            tasks = [
                group.create_task(self.tail.run(), name="tail mode"),
                group.create_task(self.led.run(), name="led partitions"),
                group.create_task(self._partitions.watch(), name="watch pushed partitions"),
                group.create_task(self._list(), name="list pushed partitions"),
                group.create_task(self._refresh(), name="refresh pushed partitions"),
                group.create_task(self.leading.run(), name="lead partitions"),
            ]
            failing = group.create_task(self.manager.wait_closed(), name="push manager")
            stopped = group.create_task(stopping.wait(), name="stop of push replication")
            await asyncio.wait({failing, stopped}, return_when=asyncio.FIRST_COMPLETED)
            self.led.close()
            self.manager.shutdown()
            await failing
            await end_tasks([*tasks, stopped])
            await self._logs.close_all()

    def follow(self) -> None:
        """Take the settings in force after a change."""
        is_enabled = self._settings().enabled
        self.manager.enable(is_enabled)
        if not is_enabled:
            self.led.end_sessions(PushSessionEndReason.PUSH_DISABLED)
        self.leading.refresh()
        self._partitions.list_again()

    def statuses(self) -> tuple[ReplicatorStatus, ...]:
        """Return the state of all replicas there are, at most a second old: thousands of them take a while."""
        now_s, changes = self._clock.monotonic_s(), self.led.changes
        if now_s - self._counted_s >= _STATUS_AGE_S or changes != self._counted_changes:
            self._counted_s, self._counted_changes, self._statuses = now_s, changes, self.led.statuses()
        return self._statuses

    def lacking_on_standbys(self) -> dict[TopicIdPartition, UnprotectedRecords]:
        """Return what the best standby of each partition lacks that is sent to any.

        Partitions whose log is not read to its end are left out: what their standbys lack is not known.
        """
        statuses: dict[TopicIdPartition, list[ReplicatorStatus]] = defaultdict(list)
        for status in self.statuses():
            if self.tail.problem_of(status.partition) is None:
                statuses[status.partition].append(status)
        return {partition: unprotected(each) for partition, each in statuses.items()}

    @contextlib.asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        self.manager.startup()
        try:
            yield
        finally:
            self.manager.shutdown()
            self._close_source()

    async def _list(self) -> None:
        async for listing in self._partitions.listings():
            self.leading.found(listing)

    async def _refresh(self) -> None:
        while True:
            await self._clock.sleep(_REFRESH_S)
            self.leading.refresh()

    def _doubt(self, partition: TopicIdPartition, refused_epoch: int) -> None:
        self.leading.doubt(partition, refused_epoch)
