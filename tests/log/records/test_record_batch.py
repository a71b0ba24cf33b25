import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.log.batches import Row, batch, legacy, marker, plain, wrapper
from tests.log.encoded_record import encode_record
from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.log import Compression, ControlRecordType, Record, RecordBatch, iter_batches
from tierd.log.records.batch_header import parse_header
from tierd.log.records.compression import compress
from tierd.log.records.record_batch import with_data

CODECS = list(Compression)
ROWS: list[Row] = [(1000, b"k", b"v"), (999, None, b"w" * 500), (1005, b"k", None)]

A1 = (
    "00000000000000000000003affffffff02716a618900000000000000000000000003e800000000000003e8ffffffffffffff"
    "ffffffffffffff0000000110000000026b027600"
)
A2 = (
    "00000000000000050000004800000002029de7ea5100100000000100000000000003e800000000000003e900000000000000"
    "07000100000003000000021c0000000102610402680278026e010e00020202620100"
)
A3 = (
    "000000000000000a0000004200000002025ce84ffe00300000000000000000000003e800000000000003e800000000000000"
    "070001ffffffff000000012000000008000000010c00000000000900"
)
A4 = (
    "0000000000000014000000310000000202a361dbd8001000000004ffffffffffffffff00000000000003e900000000000000"
    "0700010000000300000000"
)
A5 = (
    "000000000000001e0000003c000000020244bf9baf0040000000000000000005265fe800000000000003e8ffffffffffffff"
    "ffffffffffffff000000011400ffefb2520002620100"
)
A6 = (
    "000000000000000000000050ffffffff028e35bd9200020000000000000000000003e800000000000003e8ffffffffffffff"
    "ffffffffffffff0000000182534e415050590000000001000000010000000b092010000000026b027600"
)
A7 = (
    "000000000000000000000049ffffffff02f4283fbe00030000000000000000000003e800000000000003e8ffffffffffffff"
    "ffffffffffffff0000000104224d186040820900008010000000026b02760000000000"
)
A8 = (
    "00000000000000000000003affffffff024dacf1c500080000000000000000000003e800000000000007d0ffffffffffffff"
    "ffffffffffffff0000000110000000026b027600"
)
A10 = "0000000000000003000000101fecd70a0000000000016b0000000176"
A11 = "000000000000000300000018e4e321bc010000000000000003e8000000016b0000000176"


def one(data: bytes) -> RecordBatch:
    (found,) = iter_batches(data, name="file")
    return found


def records(data: bytes) -> list[Record]:
    return [record for found in iter_batches(data, name="file") for record in found.records()]


@pytest.mark.spec("log-format REC-50")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (A1, [Record(0, 1000, "CreateTime", b"k", b"v")]),
        (
            A2,
            [
                Record(5, 1000, "CreateTime", None, b"a", (("h", b"x"), ("n", None)), 2),
                Record(6, 1001, "CreateTime", b"b", None, (), 2),
            ],
        ),
        (A4, []),
        (A5, [Record(30, 1000, "CreateTime", b"b", None, (), 2)]),
        (A6, [Record(0, 1000, "CreateTime", b"k", b"v")]),
        (A7, [Record(0, 1000, "CreateTime", b"k", b"v")]),
        (A8, [Record(0, 2000, "LogAppendTime", b"k", b"v")]),
        (A10, [Record(3, -1, "NoTimestampType", b"k", b"v")]),
        (A11, [Record(3, 1000, "CreateTime", b"k", b"v")]),
    ],
    ids=["A1", "A2", "A4", "A5", "A6", "A7", "A8", "A10", "A11"],
)
def test_golden_batches_are_decoded(text: str, expected: list[Record]) -> None:
    assert records(bytes.fromhex(text)) == expected


@pytest.mark.spec("log-format REC-50")
def test_golden_headers_are_decoded() -> None:
    idempotent, empty, tombstone = one(bytes.fromhex(A2)), one(bytes.fromhex(A4)), one(bytes.fromhex(A5))
    assert (idempotent.producer_id, idempotent.producer_epoch, idempotent.base_sequence) == (7, 1, 3)
    assert (idempotent.last_sequence, idempotent.is_transactional, idempotent.is_control) == (4, True, False)
    assert (empty.base_offset, empty.last_offset, empty.record_count, empty.size_bytes) == (20, 24, 0, 61)
    assert (tombstone.delete_horizon_ms, idempotent.delete_horizon_ms) == (86401000, None)


