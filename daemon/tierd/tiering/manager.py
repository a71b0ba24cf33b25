"""RemoteLogManager: tasks follow leadership, and leadership follows what is on disk (Kafka has the same name)."""

import asyncio
import time
from collections.abc import Callable, Collection, MutableSet, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import structlog

from tierd.clock import Clock
from tierd.config import CopySettings, ExpireSettings
from tierd.control import LeadershipSource, Role
from tierd.errors import TierError, UnknownPartitionError
from tierd.log import LogDirWatcher
from tierd.metadata import KeyValueStore, RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition
from tierd.remote import SegmentStorage
from tierd.tiering.absent import AbsentPartitions
from tierd.tiering.copying.intake import Intake
from tierd.tiering.copying.quota_gate import QuotaGate
from tierd.tiering.copying.segment_copy import Writer
from tierd.tiering.local.hold import SegmentHold
from tierd.tiering.local.log_offsets import BrokerLogOffsets, LogOffsets
from tierd.tiering.local.news import LogDirNews, WatcherFactory
from tierd.tiering.policy import TopicPolicies, TopicPolicy
from tierd.tiering.quota import UNLIMITED, RateQuota
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.ledger import Ledger
from tierd.tiering.removing.removals import Removals
from tierd.tiering.replicas import LogDirState, Replica, Replicas
from tierd.tiering.roles import RoleKeeper
from tierd.tiering.slots import Slots
from tierd.tiering.status import PartitionStatus, partition_status
from tierd.tiering.supervision import PassiveSupervisor, Supervisor, TaskHealth
from tierd.tiering.task_factory import TaskFactory, TaskParts
from tierd.tiering.upkeep import Upkeep

log = structlog.get_logger()

_LEADERSHIP_DEADLINE_S = 30.0
_LOADING_DEADLINE_S = 60.0


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """How one pass over one partition ended; ``error`` is None when it ended well."""

    partition: TopicPartition
    status: PartitionStatus
    error: TierError | None


