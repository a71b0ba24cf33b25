"""RemoteLogManager: tasks follow leadership, and leadership follows what is on disk (Kafka has the same name)."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import structlog

from tierd.clock import Clock
from tierd.config import CopySettings
from tierd.control import Leadership, LeadershipSource, Role
from tierd.errors import TierError, UnknownPartitionError
from tierd.log import LogDirWatcher
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import TopicPartition
from tierd.remote import SegmentStorage
from tierd.tiering.copying.copy_task import CopyTask
from tierd.tiering.copying.intake import Intake, PartitionGate
from tierd.tiering.copying.segment_copy import SegmentCopy, Writer
from tierd.tiering.local.broker_state import BrokerCheckpoints
from tierd.tiering.local.hold import SegmentHold
from tierd.tiering.local.news import LogDirNews, News, WatcherFactory
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.recorder import TieringRecorder
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.sweep import DanglingSweep, UploadSweep
from tierd.tiering.replicas import LogDirState, Replica, Replicas
from tierd.tiering.status import PartitionStatus, partition_status
from tierd.tiering.supervision import PassiveSupervisor, Supervisor, TaskHealth

log = structlog.get_logger()

_LEADERSHIP_DEADLINE_S = 30.0
_LOADING_DEADLINE_S = 60.0
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """How one pass over one partition ended; ``error`` is None when it ended well."""

    partition: TopicPartition
    status: PartitionStatus
    error: TierError | None


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
        broker_id: int,
        session_id: UUID,
        wants: Callable[[str], bool],
        random: Callable[[], float],
        slots: asyncio.Semaphore | None = None,
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
            broker_id: this broker.
            session_id: this process; the one that ``metadata`` claims with.
            wants: whether a topic is tiered.
            random: in [0, 1), for jitter.
            slots: bounds the segments copied at once; by default one of ``settings.concurrency``.
            new_id: fresh segment ids.
            new_watcher: makes what reports changes of directories.
            now_ns: wall clock as directories' mtimes have it.
        """
        self._leadership = leadership
        self._metadata = metadata
        self._remote = remote
        self._supervisor = supervisor
        self._hold = hold
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._random = random
        self._intake = Intake()
        self._checkpoints = BrokerCheckpoints()
        self._slots = slots or asyncio.Semaphore(settings.concurrency)
        self._being_copied: set[UUID] = set()
        self._deletion = SegmentDeletion(
            metadata=metadata, remote=remote, recorder=recorder, clock=clock, broker_id=broker_id
        )
        self._segment_copy = SegmentCopy(
            metadata=metadata,
            remote=remote,
            deletion=self._deletion,
            recorder=recorder,
            clock=clock,
            new_id=new_id,
            writer=Writer(broker_id=broker_id, session_id=session_id),
            attempt_timeout_s=settings.attempt_timeout_s,
            being_copied=self._being_copied,
        )
        self._replicas = Replicas(log_dirs, hold=hold, leadership=leadership, listener=self, wants=wants, now_ns=now_ns)
        self._news = LogDirNews(log_dirs, new_watcher=new_watcher, clock=clock, retry_s=settings.interval_s)
        self._role_changed = asyncio.Event()
        self._online: frozenset[Path] = frozenset()
        self._changing_tasks = asyncio.Lock()
        self.first_reconcile_done = asyncio.Event()

    async def run(self) -> None:
        """Follow the log dirs until cancelled. Tasks belong to the supervisor and are not ended here."""
        await asyncio.to_thread(self._hold.recover)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._news.follow(self._replicas), name="watch log dirs")
            group.create_task(self._maintain_forever(), name="maintain partitions")
            group.create_task(self._reconcile_forever(), name="reconcile")
            group.create_task(self._follow_leadership(), name="follow leadership")
            group.create_task(self._sweep_uploads(), name="sweep uploads")

    async def copy_once(self, partitions: Collection[TopicPartition] | None = None) -> tuple[CopyOutcome, ...]:
        """Run one pass over the led partitions, or those named, and return how each ended. Instead of ``run``.

        Raises:
            UnknownPartitionError: a named partition is in no log dir, or this broker does not lead it.
        """
        self._supervisor = PassiveSupervisor()  # the passes are run right here
        await asyncio.to_thread(self._hold.recover)
        follower = asyncio.create_task(self._follow_leadership(), name="follow leadership")
        try:
            await self._replicas.reconcile()
            self.first_reconcile_done.set()
            await self._roles_known()
        finally:
            follower.cancel()
            await asyncio.wait([follower])
        led = [replica for replica in self._replicas.all() if replica.task is not None]
        chosen = led if partitions is None else self._chosen(led, partitions)
        async with asyncio.TaskGroup() as group:
            passes = [
                group.create_task(self._pass_once(replica), name=f"copy {replica.local.partition}")
                for replica in chosen
            ]
        return tuple(sorted((p.result() for p in passes), key=lambda outcome: outcome.partition))

    def pause(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Begin no new segment of these partitions, None of any; what is under way goes on to its end."""
        self._intake.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Undo ``pause``."""
        self._intake.resume(partitions)
        self._wake(partitions)

    def stop_intake(self) -> None:
        """Begin no new segment at all: the daemon ends."""
        self._intake.stop()

    async def sync(self, partitions: Collection[TopicPartition] | None = None) -> tuple[PartitionStatus, ...]:
        """Look at everything now and return when every led partition has had a pass, quarantined ones included.

        Bound it with a deadline: a pass may take as long as its segments do.
        """
        await self._replicas.reconcile()
        tasks = [r.task for r in self._replicas.all() if r.task and _among(r, partitions)]
        waiters = [task.next_pass() for task in tasks]
        self._supervisor.retry([task.name for task in tasks])
        self._wake(partitions)
        if waiters:
            await asyncio.wait(waiters)
        return tuple(status for status in self.status() if partitions is None or status.partition in partitions)

    def status(self) -> tuple[PartitionStatus, ...]:
        """Every partition at this moment, by name."""
        health = self._supervisor.statistics()
        return tuple(
            self._status(replica, health.get(replica.task.name, TaskHealth()) if replica.task else TaskHealth())
            for replica in sorted(self._replicas.all(), key=lambda replica: replica.local.partition.topic_partition)
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
            await self._lead(replica, replica.leadership)
        elif replica.task is not None:
            replica.task.wake.set()

    async def vanished(self, replica: Replica) -> None:
        """End what was done for a replica that is gone."""
        await self._end_task(replica)
        self._metadata.stop(replica.local.partition)

    async def _follow_leadership(self) -> None:
        async for event in self._leadership.changes():
            replica = self._replicas.get(event.partition)
            if replica is None:
                continue
            replica.leadership = event
            if event.role is Role.LEADER:
                await self._lead(replica, event)
            else:
                await self._end_task(replica)
                self._metadata.stop(event.partition)
            self._role_changed.set()

    async def _lead(self, replica: Replica, event: Leadership) -> None:
        """Give the replica a task of its own for this leader epoch and this directory."""
        async with self._changing_tasks:
            await self._end_task(replica)
            if event.role is not Role.LEADER or self._replicas.get(event.partition) is not replica:
                return
            replica.task = task = self._new_task(replica.local, event.leader_epoch)
            self._supervisor.start(task)

    async def _end_task(self, replica: Replica) -> None:
        task, replica.task = replica.task, None
        if task is not None:
            await self._supervisor.stop(task.name)
            task.close()

    def _new_task(self, local: PartitionLog, leader_epoch: int) -> CopyTask:
        return CopyTask(
            local,
            leader_epoch=leader_epoch,
            metadata=self._metadata,
            segment_copy=self._segment_copy,
            sweep=DanglingSweep(
                local.partition,
                metadata=self._metadata,
                deletion=self._deletion,
                being_copied=self._being_copied,
                recorder=self._recorder,
                clock=self._clock,
                grace_s=self._settings.dangling_grace_s,
                limit=self._settings.dangling_max_per_run,
                retry_s=self._settings.interval_s,
            ),
            checkpoints=self._checkpoints,
            slots=self._slots,
            gate=PartitionGate(self._intake, local.partition.topic_partition),
            recorder=self._recorder,
            clock=self._clock,
            interval_s=self._settings.interval_s,
        )

    async def _maintain_forever(self) -> None:
        while True:
            await self._maintain(await self._news.next(settled=self.first_reconcile_done.is_set()))

    async def _maintain(self, news: News) -> None:
        everything = news.everything
        for path in () if everything else news.changed:
            everything = not await self._replicas.look(path) or everything
        if everything:
            await self._reconcile()
        for log_dir in news.watermarks:
            await self._wake_waiting(log_dir)

    async def _reconcile(self) -> None:
        await self._replicas.reconcile()
        online = frozenset(self._replicas.online)
        if online - self._online and self.first_reconcile_done.is_set():
            self._news.watch_anew()
        self._online = online
        for log_dir in online:
            await self._wake_waiting(log_dir)
        self._recorder.task_succeeded("reconcile")
        self.first_reconcile_done.set()

    async def _reconcile_forever(self) -> None:
        while True:
            broken = self._news.is_incomplete or self._replicas.failed() or any(r.problem for r in self._replicas.all())
            interval_s = self._settings.interval_s if broken else self._settings.reconcile_interval_s
            await self._clock.sleep(interval_s * (1 - _JITTER + 2 * _JITTER * self._random()))
            self._news.tell(everything=True)

    async def _wake_waiting(self, log_dir: Path) -> None:
        """Wake the tasks of a log dir whose queued segments a new high watermark lets go. Reads nothing for others."""
        for replica in self._replicas.all():
            task = replica.task
            if task is None or not task.state.awaits_high_watermark or replica.local.log_dir != log_dir:
                continue
            try:
                offsets = await self._checkpoints.offsets(log_dir, replica.local.partition.topic_partition)
            except TierError:
                task.wake.set()  # its pass reports the damage
                continue
            if offsets.high_watermark != task.state.high_watermark:
                task.wake.set()

    async def _sweep_uploads(self) -> None:
        """Discard once what dead processes left unfinished in the store, when it is known what is ours."""
        await self.first_reconcile_done.wait()
        await self.everything_loaded()
        sweep = UploadSweep(
            storage=self._remote,
            metadata=self._metadata,
            being_copied=self._being_copied,
            recorder=self._recorder,
            clock=self._clock,
            grace_s=self._settings.dangling_grace_s,
        )
        while True:
            led = [replica.local.partition for replica in self._replicas.all() if replica.task is not None]
            try:
                if not await sweep.run_once(led):
                    return
            except TierError as error:
                log.warning("upload_sweep_failed", problem=str(error), remedy=error.remedy)
                await self._clock.sleep(self._settings.interval_s)
            else:
                await self._clock.sleep(self._settings.dangling_grace_s)

    async def everything_loaded(self) -> None:
        """Return when the metadata of every led partition was loaded once, or after a minute: some may fail."""
        try:
            async with asyncio.timeout(_LOADING_DEADLINE_S):
                for replica in self._replicas.all():
                    if replica.task is not None:
                        await replica.task.loaded.wait()
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
        assert replica.task is not None, "only led replicas are chosen"
        error: TierError | None = None
        try:
            await replica.task.run_once()
        except TierError as failure:
            error = failure
        health = TaskHealth(failures=1, last_error=str(error)) if error else TaskHealth()
        return CopyOutcome(replica.local.partition.topic_partition, self._status(replica, health), error)

    def _chosen(self, led: Sequence[Replica], partitions: Collection[TopicPartition]) -> list[Replica]:
        chosen = [replica for replica in led if _among(replica, partitions)]
        missing = set(partitions) - {replica.local.partition.topic_partition for replica in chosen}
        if missing:
            raise UnknownPartitionError(
                f"{', '.join(map(str, sorted(missing)))}: in no log dir, excluded, or not led by this broker",
                remedy="compare the name with tierd status, and topics and leadership in the configuration",
            )
        return chosen

    def _wake(self, partitions: Collection[TopicPartition] | None) -> None:
        for replica in self._replicas.all():
            if replica.task is not None and _among(replica, partitions):
                replica.task.wake.set()

    def _status(self, replica: Replica, health: TaskHealth) -> PartitionStatus:
        return partition_status(
            replica.local,
            role=replica.leadership.role if replica.leadership else None,
            task=replica.task,
            health=health,
            paused=self._intake.is_paused(replica.local.partition.topic_partition),
            problem=replica.problem or self._offline_problem(replica),
        )

    def _offline_problem(self, replica: Replica) -> str:
        return next((s.problem for s in self._replicas.log_dirs() if s.path == replica.local.log_dir), "")


def _awaits_role(replica: Replica) -> bool:
    latest = replica.local.scan.lineage.latest
    return latest is not None and (replica.leadership is None or replica.leadership.leader_epoch < latest.epoch)


def _among(replica: Replica, partitions: Collection[TopicPartition] | None) -> bool:
    return partitions is None or replica.local.partition.topic_partition in partitions
