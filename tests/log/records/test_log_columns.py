"""A log in pieces has the same records as the whole log."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.unpack import GoldenCase, golden_cases
from tests.log.log_columns import iter_log_columns
from tierd.errors import CorruptRecordError
from tierd.log.records.batch_builder import encode_batch
from tierd.log.records.compression import Compression
from tierd.log.records.log_columns import iter_piece_columns
from tierd.log.records.new_record import NewRecord, Producer
from tierd.log.records.record import Record
from tierd.log.records.record_batch import RecordBatch, iter_batches
from tierd.log.records.record_columns import RecordColumns


def batches() -> bytes:
    rows = [NewRecord(b"k%d" % n, b"v" * n, 1_000 + n) for n in range(20)]
    return b"".join(
        (
            encode_batch(rows, base_offset=0),
            encode_batch(rows[:1], base_offset=20, compression=Compression.LZ4),
            encode_batch(rows, base_offset=21, producer=Producer(7, 0, 0), is_transactional=True),
            encode_batch(rows[:3], base_offset=41),
        )
    )


DATA = batches()


def cut(data: bytes, at: list[int]) -> Iterator[bytes]:
    places = sorted({0, len(data), *(place % len(data) for place in at)})
    return (data[a:b] for a, b in pairwise(places))


def records_of(found: RecordColumns | RecordBatch) -> list[Record]:
    return list(found.records()) if isinstance(found, RecordBatch) else list(found)


@given(st.lists(st.integers(min_value=0), max_size=8), st.integers(min_value=1, max_value=30))
def test_log_cut_into_pieces_at_any_place_gives_the_same_records(at: list[int], step_records: int) -> None:
    whole = [record for found in iter_log_columns(DATA, name="log") for record in found]
    pieces = iter_piece_columns(cut(DATA, at), name="log", step_records=step_records)
    assert [record for found in pieces for record in records_of(found)] == whole


@pytest.mark.parametrize("case", golden_cases("clean", "old-format"), ids=lambda case: case.id)
def test_golden_logs_in_pieces_give_the_records_of_their_batches(case: GoldenCase, golden: Path) -> None:
    for path in sorted((golden / case.logdirs[0] / case.partition).glob("*.log")):
        data = path.read_bytes()
        expected = [record for batch in iter_batches(data, name="log") for record in batch.records()]
        places = list(range(0, len(data), 4_001))
        found = [r for columns in iter_piece_columns(cut(data, places), name="log") for r in records_of(columns)]
        assert found == expected, path


def test_runs_report_transaction_and_producer_of_their_records() -> None:
    runs = [list(found.runs()) for found in iter_log_columns(DATA, name="log") if isinstance(found, RecordColumns)]
    flat = [(run.end - run.first, run.is_transactional, run.producer_id) for each in runs for run in each]
    assert flat == [(20, False, -1), (1, False, -1), (20, True, 7), (3, False, -1)]


def test_batches_that_the_caller_does_not_want_are_left_out() -> None:
    found = iter_piece_columns((DATA,), name="log", wanted=lambda header: header.base_offset != 20)
    assert 20 not in [record.offset for columns in found for record in records_of(columns)]


def test_incomplete_batch_at_the_end_is_damage_unless_the_caller_allows_it() -> None:
    with pytest.raises(CorruptRecordError, match="incomplete batch"):
        list(iter_piece_columns((DATA, b"\0" * 9), name="log"))
    assert list(iter_piece_columns((DATA, b"\0" * 9), name="log", may_be_torn=True))


def test_a_wrong_checksum_is_damage_in_every_piece() -> None:
    spoilt = bytearray(DATA)
    spoilt[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        list(iter_piece_columns(cut(bytes(spoilt), [50]), name="log"))