@dataclass(frozen=True, slots=True)
class ManagerStatistics:
    """How busy the tasks of this broker are now.

    Attributes:
        copy_idle_ratio: part of the copy slots that nobody uses, from 0 to 1.
        delete_idle_ratio: the same of the slots for deletions.
        copy_bytes_per_second: as the copy quota sees it.
    """

    copy_idle_ratio: float
    delete_idle_ratio: float
    copy_bytes_per_second: float


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
        self._leadership = leadership
        self._metadata = metadata
        self._hold = hold
        self._clock = clock
        self._intake = Intake()
        expire = expire or ExpireSettings()
        self._copy_slots = slots or Slots(settings.concurrency)
        self._delete_slots = Slots(expire.concurrency)
        self.copy_quota = RateQuota(
            settings.max_bytes_per_second or UNLIMITED,
            windows=settings.quota_windows,
            window_s=settings.quota_window_s,
        )
        self._quota_gate = QuotaGate(self.copy_quota, recorder=recorder, clock=clock)
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
                quota=self._quota_gate,
                intake=self._intake,
                writer=Writer(broker_id=broker_id, session_id=session_id),
                new_id=new_id,
                ledger=ledger,
                slots=self._copy_slots,
                delete_slots=self._delete_slots,
            )
        )
        self.remover = self._factory.partition_remover(store) if store is not None else None
        self._abandoned = self._factory.abandoned_copies(store) if store is not None else None
        self._replicas = Replicas(log_dirs, hold=hold, leadership=leadership, listener=self, wants=wants, now_ns=now_ns)
        self._absent: AbsentPartitions | None = None
        if store is not None:
            self._absent = AbsentPartitions(
                store,
                metadata.keys,
                leadership=leadership,
                policies=policies,
                is_here=lambda partition: self._replicas.get(partition) is not None,
            )
        self._roles = RoleKeeper(
            self._factory,
            supervisor=supervisor,
            metadata=metadata,
            policies=policies,
            is_current=lambda replica: self._replicas.get(replica.local.partition) is replica,
            remover=self.remover,
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
        self._role_changed = asyncio.Event()

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
            group.create_task(self._follow_leadership(), name="follow leadership")
            group.create_task(self._sweep_uploads(), name="sweep uploads")

    async def copy_once(self, partitions: Collection[TopicPartition] | None = None) -> tuple[CopyOutcome, ...]:
        """Run one pass over the led partitions, or those named, and return how each ended. Instead of ``run``.

        Raises:
            UnknownPartitionError: a named partition is in no log dir, or this broker does not lead it.
        """
        await self.discover_once()
        led = [replica for replica in self._replicas.all() if replica.tasks.copy is not None]
        chosen = led if partitions is None else self._chosen(led, partitions)
        async with asyncio.TaskGroup() as group:
            passes = [
                group.create_task(self._pass_once(replica), name=f"copy {replica.local.partition}")
                for replica in chosen
            ]
        return tuple(sorted((p.result() for p in passes), key=lambda outcome: outcome.partition))

    async def discover_once(self) -> None:
        """Find what this broker leads and make its tasks, which nobody runs but the caller. Instead of ``run``."""
        self._roles.supervisor = PassiveSupervisor()  # the passes are run right here
        await asyncio.to_thread(self._hold.recover)
        follower = asyncio.create_task(self._follow_leadership(), name="follow leadership")
        try:
            await self._replicas.reconcile()
            self.first_reconcile_done.set()
            await self._roles_known()
        finally:
            follower.cancel()
            await asyncio.wait([follower])

    def led(self) -> dict[TopicIdPartition, int]:
        """The leader epochs of the partitions that this broker leads, as leadership said last."""
        spoken = [replica.leadership for replica in self._replicas.all() if replica.leadership is not None]
        return {each.partition: each.leader_epoch for each in spoken if each.role is Role.LEADER}

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
        self._quota_gate.close()

    def resize(self, *, copies: int, deletions: int) -> None:
        """Let that many segments be copied, and deleted, at once from now on; what is under way goes on."""
        self._copy_slots.resize(copies)
        self._delete_slots.resize(deletions)

    async def follow_policies(self) -> None:
        """Let tasks go by the topics' policies as they are now: the configuration, or a topic's, has changed."""
        await self._roles.follow_policies(self._replicas.all())

    async def sync(self, partitions: Collection[TopicPartition] | None = None) -> tuple[PartitionStatus, ...]:
        """Look at everything now and return when every led partition has had a pass, quarantined ones included.

        Bound it with a deadline: a pass may take as long as its segments do.
        """
        await self._replicas.reconcile()
        chosen = [replica for replica in self._replicas.all() if _among(replica, partitions)]
        waiters = [replica.tasks.copy.next_pass() for replica in chosen if replica.tasks.copy]
        self._roles.supervisor.retry([task.name for replica in chosen for task in replica.tasks.all()])
        self.wake(partitions)
        if waiters:
            await asyncio.wait(waiters)
        return tuple(status for status in self.status() if partitions is None or status.partition in partitions)

    def status(self) -> tuple[PartitionStatus, ...]:
        """Every partition at this moment, by name."""
        health = self._roles.supervisor.statistics()
        return tuple(
            self._status(replica, [health.get(task.name, TaskHealth()) for task in replica.tasks.all()])
            for replica in sorted(self._replicas.all(), key=lambda replica: replica.local.partition.topic_partition)
        )

    def statistics(self) -> ManagerStatistics:
        """How busy the tasks are at this moment."""
        return ManagerStatistics(
            copy_idle_ratio=self._copy_slots.idle_ratio,
            delete_idle_ratio=self._delete_slots.idle_ratio,
            copy_bytes_per_second=self.copy_quota.rate(self._clock.monotonic_s()),
        )

    def log_dirs(self) -> tuple[LogDirState, ...]:
        """Every log dir: whether it can be read, and what in it is no partition."""
        return self._replicas.log_dirs()

    async def appeared(self, replica: Replica) -> None:
        """Take note of a replica; leadership tells what is to be done with it."""
        log.debug("partition_found", partition=str(replica.local.partition), path=str(replica.local.path))

    async def changed(self, replica: Replica, *, moved: bool) -> None:
        """Wake the task of a replica that changed; one that moved gets a task that knows nothing of the old place."""
        if moved and replica.leadership is not None:
            log.info("partition_moved", partition=str(replica.local.partition), path=str(replica.local.path))
            await self._roles.renew(replica)
        else:
            replica.tasks.wake()

    async def vanished(self, replica: Replica) -> None:
        """End what was done for a replica that is gone."""
        await self._roles.end(replica)

    async def _follow_leadership(self) -> None:
        async for event in self._leadership.changes():
            replica = self._replicas.get(event.partition)
            if event.role is Role.DELETED:
                await self._roles.delete(event, replica)
            elif replica is not None:
                await self._roles.assign(replica, event)
                self._role_changed.set()

    def _reconciled(self) -> None:
        if self._absent is not None and not self.first_reconcile_done.is_set():
            self._roles.supervisor.start(self._absent)
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

    async def _roles_known(self) -> None:
        """Wait until leadership has spoken of the latest epoch of every replica that has one."""
        try:
            async with asyncio.timeout(_LEADERSHIP_DEADLINE_S):
                while any(_awaits_role(replica) for replica in self._replicas.all()):
                    self._role_changed.clear()
                    await self._role_changed.wait()
        except TimeoutError:
            log.warning("leadership_unknown")

    async def _pass_once(self, replica: Replica) -> CopyOutcome:
        assert replica.tasks.copy is not None, "only led replicas are chosen"
        error: TierError | None = None
        try:
            await replica.tasks.copy.run_once()
        except TierError as failure:
            error = failure
        health = TaskHealth(failures=1, last_error=str(error)) if error else TaskHealth()
        return CopyOutcome(replica.local.partition.topic_partition, self._status(replica, [health]), error)

    def _chosen(self, led: Sequence[Replica], partitions: Collection[TopicPartition]) -> list[Replica]:
        chosen = [replica for replica in led if _among(replica, partitions)]
        missing = set(partitions) - {replica.local.partition.topic_partition for replica in chosen}
        if missing:
            raise UnknownPartitionError(
                f"{', '.join(map(str, sorted(missing)))}: in no log dir, excluded, not led here, or not copied",
                remedy="compare the name with tierd status, and topics and leadership in the configuration",
            )
        return chosen

    def wake(self, partitions: Collection[TopicPartition] | None) -> None:
        """Tell the tasks of these partitions, None of all, that there is news: what was replaced may go next."""
        for replica in self._replicas.all():
            if _among(replica, partitions):
                replica.tasks.wake()

    def _status(self, replica: Replica, health: Sequence[TaskHealth]) -> PartitionStatus:
        return partition_status(
            replica.local,
            leadership=replica.leadership,
            tasks=replica.tasks,
            health=max(health, key=lambda each: each.failures, default=TaskHealth()),
            paused=self._intake.is_paused(replica.local.partition.topic_partition),
            problem=replica.problem or self._offline_problem(replica),
            log_start_offset=self._log_start_offset(replica),
        )

    def _log_start_offset(self, replica: Replica) -> int | None:
        """Where a led log begins: expiration moves that on, and the copy task need not have heard."""
        if replica.tasks.expire is None:
            return None
        try:
            return self._metadata.view(replica.local.partition).log_start_offset
        except TierError:  # not loaded, or deleted as a whole
            return None

    def _offline_problem(self, replica: Replica) -> str:
        return next((s.problem for s in self._replicas.log_dirs() if s.path == replica.local.log_dir), "")


def _awaits_role(replica: Replica) -> bool:
    latest = replica.local.scan.lineage.latest
    return latest is not None and (replica.leadership is None or replica.leadership.leader_epoch < latest.epoch)


def _among(replica: Replica, partitions: Collection[TopicPartition] | None) -> bool:
    return partitions is None or replica.local.partition.topic_partition in partitions
