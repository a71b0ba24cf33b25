"""RoleKeeper: every replica has the tasks of its role, and no others (remote-tiering 9.1 to 9.3, 13).

::

    leader     copy (while the topic is copied), expire
    follower   follow
    deleted    none; the tier goes with the topic where its policy says so
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from tierd.control import Leadership, Role
from tierd.metadata import RemoteLogMetadataManager
from tierd.tiering.policy import TopicPolicies
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.replica import Replica
from tierd.tiering.role_tasks import RoleTasks
from tierd.tiering.supervision import Supervisor
from tierd.tiering.task_factory import TaskFactory

log = structlog.get_logger()


class RoleKeeper:
    """Starts and stops tasks as roles, and replicas, come and go, one change at a time; a ``ReplicaListener``."""

    def __init__(
        self,
        factory: TaskFactory,
        *,
        supervisor: Supervisor,
        metadata: RemoteLogMetadataManager,
        policies: TopicPolicies,
        is_current: Callable[[Replica], bool],
        remover: PartitionRemover | None,
        on_vanished: Callable[[], None],
    ) -> None:
        """Nothing runs yet.

        Args:
            factory: makes tasks.
            supervisor: runs them.
            metadata: is told of roles before tasks are.
            policies: whether a topic is copied, and what becomes of the tier of a deleted one.
            is_current: whether a replica is still there, and still this one.
            remover: takes over the tier of a deleted partition; None where nobody does.
            on_vanished: called when a replica has left this host, and its tasks have ended.
        """
        self.supervisor = supervisor
        self._factory = factory
        self._metadata = metadata
        self._policies = policies
        self._is_current = is_current
        self._remover = remover
        self._on_vanished = on_vanished
        self._changing = asyncio.Lock()

    async def appeared(self, replica: Replica) -> None:
        """Take note of a replica; leadership tells what is to be done with it."""
        log.debug("partition_found", partition=str(replica.local.partition), path=str(replica.local.path))

    async def changed(self, replica: Replica, *, moved: bool) -> None:
        """Wake the task of a replica that changed; one that moved gets a task that knows nothing of the old place."""
        if moved and replica.leadership is not None:
            log.info("partition_moved", partition=str(replica.local.partition), path=str(replica.local.path))
            async with self._changing:
                await self._begin(replica)
        else:
            replica.tasks.wake()

    async def vanished(self, replica: Replica) -> None:
        """End what was done for a replica that is gone."""
        async with self._changing:
            await self._stop_all(replica)
            self._factory.deletion.forget(replica.local.partition)
            self._metadata.stop(replica.local.partition)
        self._on_vanished()

    async def assign(self, replica: Replica, event: Leadership) -> None:
        """Give the replica the role; one that it has already changes nothing.

        A leader of a higher epoch gets new tasks: its log may have been truncated in between.
        """
        async with self._changing:
            known, replica.leadership = replica.leadership, event
            if known is not None and replica.tasks.all():
                is_same_term = known.leader_epoch == event.leader_epoch or event.role is Role.FOLLOWER
                if known.role is event.role and is_same_term:
                    return
            await self._begin(replica)

    async def follow_policies(self, replicas: Iterable[Replica]) -> None:
        """Start and stop copies where the topic's switch says otherwise by now (KIP-950). Expiration goes on."""
        for replica in replicas:
            async with self._changing:
                is_led = replica.leadership is not None and replica.leadership.role is Role.LEADER
                if is_led and self._is_current(replica):
                    await self._set_copying(replica, wanted=self._is_copied(replica))
            replica.tasks.wake()

    async def delete(self, event: Leadership, replica: Replica | None) -> None:
        """The cluster has deleted the topic: end what is done for it, and let its tier go if its policy says so."""
        partition = event.partition
        if replica is not None:
            await self.vanished(replica)
            replica.leadership = event
        if self._remover is not None and self._policies(partition.topic).delete_with_topic:
            self._remover.delete_tier(partition)
        else:
            log.warning(
                "topic_deleted_tier_kept",
                partition=str(partition),
                remedy="its tier stays readable; topics.delete_with_topic removes it with the topic",
            )

    async def _begin(self, replica: Replica) -> None:
        await self._stop_all(replica)
        event = replica.leadership
        if event is None or not self._is_current(replica):
            return
        match event.role:
            case Role.LEADER:
                tasks, local = replica.tasks, replica.local
                tasks.sweep = self._factory.sweep(local)
                tasks.expire = self._factory.expiration_task(local, event.leader_epoch, tasks.sweep)
                self.supervisor.start(tasks.expire)
                await self._set_copying(replica, wanted=self._is_copied(replica))
            case Role.FOLLOWER:
                self._factory.deletion.forget(replica.local.partition)
                self._metadata.follow(replica.local.partition)
                replica.tasks.follow = self._factory.follower_task(replica.local)
                self.supervisor.start(replica.tasks.follow)
            case _:
                self._metadata.stop(replica.local.partition)

    async def _set_copying(self, replica: Replica, *, wanted: bool) -> None:
        tasks, event = replica.tasks, replica.leadership
        assert event is not None, "only who leads copies"
        assert tasks.sweep is not None, "made with the role"
        if wanted and tasks.copy is None:
            assert tasks.expire is not None, "made with the role"
            wake_expiration = tasks.expire.wake.set  # what is new in the tier may be what expires next
            tasks.copy = self._factory.copy_task(replica.local, event, tasks.sweep, wake_expiration)
            self.supervisor.start(tasks.copy)
        elif not wanted:
            await self._stop_copying(replica)
            await replica.local.let_go()

    async def _stop_copying(self, replica: Replica) -> None:
        task, replica.tasks.copy = replica.tasks.copy, None
        if task is not None:
            await self.supervisor.stop(task.name)
            task.close()

    async def _stop_all(self, replica: Replica) -> None:
        await self._stop_copying(replica)
        running, expire = replica.tasks.all(), replica.tasks.expire
        replica.tasks = RoleTasks()
        for task in running:
            await self.supervisor.stop(task.name)
        if expire is not None:
            expire.close()

    def _is_copied(self, replica: Replica) -> bool:
        return self._policies(replica.local.partition.topic).copy_enabled
