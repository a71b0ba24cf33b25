"""Inventory of the tier: contents of partitions and topics, from the rows and manifests of their segments. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFacts:
    """Facts that only the manifests of segments have.

    Attributes:
        manifests: number of manifests.
        record_count: records of their segments, with markers and the records of aborted transactions.
        stored_bytes: size of logs and indexes in the store, after compression and encryption.
        log_bytes: size of the same logs as in Kafka.
    """

    manifests: int = 1
    record_count: int
    stored_bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierContents:
    """Contents of one partition in the tier, or of several.

    Attributes:
        partitions: number of partitions with a row.
        segments: number of finished segments.
        size_bytes: of their logs as in Kafka, before compression and encryption.
        offsets: number of offsets that they cover, each counted once: records, markers, and what a cleaner removed.
        oldest_ms: smallest of their largest record timestamps; None without a record timestamp.
        newest_ms: largest record timestamp; None without one.
        unfinished_segments: copies that are under way or were interrupted.
        expired_segments: segments in their grace, which ``tierd undelete`` takes back.
        expired_bytes: of their logs.
        facts: sums of the manifests; None if they were not read.
    """

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    offsets: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    unfinished_segments: int = 0
    expired_segments: int = 0
    expired_bytes: int = 0
    facts: ManifestFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInventory:
    """Contents of one partition in the tier, with their range.

    Attributes:
        start_offset: first offset of the finished segments, inclusive; None without one.
        end_offset: exclusive end of their offsets; None without one.
    """

    partition: TopicIdPartition
    start_offset: int | None
    end_offset: int | None
    contents: TierContents


def partition_inventory(
    partition: TopicIdPartition,
    rows: Iterable[RemoteLogSegmentMetadata],
    manifests: Mapping[UUID, ManifestFacts] | None = None,
) -> PartitionInventory:
    """Return the contents of a partition in the tier.

    Args:
        partition: the partition.
        rows: of its remote segments, in any state and order.
        manifests: of finished segments, by segment id, as far as they could be read; None where they were not read.
    """
    rows = list(rows)
    finished = [row for row in rows if row.state is RemoteLogSegmentState.COPY_SEGMENT_FINISHED]
    expired = [row for row in rows if row.soft_delete is not None and not row.soft_delete.is_replaced]
    ids = [row.segment.id for row in finished]
    times = [row.max_timestamp_ms for row in finished if row.max_timestamp_ms >= 0]
    return PartitionInventory(
        partition=partition,
        start_offset=min((row.first_readable_offset for row in finished), default=None),
        end_offset=max((row.end_offset + 1 for row in finished), default=None),
        contents=TierContents(
            partitions=1,
            segments=len(finished),
            size_bytes=sum(row.size_bytes for row in finished),
            offsets=_covered(finished),
            oldest_ms=min(times, default=None),
            newest_ms=max(times, default=None),
            unfinished_segments=sum(row.state is RemoteLogSegmentState.COPY_SEGMENT_STARTED for row in rows),
            expired_segments=len(expired),
            expired_bytes=sum(row.size_bytes for row in expired),
            facts=None if manifests is None else _sum_facts(map(manifests.get, ids)),
        ),
    )


def sum_contents(contents: Iterable[TierContents]) -> TierContents:
    """Return the contents of several partitions together; every number is 0 or None where there is none."""
    each = list(contents)
    return TierContents(
        partitions=sum(one.partitions for one in each),
        segments=sum(one.segments for one in each),
        size_bytes=sum(one.size_bytes for one in each),
        offsets=sum(one.offsets for one in each),
        oldest_ms=min((one.oldest_ms for one in each if one.oldest_ms is not None), default=None),
        newest_ms=max((one.newest_ms for one in each if one.newest_ms is not None), default=None),
        unfinished_segments=sum(one.unfinished_segments for one in each),
        expired_segments=sum(one.expired_segments for one in each),
        expired_bytes=sum(one.expired_bytes for one in each),
        facts=_sum_facts(one.facts for one in each) if any(one.facts for one in each) else None,
    )


def _covered(segments: Iterable[RemoteLogSegmentMetadata]) -> int:
    """Return the number of offsets in the ranges of segments, which may overlap after an election."""
    covered, end = 0, -1
    for first, last in sorted((each.first_readable_offset, each.end_offset) for each in segments):
        covered += max(0, last - max(first - 1, end))
        end = max(end, last)
    return covered


def _sum_facts(facts: Iterable[ManifestFacts | None]) -> ManifestFacts:
    known = [each for each in facts if each is not None]
    return ManifestFacts(
        manifests=sum(each.manifests for each in known),
        record_count=sum(each.record_count for each in known),
        stored_bytes=sum(each.stored_bytes for each in known),
        log_bytes=sum(each.log_bytes for each in known),
    )
