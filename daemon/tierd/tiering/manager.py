"""RemoteLogManager: tasks follow leadership, and leadership follows what is on disk (Kafka has the same name)."""

import asyncio
import time
from collections.abc import Callable, Collection, MutableSet, Sequence
from pathlib import Path
from uuid import UUID, uuid4

import structlog

from tierd.clock import Clock
from tierd.config import CopySettings, ExpireSettings
from tierd.control import LeadershipSource, Role
from tierd.log import LogDirWatcher
from tierd.metadata import KeyValueStore, RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition
from tierd.remote import SegmentStorage
from tierd.tiering.absent import AbsentPartitions
from tierd.tiering.capacity import Capacity, ManagerStatistics
from tierd.tiering.copying.intake import Intake
from tierd.tiering.copying.segment_copy import Writer
from tierd.tiering.leadership_follower import LeadershipFollower
from tierd.tiering.local.hold import SegmentHold
from tierd.tiering.local.log_offsets import BrokerLogOffsets, LogOffsets
from tierd.tiering.local.news import LogDirNews, WatcherFactory
from tierd.tiering.policy import TopicPolicies, TopicPolicy
from tierd.tiering.quota import RateQuota
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.ledger import Ledger
from tierd.tiering.removing.removals import Removals
from tierd.tiering.replica import LogDirState
from tierd.tiering.replicas import Replicas
from tierd.tiering.roles import RoleKeeper
from tierd.tiering.single_pass import CopyOutcome, copied_replicas, pass_over
from tierd.tiering.slots import Slots
from tierd.tiering.status import PartitionStatus
from tierd.tiering.status_board import StatusBoard
from tierd.tiering.supervision import PassiveSupervisor, Supervisor
from tierd.tiering.task_factory import TaskFactory, TaskParts
from tierd.tiering.upkeep import Upkeep

log = structlog.get_logger()

_LOADING_DEADLINE_S = 60.0


