from dataclasses import replace
from pathlib import Path

import pytest

from tests.log.batches import plain
from tests.log.segmented_logs import (
    NOW_MS,
    all_offsets,
    append,
    materialise_indexes,
    names,
    new_log,
    offsets_of,
    reopen,
)
from tierd.errors import LogDirOfflineError
from tierd.log.files.disk import OsDisk
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.log_errors import LogClosedError
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.segmented_log import SegmentedLog

DELAY_MS = 60_000


def rolled(folder: Path, *bases: int, end: int, disk: OsDisk | None = None) -> SegmentedLog:
    """Write a log with a record at every offset, and segments that begin at ``bases``."""
    log = new_log(folder, start=bases[0], disk=disk)
    for offset in range(bases[0], end):
        if offset in bases[1:]:
            log.roll(now_ms=NOW_MS)
        append(log, plain(offset))
    return log


def size(log: SegmentedLog) -> int:
    return sum(path.stat().st_size for path in log.directory.glob("*.log"))


def test_readers_see_an_append_once_it_is_written(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, plain(0, 2), plain(2), write=False)
    assert (log.next_offset, log.log_end) == (3, LogOffset(0, 0, 0))
    assert size(log) == 0
    log.write_out()
    assert log.log_end == LogOffset(3, 0, len(plain(0, 2) + plain(2)))
    assert offsets_of(log.reader.read(0, max_bytes=999, bound=log.log_end).records) == [0, 1, 2]


def test_roll_begins_a_segment_at_the_log_end(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, plain(0, 3), write=False)
    active = log.roll(now_ms=NOW_MS)
    assert (active.base_offset, log.log_end) == (3, LogOffset(3, 3, 0))
    assert log.segments.base_offsets == (0, 3)
    append(log, plain(3))
    assert all_offsets(log) == [0, 1, 2, 3]


def test_a_roll_may_begin_above_the_log_end_and_leave_a_hole(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, plain(0))
    log.roll(10, now_ms=NOW_MS)
    assert (log.log_end, log.segments.base_offsets) == (LogOffset(1, 10, 0), (0, 10))
    append(log, plain(10))
    assert all_offsets(log) == [0, 10]
    log.roll(-5, now_ms=NOW_MS)
    assert log.segments.base_offsets == (0, 10, 11)


def test_a_roll_of_an_empty_segment_replaces_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    before = log.active
    after = log.roll(now_ms=NOW_MS)
    assert after is log.active is not before
    assert log.segments.base_offsets == (0,)
    assert {"00000000000000000000.log", "00000000000000000000.log.deleted"} <= names(log.directory)
    append(log, plain(0))
    log.run_due_deletions(NOW_MS + DELAY_MS)
    assert all_offsets(log) == [0]


def test_roll_removes_files_with_the_names_of_the_new_segment(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, plain(0))
    for kind in ("log", "index", "timeindex", "txnindex"):
        (log.directory / f"{1:020d}.{kind}").write_bytes(b"left over")
    log.roll(now_ms=NOW_MS)
    log.flush(2)
    assert log.active.size_bytes == 0
    assert log.active.offset_index.entries == 0
    assert f"{1:020d}.txnindex" not in names(log.directory)


def test_each_new_segment_draws_a_jitter_of_its_own(tmp_path: Path) -> None:
    draws = iter([-7, 12])
    opened = new_log(tmp_path, LogConfig(segment_index_bytes=100, segment_ms=1000, segment_jitter_ms=5))
    log = SegmentedLog(
        OsDisk(),
        opened.directory,
        opened.config,
        opened.segments,
        recovery_point=0,
        next_offset=opened.log_end,
        random=lambda: next(draws),
    )
    append(log, plain(0))
    assert log.roll(now_ms=NOW_MS).jitter_ms == 2
    append(log, plain(1))
    assert log.roll(now_ms=NOW_MS).jitter_ms == 2


class CountingDisk(OsDisk):
    """Disk that counts how often a directory is synced."""

    syncs = 0

    def sync_directory(self, path: Path) -> None:
        self.syncs += 1
        super().sync_directory(path)


def test_flush_syncs_the_directory_only_when_a_file_is_new(tmp_path: Path) -> None:
    disk = CountingDisk()
    log = rolled(tmp_path, 0, 5, end=7, disk=disk)
    before = disk.syncs
    log.flush(5)
    log.mark_flushed(5)
    assert (disk.syncs - before, log.recovery_point) == (1, 5)
    log.flush(7)
    log.mark_flushed(7)
    assert disk.syncs - before == 2
    append(log, plain(7))
    log.flush(8)
    assert disk.syncs - before == 2
    log.active.transaction_index.append(AbortedTransaction(1, 7, 7, 8))
    log.flush(8)
    log.flush(8)
    assert disk.syncs - before == 3  # the name of the transaction index was new
    log.flush(3)
    assert disk.syncs - before == 3


