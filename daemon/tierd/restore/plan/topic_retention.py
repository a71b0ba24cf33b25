"""Retention of a restored topic (trap 6). Decisions only.

A broker deletes segments soon after its start, if the topic's retention is over. Settings hold the retention until a
person has seen the data, and others lift the hold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, NamedTuple
from uuid import UUID

from tierd.model import RemoteLogSegmentMetadata

_UNLIMITED: Final = -1

HELD_SETTINGS: Final[Mapping[str, str]] = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic whose retention is held: nothing is too old, and nothing is too much."""

_HELD: Final = "-1"


class TopicRetention(NamedTuple):
    """Retention of a topic in Kafka; -1 is no limit. A topic that is only compacted has no limit of either kind."""

    retention_ms: int = _UNLIMITED
    retention_bytes: int = _UNLIMITED


KAFKA_DEFAULT: Final = TopicRetention(retention_ms=7 * 86_400_000)
"""Retention of a topic and a broker without settings."""


def expired_first(segments: Sequence[RemoteLogSegmentMetadata], retention: TopicRetention, *, now_ms: int) -> int:
    """Return how many of the first ``segments``, ascending, a broker deletes (Kafka: UnifiedLog.deleteOldSegments).

    A segment without records takes the time of its file, which is new, and ends the deletion by time.
    """
    return max(_expired_by_time(segments, retention, now_ms), _expired_by_size(segments, retention))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldRetention:
    """Retention that tierd holds, and the settings that the topic had of its own.

    Attributes:
        cluster_id: of the cluster that has the topic.
        before: value of each of ``HELD_SETTINGS`` before the hold; None where the default of the brokers counted.
        held_ms: wall clock.
    """

    cluster_id: str
    topic: str
    topic_id: UUID
    before: Mapping[str, str | None]
    held_ms: int


def settings_before(own: Mapping[str, str], kept: HeldRetention | None) -> dict[str, str | None]:
    """Return the values to set when the hold ends.

    Args:
        own: present settings of the topic that differ from the defaults of the brokers.
        kept: record of an earlier hold that nothing has lifted. Of a setting that is still held, the record knows the
            value before.
    """
    earlier: Mapping[str, str | None] = {} if kept is None else kept.before
    return {key: earlier[key] if own.get(key) == _HELD and key in earlier else own.get(key) for key in HELD_SETTINGS}


def is_held(own: Mapping[str, str]) -> bool:
    """Return True if the topic's settings hold the retention already."""
    return all(own.get(key) == value for key, value in HELD_SETTINGS.items())


def lifting_changes(before: Mapping[str, str | None], own: Mapping[str, str]) -> dict[str, str | None]:
    """Return the changes that lift a hold; None sets the default. A setting that was changed meanwhile stays."""
    return {key: value for key, value in before.items() if own.get(key) == _HELD and value != _HELD}


def hold_command(topic: str, bootstrap: str) -> str:
    """Return the command of Kafka that holds the retention of a topic."""
    return change_command(topic, HELD_SETTINGS, bootstrap)


def lift_command(topic: str, before: Mapping[str, str | None] | None, bootstrap: str) -> str:
    """Return the command of Kafka that lifts the hold; ``before`` is None where the settings are not known."""
    return change_command(topic, dict.fromkeys(HELD_SETTINGS) if before is None else before, bootstrap)


def change_command(topic: str, changes: Mapping[str, str | None], bootstrap: str) -> str:
    """Return the command of Kafka that changes settings of a topic; None sets the default."""
    values = ",".join(f"{key}={value}" for key, value in changes.items() if value is not None)
    defaults = ",".join(key for key, value in changes.items() if value is None)
    options = [f"--add-config {values}"] if values else []
    options += [f"--delete-config {defaults}"] if defaults else []
    return (
        f"kafka-configs.sh --bootstrap-server {bootstrap} --alter --entity-type topics --entity-name {topic} "
        f"{' '.join(options)}"
    )


def _expired_by_time(segments: Sequence[RemoteLogSegmentMetadata], retention: TopicRetention, now_ms: int) -> int:
    if retention.retention_ms < 0:
        return 0
    before_ms = now_ms - retention.retention_ms
    return sum(1 for _ in takewhile(lambda m: 0 <= m.max_timestamp_ms < before_ms, segments))


def _expired_by_size(segments: Sequence[RemoteLogSegmentMetadata], retention: TopicRetention) -> int:
    if retention.retention_bytes < 0:
        return 0
    excess, count = sum(m.size_bytes for m in segments) - retention.retention_bytes, 0
    for metadata in segments:
        excess -= metadata.size_bytes
        if excess < 0:
            break
        count += 1
    return count
