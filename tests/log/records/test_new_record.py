import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import HeaderRow
from tests.log.encoded_record import encode_record
from tierd.log.records.new_record import (
    encode_varint,
    record_size_bytes,
    varint_size_bytes,
)
from tierd.log.records.record import RawRecord, iter_raw_records

MAX_INT, MAX_LONG = 2**31 - 1, 2**63 - 1

payloads = st.none() | st.binary(max_size=300)
header_rows = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=4)
longs = st.integers(-MAX_LONG - 1, MAX_LONG) | st.integers(-10_000, 10_000)
ints = st.integers(0, MAX_INT) | st.integers(0, 10_000)


@pytest.mark.spec("log-format REC-50")
def test_golden_record_is_encoded() -> None:
    assert encode_record(0, 0, b"k", b"v").hex() == "10000000026b027600"  # A9


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-64, "7f"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (MAX_INT, "feffffff0f"),
        (-MAX_INT - 1, "ffffffff0f"),
        (MAX_LONG, "feffffffffffffffff01"),
        (-MAX_LONG - 1, "ffffffffffffffffff01"),
    ],
)
def test_numbers_are_encoded_as_zigzag_base_128(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded


@given(longs)
def test_computed_size_of_a_number_equals_its_encoded_size(number: int) -> None:
    assert varint_size_bytes(number) == len(encode_varint(number))


@pytest.mark.spec("log-format REC-06")
@pytest.mark.spec("log-format REC-18")
@given(longs, ints, payloads, payloads, header_rows)
def test_encoded_record_is_decoded_and_has_its_computed_size(
    timestamp_delta_ms: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: list[HeaderRow]
) -> None:
    data = encode_record(timestamp_delta_ms, offset_delta, key, value, headers)
    assert list(iter_raw_records(data, 1)) == [RawRecord(timestamp_delta_ms, offset_delta, key, value, tuple(headers))]
    assert record_size_bytes(timestamp_delta_ms, offset_delta, key, value, headers) == len(data)


@pytest.mark.spec("log-format REC-06")
@pytest.mark.parametrize("size", [8191, 8192, 100_000])
def test_records_with_sizes_around_the_end_of_the_number_table_are_encoded(size: int) -> None:
    data = encode_record(size, size, b"k" * size, b"v" * size)
    assert list(iter_raw_records(data, 1)) == [RawRecord(size, size, b"k" * size, b"v" * size, ())]
    assert record_size_bytes(size, size, b"k" * size, b"v" * size) == len(data)


def test_length_attributes_and_deltas_of_a_record_take_at_most_21_bytes() -> None:
    value = b"v" * (1 << 27)
    data = encode_record(-MAX_LONG - 1, MAX_INT, None, value)
    key_size, value_size, header_count = 1, 5, 1
    assert len(data) - len(value) - key_size - value_size - header_count == 21


def test_a_header_name_that_utf_8_cannot_write_is_refused() -> None:
    with pytest.raises(ValueError, match="surrogates"):
        encode_record(0, 0, None, None, [("\ud800", b"")])
