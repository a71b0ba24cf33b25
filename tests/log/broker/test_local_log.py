import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import batch, make_partition, plain, scan_of
from tierd.errors import CorruptRecordError, OffsetOutOfRangeError, SegmentChangedError
from tierd.log import (
    LocalLog,
    build_indexes,
    file_name,
    find_cut_end,
    find_log_end_offset,
    find_segment_end_offset,
    iter_batches,
    scan_partition,
)


def log_of(folder: Path, segments: dict[int, bytes], end: int, **more: int) -> LocalLog:
    return LocalLog(scan_of(folder, segments), high_watermark=end, last_stable_offset=end, **more)


def offsets(data: bytes) -> list[int]:
    return [record.offset for found in iter_batches(data, name="read") for record in found.records()]


@pytest.mark.spec("log-format READ-02")
@pytest.mark.spec("log-format READ-04")
def test_a_read_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0, 2) + plain(2, 2), 4: plain(4, 2)}, 6)
    assert [offsets(log.read(offset, max_bytes=1))[0] for offset in range(6)] == [0, 0, 2, 2, 4, 4]
    assert log.read(6, max_bytes=1000) == b""


@pytest.mark.spec("log-format READ-01")
@pytest.mark.spec("log-format READ-07")
def test_read_at_an_offset_outside_of_the_log_is_out_of_range(tmp_path: Path) -> None:
    log = log_of(tmp_path, {1000: plain(1000, 25)}, 1025, log_start_offset=1024)
    assert log.log_start_offset == 1024
    assert log.read(1025, max_bytes=10) == b""
    for offset in (0, 1023, 1026):
        with pytest.raises(OffsetOutOfRangeError, match=r"orders-0: offset \d+ .*\[1024, 1025\)"):
            log.read(offset, max_bytes=10)


@pytest.mark.spec("log-format READ-05")
def test_read_returns_whole_batches_and_at_least_one(tmp_path: Path) -> None:
    one = len(plain(0))
    log = log_of(tmp_path, {0: b"".join(plain(i) for i in range(5))}, 5)
    assert [offsets(log.read(1, max_bytes=n)) for n in (0, 1, one, 2 * one - 1, 2 * one, 100_000)] == [
        [1],
        [1],
        [1],
        [1],
        [1, 2],
        [1, 2, 3, 4],
    ]


@pytest.mark.spec("log-format READ-03")
def test_read_skips_gaps_and_empty_segments(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0), 10: b"", 20: plain(25, 2)}, 27)
    assert offsets(log.read(1, max_bytes=1000)) == [25, 26]
    assert offsets(log.read(12, max_bytes=1000)) == [25, 26]


def test_read_ends_at_the_high_watermark(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0, 2) + plain(2, 2), 4: plain(4)}, 3)
    assert offsets(log.read(0, max_bytes=1000)) == [0, 1]
    assert log.read(2, max_bytes=1000) == b""


def test_an_incomplete_batch_at_the_end_is_not_returned(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0) + plain(1)[:-3]}, 2)
    assert offsets(log.read(0, max_bytes=1000)) == [0]
    assert log.read(1, max_bytes=1000) == b""


def indexed(folder: Path, index: bytes | None = None) -> LocalLog:
    directory = make_partition(folder, {100: b"".join(plain(100 + 3 * i, 3, size=i % 90) for i in range(200))})
    path = directory.path / file_name(100, ".log")
    built, _ = build_indexes(path, base_offset=100, index_interval_bytes=300)
    path.with_suffix(".index").write_bytes(built if index is None else index)
    return LocalLog(scan_partition(directory), high_watermark=700, last_stable_offset=700)


@pytest.mark.parametrize("tail", [0, 800])
def test_reads_with_an_index_equal_reads_without_one(tmp_path: Path, tail: int) -> None:
    log = indexed(tmp_path / "indexed")
    index = log.scan.segments[0].offset_index
    index.write_bytes(index.read_bytes() + bytes(tail))
    without = indexed(tmp_path / "without")
    without.scan.segments[0].offset_index.unlink()
    for offset in random.Random(1).sample(range(100, 700), 100):
        assert log.read(offset, max_bytes=500) == without.read(offset, max_bytes=500)


