"""The assembly of this room: builds the parts of one broker's tiering, in the order in which they need each other.

::

    SegmentDeletion ─► AbandonedCopies ─► SegmentWrites ─► TaskFactory ─┐
           ├─► PartitionRemover ────────────────────────────────────────┤
           └─► LeftDeletions ──► ReplicaTable ◄─────────────────────────┴─► RoleKeeper ─► ReplicaScanner ─┐
                                                                                        RemoteLogManager ◄┘

Each part receives the parts that it uses. No part is replaced after its construction.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tierd.control import LeadershipSource
from tierd.log import LogDirWatcher
from tierd.metadata import KeyValueStore, read_partition
from tierd.model import TopicIdPartition
from tierd.tiering.capacity import Capacity
from tierd.tiering.copying.intake import Intake
from tierd.tiering.local.hold import SegmentHold
from tierd.tiering.partition_status import StatusBoard
from tierd.tiering.remote_log_manager import RemoteLogManager
from tierd.tiering.removing.abandoned import AbandonedCopies
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.expiring.expiration_task import ExpirationTask
from tierd.tiering.removing.ledger import Ledger
from tierd.tiering.removing.left_deletions import LeftDeletions
from tierd.tiering.removing.log_start_keeper import LogStartKeeper
from tierd.tiering.removing.monotonic_guard import MonotonicGuard
from tierd.tiering.removing.partition_contents import PartitionContents
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.removing.removals import Removals
from tierd.tiering.removing.sweep import UploadSweep
from tierd.tiering.removing.undeletion import Undeletion
from tierd.tiering.replicas.directory_events import DirectoryEventQueue
from tierd.tiering.replicas.replica import ReplicaTable
from tierd.tiering.replicas.replica_scanner import ReplicaScanner
from tierd.tiering.roles.broker_tasks import AbsentPartitions, BrokerTasks
from tierd.tiering.roles.role_keeper import LeadershipFollower, RoleKeeper
from tierd.tiering.roles.task_factory import TaskFactory, TieringContext
from tierd.tiering.segment_writes import SegmentWrites
from tierd.tiering.supervision import Supervisor
from tierd.tiering.upkeep import Upkeep, WatermarkWaker


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedLogDirs:
    """Log dirs that tierd follows.

    Attributes:
        paths: the log dirs of the broker; never written to.
        hold: keeps the files of queued segments.
        wants: tells whether a topic is tiered.
    """

    paths: Sequence[Path]
    hold: SegmentHold
    wants: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiering:
    """Parts of one broker's tiering that other rooms use.

    Attributes:
        manager: follows the log dirs and their leadership.
        replicas: the replicas of this host.
        removals: removes on request.
        remover: deletes whole partitions.
        deletion: deletes one segment.
        writes: the segments that this process writes. The pipeline adds its outputs.
        capacity: bounds what all tasks do at once.
        removal_clock: the clock of removals by age; it does not follow a wall clock that leaps ahead.
        watermarks: tells listeners of high watermarks that the brokers wrote.
    """

    manager: RemoteLogManager
    replicas: ReplicaTable
    removals: Removals
    remover: PartitionRemover
    deletion: SegmentDeletion
    writes: SegmentWrites
    capacity: Capacity
    removal_clock: MonotonicGuard
    watermarks: WatermarkWaker


def assemble(
    context: TieringContext,
    log_dirs: FollowedLogDirs,
    *,
    leadership: LeadershipSource,
    supervisor: Supervisor,
    capacity: Capacity,
    rows: KeyValueStore,
    ledger: Ledger | None,
    random: Callable[[], float],
) -> Tiering:
    """Build the tiering of one broker. Nothing is read or started.

    Args:
        context: the surroundings of the tasks.
        log_dirs: the log dirs to follow.
        leadership: announces which partitions this broker leads.
        supervisor: runs the tasks. For ``copy_once`` and ``discover_once`` it is a ``PassiveSupervisor``.
        capacity: bounds what all tasks do at once.
        rows: the key-value store below ``context.metadata``.
        ledger: is told of deletions before they begin; None for no ledger.
        random: returns a number in [0, 1), for jitter.
    """
    metadata, clock, settings = context.metadata, context.clock, context.settings
    broker_id, removal_clock = context.writer.broker_id, MonotonicGuard(context.clock)
    deletion = SegmentDeletion(
        metadata=metadata,
        remote=context.remote,
        recorder=context.recorder,
        clock=removal_clock,
        broker_id=broker_id,
        ledger=ledger,
    )
    log_starts = LogStartKeeper(metadata=metadata, storage=context.remote.log_starts, clock=clock, broker_id=broker_id)
    abandoned = AbandonedCopies(
        read=partial(read_partition, rows, metadata.keys),
        deletion=deletion,
        clock=clock,
        grace_s=settings.copying.dangling_grace_s,
    )
    writes = SegmentWrites(on_abandoned=abandoned.add)
    uploads = UploadSweep(
        storage=context.remote,
        metadata=metadata,
        being_copied=writes.ids,
        recorder=context.recorder,
        clock=clock,
        settings=settings.sweep,
    )
    remover = PartitionRemover(
        store=rows,
        metadata=metadata,
        contents=PartitionContents(
            metadata=metadata,
            deletion=deletion,
            being_copied=writes.ids,
            slots=capacity.deletions,
            log_starts=log_starts,
            uploads=uploads,
            clock=removal_clock,
            settings=settings.expire,
        ),
        recorder=context.recorder,
        clock=removal_clock,
        broker_id=broker_id,
        settings=settings.expire,
    )
    replicas = ReplicaTable()
    left = LeftDeletions(
        store=rows,
        metadata=metadata,
        deletion=deletion,
        being_copied=writes.ids,
        is_here=replicas.is_here,
        clock=removal_clock,
        broker_id=broker_id,
        copy_grace_s=settings.copying.dangling_grace_s,
    )
    tasks = BrokerTasks(
        supervisor,
        replicas=replicas,
        remover=remover,
        abandoned=abandoned,
        absent=AbsentPartitions(
            rows, metadata.keys, leadership=leadership, policies=context.policies, is_here=replicas.is_here
        ),
        left=left,
        uploads=uploads,
    )

    def vanished(partition: TopicIdPartition) -> None:
        left.wake.set()
        if not metadata.has_topic(partition.topic):
            context.recorder.forget_topic(partition.topic)

    intake = Intake(on_stop=capacity.gate.close)
    roles = RoleKeeper(
        TaskFactory(
            context,
            deletion=deletion,
            log_starts=log_starts,
            writes=writes,
            removal_clock=removal_clock,
            intake=intake,
            capacity=capacity,
        ),
        supervisor=supervisor,
        replicas=replicas,
        metadata=metadata,
        policies=context.policies,
        deletion=deletion,
        remover=remover,
        on_vanished=vanished,
    )
    scanned = ReplicaScanner(
        log_dirs.paths,
        table=replicas,
        hold=log_dirs.hold,
        leadership=leadership,
        listener=roles,
        wants=log_dirs.wants,
    )
    watermarks = WatermarkWaker(replicas, context.log_offsets)
    manager = RemoteLogManager(
        replicas,
        log_dirs=scanned,
        follower=LeadershipFollower(leadership, replicas=replicas, roles=roles),
        upkeep=Upkeep(
            scanned,
            events=DirectoryEventQueue(
                log_dirs.paths, new_watcher=LogDirWatcher, clock=clock, retry_s=settings.copying.interval_s
            ),
            watermarks=watermarks,
            tasks=tasks,
            recorder=context.recorder,
            clock=clock,
            settings=settings.copying,
            random=random,
        ),
        tasks=tasks,
        intake=intake,
        board=StatusBoard(
            replicas,
            log_dirs=scanned,
            supervisor=supervisor,
            metadata=metadata,
            intake=intake,
            log_offsets=context.log_offsets,
        ),
        supervisor=supervisor,
    )
    removals = Removals(
        partial(_expiration_tasks, replicas),
        undeletion=Undeletion(
            metadata=metadata,
            remote=context.remote,
            deletion=deletion,
            log_starts=log_starts,
            policies=context.policies,
            clock=removal_clock,
            broker_id=broker_id,
        ),
        remover=remover,
        deletion=deletion,
        being_copied=writes.ids,
        retry=supervisor.retry,
        is_copied=partial(_is_copied, context, replicas),
    )
    return Tiering(
        manager=manager,
        replicas=replicas,
        removals=removals,
        remover=remover,
        deletion=deletion,
        writes=writes,
        capacity=capacity,
        removal_clock=removal_clock,
        watermarks=watermarks,
    )


def _expiration_tasks(replicas: ReplicaTable) -> list[ExpirationTask]:
    return [replica.tasks.expire for replica in replicas.all() if replica.tasks.expire is not None]


def _is_copied(context: TieringContext, replicas: ReplicaTable, partition: TopicIdPartition) -> bool:
    return partition in replicas.led() and context.policies(partition.topic).copy_enabled
