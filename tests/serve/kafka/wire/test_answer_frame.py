"""Frames of answers: with records spliced in, they are byte for byte what kio encodes as a whole."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.api_versions.v0.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32
from kio.static.protocol import ResponsePayload

from tests.serve.kafka.kio_messages import decoded_answer, encoded, messages, response_types, sample, sized
from tierd.serve.kafka.served.served_log import FileSlice
from tierd.serve.kafka.wire import answer_frame
from tierd.serve.kafka.wire.answer_frame import AnswerEncoder, AnswerFrame, raw_frame, unsupported_version_answer
from tierd.serve.kafka.wire.api_table import API_TABLE
from tierd.serve.kafka.wire.fetch_answer import FetchAnswer, Pieces
from tierd.serve.kafka.wire.request_frame import RequestHead

FETCH = 1
SLICE = FileSlice(Path("/log/0.log"), inode=1, position=10, size_bytes=1000)


def head(response: type[ResponsePayload]) -> RequestHead:
    return RequestHead(API_TABLE[response.__api_key__], response.__version__, 99, "client")


def joined(frame: AnswerFrame) -> bytes:
    """Return the bytes of a frame; those of a slice are its path, repeated."""
    pieces = [piece if isinstance(piece, bytes) else in_file(piece) for piece in frame.pieces]
    content = b"".join(pieces)
    assert len(content) == frame.size_bytes
    return content


def in_file(piece: FileSlice) -> bytes:
    return (str(piece.path).encode() * piece.size_bytes)[: piece.size_bytes]


@st.composite
def spliced(draw: st.DrawFn, response_type: type[ResponsePayload]) -> tuple[FetchAnswer, ResponsePayload]:
    """Draw an answer with records beside it, and the same with its records inside."""
    whole = draw(messages(response_type))
    pieces = st.lists(st.binary(max_size=50) | st.integers(0, 50).map(lambda n: replace(SLICE, size_bytes=n)))
    records: dict[tuple[int, int], Pieces] = {}
    topics, empty_topics = [], []
    for at, topic in enumerate(whole.responses):
        partitions = list(topic.partitions)
        empty = list(topic.partitions)
        for index in range(len(partitions)):
            if draw(st.booleans()):
                found: Pieces = tuple(draw(pieces))
                records[at, index] = found
                content = b"".join(each if isinstance(each, bytes) else in_file(each) for each in found)
                partitions[index] = replace(partitions[index], records=content)
                empty[index] = replace(empty[index], records=b"")
        topics.append(replace(topic, partitions=tuple(partitions)))
        empty_topics.append(replace(topic, partitions=tuple(empty)))
    answer = FetchAnswer(replace(whole, responses=tuple(empty_topics)), records)
    return answer, replace(whole, responses=tuple(topics))


@st.composite
def refilled(draw: st.DrawFn, answer: FetchAnswer, response: ResponsePayload) -> tuple[FetchAnswer, ResponsePayload]:
    """Draw the same answer with other records, and the same with its records inside."""
    whole: Any = response
    topics, records = [list(topic.partitions) for topic in whole.responses], dict[tuple[int, int], Pieces]()
    for at, index in answer.records:
        content = draw(st.binary(max_size=300))
        records[at, index] = (content,)
        topics[at][index] = replace(topics[at][index], records=content)
    filled = [replace(topic, partitions=tuple(found)) for topic, found in zip(whole.responses, topics, strict=True)]
    return FetchAnswer(answer.response, records), replace(whole, responses=tuple(filled))


@pytest.mark.parametrize("response_type", response_types(FETCH), ids=lambda each: f"v{each.__version__}")
@settings(max_examples=15)
@given(data=st.data())
def test_spliced_answer_of_every_fetch_version_is_that_of_the_encoder(
    response_type: type[ResponsePayload], data: st.DataObject
) -> None:
    answer, whole = data.draw(spliced(response_type))
    header = response_type.__header_schema__(correlation_id=i32(99))

    frame = AnswerEncoder().encoded(head(response_type), answer)

    assert joined(frame) == sized(encoded(header) + encoded(whole))
    assert decoded_answer(response_type, joined(frame)) == (99, whole)


@pytest.mark.parametrize("response_type", response_types(FETCH), ids=lambda each: f"v{each.__version__}")
@settings(max_examples=15)
@given(data=st.data())
def test_later_answers_of_a_connection_are_those_of_the_encoder(
    response_type: type[ResponsePayload], data: st.DataObject
) -> None:
    encoder, first = AnswerEncoder(), data.draw(spliced(response_type))
    others = [data.draw(refilled(*first)), data.draw(spliced(response_type)), data.draw(refilled(*first)), first]
    header = response_type.__header_schema__(correlation_id=i32(99))
    for answer, whole in (first, *others):
        frame = encoder.encoded(head(response_type), answer)
        assert joined(frame) == sized(encoded(header) + encoded(whole))


def test_answer_that_differs_in_its_records_only_is_not_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    response, encoder = sample(response_types(FETCH)[-1]), AnswerEncoder()
    encoder.encoded(head(type(response)), FetchAnswer(response, {(0, 0): (b"first",)}))
    made: list[FetchAnswer] = []
    monkeypatch.setattr(answer_frame, "_Template", made.append)
    frame = encoder.encoded(head(type(response)), FetchAnswer(response, {(0, 0): (b"second one",)}))
    assert b"second one" in joined(frame)
    assert not made


def test_answer_with_the_records_of_another_topic_is_encoded_anew() -> None:
    response, encoder = sample(response_types(FETCH)[-1], items=2), AnswerEncoder()
    for place in ((0, 0), (1, 0)):
        answer = FetchAnswer(response, {place: (b"first",)})
        frame = encoder.encoded(head(type(response)), answer)
        assert joined(frame) == joined(AnswerEncoder().encoded(head(type(response)), answer))


def test_large_answer_is_not_kept() -> None:
    response, encoder = sample(response_types(FETCH)[-1], items=20), AnswerEncoder()
    encoder.encoded(head(type(response)), FetchAnswer(response, {(0, 0): (b"first",)}))
    assert encoder._kept is None


def test_records_are_the_same_objects_in_the_frame() -> None:
    response = sample(response_types(FETCH)[-1])
    records = bytes(100_000)

    frame = AnswerEncoder().encoded(head(type(response)), FetchAnswer(response, {(0, 0): (records, SLICE)}))

    assert any(piece is records for piece in frame.pieces)
    assert any(piece is SLICE for piece in frame.pieces)
    assert frame.memory_bytes == frame.size_bytes - SLICE.size_bytes


def test_partition_without_records_beside_it_is_sent_as_it_is() -> None:
    response: Any = sample(response_types(FETCH)[0], items=2)
    whole = replace(response, responses=(response.responses[0], response.responses[1]))

    frame = AnswerEncoder().encoded(head(type(response)), FetchAnswer(response, {}))

    assert decoded_answer(type(response), joined(frame)) == (99, whole)


@pytest.mark.parametrize("api", API_TABLE.values(), ids=lambda each: each.name)
def test_answer_of_every_version_is_framed_behind_its_header(api: object) -> None:
    api_key = next(key for key, each in API_TABLE.items() if each is api)
    for response_type in response_types(api_key):
        response = sample(response_type)

        frame = AnswerEncoder().encoded(head(response_type), response)

        assert decoded_answer(response_type, joined(frame)) == (99, response)


def test_answers_to_api_versions_have_the_first_header_in_every_version() -> None:
    for response_type in response_types(18):
        content = joined(AnswerEncoder().encoded(head(response_type), sample(response_type)))
        assert content[4:8] == (99).to_bytes(4, "big")
        assert content[8:10] == b"\0\0"  # the error code follows at once: no tagged fields


def test_unknown_version_of_api_versions_is_answered_in_version_0_with_the_table() -> None:
    asked = RequestHead(API_TABLE[18], 77, 99, "client")

    content = joined(unsupported_version_answer(asked, API_TABLE.values()))

    correlation_id, answer = decoded_answer(ApiVersionsResponse, content)
    assert isinstance(answer, ApiVersionsResponse)
    assert (correlation_id, answer.error_code) == (99, ErrorCode.unsupported_version)
    assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [
        (api.api_key, api.min_version, api.max_version) for api in API_TABLE.values()
    ]


def test_answer_of_another_version_is_a_bug() -> None:
    first, second, *_ = response_types(FETCH)
    with pytest.raises(AssertionError):
        AnswerEncoder().encoded(head(first), sample(second))


def test_raw_token_is_framed_without_a_head() -> None:
    assert joined(raw_frame(b"token")) == b"\0\0\0\5token"
    assert joined(raw_frame(b"")) == b"\0\0\0\0"
