"""Answers of the commands that remove, made of outcomes: the same from a daemon and without one. Pure."""

from collections.abc import Iterable
from typing import TypedDict

from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition, uuid_to_text
from tierd.serve import (
    DeletedPartition,
    ExpiredPartition,
    ExpiredPartitions,
    ExpiredSegment,
    UndeletedSegment,
    UndeletedSegments,
)
from tierd.tiering import ExpireOutcome, TakenBack


def expire_answer(outcomes: Iterable[ExpireOutcome]) -> ExpiredPartitions:
    """Return the segments of each partition that expire, with the reasons."""
    return ExpiredPartitions(
        tuple(
            ExpiredPartition(
                partition=str(outcome.partition),
                new_log_start_offset=outcome.plan.new_log_start_offset,
                next_due_ms=outcome.plan.next_due_ms,
                deletions=tuple(
                    ExpiredSegment(**_segment(planned.metadata), reason=planned.reason.value, detail=planned.detail)
                    for planned in outcome.plan.deletions
                ),
                error=None if outcome.error is None else str(outcome.error),
                remedy=None if outcome.error is None else outcome.error.remedy,
            )
            for outcome in outcomes
        )
    )


def undelete_answer(name: TopicPartition, taken: Iterable[TakenBack], *, dry_run: bool) -> UndeletedSegments:
    """Return the segments that are back, or would be, the newest first."""
    return UndeletedSegments(
        partition=str(name),
        dry_run=dry_run,
        segments=tuple(
            UndeletedSegment(
                **_segment(each.metadata),
                reason=each.metadata.soft_delete.reason if each.metadata.soft_delete else "",
                log_start_offset=each.log_start_offset,
                problem=each.problem,
            )
            for each in taken
        ),
    )


def partition_answer(partition: TopicIdPartition, *, at_once: bool) -> DeletedPartition:
    """Return the partition whose deletion was accepted."""
    return DeletedPartition(partition=str(partition), topic_id=uuid_to_text(partition.topic_id), at_once=at_once)


class _SegmentFields(TypedDict):
    segment_id: str
    start_offset: int
    end_offset: int
    size_bytes: int
    max_timestamp_ms: int
    state: str
    delete_after_ms: int | None


def _segment(metadata: RemoteLogSegmentMetadata) -> _SegmentFields:
    return {
        "segment_id": uuid_to_text(metadata.segment.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "size_bytes": metadata.size_bytes,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "state": metadata.state.name,
        "delete_after_ms": metadata.soft_delete.delete_after_ms if metadata.soft_delete else None,
    }
