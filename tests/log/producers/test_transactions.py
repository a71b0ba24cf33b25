import struct
from pathlib import Path

import pytest

from tests.log.batches import batch, marker, plain, transactional
from tierd.errors import InvalidRecordError
from tierd.kernels import crc32c
from tierd.log import ControlRecordType, ProducerStateEntry, iter_batches, stable_end_offset
from tierd.log.files.disk import OsDisk
from tierd.log.log_errors import EndMarkerError
from tierd.log.producers.transactions import (
    CompletedTransaction,
    EndMarker,
    OpenTransactions,
    end_marker_of,
    read_end_marker,
)
from tierd.log.records.batch_header import IS_CONTROL, iter_headers


def apply(*batches: bytes) -> tuple[OpenTransactions, list[CompletedTransaction]]:
    state = OpenTransactions()
    completed = [state.apply(b, b.control_type()) for b in iter_batches(b"".join(batches), name="file")]
    return state, [c for c in completed if c is not None]


@pytest.mark.spec("log-format PSM-10")
def test_a_transaction_spans_its_batches_and_ends_with_its_marker() -> None:
    state, completed = apply(transactional(16, 7, 5), transactional(21, 7, 5), marker(40, 7, commit=True))
    assert completed == [CompletedTransaction(7, 16, 40, is_aborted=False)]
    assert state.first_unstable_offset is None


@pytest.mark.spec("log-format PSM-31")
def test_first_unstable_offset_is_that_of_the_earliest_open_transaction() -> None:
    opened = [transactional(0, 1), transactional(1, 2), transactional(2, 3)]
    assert apply(*opened, marker(3, 1, commit=True))[0].first_unstable_offset == 1
    assert apply(*opened, marker(3, 1, commit=True), marker(4, 3, commit=False))[0].first_unstable_offset == 1
    assert apply(*opened, marker(3, 2, commit=True))[0].first_unstable_offset == 0


@pytest.mark.spec("log-format PSM-32")
def test_marker_without_data_completes_no_transaction() -> None:
    state, completed = apply(marker(0, 1, commit=True), marker(1, 1, commit=False), plain(2), transactional(30, 1))
    assert (completed, state.first_unstable_offset) == ([], 30)


@pytest.mark.spec("log-format PSM-27")
def test_an_emptied_control_batch_is_ignored() -> None:
    emptied = batch(5, [], transactional=True, control=True, producer_id=7, producer_epoch=0)
    state, completed = apply(transactional(0, 7), emptied)
    assert (completed, state.first_unstable_offset) == ([], 0)


def test_batches_without_a_transaction_change_nothing() -> None:
    assert (
        apply(plain(0), batch(1, [(0, None, None)], producer_id=3, producer_epoch=0, base_sequence=0))[0].first_offsets
        == {}
    )


def control(key: bytes | None, value: bytes | None) -> bytes:
    """Build a control batch with any key and value: a data batch with the flag of a control batch."""
    data = bytearray(
        batch(9, [(1000, key, value)], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    )
    data[22] |= IS_CONTROL
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return bytes(data)


def marker_in(data: bytes) -> EndMarker | None:
    return end_marker_of(next(iter_batches(data, name="file")))


def test_end_marker_is_decoded_to_type_and_coordinator_epoch() -> None:
    assert marker_in(control(struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 5))) == (ControlRecordType.ABORT, 5)
    assert marker_in(control(struct.pack(">hh", 3, 1), struct.pack(">hi", 1, 6) + b"new")) == (
        ControlRecordType.COMMIT,
        6,
    )
    assert marker_in(plain(0)) is None
    assert marker_in(batch(5, [], transactional=True, control=True, producer_id=7, producer_epoch=0)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, None), (b"\0\0\0", b""), (b"\xff\xff\0\0", None), (b"\0\0\0\0", b"\0\0\0"), (b"\0\0\0\0", None)],
)
def test_an_end_marker_that_is_too_short_is_an_invalid_record(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match=r"file: .* at position 0"):
        marker_in(control(key, value))


@pytest.mark.parametrize("number", [2, 3, 6, 7, -1])
def test_control_record_of_another_type_is_an_end_marker_error(number: int) -> None:
    with pytest.raises(EndMarkerError, match="at position 0"):
        marker_in(control(struct.pack(">hh", 0, number), struct.pack(">hi", 0, 5)))


def test_end_marker_is_read_from_its_segment_file(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(plain(0) + marker(1, 7, commit=True))
    source = OsDisk().open(tmp_path / "x.log", write=False)
    found = [read_end_marker(source, header) for header in iter_headers(source)]
    source.close()
    assert found == [None, EndMarker(ControlRecordType.COMMIT, 0)]


def producer(producer_id: int, *, open_since: int = -1) -> ProducerStateEntry:
    return ProducerStateEntry(producer_id, 0, 0, 19, 0, 0, -1, open_since)


def test_stable_end_without_open_transactions_is_the_end() -> None:
    assert stable_end_offset([producer(1)], end_offset=20) == 20
    assert stable_end_offset([], end_offset=20) == 20


def test_stable_end_is_the_start_of_the_earliest_open_transaction() -> None:
    producers = [producer(1, open_since=12), producer(2), producer(3, open_since=7)]
    assert stable_end_offset(producers, end_offset=20) == 7


def test_stable_end_does_not_exceed_the_end() -> None:
    assert stable_end_offset([producer(1, open_since=30)], end_offset=20) == 20