def test_the_recovery_point_rises_by_a_flush_and_falls_with_the_log_end(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, end=9)
    log.mark_flushed(9)
    log.mark_flushed(4)
    assert log.recovery_point == 9
    log.truncate_to(6, now_ms=NOW_MS)
    assert log.recovery_point == 6
    log.update_recovery_point(2)
    assert log.recovery_point == 2


def test_flush_above_the_log_end_creates_the_files_of_an_empty_segment(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, end=1)
    log.roll(now_ms=NOW_MS)
    log.flush(1)
    assert f"{1:020d}.index" not in names(log.directory)
    log.flush(2)
    assert {f"{1:020d}.index", f"{1:020d}.timeindex"} <= names(log.directory)


@pytest.mark.spec("log-format TRN-01")
def test_truncation_cuts_only_records_at_and_above_the_offset(tmp_path: Path) -> None:
    log, end = rolled(tmp_path, 0, 10, 20, end=30), 30
    full = size(log)
    for offset in (end, end + 1):
        assert log.truncate_to(offset, now_ms=NOW_MS) == []
        assert (log.log_end.offset, size(log)) == (end, full)
    removed = log.truncate_to(end // 2, now_ms=NOW_MS)
    assert [segment.base_offset for segment in removed] == [20]
    assert (log.log_end.offset, log.segments.base_offsets) == (15, (0, 10))
    assert log.segments.size_bytes == size(log) < full
    assert all_offsets(log) == list(range(15))
    log.truncate_to(0, now_ms=NOW_MS)
    assert (log.log_end, size(log)) == (LogOffset(0, 0, 0), 0)
    for offset in range(30):
        append(log, plain(offset))
    assert size(log) == full
    assert all_offsets(log) == list(range(30))


@pytest.mark.spec("log-format TRN-02")
def test_truncation_below_the_first_segment_leaves_an_empty_log_at_the_offset(tmp_path: Path) -> None:
    log = rolled(tmp_path, 40, 45, end=50)
    removed = log.truncate_to(0, now_ms=NOW_MS)
    assert [segment.base_offset for segment in removed] == [40, 45]
    assert (log.log_end, log.segments.size_bytes) == (LogOffset(0, 0, 0), 0)
    append(log, plain(0))
    assert all_offsets(log) == [0]


@pytest.mark.spec("log-format TRN-03")
def test_truncation_within_a_segment_makes_it_active(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, 3, 6, 9, end=12)
    log.truncate_to(7, now_ms=NOW_MS)
    assert log.segments.base_offsets == (0, 3, 6)
    assert log.log_end == LogOffset(7, 6, len(plain(6)))
    assert {f"{9:020d}.log.deleted"} == {name for name in names(log.directory) if ".log.deleted" in name}
    append(log, plain(7), plain(8))
    assert all_offsets(log) == list(range(9))


def test_truncation_within_a_batch_drops_it_whole_and_leaves_a_gap(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, plain(0, 3), plain(3, 5))
    log.truncate_to(6, now_ms=NOW_MS)
    assert log.log_end == LogOffset(6, 0, len(plain(0, 3)))
    append(log, plain(6))
    assert all_offsets(log) == [0, 1, 2, 6]


def test_truncation_removes_records_in_the_write_buffer(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    append(log, plain(0), plain(1), plain(2), write=False)
    log.truncate_to(1, now_ms=NOW_MS)
    assert all_offsets(log) == [0]
    append(log, plain(1), write=False)
    log.truncate_fully_and_start_at(5, now_ms=NOW_MS)
    assert all_offsets(log) == []


def test_truncation_to_a_negative_offset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="offset -1"):
        new_log(tmp_path).truncate_to(-1, now_ms=NOW_MS)


@pytest.mark.spec("log-format TRN-08")
@pytest.mark.parametrize("start", [0, 6, 9, 10, 12, 29])
def test_a_full_truncation_leaves_one_empty_segment(tmp_path: Path, start: int) -> None:
    log = rolled(tmp_path, 0, 6, 9, end=12)
    removed = log.truncate_fully_and_start_at(start, now_ms=NOW_MS)
    assert [segment.base_offset for segment in removed] == [0, 6, 9]
    assert (log.segments.base_offsets, log.log_end) == ((start,), LogOffset(start, start, 0))
    append(log, plain(start, 2))
    assert log.run_due_deletions(NOW_MS + DELAY_MS) >= 3
    assert {name for name in names(log.directory) if ".log" in name} == {f"{start:020d}.log"}
    assert all_offsets(log) == [start, start + 1]
    log.close()
    assert all_offsets(reopen(log.directory)) == [start, start + 1]


@pytest.mark.spec("log-format TRN-15")
def test_deleted_segments_keep_their_files_until_the_delay_has_passed(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, 3, 6, end=8)
    log.flush(8)
    first, second, _ = log.segments
    log.delete_segments([first], now_ms=NOW_MS)
    assert log.segments.base_offsets == (3, 6)
    kinds = (".log", ".index", ".timeindex")
    assert names(log.directory) >= {f"{0:020d}{kind}.deleted" for kind in kinds}
    assert log.run_due_deletions(NOW_MS + DELAY_MS - 1) == 0
    assert log.run_due_deletions(NOW_MS + DELAY_MS) == 3
    log.delete_segments([second], now_ms=NOW_MS, at_once=True)
    assert {name for name in names(log.directory) if name.endswith((".log", ".deleted"))} == {f"{6:020d}.log"}
    assert all_offsets(log) == [6, 7]


def test_new_segment_stays_when_an_older_one_at_its_offset_is_deleted(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, 3, end=5)
    log.truncate_to(2, now_ms=NOW_MS)
    append(log, plain(2))
    log.roll(now_ms=NOW_MS)
    append(log, plain(3))
    log.run_due_deletions(NOW_MS + DELAY_MS)
    assert all_offsets(log) == [0, 1, 2, 3]
    log.close()
    assert all_offsets(reopen(log.directory)) == [0, 1, 2, 3]


@pytest.mark.spec("log-format TRN-11")
def test_rename_of_a_log_to_its_own_name_changes_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert not log.rename_directory("orders-0")
    assert log.rename_directory("orders-0.0123-stray")
    assert log.directory == tmp_path / "orders-0.0123-stray"
    assert not (tmp_path / "orders-0").exists()


def test_renamed_log_is_read_and_appended_to(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, 3, 6, end=7)
    log.delete_segments([log.segments.values[0]], now_ms=NOW_MS)
    log.rename_directory("orders-0.0123-delete")
    append(log, plain(7))
    log.roll(now_ms=NOW_MS)
    append(log, plain(8))
    log.flush(9)
    assert all_offsets(log) == [3, 4, 5, 6, 7, 8]
    assert log.run_due_deletions(NOW_MS + DELAY_MS) > 0
    assert not [name for name in names(log.directory) if name.endswith(".deleted")]
    assert not (tmp_path / "orders-0").exists()


def test_rename_to_an_existing_directory_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, end=2)
    (tmp_path / "orders-1").mkdir()
    (tmp_path / "orders-1" / "file").touch()
    with pytest.raises(OSError, match="not empty"):
        log.rename_directory("orders-1")
    append(log, plain(2))
    assert all_offsets(log) == [0, 1, 2]


