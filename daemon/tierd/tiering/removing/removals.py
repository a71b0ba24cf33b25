"""Removals: removes from the tier of led partitions on request: expire now, take back, delete, remove at once."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from tierd.errors import RefusedError, TierError, UnknownPartitionError
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.expiring.expiration_plan import ExpirationPlan
from tierd.tiering.removing.expiring.expiration_task import ExpirationTask
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.removing.undelete_plan import TakenBack
from tierd.tiering.removing.undeletion import Undeletion


@dataclass(frozen=True, slots=True)
class ExpireOutcome:
    """Plan of one partition before its pass; ``error`` says why the pass did not do all of it."""

    partition: TopicPartition
    plan: ExpirationPlan
    error: TierError | None = None


class Removals:
    """Entry for removals on request. They go through the tasks of this broker, which own the claims."""

    def __init__(
        self,
        tasks: Callable[[], Iterable[ExpirationTask]],
        *,
        undeletion: Undeletion,
        remover: PartitionRemover,
        deletion: SegmentDeletion,
        being_copied: Collection[UUID],
        retry: Callable[[Collection[str]], None],
        is_copied: Callable[[TopicIdPartition], bool],
    ) -> None:
        """Remove nothing yet.

        Args:
            tasks: returns the expiration tasks of all led partitions.
            undeletion: takes segments back.
            remover: deletes whole partitions.
            deletion: deletes one segment.
            being_copied: ids of the segments that this process writes now, live.
            retry: lets quarantined tasks try again at once.
            is_copied: returns True if this broker leads a partition and the partition's topic is copied.
        """
        self._tasks = tasks
        self._undeletion = undeletion
        self._remover = remover
        self._deletion = deletion
        self._being_copied = being_copied
        self._retry = retry
        self._is_copied = is_copied

    async def plan(self, names: Collection[TopicPartition] | None) -> tuple[ExpireOutcome, ...]:
        """Return what the next pass would do to these partitions, None for all of them; remove nothing.

        Raises:
            UnknownPartitionError: this broker does not lead one of them.
        """
        return tuple([await _planned(task) for task in self._chosen(names)])

    async def expire_here(self, names: Collection[TopicPartition] | None) -> tuple[ExpireOutcome, ...]:
        """Run one pass of each partition; only where no supervisor runs the tasks.

        Raises:
            UnknownPartitionError: this broker does not lead one of them.
        """
        outcomes = []
        for task in self._chosen(names):
            error: TierError | None = None
            plan = ExpirationPlan()
            try:
                await task.load()
                plan = await task.plan()
                await task.run_once()
            except TierError as failure:
                error = failure
            outcomes.append(ExpireOutcome(task.partition.topic_partition, plan, error))
        return tuple(outcomes)

    async def expire_supervised(self, names: Collection[TopicPartition] | None) -> tuple[ExpireOutcome, ...]:
        """Let the supervisor run a pass of each partition now; return when all have ended. The caller sets a deadline.

        Raises:
            UnknownPartitionError: this broker does not lead one of them.
        """
        tasks = self._chosen(names)
        outcomes = await self.plan(names)
        waiters = [task.next_pass() for task in tasks]
        self._retry([task.name for task in tasks])
        for task in tasks:
            task.wake.set()
        if waiters:
            await asyncio.wait(waiters)
        return outcomes

    async def undelete(
        self, name: TopicPartition, wanted: Collection[UUID] | None, *, force: bool, dry_run: bool
    ) -> tuple[TakenBack, ...]:
        """Take segments of one partition back, None for all in their grace; with ``dry_run`` only return which.

        Raises:
            UnknownPartitionError: this broker does not lead it.
            RefusedError: a segment cannot be taken back; nothing was done.
            TierError: the operation stopped half-way; repeat it.
        """
        (task,) = self._chosen([name])
        await task.load()
        local = await task.local.facts(sizes=True)
        if dry_run:
            return await self._undeletion.plan(task.partition, local, wanted)
        taken = await self._undeletion.run(task.partition, local, wanted, force=force)
        task.wake.set()
        return taken

    async def delete_partition(self, partition: TopicIdPartition, *, at_once: bool, force: bool = False) -> None:
        """Accept the deletion of a whole partition, which continues in the background.

        Args:
            partition: led by this broker, or without a leader.
            at_once: without a grace.
            force: delete also a partition that is copied here; its copies are refused from then on.

        Raises:
            RefusedError: the partition is copied here; nothing was done.
            RemoteResourceNotFoundError: the partition has nothing in the tier.
            FencedError: another broker leads the partition.
        """
        if not force and self._is_copied(partition):
            raise RefusedError(
                f"{partition} is led here and still copied: nothing of it could be copied any more",
                remedy="delete the topic, or name it in topics.exclude or set copy: false for it and reload tierd; "
                "--force deletes its tier anyway",
            )
        await self._remover.accept(partition, at_once=at_once)

    async def remove_at_once(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Remove a segment that is being deleted before its grace is over; return whether it is gone.

        Raises:
            RemoteObjectRetainedError: the store keeps an object.
            FencedError: another leader epoch or session owns the partition; nothing was removed.
            TierError: the removal stopped half-way; a later pass repeats it.
        """
        if metadata.segment.id in self._being_copied:
            return False
        return await self._deletion.finish_at_once(metadata)

    def _chosen(self, names: Collection[TopicPartition] | None) -> list[ExpirationTask]:
        led = {task.partition.topic_partition: task for task in self._tasks()}
        missing = [str(name) for name in names or () if name not in led]
        if missing:
            raise UnknownPartitionError(
                f"{', '.join(missing)}: not led by this broker, in no log dir, or excluded",
                remedy="compare the name with tierd status, and ask the broker that leads it",
            )
        return [led[name] for name in sorted(led if names is None else set(names))]


async def _planned(task: ExpirationTask) -> ExpireOutcome:
    name = task.partition.topic_partition
    try:
        return ExpireOutcome(name, await task.plan())
    except TierError as error:
        return ExpireOutcome(name, ExpirationPlan(), error)
