"""Requests that write and read records: the bytes are those that kio reads and writes."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12 import FetchResponse
from kio.schema.fetch.v12 import response as fetch_parts
from kio.schema.produce.v9 import ProduceRequest, ProduceResponse
from kio.schema.produce.v9 import response as produce_parts
from kio.schema.request_header.v2 import RequestHeader
from kio.schema.types import TopicName
from kio.serial import entity_reader
from kio.static.primitive import Records, i32, i32Timedelta, i64

from tests.fakes.kafka_broker import encoded
from tierd.control.record_messages import FetchedRecords, ProduceOutcome, fetch, produce
from tierd.errors import KafkaError
from tierd.model import TopicPartition

NO_TIME = i32Timedelta.parse(timedelta(0))
NAMES = st.builds(TopicPartition, st.text("abcü.-_", min_size=1, max_size=200), st.integers(0, 1 << 30))
PIECES = st.lists(st.binary(max_size=300), min_size=1, max_size=3)


@given(st.dictionaries(NAMES, PIECES, max_size=6), st.integers(1, 2**31 - 1))
def test_produce_has_the_bytes_of_the_schema(batches: dict[TopicPartition, list[bytes]], number: int) -> None:
    frame = produce(batches, timeout_s=15).frame(number)

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, used = entity_reader(RequestHeader)(frame, 4)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (0, 9, number)
    assert header.client_id == "tierd"
    request, end = entity_reader(ProduceRequest)(frame, 4 + used)
    assert 4 + used + end == len(frame)
    assert (request.transactional_id, request.acks) == (None, -1)
    assert request.timeout == timedelta(seconds=15)
    found = {
        TopicPartition(topic.name, each.index): each.records
        for topic in request.topic_data
        for each in topic.partition_data
    }
    assert found == {name: b"".join(pieces) for name, pieces in batches.items()}


def test_answers_of_all_partitions_are_returned_with_the_throttle() -> None:
    response = ProduceResponse(
        responses=(
            produce_parts.TopicProduceResponse(
                name=TopicName("orders"),
                partition_responses=(
                    produce_parts.PartitionProduceResponse(
                        index=i32(0), error_code=ErrorCode.none, base_offset=i64(42), record_errors=()
                    ),
                    produce_parts.PartitionProduceResponse(
                        index=i32(1),
                        error_code=ErrorCode.message_too_large,
                        base_offset=i64(-1),
                        record_errors=(),
                        error_message="too large",
                    ),
                ),
            ),
        ),
        throttle_time=i32Timedelta.parse(timedelta(milliseconds=1500)),
    )

    answer = produce({}, timeout_s=1).answer(b"\0" + encoded(response))

    assert answer.throttle_s == 1.5
    assert answer.outcomes == {
        TopicPartition("orders", 0): ProduceOutcome("", 42, ""),
        TopicPartition("orders", 1): ProduceOutcome("message_too_large", -1, "too large"),
    }


def fetched(records: bytes) -> bytes:
    data = fetch_parts.PartitionData(
        partition_index=i32(0),
        error_code=ErrorCode.none,
        high_watermark=i64(9),
        log_start_offset=i64(2),
        aborted_transactions=None,
        records=Records(records),
    )
    topic = fetch_parts.FetchableTopicResponse(topic=TopicName("orders"), partitions=(data,))
    return b"\0" + encoded(FetchResponse(throttle_time=NO_TIME, error_code=ErrorCode.none, responses=(topic,)))


def test_fetched_records_are_returned_as_they_are() -> None:
    request = fetch(TopicPartition("orders", 0), from_offset=3, max_bytes=100, max_wait_s=0.5)
    assert request.answer(fetched(b"batches")) == FetchedRecords("", b"batches", 9, 2)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_answer_whose_records_do_not_fit_is_damaged(cut: int) -> None:
    request = fetch(TopicPartition("orders", 0), from_offset=3, max_bytes=100, max_wait_s=0.5)
    with pytest.raises(KafkaError, match="damaged"):
        request.answer(fetched(b"batches" * 20)[:-cut])
