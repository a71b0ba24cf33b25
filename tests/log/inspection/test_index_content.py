"""Indexes of a segment, checked as a reader checks them."""

import struct
from pathlib import Path

import numpy as np
import pytest

from tests.log.batches import legacy
from tests.log.logs import rows
from tierd.errors import CorruptIndexError, CorruptRecordError, LogError
from tierd.log import AbortedTransaction, KeyHashes, TransactionIndex, build_indexes, check_index, check_indexes_of_log
from tierd.log.producers.producer_state import encode_producer_snapshot
from tierd.model import IndexType

SOUND = {
    IndexType.OFFSET: struct.pack(">ii", 3, 4096),
    IndexType.TIMESTAMP: struct.pack(">qi", 1_700_000_000_000, 3),
    IndexType.TRANSACTION: TransactionIndex((AbortedTransaction(1, 100, 105, 100),)).to_bytes(),
    IndexType.PRODUCER_SNAPSHOT: encode_producer_snapshot(()),
    IndexType.LEADER_EPOCH: b"0\n1\n0 0\n",
    IndexType.KEY_HASHES: KeyHashes(
        bytes(8), 100, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.array([5], dtype=np.uint32)
    ).to_bytes(),
}


def check(index_type: IndexType, content: bytes, *, log_bytes: int = 5000) -> None:
    check_index(index_type, content, base_offset=100, log_bytes=log_bytes, name="orders-0 index")


@pytest.mark.parametrize("index_type", IndexType)
def test_sound_index_of_each_type_passes(index_type: IndexType) -> None:
    check(index_type, SOUND[index_type])


@pytest.mark.parametrize("index_type", [IndexType.TRANSACTION, IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH])
def test_damaged_index_is_refused_by_name(index_type: IndexType) -> None:
    with pytest.raises(LogError, match="orders-0 index"):
        check(index_type, b"\xff" * len(SOUND[index_type]))


def test_damaged_hashes_of_keys_are_refused_by_name() -> None:
    with pytest.raises(CorruptIndexError, match="orders-0 index"):
        check(IndexType.KEY_HASHES, SOUND[IndexType.KEY_HASHES][:-1])


def test_offset_index_that_points_behind_the_log_is_refused() -> None:
    with pytest.raises(CorruptIndexError, match="orders-0 index: points behind the end of the log"):
        check(IndexType.OFFSET, SOUND[IndexType.OFFSET], log_bytes=4096)


def test_empty_index_of_an_empty_log_passes() -> None:
    check(IndexType.OFFSET, b"", log_bytes=0)


def of_log(log: Path, offset_index: bytes, time_index: bytes) -> None:
    check_indexes_of_log(log, base_offset=0, offset_index=offset_index, time_index=time_index)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log of three batches, each a second later than the one before."""
    path = tmp_path / "segment.log"
    path.write_bytes(b"".join(rows(offset, [(offset * 1000, b"k", b"v")]) for offset in range(3)))
    return path


def test_indexes_that_recovery_builds_agree_with_the_log(log: Path) -> None:
    of_log(log, *build_indexes(log, base_offset=0, index_interval_bytes=1))


def test_empty_log_agrees_with_empty_indexes(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    of_log(tmp_path / "empty.log", b"", b"")


@pytest.mark.parametrize(
    ("offset_index", "time_index", "problem"),
    [
        (struct.pack(">ii", 1, 60), struct.pack(">qi", 2000, 2), "no batch begins at 60"),
        (struct.pack(">ii", 0, 70), struct.pack(">qi", 2000, 2), "no batch ends with offset 0"),
        (bytes(8), struct.pack(">qi", 2000, 2), "zeros at the end of an index"),
        (b"", struct.pack(">qi", 1000, 2), "offset 2 does not have timestamp 1000"),
        (b"", struct.pack(">qi", 1000, 1), "the newest timestamp, 2000, is not in the time index"),
        (b"", struct.pack(">qi", 3000, 7), "offset 7 has timestamp 3000: not so"),
        (b"abc", b"", "no whole number of entries"),
    ],
)
def test_index_that_tells_of_other_batches_is_refused(
    log: Path, offset_index: bytes, time_index: bytes, problem: str
) -> None:
    with pytest.raises(CorruptIndexError, match=problem):
        of_log(log, offset_index, time_index)


_SIZES = [100, 300_000, 100, 200, 700_000, 90_000, 90_000, 90_000, 100]


def written(path: Path, sizes: list[int], *, legacy_to: int) -> Path:
    """Write a batch of one record for each size, a second apart; the first ones are entries of magic 1."""
    with path.open("wb") as file:
        for offset, size in enumerate(sizes):
            time_ms = 1000 * (offset + 1)
            if offset < legacy_to:
                file.write(legacy(1, offset, b"k", bytes(size), timestamp_ms=time_ms))
            else:
                file.write(rows(offset, [(time_ms, b"k", bytes(size))]))
    return path


def changed(index: bytes, kind: str, entry: int, *, field: int, by: int) -> bytes:
    """Return an index of entries of ``kind``, in one of which a number is another."""
    entries = [list(each) for each in struct.iter_unpack(kind, index)]
    entries[entry][field] += by
    return b"".join(struct.pack(kind, *each) for each in entries)


@pytest.mark.parametrize("legacy_to", [0, 4, 9])
def test_entries_are_compared_with_batches_of_every_size_and_format(tmp_path: Path, legacy_to: int) -> None:
    log = written(tmp_path / "segment.log", _SIZES, legacy_to=legacy_to)
    offset_index, time_index = build_indexes(log, base_offset=0, index_interval_bytes=1)
    of_log(log, offset_index, time_index)

    assert len(offset_index) == 8 * (len(_SIZES) - 1)
    for entry in range(len(_SIZES) - 1):
        with pytest.raises(CorruptIndexError, match="no batch begins"):
            of_log(log, changed(offset_index, ">ii", entry, field=1, by=1), time_index)
        with pytest.raises(CorruptIndexError, match="does not have timestamp"):
            of_log(log, offset_index, changed(time_index, ">qi", entry, field=0, by=-1))


def test_fault_behind_a_problem_of_the_index_is_a_fault_of_the_log(tmp_path: Path) -> None:
    log = written(tmp_path / "segment.log", [100] * 20, legacy_to=0)
    with log.open("ab") as file:
        file.write(rows(20, [(1, b"k", b"v")])[:-1])

    with pytest.raises(CorruptRecordError, match="an incomplete batch"):
        of_log(log, struct.pack(">ii", 0, 1), b"")
