"""TaskFactory: makes the tasks of a role, each for one leadership of one partition in one directory."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tierd.clock import Clock
from tierd.config import CopySettings, ExpireSettings
from tierd.control import Leadership
from tierd.metadata import RemoteLogMetadataManager
from tierd.remote import SegmentStorage
from tierd.tiering.capacity import Capacity
from tierd.tiering.copy_plan import CopyDelay
from tierd.tiering.copying.copy_task import CopyTask
from tierd.tiering.copying.copy_tools import CopyTools
from tierd.tiering.copying.follower_task import FollowerTask
from tierd.tiering.copying.intake import Intake
from tierd.tiering.copying.segment_copy import SegmentCopy, Writer
from tierd.tiering.copying.stale_segments import StaleSegmentTools
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.expiring.expiration_task import ExpirationTask, ExpirationTools
from tierd.tiering.removing.expiring.local_view import ReplicaLogView
from tierd.tiering.removing.log_start_keeper import LogStartKeeper
from tierd.tiering.removing.monotonic_guard import MonotonicGuard
from tierd.tiering.removing.sweep import DanglingSweep, SweepSettings
from tierd.tiering.segment_writes import SegmentWrites
from tierd.tiering.topic_policy import FindTopicPolicy

_FOLLOWERS_AT_ONCE = 2  # Kafka: remote.log.manager.follower.thread.pool.size


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringSettings:
    """Settings of the tasks of this room.

    Attributes:
        copying: settings of copy tasks and sweeps.
        expire: settings of expiration and deletion.
        strict_kafka_compat: decide as Kafka does where tierd decides differently.
    """

    copying: CopySettings
    expire: ExpireSettings
    strict_kafka_compat: bool = False

    @property
    def sweep(self) -> SweepSettings:
        """Return the settings of sweeps."""
        return SweepSettings(
            grace_s=self.copying.dangling_grace_s,
            limit=self.copying.dangling_max_per_run,
            retry_s=self.copying.interval_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TieringContext:
    """Surroundings of the tasks: what one broker's process of tierd has once, and every task refers to.

    Attributes:
        metadata: the rows of the tier.
        remote: moves the bytes.
        policies: the policies of topics.
        log_offsets: the offsets of local logs.
        recorder: is told of outcomes.
        clock: time.
        writer: the identity of this process.
        settings: the settings of the tasks.
    """

    metadata: RemoteLogMetadataManager
    remote: SegmentStorage
    policies: FindTopicPolicy
    log_offsets: LogOffsets
    recorder: TieringRecorder
    clock: Clock
    writer: Writer
    settings: TieringSettings


class TaskFactory:
    """Maker of the tasks of replicas. It starts none of them."""

    def __init__(
        self,
        context: TieringContext,
        *,
        deletion: SegmentDeletion,
        log_starts: LogStartKeeper,
        writes: SegmentWrites,
        removal_clock: MonotonicGuard,
        intake: Intake,
        capacity: Capacity,
    ) -> None:
        """Make no task yet.

        Args:
            context: the surroundings of the tasks.
            deletion: deletes one segment.
            log_starts: keeps the log starts in the bucket.
            writes: the ids of the segments that this process writes.
            removal_clock: the clock of removals by age.
            intake: tells if new segments may be begun.
            capacity: bounds what all tasks do at once.
        """
        self._context = context
        self._deletion = deletion
        self._writes = writes
        self._intake = intake
        self._follower_slots = asyncio.Semaphore(_FOLLOWERS_AT_ONCE)
        copying, expire, broker_id = context.settings.copying, context.settings.expire, context.writer.broker_id
        self._expiration_tools = ExpirationTools(
            metadata=context.metadata,
            deletion=deletion,
            policies=context.policies,
            being_copied=writes.ids,
            log_starts=log_starts,
            slots=capacity.deletions,
            recorder=context.recorder,
            clock=removal_clock,
            width=expire.concurrency,
            grace_s=expire.grace_s,
            interval_s=expire.interval_s,
            strict_kafka_compat=context.settings.strict_kafka_compat,
        )
        self._copy_tools = CopyTools(
            metadata=context.metadata,
            remote=context.remote,
            segment_copy=SegmentCopy(
                metadata=context.metadata,
                remote=context.remote,
                deletion=deletion,
                recorder=context.recorder,
                clock=context.clock,
                writer=context.writer,
                writes=writes,
                attempt_timeout_s=copying.attempt_timeout_s,
            ),
            log_starts=log_starts,
            log_offsets=context.log_offsets,
            slots=capacity.copies,
            quota=capacity.gate,
            recorder=context.recorder,
            clock=context.clock,
            broker_id=broker_id,
            interval_s=copying.interval_s,
            stale=StaleSegmentTools(
                remote=context.remote,
                deletion=deletion,
                clock=removal_clock,
                grace_s=expire.grace_s,
                broker_id=broker_id,
            ),
        )

    def sweep(self, local: PartitionLog) -> DanglingSweep:
        """Return the sweep of one partition. Its copy task and its expiration task share one sweep."""
        return DanglingSweep(
            local.partition,
            metadata=self._context.metadata,
            deletion=self._deletion,
            being_copied=self._writes.ids,
            recorder=self._context.recorder,
            clock=self._context.clock,
            settings=self._context.settings.sweep,
        )

    def copy_task(
        self, local: PartitionLog, leadership: Leadership, sweep: DanglingSweep, on_tiered: Callable[[], None]
    ) -> CopyTask:
        """Return the copy task of a leader; the task calls ``on_tiered`` when the tier has grown."""
        partition = local.partition
        return CopyTask(
            local,
            leadership=leadership,
            tools=self._copy_tools,
            sweep=sweep,
            closed_because=partial(self._intake.closed_because, partition.topic_partition),
            delay=lambda: self._delay(partition.topic),
            is_compacted=lambda: self._is_compacted(partition.topic),
            on_tiered=on_tiered,
        )

    def expiration_task(self, local: PartitionLog, leader_epoch: int, sweep: DanglingSweep) -> ExpirationTask:
        """Return the expiration task of a leader, which runs also where the leader does not copy."""
        return ExpirationTask(
            ReplicaLogView(local, self._context.log_offsets),
            leader_epoch=leader_epoch,
            tools=self._expiration_tools,
            sweep=sweep,
        )

    def follower_task(self, local: PartitionLog) -> FollowerTask:
        """Return the task of a follower, which keeps the frontier known and holds segments that are not copied."""
        settings = self._context.settings.copying
        return FollowerTask(
            local,
            metadata=self._context.metadata,
            log_offsets=self._context.log_offsets,
            slots=self._follower_slots,
            interval_s=settings.interval_s,
            idle_interval_s=settings.reconcile_interval_s,
            is_copied=lambda: self._context.policies(local.partition.topic).copy_enabled,
            is_compacted=lambda: self._is_compacted(local.partition.topic),
        )

    def _is_compacted(self, topic: str) -> bool:
        return "compact" in self._context.policies(topic).cleanup_policy

    def _delay(self, topic: str) -> CopyDelay:
        policy = self._context.policies(topic)
        return CopyDelay.resolve(
            lag_ms=policy.copy_lag_ms,
            lag_bytes=policy.copy_lag_bytes,
            local_retention_ms=policy.effective_local_retention_ms,
            local_retention_bytes=policy.effective_local_retention_bytes,
        )
