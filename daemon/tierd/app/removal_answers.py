"""What commands that remove answer, as JSON: the same from a daemon and without one."""

from collections.abc import Iterable

from pydantic import JsonValue

from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition, TopicPartition, uuid_to_text
from tierd.tiering import ExpireOutcome, TakenBack


def expire_answers(outcomes: Iterable[ExpireOutcome]) -> list[JsonValue]:
    """One object per partition, with what goes of it and why."""
    return [
        {
            "partition": str(outcome.partition),
            "new_log_start_offset": outcome.plan.new_log_start_offset,
            "next_due_ms": outcome.plan.next_due_ms,
            "deletions": [
                {
                    **_segment(planned.metadata),
                    "reason": planned.reason.value,
                    "detail": planned.detail,
                }
                for planned in outcome.plan.deletions
            ],
            "error": None if outcome.error is None else str(outcome.error),
            "remedy": None if outcome.error is None else outcome.error.remedy,
        }
        for outcome in outcomes
    ]


def undelete_answer(name: TopicPartition, taken: Iterable[TakenBack], *, dry_run: bool) -> dict[str, JsonValue]:
    """Which segments are back, or would be, newest first."""
    return {
        "partition": str(name),
        "dry_run": dry_run,
        "segments": [
            {
                **_segment(each.metadata),
                "reason": each.metadata.soft_delete.reason if each.metadata.soft_delete else "",
                "log_start_offset": each.log_start_offset,
                "problem": each.problem,
            }
            for each in taken
        ],
    }


def partition_answer(partition: TopicIdPartition, *, at_once: bool) -> dict[str, JsonValue]:
    """That a partition's deletion was accepted."""
    return {
        "partition": str(partition),
        "topic_id": uuid_to_text(partition.topic_id),
        "at_once": at_once,
    }


def _segment(metadata: RemoteLogSegmentMetadata) -> dict[str, JsonValue]:
    return {
        "segment_id": uuid_to_text(metadata.segment.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "size_bytes": metadata.size_bytes,
        "max_timestamp_ms": metadata.max_timestamp_ms,
        "state": metadata.state.name,
        "delete_after_ms": metadata.soft_delete.delete_after_ms if metadata.soft_delete else None,
    }
