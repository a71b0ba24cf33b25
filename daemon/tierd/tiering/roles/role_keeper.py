"""RoleKeeper: gives every replica the tasks of its announced role, and no others (remote-tiering 9.1 to 9.3, 13).

::

    leader     copy (while the topic is copied), expire
    follower   follow
    deleted    none; the tier goes with the topic where its policy says so
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from tierd.control import Leadership, LeadershipSource, Role
from tierd.metadata import RemoteLogMetadataManager
from tierd.model import TopicIdPartition
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.partition_removal import PartitionRemover
from tierd.tiering.replicas.replica import Replica, ReplicaTable, RoleTasks
from tierd.tiering.roles.task_factory import TaskFactory
from tierd.tiering.supervision import Supervisor
from tierd.tiering.topic_policy import FindTopicPolicy

log = structlog.get_logger()

_LEADERSHIP_DEADLINE_S = 30.0


class RoleKeeper:
    """Keeper of the tasks of replicas: starts and stops them, one change at a time. A ``ReplicaListener``."""

    def __init__(
        self,
        factory: TaskFactory,
        *,
        supervisor: Supervisor,
        replicas: ReplicaTable,
        metadata: RemoteLogMetadataManager,
        policies: FindTopicPolicy,
        deletion: SegmentDeletion,
        remover: PartitionRemover,
        on_vanished: Callable[[TopicIdPartition], None],
    ) -> None:
        """Start nothing yet.

        Args:
            factory: makes tasks.
            supervisor: runs tasks.
            replicas: the replicas of this host.
            metadata: learns of a role before the tasks of the role start.
            policies: tell if a topic is copied, and if the tier of a deleted topic is deleted.
            deletion: forgets what the store keeps of a partition that is not led here.
            remover: takes over the tier of a deleted partition.
            on_vanished: is called when a replica has left this host and its tasks have ended.
        """
        self._supervisor = supervisor
        self._factory = factory
        self._replicas = replicas
        self._metadata = metadata
        self._policies = policies
        self._deletion = deletion
        self._remover = remover
        self._on_vanished = on_vanished
        self._changing = asyncio.Lock()

    async def appeared(self, replica: Replica) -> None:
        """Log a replica that was found; the leadership source announces its role later."""
        log.debug("partition_found", partition=str(replica.local.partition), path=str(replica.local.path))

    async def changed(self, replica: Replica, *, moved: bool) -> None:
        """Wake the tasks of a replica that changed; a replica that moved gets new tasks for its new directory."""
        if moved and replica.leadership is not None:
            log.info("partition_moved", partition=str(replica.local.partition), path=str(replica.local.path))
            async with self._changing:
                await self._begin(replica)
        else:
            replica.tasks.wake()

    async def vanished(self, replica: Replica) -> None:
        """Stop the tasks of a replica that is gone, and forget its partition."""
        async with self._changing:
            await self._stop_all(replica)
            self._deletion.forget(replica.local.partition)
            self._metadata.stop(replica.local.partition)
        self._on_vanished(replica.local.partition)

    async def assign(self, replica: Replica, event: Leadership) -> None:
        """Give the replica the announced role; a role that the replica has already changes nothing.

        A leader of a higher epoch gets new tasks: its log may have been truncated in between.
        """
        async with self._changing:
            known = self._replicas.assign(replica, event)
            if known is not None and replica.tasks.all():
                is_same_term = known.leader_epoch == event.leader_epoch or event.role is Role.FOLLOWER
                if known.role is event.role and is_same_term:
                    return
            await self._begin(replica)

    async def follow_policies(self, replicas: Iterable[Replica]) -> None:
        """Start and stop copy tasks where the topic's switch has changed (KIP-950). Expiration goes on."""
        for replica in replicas:
            async with self._changing:
                is_led = replica.leadership is not None and replica.leadership.role is Role.LEADER
                if is_led and self._replicas.is_current(replica):
                    await self._set_copying(replica, wanted=self._is_copied(replica))
            replica.tasks.wake()

    async def delete(self, event: Leadership, replica: Replica | None) -> None:
        """Stop the tasks of a partition whose topic the cluster deleted; delete its tier if its policy says so."""
        partition = event.partition
        if replica is not None:
            await self.vanished(replica)
            replica.leadership = event
        if self._policies(partition.topic).delete_with_topic:
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
        if event is None or not self._replicas.is_current(replica):
            return
        match event.role:
            case Role.LEADER:
                tasks, local = replica.tasks, replica.local
                tasks.sweep = self._factory.sweep(local)
                tasks.expire = self._factory.expiration_task(local, event.leader_epoch, tasks.sweep)
                self._supervisor.start(tasks.expire)
                await self._set_copying(replica, wanted=self._is_copied(replica))
            case Role.FOLLOWER:
                self._deletion.forget(replica.local.partition)
                self._metadata.follow(replica.local.partition)
                replica.tasks.follow = self._factory.follower_task(replica.local)
                self._supervisor.start(replica.tasks.follow)
            case _:
                self._metadata.stop(replica.local.partition)

    async def _set_copying(self, replica: Replica, *, wanted: bool) -> None:
        tasks, event = replica.tasks, replica.leadership
        assert event is not None, "only a leader copies"
        assert tasks.sweep is not None, "made with the role"
        if wanted and tasks.copy is None:
            assert tasks.expire is not None, "made with the role"
            wake_expiration = tasks.expire.wake.set  # what is new in the tier may be what expires next
            tasks.copy = self._factory.copy_task(replica.local, event, tasks.sweep, wake_expiration)
            self._supervisor.start(tasks.copy)
        elif not wanted:
            await self._stop_copying(replica)
            await replica.local.release()

    async def _stop_copying(self, replica: Replica) -> None:
        task, replica.tasks.copy = replica.tasks.copy, None
        if task is not None:
            await self._supervisor.stop(task.name)
            task.close()

    async def _stop_all(self, replica: Replica) -> None:
        await self._stop_copying(replica)
        running, expire = replica.tasks.all(), replica.tasks.expire
        replica.tasks = RoleTasks()
        for task in running:
            await self._supervisor.stop(task.name)
        if expire is not None:
            expire.close()

    def _is_copied(self, replica: Replica) -> bool:
        return self._policies(replica.local.partition.topic).copy_enabled