@pytest.mark.spec("log-format REC-15")
def test_golden_marker_is_decoded_as_commit() -> None:
    commit = one(bytes.fromhex(A3))
    assert (commit.is_control, commit.is_transactional, commit.size_bytes) == (True, True, 78)
    assert commit.control_type() is ControlRecordType.COMMIT
    assert one(marker(9, 4, commit=False)).control_type() is ControlRecordType.ABORT
    assert one(bytes.fromhex(A1)).control_type() is None


@pytest.mark.spec("log-format REC-02")
@pytest.mark.spec("log-format REC-16")
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_are_decoded(codec: Compression) -> None:
    data = batch(7, ROWS, codec=codec, epoch=3, headers=[("h", b"1"), ("h", None), ("", b"")])
    expected_headers = (("h", b"1"), ("h", None), ("", b""))
    assert records(data) == [
        Record(7 + i, ts, "CreateTime", key, value, expected_headers, 3) for i, (ts, key, value) in enumerate(ROWS)
    ]
    assert one(data).compression is codec


@pytest.mark.spec("log-format REC-13")
def test_records_of_a_log_append_time_batch_have_its_timestamp() -> None:
    assert {(r.timestamp_ms, r.timestamp_type) for r in records(batch(0, ROWS, log_append_ms=5000))} == {
        (5000, "LogAppendTime")
    }


@pytest.mark.spec("log-format REC-03")
@pytest.mark.spec("log-format REC-04")
def test_sequences_wrap_after_the_largest_int() -> None:
    assert one(plain(0, 3)).last_sequence == -1
    assert one(batch(0, ROWS, producer_id=1, producer_epoch=0, base_sequence=1)).last_sequence == 3
    assert one(batch(0, ROWS, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)).last_sequence == 0


@pytest.mark.spec("log-format REC-08")
@pytest.mark.spec("log-format REC-09")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [2, 4, -1])
def test_a_wrong_count_is_an_invalid_record(codec: Compression, count: int) -> None:
    found = one(batch(0, ROWS, codec=codec, count=count))
    with pytest.raises(InvalidRecordError, match="position 0"):
        list(found.records())


@pytest.mark.spec("log-format REC-10")
def test_a_flipped_byte_is_a_wrong_checksum() -> None:
    data = bytearray(plain(0) + plain(1))
    data[len(plain(0)) + 24] ^= 1
    with pytest.raises(CorruptRecordError, match=r"file: .*position \d+"):
        list(iter_batches(bytes(data), name="file"))
    assert [b.is_valid for b in iter_batches(bytes(data), name="file", check_crc=False)].count(False) == 1


@pytest.mark.spec("log-format REC-11")
@pytest.mark.spec("log-format REC-12")
def test_offset_and_leader_epoch_are_outside_of_the_checksum() -> None:
    data = bytearray(plain(0, 2))
    struct.pack_into(">q", data, 0, 50)
    struct.pack_into(">i", data, 12, 9)
    assert [(r.offset, r.leader_epoch) for r in records(bytes(data))] == [(50, 9), (51, 9)]


@pytest.mark.spec("log-format REC-07")
@pytest.mark.spec("log-format REC-40")
@pytest.mark.parametrize(
    ("length", "magic"), [(9, 2), (0, 2), (-1, 2), (40, 2), (20, 1), (13, 0), (100, 37), (100, -1)]
)
def test_an_impossible_length_or_magic_is_corrupt(length: int, magic: int) -> None:
    data = struct.pack(">qiib", 0, length, 0, magic) + bytes(100)
    with pytest.raises(CorruptRecordError, match="position 5"):
        list(iter_batches(data, name="file", position=5))


