"""Frames of requests: every valid request is read, damaged ones are refused in bounded memory."""

import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.metadata.v0.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.request import MetadataRequest as MetadataRequest12
from kio.static.protocol import RequestPayload

from tests.serve.kafka.kio_messages import all_request_types, frame, messages, sample
from tierd.errors import DamagedMessageError
from tierd.serve.kafka.wire.api_table import API_TABLE
from tierd.serve.kafka.wire.request_frame import MAX_ITEMS, MIN_FRAME_BYTES, checked_request, read_head

REQUEST_TYPES = list(all_request_types())
SAMPLES = [sample(each, items=items) for each in REQUEST_TYPES for items in (0, 1, 2)]
FRAMES = [frame(each) for each in SAMPLES]


def read(content: bytes) -> RequestPayload | None:
    head = read_head(content)
    return checked_request(head, content).decoded() if head.is_supported else None


@pytest.mark.parametrize("request_type", REQUEST_TYPES, ids=lambda each: f"{each.__name__}-v{each.__version__}")
@settings(max_examples=3)
@given(data=st.data())
def test_valid_request_of_every_version_is_read_with_its_head(
    request_type: type[RequestPayload], data: st.DataObject
) -> None:
    request = data.draw(messages(request_type))
    client_id = data.draw(st.text(max_size=10) | st.none())
    content = frame(request, correlation_id=77, client_id=client_id)

    head = read_head(content)

    assert (head.api.api_key, head.version, head.correlation_id) == (request.__api_key__, request.__version__, 77)
    assert head.client_id == (client_id or "")
    assert head.is_supported
    assert checked_request(head, content).decoded() == request


def test_tagged_fields_of_a_later_client_are_skipped() -> None:
    request = MetadataRequest12(topics=(), include_topic_authorized_operations=False)
    content = frame(request)
    assert content[-1:] == b"\0"
    later = content[:-1] + b"\x01\x63\x02xy"

    assert read(later) == request


def test_request_with_a_later_version_has_a_head_and_is_not_supported() -> None:
    content = b"\0\x12\0\x63" + (5).to_bytes(4, "big") + b"\0\2me" + b"\x01\x00\x00"

    head = read_head(content)

    assert (head.version, head.correlation_id, head.client_id) == (99, 5, "me")
    assert head.asks_for_versions
    assert not head.is_supported


@pytest.mark.parametrize("api_key", [-1, 7, 68, 78, 999], ids=str)
def test_request_that_the_endpoint_does_not_answer_is_refused(api_key: int) -> None:
    content = api_key.to_bytes(2, "big", signed=True) + bytes(6) + b"\xff\xff"

    with pytest.raises(DamagedMessageError, match=f"no request with api key {api_key}"):
        read_head(content)


def test_smallest_frame_is_a_head_without_client_id() -> None:
    content = frame(MetadataRequest(topics=()), client_id=None)

    assert read_head(content[:MIN_FRAME_BYTES]).client_id == ""
    with pytest.raises(DamagedMessageError):
        read_head(content[: MIN_FRAME_BYTES - 1])


def test_length_beyond_the_frame_is_refused_before_memory_is_allocated() -> None:
    content = frame(MetadataRequest(topics=()))[:-4] + b"\x7f\xff\xff\xff"
    head = read_head(content)

    with pytest.raises(DamagedMessageError, match="lengths do not fit"):
        checked_request(head, content)


def test_request_with_more_elements_than_any_clients_is_refused() -> None:
    start = frame(MetadataRequest(topics=()))[:-4]
    allowed, beyond = (start + count.to_bytes(4, "big") + b"\0\1t" * count for count in (MAX_ITEMS, MAX_ITEMS + 1))

    assert read(allowed) is not None
    with pytest.raises(DamagedMessageError, match=f"{MAX_ITEMS + 1} elements"):
        read(beyond)


def test_memory_of_a_request_is_estimated_from_above() -> None:
    content = frame(MetadataRequest(topics=tuple(MetadataRequestTopic(name=f"t{n}") for n in range(10_000))))  # type: ignore[arg-type]
    checked = checked_request(read_head(content), content)
    tracemalloc.start()
    try:
        request = checked.decoded()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert request is not None
    assert taken < checked.memory_bytes < 3 * taken


def test_cut_frames_are_refused() -> None:
    for content in FRAMES:
        for cut in {1, 8, len(content) // 2, len(content) - 1}:
            with suppress(DamagedMessageError):
                read(content[:cut])
            if cut < MIN_FRAME_BYTES:
                with pytest.raises(DamagedMessageError):
                    read(content[:cut])


@given(
    content=st.sampled_from(FRAMES),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8),
)
def test_damaged_request_is_read_or_refused(content: bytes, changes: list[tuple[int, int]]) -> None:
    damaged = bytearray(content)
    for position, value in changes:
        damaged[position % len(damaged)] = value
    with suppress(DamagedMessageError):
        read(bytes(damaged))


@given(
    api=st.sampled_from([api for api in API_TABLE.values() for _ in range(api.min_version, api.max_version + 1)]),
    version=st.integers(0, 20),
    content=st.binary(max_size=400),
)
def test_arbitrary_bytes_behind_a_head_take_little_memory(api: object, version: int, content: bytes) -> None:
    api_key = next(key for key, each in API_TABLE.items() if each is api)
    whole = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1" + content
    with suppress(DamagedMessageError):
        read(whole)  # what is imported on demand is not counted
    tracemalloc.start()
    try:
        with suppress(DamagedMessageError):
            read(whole)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100 * len(whole) + 10_000


@given(content=st.binary(max_size=100))
def test_arbitrary_bytes_are_read_or_refused(content: bytes) -> None:
    with suppress(DamagedMessageError):
        read(content)


def test_samples_of_all_requests_are_read_completely() -> None:
    for request in SAMPLES:
        assert read(frame(request)) == request
