"""Records written anew: kept ones unchanged or with other deltas."""

import struct
from array import array
from itertools import accumulate, compress
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.batches_of_brokers import golden_payloads
from tests.log.encoded_record import encode_record
from tierd.kernels import RecordFault, compiled, reference, rewrite_batches, select_records
from tierd.log.records.batch_header import HEADER_V2
from tierd.log.records.new_record import encode_varint
from tierd.log.records.record import Header, iter_raw_records

TWINS = pytest.mark.parametrize("kernels", [reference, compiled])
EDGES = (0, 1, -1, 63, 64, -64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
longs = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1))
ints = st.one_of(st.sampled_from(EDGES[:11]), st.integers(-(2**31), 2**31 - 1))
fields = st.one_of(st.none(), st.binary(max_size=70), st.sampled_from([bytes(63), bytes(64), bytes(8191), bytes(8192)]))
header_rows = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3)
rows = st.lists(st.tuples(longs, ints, fields, fields, header_rows), max_size=8)
Row = tuple[int, int, bytes | None, bytes | None, list[Header]]


def encoded(found: list[Row]) -> bytes:
    return b"".join(encode_record(*row) for row in found)


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def both(payload: bytes, keep: list[bool], shift_ms: int = 0) -> bytes | RecordFault:
    expected, found, chosen = (
        select(payload, len(keep), np.array(keep, dtype=bool), timestamp_shift_ms=shift_ms)
        for select in (reference.select_records, compiled.select_records, select_records)
    )
    assert found == expected == chosen
    assert type(found) is type(expected)
    assert isinstance(expected, bytes | RecordFault)
    return expected


@given(rows, st.data())
def test_kept_records_are_copied_byte_for_byte(found: list[Row], data: st.DataObject) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found)))
    kept = [row for row, is_kept in zip(found, keep, strict=True) if is_kept]
    assert both(encoded(found), keep) == encoded(kept)


@given(rows, st.data(), st.one_of(longs, st.integers(-(2**65), 2**65)))
def test_shift_moves_timestamps_like_java_and_no_other_field(
    found: list[Row], data: st.DataObject, shift_ms: int
) -> None:
    keep = data.draw(st.lists(st.booleans(), min_size=len(found), max_size=len(found)))
    kept = [(wrapped(row[0] + shift_ms), *row[1:]) for row, is_kept in zip(found, keep, strict=True) if is_kept]
    assert both(encoded(found), keep, shift_ms) == encoded(kept)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=120), rows.map(encoded)), st.data())
def test_reference_and_compiled_kernel_select_from_any_bytes_alike(payload: bytes, data: st.DataObject) -> None:
    damaged = bytearray(payload)
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    torn = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    for content in (bytes(damaged), torn):
        both(content, data.draw(st.lists(st.booleans(), max_size=9)), data.draw(longs))


@pytest.mark.parametrize(
    ("payload", "count", "shift_ms", "fault"),
    [
        (b"", 1, 0, RecordFault.BYTES_END),
        (encode_varint(-1), 1, 0, RecordFault.RECORD_SIZE),
        (encode_varint(2**31 - 1) + bytes(9), 1, 0, RecordFault.RECORD_SIZE),
        (b"\xff" * 9, 1, 0, RecordFault.NUMBER_TOO_LONG),
        (encode_record(0, 0, b"k", b"v") + b"\0", 1, 0, RecordFault.BYTES_LEFT),
        (encode_record(0, 0, b"k", b"v"), 0, 0, RecordFault.BYTES_LEFT),
        (encode_varint(0) + encode_record(0, 0, b"k", b"v"), 2, 1, RecordFault.NOT_FILLED),
        (encode_varint(1) + b"\0", 1, 1, RecordFault.BYTES_END),
        (encode_varint(11) + b"\0" + b"\x80" * 10, 1, 1, RecordFault.NUMBER_TOO_LONG),
    ],
)
def test_each_damage_of_records_is_returned_as_its_fault(
    payload: bytes, count: int, shift_ms: int, fault: RecordFault
) -> None:
    assert both(payload, [True] * count, shift_ms) is fault


@TWINS
def test_negative_count_is_a_fault_and_a_wrong_number_of_choices_a_value_error(kernels: ModuleType) -> None:
    assert kernels.select_records(b"", -1, np.zeros(0, bool)) is RecordFault.NEGATIVE_COUNT
    with pytest.raises(ValueError, match="1 choices for 2 records"):
        kernels.select_records(b"", 2, np.zeros(1, bool))


