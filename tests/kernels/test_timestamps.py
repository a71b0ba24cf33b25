"""The span of time that records cover."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.batches_of_brokers import golden_payloads
from tierd.kernels import RecordFault, TimestampRange, compiled, reference, timestamp_range
from tierd.log.records.record_encoding import encode_record, encode_varint

EDGES = (0, 1, -1, 63, 64, 2**31, 2**63 - 1, -(2**63))
longs = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1))

records = st.lists(longs.map(lambda delta: encode_record(delta, 0, b"", b"")), max_size=5).map(b"".join)


def both(payload: bytes, count: int, base_ms: int = 0) -> TimestampRange | RecordFault | None:
    expected, found, chosen = (
        function(payload, count, base_timestamp_ms=base_ms)
        for function in (reference.timestamp_range, compiled.timestamp_range, timestamp_range)
    )
    assert found == expected == chosen
    assert type(found) is type(expected)
    return expected


@given(st.lists(longs, min_size=1, max_size=9), longs)
def test_it_reaches_from_the_smallest_timestamp_to_the_largest(deltas: list[int], base_ms: int) -> None:
    payload = b"".join(encode_record(delta, number, b"k", None) for number, delta in enumerate(deltas))
    stamps = [(base_ms + delta + 2**63) % 2**64 - 2**63 for delta in deltas]  # as Java adds
    assert both(payload, len(deltas), base_ms) == TimestampRange(min(stamps), max(stamps))


def test_no_records_cover_no_time() -> None:
    assert both(b"", 0) is None


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=90), records), st.data())
def test_twins_agree_on_any_bytes(payload: bytes, data: st.DataObject) -> None:
    damaged = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    torn = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for content in (bytes(damaged), torn):
        both(content, data.draw(st.integers(-1, 9)), data.draw(longs))


@pytest.mark.parametrize(
    ("payload", "count", "fault"),
    [
        (b"", -1, RecordFault.NEGATIVE_COUNT),
        (b"", 1, RecordFault.BYTES_END),
        (encode_record(0, 0, b"k", b"v"), 2**31 - 1, RecordFault.BYTES_END),
        (encode_varint(-1), 1, RecordFault.RECORD_SIZE),
        (encode_varint(2**31 - 1) + bytes(9), 1, RecordFault.RECORD_SIZE),
        (b"\xff" * 9, 1, RecordFault.NUMBER_TOO_LONG),
        (encode_varint(11) + b"\0" + b"\x80" * 10, 1, RecordFault.NUMBER_TOO_LONG),
        (encode_varint(0) + encode_record(0, 0, b"k", b"v"), 2, RecordFault.NOT_FILLED),
        (encode_record(0, 0, b"k", b"v") + b"\0", 1, RecordFault.BYTES_LEFT),
        (b"\0", 0, RecordFault.BYTES_LEFT),
    ],
)
def test_faults_have_their_names(payload: bytes, count: int, fault: RecordFault) -> None:
    assert both(payload, count) is fault


def test_batches_of_real_brokers_cover_what_their_records_say(golden: Path) -> None:
    spans = 0
    for batch, payload in golden_payloads(golden):
        if batch.timestamp_type == "CreateTime":
            stamps = [record.timestamp_ms for record in batch.records()]
            expected = TimestampRange(min(stamps), max(stamps)) if stamps else None
            assert both(payload, batch.record_count, batch.base_timestamp_ms) == expected
            spans += 1
    assert spans > 100
