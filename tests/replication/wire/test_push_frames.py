"""Frames of push replication: every message comes back as it was, and no other bytes do harm."""

import tracemalloc
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replication.wire.push_messages import REQUESTS, RESPONSES
from tierd.errors import DamagedMessageError
from tierd.replication.model.messages import (
    AppendRecordsRequest,
    AssignedPartition,
    AssignmentsRequest,
    AssignmentsResponse,
    EpochQuery,
    HelloMessage,
    LogBoundsRequest,
    PartitionAppend,
    PartitionAppendResult,
    PushApi,
    RecordBytes,
)
from tierd.replication.wire.frame_reader import MAX_ITEMS, FrameReader
from tierd.replication.wire.frame_writer import FrameWriter
from tierd.replication.wire.message_fields import INT32, STRING, Struct
from tierd.replication.wire.message_schemas import PushRequest
from tierd.replication.wire.push_frames import (
    MAX_FRAME_BYTES,
    checked_frame_size,
    decode_push_request,
    decode_push_response,
    encode_push_request,
    encode_push_response,
)

ANY_REQUEST = st.sampled_from(list(REQUESTS)).flatmap(REQUESTS.__getitem__)
ANY_RESPONSE = st.sampled_from(list(RESPONSES)).flatmap(lambda api: RESPONSES[api].map(lambda each: (api, each)))


def frame_of(pieces: list[RecordBytes]) -> memoryview:
    """Return the frame without its size, which fits."""
    data = b"".join(pieces)
    assert checked_frame_size(data[:4]) == len(data) - 4
    return memoryview(data)[4:]


def joined(message: Any) -> Any:  # noqa: ANN401 - of any kind
    """Return the message with the records of each partition in one piece, as a reader gets them."""
    if not any(hasattr(each, "records") for each in getattr(message, "partitions", None) or ()):
        return message

    def one(records: tuple[bytes, ...] | None, *, is_nullable: bool) -> tuple[bytes, ...] | None:
        whole = b"".join(map(bytes, records or ()))
        if records is None or (not is_nullable and not whole):
            return records if is_nullable else ()
        return (whole,)

    partitions = [
        replace(each, records=one(each.records, is_nullable=isinstance(each, PartitionAppend)))
        for each in message.partitions
    ]
    return replace(message, partitions=tuple(partitions))


@given(ANY_REQUEST, st.integers(0, (1 << 31) - 1), st.text(max_size=20))
def test_request_comes_back_as_it_was(request: PushRequest, correlation_id: int, client_id: str) -> None:
    frame = frame_of(encode_push_request(request, correlation_id=correlation_id, client_id=client_id))
    found = decode_push_request(frame)
    assert (found.correlation_id, found.client_id) == (correlation_id, client_id)
    assert joined(found.request) == joined(request)


@given(ANY_RESPONSE, st.integers(0, (1 << 31) - 1))
def test_response_comes_back_as_it_was(response: tuple[PushApi, Any], correlation_id: int) -> None:
    api, message = response
    frame = frame_of(encode_push_response(api, message, correlation_id=correlation_id))
    found_id, found = decode_push_response(api, frame)
    assert found_id == correlation_id
    assert joined(found) == joined(message)


@given(ANY_REQUEST, st.data())
def test_damaged_request_is_refused_or_another_request(request: PushRequest, data: st.DataObject) -> None:
    frame = bytearray(frame_of(encode_push_request(request, correlation_id=1, client_id="tierd")))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DamagedMessageError):
        decode_push_request(memoryview(frame)[: data.draw(st.integers(0, len(frame)))])