@given(
    st.binary(max_size=200)
    | st.lists(st.tuples(st.integers(0, 600), st.integers(0, 40_000))).map(
        lambda entries: b"".join(struct.pack(">ii", *entry) for entry in sorted(entries))
    )
)
@settings(max_examples=60, deadline=None)
def test_reads_with_an_index_of_any_bytes_return_the_asked_offset(
    tmp_path_factory: pytest.TempPathFactory, index: bytes
) -> None:
    log = indexed(tmp_path_factory.mktemp("lying"), index)
    for offset in (100, 250, 399, 699):
        assert offset in offsets(log.read(offset, max_bytes=1))


def test_reads_one_after_the_other_return_every_record(tmp_path: Path) -> None:
    log, found, offset = indexed(tmp_path), list[int](), 100
    while data := log.read(offset, max_bytes=700):
        found += offsets(data)
        offset = found[-1] + 1
    assert found == list(range(100, 700))


def test_damaged_length_in_a_rolled_segment_is_an_error_of_the_read(tmp_path: Path) -> None:
    second = bytearray(plain(1))
    second[8:12] = (1 << 20).to_bytes(4, "big")
    log = log_of(tmp_path, {0: plain(0) + bytes(second) + plain(2), 3: plain(3)}, 4)
    assert offsets(log.read(0, max_bytes=1)) == [0]
    with pytest.raises(CorruptRecordError, match="incomplete"):
        log.read(1, max_bytes=1000)


def test_next_read_after_compaction_replaced_the_file_searches_anew(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0, size=500) + plain(1, size=40) + plain(2), 3: plain(3)}, 4)
    assert offsets(log.read(0, max_bytes=1)) == [0]
    swap = tmp_path / "swap"
    swap.write_bytes(plain(0, size=20) + plain(1, size=900) + plain(2))
    swap.rename(log.scan.segments[0].log)
    assert offsets(log.read(1, max_bytes=1)) == [1]


def test_aborted_transactions_are_found_until_their_segment_is_unlinked(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0, 10), 10: plain(10, 10)}, 20)
    segment = log.scan.segments[0]
    segment.transaction_index.write_bytes(struct.pack(">hqqqq", 0, 7, 2, 5, 20))
    log.scan = scan_partition(log.scan.directory)
    known = log.aborted_transactions(0, 20)
    for path in (segment.log, segment.transaction_index):
        path.rename(f"{path}.deleted")
        assert log.aborted_transactions(0, 20) == known != ()
    Path(f"{segment.log}.deleted").unlink()
    Path(f"{segment.transaction_index}.deleted").unlink()
    with pytest.raises(SegmentChangedError):
        log.aborted_transactions(0, 20)


def test_missing_file_is_reported_as_changed_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0)}, 1)
    log.scan.segments[0].log.unlink()
    with pytest.raises(SegmentChangedError):
        log.read(0, max_bytes=1)


def test_damaged_header_before_the_offset_is_named_with_its_position(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0) + bytes(100) + plain(1)}, 5)
    with pytest.raises(CorruptRecordError, match=f"position {len(plain(0))}"):
        log.read(1, max_bytes=1)


def test_read_of_an_empty_partition_returns_no_bytes(tmp_path: Path) -> None:
    log = log_of(tmp_path, {}, 5)
    assert (log.log_start_offset, log.read(5, max_bytes=1)) == (5, b"")
    assert log.aborted_transactions(5, 6) == ()


@pytest.mark.spec("log-format READ-09")
def test_aborted_transactions_are_collected_across_segments(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0), 10: plain(10), 20: plain(20)}, 21)
    entry = struct.Struct(">hqqqq")
    log.scan.segments[1].transaction_index.write_bytes(entry.pack(0, 7, 0, 12, 5))
    log.scan = scan_partition(log.scan.directory)
    log.scan.segments[2].transaction_index.write_bytes(entry.pack(0, 8, 5, 20, 21))  # active
    assert [t.producer_id for t in log.aborted_transactions(0, 6)] == [7, 8]
    assert [t.producer_id for t in log.aborted_transactions(0, 5)] == [7]
    assert [t.producer_id for t in log.aborted_transactions(13, 21)] == [8]


