"""Replica: one partition in a log dir, with the tasks of its role. ReplicaTable: all replicas of this host."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tierd.control import Leadership, Role
from tierd.model import TopicIdPartition, TopicPartition
from tierd.tiering.copying.copy_task import CopyTask
from tierd.tiering.copying.follower_task import FollowerTask
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.removing.expiring.expiration_task import ExpirationTask
from tierd.tiering.removing.sweep import DanglingSweep
from tierd.tiering.supervision import PartitionTask


@dataclass(slots=True)
class RoleTasks:
    """Tasks of one replica; none of them while its role is not known.

    Attributes:
        copy: while the replica is led and its topic is copied.
        expire: while the replica is led.
        follow: while the replica is followed.
        sweep: the sweep that ``copy`` and ``expire`` share.
    """

    copy: CopyTask | None = None
    expire: ExpirationTask | None = None
    follow: FollowerTask | None = None
    sweep: DanglingSweep | None = None

    def all(self) -> tuple[PartitionTask, ...]:
        """Return the tasks that run."""
        return tuple(task for task in (self.copy, self.expire, self.follow) if task is not None)

    def wake(self) -> None:
        """Wake all tasks: they may have new work."""
        for task in self.all():
            task.wake.set()


@dataclass(slots=True)
class Replica:
    """Partition in a log dir of this host.

    Attributes:
        local: the partition directory as the last scan saw it.
        leadership: the latest announcement of the leadership source; None before the first one.
        tasks: the tasks of the replica's role.
        problem: why the last scan failed, or why the replica cannot be led; empty without a problem.
        scanned_ns: wall clock of the last scan.
    """

    local: PartitionLog
    leadership: Leadership | None = None
    tasks: RoleTasks = field(default_factory=RoleTasks)
    problem: str = ""
    scanned_ns: int = 0

    def is_among(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Return whether the replica's partition is one of ``partitions``; None stands for all partitions."""
        return partitions is None or self.local.partition.topic_partition in partitions


class ReplicaTable:
    """Replicas of this host, by identity and by directory. ``ReplicaScanner`` keeps it in line with the disk.

    Attributes:
        revision: grows whenever a replica appears, moves, goes or gets another role.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._replicas: dict[TopicIdPartition, Replica] = {}
        self._by_path: dict[Path, TopicIdPartition] = {}

    def all(self) -> tuple[Replica, ...]:
        """Return every replica."""
        return tuple(self._replicas.values())

    def get(self, partition: TopicIdPartition) -> Replica | None:
        """Return the replica of ``partition``; None when no log dir has one."""
        return self._replicas.get(partition)

    def at(self, path: Path) -> Replica | None:
        """Return the replica in the directory ``path``; None when no replica lies there."""
        partition = self._by_path.get(path)
        return self._replicas.get(partition) if partition else None

    def paths(self) -> tuple[Path, ...]:
        """Return the directory of every replica."""
        return tuple(self._by_path)

    def is_here(self, partition: TopicIdPartition) -> bool:
        """Return whether a log dir of this host holds ``partition``, as last listed."""
        return partition in self._replicas

    def is_current(self, replica: Replica) -> bool:
        """Return whether ``replica`` is still the replica of its partition."""
        return self._replicas.get(replica.local.partition) is replica

    def led(self) -> dict[TopicIdPartition, int]:
        """Return the leader epochs of the partitions that this broker leads, as announced last."""
        announced = [replica.leadership for replica in self._replicas.values() if replica.leadership is not None]
        return {each.partition: each.leader_epoch for each in announced if each.role is Role.LEADER}

    def loaded(self) -> list[TopicIdPartition]:
        """Return the copied partitions whose metadata is claimed and was loaded."""
        tasks = [(partition, replica.tasks.copy) for partition, replica in self._replicas.items()]
        return [partition for partition, copy in tasks if copy is not None and copy.loaded.is_set()]

    def assign(self, replica: Replica, event: Leadership) -> Leadership | None:
        """Give ``replica`` the role of ``event``; return the announcement before it."""
        known, replica.leadership = replica.leadership, event
        self.revision += known != event
        return known

    def add(self, replica: Replica) -> None:
        """Add a replica under its present directory."""
        self.revision += 1
        self._replicas[replica.local.partition] = replica
        self._by_path[replica.local.path] = replica.local.partition

    def move(self, replica: Replica, path: Path) -> None:
        """Find ``replica`` under the directory ``path`` from now on."""
        self.revision += 1
        self._by_path.pop(replica.local.path, None)
        self._by_path[path] = replica.local.partition

    def remove(self, partition: TopicIdPartition) -> Replica:
        """Remove the replica of ``partition`` and return it."""
        self.revision += 1
        replica = self._replicas.pop(partition)
        self._by_path.pop(replica.local.path, None)
        return replica


@dataclass(slots=True)
class LogDirState:
    """State of one log dir.

    Attributes:
        path: the log dir.
        problem: why the log dir cannot be listed; empty while it can.
        ignored: names in the log dir that are no partitions, each with the reason.
    """

    path: Path
    problem: str = ""
    ignored: tuple[tuple[str, str], ...] = ()


class ReplicaListener(Protocol):
    """Receiver of what happens to replicas."""

    async def appeared(self, replica: Replica) -> None:
        """Take note of a replica that was found."""

    async def changed(self, replica: Replica, *, moved: bool) -> None:
        """Take note of a new scan; ``moved``: the replica lies in another directory now."""

    async def vanished(self, replica: Replica) -> None:
        """Take note of a replica that is in no healthy log dir any more."""
