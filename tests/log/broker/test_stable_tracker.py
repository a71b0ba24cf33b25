from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import marker, plain, scan_of, transactional
from tests.log.logs import TransactionalProducers, open_log
from tierd.errors import CorruptRecordError
from tierd.log import PartitionScan, file_name, identify_directory, last_stable_offset, scan_partition
from tierd.log.broker.stable_tracker import StableOffsetTracker


def rescanned(path: Path) -> PartitionScan:
    directory = identify_directory(path)
    assert directory is not None
    return scan_partition(directory)


def log_file(scan: PartitionScan) -> Path:
    return scan.directory.path / file_name(0, ".log")


def append(scan: PartitionScan, data: bytes) -> None:
    with log_file(scan).open("ab") as log:
        log.write(data)


def stable(tracker: StableOffsetTracker, scan: PartitionScan, high_watermark: int) -> int:
    return tracker.follow(scan, high_watermark=high_watermark, log_start_offset=None).last_stable_offset


def test_tracker_follows_transactions_as_the_log_grows(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: plain(0, 2) + transactional(2, 7)}), StableOffsetTracker()
    assert stable(tracker, scan, 3) == 2
    append(scan, plain(3, 2))
    assert stable(tracker, scan, 5) == 2
    append(scan, marker(5, 7, commit=True))
    assert stable(tracker, scan, 5) == 2
    assert stable(tracker, scan, 6) == 6


def test_segments_that_began_since_the_scan_are_not_decided(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: plain(0, 2)}), StableOffsetTracker()
    (scan.directory.path / file_name(2, ".log")).write_bytes(transactional(2, 7) + plain(3))
    assert stable(tracker, scan, 4) == 2
    assert stable(tracker, rescanned(scan.directory.path), 4) == 2


def test_offsets_that_compaction_left_empty_before_the_active_segment_are_decided(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: plain(0, 2), 9: b""}), StableOffsetTracker()
    assert stable(tracker, scan, 9) == 9


def test_log_that_was_cut_back_and_written_anew_within_an_epoch_is_followed_anew(tmp_path: Path) -> None:
    """A broker of 3.9 that is killed keeps its leader epoch."""
    scan, tracker = scan_of(tmp_path, {0: plain(0, 2) + plain(2, 2)}), StableOffsetTracker()
    assert stable(tracker, scan, 4) == 4
    log_file(scan).write_bytes(plain(0, 2) + transactional(2, 7) + plain(3, 9))
    assert stable(tracker, scan, 12) == 2


def test_segment_whose_file_has_the_inode_of_a_deleted_one_is_followed_from_its_begin(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: plain(0, 2), 2: plain(2, 2)}), StableOffsetTracker()
    assert stable(tracker, scan, 4) == 4
    deleted = scan.segments[1].log
    deleted.write_bytes(transactional(4, 7) + plain(5, 9))
    deleted.rename(deleted.with_name(file_name(4, ".log")))
    assert stable(tracker, rescanned(scan.directory.path), 14) == 4


def test_tracker_tells_where_the_batches_end_below_the_high_watermark(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: transactional(0, 7) + plain(1)}), StableOffsetTracker()
    ends = [tracker.follow(scan, high_watermark=each, log_start_offset=None).end_offset for each in (1, 2, 5)]
    assert ends == [1, 2, 2]
    append(scan, plain(2, 3))
    assert tracker.follow(scan, high_watermark=5, log_start_offset=None).end_offset == 5


def test_tracker_reads_no_batch_twice(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: transactional(0, 7) + plain(1)}), StableOffsetTracker()
    assert stable(tracker, scan, 2) == 0
    data = bytearray(log_file(scan).read_bytes())
    data[8:12] = b"\0\0\0\0"  # the first batch has an impossible length now
    log_file(scan).write_bytes(data)
    append(scan, marker(2, 7, commit=False))
    assert stable(tracker, scan, 3) == 3


def test_tracker_begins_anew_when_the_high_watermark_went_back(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: transactional(0, 7) + marker(1, 7, commit=True)}), StableOffsetTracker()
    assert stable(tracker, scan, 2) == 2
    assert stable(tracker, scan, 1) == 0


def test_tracker_begins_anew_when_the_log_was_cut_back_under_another_epoch(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: plain(0, 5) + transactional(5, 7)}), StableOffsetTracker()
    (scan.directory.path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    assert stable(tracker, rescanned(scan.directory.path), 6) == 5
    log_file(scan).write_bytes(plain(0, 5) + plain(5, 3, epoch=1))
    (scan.directory.path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 5\n")
    assert stable(tracker, rescanned(scan.directory.path), 8) == 8


def test_tracker_after_a_damaged_batch_begins_anew(tmp_path: Path) -> None:
    scan, tracker = scan_of(tmp_path, {0: transactional(0, 7) + marker(1, 7, commit=True)}), StableOffsetTracker()
    sound = log_file(scan).read_bytes()
    append(scan, b"\xff" * 100)
    with pytest.raises(CorruptRecordError):
        stable(tracker, scan, 10)
    log_file(scan).write_bytes(sound + plain(2))
    assert stable(tracker, scan, 3) == 3


@given(
    entries=st.lists(st.sampled_from(["A", "A+", "A!", "B", "B+", "B!", "-", "roll"]), max_size=25),
    asked=st.lists(st.integers(0, 25), max_size=25),
)
@settings(max_examples=25, deadline=None)
def test_tracker_agrees_with_a_search_of_the_whole_log(
    tmp_path_factory: pytest.TempPathFactory, entries: Sequence[str], asked: Sequence[int]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    log, tracker = open_log(folder), StableOffsetTracker()
    producers = TransactionalProducers(log)
    for n, entry in enumerate(entries):
        if entry == "roll":
            log.roll(now_ms=0)
        else:
            producers.append(entry)
        if n in asked:
            (folder / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: EjRWeJq83vD-3LqYdlQyEA")
            scan, end = rescanned(folder / "orders-0"), log.high_watermark
            expected = last_stable_offset(scan, high_watermark=end)
            assert stable(tracker, scan, end) == expected == log.last_stable_offset
    log.close()
