"""Requests as bytes and answers from bytes; a damaged answer is an error and does not end the process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12 import MetadataRequest
from kio.schema.request_header.v2 import RequestHeader
from kio.serial import entity_reader
from kio.static.primitive import i16, i32Timedelta

from tests.coded import coded
from tests.fakes.kafka_broker import CLUSTER_ID, Leaders, encoded, metadata_response
from tierd.control.cluster_metadata import BrokerAddress, PartitionLeader, TopicKnowledge, TopicLeaders
from tierd.control.kafka_framing import Request
from tierd.control.kafka_messages import (
    api_versions,
    describe_changed_topic_configs,
    describe_topic_configs,
    metadata,
    missing_versions,
    sasl_authenticate,
    sasl_handshake,
)
from tierd.errors import KafkaError, TierErrorCode

ORDERS, PAYMENTS, GONE = UUID(int=1), UUID(int=2), UUID(int=3)
ANSWER = b"\0" + encoded(
    metadata_response(
        {
            ORDERS: {0: (1, 5), 1: (-1, 7)},
            PAYMENTS: ErrorCode.topic_authorization_failed,
            GONE: ErrorCode.unknown_topic_id,
        },
        brokers={1: BrokerAddress("one", 9092), 2: BrokerAddress("::1", 9093)},
    )
)
REQUESTS: list[Request[object]] = [
    api_versions(version="1"),
    metadata([ORDERS]),
    sasl_handshake("PLAIN"),
    sasl_authenticate(b"x"),
    describe_topic_configs(["orders"], ["retention.ms"]),
    describe_changed_topic_configs(["orders"]),
]


def test_metadata_request_names_topics_by_id_and_creates_none() -> None:
    frame = metadata([ORDERS, GONE]).frame(7)
    header, at = entity_reader(RequestHeader)(frame[4:], 0)
    request, _ = entity_reader(MetadataRequest)(frame[4:], at)

    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (3, 12, 7)
    assert [topic.topic_id for topic in request.topics or ()] == [ORDERS, GONE]
    assert not request.allow_auto_topic_creation


def test_answer_has_brokers_leaders_epochs_and_unknown_topics() -> None:
    cluster = metadata().answer(ANSWER)

    assert cluster.cluster_id == CLUSTER_ID
    assert list(map(str, cluster.brokers)) == ["one:9092", "[::1]:9093"]
    assert cluster.topics == (
        TopicLeaders(
            ORDERS, TopicKnowledge.KNOWN, (PartitionLeader(0, 1, 5, (1, 2, 3)), PartitionLeader(1, -1, 7, (1, 2, 3)))
        ),
        TopicLeaders(PAYMENTS, TopicKnowledge.DENIED, error="topic_authorization_failed"),
        TopicLeaders(GONE, TopicKnowledge.UNKNOWN, error="unknown_topic_id"),
    )


def test_broker_that_is_too_old_is_recognised_by_its_api_versions() -> None:
    assert missing_versions({3: (0, 13), 32: (1, 4)}) == ""
    assert missing_versions({3: (0, 9), 32: (1, 4)}) == "Metadata version 12"
    assert missing_versions({3: (13, 20), 32: (1, 4)}) == "Metadata version 12"
    assert missing_versions({3: (0, 13)}) == "DescribeConfigs version 4"


def test_broker_older_than_the_request_has_no_api_versions() -> None:
    version_0 = (35).to_bytes(2, "big") + (1).to_bytes(4, "big") + b"\0\x12\0\0\0\2"

    assert api_versions(version="1").answer(version_0) == {}


def test_api_versions_are_read_beside_unknown_features() -> None:
    content = encoded(
        ApiVersionsResponse(
            error_code=ErrorCode.none,
            api_keys=(ApiVersion(api_key=i16(3), min_version=i16(0), max_version=i16(13)),),
            throttle_time=i32Timedelta.parse(timedelta(0)),
            supported_features=(SupportedFeatureKey(name="kraft.version", min_version=i16(0), max_version=i16(1)),),
        )
    )

    assert api_versions(version="1").answer(content) == {3: (0, 13)}


TAGS = b"\x02" + b"\x07\x03new" + b"\xf0\x01\x00"  # of a later Kafka: tag 7 with three bytes, tag 240 with none


def test_tagged_fields_of_a_later_kafka_are_skipped() -> None:
    one = b"\x04one" + (9092).to_bytes(4, "big") + b"\0"
    assert ANSWER.count(one + b"\0") == 1
    later = ANSWER.replace(one + b"\0", one + TAGS)[:-1] + TAGS
    assert metadata().answer(later) == metadata().answer(ANSWER)


def test_tagged_fields_of_a_later_kafka_are_skipped_beside_known_ones() -> None:
    known = ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=(ApiVersion(api_key=i16(3), min_version=i16(0), max_version=i16(13)),),
        throttle_time=i32Timedelta.parse(timedelta(0)),
    )
    feature = SupportedFeatureKey(name="kraft.version", min_version=i16(0), max_version=i16(1))
    start = encoded(known)[:-1]
    tagged = encoded(replace(known, supported_features=(feature,))).removeprefix(start)
    assert tagged[:2] == b"\x01\x00"
    for later in (b"\x02" + tagged[1:] + b"\x09\x01x", b"\x01\x09\x01x"):
        assert api_versions(version="1").answer(start + later) == {3: (0, 13)}
    twice = b"\xac\x02" + tagged[1:] * 299 + b"\x09\x00"
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_PROTOCOL)):
        api_versions(version="1").answer(start + twice)
    inside = b"\x01\x00" + bytes([tagged[2] + 2]) + tagged[3:-1] + b"\x01\x07\x00"
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_PROTOCOL)):
        api_versions(version="1").answer(start + inside)


@given(cut=st.integers(0, len(ANSWER) - 1))
def test_an_answer_that_ends_early_is_an_error(cut: int) -> None:
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_PROTOCOL)):
        metadata().answer(ANSWER[:cut])


@contextmanager
def refusal_allowed() -> Iterator[None]:
    """Let the answer be refused as no message of a broker, and in no other way."""
    try:
        yield
    except KafkaError as error:
        if error.code is not TierErrorCode.KAFKA_PROTOCOL:
            raise


@given(
    changes=st.lists(st.tuples(st.integers(0, len(ANSWER) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.integers(1, len(ANSWER)),
)
def test_a_damaged_answer_is_read_or_refused(changes: list[tuple[int, int]], cut: int) -> None:
    damaged = bytearray(ANSWER)
    for position, value in changes:
        damaged[position] = value
    with refusal_allowed():
        metadata().answer(bytes(damaged[:cut]))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: each.name)
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_read_or_refused(request_: Request[object], content: bytes) -> None:
    for answer in (content, b"\0" + content, b"\0\0" + content):
        with refusal_allowed():
            request_.answer(answer)


def test_length_beyond_the_message_is_refused_before_memory_is_allocated() -> None:
    start = b"\0" + bytes(4)  # header, throttle time
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_PROTOCOL), match="lengths do not fit"):
        metadata().answer(start + b"\xff\xff\xff\xff\x07" + bytes(40))
    with pytest.raises(KafkaError, check=coded(TierErrorCode.KAFKA_PROTOCOL), match="lengths do not fit"):
        sasl_handshake("PLAIN").answer(b"\0\0" + b"\x7f\xff\xff\xff" + bytes(40))


@given(
    topics=st.dictionaries(
        st.uuids(),
        st.dictionaries(st.integers(0, 50), st.tuples(st.integers(-1, 9), st.integers(0, 2**31 - 1)), max_size=20),
        max_size=20,
    )
)
def test_valid_answer_is_read_completely(topics: dict[UUID, Leaders]) -> None:
    cluster = metadata().answer(b"\0" + encoded(metadata_response(topics)))

    assert {t.topic_id: {p.partition: (p.leader_id, p.leader_epoch) for p in t.partitions} for t in cluster.topics} == (
        topics
    )