@pytest.mark.spec("log-format REC-39")
@pytest.mark.spec("log-format REC-41")
@pytest.mark.spec("log-format REC-43")
def test_an_incomplete_batch_at_the_end_is_left_out() -> None:
    data = plain(0) + plain(1)
    for size in range(len(data)):
        assert len(list(iter_batches(data[:size], name="file"))) == (1 if size >= len(data) // 2 else 0)


def test_positions_of_batches_count_from_the_given_start() -> None:
    found = list(iter_batches(plain(0) + plain(1, 2), name="file", position=1000))
    assert [(b.position, b.end_position) for b in found] == [
        (1000, 1000 + len(plain(0))),
        (1000 + len(plain(0)), 1000 + len(plain(0) + plain(1, 2))),
    ]


def test_unknown_codec_is_an_invalid_record() -> None:
    found = one(batch(0, [], count=0))
    assert list(found.records()) == []
    broken = bytearray(plain(0))
    broken[22] |= 6
    (bad,) = iter_batches(bytes(broken), name="file", check_crc=False)
    with pytest.raises(InvalidRecordError, match="codec 6"):
        list(bad.records())


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.spec("log-format LEG-01")
def test_legacy_entry_is_decoded_and_a_flipped_byte_is_a_wrong_checksum(magic: int) -> None:
    data = legacy(magic, 5, b"k", None)
    kind, timestamp_ms = ("CreateTime", 1000) if magic else ("NoTimestampType", -1)
    assert records(data) == [Record(5, timestamp_ms, kind, b"k", None)]
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        records(bytes(damaged))


def inner(magic: int, offsets: Iterable[int]) -> bytes:
    return b"".join(legacy(magic, offset, b"k%d" % i, b"v") for i, offset in enumerate(offsets))


@pytest.mark.spec("log-format LEG-02")
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4])
def test_relative_offsets_of_inner_records_count_back_from_the_wrapper(codec: Compression) -> None:
    assert [r.offset for r in records(wrapper(1, 10, inner(1, range(3)), codec=codec))] == [8, 9, 10]


def test_offsets_within_magic_0_are_absolute() -> None:
    assert [r.offset for r in records(wrapper(0, 10, inner(0, (4, 7, 10))))] == [4, 7, 10]


@pytest.mark.spec("log-format LEG-03")
def test_inner_records_of_a_wrapper_at_offset_0_count_from_0() -> None:
    assert [r.offset for r in records(wrapper(1, 0, inner(1, range(3))))] == [0, 1, 2]


@pytest.mark.spec("log-format LEG-04")
@pytest.mark.spec("log-format LEG-07")
@pytest.mark.parametrize(
    "data",
    [
        wrapper(1, 1, inner(1, range(3))),
        legacy(1, 5, None, None, attributes=Compression.GZIP),
        wrapper(1, 5, b""),
        wrapper(1, 5, wrapper(1, 0, inner(1, [0]))),
        wrapper(0, 5, inner(1, [5])),
        wrapper(1, 5, inner(1, range(3))[:-1]),
        wrapper(1, 5, inner(1, range(3))[:-1] + b"!"),
        legacy(1, 5, None, compress(Compression.ZSTD, inner(1, [0])), attributes=Compression.ZSTD),
    ],
    ids=["offset", "null", "empty", "nested", "magic", "cut", "inner crc", "zstd"],
)
def test_an_impossible_wrapper_is_an_invalid_record(data: bytes) -> None:
    with pytest.raises(InvalidRecordError):
        records(data)


@pytest.mark.spec("log-format LEG-05")
def test_inner_records_of_a_log_append_time_wrapper_have_its_timestamp() -> None:
    found = records(wrapper(1, 10, inner(1, range(3)), log_append_ms=7777))
    assert {(r.timestamp_ms, r.timestamp_type) for r in found} == {(7777, "LogAppendTime")}


@pytest.mark.spec("log-format LEG-09")
def test_magic_0_entries_in_a_magic_1_wrapper_are_decoded() -> None:
    assert [r.offset for r in records(wrapper(1, 10, inner(0, range(3))))] == [8, 9, 10]


def test_an_entry_whose_fields_do_not_fill_it_is_an_invalid_record() -> None:
    data = legacy(1, 5, b"k", b"v")
    key_size = 26
    forged = data[:key_size] + struct.pack(">i", 1000) + data[key_size + 4 :]
    (entry,) = iter_batches(forged, name="file", check_crc=False)
    with pytest.raises(InvalidRecordError, match="field of 1000 bytes"):
        list(entry.records())


