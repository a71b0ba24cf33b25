"""ReplicaInventory: the replicas of this host, as a daemon knows them or as they are listed without a daemon."""

from collections.abc import Callable, Iterable
from typing import Protocol

from tierd.app.endpoint.local_replica import LocalReplica
from tierd.app.endpoint.served_topology import KnownPartition
from tierd.control import Role
from tierd.model import TopicIdPartition
from tierd.tiering import Replica, ReplicaTable


class ReplicaInventory(Protocol):
    """Replicas in log dirs."""

    @property
    def revision(self) -> int:
        """Return a number that grows whenever a replica appears, moves, goes or gets another role."""

    def known(self) -> Iterable[KnownPartition]:
        """Yield every replica that can be served, with the leader as far as it is known."""

    def find(self, partition: TopicIdPartition) -> LocalReplica | None:
        """Return the replica of a partition as it is now; None without one."""


class DaemonReplicas:
    """Replicas of a running daemon."""

    def __init__(self, table: ReplicaTable, *, broker_id: int, leads: Callable[[TopicIdPartition], bool]) -> None:
        """Read ``table``; ``leads`` tells if the configuration says that this broker leads a partition."""
        self._table = table
        self._broker_id = broker_id
        self._leads = leads

    @property
    def revision(self) -> int:
        """Return the revision of the table."""
        return self._table.revision

    def known(self) -> Iterable[KnownPartition]:
        """Yield the replicas whose topic is not deleted."""
        for replica in self._table.all():
            leadership, latest = replica.leadership, replica.local.scan.lineage.latest
            if leadership is not None and leadership.role is Role.DELETED:
                continue
            epochs = (leadership.leader_epoch if leadership else -1, latest.epoch if latest else -1)
            leader = self._broker_id if self._is_led(replica) else None
            yield KnownPartition(replica.local.partition, max(epochs), leader)

    def find(self, partition: TopicIdPartition) -> LocalReplica | None:
        """Return the replica of a partition as it is now; None without one."""
        replica = self._table.get(partition)
        return None if replica is None else LocalReplica(replica.local.scan, self._is_led(replica))

    def _is_led(self, replica: Replica) -> bool:
        """Return True if the broker leads the partition; of an empty log no epoch says that yet."""
        if replica.leadership is None:
            return not replica.local.scan.lineage and self._leads(replica.local.partition)
        return replica.leadership.role is Role.LEADER
