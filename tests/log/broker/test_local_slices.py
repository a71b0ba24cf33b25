import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.log.batches import plain, scan_of
from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log import LocalLog, PartitionScan, file_name, identify_directory, iter_batches, scan_partition
from tierd.log.broker.local_slices import KnownPositions, LocalSlice, find_slice

Find = Callable[..., LocalSlice | None]


def finder(scan: PartitionScan, known: KnownPositions | None = None) -> Find:
    known = known or KnownPositions()

    def find(offset: int, *, end: int, max_bytes: int = 1 << 20, at_least_one: bool = True) -> LocalSlice | None:
        return find_slice(scan, offset, end_offset=end, max_bytes=max_bytes, at_least_one=at_least_one, known=known)

    return find


def data_of(found: LocalSlice | None) -> bytes:
    if found is None:
        return b""
    assert found.path.stat().st_ino == found.inode
    return found.path.read_bytes()[found.position : found.position + found.size_bytes]


def whole_offsets(data: bytes) -> list[int]:
    """Return the offsets of the whole batches in ``data``; a last one that is cut off is left out."""
    found = iter_batches(data, name="slice") if data else ()
    return [record.offset for batch in found for record in batch.records()]


class TestBounds:
    def test_slice_begins_with_the_batch_that_holds_the_offset(self, tmp_path: Path) -> None:
        find = finder(scan_of(tmp_path, {0: plain(0, 2) + plain(2, 2), 4: plain(4, 2)}))
        firsts = [find(offset, end=6) for offset in range(6)]
        assert [found.base_offset if found else None for found in firsts] == [0, 0, 2, 2, 4, 4]
        assert find(6, end=6) is None

    def test_batch_that_reaches_beyond_the_end_is_left_out_whole(self, tmp_path: Path) -> None:
        find = finder(scan_of(tmp_path, {0: plain(0, 2) + plain(2, 2)}))
        assert whole_offsets(data_of(find(0, end=3))) == [0, 1]
        assert find(2, end=3) is None
        assert whole_offsets(data_of(find(0, end=4))) == [0, 1, 2, 3]

    def test_slice_never_crosses_into_the_next_segment(self, tmp_path: Path) -> None:
        find = finder(scan_of(tmp_path, {0: plain(0, 2), 2: plain(2, 2)}))
        found = find(0, end=4)
        assert whole_offsets(data_of(found)) == [0, 1]
        assert found is not None
        assert found.upper_offset == 2

    def test_slice_in_a_compacted_segment_begins_behind_the_gap(self, tmp_path: Path) -> None:
        find = finder(scan_of(tmp_path, {0: plain(0), 10: b"", 20: plain(25, 2)}))
        assert whole_offsets(data_of(find(1, end=27))) == [25, 26]
        assert whole_offsets(data_of(find(12, end=27))) == [25, 26]

    def test_first_batch_above_the_limit_is_whole_or_the_slice_is_empty(self, tmp_path: Path) -> None:
        find = finder(scan_of(tmp_path, {0: plain(0) + plain(1)}))
        whole = find(0, end=2, max_bytes=5)
        assert whole_offsets(data_of(whole)) == [0]
        empty = find(0, end=2, max_bytes=5, at_least_one=False)
        assert empty is not None
        assert (empty.size_bytes, empty.base_offset) == (0, 0)

    def test_batch_that_is_still_being_written_is_not_in_the_slice(self, tmp_path: Path) -> None:
        find = finder(scan_of(tmp_path, {0: plain(0) + plain(1)[:-3]}))
        assert whole_offsets(data_of(find(0, end=2))) == [0]
        assert find(1, end=2) is None

    def test_unused_room_of_a_preallocated_segment_is_not_in_the_slice(self, tmp_path: Path) -> None:
        find = finder(scan_of(tmp_path, {0: plain(0) + plain(1) + bytes(4096)}))
        assert whole_offsets(data_of(find(0, end=9))) == [0, 1]
        assert find(2, end=9) is None

    def test_damage_in_a_rolled_segment_is_an_error(self, tmp_path: Path) -> None:
        find = finder(scan_of(tmp_path, {0: plain(0) + bytes(61), 2: plain(2)}))
        with pytest.raises(CorruptRecordError):
            find(1, end=3)

    def test_segment_that_is_gone_is_a_change(self, tmp_path: Path) -> None:
        scan = scan_of(tmp_path, {0: plain(0), 1: plain(1)})
        (scan.directory.path / file_name(0, ".log")).unlink()
        with pytest.raises(SegmentChangedError):
            finder(scan)(0, end=2)