def test_segment_that_began_since_the_scan_may_know_further_aborted_transactions(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0, 10), 10: plain(10)}, 30)
    log.scan.segments[0].transaction_index.write_bytes(struct.pack(">hqqqq", 0, 7, 2, 5, 8))
    log.scan = scan_partition(log.scan.directory)
    assert log.aborted_transactions(9, 30) == ()
    (tmp_path / "orders-0" / file_name(20, ".log")).write_bytes(plain(20))
    with pytest.raises(SegmentChangedError, match="begun a segment"):
        log.aborted_transactions(9, 30)
    assert [t.producer_id for t in log.aborted_transactions(0, 6)] == [7]  # decided before that segment began


def test_rolled_segment_without_a_transaction_index_in_the_scan_is_not_asked_for_one(tmp_path: Path) -> None:
    log = log_of(tmp_path, {0: plain(0), 10: plain(10)}, 11)
    log.scan.segments[0].log.unlink()
    assert log.aborted_transactions(0, 11) == ()


@pytest.mark.spec("log-format SEG-12")
def test_log_end_offset_follows_the_last_whole_batch(tmp_path: Path) -> None:
    assert find_log_end_offset(scan_of(tmp_path / "a", {0: plain(0), 5: b""})) == 5
    assert find_log_end_offset(scan_of(tmp_path / "b", {0: plain(0, 3) + plain(3)[:-1]})) == 3
    assert find_log_end_offset(scan_of(tmp_path / "c", {0: batch(0, [], last_offset_delta=9)})) == 10
    assert find_log_end_offset(scan_of(tmp_path / "d", {})) == 0


def test_cut_end_is_that_of_files_that_end_below_the_high_watermark(tmp_path: Path) -> None:
    whole = scan_of(tmp_path / "a", {0: plain(0, 3), 3: plain(3, 2)})
    assert [find_cut_end(whole, high_watermark=each) for each in (4, 5, 6)] == [None, None, 5]
    assert find_cut_end(scan_of(tmp_path / "b", {0: plain(0, 3) + plain(3)[:-1]}), high_watermark=4) == 3
    assert find_cut_end(scan_of(tmp_path / "c", {0: plain(0, 3) + plain(3) + bytes(999)}), high_watermark=9) == 4
    assert find_cut_end(scan_of(tmp_path / "d", {0: plain(0, 3), 3: b""}), high_watermark=9) == 3
    assert find_cut_end(scan_of(tmp_path / "e", {}), high_watermark=9) is None


def test_cut_end_is_not_known_where_a_segment_began_since_the_scan(tmp_path: Path) -> None:
    scan = scan_of(tmp_path, {0: plain(0, 3)})
    segment = scan.segments[0].log.with_name(file_name(3, ".log"))
    segment.write_bytes(plain(3, 2))
    assert find_cut_end(scan, high_watermark=5) is None


def test_cut_end_is_not_known_where_the_files_cannot_be_read(tmp_path: Path) -> None:
    scan = scan_of(tmp_path, {0: plain(0, 3)})
    log = scan.segments[0].log
    log.write_bytes(b"\xff" * 200)
    assert find_cut_end(scan, high_watermark=5) is None
    log.unlink()
    assert find_cut_end(scan, high_watermark=5) is None


def test_end_offset_of_a_segment_follows_its_last_batch_and_ignores_the_next_base_offset(tmp_path: Path) -> None:
    segments = scan_of(tmp_path, {0: plain(0, 5), 3: plain(3, 2), 9: b"", 12: plain(12)}).segments
    assert [find_segment_end_offset(segment) for segment in segments] == [5, 5, 9, 13]
