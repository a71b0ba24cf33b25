"""Replica: one partition in a log dir, its role and the tasks of that; and who is told when it comes and goes."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tierd.control import Leadership
from tierd.model import TopicPartition
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.role_tasks import RoleTasks


@dataclass(slots=True)
class Replica:
    """One followed partition.

    Attributes:
        local: its directory as it was last seen.
        leadership: the source's last word about it.
        tasks: what runs for it.
        problem: why it could not be looked at or led the last time, empty when it could.
        scanned_ns: wall clock of the last scan.
    """

    local: PartitionLog
    leadership: Leadership | None = None
    tasks: RoleTasks = field(default_factory=RoleTasks)
    problem: str = ""
    scanned_ns: int = 0

    def is_among(self, partitions: Collection[TopicPartition] | None) -> bool:
        """Whether its partition is one of these; None are all."""
        return partitions is None or self.local.partition.topic_partition in partitions


@dataclass(slots=True)
class LogDirState:
    """One log dir. ``problem`` is empty while it can be listed; ``ignored`` names what is no partition and why."""

    path: Path
    problem: str = ""
    ignored: tuple[tuple[str, str], ...] = ()


class ReplicaListener(Protocol):
    """What is done when replicas come and go."""

    async def appeared(self, replica: Replica) -> None:
        """It is known from now on."""

    async def changed(self, replica: Replica, *, moved: bool) -> None:
        """It was looked at again; ``moved``: its directory is another one."""

    async def vanished(self, replica: Replica) -> None:
        """It is gone from every healthy log dir, and forgotten."""