class TestLargeSegments:
    def test_many_small_batches_end_where_the_limit_ends(self, tmp_path: Path) -> None:
        batches = [plain(n) for n in range(500)]
        find = finder(scan_of(tmp_path, {0: b"".join(batches), 500: plain(500)}))
        limit = sum(map(len, batches[:400])) + 7
        found = find(0, end=501, max_bytes=limit)
        assert found is not None
        assert found.size_bytes == limit
        assert found.upper_offset >= 400

    def test_few_batches_end_whole_below_the_limit(self, tmp_path: Path) -> None:
        batches = [plain(n, size=5000) for n in range(20)]
        find = finder(scan_of(tmp_path, {0: b"".join(batches), 20: plain(20)}))
        found = find(0, end=21, max_bytes=sum(map(len, batches[:4])) + 100)
        assert found is not None
        assert found.size_bytes == sum(map(len, batches[:4]))
        assert found.upper_offset == 4

    def test_end_offset_far_behind_the_first_batch_bounds_the_slice_exactly(self, tmp_path: Path) -> None:
        writer = LogDirWriter(tmp_path).add_partition("orders")
        writer.append_batch(SegmentShape(value_bytes=2000).batch(), 4, times=300)
        directory = identify_directory(writer.path)
        assert directory is not None
        find = finder(scan_partition(directory))
        for end in (4 * 150, 4 * 150 + 3, 4 * 299 + 1):
            found = find(0, end=end, max_bytes=1 << 30)
            assert whole_offsets(data_of(found)) == list(range(end // 4 * 4))
            assert found is not None
            assert found.upper_offset == end // 4 * 4


class TestIndexedEnds:
    LIMIT_BYTES = 300_000

    @pytest.fixture
    def scan(self, tmp_path: Path) -> PartitionScan:
        """Return a partition with one segment of 400 batches of about 2 KB each, and an index."""
        writer = LogDirWriter(tmp_path).add_partition("orders")
        writer.append_batch(SegmentShape(value_bytes=2000).batch(), 4, times=400)
        directory = identify_directory(writer.path)
        assert directory is not None
        return scan_partition(directory)

    def test_large_slice_ends_with_the_last_batch_that_the_index_has(self, scan: PartitionScan) -> None:
        known = KnownPositions()
        found = finder(scan, known)(0, end=1600, max_bytes=self.LIMIT_BYTES)
        assert found is not None
        assert whole_offsets(data_of(found)) == list(range(found.upper_offset))
        assert self.LIMIT_BYTES - 16_000 < found.size_bytes <= self.LIMIT_BYTES
        assert known.get(found.inode, found.upper_offset) == found.position + found.size_bytes

    @pytest.mark.parametrize("damage", ["no index", "positions within batches", "offsets of other batches"])
    def test_large_slice_needs_no_sound_index(self, scan: PartitionScan, damage: str) -> None:
        path = scan.segments[0].offset_index
        entries = np.frombuffer(path.read_bytes(), ">i4").reshape(-1, 2).copy()
        entries[:, {"positions within batches": 1, "offsets of other batches": 0}.get(damage, 0)] -= 5
        path.write_bytes(entries.tobytes())
        if damage == "no index":
            path.unlink()
        read = list[int]()
        find = finder(scan)
        while (found := find(len(read), end=1600, max_bytes=self.LIMIT_BYTES)) is not None:
            read += whole_offsets(data_of(found))
        assert read == list(range(1600))


class TestKnownPositions:
    def test_sequential_reads_need_no_index(self, tmp_path: Path) -> None:
        scan = scan_of(tmp_path, {0: b"".join(plain(n, size=3000) for n in range(30)), 30: plain(30)})
        known = KnownPositions()
        find = finder(scan, known)
        first = find(0, end=31, max_bytes=10_000)
        assert first is not None
        assert known.get(first.inode, first.upper_offset) == first.position + first.size_bytes
        second = find(first.upper_offset, end=31, max_bytes=10_000)
        assert second is not None
        assert second.position == first.position + first.size_bytes

    def test_reader_at_the_end_finds_what_is_appended(self, tmp_path: Path) -> None:
        scan = scan_of(tmp_path, {0: plain(0) + plain(1)})
        find = finder(scan)
        assert whole_offsets(data_of(find(0, end=2))) == [0, 1]
        with (scan.directory.path / file_name(0, ".log")).open("ab") as log:
            log.write(plain(2, 3))
        assert whole_offsets(data_of(find(2, end=5))) == [2, 3, 4]

    def test_position_in_a_log_that_was_written_anew_is_not_used(self, tmp_path: Path) -> None:
        scan = scan_of(tmp_path, {0: plain(0, size=100) + plain(1, size=100)})
        find = finder(scan)
        assert whole_offsets(data_of(find(0, end=2))) == [0, 1]
        log = scan.directory.path / file_name(0, ".log")
        log.write_bytes(plain(0) + plain(1, epoch=1) + plain(2, 40, epoch=1))  # the same file, cut back and refilled
        assert whole_offsets(data_of(find(2, end=42))) == list(range(2, 42))

    def test_oldest_position_beyond_the_capacity_is_forgotten(self) -> None:
        known = KnownPositions(capacity=2)
        for offset in range(3):
            known.add(1, offset, 100 * offset)
        assert [known.get(1, offset) for offset in range(3)] == [None, 100, 200]


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=30),
    rolls=st.sets(st.integers(1, 29)),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_whole_batches_of_a_slice_are_those_that_a_local_log_reads(
    tmp_path_factory: pytest.TempPathFactory, counts: Sequence[int], rolls: set[int], data: st.DataObject
) -> None:
    segments, base, offset = {0: b""}, 0, 0
    for n, count in enumerate(counts):
        if n in rolls:
            base, segments = offset, {**segments, offset: b""}
        segments[base] += plain(offset, count, size=random.Random(n).randrange(400))
        offset += count
    scan = scan_of(tmp_path_factory.mktemp("log"), segments)
    find = finder(scan)
    for _ in range(5):
        end = data.draw(st.integers(1, offset))
        start = data.draw(st.integers(0, end - 1))
        max_bytes = data.draw(st.integers(0, 2000))
        expected = LocalLog(scan, high_watermark=end, last_stable_offset=end).read(start, max_bytes=max_bytes)
        found = find(start, end=end, max_bytes=max_bytes)
        assert whole_offsets(data_of(found)) == whole_offsets(expected)
        if found is not None:
            assert all(each < found.upper_offset <= end for each in whole_offsets(data_of(found)))
