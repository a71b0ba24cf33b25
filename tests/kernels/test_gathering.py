"""Gathered fields and headers: Arrow reads the values of the records from the buffers."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.batches_of_brokers import golden_payloads
from tests.log.encoded_record import encode_record
from tierd.kernels import (
    Gathered,
    GatheredHeaders,
    RecordFault,
    compiled,
    decode_records,
    gather,
    gather_headers,
    reference,
)
from tierd.log.records.new_record import encode_field
from tierd.log.records.record import Header, iter_raw_records

TWINS = pytest.mark.parametrize("kernels", [reference, compiled])
fields = st.one_of(st.none(), st.binary(max_size=40), st.just(b"x" * 200))
names = st.one_of(st.text(max_size=5), st.sampled_from(["", "trace-id", "größe", "\U0001f642"]))
header_rows = st.lists(st.lists(st.tuples(names, fields), max_size=4), max_size=9)

encoded_fields = st.lists(fields.map(encode_field), max_size=9).map(b"".join)


def ints(numbers: Sequence[int]) -> memoryview:
    return memoryview(array("i", numbers))


def arrow(found: Gathered, kind: pa.DataType) -> "pa.Array[Any]":
    assert [column.dtype.name for column in found] == ["int32", "uint8", "uint8"]
    buffers: list[pa.Buffer | None] = [pa.py_buffer(c.data) for c in (found.validity, found.offsets, found.data)]
    made = pa.Array.from_buffers(kind, len(found.offsets) - 1, buffers)
    assert [b.address for b in made.buffers() if b] == [b.address for b in buffers if b]  # not copied
    made.validate(full=True)
    return made


def arrow_headers(found: GatheredHeaders) -> list[list[tuple[str, bytes | None]]]:
    keys, values = arrow(found.keys, pa.utf8()), arrow(found.values, pa.binary())
    structs = pa.StructArray.from_arrays([keys, values], names=["key", "value"])
    assert found.offsets.dtype.name == "int32"
    offsets = pa.py_buffer(found.offsets.data)
    made: pa.Array[Any] = pa.Array.from_buffers(
        pa.list_(structs.type), len(found.offsets) - 1, [None, offsets], children=[structs]
    )
    made.validate(full=True)
    return [[(header["key"], header["value"]) for header in row or ()] for row in made.to_pylist()]


def columns(found: Gathered) -> list[list[int]]:
    return [column.tolist() for column in found]


def both(payload: bytes, starts: Sequence[int], sizes: Sequence[int]) -> Gathered:
    expected, found, chosen = (
        function(payload, ints(starts), ints(sizes)) for function in (reference.gather, compiled.gather, gather)
    )
    assert columns(found) == columns(expected) == columns(chosen)
    return found


def both_headers(payload: bytes, starts: Sequence[int], counts: Sequence[int]) -> GatheredHeaders | RecordFault:
    expected, found, chosen = (
        function(payload, ints(starts), ints(counts))
        for function in (reference.gather_headers, compiled.gather_headers, gather_headers)
    )
    if isinstance(expected, RecordFault):
        assert (found, chosen) == (expected, expected)
        return expected
    for other in (found, chosen):
        assert isinstance(other, GatheredHeaders)
        assert other.offsets.tolist() == expected.offsets.tolist()
        assert (columns(other.keys), columns(other.values)) == (columns(expected.keys), columns(expected.values))
    return found


@given(st.binary(max_size=300), st.data())
def test_gathered_fields_are_arrow_buffers_without_a_copy(payload: bytes, data: st.DataObject) -> None:
    starts = data.draw(st.lists(st.integers(0, len(payload)), max_size=20))
    sizes = [data.draw(st.integers(-2, len(payload) - start)) for start in starts]
    expected = [payload[start : start + size] if size >= 0 else None for start, size in zip(starts, sizes, strict=True)]
    found = both(payload, starts, sizes)
    assert arrow(found, pa.binary()).to_pylist() == expected
    assert arrow(found, pa.binary()).null_count == expected.count(None)


@TWINS
@pytest.mark.parametrize(
    ("start", "size"), [(-1, 1), (0, 4), (3, 1), (2**31 - 1, 1), (2**31 - 1, 2**31 - 1), (-(2**31), 2**31 - 1)]
)
def test_a_field_beyond_the_payload_is_refused(kernels: ModuleType, start: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes at {start} reach beyond the 3"):
        kernels.gather(b"abc", ints([0, start]), ints([3, size]))


@TWINS
def test_null_and_empty_fields_may_lie_anywhere(kernels: ModuleType) -> None:
    found = kernels.gather(b"", ints([-5, 2**31 - 1, 9]), ints([-1, -1, 0]))
    assert arrow(found, pa.binary()).to_pylist() == [None, None, b""]


@TWINS
def test_fields_above_the_range_of_32_bit_offsets_are_refused(kernels: ModuleType) -> None:
    payload = bytes(1 << 22)
    with pytest.raises(ValueError, match="more than 2147483647 bytes of fields"):
        kernels.gather(payload, np.zeros(512, np.int32), np.full(512, len(payload), np.int32))


@TWINS
def test_columns_of_different_lengths_are_refused(kernels: ModuleType) -> None:
    for function in (kernels.gather, kernels.gather_headers):
        with pytest.raises(ValueError, match=r"argument|rows"):
            function(b"abc", ints([0]), ints([]))


@given(header_rows)
def test_gathered_headers_are_those_of_the_encoded_records(rows: list[list[Header]]) -> None:
    payload = b"".join(encode_record(0, number, b"key", b"value", row) for number, row in enumerate(rows))
    where = decode_records(payload, len(rows))
    found = both_headers(payload, where.headers_start.tolist(), where.header_count.tolist())
    assert isinstance(found, GatheredHeaders)
    assert arrow_headers(found) == rows


@given(st.lists(st.binary(max_size=6), max_size=6))
def test_header_names_that_are_no_utf_8_are_decoded_like_in_the_record_decoder(found_names: list[bytes]) -> None:
    payload = b"".join(encode_field(name) + encode_field(None) for name in found_names)
    found = both_headers(payload, [0], [len(found_names)])
    assert isinstance(found, GatheredHeaders)
    assert arrow_headers(found) == [[(name.decode(errors="replace"), None) for name in found_names]]


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=60), encoded_fields), st.data())
def test_reference_and_compiled_kernel_agree_on_headers_of_any_bytes(payload: bytes, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(st.integers(-2, len(payload) + 2), st.integers(0, 4)), max_size=4))
    both_headers(payload, [start for start, _ in rows], [count for _, count in rows])


@pytest.mark.parametrize(
    ("payload", "start", "count", "fault"),
    [
        (b"\0\0\0\0", 0, -1, RecordFault.HEADER_COUNT),
        (b"\0\0\0\0", 0, 3, RecordFault.HEADER_COUNT),
        (b"\0\0\0\0", 0, 2**31 - 1, RecordFault.HEADER_COUNT),
        (b"\0\0\0\0", -1, 1, RecordFault.BYTES_END),
        (b"\0\0\0\0", -(2**31), 1, RecordFault.BYTES_END),
        (b"\0\0\0\0", 2**31 - 1, 1, RecordFault.BYTES_END),
        (b"\0\0\0\0", 3, 1, RecordFault.BYTES_END),
        (b"\1\0", 0, 1, RecordFault.HEADER_NAME),
        (b"\3\0", 0, 1, RecordFault.FIELD_SIZE),
        (b"\4a", 0, 1, RecordFault.FIELD_SIZE),
        (b"\x80" * 8, 0, 1, RecordFault.NUMBER_TOO_LONG),
    ],
)
def test_each_damage_of_headers_is_returned_as_its_fault(
    payload: bytes, start: int, count: int, fault: RecordFault
) -> None:
    assert both_headers(payload, [start], [count]) is fault


def test_gathered_batches_of_real_brokers_equal_records_decoded_one_by_one(golden: Path) -> None:
    headers_seen = 0
    for batch, payload in golden_payloads(golden):
        records = list(iter_raw_records(payload, batch.record_count))
        where = decode_records(payload, batch.record_count)
        keys = both(payload, where.key_start.tolist(), where.key_size.tolist())
        values = both(payload, where.value_start.tolist(), where.value_size.tolist())
        assert arrow(keys, pa.binary()).to_pylist() == [record.key for record in records]
        assert arrow(values, pa.binary()).to_pylist() == [record.value for record in records]
        headers = both_headers(payload, where.headers_start.tolist(), where.header_count.tolist())
        assert isinstance(headers, GatheredHeaders)
        assert arrow_headers(headers) == [list(record.headers) for record in records]
        headers_seen += len(headers.keys.offsets) - 1
    assert headers_seen
