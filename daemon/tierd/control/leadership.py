"""LeadershipSource: the partitions that this broker leads, each with its leader epoch."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from tierd.model import TopicIdPartition


class Role(Enum):
    """Role of this broker for a partition."""

    LEADER = "leader"
    FOLLOWER = "follower"
    DELETED = "deleted"
    """The cluster does not know the topic id any more. Final; replicas that have left this host get this role, too."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """A partition's role from now on.

    Attributes:
        is_sole_replica: the cluster named this broker as the only one with a replica when the role began. False where
            that is not known. Two events that differ in this alone are equal: no event reports only this.
    """

    partition: TopicIdPartition
    leader_epoch: int
    role: Role
    is_sole_replica: bool = field(default=False, compare=False)


class LeadershipSource(Protocol):
    """A source of roles. A later event about a partition replaces the earlier one."""

    def observe(self, partition: TopicIdPartition, leader_epoch: int | None) -> None:
        """Take note of a local replica and the latest epoch in its checkpoint, None while it has none."""

    def forget(self, partition: TopicIdPartition) -> None:
        """Note that the replica is gone from this host."""

    def changes(self) -> AsyncIterator[Leadership]:
        """Yield every role as it begins or changes; ends never. One consumer."""
