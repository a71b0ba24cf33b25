from pathlib import Path

import pytest

from tests.log.batches import plain
from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log import OffsetIndex, TimeIndex, build_indexes
from tierd.model import TimestampOffset


def test_batch_is_indexed_when_the_index_interval_is_exceeded(tmp_path: Path) -> None:
    size = len(plain(0, 2))
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(plain(100 + 2 * i, 2, timestamp_ms=1000 + 10 * i) for i in range(10)))
    offsets, times = build_indexes(path, base_offset=100, index_interval_bytes=size)
    assert list(OffsetIndex.from_bytes(offsets, 100, "x").entries()) == [
        (100 + 2 * i + 1, i * size) for i in (2, 4, 6, 8)
    ]
    assert TimeIndex.from_bytes(times, 100, "x").entries == (
        *(TimestampOffset(1001 + 10 * i, 100 + 2 * i + 1) for i in (2, 4, 6, 8)),
        TimestampOffset(1091, 119),
    )


def test_timestamps_that_do_not_grow_are_indexed_once(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"".join(plain(i, timestamp_ms=50) for i in range(10)))
    offsets, times = build_indexes(path, base_offset=0, index_interval_bytes=0)
    assert len(offsets) == 9 * 8
    assert TimeIndex.from_bytes(times, 0, "x").entries == (TimestampOffset(50, 0),)


def test_an_empty_segment_has_empty_indexes(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(b"")
    assert build_indexes(path, base_offset=5) == (b"", b"")


def test_index_of_a_segment_with_an_incomplete_or_wrong_batch_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(plain(5)[:-1])
    with pytest.raises(CorruptRecordError, match="incomplete"):
        build_indexes(path, base_offset=5)
    path.write_bytes(plain(5))
    for base in (6, -(2**31)):
        with pytest.raises(CorruptRecordError, match="fits no index"):
            build_indexes(path, base_offset=base)
    with pytest.raises(SegmentChangedError):
        build_indexes(tmp_path / "gone.log", base_offset=0)
