"""Strategies for every request and response of push replication."""

from hypothesis import strategies as st

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
from tierd.replication.wire.message_schemas import PushRequest, PushResponse

BYTE = st.integers(-128, 127)
SHORT = st.integers(-(1 << 15), (1 << 15) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(max_size=20)
TOPIC_ID = st.uuids()
RECORDS = st.lists(st.binary(max_size=50), max_size=3).map(tuple)
DIVERGING = st.none() | st.builds(DivergingEpoch, INT, LONG)

HELLO = st.builds(
    HelloMessage,
    error_code=SHORT,
    cluster_id=TEXT,
    node_id=INT,
    process_epoch=LONG,
    software_name=TEXT,
    software_version=TEXT,
    apis=st.lists(st.builds(ApiVersions, SHORT, SHORT, SHORT), max_size=3).map(tuple),
    features=st.lists(TEXT, max_size=2).map(tuple),
)


def _partitions(partition: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(partition, max_size=4).map(tuple)


_QUERIES = _partitions(
    st.builds(EpochQuery, topic_id=TOPIC_ID, partition=INT, current_leader_epoch=INT, epoch=INT),
)

REQUESTS: dict[PushApi, st.SearchStrategy[PushRequest]] = {
    PushApi.HELLO: HELLO,
    PushApi.APPEND_RECORDS: st.builds(
        AppendRecordsRequest,
        cluster_id=TEXT,
        leader_id=INT,
        leader_process_epoch=LONG,
        replica_epoch=LONG,
        partitions=_partitions(
            st.builds(
                PartitionAppend,
                topic_id=TOPIC_ID,
                partition=INT,
                leader_epoch=INT,
                session_id=LONG,
                append_offset=LONG,
                last_epoch=INT,
                high_watermark=LONG,
                log_start_offset=LONG,
                end_session=st.booleans(),
                end_reason=BYTE,
                records=st.none() | RECORDS,
            )
        ),
    ),
    PushApi.FETCH_RECORDS: st.builds(
        FetchRecordsRequest,
        replica_id=INT,
        replica_epoch=LONG,
        max_wait_ms=INT,
        min_bytes=INT,
        max_bytes=INT,
        partitions=_partitions(
            st.builds(
                ReplicaFetch,
                topic_id=TOPIC_ID,
                partition=INT,
                current_leader_epoch=INT,
                fetch_offset=LONG,
                last_fetched_epoch=INT,
                log_start_offset=LONG,
                max_bytes=INT,
                session_id=LONG,
                mode=st.sampled_from(ReplicationMode),
                compared_version=LONG,
                is_comparison=st.booleans(),
            )
        ),
    ),
    PushApi.EPOCH_END_OFFSETS: st.builds(EpochEndOffsetsRequest, replica_id=INT, partitions=_QUERIES),
    PushApi.LOG_BOUNDS: st.builds(LogBoundsRequest, replica_id=INT, partitions=_QUERIES),
    PushApi.ASSIGNMENTS: st.builds(
        AssignmentsRequest, replica_id=INT, replica_epoch=LONG, known_version=LONG, max_wait_ms=INT
    ),
}
RESPONSES: dict[PushApi, st.SearchStrategy[PushResponse]] = {
    PushApi.HELLO: HELLO,
    PushApi.APPEND_RECORDS: st.builds(
        AppendRecordsResponse,
        throttle_ms=INT,
        error_code=SHORT,
        partitions=_partitions(
            st.builds(
                PartitionAppendResult,
                topic_id=TOPIC_ID,
                partition=INT,
                error_code=SHORT,
                log_end_offset=LONG,
                log_start_offset=LONG,
                session_id=LONG,
                diverging=DIVERGING,
                throttle_ms=INT,
            )
        ),
    ),
    PushApi.FETCH_RECORDS: st.builds(
        FetchRecordsResponse,
        throttle_ms=INT,
        error_code=SHORT,
        partitions=_partitions(
            st.builds(
                PartitionFetchResult,
                topic_id=TOPIC_ID,
                partition=INT,
                error_code=SHORT,
                high_watermark=LONG,
                log_start_offset=LONG,
                log_end_offset=LONG,
                diverging=DIVERGING,
                session_id=LONG,
                push_started=st.booleans(),
                log_version=LONG,
                records=RECORDS,
            )
        ),
    ),
    PushApi.EPOCH_END_OFFSETS: st.builds(
        EpochEndOffsetsResponse,
        error_code=SHORT,
        partitions=_partitions(
            st.builds(
                EpochEndOffsetResult, topic_id=TOPIC_ID, partition=INT, error_code=SHORT, epoch=INT, end_offset=LONG
            )
        ),
    ),
    PushApi.LOG_BOUNDS: st.builds(
        LogBoundsResponse,
        error_code=SHORT,
        partitions=_partitions(
            st.builds(
                LogBoundsResult,
                topic_id=TOPIC_ID,
                partition=INT,
                error_code=SHORT,
                log_start_offset=LONG,
                log_end_offset=LONG,
                start_epoch=INT,
                end_epoch=INT,
            )
        ),
    ),
    PushApi.ASSIGNMENTS: st.builds(
        AssignmentsResponse,
        error_code=SHORT,
        version=LONG,
        partitions=st.none()
        | _partitions(
            st.builds(
                AssignedPartition,
                topic=TEXT,
                topic_id=TOPIC_ID,
                partition=INT,
                leader_epoch=INT,
                config=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
            )
        ),
        deleted=_partitions(st.builds(DeletedReplica, TOPIC_ID, INT)),
    ),
}
