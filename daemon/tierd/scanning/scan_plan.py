"""ScanPlan: what a read has to read, fixed when it is planned; later records are not in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from uuid import UUID

from tierd.errors import ScanRequestError
from tierd.log import data_bytes
from tierd.model import IsolationLevel, Lineage, TopicIdPartition, uuid_from_text
from tierd.scanning.positions import EARLIEST, LATEST, Position
from tierd.tiering import TieredLog


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """Wish of a caller.

    Attributes:
        topic: the name.
        topic_id: the incarnation; None takes the one on this host, or the one that was copied last.
        partitions: None for all.
        start: first position.
        end: exclusive end; what is behind the end of a partition is left out.
        isolation: committed reads end at the last stable offset and have no aborted records.
    """

    topic: str
    topic_id: UUID | None = None
    partitions: Sequence[int] | None = None
    start: Position = EARLIEST
    end: Position = LATEST
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED


def parse_request(
    topic: str,
    topic_id: str | None,
    partitions: Sequence[int] | None,
    *,
    start: Position,
    end: Position,
    isolation: str,
) -> ScanRequest:
    """Return the request that a caller of ``scan`` has spelled.

    Raises:
        ScanRequestError: there is no such isolation level, the topic id is none, or a partition is no number.
    """
    return ScanRequest(
        topic=topic,
        topic_id=_parse_topic_id(topic_id),
        partitions=None if partitions is None else _parse_partitions(partitions),
        start=start,
        end=end,
        isolation=_parse_isolation(isolation),
    )


def _parse_partitions(partitions: Sequence[int]) -> tuple[int, ...]:
    wanted = tuple(partitions) if isinstance(partitions, Iterable) else (partitions,)
    if not isinstance(partitions, Iterable) or any(isinstance(n, bool) or not isinstance(n, Integral) for n in wanted):
        raise ScanRequestError(
            f"partitions={partitions!r} has no numbers of partitions", remedy="give numbers, such as partitions=[0, 1]"
        )
    return tuple(map(int, wanted))


def _parse_isolation(text: str) -> IsolationLevel:
    try:
        return IsolationLevel(text)
    except ValueError:
        names = " or ".join(f'"{level.value}"' for level in IsolationLevel)
        raise ScanRequestError(f"isolation={text!r} is no isolation level", remedy=f"give {names}") from None


def _parse_topic_id(text: str | None) -> UUID | None:
    try:
        return None if text is None else uuid_from_text(text)
    except ValueError as error:
        raise ScanRequestError(f"topic_id: {error}", remedy="topics() has the ids") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRange:
    """Range of one partition.

    Attributes:
        start_offset: inclusive.
        end_offset: exclusive; equal to ``start_offset`` where there is nothing to read.
        size_bytes: of the log in the range, as it is stored, about.
        lineage: leader epochs of the log.
    """

    partition: TopicIdPartition
    start_offset: int
    end_offset: int
    size_bytes: int
    lineage: Lineage = field(default_factory=Lineage, repr=False)

    @property
    def offset_count(self) -> int:
        """Return the number of offsets, of which markers and compaction may leave some without a record."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """Ranges of one topic, in order of the partitions.

    Attributes:
        topic_id: the incarnation, as Kafka prints it.
    """

    topic: str
    topic_id: str
    ranges: tuple[ScanRange, ...]
    isolation: IsolationLevel

    @property
    def offset_count(self) -> int:
        """Return the number of offsets of all ranges."""
        return sum(each.offset_count for each in self.ranges)

    @property
    def size_bytes(self) -> int:
        """Return about how many bytes of the logs the ranges have."""
        return sum(each.size_bytes for each in self.ranges)


def stored_bytes(log: TieredLog, start_offset: int, end_offset: int) -> int:
    """Return about how many bytes of a log lie in ``[start_offset, end_offset)``. Blocking: it asks for file sizes."""
    local_start = end_offset if log.local_start_offset is None else min(log.local_start_offset, end_offset)
    size = 0.0
    for readable in log.branch.readable_ranges(start_offset, max(local_start, start_offset)):
        metadata = readable.metadata
        share = (readable.end_offset - readable.start_offset) / (metadata.end_offset + 1 - metadata.start_offset)
        size += metadata.size_bytes * share
    for segment in log.scan.segments if log.scan else ():
        following = segment.next_base_offset
        if segment.base_offset < end_offset and (following is None or following > start_offset):
            last = max(log.end_offset, segment.base_offset + 1) if following is None else following
            within = max(min(end_offset, last) - max(start_offset, segment.base_offset), 0)
            size += data_bytes(segment) * within / (last - segment.base_offset)
    return round(size)