class LeadershipFollower:
    """Link between the leadership source and the keeper of roles. Announcements are applied in order."""

    def __init__(self, leadership: LeadershipSource, *, replicas: ReplicaTable, roles: RoleKeeper) -> None:
        self._leadership = leadership
        self._replicas = replicas
        self._roles = roles
        self._role_changed = asyncio.Event()

    async def follow(self) -> None:
        """Apply announcements until cancelled."""
        async for event in self._leadership.changes():
            replica = self._replicas.get(event.partition)
            if event.role is Role.DELETED:
                await self._roles.delete(event, replica)
            elif replica is not None:
                await self._roles.assign(replica, event)
                self._role_changed.set()

    async def follow_policies(self) -> None:
        """Apply the topics' policies of this moment to all replicas: the configuration or a topic has changed."""
        await self._roles.follow_policies(self._replicas.all())

    async def roles_known(self) -> None:
        """Wait, with a deadline, until the latest epoch of every replica that has an epoch was announced."""
        try:
            async with asyncio.timeout(_LEADERSHIP_DEADLINE_S):
                while any(_awaits_role(replica) for replica in self._replicas.all()):
                    self._role_changed.clear()
                    await self._role_changed.wait()
        except TimeoutError:
            log.warning("leadership_unknown")


def _awaits_role(replica: Replica) -> bool:
    latest = replica.local.scan.lineage.latest
    return latest is not None and (replica.leadership is None or replica.leadership.leader_epoch < latest.epoch)
