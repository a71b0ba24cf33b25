"""Removals: what an operator may ask of the partitions that this broker leads: expire now, take back, delete."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from uuid import UUID

from tierd.errors import RefusedError, TierError, UnknownPartitionError
from tierd.model import TopicIdPartition, TopicPartition
from tierd.tiering.removing.expiration_plan import ExpirationPlan
from tierd.tiering.removing.expiration_task import ExpirationTask
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.removing.undelete import Undeletion
from tierd.tiering.removing.undelete_plan import TakenBack


@dataclass(frozen=True, slots=True)
class ExpireOutcome:
    """What was to be deleted of one partition, before the pass; ``error``: why nothing, or not all of it, was."""

    partition: TopicPartition
    plan: ExpirationPlan
    error: TierError | None = None


class Removals:
    """Acts through the expiration tasks, so that nothing is removed but by whoever owns the claim."""

    def __init__(
        self,
        tasks: Callable[[], Iterable[ExpirationTask]],
        *,
        undeletion: Undeletion,
        remover: PartitionRemover | None,
        retry: Callable[[Collection[str]], None],
        is_copied: Callable[[TopicIdPartition], bool],
    ) -> None:
        """Remove nothing yet.

        Args:
            tasks: of every led partition now.
            undeletion: takes segments back.
            remover: deletes whole partitions.
            retry: lets quarantined tasks try again at once.
            is_copied: whether this broker leads a partition and its topic's settings have it copied.
        """
        self._tasks = tasks
        self._undeletion = undeletion
        self._remover = remover
        self._retry = retry
        self._is_copied = is_copied

    async def plan(self, names: Collection[TopicPartition] | None) -> tuple[ExpireOutcome, ...]:
        """Say what the next pass would do, None over all partitions, and do nothing.

        Raises:
            UnknownPartitionError: this broker does not lead one of them.
        """
        return tuple([await _planned(task) for task in self._chosen(names)])

    async def expire_here(self, names: Collection[TopicPartition] | None) -> tuple[ExpireOutcome, ...]:
        """Run a pass of each right here, where nobody else runs them.

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
        """Have whoever runs the tasks run a pass of each now; return when all have ended. Bound it with a deadline.

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
        """Take segments of one partition back, None for all that are in their grace; or only say which.

        Raises:
            UnknownPartitionError: this broker does not lead it.
            RefusedError: something speaks against it; nothing was done.
            TierError: it stopped half-way; repeat it.
        """
        (task,) = self._chosen([name])
        await task.load()
        local = await task.local.facts(sizes=True)
        if dry_run:
            return await self._undeletion.plan_aside(task.partition, local, wanted)
        taken = await self._undeletion.run(task.partition, local, wanted, force=force)
        task.wake.set()
        return taken

    async def delete_partition(self, partition: TopicIdPartition, *, at_once: bool, force: bool = False) -> None:
        """Accept the deletion of a whole partition, led here or by nobody; it goes on in the background.

        Args:
            partition: whose tier goes.
            at_once: without a grace.
            force: although it is copied here, and its copies are refused from now on.

        Raises:
            RefusedError: it is copied here; nothing was done.
            RemoteResourceNotFoundError: it has nothing in the tier.
            FencedError: another broker leads it.
        """
        if self._remover is None:
            raise RefusedError("nothing here deletes partitions", remedy="run it where tierd has a metadata store")
        if not force and self._is_copied(partition):
            raise RefusedError(
                f"{partition} is led here and still copied: nothing of it could be copied any more",
                remedy="delete the topic, or name it in topics.exclude or set copy: false for it and reload tierd; "
                "--force deletes its tier anyway",
            )
        await self._remover.accept(partition, at_once=at_once)

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