@given(ANY_RESPONSE, st.data())
def test_damaged_response_is_refused_or_another_response(response: tuple[PushApi, Any], data: st.DataObject) -> None:
    api, message = response
    frame = bytearray(frame_of(encode_push_response(api, message, correlation_id=1)))
    for _ in range(data.draw(st.integers(0, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DamagedMessageError):
        decode_push_response(api, memoryview(frame)[: data.draw(st.integers(0, len(frame)))])


@given(ANY_REQUEST, st.data())
def test_decoding_takes_memory_in_proportion_to_the_frame(request: PushRequest, data: st.DataObject) -> None:
    frame = bytearray(frame_of(encode_push_request(request, correlation_id=1, client_id="tierd")))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place : place + 5] = data.draw(
        st.sampled_from([b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07", b"\xff\x7f"])
    )
    tracemalloc.start()
    try:
        with suppress(DamagedMessageError):
            decode_push_request(memoryview(frame))
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 20_000 + 30 * len(frame)


def test_message_of_more_items_than_any_leader_has_is_refused() -> None:
    query = EpochQuery(topic_id=UUID(int=1), partition=0, current_leader_epoch=0)
    request = LogBoundsRequest(replica_id=1, partitions=(query,) * (MAX_ITEMS + 1))
    frame = frame_of(encode_push_request(request, correlation_id=1, client_id=""))
    with pytest.raises(DamagedMessageError, match=f"more than {MAX_ITEMS} items"):
        decode_push_request(frame)


def test_settings_of_a_topic_are_sent_once_for_all_its_partitions() -> None:
    settings = (("retention.ms", "1" * 1000),)
    assigned = [
        AssignedPartition(topic="orders", topic_id=UUID(int=1), partition=each, leader_epoch=3, config=settings)
        for each in range(1000)
    ]
    response = AssignmentsResponse(version=1, partitions=tuple(assigned))
    frame = frame_of(encode_push_response(PushApi.ASSIGNMENTS, response, correlation_id=1))
    assert len(frame) < 20_000
    _, found = decode_push_response(PushApi.ASSIGNMENTS, frame)
    assert found == response
    assert isinstance(found, AssignmentsResponse)
    assert len({id(each.config) for each in found.partitions or ()}) == 1


def test_small_records_are_one_piece_with_the_fields_around_them() -> None:
    pieces = encode_push_request(append_request(tuple([bytes(100)] * 50)), correlation_id=1, client_id="")
    assert len(pieces) == 1


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_request(data: bytes) -> None:
    with suppress(DamagedMessageError):
        decode_push_request(memoryview(data))


def assignments_frame() -> bytes:
    """Return the frame of a request that ends with an empty list of tagged fields."""
    request = AssignmentsRequest(replica_id=1, replica_epoch=2)
    return bytes(frame_of(encode_push_request(request, correlation_id=1, client_id="")))


def append_request(records: tuple[RecordBytes, ...]) -> AppendRecordsRequest:
    partition = PartitionAppend(
        topic_id=UUID(int=7), partition=3, leader_epoch=1, session_id=2, append_offset=4, last_epoch=1, records=records
    )
    return AppendRecordsRequest(
        cluster_id="c", leader_id=1, leader_process_epoch=2, replica_epoch=3, partitions=(partition,)
    )


def test_records_are_not_copied_into_a_frame() -> None:
    first, second = bytes(1024), memoryview(bytearray(2000))
    pieces = encode_push_request(append_request((first, second)), correlation_id=1, client_id="")
    assert any(piece is first for piece in pieces)
    assert any(piece is second for piece in pieces)


def test_records_of_a_decoded_message_are_a_part_of_its_frame() -> None:
    frame = frame_of(encode_push_request(append_request((b"records",)), correlation_id=1, client_id=""))
    found = decode_push_request(frame).request
    assert isinstance(found, AppendRecordsRequest)
    records = found.partitions[0].records
    assert records is not None
    assert isinstance(records[0], memoryview)
    assert records[0].obj is frame.obj


@pytest.mark.spec("push-replication 92")
@pytest.mark.parametrize("size", [-1, 0, 7, MAX_FRAME_BYTES + 1, (1 << 31) - 1])
def test_size_that_no_frame_has_is_refused(size: int) -> None:
    with pytest.raises(DamagedMessageError, match=str(size)):
        checked_frame_size(size.to_bytes(4, "big", signed=True))


@pytest.mark.parametrize("claimed", [100, (1 << 32) - 2])
def test_array_that_claims_more_items_than_there_are_bytes_is_refused(claimed: int) -> None:
    writer = FrameWriter()
    writer.varint(claimed + 1)
    with pytest.raises(DamagedMessageError, match="items"):
        FrameReader(memoryview(b"".join(writer.finish()))[4:]).count(item_bytes=16)


@pytest.mark.spec("push-replication 93")
def test_unknown_tagged_field_is_passed_over() -> None:
    frame = bytes(
        frame_of(encode_push_request(AssignmentsRequest(replica_id=1, replica_epoch=2), correlation_id=1, client_id=""))
    )
    newer = frame[:-1] + b"\x02" + b"\x05\x03abc" + b"\x09\x00"
    assert decode_push_request(memoryview(newer)).request == decode_push_request(memoryview(frame)).request


@pytest.mark.parametrize("tags", [b"\x02\x05\x00\x05\x00", b"\x02\x05\x00\x04\x00", b"\x01\x00\x7f"])
def test_tagged_fields_that_do_not_ascend_or_fit_are_refused(tags: bytes) -> None:
    frame = bytes(
        frame_of(encode_push_request(AssignmentsRequest(replica_id=1, replica_epoch=2), correlation_id=1, client_id=""))
    )
    with pytest.raises(DamagedMessageError):
        decode_push_request(memoryview(frame[:-1] + tags))


def test_bytes_behind_a_message_are_refused() -> None:
    frame = assignments_frame()
    with pytest.raises(DamagedMessageError, match="behind its end"):
        decode_push_request(memoryview(frame + b"\x00"))


@pytest.mark.parametrize(("key", "version"), [(0, 0), (31999, 0), (PushApi.HELLO, 1)])
def test_unknown_api_or_version_is_refused(key: int, version: int) -> None:
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff" + b"\x00"
    with pytest.raises(DamagedMessageError, match=f"api key {key} in version {version}"):
        decode_push_request(memoryview(head))


def test_answer_to_a_hello_has_no_tags_in_its_head_so_that_any_version_can_read_it() -> None:
    hello = HelloMessage(
        cluster_id="c", node_id=1, process_epoch=2, software_name="tierd", software_version="1", apis=()
    )
    frame = bytes(frame_of(encode_push_response(PushApi.HELLO, hello, correlation_id=0x01020304)))
    assert frame[:6] == b"\x01\x02\x03\x04\x00\x00"


def test_default_of_a_tagged_field_is_not_written() -> None:
    def size(result: PartitionAppendResult) -> int:
        schema = Struct(PartitionAppendResult, {"partition": INT32}, {})
        writer = FrameWriter()
        schema.write(writer, result)
        return len(b"".join(writer.finish()))

    plain = PartitionAppendResult(topic_id=UUID(int=1), partition=1, error_code=0)
    assert size(plain) == size(replace(plain, throttle_ms=5)) == 4 + 4 + 1


@pytest.mark.parametrize("text", [b"\x00", b"\x05ab", b"\x03\xff\xfe"])
def test_text_that_is_null_cut_or_no_utf8_is_refused(text: bytes) -> None:
    with pytest.raises(DamagedMessageError):
        STRING.read(FrameReader(memoryview(text)))
