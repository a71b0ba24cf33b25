"""TaskFactory: makes the tasks of a role, each for one leadership of one partition in one directory."""

import asyncio
from collections.abc import Callable, MutableSet
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from tierd.clock import Clock
from tierd.config import CopySettings, ExpireSettings
from tierd.control import Leadership
from tierd.metadata import KeyValueStore, RemoteLogMetadataManager, read_partition
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition
from tierd.remote import SegmentStorage
from tierd.tiering.copying.copy_task import CopyTask
from tierd.tiering.copying.copy_tools import CopyTools
from tierd.tiering.copying.follower_task import FollowerTask
from tierd.tiering.copying.intake import Intake, PartitionGate
from tierd.tiering.copying.quota_gate import QuotaGate
from tierd.tiering.copying.segment_copy import SegmentCopy, Writer
from tierd.tiering.copying.stale_segments import StaleSegmentTools
from tierd.tiering.local.log_offsets import LogOffsets
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.plan import CopyDelay
from tierd.tiering.policy import TopicPolicies
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.abandoned import AbandonedCopies
from tierd.tiering.removing.believed_clock import BelievedClock
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.expiration_task import ExpirationTask, ExpirationTools
from tierd.tiering.removing.ledger import Ledger
from tierd.tiering.removing.left_deletions import LeftDeletions
from tierd.tiering.removing.local_view import ReplicaLogView
from tierd.tiering.removing.log_start_keeper import LogStartKeeper
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.removing.sweep import DanglingSweep, UploadSweep
from tierd.tiering.removing.undelete import Undeletion

_FOLLOWERS_AT_ONCE = 2  # Kafka: remote.log.manager.follower.thread.pool.size


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskParts:
    """What tasks are made of; the same for all of them.

    Attributes:
        ledger: is told of every deletion before it begins; None where nobody keeps one.
        slots: bounds the segments checked or uploaded at once.
        delete_slots: bounds the segments deleted at once.
        being_copied: ids of the copies under way in this process; sweeps and expiration leave them alone.
    """

    metadata: RemoteLogMetadataManager
    remote: SegmentStorage
    recorder: TieringRecorder
    clock: Clock
    settings: CopySettings
    expire: ExpireSettings
    strict_kafka_compat: bool
    policies: TopicPolicies
    log_offsets: LogOffsets
    quota: QuotaGate
    intake: Intake
    writer: Writer
    new_id: Callable[[], UUID]
    ledger: Ledger | None
    slots: asyncio.Semaphore
    delete_slots: asyncio.Semaphore
    being_copied: MutableSet[UUID] = field(default_factory=set)