@TWINS
def test_bytes_and_memoryviews_of_records_and_choices_are_accepted(kernels: ModuleType) -> None:
    payload = encode_record(5, 0, b"k", b"v") + encode_record(6, 1, b"l", b"w")
    for buffer in (payload, memoryview(payload), memoryview(bytearray(payload))):
        for keep in (memoryview(array("b", [0, 1])), np.array([0, 1]), np.array([True, False])[::-1]):
            assert kernels.select_records(buffer, 2, keep) == payload[len(payload) // 2 :]
            assert select_records(buffer, 2, keep) == payload[len(payload) // 2 :]


def test_selection_from_batches_of_real_brokers_drops_only_the_other_records(golden: Path) -> None:
    random = np.random.default_rng(6)
    selected = 0
    for batch, payload in golden_payloads(golden):
        records = list(iter_raw_records(payload, batch.record_count))
        assert both(payload, [True] * len(records)) == payload
        for shift_ms in (0, 86_400_000, -(2**40)):
            keep = [bool(choice) for choice in random.random(len(records)) < 0.5]
            result = both(payload, keep, shift_ms)
            assert isinstance(result, bytes)
            expected = [
                record._replace(timestamp_delta_ms=record.timestamp_delta_ms + shift_ms)
                for record, is_kept in zip(records, keep, strict=True)
                if is_kept
            ]
            assert list(iter_raw_records(result, len(expected))) == expected
            selected += len(expected)
    assert selected > 1000


def rewritten(
    data: bytes, bounds: list[int], firsts: list[int], keep: list[bool], stamps: list[tuple[int, int]]
) -> tuple[bytes, list[int]] | RecordFault:
    """Return the result of all three functions, which agree."""
    base_ms, max_ms = np.array(stamps, dtype=np.int64).reshape(-1, 2).T
    found: list[tuple[bytes, list[int]] | RecordFault] = []
    for rewrite in (reference.rewrite_batches, compiled.rewrite_batches, rewrite_batches):
        result = rewrite(data, np.array(bounds), np.array(firsts), np.array(keep, dtype=bool), (base_ms, max_ms))
        found.append(result if isinstance(result, RecordFault) else (bytes(result[0]), result[1].tolist()))
    assert found[1:] == found[:-1]
    return found[0]


@given(st.lists(rows, max_size=4), st.data())
def test_rewritten_batches_drop_other_records_and_unchanged_ones_stay_as_they_are(
    contents: list[list[Row]], data: st.DataObject
) -> None:
    header = bytes(range(1, 62))
    batches = [header + encoded(content) for content in contents]
    keep = [data.draw(st.lists(st.booleans(), min_size=len(each), max_size=len(each))) for each in contents]
    stamps = [(data.draw(longs), data.draw(longs)) for _ in contents]
    bounds = list(accumulate(map(len, batches), initial=0))
    firsts = list(accumulate(map(len, contents), initial=0))
    found = rewritten(b"".join(batches), bounds, firsts, [each for some in keep for each in some], stamps)
    expected = [
        lone(batch, content, chosen, *stamp)
        for batch, content, chosen, stamp in zip(batches, contents, keep, stamps, strict=True)
    ]
    assert found == (b"".join(expected), list(accumulate(map(len, expected))))


def lone(batch: bytes, content: list[Row], keep: list[bool], base_ms: int, max_ms: int) -> bytes:
    """Return one batch with the kept records, with the header of the log room."""
    if all(keep):
        return batch
    if not any(keep):
        return b""
    (old_ms,) = struct.unpack_from(">q", batch, 27)
    kept = encoded([(wrapped(row[0] + old_ms - base_ms), *row[1:]) for row in compress(content, keep)])
    fields = list(HEADER_V2.unpack_from(batch))
    fields[1], fields[4], fields[5] = 49 + len(kept), 0, fields[5] & 0xFF
    fields[7], fields[8], fields[12] = base_ms, max_ms, sum(keep)
    return HEADER_V2.pack(*fields) + kept


@settings(max_examples=300)
@given(st.binary(min_size=61, max_size=200), st.data())
def test_reference_and_compiled_kernel_rewrite_any_batches_alike(content: bytes, data: st.DataObject) -> None:
    end = data.draw(st.integers(61, len(content)))
    bounds = [0, end, len(content)] if len(content) - end >= 61 else [0, end]
    keep = data.draw(st.lists(st.booleans(), max_size=9))
    middle = data.draw(st.integers(0, len(keep)))
    firsts = [0, middle, len(keep)] if len(bounds) == 3 else [0, middle]
    rewritten(content, bounds, firsts, keep, [(data.draw(longs), data.draw(longs)) for _ in bounds[1:]])


@TWINS
@pytest.mark.parametrize(
    ("bounds", "firsts", "stamps", "problem"),
    [
        ([], [], 0, "70 bytes have no batches at"),
        ([-1, 61], [0, 1], 1, "no batches at"),
        ([0, 60], [0, 1], 1, "no batches at"),
        ([0, 71], [0, 1], 1, "no batches at"),
        ([0, 61], [0], 1, "1 choices are not for"),
        ([0, 61], [-1, 1], 1, "1 choices are not for"),
        ([0, 61], [1, 0], 1, "1 choices are not for"),
        ([0, 61], [0, 2], 1, "1 choices are not for"),
        ([0, 61], [0, 1], 2, "timestamps of .* batches, not of 1"),
    ],
)
def test_impossible_bounds_are_a_value_error(
    kernels: ModuleType, bounds: list[int], firsts: list[int], stamps: int, problem: str
) -> None:
    columns = np.array(bounds, dtype=int), np.array(firsts, dtype=int), np.ones(1, dtype=bool)
    with pytest.raises(ValueError, match=problem):
        kernels.rewrite_batches(bytes(70), *columns, (np.zeros(stamps, int), np.zeros(stamps, int)))
