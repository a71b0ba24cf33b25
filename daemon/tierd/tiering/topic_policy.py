"""TopicPolicy: retention, cleanup and copying of a topic, from configuration and broker together."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

UNLIMITED: Final = -1
AS_TOTAL: Final = -2  # Kafka's default of local retention


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPolicy:
    """Settings of one topic that this room obeys. ``-1`` is no limit, as in Kafka; units are in the names.

    Attributes:
        retention_ms: age at which records leave the total log.
        retention_bytes: size of the total log of one partition, each byte counted once.
        local_retention_ms: age at which records leave the local disk, in logs of tierd; -2 stands for ``retention_ms``.
        local_retention_bytes: size on local disk, in logs of tierd; -2 stands for ``retention_bytes``.
        cleanup_policy: any of ``delete`` and ``compact``; retention by time and size needs ``delete``.
        copy_enabled: False stops copying; what is in the tier stays readable and expires (KIP-950).
        copy_lag_ms: a segment waits that long before it is copied (KIP-1241).
        copy_lag_bytes: or until that much has followed it; -1 is the local retention.
        segment_bytes: size at which tierd rolls a segment of its own logs.
        delete_with_topic: the tier is deleted when the cluster says that the topic was deleted.
    """

    retention_ms: int = UNLIMITED
    retention_bytes: int = UNLIMITED
    local_retention_ms: int = AS_TOTAL
    local_retention_bytes: int = AS_TOTAL
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    copy_enabled: bool = True
    copy_lag_ms: int = 0
    copy_lag_bytes: int = UNLIMITED
    segment_bytes: int = 1 << 30
    delete_with_topic: bool = False

    @property
    def deletes(self) -> bool:
        """Return True if retention by time and size applies (Kafka: a compacted topic without delete keeps all)."""
        return "delete" in self.cleanup_policy

    @property
    def expires_ms(self) -> int:
        """Return the age at which a remote segment expires; -1 for never."""
        return self.retention_ms if self.deletes else UNLIMITED

    @property
    def expires_bytes(self) -> int:
        """Return the size above which remote segments expire; -1 for never."""
        return self.retention_bytes if self.deletes else UNLIMITED

    @property
    def effective_local_retention_ms(self) -> int:
        """Return the age at which a local segment may go, -2 resolved."""
        return self.retention_ms if self.local_retention_ms == AS_TOTAL else self.local_retention_ms

    @property
    def effective_local_retention_bytes(self) -> int:
        """Return the size above which local segments may go, -2 resolved."""
        return self.retention_bytes if self.local_retention_bytes == AS_TOTAL else self.local_retention_bytes


FindTopicPolicy = Callable[[str], TopicPolicy]
"""Lookup of the policy of a topic as it is in force now, by name."""