@pytest.mark.spec("log-format TRN-12")
def test_flush_after_another_program_renamed_the_directory_is_no_error(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, end=2)
    log.write_out()
    materialise_indexes(log.active)
    log.directory.rename(tmp_path / "elsewhere")  # by another program: the handles stay valid
    log.active.flush()
    OsDisk().sync_directory(log.directory)


@pytest.mark.spec("log-format TRN-13")
def test_deletion_removes_the_directory_after_its_segments(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, 3, end=5)
    (log.directory / "leader-epoch-checkpoint").touch()
    (log.directory / "nested").mkdir()
    (log.directory / "nested" / "file").touch()
    with pytest.raises(RuntimeError, match="while it has 2 segments"):
        log.delete_directory()
    log.delete_all_segments(now_ms=NOW_MS)
    assert not list(log.directory.glob("*.log*"))
    log.delete_directory()
    assert not log.directory.exists()


@pytest.mark.spec("log-format TRN-14")
def test_second_close_is_no_error(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, 3, end=5)
    log.close()
    log.close()
    assert log.is_closed
    with pytest.raises(LogClosedError, match="closed"):
        append(log, plain(5))
    with pytest.raises(LogClosedError, match="closed"):
        log.roll(now_ms=NOW_MS)
    assert all_offsets(reopen(log.directory)) == list(range(5))


@pytest.mark.spec("log-format TRN-14")
def test_close_after_closed_handles_is_a_storage_error(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, 3, end=5)
    log.close_handles()
    for call in (log.close, lambda: append(log, plain(5)), lambda: log.roll(now_ms=NOW_MS)):
        with pytest.raises(LogDirOfflineError, match="files are closed"):
            call()
    assert all_offsets(log) == list(range(5))  # a read needs no handles


def test_clean_stop_trims_files_to_their_content(tmp_path: Path) -> None:
    config = LogConfig(segment_index_bytes=1000, index_interval_bytes=0, preallocate=True, segment_bytes=1 << 20)
    log = new_log(tmp_path, config)
    for offset in range(5):
        append(log, plain(offset))
    assert size(log) == 1 << 20
    assert all_offsets(log) == list(range(5))
    log.roll(now_ms=NOW_MS)
    append(log, plain(5))
    log.close()
    sizes = {path.name[-14:]: path.stat().st_size for path in log.directory.iterdir()}
    assert sizes["0000000000.log"] == 5 * len(plain(0))
    assert sizes["0000000005.log"] == len(plain(5))
    assert all_offsets(reopen(log.directory)) == list(range(6))


def test_changed_setting_applies_to_new_segments(tmp_path: Path) -> None:
    log = rolled(tmp_path, 0, end=1)
    log.config = replace(log.config, segment_index_bytes=80)
    log.roll(now_ms=NOW_MS)
    log.flush(2)
    assert (log.directory / f"{1:020d}.index").stat().st_size == 80
