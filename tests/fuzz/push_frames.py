"""Targets: frames of push replication, as a daemon reads those of its peers."""

from contextlib import suppress
from uuid import UUID

from tests.fuzz.target import Target
from tierd.errors import DamagedMessageError
from tierd.replication.model.messages import (
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
from tierd.replication.wire.message_schemas import PushResponse
from tierd.replication.wire.push_frames import (
    decode_push_request,
    decode_push_response,
    encode_push_request,
    encode_push_response,
)

_TOPIC_ID = UUID(int=7)
_HELLO = HelloMessage(
    cluster_id="cluster", node_id=1, process_epoch=2, software_name="tierd", software_version="1", apis=()
)


def _request(data: bytes) -> None:
    """Read a request; what is read is encoded and read again."""
    with suppress(DamagedMessageError):
        found = decode_push_request(memoryview(data))
        pieces = encode_push_request(found.request, correlation_id=found.correlation_id, client_id=found.client_id)
        assert decode_push_request(memoryview(b"".join(pieces))[4:]) == found


def _response(data: bytes) -> None:
    """Read the bytes behind the first as a response of the API that the first one chooses."""
    with suppress(DamagedMessageError):
        api = list(PushApi)[data[0] % len(PushApi)] if data else PushApi.HELLO
        correlation_id, response = decode_push_response(api, memoryview(data)[1:])
        pieces = encode_push_response(api, response, correlation_id=correlation_id)
        assert decode_push_response(api, memoryview(b"".join(pieces))[4:]) == (correlation_id, response)


def _requests() -> list[bytes]:
    append = PartitionAppend(
        topic_id=_TOPIC_ID, partition=0, leader_epoch=1, session_id=2, append_offset=3, last_epoch=1, records=(b"x",)
    )
    fetch = ReplicaFetch(
        topic_id=_TOPIC_ID,
        partition=0,
        current_leader_epoch=1,
        fetch_offset=2,
        last_fetched_epoch=1,
        log_start_offset=0,
        max_bytes=100,
        session_id=3,
        compared_version=7,
        is_comparison=True,
    )
    query = EpochQuery(topic_id=_TOPIC_ID, partition=0, current_leader_epoch=1, epoch=1)
    requests = (
        _HELLO,
        FetchRecordsRequest(
            replica_id=2, replica_epoch=1, max_wait_ms=5, min_bytes=1, max_bytes=100, partitions=(fetch, fetch)
        ),
        EpochEndOffsetsRequest(replica_id=2, partitions=(query,)),
        LogBoundsRequest(replica_id=2, partitions=(query,)),
        AssignmentsRequest(replica_id=1, replica_epoch=2),
        AppendRecordsRequest(
            cluster_id="c", leader_id=1, leader_process_epoch=1, replica_epoch=1, partitions=(append, append)
        ),
    )
    encoded = [encode_push_request(each, correlation_id=1, client_id="tierd") for each in requests]
    return [b"".join(pieces)[4:] for pieces in encoded]


def _responses() -> list[bytes]:
    diverging = DivergingEpoch(3, 40)
    appended = PartitionAppendResult(topic_id=_TOPIC_ID, partition=0, error_code=0, diverging=diverging, throttle_ms=5)
    fetched = PartitionFetchResult(
        topic_id=_TOPIC_ID,
        partition=0,
        error_code=0,
        records=(b"x",),
        diverging=diverging,
        push_started=True,
        log_version=7,
    )
    ends = EpochEndOffsetResult(topic_id=_TOPIC_ID, partition=0, error_code=74)
    bounds = LogBoundsResult(topic_id=_TOPIC_ID, partition=0, error_code=0)
    assigned = AssignedPartition(
        topic="orders", topic_id=_TOPIC_ID, partition=0, leader_epoch=1, config=(("retention.ms", "5"),)
    )
    responses: dict[PushApi, PushResponse] = {
        PushApi.HELLO: _HELLO,
        PushApi.APPEND_RECORDS: AppendRecordsResponse(partitions=(appended, appended)),
        PushApi.FETCH_RECORDS: FetchRecordsResponse(partitions=(fetched, fetched)),
        PushApi.EPOCH_END_OFFSETS: EpochEndOffsetsResponse(partitions=(ends,)),
        PushApi.LOG_BOUNDS: LogBoundsResponse(partitions=(bounds,)),
        PushApi.ASSIGNMENTS: AssignmentsResponse(
            version=1, partitions=(assigned, assigned), deleted=(DeletedReplica(_TOPIC_ID, 9),)
        ),
    }
    return [
        bytes([number]) + b"".join(encode_push_response(api, responses[api], correlation_id=1))[4:]
        for number, api in enumerate(PushApi)
    ]


TARGETS = (Target("push-request", _request, _requests), Target("push-response", _response, _responses))
"""As ``tests.fuzz`` lists them."""