@given(st.binary(max_size=300))
def test_any_bytes_are_decoded_to_batches_or_refused(data: bytes) -> None:
    with suppress(CorruptRecordError):
        for found in iter_batches(data, name="file", check_crc=False):
            list(found.records(max_bytes=1 << 20))


@given(
    data=st.sampled_from(
        [plain(0, 3), marker(1, 2, commit=True), wrapper(1, 10, inner(1, range(3))), legacy(0, 1, b"k", b"v")]
    )
    | st.sampled_from([batch(0, ROWS, codec=codec) for codec in CODECS]),
    changes=st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=4),
    cut=st.integers(0, 400),
)
@settings(max_examples=400)
def test_damaged_batches_are_decoded_or_refused(data: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    damaged = bytearray(data + data)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    with suppress(CorruptRecordError):
        for found in iter_batches(bytes(damaged[: len(damaged) - cut]), name="file", check_crc=False):
            found.control_type()
            list(found.records(max_bytes=1 << 20))


@given(
    data=st.sampled_from([plain(0, 3), marker(1, 2, commit=True), legacy(0, 1, b"k", b"v")]),
    changes=st.lists(st.tuples(st.integers(0, 80), st.sampled_from((0, 1, 2, 127, 128, 255))), max_size=4),
    cut=st.integers(0, 100),
)
@example(data=plain(0, 3), changes=[(11, 48)], cut=0)  # one byte less than a header
@example(data=plain(0, 3), changes=[(0, 127), *((at, 255) for at in range(1, 7)), (7, 254)], cut=0)  # ends at 2^63
@settings(max_examples=400)
def test_walk_yields_the_batches_of_the_headers_that_are_parsed(
    data: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    damaged = bytearray(data + data)
    for at, byte in changes:
        damaged[at % len(damaged)] = byte
    content = bytes(damaged[: len(damaged) - cut])
    expected, expected_error = _outcome(_parsed_batches(content))
    found, error = _outcome(iter_batches(content, name="file", position=7, check_crc=False))
    assert (found, error) == (expected, expected_error)
    assert [bytes(each.data) for each in found] == [bytes(each.data) for each in expected]


def _parsed_batches(content: bytes) -> Iterator[RecordBatch]:
    at = 0
    while (header := parse_header(content, at, name="file", position=7 + at)) is not None:
        if at + header.size_bytes > len(content):
            return
        yield with_data(header, memoryview(content)[at : at + header.size_bytes])
        at += header.size_bytes


def _outcome(batches: Iterator[RecordBatch]) -> tuple[list[RecordBatch], str]:
    found = []
    try:
        for each in batches:
            found.append(each)  # noqa: PERF402 - those before an error count
    except CorruptRecordError as error:
        return found, str(error)
    return found, ""


@given(
    st.lists(
        st.tuples(st.integers(0, 2**40), st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20)),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(CODECS),
)
def test_any_batch_is_decoded_as_it_was_encoded(rows: list[Row], codec: Compression) -> None:
    assert [(r.timestamp_ms, r.key, r.value) for r in records(batch(3, rows, codec=codec))] == rows


def test_a_header_name_that_is_no_utf_8_is_read_as_the_java_client_reads_it() -> None:
    body = encode_record(0, 0, b"k", b"v", [("xx", b"y")]).replace(b"xx", b"\xff\xfe")
    data = bytearray(batch(0, [(0, b"k", b"v")], headers=[("xx", b"y")]))
    data[61:] = body
    (found,) = iter_batches(bytes(data), name="file", check_crc=False)
    assert next(iter(found.records())).headers == (("��", b"y"),)


@pytest.mark.spec("log-format REC-50")
@pytest.mark.spec("log-format LEG-01")
@pytest.mark.parametrize(("magic", "golden"), [(0, A10), (1, A11)])
def test_legacy_entries_of_the_test_builder_are_the_golden_ones(magic: int, golden: str) -> None:
    assert legacy(magic, 3, b"k", b"v").hex() == golden
