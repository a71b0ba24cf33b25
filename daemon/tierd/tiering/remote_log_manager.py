"""RemoteLogManager: follows the log dirs and their leadership, so that every replica has its tasks (Kafka's name).

``assembly.py`` builds the parts and hands them in.
"""

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tierd.errors import TierError, UnknownPartitionError
from tierd.model import TopicIdPartition, TopicPartition
from tierd.tasks import end_tasks
from tierd.tiering.copying.intake import Intake
from tierd.tiering.partition_status import PartitionStatus, StatusBoard
from tierd.tiering.replicas.replica import LogDirState, Replica, ReplicaTable
from tierd.tiering.replicas.replica_scanner import ReplicaScanner
from tierd.tiering.roles.broker_tasks import BrokerTasks
from tierd.tiering.roles.role_keeper import LeadershipFollower
from tierd.tiering.supervision import PassiveSupervisor, Supervisor, TaskHealth
from tierd.tiering.upkeep import Upkeep


@dataclass(frozen=True, slots=True)
class CopyOutcome:
    """Outcome of one pass over one partition; ``error`` is None when it ended well."""

    partition: TopicPartition
    status: PartitionStatus
    error: TierError | None


class RemoteLogManager:
    """Manager of the replicas of this broker: finds them, follows their leadership, and has supervised tasks copy.

    An idle manager costs nothing: an event wakes the task that it concerns, and one timer asks for all reconciles.
    """

    def __init__(
        self,
        replicas: ReplicaTable,
        *,
        log_dirs: ReplicaScanner,
        follower: LeadershipFollower,
        upkeep: Upkeep,
        tasks: BrokerTasks,
        intake: Intake,
        board: StatusBoard,
        supervisor: Supervisor,
    ) -> None:
        """Read and start nothing yet.

        Args:
            replicas: the replicas of this host.
            log_dirs: lists and scans the log dirs.
            follower: gives replicas the roles that are announced.
            upkeep: keeps ``replicas`` in line with the disk.
            tasks: serve the whole broker.
            intake: tells if new segments may be begun.
            board: reads the status of partitions.
            supervisor: runs the tasks, and quarantines those that fail.
        """
        self._replicas = replicas
        self._log_dirs = log_dirs
        self._follower = follower
        self._upkeep = upkeep
        self._tasks = tasks
        self._intake = intake
        self._board = board
        self._supervisor = supervisor

    async def run(self) -> None:
        """Follow the log dirs until cancelled. The supervisor owns the tasks, and they are not ended here."""
        await self._log_dirs.recover_holds()
        self._tasks.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._upkeep.watch(), name="watch log dirs")
            group.create_task(self._upkeep.maintain(), name="maintain partitions")
            group.create_task(self._upkeep.ask_regularly(), name="reconcile")
            group.create_task(self._follower.follow(), name="follow leadership")
            group.create_task(self._tasks.sweep_uploads(), name="sweep uploads")

    async def copy_once(self, partitions: Collection[TopicPartition] | None = None) -> tuple[CopyOutcome, ...]:
        """Run one pass over these led partitions, None for all, and return the outcomes. Call it instead of ``run``.

        Raises:
            UnknownPartitionError: a named partition is in no log dir, or this broker does not lead it.
        """
        await self.discover_once()
        return await _pass_over(_copied_replicas(self._replicas.all(), partitions), self._board)

    async def discover_once(self) -> None:
        """Find what this broker leads and make its tasks. Call it instead of ``run``, over a ``PassiveSupervisor``.

        The caller runs the passes of the tasks.
        """
        assert isinstance(self._supervisor, PassiveSupervisor), "another supervisor would run the tasks a second time"
        await self._log_dirs.recover_holds()
        follower = asyncio.create_task(self._follower.follow(), name="follow leadership")
        try:
            await self._log_dirs.reconcile()
            self._tasks.reconciled()
            await self._follower.roles_known()
        finally:
            await end_tasks([follower])

    @property
    def first_reconcile_done(self) -> asyncio.Event:
        """Return the event that is set once all log dirs were listed and scanned for the first time."""
        return self._tasks.first_reconcile_done

    async def everything_loaded(self) -> None:
        """Return when one attempt to load each led partition's metadata has ended, well or not, or after a minute."""
        await self._tasks.everything_loaded()

    def led(self) -> dict[TopicIdPartition, int]:
        """Return the leader epochs of the partitions that this broker leads, as announced last."""
        return self._replicas.led()

    def is_here(self, partition: TopicIdPartition) -> bool:
        """Return whether a log dir of this host holds the partition, as last listed."""
        return self._replicas.is_here(partition)

    def pause(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Begin no new segment of these partitions, None for all; a segment under way is copied to its end."""
        self._intake.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Undo ``pause``."""
        self._intake.resume(partitions)
        self.wake(partitions)

    def stop_intake(self) -> None:
        """Begin no new segment of any partition: the daemon ends."""
        self._intake.stop()

    def wake(self, partitions: Collection[TopicPartition] | None) -> None:
        """Wake the tasks of these partitions, None for all: they may have new work."""
        for replica in self._replicas.all():
            if replica.is_among(partitions):
                replica.tasks.wake()

    async def follow_policies(self) -> None:
        """Apply the topics' policies of this moment to the tasks: the configuration or a topic has changed."""
        await self._follower.follow_policies()

    async def sync(self, partitions: Collection[TopicPartition] | None = None) -> tuple[PartitionStatus, ...]:
        """Scan all log dirs now; return when every led partition has had a pass, quarantined partitions included.

        The caller sets a deadline: a pass may take as long as its segments do.
        """
        await self._log_dirs.reconcile()
        chosen = [replica for replica in self._replicas.all() if replica.is_among(partitions)]
        waiters = [replica.tasks.copy.next_pass() for replica in chosen if replica.tasks.copy]
        self._supervisor.retry([task.name for replica in chosen for task in replica.tasks.all()])
        self.wake(partitions)
        if waiters:
            await asyncio.wait(waiters)
        return tuple(status for status in self.status() if partitions is None or status.partition in partitions)

    def status(self) -> tuple[PartitionStatus, ...]:
        """Return the status of every partition, by name."""
        return self._board.all()

    def loading(self) -> tuple[TopicPartition, ...]:
        """Return the partitions whose metadata is still being loaded, by name."""
        return self._board.loading()

    async def current_status(self) -> tuple[PartitionStatus, ...]:
        """Return the status of every partition, by name, with the high watermarks that the log dirs have now."""
        return await self._board.current()

    async def status_of(self, replica: Replica) -> PartitionStatus:
        """Return the status of one replica, with the high watermark that its log dir has now."""
        return await self._board.current_of(replica)

    def log_dirs(self) -> tuple[LogDirState, ...]:
        """Return the state of every log dir, with the names in it that are no partitions."""
        return self._log_dirs.log_dirs()


def _copied_replicas(replicas: Iterable[Replica], partitions: Collection[TopicPartition] | None) -> list[Replica]:
    """Return the replicas that are copied here: those of ``partitions``, None for all.

    Raises:
        UnknownPartitionError: a named partition is in no log dir, or this broker does not lead it.
    """
    chosen = [replica for replica in replicas if replica.tasks.copy is not None and replica.is_among(partitions)]
    missing = set(partitions or ()) - {replica.local.partition.topic_partition for replica in chosen}
    if missing:
        raise UnknownPartitionError(
            f"{', '.join(map(str, sorted(missing)))}: in no log dir, excluded, not led here, or not copied",
            remedy="compare the name with tierd status, and topics and leadership in the configuration",
        )
    return chosen


async def _pass_over(replicas: Iterable[Replica], board: StatusBoard) -> tuple[CopyOutcome, ...]:
    """Copy what is due of each of these replicas, all at once, and return the outcomes, by name."""
    async with asyncio.TaskGroup() as group:
        passes = [
            group.create_task(_pass_once(replica, board), name=f"copy {replica.local.partition}")
            for replica in replicas
        ]
    return tuple(sorted((p.result() for p in passes), key=lambda outcome: outcome.partition))


async def _pass_once(replica: Replica, board: StatusBoard) -> CopyOutcome:
    assert replica.tasks.copy is not None, "only led replicas are chosen"
    error: TierError | None = None
    try:
        await replica.tasks.copy.run_once()
    except TierError as failure:
        error = failure
    health = TaskHealth(failures=1, last_error=str(error), remedy=error.remedy) if error else TaskHealth()
    return CopyOutcome(replica.local.partition.topic_partition, board.of(replica, [health]), error)
