"""Standby: keeps copies of the partitions of other daemons in log dirs of tierd, and follows their leaders.

::

    Standby ─┬─ FollowerAppender            requests of leaders that push
             ├─ per leader: AssignmentWatch which partitions? (long poll)
             ├─ per leader: PullFetcher     partitions in pull mode
             ├─ watchdog                    sessions of silent leaders end; room on the disk; failed steps again
             └─ saving                      StandbyMemory at intervals

Logs are made with the topic's id and settings, followed at the highest leader epoch that was announced, and deleted
when their leader announces the deletion. A leader that is away changes nothing.
"""

import asyncio
import shutil
from collections.abc import Collection, Coroutine
from contextlib import suppress
from random import random
from typing import Final

import structlog

from tierd.clock import Clock
from tierd.errors import TierError
from tierd.log import LogService
from tierd.replication.follower.assignment_watch import AssignmentWatch
from tierd.replication.follower.follower_appender import FollowerAppender
from tierd.replication.follower.leader_connection import LeaderConnection, OpenLeaderChannel
from tierd.replication.follower.pull_changes import PullChanges
from tierd.replication.follower.pull_fetcher import PullFetcher
from tierd.replication.follower.record_intake import RecordIntake
from tierd.replication.follower.replica_keeper import ReplicaKeeper
from tierd.replication.follower.standby_identity import StandbyIdentity
from tierd.replication.follower.standby_memory import StandbyMemory
from tierd.replication.follower.standby_replicas import StandbyReplicas
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.follower.standby_status import StandbyStatus, statuses
from tierd.replication.follower.standby_topics import StandbyTopics
from tierd.replication.model.messages import AppendRecordsRequest, AppendRecordsResponse
from tierd.replication.model.push_session import PeerIdentity
from tierd.tasks import run_to_end

_LOG = structlog.get_logger(__name__)
_CLOSE_TIMEOUT_S: Final = 5.0


