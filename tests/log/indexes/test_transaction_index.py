import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import CorruptIndexError
from tierd.log import AbortedTransaction, TransactionIndex
from tierd.log.indexes.transaction_index import read_transaction_index

Entry = tuple[int, int, int, int]


def encode(*entries: Entry, version: int = 0) -> bytes:
    return b"".join(struct.pack(">hqqqq", version, *entry) for entry in entries)


FOUR: list[Entry] = [(0, 0, 10, 11), (1, 5, 15, 13), (2, 18, 35, 25), (3, 32, 50, 40)]


@pytest.mark.spec("log-format REC-50")
def test_golden_entry_is_decoded() -> None:
    data = bytes.fromhex("000000000000000000070000000000000005000000000000000a000000000000000b")
    assert TransactionIndex.from_bytes(data, 0, "file").entries == (AbortedTransaction(7, 5, 10, 11),)


@pytest.mark.spec("log-format IDX-22")
@pytest.mark.parametrize(
    ("start", "end", "expected", "complete"),
    [
        (0, 100, FOUR, False),
        (0, 32, FOUR[:3], True),
        (0, 35, FOUR, True),
        (10, 35, FOUR, True),
        (11, 35, FOUR[1:], True),
        (20, 41, FOUR[2:], False),
    ],
)
def test_collect_returns_the_aborted_transactions_of_a_read(
    start: int, end: int, expected: list[Entry], complete: bool
) -> None:
    index = TransactionIndex.from_bytes(encode(*FOUR), 0, "file")
    found, is_complete = index.collect(start, end)
    assert found == tuple(AbortedTransaction(*entry) for entry in expected)
    assert is_complete is complete


def test_markers_at_or_above_the_end_offset_are_left_out() -> None:
    index = TransactionIndex.from_bytes(encode(*FOUR), 0, "file")
    marker = FOUR[1][2]
    assert index.collect(0, 35, end_offset=marker) == ((AbortedTransaction(*FOUR[0]),), False)
    assert index.collect(0, 35, end_offset=marker + 1) == (tuple(AbortedTransaction(*e) for e in FOUR[:2]), False)


def test_incomplete_last_entry_is_left_out() -> None:
    assert len(TransactionIndex.from_bytes(encode(*FOUR)[:-1], 0, "file")) == 3


@pytest.mark.spec("log-format IDX-20")
@pytest.mark.spec("log-format IDX-21")
@pytest.mark.parametrize(
    ("data", "base"),
    [
        (encode(*FOUR), 100),
        (encode(FOUR[0], version=1), 0),
        (encode(FOUR[1], FOUR[0]), 0),
        (encode(FOUR[0], FOUR[0]), 0),
        (encode((1, 20, 10, 11)), 0),
        (encode((1, -1, 10, 11)), 0),
    ],
)
def test_impossible_entries_are_refused(data: bytes, base: int) -> None:
    with pytest.raises(CorruptIndexError, match=r"^file: "):
        TransactionIndex.from_bytes(data, base, "file")


@pytest.mark.spec("log-format IDX-25")
def test_a_segment_without_the_file_has_no_aborted_transactions(tmp_path: Path) -> None:
    assert read_transaction_index(tmp_path / "x.txnindex", base_offset=0) == TransactionIndex()


@given(st.binary(max_size=120), st.integers(0, 100))
def test_index_of_any_bytes_is_read_or_refused(data: bytes, base: int) -> None:
    try:
        found, _ = TransactionIndex.from_bytes(data, base, "file").collect(0, 2**63 - 1)
    except CorruptIndexError:
        return
    assert len(found) <= len(data) // 34
