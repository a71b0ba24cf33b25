"""KeyHashing: memory, and what a scan of the output might not open."""

import tracemalloc

import numpy as np
import pytest

from tierd.pipeline.rewriting import KeyHashing, key_hashing
from tierd.pipeline.rewriting.record_rows import RecordRows

SECRET = bytes(range(16))


def rows_of(offsets: range) -> RecordRows:
    """Return rows with the key ``k``."""
    count = len(offsets)
    return RecordRows(
        b"k",
        np.arange(offsets.start, offsets.stop, dtype=np.int64),
        np.zeros(count, dtype=np.int64),
        np.zeros(count, dtype=np.int32),
        np.ones(count, dtype=np.int32),
        np.full(count, -1, dtype=np.int32),
    )


def test_batches_of_one_record_take_little_more_memory_than_their_hashes() -> None:
    hashing, keep, count = KeyHashing(SECRET, base_offset=0, max_share=1e9), np.ones(1, dtype=np.bool_), 20_000
    hashing.add(rows_of(range(1)), keep)  # loads what hashes
    tracemalloc.start()
    try:
        for offset in range(1, count):
            hashing.add(rows_of(range(offset, offset + 1)), keep)
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes < 40 * count
    found = hashing.finish(1)
    assert found is not None
    assert len(found) == 24 + 20 * count


def test_output_with_a_batch_of_more_records_than_a_scan_opens_gets_no_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_hashing, "MAX_OPENED_RECORDS", 3)
    hashing = KeyHashing(SECRET, base_offset=0, max_share=1e9)
    hashing.add(rows_of(range(3)), np.ones(3, dtype=np.bool_))
    hashing.add(rows_of(range(3, 7)), np.array([True, False, False, False]))
    assert hashing.finish(1) is None