class Standby:
    """The follower side of one daemon. For one event loop; ``run`` is its task, and ends with its cancellation."""

    def __init__(
        self,
        identity: StandbyIdentity,
        service: LogService,
        open_channel: OpenLeaderChannel,
        *,
        topics: StandbyTopics,
        memory: StandbyMemory,
        clock: Clock,
        settings: StandbySettings,
    ) -> None:
        """Prepare.

        Args:
            identity: of this daemon.
            service: the logs, which obey ``topics.config_for``.
            open_channel: connects to a leader.
            topics: settings of the topics, begun with those of ``memory``.
            memory: the standby's file, as it was before the start.
            clock: monotonic time for all waits.
            settings: of the standby.
        """
        self._identity = identity
        self._open_channel = open_channel
        self._clock = clock
        self._settings = settings
        self._replicas = StandbyReplicas()
        self._intake = RecordIntake(
            max_bytes=settings.max_memory_bytes,
            reserve_bytes=settings.disk_reserve_bytes,
            free_bytes=self._free_bytes if settings.log_dirs else None,
        )
        self._keeper = ReplicaKeeper(service, self._replicas, topics, memory, clock=clock, settings=settings)
        self._changes = PullChanges(self._intake, clock=clock, keep_lost_copy=self._keeper.keep_lost_copy)
        self._appender = FollowerAppender(
            identity, self._replicas, self._intake, clock=clock, on_unknown_epoch=self._hurry
        )
        self._watches: dict[int, AssignmentWatch] = {}
        self._tasks: dict[int, list[asyncio.Task[None]]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._leaders: frozenset[int] = frozenset()

    async def run(self) -> None:
        """Follow the leaders until cancelled; the logs of before the start are there at once."""
        await self._keeper.open_kept()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for leader_id in self._leaders:
                    self._begin(group, leader_id)
                group.create_task(self._watch(), name="watch leaders")
                group.create_task(self._save(), name="save standby")
        finally:
            self._group = None
            self._tasks.clear()
            self._watches.clear()
            await run_to_end(self._keeper.save(), name="last save of the standby")

    def set_leaders(self, leader_ids: Collection[int]) -> None:
        """Follow these nodes from now on; the copies of others are kept as they are."""
        wanted = frozenset(
            each for each in leader_ids if each != self._identity.node_id and self._identity.admits(each)
        )
        for leader_id in self._leaders - wanted:
            for task in self._tasks.pop(leader_id, []):
                task.cancel()
            self._watches.pop(leader_id, None)
        for leader_id in self._keeper.book.announcing - wanted:
            self._keeper.book.on_lost(leader_id)
        if self._group is not None:
            for leader_id in wanted - self._leaders:
                self._begin(self._group, leader_id)
        self._leaders = wanted

    def enable_push(self, is_enabled: bool) -> None:
        """Allow sessions, or fetch only."""
        self._keeper.enable_push(is_enabled)

    async def append_records(self, request: AppendRecordsRequest, peer: PeerIdentity) -> AppendRecordsResponse:
        """Answer a leader that has proved who it is."""
        return await self._appender.append_records(request, peer)

    def status(self) -> StandbyStatus:
        """Return the standby as it is now."""
        appends, pulls = self._appender.statistics, self._changes.statistics
        return StandbyStatus(
            replicas=statuses(self._replicas),
            leaders={leader_id: watch.last_error for leader_id, watch in self._watches.items()},
            conflicts=self._keeper.book.conflicts,
            memory_bytes=self._intake.used_bytes,
            is_disk_full=self._intake.is_disk_full,
            append_errors=dict(appends.errors),
            appended_bytes=appends.appended_bytes,
            duplicate_appends=appends.duplicates,
            fetched_bytes=pulls.fetched_bytes,
            truncated_records=pulls.truncated_records,
            truncations_below_high_watermark=pulls.truncations_below_high_watermark,
            pull_transitions=sum(replica.followed.pull_transitions for replica in self._replicas),
        )

    # Tasks

    def _begin(self, group: asyncio.TaskGroup, leader_id: int) -> None:
        watched, fetched = (LeaderConnection(leader_id, self._open_channel) for _ in range(2))
        watch = AssignmentWatch(
            leader_id,
            watched,
            self._keeper,
            identity=self._identity,
            clock=self._clock,
            settings=self._settings,
        )
        fetcher = PullFetcher(
            leader_id,
            fetched,
            self._replicas,
            self._changes,
            identity=self._identity,
            clock=self._clock,
            settings=self._settings.fetch,
            on_stale_view=self._hurry,
        )
        self._watches[leader_id] = watch
        self._tasks[leader_id] = [
            group.create_task(_run_and_close(watch.run(random=random), watched), name=f"assignments of {leader_id}"),
            group.create_task(_run_and_close(fetcher.run(random=random), fetched), name=f"fetch from {leader_id}"),
        ]

    async def _watch(self) -> None:
        retried_s = self._clock.monotonic_s()
        while True:
            await self._intake.check_disk()
            now_s = self._clock.monotonic_s()
            for replica in self._replicas:
                if not replica.lock.locked() and replica.followed.check_silence(now_s=now_s):
                    replica.note("the leader was silent in the session")
                    _LOG.warning("leader_silent", partition=str(replica.partition))
                    self._replicas.wake(replica)
            if now_s - retried_s >= self._settings.retry_s:
                retried_s = now_s
                await self._keeper.retry()
            await self._clock.sleep(self._settings.tick_s)

    async def _save(self) -> None:
        while True:
            await self._clock.sleep(self._settings.save_interval_s)
            if any(replica.followed.delete_retention_s is not None for replica in self._replicas):
                await self._keeper.save()

    def _hurry(self, leader_id: int) -> None:
        """Have the announcements of all leaders asked for at once: another one may lead by now."""
        for watch in self._watches.values():
            watch.hurry()

    def _free_bytes(self) -> int:
        return min(shutil.disk_usage(log_dir).free for log_dir in self._settings.log_dirs)


async def _run_and_close(running: Coroutine[None, None, None], connection: LeaderConnection) -> None:
    try:
        await running
    finally:
        with suppress(TimeoutError, OSError, TierError):
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await connection.close()
