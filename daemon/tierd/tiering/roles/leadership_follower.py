"""LeadershipFollower: gives replicas the roles that the leadership source announces."""

import asyncio

import structlog

from tierd.control import LeadershipSource, Role
from tierd.tiering.replicas.replica import Replica, ReplicaTable
from tierd.tiering.roles.role_keeper import RoleKeeper

log = structlog.get_logger()

_LEADERSHIP_DEADLINE_S = 30.0


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
