"""Groups of neighbouring segments that become one (log-format 9.3; Kafka: Cleaner.groupSegmentsBySize)."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Final, Self
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata
from tierd.pipeline.planning.chain import Chain
from tierd.pipeline.planning.work_order import Group

MAX_OFFSET_SPAN: Final = 2**31 - 1
INDEX_INTERVAL_BYTES: Final = 4096
_TIME_INDEX_ENTRY_BYTES: Final = 12  # the larger of the two


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Limits of one output, measured by its inputs.

    Attributes:
        segment_bytes: bytes of the log.
        index_bytes: bytes of each index, which is built anew at one entry per ``INDEX_INTERVAL_BYTES``.
        age_spread_ms: time between the newest records of any two inputs; None for no such rule.
    """

    segment_bytes: int
    index_bytes: int = 10 << 20
    age_spread_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sum:
    """Totals of a group so far."""

    first_offset: int
    log_bytes: int
    index_bytes: int
    oldest_ms: int
    newest_ms: int

    @classmethod
    def of(cls, metadata: RemoteLogSegmentMetadata) -> Self:
        return cls(
            first_offset=metadata.start_offset,
            log_bytes=metadata.size_bytes,
            index_bytes=index_bytes(metadata.size_bytes),
            oldest_ms=metadata.max_timestamp_ms,
            newest_ms=metadata.max_timestamp_ms,
        )

    def plus(self, following: RemoteLogSegmentMetadata) -> Self:
        return type(self)(
            first_offset=self.first_offset,
            log_bytes=self.log_bytes + following.size_bytes,
            index_bytes=self.index_bytes + index_bytes(following.size_bytes),
            oldest_ms=min(self.oldest_ms, following.max_timestamp_ms),
            newest_ms=max(self.newest_ms, following.max_timestamp_ms),
        )

    def is_within(self, limits: GroupLimits) -> bool:
        spread_ms = self.newest_ms - self.oldest_ms
        return (
            self.log_bytes <= limits.segment_bytes
            and self.index_bytes <= limits.index_bytes
            and (limits.age_spread_ms is None or spread_ms <= limits.age_spread_ms)
        )


def index_bytes(log_bytes: int) -> int:
    """Return the size that the larger index of a log of that size has at most."""
    return (log_bytes // INDEX_INTERVAL_BYTES + 1) * _TIME_INDEX_ENTRY_BYTES if log_bytes else 0


def compaction_groups(chain: Chain, limits: GroupLimits) -> tuple[Group, ...]:
    """Put every segment in a group, each group as large as the limits allow; no group crosses a break."""
    return _packed(chain, limits, lambda _: True)


def merge_groups(
    chain: Chain, limits: GroupLimits, *, may_merge: Callable[[RemoteLogSegmentMetadata], bool]
) -> tuple[Group, ...]:
    """Group two or more neighbours that may all be merged, as many as the limits allow; no group crosses a break."""
    return tuple(group for group in _packed(chain, limits, may_merge) if group.last > group.first)


def single_groups(chain: Chain, *, but: Container[UUID]) -> tuple[Group, ...]:
    """Put every segment in a group by itself, except for the ids in ``but``."""
    ids = (metadata.segment.id for metadata in chain.segments)
    return tuple(Group(place, place) for place, segment_id in enumerate(ids) if segment_id not in but)


def _packed(
    chain: Chain, limits: GroupLimits, may_join: Callable[[RemoteLogSegmentMetadata], bool]
) -> tuple[Group, ...]:
    groups: list[Group] = []
    total: _Sum | None = None
    for place, metadata in enumerate(chain.segments):
        if not may_join(metadata):
            total = None
            continue
        larger = None if total is None or place in chain.breaks else total.plus(metadata)
        if larger is not None and larger.is_within(limits) and _reaches(larger, metadata):
            groups[-1] = Group(groups[-1].first, place)
            total = larger
        else:
            groups.append(Group(place, place))
            total = _Sum.of(metadata)
    return tuple(groups)


def _reaches(total: _Sum, following: RemoteLogSegmentMetadata) -> bool:
    """Return True if offsets relative to the group's base still fit its indexes; an empty log has no entries there."""
    return following.size_bytes == 0 or following.end_offset - total.first_offset <= MAX_OFFSET_SPAN
