"""Requests and answers of push replication, as values (push-replication 2.6, 3.2 to 3.4). ``wire`` encodes them.

A partition is named by topic id and number. Only ``AssignedPartition`` has the topic's name. ``error_code`` is a plain
number: a newer peer may send one that ``PushErrorCode`` does not have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from tierd.replication.model.replication_state import ReplicationMode

RecordBytes = bytes | memoryview


class PushApi(IntEnum):
    """Key of a request. A Kafka listener never has these keys."""

    HELLO = 32000
    APPEND_RECORDS = 32001
    FETCH_RECORDS = 32002
    EPOCH_END_OFFSETS = 32003
    LOG_BOUNDS = 32004
    ASSIGNMENTS = 32005


class ApiVersions(NamedTuple):
    """Versions of an API that a peer understands, both inclusive."""

    api_key: int
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloMessage:
    """First message of a connection, in both directions; ``error_code`` is 0 in the request."""

    error_code: int = 0
    cluster_id: str
    node_id: int
    process_epoch: int
    """Wall time of the process's start in ms, and larger than the last one that the node stored."""
    software_name: str
    software_version: str
    apis: tuple[ApiVersions, ...]
    features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAppend:
    """One partition of an AppendRecords request."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    session_id: int
    append_offset: int
    """Log end offset that the follower is expected to have; -1 without records and without a check."""
    last_epoch: int
    """Leader epoch of the record before ``append_offset`` on the leader; -1 without one."""
    high_watermark: int = -1
    """-1: unchanged."""
    log_start_offset: int = -1
    """-1: unchanged."""
    end_session: bool = False
    end_reason: int = 0
    records: Sequence[RecordBytes] | None = None
    """Whole batches as they are in the leader's log, in one or more pieces; a decoded message has one piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRecordsRequest:
    """Request of a leader. The order of the partitions is kept."""

    cluster_id: str
    leader_id: int
    leader_process_epoch: int
    replica_epoch: int
    """Process epoch of the follower, as the leader knows it."""
    partitions: tuple[PartitionAppend, ...]


class DivergingEpoch(NamedTuple):
    """Largest epoch at or below the one that was asked for, and its exclusive end offset."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAppendResult:
    """Answer for one partition of an AppendRecords request."""

    topic_id: UUID
    partition: int
    error_code: int
    log_end_offset: int = -1
    log_start_offset: int = -1
    session_id: int = -1
    """The follower's present one."""
    diverging: DivergingEpoch | None = None
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRecordsResponse:
    """Answer of a follower. An ``error_code`` other than 0 is for all partitions of the request."""

    throttle_ms: int = 0
    error_code: int = 0
    partitions: tuple[PartitionAppendResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetch:
    """One partition of a FetchRecords request."""

    topic_id: UUID
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    """Leader epoch of the follower's last record; -1 for an empty log."""
    log_start_offset: int
    max_bytes: int
    session_id: int
    mode: ReplicationMode = ReplicationMode.PULL
    compared_version: int = -1
    """Version of the leader's log with which the follower has compared its own; 0 for none yet. -1 for a follower of an
    earlier version of tierd, which compares nothing."""
    is_comparison: bool = False
    """The follower has the records, and compares them: it gets them at once, and no session begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRecordsRequest:
    """Long poll of a follower in pull mode."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: tuple[ReplicaFetch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFetchResult:
    """Answer for one partition of a FetchRecords request.

    With ``diverging``, the follower truncates and applies nothing else of the answer.
    """

    topic_id: UUID
    partition: int
    error_code: int
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: DivergingEpoch | None = None
    session_id: int = -1
    push_started: bool = False
    log_version: int = 0
    """Version of the leader's log, another one after each cut; 0 where the follower has compared its log with it."""
    records: Sequence[RecordBytes] = ()
    """Whole batches, in one or more pieces; a decoded message has at most one piece."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRecordsResponse:
    """Answer of a leader. An ``error_code`` other than 0 is for all partitions of the request."""

    throttle_ms: int = 0
    error_code: int = 0
    partitions: tuple[PartitionFetchResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochQuery:
    """Question for the end offset of ``epoch``; of a LogBounds request, ``epoch`` is -1."""

    topic_id: UUID
    partition: int
    current_leader_epoch: int
    epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffsetsRequest:
    """Question of a follower before it truncates (KIP-101, KIP-279)."""

    replica_id: int
    partitions: tuple[EpochQuery, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffsetResult:
    """Answer for one partition; epoch and end offset are -1 when they are not known."""

    topic_id: UUID
    partition: int
    error_code: int
    epoch: int = -1
    end_offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEndOffsetsResponse:
    """Answer of a leader."""

    error_code: int = 0
    partitions: tuple[EpochEndOffsetResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBoundsRequest:
    """Question for start and end of the leader's logs."""

    replica_id: int
    partitions: tuple[EpochQuery, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBoundsResult:
    """Answer for one partition."""

    topic_id: UUID
    partition: int
    error_code: int
    log_start_offset: int = -1
    log_end_offset: int = -1
    start_epoch: int = -1
    end_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBoundsResponse:
    """Answer of a leader."""

    error_code: int = 0
    partitions: tuple[LogBoundsResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsRequest:
    """Long poll of a standby: which partitions does the leader send to it?"""

    replica_id: int
    replica_epoch: int
    known_version: int = -1
    """Version of the last answer; the leader answers when it has another one, or after ``max_wait_ms``."""
    max_wait_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedPartition:
    """Partition that the answering node leads, with the standby as a replica."""

    topic: str
    topic_id: UUID
    partition: int
    leader_epoch: int
    config: tuple[tuple[str, str], ...] = ()
    """Settings of the topic that the standby's log follows, under Kafka's names."""


class DeletedReplica(NamedTuple):
    """Partition of a topic incarnation that was deleted."""

    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentsResponse:
    """All partitions that the leader sends to the standby; None: unchanged since ``known_version``."""

    error_code: int = 0
    version: int = -1
    partitions: tuple[AssignedPartition, ...] | None = None
    deleted: tuple[DeletedReplica, ...] = ()
    """Partitions that the leader knows to be deleted, also in later answers. Only these lose their copies on the
    standby: a partition that is merely missing from ``partitions`` keeps its copy."""
