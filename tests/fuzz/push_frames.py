"""Targets: frames of push replication, as a daemon reads those of its peers."""

from contextlib import suppress
from uuid import UUID

from tests.fuzz.target import Target
from tierd.errors import DamagedMessageError
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AssignmentsRequest,
    HelloMessage,
    PartitionAppend,
    PushApi,
)
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
    requests = (
        _HELLO,
        AssignmentsRequest(replica_id=1, replica_epoch=2),
        AppendRecordsRequest(
            cluster_id="c", leader_id=1, leader_process_epoch=1, replica_epoch=1, partitions=(append, append)
        ),
    )
    encoded = [encode_push_request(each, correlation_id=1, client_id="tierd") for each in requests]
    return [b"".join(pieces)[4:] for pieces in encoded]


def _responses() -> list[bytes]:
    hello = b"".join(encode_push_response(PushApi.HELLO, _HELLO, correlation_id=1))[4:]
    return [b"\x00" + hello, *(bytes([number]) + bytes(30) for number in range(len(PushApi)))]


TARGETS = (Target("push-request", _request, _requests), Target("push-response", _response, _responses))
"""As ``tests.fuzz`` lists them."""
