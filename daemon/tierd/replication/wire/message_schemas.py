"""Layouts of the messages of push replication, version 0 (push-replication 3.2 to 3.4).

The order of the fields is that of the wire. ``AppendRecords``::

    cluster_id string | leader_id int32 | leader_process_epoch int64 | replica_epoch int64 |
      topics [ topic_id uuid | partitions [ partition int32 | leader_epoch int32 | session_id int64 | ... | records ] ]
"""

from typing import Final, NamedTuple

from tierd.replication.model.messages import (
    ApiVersions,
    AppendRecordsRequest,
    AppendRecordsResponse,
    AssignedPartition,
    AssignmentsRequest,
    AssignmentsResponse,
    DeletedReplica,
    DivergingEpoch,
    EpochEndOffsetResult,
    EpochEndOffsetsRequest,
    EpochEndOffsetsResponse,
    EpochQuery,
    FetchRecordsRequest,
    FetchRecordsResponse,
    HelloMessage,
    LogBoundsRequest,
    LogBoundsResponse,
    LogBoundsResult,
    PartitionAppend,
    PartitionAppendResult,
    PartitionFetchResult,
    PushApi,
    ReplicaFetch,
)
from tierd.replication.model.replication_state import ReplicationMode
from tierd.replication.wire.message_fields import (
    BOOLEAN,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_RECORDS,
    RECORDS,
    STRING,
    TEXT_PAIR,
    UUID_BYTES,
    Array,
    ByHead,
    ByTopic,
    Enumerated,
    Struct,
    TaggedField,
)

PushRequest = (
    HelloMessage
    | AppendRecordsRequest
    | FetchRecordsRequest
    | EpochEndOffsetsRequest
    | LogBoundsRequest
    | AssignmentsRequest
)
PushResponse = (
    HelloMessage
    | AppendRecordsResponse
    | FetchRecordsResponse
    | EpochEndOffsetsResponse
    | LogBoundsResponse
    | AssignmentsResponse
)


class PushSchema(NamedTuple):
    """Layouts of one API."""

    request: Struct
    response: Struct


