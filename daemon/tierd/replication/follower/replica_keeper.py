"""ReplicaKeeper: makes, follows, deletes and sets aside the logs of a standby, as the assignment book asks for.

Before a step is carried out, the file of the standby has it: a standby that has followed a leader epoch never follows a
lower one after a restart. A step that fails is tried again by ``retry``. So are the steps of a caller that is
cancelled: the book has them already, and asks for none of them again.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial
from uuid import UUID

import structlog

from tierd.clock import Clock
from tierd.errors import LogError, TierError, TierErrorCode, UnknownPartitionError
from tierd.log import LogService, UnifiedLog
from tierd.model import TopicIdPartition, TopicPartition
from tierd.replication.follower.rules.assignment_book import (
    AssignmentBook,
    AssignmentStep,
    ConfigureTopic,
    DeleteReplica,
    KeepReplica,
    KeptReplica,
    SetReplicaAside,
)
from tierd.replication.follower.rules.followed_partition import FollowedPartition
from tierd.replication.follower.service_log import ServiceFollowerLog
from tierd.replication.follower.standby_memory import StandbyMemory
from tierd.replication.follower.standby_replicas import StandbyReplica, StandbyReplicas
from tierd.replication.follower.standby_settings import StandbySettings
from tierd.replication.follower.standby_topics import StandbyTopics
from tierd.replication.model.push_error_code import PushErrorCode
from tierd.replication.model.replication_state import INITIAL_SESSION_ID

_LOG = structlog.get_logger(__name__)


class ReplicaKeeper:
    """Keeper of the replicas of one standby. For one event loop."""

    def __init__(
        self,
        service: LogService,
        replicas: StandbyReplicas,
        topics: StandbyTopics,
        memory: StandbyMemory,
        *,
        clock: Clock,
        settings: StandbySettings,
    ) -> None:
        """Prepare; ``open_kept`` opens what was kept before."""
        self.book = AssignmentBook(memory.replicas, retired=memory.retired)
        self._service = service
        self._replicas = replicas
        self._topics = topics
        self._memory = memory
        self._clock = clock
        self._settings = settings
        self._due: deque[AssignmentStep] = deque()  # in the order of the book
        self._failed: dict[TopicPartition, AssignmentStep] = {}
        self._remembered = {each.partition for each in memory.replicas}
        self._is_push_enabled = settings.is_push_enabled
        self._next_session_ids: dict[TopicIdPartition, int] = {}  # of copies that were set aside
        self._changing = asyncio.Lock()

    async def open_kept(self) -> None:
        """Open the logs that were kept before the start, and follow the leaders of then."""
        async with self._changing:
            for kept in self.book.kept:
                await self._try(KeepReplica(kept), is_new=False)
            retired = set(self.book.retired)
            for log in self._service.logs():  # the deletion did not come to its end before
                if log.topic_id is not None and log.topic_id in retired:
                    await self._try(DeleteReplica(_identity_of(log, log.topic_id)))

    async def carry_out(self, steps: Sequence[AssignmentStep]) -> None:
        """Carry out steps of the book in their order; one that fails does not keep the others from it."""
        if not steps:
            return
        self._due += steps
        async with self._changing:
            await self._carry_out_due()

    async def keep_lost_copy(self, replica: StandbyReplica) -> None:
        """Set the log of a replica aside, whose leader has none of its records any more, and begin another log."""
        async with self._changing:
            await self._carry_out_due()
            if replica.is_gone:
                return
            kept = [KeepReplica(each) for each in self.book.kept if each.partition == replica.partition]
            self._due += [SetReplicaAside(replica.partition), *kept]
            await self._carry_out_due()

    async def retry(self) -> None:
        """Try the steps again that failed, after those whose caller was cancelled."""
        async with self._changing:
            await self._carry_out_due()
            for partition, step in list(self._failed.items()):
                del self._failed[partition]
                await self._try(step, is_new=False)

    async def save(self) -> None:
        """Write the standby's file; a failure is logged, and the next save writes everything."""
        now_s, now_ms = self._clock.monotonic_s(), self._clock.now_ms()
        synced = {
            replica.partition.topic_partition: now_ms - round((now_s - at_s) * 1000)
            for replica in self._replicas
            if (at_s := replica.followed.sync.synced_at_s) is not None and not replica.followed.sync.is_rebuilding
        }
        memory = StandbyMemory(
            replicas=self.book.kept, synced_at_ms=synced, topics=self._topics.settings, retired=self.book.retired
        )
        try:
            await asyncio.to_thread(memory.save, self._settings.state_dir)
        except TierError as error:
            _LOG.warning("standby_memory_not_written", error=str(error), remedy=error.remedy)

    def enable_push(self, is_enabled: bool) -> None:
        """Allow sessions for all replicas, or forbid them."""
        self._is_push_enabled = is_enabled
        for replica in self._replicas:
            replica.followed.enable_push(is_enabled, now_s=self._clock.monotonic_s())
            self._replicas.wake(replica)

    # Steps

    async def _carry_out_due(self) -> None:
        if not self._due:
            return
        await self._configure([step for step in self._due if isinstance(step, ConfigureTopic)])
        await self.save()
        while self._due:
            await self._try(self._due[0])
            self._due.popleft()

    async def _try(self, step: AssignmentStep, *, is_new: bool = True) -> None:
        partition = _partition_of(step)
        if partition is None:  # settings of topics were changed before the other steps
            return
        self._failed.pop(partition.topic_partition, None)
        try:
            match step:
                case KeepReplica(kept):
                    await self._keep(kept, is_new=is_new)
                case DeleteReplica():
                    await self._remove(partition, is_deleted=True)
                case SetReplicaAside():
                    await self._remove(partition, is_deleted=False)
        except TierError as error:
            self._failed[partition.topic_partition] = step
            _LOG.warning("standby_step_failed", partition=str(partition), step=type(step).__name__, error=str(error))

    async def _keep(self, kept: KeptReplica, *, is_new: bool) -> None:
        name, now_s = kept.partition.topic_partition, self._clock.monotonic_s()
        replica = self._replicas.named(name)
        if replica is None:
            replica = StandbyReplica(self._follow_anew(kept.partition, now_s))
            self._replicas.add(replica)
        if replica.followed.follow(kept.leader, now_s=now_s):
            where = {"partition": str(name), "leader": kept.leader.node_id, "leader_epoch": kept.leader.leader_epoch}
            _LOG.info("leader_followed", **where)
        if replica.log is None:
            try:
                replica.log = await self._open_log(kept.partition, is_new=is_new)
            except TierError as error:
                replica.unavailable = PushErrorCode.KAFKA_STORAGE_ERROR
                replica.note(error)
                raise
            replica.last_error = ""
        self._replicas.wake(replica)

    def _follow_anew(self, partition: TopicIdPartition, now_s: float) -> FollowedPartition:
        followed = FollowedPartition(
            partition,
            now_s=now_s,
            times=self._settings.times,
            is_push_enabled=self._is_push_enabled,
            first_session_id=self._next_session_ids.pop(partition, INITIAL_SESSION_ID),
        )
        followed.delete_retention_s = self._delete_retention_s(partition.topic)
        synced_at_ms = self._memory.synced_at_ms.get(partition.topic_partition)
        if synced_at_ms is not None and partition in self._remembered:
            away_ms = self._clock.now_ms() - synced_at_ms
            followed.sync.synced_at_s = now_s - max(away_ms, 0) / 1000
        return followed

    async def _open_log(self, partition: TopicIdPartition, *, is_new: bool) -> ServiceFollowerLog:
        name = partition.topic_partition
        try:
            await self._service.get_or_create(name, topic_id=partition.topic_id, is_new=is_new)
        except LogError as error:
            if error.code is not TierErrorCode.INCONSISTENT_TOPIC_ID:
                raise
            await self._set_other_incarnation_aside(name)
            await self._service.get_or_create(name, topic_id=partition.topic_id)
        is_flushed_at_once = self._settings.flush == "always"
        return ServiceFollowerLog(
            self._service,
            name,
            clock=self._clock,
            is_flushed_at_once=is_flushed_at_once,
            has_known_policy=partial(self._topics.is_known, name.topic),
        )

    async def _set_other_incarnation_aside(self, name: TopicPartition) -> None:
        """Set a log aside of an incarnation that no leader has announced, or whose deletion ends at this moment."""
        try:
            aside = await self._service.set_aside(name)
        except UnknownPartitionError:
            return
        _LOG.warning("unknown_incarnation_set_aside", partition=str(name), directory=str(aside))

    async def _remove(self, partition: TopicIdPartition, *, is_deleted: bool) -> None:
        replica = self._replicas.get(partition.topic_id, partition.partition)
        name = partition.topic_partition
        if replica is not None:
            self._replicas.remove(replica)
            if not is_deleted:
                self._next_session_ids[partition] = replica.followed.state.session_id + 1
            async with replica.lock:  # a change that is under way ends before
                replica.log = None
        self._remembered.discard(partition)
        try:
            if is_deleted:
                if name.topic not in self.book.topics:
                    self._topics.forget(name.topic)
                await self._service.delete(name)
                _LOG.info("replica_deleted", partition=str(name))
            else:
                directory = await self._service.set_aside(name)
                _LOG.warning("replica_set_aside", partition=str(name), directory=str(directory))
        except UnknownPartitionError:  # the log could not be made, or is gone already
            return

    # Settings of topics

    async def _configure(self, steps: Sequence[ConfigureTopic]) -> None:
        if not steps:
            return
        for step in steps:
            self._topics.update(step.topic, dict(step.config))
        await self._service.reconfigure(self._topics.config_for)
        for replica in self._replicas:
            replica.followed.delete_retention_s = self._delete_retention_s(replica.partition.topic)

    def _delete_retention_s(self, topic: str) -> float | None:
        config = self._topics.config_for(topic)
        return config.delete_retention_ms / 1000 if config.is_compacted else None


def _partition_of(step: AssignmentStep) -> TopicIdPartition | None:
    match step:
        case KeepReplica(kept):
            return kept.partition
        case DeleteReplica(partition) | SetReplicaAside(partition):
            return partition
        case ConfigureTopic():
            return None


def _identity_of(log: UnifiedLog, topic_id: UUID) -> TopicIdPartition:
    return TopicIdPartition(topic_id, log.topic_partition.topic, log.topic_partition.partition)
