"""StandbyIdentity: identity of a standby, and the leaders that it listens to."""

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyIdentity:
    """Identity of a standby, and the leaders that it listens to.

    Attributes:
        process_epoch: the replica epoch of all its partitions.
        leaders: node ids of the leaders; None for all.
    """

    cluster_id: str
    node_id: int
    process_epoch: int
    leaders: Collection[int] | None = None

    def admits(self, leader_id: int) -> bool:
        """Return True if the standby keeps partitions of this node."""
        return self.leaders is None or leader_id in self.leaders
