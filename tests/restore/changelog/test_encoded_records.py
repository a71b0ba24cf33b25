"""Records that stay in the bytes of their batches, against the records of the batches one by one."""

from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import legacy, wrapper
from tierd.errors import InvalidRecordError
from tierd.kernels import STEP_RECORDS
from tierd.log import (
    Compression,
    NewRecord,
    Record,
    RecordBatch,
    RecordColumns,
    encode_batch,
    encode_empty_batch,
    iter_batches,
)
from tierd.log.records.log_config import TimestampType
from tierd.restore.changelog.changelog_source import ChangelogRecords
from tierd.restore.changelog.encoded_records import EncodedRecords, record_pieces

KINDS = ["plain", "plain", "append-time", "gzip", "empty", "legacy", "wrapper"]

fields = st.one_of(st.none(), st.binary(max_size=9))
rows = st.builds(
    NewRecord,
    key=fields,
    value=fields,
    timestamp_ms=st.integers(0, 1 << 40),
    headers=st.lists(st.tuples(st.sampled_from(["a", "größe"]), fields), max_size=2).map(tuple),
)


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches of every kind, with gaps between them."""
    log, offset = b"", draw(st.integers(0, 50))
    for kind in draw(
        st.lists(st.sampled_from(["plain", "plain", "append-time", "gzip", "empty", "legacy", "wrapper"]), max_size=8)
    ):
        found, epoch = draw(st.lists(rows, min_size=1, max_size=5)), draw(st.integers(-1, 3))
        match kind:
            case "empty":
                log += encode_empty_batch(base_offset=offset, last_offset=offset + len(found) - 1, leader_epoch=epoch)
            case "legacy":
                log += legacy(1, offset, found[0].key, found[0].value)
            case "wrapper":
                inner = b"".join(legacy(1, number, row.key, row.value) for number, row in enumerate(found))
                log += wrapper(1, offset + len(found) - 1, inner)
            case "gzip":
                log += encode_batch(found, base_offset=offset, compression=Compression.GZIP, leader_epoch=epoch)
            case "append-time":
                kind_of_time = TimestampType.LOG_APPEND_TIME
                log += encode_batch(
                    found, base_offset=offset, timestamp_type=kind_of_time, log_append_time_ms=77, leader_epoch=epoch
                )
            case _:
                log += encode_batch(found, base_offset=offset, leader_epoch=epoch)
        offset += len(found) + draw(st.integers(0, 2))
    return log


def batches_of(log: bytes) -> list[RecordBatch]:
    return list(iter_batches(log, name="log"))


def encoded(batches: Sequence[RecordBatch], start: int = 0, end: int = 1 << 62) -> EncodedRecords:
    return EncodedRecords(record_pieces(batches, start_offset=start, end_offset=end))


@settings(max_examples=40)
@given(logs(), st.data())
def test_records_are_those_of_the_batches_between_two_offsets(log: bytes, data: st.DataObject) -> None:
    batches = batches_of(log)
    everything = list(chain.from_iterable(batch.records() for batch in batches))
    offsets = [0, *(record.offset for record in everything), 1 << 62]
    start, end = data.draw(st.sampled_from(offsets)), data.draw(st.sampled_from(offsets))
    expected = [record for record in everything if start <= record.offset < end]
    touched = [batch for batch in batches if any(start <= record.offset < end for record in batch.records())]

    found = encoded(touched, start, end)

    assert len(found) == len(expected)
    if expected:
        facts = (found.first_offset, found.last_offset, found.last_leader_epoch)
        assert facts == (expected[0].offset, expected[-1].offset, expected[-1].leader_epoch)
    assert list(found) == expected
    assert found.part(1, 3).offsets == [record.offset for record in expected[1:3]]
    assert list(found.with_keys()) == [record for record in expected if record.key is not None]


def test_plain_batches_become_few_pieces_and_no_list_before_one_is_asked_for() -> None:
    log = b"".join(
        encode_batch([NewRecord(b"%d" % (first + at), b"v" * at, 1) for at in range(9)], base_offset=first)
        for first in range(0, 18_000, 9)
    )

    found = encoded(batches_of(log))

    assert len(found.pieces) == -(-9 * 2000 // STEP_RECORDS)
    assert all(isinstance(piece, RecordColumns) for piece in found.pieces)
    assert (len(found), found.last_offset) == (18_000, 17_999)
    assert found.keys == [b"%d" % number for number in range(18_000)]
    assert found.values == [b"v" * (number % 9) for number in range(18_000)]


def test_records_of_the_parent_have_the_same_facts() -> None:
    records = ChangelogRecords.of([Record(offset, 1, "CreateTime", b"k", b"v", (), offset) for offset in (3, 5)])

    assert (records.first_offset, records.last_offset, records.last_leader_epoch) == (3, 5, 5)


def test_damaged_records_are_named_with_their_batch() -> None:
    good = encode_batch([NewRecord(b"k", b"v", 1)])
    bad = bytearray(encode_batch([NewRecord(b"key", b"value", 1)], base_offset=1))
    bad[61] ^= 0x7F  # the size of the record
    batches = list(iter_batches(good + bytes(bad), name="log", check_crc=False))

    with pytest.raises(InvalidRecordError, match=f"log: .* its length .* at position {len(good)}"):
        encoded(batches)