class TaskFactory:
    """Makes tasks; nothing runs by that."""

    def __init__(self, parts: TaskParts) -> None:
        self._parts = parts
        self._follower_slots = asyncio.Semaphore(_FOLLOWERS_AT_ONCE)
        self._abandoned: AbandonedCopies | None = None
        self.removal_clock = BelievedClock(parts.clock)
        self.deletion = SegmentDeletion(
            metadata=parts.metadata,
            remote=parts.remote,
            recorder=parts.recorder,
            clock=self.removal_clock,
            broker_id=parts.writer.broker_id,
            ledger=parts.ledger,
        )
        self._log_starts = LogStartKeeper(
            metadata=parts.metadata,
            storage=parts.remote.log_starts,
            clock=parts.clock,
            broker_id=parts.writer.broker_id,
        )
        self._expiration_tools = ExpirationTools(
            metadata=parts.metadata,
            deletion=self.deletion,
            policies=parts.policies,
            being_copied=parts.being_copied,
            log_starts=self._log_starts,
            slots=parts.delete_slots,
            recorder=parts.recorder,
            clock=self.removal_clock,
            width=parts.expire.concurrency,
            grace_s=parts.expire.grace_s,
            interval_s=parts.expire.interval_s,
            strict_kafka_compat=parts.strict_kafka_compat,
        )
        self._tools = CopyTools(
            metadata=parts.metadata,
            remote=parts.remote,
            segment_copy=SegmentCopy(
                metadata=parts.metadata,
                remote=parts.remote,
                deletion=self.deletion,
                recorder=parts.recorder,
                clock=parts.clock,
                new_id=parts.new_id,
                writer=parts.writer,
                attempt_timeout_s=parts.settings.attempt_timeout_s,
                being_copied=parts.being_copied,
                abandon=self.abandon,
            ),
            log_starts=self._log_starts,
            log_offsets=parts.log_offsets,
            slots=parts.slots,
            quota=parts.quota,
            recorder=parts.recorder,
            clock=parts.clock,
            broker_id=parts.writer.broker_id,
            interval_s=parts.settings.interval_s,
            stale=StaleSegmentTools(
                remote=parts.remote,
                deletion=self.deletion,
                clock=self.removal_clock,
                grace_s=parts.expire.grace_s,
                broker_id=parts.writer.broker_id,
            ),
        )

    def sweep(self, local: PartitionLog) -> DanglingSweep:
        """What removes the remains of one partition; its copy task and its expiration task share one."""
        return DanglingSweep(
            local.partition,
            metadata=self._parts.metadata,
            deletion=self.deletion,
            being_copied=self._parts.being_copied,
            recorder=self._parts.recorder,
            clock=self._parts.clock,
            grace_s=self._parts.settings.dangling_grace_s,
            limit=self._parts.settings.dangling_max_per_run,
            retry_s=self._parts.settings.interval_s,
        )

    def copy_task(
        self, local: PartitionLog, leadership: Leadership, sweep: DanglingSweep, on_tiered: Callable[[], None]
    ) -> CopyTask:
        """What copies for a leader; ``on_tiered`` is called when the tier has grown."""
        partition = local.partition
        return CopyTask(
            local,
            leader_epoch=leadership.leader_epoch,
            tools=self._tools,
            sweep=sweep,
            gate=PartitionGate(self._parts.intake, partition.topic_partition),
            delay=lambda: self._delay(partition.topic),
            is_compacted=lambda: self._is_compacted(partition.topic),
            on_tiered=on_tiered,
            is_sole_replica=leadership.is_sole_replica,
        )

    def expiration_task(self, local: PartitionLog, leader_epoch: int, sweep: DanglingSweep) -> ExpirationTask:
        """What removes for a leader, whether it copies or not."""
        return ExpirationTask(
            ReplicaLogView(local, self._parts.log_offsets),
            leader_epoch=leader_epoch,
            tools=self._expiration_tools,
            sweep=sweep,
        )

    def follower_task(self, local: PartitionLog) -> FollowerTask:
        """What keeps a follower informed."""
        return FollowerTask(
            local,
            metadata=self._parts.metadata,
            log_offsets=self._parts.log_offsets,
            slots=self._follower_slots,
            interval_s=self._parts.settings.interval_s,
            idle_interval_s=self._parts.settings.reconcile_interval_s,
            is_copied=lambda: self._parts.policies(local.partition.topic).copy_enabled,
            is_compacted=lambda: self._is_compacted(local.partition.topic),
        )

    def partition_remover(self, store: KeyValueStore) -> PartitionRemover:
        """What deletes whole partitions; ``store`` is the one below the metadata."""
        return PartitionRemover(
            store=store,
            metadata=self._parts.metadata,
            deletion=self.deletion,
            being_copied=self._parts.being_copied,
            slots=self._parts.delete_slots,
            recorder=self._parts.recorder,
            clock=self.removal_clock,
            broker_id=self._parts.writer.broker_id,
            grace_s=self._parts.expire.grace_s,
            interval_s=self._parts.expire.interval_s,
            width=self._parts.expire.concurrency,
            log_starts=self._log_starts,
            uploads=self.upload_sweep(),
        )

    def left_deletions(self, store: KeyValueStore, is_here: Callable[[TopicIdPartition], bool]) -> LeftDeletions:
        """What ends deletions of partitions that have left this host; ``store`` is the one below the metadata."""
        return LeftDeletions(
            store=store,
            metadata=self._parts.metadata,
            deletion=self.deletion,
            being_copied=self._parts.being_copied,
            is_here=is_here,
            clock=self.removal_clock,
            broker_id=self._parts.writer.broker_id,
            copy_grace_s=self._parts.settings.dangling_grace_s,
        )

    def abandoned_copies(self, store: KeyValueStore) -> AbandonedCopies:
        """What cleans up after copies that ended fenced, cancelled or in doubt; from now on it is told of them."""
        self._abandoned = AbandonedCopies(
            read=partial(read_partition, store, self._parts.metadata.keys),
            deletion=self.deletion,
            clock=self._parts.clock,
            grace_s=self._parts.settings.dangling_grace_s,
        )
        return self._abandoned

    def undeletion(self) -> Undeletion:
        """What takes expired segments back."""
        return Undeletion(
            metadata=self._parts.metadata,
            remote=self._parts.remote,
            deletion=self.deletion,
            log_starts=self._log_starts,
            policies=self._parts.policies,
            clock=self.removal_clock,
            broker_id=self._parts.writer.broker_id,
        )

    def upload_sweep(self) -> UploadSweep:
        """What discards the uploads of dead processes."""
        return UploadSweep(
            storage=self._parts.remote,
            metadata=self._parts.metadata,
            being_copied=self._parts.being_copied,
            recorder=self._parts.recorder,
            clock=self._parts.clock,
            grace_s=self._parts.settings.dangling_grace_s,
        )

    @property
    def being_copied(self) -> MutableSet[UUID]:
        """Ids that sweeps and expiration leave alone; live, and added to by whoever else writes segments."""
        return self._parts.being_copied

    def abandon(self, started: RemoteLogSegmentMetadata) -> None:
        """Have the objects of a segment that was begun and given up looked for after a while."""
        if self._abandoned is not None:
            self._abandoned.add(started)

    def _is_compacted(self, topic: str) -> bool:
        return "compact" in self._parts.policies(topic).cleanup_policy

    def _delay(self, topic: str) -> CopyDelay:
        policy = self._parts.policies(topic)
        return CopyDelay.resolve(
            lag_ms=policy.copy_lag_ms,
            lag_bytes=policy.copy_lag_bytes,
            local_retention_ms=policy.effective_local_retention_ms,
            local_retention_bytes=policy.effective_local_retention_bytes,
        )
