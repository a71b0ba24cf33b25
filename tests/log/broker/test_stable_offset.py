from pathlib import Path

import pytest

from tests.log.batches import make_partition, marker, plain, scan_of, transactional
from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log import ProducerStateEntry, file_name, last_stable_offset, scan_partition
from tierd.log.producers.producer_state import encode_producer_snapshot


def snapshot(folder: Path, offset: int, open_transactions: dict[int, int]) -> None:
    entries = tuple(ProducerStateEntry(p, 0, 0, offset - 1, 0, 0, -1, first) for p, first in open_transactions.items())
    (folder / "orders-0" / file_name(offset, ".snapshot")).write_bytes(encode_producer_snapshot(entries))


def test_without_transactions_everything_below_the_high_watermark_is_stable(tmp_path: Path) -> None:
    scan = scan_of(tmp_path, {0: plain(0, 5), 5: plain(5, 5)})
    assert last_stable_offset(scan, high_watermark=7) == 7


def test_last_stable_offset_is_the_first_offset_of_an_open_transaction(tmp_path: Path) -> None:
    scan = scan_of(tmp_path, {0: plain(0, 5) + transactional(5, 7), 6: plain(6, 4)})
    assert last_stable_offset(scan, high_watermark=10) == 5


def test_last_stable_offset_passes_an_ended_transaction(tmp_path: Path) -> None:
    scan = scan_of(tmp_path, {0: transactional(0, 7), 1: marker(1, 7, commit=False) + plain(2)})
    assert last_stable_offset(scan, high_watermark=3) == 3


def test_marker_at_or_above_the_high_watermark_ends_no_transaction(tmp_path: Path) -> None:
    scan = scan_of(tmp_path, {0: transactional(0, 7) + marker(1, 7, commit=True)})
    assert last_stable_offset(scan, high_watermark=1) == 0
    assert last_stable_offset(scan, high_watermark=2) == 2


def test_last_stable_offset_is_taken_from_the_newest_snapshot_below_the_high_watermark(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: plain(0, 10), 10: plain(10, 10), 20: plain(20, 10)})
    snapshot(tmp_path, 10, {7: 3})
    snapshot(tmp_path, 20, {})
    scan = scan_partition(directory)
    assert last_stable_offset(scan, high_watermark=30) == 30
    assert last_stable_offset(scan, high_watermark=20) == 20
    assert last_stable_offset(scan, high_watermark=19) == 3


def test_search_begins_at_an_earlier_snapshot_when_the_newest_is_damaged(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: plain(0, 10), 10: transactional(10, 8), 20: plain(20, 10)})
    snapshot(tmp_path, 10, {})
    (directory.path / file_name(20, ".snapshot")).write_bytes(b"garbage")
    assert last_stable_offset(scan_partition(directory), high_watermark=30) == 10


def test_last_stable_offset_is_the_log_start_when_a_transaction_began_below_it(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    snapshot(tmp_path, 15, {7: 3})
    assert last_stable_offset(scan_partition(directory), high_watermark=20) == 10


def test_last_stable_offset_may_lie_below_the_first_local_segment(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {10: plain(10, 5), 15: plain(15, 5)})
    snapshot(tmp_path, 15, {7: 3})
    assert last_stable_offset(scan_partition(directory), high_watermark=20, log_start_offset=0) == 3
    assert last_stable_offset(scan_partition(directory), high_watermark=20, log_start_offset=5) == 5


def test_damage_in_a_rolled_segment_before_a_transaction_is_an_error(tmp_path: Path) -> None:
    second = bytearray(plain(1))
    second[8:12] = (1 << 20).to_bytes(4, "big")
    scan = scan_of(tmp_path, {0: plain(0) + bytes(second) + transactional(2, 7), 3: plain(3)})
    with pytest.raises(CorruptRecordError, match="incomplete"):
        last_stable_offset(scan, high_watermark=4)


def test_search_reads_no_batches_when_the_newest_snapshot_is_enough(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: plain(0, 10), 10: b"not even a batch, and never read"})
    snapshot(tmp_path, 10, {})
    scan = scan_partition(directory)
    assert last_stable_offset(scan, high_watermark=30, enough=10) == 10
    with pytest.raises(CorruptRecordError):
        last_stable_offset(scan, high_watermark=30, enough=11)


def test_search_up_to_enough_still_finds_an_open_transaction(tmp_path: Path) -> None:
    directory = make_partition(tmp_path, {0: plain(0, 10), 10: marker(10, 7, commit=True)})
    snapshot(tmp_path, 10, {7: 3})
    scan = scan_partition(directory)
    assert last_stable_offset(scan, high_watermark=10, enough=10) == 3
    assert last_stable_offset(scan, high_watermark=11, enough=10) == 11


def test_last_stable_offset_of_an_empty_directory_is_zero(tmp_path: Path) -> None:
    assert last_stable_offset(scan_of(tmp_path, {}), high_watermark=0) == 0


def test_missing_segment_is_reported_as_changed(tmp_path: Path) -> None:
    scan = scan_of(tmp_path, {0: plain(0)})
    scan.segments[0].log.unlink()
    with pytest.raises(SegmentChangedError):
        last_stable_offset(scan, high_watermark=1)
