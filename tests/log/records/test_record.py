import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.batches import HeaderRow
from tests.log.encoded_record import encode_record as record
from tierd.log.records.new_record import encode_field as field
from tierd.log.records.new_record import encode_varint as varint
from tierd.log.records.record import (
    ControlRecordType,
    RawRecord,
    RecordError,
    iter_raw_records,
    parse_control_type,
    parse_end_marker,
)

payloads = st.one_of(st.none(), st.binary(max_size=40))
header_rows = st.lists(st.tuples(st.text(max_size=10), payloads), max_size=4)


def with_length(body: bytes) -> bytes:
    return varint(len(body)) + body


@pytest.mark.spec("log-format REC-50")
def test_golden_record_is_decoded() -> None:
    assert list(iter_raw_records(bytes.fromhex("10000000026b027600"), 1)) == [RawRecord(0, 0, b"k", b"v", ())]


@pytest.mark.spec("log-format REC-18")
@given(
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31 - 1), payloads, payloads, header_rows),
        max_size=5,
    )
)
def test_any_records_are_decoded_as_they_were_encoded(
    rows: list[tuple[int, int, bytes | None, bytes | None, list[HeaderRow]]],
) -> None:
    data = b"".join(record(ts, offset, key, value, headers) for ts, offset, key, value, headers in rows)
    assert list(iter_raw_records(data, len(rows))) == [
        RawRecord(ts, offset, key, value, tuple(headers)) for ts, offset, key, value, headers in rows
    ]


BODY = b"\0" + varint(0) + varint(0) + field(b"k") + field(b"v")


@pytest.mark.spec("log-format REC-19")
@pytest.mark.spec("log-format REC-20")
@pytest.mark.spec("log-format REC-21")
@pytest.mark.spec("log-format REC-22")
@pytest.mark.spec("log-format REC-23")
@pytest.mark.spec("log-format REC-24")
@pytest.mark.parametrize(
    "data",
    [
        with_length(BODY + varint(2) + field(b"h") + field(b"x")),
        with_length(BODY + varint(1) + field(b"h") + field(b"x") + field(b"i") + field(b"y")),
        with_length(BODY + varint(-1)),
        with_length(BODY + varint(2**31 - 1)),
        with_length(b"\0" + varint(0) + varint(0) + varint(-2) + varint(0)),
        with_length(b"\0" + varint(0) + varint(0) + varint(1000) + b"k"),
        with_length(b"\0" + varint(0) + varint(0) + field(b"k") + varint(1000) + b"v"),
        with_length(BODY + varint(1) + varint(-1) + field(b"x")),
        with_length(BODY + varint(1) + varint(-2) + field(b"x")),
        with_length(BODY + varint(1) + field(b"h") + varint(500)),
        with_length(b"\0" + b"\x80\x80"),
        with_length(b"\0" + b"\xff" * 10 + b"\x01" + varint(0)),
        with_length(b"\0" + varint(0) + b"\xff" * 5 + b"\x01" + field(b"k") + field(b"v") + varint(0)),
        varint(100) + BODY + varint(0),
        varint(3) + BODY + varint(0),
        varint(-1) + BODY,
        b"",
        b"\xff" * 20,
    ],
)
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        list(iter_raw_records(data, 1))


@pytest.mark.spec("log-format REC-08")
@pytest.mark.parametrize("count", [1, 3, -1])
def test_wrong_record_count_is_refused(count: int) -> None:
    data = record(0, 0, b"k", b"v") + record(1, 1, b"k", b"v")
    with pytest.raises(RecordError):
        list(iter_raw_records(data, count))


@pytest.mark.spec("log-format REC-36")
@pytest.mark.spec("log-format REC-38")
def test_type_of_a_control_record_is_parsed_from_its_key() -> None:
    assert parse_control_type(struct.pack(">hh", 0, 0)) is ControlRecordType.ABORT
    assert parse_control_type(struct.pack(">hh", 5, 1) + b"more") is ControlRecordType.COMMIT
    assert parse_control_type(struct.pack(">hh", 0, 77)) is ControlRecordType.UNKNOWN
    for bad in (None, b"", b"\0\0\0", struct.pack(">hh", -1, 0)):
        with pytest.raises(RecordError):
            parse_control_type(bad)


@pytest.mark.spec("log-format REC-37")
def test_coordinator_epoch_is_parsed_from_the_value_of_an_end_marker() -> None:
    assert parse_end_marker(struct.pack(">hi", 0, 9)) == 9
    assert parse_end_marker(struct.pack(">hi", 3, 9) + b"newer") == 9
    for bad in (None, b"\0\0\0\0\0", struct.pack(">hi", -1, 9)):
        with pytest.raises(RecordError):
            parse_end_marker(bad)


@given(st.binary(max_size=120), st.integers(-3, 8))
def test_any_bytes_of_records_are_decoded_or_refused(data: bytes, count: int) -> None:
    with suppress(RecordError):
        assert len(list(iter_raw_records(data, count))) == count