class RemoteLogManager:
    """Finds partitions, follows their leadership, and has their finished segments copied by supervised tasks.

    Nothing runs while nothing happens: events wake the one task that they concern, and one timer for all reconciles.
    """

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        leadership: LeadershipSource,
        metadata: RemoteLogMetadataManager,
        remote: SegmentStorage,
        supervisor: Supervisor,
        hold: SegmentHold,
        recorder: TieringRecorder,
        clock: Clock,
        settings: CopySettings,
        expire: ExpireSettings | None = None,
        strict_kafka_compat: bool = False,
        broker_id: int,
        session_id: UUID,
        wants: Callable[[str], bool],
        random: Callable[[], float],
        policies: TopicPolicies = lambda _: TopicPolicy(),
        log_offsets: LogOffsets | None = None,
        store: KeyValueStore | None = None,
        ledger: Ledger | None = None,
        slots: Slots | None = None,
        new_id: Callable[[], UUID] = uuid4,
        new_watcher: WatcherFactory = LogDirWatcher,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """Put the parts together; nothing is read or started.

        Args:
            log_dirs: the broker's; never written to.
            leadership: which partitions this broker leads.
            metadata: what is in the tier.
            remote: moves the bytes.
            supervisor: runs the tasks, and quarantines those that fail.
            hold: keeps queued segments.
            recorder: is told of outcomes.
            clock: time.
            settings: of copying.
            expire: settings of expiration.
            strict_kafka_compat: where Kafka and we decide differently, decide as Kafka does.
            broker_id: this broker.
            session_id: this process; the one that ``metadata`` claims with.
            wants: whether a topic is tiered.
            random: in [0, 1), for jitter.
            policies: what is copied and kept of a topic.
            log_offsets: of the logs, by default as a Kafka broker's checkpoints have them.
            store: the one below ``metadata``; without it no partition is deleted as a whole.
            ledger: is told of deletions before they begin.
            slots: bounds the segments copied at once; by default one of ``settings.concurrency``.
            new_id: fresh segment ids.
            new_watcher: makes what reports changes of directories.
            now_ns: wall clock as directories' mtimes have it.
        """
        self._hold = hold
        self._intake = Intake()
        expire = expire or ExpireSettings()
        self._capacity = Capacity(
            settings,
            copies=slots or Slots(settings.concurrency),
            deletions=Slots(expire.concurrency),
            recorder=recorder,
            clock=clock,
        )
        offsets = log_offsets or BrokerLogOffsets()
        self._factory = TaskFactory(
            TaskParts(
                metadata=metadata,
                remote=remote,
                recorder=recorder,
                clock=clock,
                settings=settings,
                expire=expire,
                strict_kafka_compat=strict_kafka_compat,
                policies=policies,
                log_offsets=offsets,
                quota=self._capacity.gate,
                intake=self._intake,
                writer=Writer(broker_id=broker_id, session_id=session_id),
                new_id=new_id,
                ledger=ledger,
                slots=self._capacity.copies,
                delete_slots=self._capacity.deletions,
            )
        )
        self.remover = self._factory.partition_remover(store) if store is not None else None
        self._abandoned = self._factory.abandoned_copies(store) if store is not None else None
        self._left = self._factory.left_deletions(store, self.is_here) if store is not None else None
        self._roles = RoleKeeper(
            self._factory,
            supervisor=supervisor,
            metadata=metadata,
            policies=policies,
            is_current=lambda replica: self._replicas.get(replica.local.partition) is replica,
            remover=self.remover,
            on_vanished=self._left.wake.set if self._left is not None else lambda: None,
        )
        self._replicas = Replicas(
            log_dirs, hold=hold, leadership=leadership, listener=self._roles, wants=wants, now_ns=now_ns
        )
        self._absent: AbsentPartitions | None = None
        if store is not None:
            self._absent = AbsentPartitions(
                store,
                metadata.keys,
                leadership=leadership,
                policies=policies,
                is_here=self.is_here,
            )
        self.removals = Removals(
            lambda: [replica.tasks.expire for replica in self._replicas.all() if replica.tasks.expire is not None],
            undeletion=self._factory.undeletion(),
            remover=self.remover,
            retry=self._retry,
            is_copied=lambda partition: partition in self.led() and policies(partition.topic).copy_enabled,
        )
        self.first_reconcile_done = asyncio.Event()
        self._news = LogDirNews(log_dirs, new_watcher=new_watcher, clock=clock, retry_s=settings.interval_s)
        self._upkeep = Upkeep(
            self._replicas,
            news=self._news,
            log_offsets=offsets,
            recorder=recorder,
            clock=clock,
            settings=settings,
            random=random,
            on_reconciled=self._reconciled,
            is_settled=self.first_reconcile_done.is_set,
        )
        self._follower = LeadershipFollower(leadership, replicas=self._replicas, roles=self._roles)
        self._board = StatusBoard(self._replicas, metadata=metadata, intake=self._intake, log_offsets=offsets)

    async def run(self) -> None:
        """Follow the log dirs until cancelled. Tasks belong to the supervisor and are not ended here."""
        await asyncio.to_thread(self._hold.recover)
        if self.remover is not None:
            self._roles.supervisor.start(self.remover)
        if self._abandoned is not None:
            self._roles.supervisor.start(self._abandoned)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._news.follow(self._replicas), name="watch log dirs")
            group.create_task(self._upkeep.maintain(), name="maintain partitions")
            group.create_task(self._upkeep.ask_regularly(), name="reconcile")
            group.create_task(self._follower.follow(), name="follow leadership")
            group.create_task(self._sweep_uploads(), name="sweep uploads")

    async def copy_once(self, partitions: Collection[TopicPartition] | None = None) -> tuple[CopyOutcome, ...]:
        """Run one pass over the led partitions, or those named, and return how each ended. Instead of ``run``.

        Raises:
            UnknownPartitionError: a named partition is in no log dir, or this broker does not lead it.
        """
        await self.discover_once()
        return await pass_over(copied_replicas(self._replicas.all(), partitions), self._board)

    async def discover_once(self) -> None:
        """Find what this broker leads and make its tasks, which nobody runs but the caller. Instead of ``run``."""
        self._roles.supervisor = PassiveSupervisor()  # the passes are run right here
        await asyncio.to_thread(self._hold.recover)
        follower = asyncio.create_task(self._follower.follow(), name="follow leadership")
        try:
            await self._replicas.reconcile()
            self.first_reconcile_done.set()
            await self._follower.roles_known()
        finally:
            follower.cancel()
            await asyncio.wait([follower])

    def led(self) -> dict[TopicIdPartition, int]:
        """The leader epochs of the partitions that this broker leads, as leadership said last."""
        spoken = [replica.leadership for replica in self._replicas.all() if replica.leadership is not None]
        return {each.partition: each.leader_epoch for each in spoken if each.role is Role.LEADER}

    @property
    def copy_quota(self) -> RateQuota:
        """What copies go by; a new limit holds from the next look on."""
        return self._capacity.quota

    @property
    def being_copied(self) -> MutableSet[UUID]:
        """Ids that sweeps and expiration leave alone; live, and added to by whoever else writes segments."""
        return self._factory.being_copied

    @property
    def removal_clock(self) -> Clock:
        """The clock of whatever takes data away by its age; it does not believe a wall clock that leaps ahead."""
        return self._factory.removal_clock

    def abandon(self, started: RemoteLogSegmentMetadata) -> None:
        """Have the objects of a segment that was begun and given up looked for after a while."""
        self._factory.abandon(started)

    async def remove_at_once(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Remove a segment that is being deleted before its grace is over; return whether it is gone.

        Raises:
            RemoteObjectRetainedError: the store keeps an object.
            FencedError: the partition is not ours any more; nothing was removed.
            TierError: it stopped half-way; a later pass repeats it.
        """
        if metadata.segment.id in self.being_copied:
            return False
        return await self._factory.deletion.finish_at_once(metadata)

    def _retry(self, names: Collection[str]) -> None:
        self._roles.supervisor.retry(names)

    def pause(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Begin no new segment of these partitions, None of any; what is under way goes on to its end."""
        self._intake.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Undo ``pause``."""
        self._intake.resume(partitions)
        self.wake(partitions)

    def stop_intake(self) -> None:
        """Begin no new segment at all: the daemon ends."""
        self._intake.stop()
        self._capacity.gate.close()

    def resize(self, *, copies: int, deletions: int) -> None:
        """Let that many segments be copied, and deleted, at once from now on; what is under way goes on."""
        self._capacity.resize(copies=copies, deletions=deletions)

    async def follow_policies(self) -> None:
        """Let tasks go by the topics' policies as they are now: the configuration, or a topic's, has changed."""
        await self._roles.follow_policies(self._replicas.all())

    async def sync(self, partitions: Collection[TopicPartition] | None = None) -> tuple[PartitionStatus, ...]:
        """Look at everything now and return when every led partition has had a pass, quarantined ones included.

        Bound it with a deadline: a pass may take as long as its segments do.
        """
        await self._replicas.reconcile()
        chosen = [replica for replica in self._replicas.all() if replica.is_among(partitions)]
        waiters = [replica.tasks.copy.next_pass() for replica in chosen if replica.tasks.copy]
        self._roles.supervisor.retry([task.name for replica in chosen for task in replica.tasks.all()])
        self.wake(partitions)
        if waiters:
            await asyncio.wait(waiters)
        return tuple(status for status in self.status() if partitions is None or status.partition in partitions)

    def status(self) -> tuple[PartitionStatus, ...]:
        """Every partition at this moment, by name."""
        return self._board.all(self._roles.supervisor.statistics())

    async def current_status(self) -> tuple[PartitionStatus, ...]:
        """Return the status of every partition, by name, with the high watermarks as the log dirs have them now."""
        return await self._board.current(self._roles.supervisor.statistics())

    def statistics(self) -> ManagerStatistics:
        """How busy the tasks are at this moment."""
        return self._capacity.statistics()

    def log_dirs(self) -> tuple[LogDirState, ...]:
        """Every log dir: whether it can be read, and what in it is no partition."""
        return self._replicas.log_dirs()

    def is_here(self, partition: TopicIdPartition) -> bool:
        """Whether a log dir of this host holds the partition, as last listed."""
        return self._replicas.get(partition) is not None

    def _reconciled(self) -> None:
        if self._absent is not None and not self.first_reconcile_done.is_set():
            self._roles.supervisor.start(self._absent)
        if self._left is not None and not self.first_reconcile_done.is_set():
            self._roles.supervisor.start(self._left)
        self.first_reconcile_done.set()
        if self.remover is not None:
            self.remover.wake.set()  # another broker may have left a deletion half done

    async def _sweep_uploads(self) -> None:
        """Begin when it is known what is ours."""
        await self.first_reconcile_done.wait()
        await self.everything_loaded()
        await self._upkeep.sweep_uploads(self._factory.upload_sweep())

    async def everything_loaded(self) -> None:
        """Return when the metadata of every led partition was loaded, or could not be: those go on by themselves."""
        try:
            async with asyncio.timeout(_LOADING_DEADLINE_S):
                for replica in self._replicas.all():
                    if replica.tasks.copy is not None:
                        await replica.tasks.copy.tried.wait()
        except TimeoutError:
            log.warning("metadata_not_loaded_yet", waited_s=_LOADING_DEADLINE_S)

    def wake(self, partitions: Collection[TopicPartition] | None) -> None:
        """Tell the tasks of these partitions, None of all, that there is news: what was replaced may go next."""
        for replica in self._replicas.all():
            if replica.is_among(partitions):
                replica.tasks.wake()
