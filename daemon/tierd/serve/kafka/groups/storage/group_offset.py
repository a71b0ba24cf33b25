"""GroupOffset: one position of a group, and the rule by which it expires (KIP-211)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID


class OffsetKey(NamedTuple):
    """Partition that a position is of. A topic that is deleted and made anew has another id, and no positions."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One committed position.

    Attributes:
        topic: name of the topic when it was committed.
        offset: of the next record to read; -1 as a client may commit it, for none.
        leader_epoch: of the last record that was read; -1 where the client does not know it.
        metadata: of the client's choice.
        commit_ms: wall clock of the commit.
        expire_ms: wall clock from which on it has expired, as the client wished (OffsetCommit 2 to 4); else None.
    """

    topic: str
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None = None

    @property
    def size_bytes(self) -> int:
        """Return about the bytes that the position takes in memory."""
        return 300 + len(self.topic) + 4 * len(self.metadata)

    def is_expired(self, base_ms: int, *, now_ms: int, retention_s: float) -> bool:
        """Return True if the position has expired; ``base_ms`` is the time from which the retention counts."""
        if self.expire_ms is not None:
            return self.expire_ms <= now_ms
        return now_ms - base_ms >= retention_s * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionCircumstances:
    """State of a group as far as it decides on expiry.

    Attributes:
        protocol_type: None for a group that only simple consumers use.
        empty_since_ms: None while the group has members.
        subscriptions: topics that members of a stable group of consumers subscribe to; None where they are not known.
    """

    protocol_type: str | None
    empty_since_ms: int | None
    subscriptions: frozenset[str] | None


def expired_offsets(
    offsets: Mapping[OffsetKey, GroupOffset],
    group: RetentionCircumstances,
    *,
    now_ms: int,
    retention_s: float,
) -> list[OffsetKey]:
    """Return the positions of a group that have expired.

    Those of a group without members count from the moment it lost the last one, those of a simple group from their
    commits. Of a stable group of consumers, topics that no member subscribes to any more expire from their commits;
    otherwise a group with members keeps all.
    """
    if group.protocol_type is not None and group.empty_since_ms is not None:
        bases = dict.fromkeys(offsets, group.empty_since_ms)
    elif group.protocol_type is None or group.subscriptions is not None:
        kept = group.subscriptions or frozenset()
        bases = {key: each.commit_ms for key, each in offsets.items() if each.topic not in kept}
    else:
        return []
    return [
        key
        for key, base_ms in bases.items()
        if offsets[key].is_expired(base_ms, now_ms=now_ms, retention_s=retention_s)
    ]