_DIVERGING: Final = TaggedField(Struct(DivergingEpoch, {"epoch": INT32, "end_offset": INT64}), None)
_HELLO: Final = Struct(
    HelloMessage,
    {
        "error_code": INT16,
        "cluster_id": STRING,
        "node_id": INT32,
        "process_epoch": INT64,
        "software_name": STRING,
        "software_version": STRING,
        "apis": Array(Struct(ApiVersions, {"api_key": INT16, "min_version": INT16, "max_version": INT16})),
        "features": Array(STRING),
    },
)
_APPEND: Final = PushSchema(
    Struct(
        AppendRecordsRequest,
        {
            "cluster_id": STRING,
            "leader_id": INT32,
            "leader_process_epoch": INT64,
            "replica_epoch": INT64,
            "partitions": ByTopic(
                Struct(
                    PartitionAppend,
                    {
                        "partition": INT32,
                        "leader_epoch": INT32,
                        "session_id": INT64,
                        "append_offset": INT64,
                        "last_epoch": INT32,
                        "high_watermark": INT64,
                        "log_start_offset": INT64,
                        "end_session": BOOLEAN,
                        "end_reason": INT8,
                        "records": NULLABLE_RECORDS,
                    },
                )
            ),
        },
    ),
    Struct(
        AppendRecordsResponse,
        {
            "throttle_ms": INT32,
            "error_code": INT16,
            "partitions": ByTopic(
                Struct(
                    PartitionAppendResult,
                    {
                        "partition": INT32,
                        "error_code": INT16,
                        "log_end_offset": INT64,
                        "log_start_offset": INT64,
                        "session_id": INT64,
                    },
                    {0: ("diverging", _DIVERGING), 1: ("throttle_ms", TaggedField(INT32, 0))},
                )
            ),
        },
    ),
)
_FETCH: Final = PushSchema(
    Struct(
        FetchRecordsRequest,
        {
            "replica_id": INT32,
            "replica_epoch": INT64,
            "max_wait_ms": INT32,
            "min_bytes": INT32,
            "max_bytes": INT32,
            "partitions": ByTopic(
                Struct(
                    ReplicaFetch,
                    {
                        "partition": INT32,
                        "current_leader_epoch": INT32,
                        "fetch_offset": INT64,
                        "last_fetched_epoch": INT32,
                        "log_start_offset": INT64,
                        "max_bytes": INT32,
                        "session_id": INT64,
                        "mode": Enumerated(ReplicationMode),
                    },
                    {
                        0: ("compared_version", TaggedField(INT64, -1)),
                        1: ("is_comparison", TaggedField(BOOLEAN, default=False)),
                    },
                )
            ),
        },
    ),
    Struct(
        FetchRecordsResponse,
        {
            "throttle_ms": INT32,
            "error_code": INT16,
            "partitions": ByTopic(
                Struct(
                    PartitionFetchResult,
                    {
                        "partition": INT32,
                        "error_code": INT16,
                        "high_watermark": INT64,
                        "log_start_offset": INT64,
                        "log_end_offset": INT64,
                        "session_id": INT64,
                        "push_started": BOOLEAN,
                        "records": RECORDS,
                    },
                    {0: ("diverging", _DIVERGING), 1: ("log_version", TaggedField(INT64, 0))},
                )
            ),
        },
    ),
)
_QUERY: Final = Struct(EpochQuery, {"partition": INT32, "current_leader_epoch": INT32, "epoch": INT32})
_EPOCH_ENDS: Final = PushSchema(
    Struct(EpochEndOffsetsRequest, {"replica_id": INT32, "partitions": ByTopic(_QUERY)}),
    Struct(
        EpochEndOffsetsResponse,
        {
            "error_code": INT16,
            "partitions": ByTopic(
                Struct(
                    EpochEndOffsetResult,
                    {"partition": INT32, "error_code": INT16, "epoch": INT32, "end_offset": INT64},
                )
            ),
        },
    ),
)
_BOUNDS: Final = PushSchema(
    Struct(LogBoundsRequest, {"replica_id": INT32, "partitions": ByTopic(_QUERY)}),
    Struct(
        LogBoundsResponse,
        {
            "error_code": INT16,
            "partitions": ByTopic(
                Struct(
                    LogBoundsResult,
                    {
                        "partition": INT32,
                        "error_code": INT16,
                        "log_start_offset": INT64,
                        "log_end_offset": INT64,
                        "start_epoch": INT32,
                        "end_epoch": INT32,
                    },
                )
            ),
        },
    ),
)


_ASSIGNMENTS: Final = PushSchema(
    Struct(
        AssignmentsRequest,
        {"replica_id": INT32, "replica_epoch": INT64, "known_version": INT64, "max_wait_ms": INT32},
    ),
    Struct(
        AssignmentsResponse,
        {
            "error_code": INT16,
            "version": INT64,
            "partitions": ByHead(
                AssignedPartition,
                {"topic": STRING, "topic_id": UUID_BYTES, "config": Array(TEXT_PAIR)},
                {"partition": INT32, "leader_epoch": INT32},
            ),
            "deleted": Array(Struct(DeletedReplica, {"topic_id": UUID_BYTES, "partition": INT32})),
        },
    ),
)

SCHEMAS: Final = {
    PushApi.HELLO: PushSchema(_HELLO, _HELLO),
    PushApi.APPEND_RECORDS: _APPEND,
    PushApi.FETCH_RECORDS: _FETCH,
    PushApi.EPOCH_END_OFFSETS: _EPOCH_ENDS,
    PushApi.LOG_BOUNDS: _BOUNDS,
    PushApi.ASSIGNMENTS: _ASSIGNMENTS,
}
"""Layouts of version 0 of each API."""
