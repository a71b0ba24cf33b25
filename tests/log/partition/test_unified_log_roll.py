from pathlib import Path

import pytest

from tests.fakes.failing_disk import FailingDisk
from tests.log.batches import legacy, wrapper
from tests.log.logs import NOW_MS, follow, lead, open_log, read_all, records
from tierd.errors import LogDirOfflineError, LogError
from tierd.log.partition.append_info import AppendInfo, AppendRequest
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.append_origin import AppendOrigin
from tierd.log.records.log_config import MAX_INT, LogConfig
from tierd.log.records.new_record import Producer

HOUR_MS = 3_600_000


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def snapshots(log: UnifiedLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.snapshot"))


@pytest.mark.spec("log-format ROLL-01")
def test_full_segment_is_rolled(tmp_path: Path) -> None:
    size = len(records())
    log = open_log(tmp_path, config=LogConfig(segment_bytes=10 * (size - 1)))
    for _ in range(11):
        lead(log, records())
    assert log.segment_count == 2


@pytest.mark.spec("log-format ROLL-02")
def test_segment_without_timestamps_is_rolled_by_the_clock(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_ms=HOUR_MS))
    untimed = records(timestamp_ms=-1)
    lead(log, untimed, now_ms=NOW_MS + HOUR_MS + 1)
    assert log.segment_count == 1  # the segment was empty
    lead(log, untimed, now_ms=NOW_MS + HOUR_MS)
    assert log.segment_count == 1
    lead(log, untimed, now_ms=NOW_MS + HOUR_MS + 1)
    assert log.segment_count == 2


@pytest.mark.spec("log-format ROLL-03")
def test_segment_whose_first_record_has_no_timestamp_is_rolled_by_the_clock(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_ms=HOUR_MS))
    lead(log, records(timestamp_ms=-1))
    lead(log, records(timestamp_ms=NOW_MS + 2 * HOUR_MS))
    assert log.segment_count == 1
    lead(log, records(timestamp_ms=-1), now_ms=NOW_MS + HOUR_MS + 1)
    assert log.segment_count == 2


@pytest.mark.spec("log-format ROLL-04")
def test_segment_with_timestamps_is_rolled_by_their_distance(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_ms=HOUR_MS))
    later = NOW_MS + 10 * HOUR_MS
    lead(log, records(timestamp_ms=NOW_MS))
    lead(log, records(timestamp_ms=NOW_MS), now_ms=later)
    lead(log, records(timestamp_ms=NOW_MS + HOUR_MS), now_ms=later)
    assert log.segment_count == 1
    lead(log, records(timestamp_ms=NOW_MS + HOUR_MS + 1), now_ms=later)
    assert log.segment_count == 2


@pytest.mark.spec("log-format ROLL-05")
def test_append_of_an_empty_set_does_not_roll(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_ms=HOUR_MS))
    lead(log, records(timestamp_ms=-1))
    lead(log, b"", now_ms=NOW_MS + 10 * HOUR_MS)
    assert log.segment_count == 1


@pytest.mark.spec("log-format ROLL-06")
def test_jitter_makes_a_segment_roll_earlier(tmp_path: Path) -> None:
    jitter_ms = 20 * 60_000
    config = LogConfig(segment_ms=HOUR_MS, segment_jitter_ms=jitter_ms)
    for drawn_ms in (0, 7 * 60_000):
        log = open_log(tmp_path, name=f"orders-{drawn_ms}", config=config, random_int=jitter_ms + drawn_ms)
        assert log.segments[0].jitter_ms == drawn_ms
        lead(log, records(timestamp_ms=NOW_MS))
        lead(log, records(timestamp_ms=NOW_MS + HOUR_MS - jitter_ms))
        lead(log, records(timestamp_ms=NOW_MS + HOUR_MS - drawn_ms))
        assert log.segment_count == 1
        lead(log, records(timestamp_ms=NOW_MS + HOUR_MS - drawn_ms + 1))
        assert log.segment_count == 2


@pytest.mark.spec("log-format ROLL-07")
def test_roll_replaces_an_empty_segment_by_one_with_the_same_base_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    before = log.segments[0]
    log.roll(now_ms=NOW_MS)
    assert bases(log) == [0]
    assert log.segments[0] is not before
    assert (log.directory / f"{0:020d}.log.deleted").exists()
    lead(log, records())
    assert len(read_all(log)) == 1


@pytest.mark.spec("log-format ROLL-08")
def test_empty_segment_with_a_full_index_is_replaced(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records())
    log.roll(now_ms=NOW_MS)
    lead(log, records())
    log.roll(now_ms=NOW_MS)
    log.segments[-1].offset_index.resize(0)
    log.segments[-1].time_index.resize(0)
    log.delete_old_segments(NOW_MS)
    assert bases(log) == [0, 1, 2]
    lead(log, records())
    assert bases(log) == [0, 1, 2]
    assert log.segments[-1].offset_index.max_entries > 1
    assert [record.offset for record in read_all(log)] == [0, 1, 2]


@pytest.mark.spec("log-format ROLL-09")
def test_set_below_the_active_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    follow(log, records(3))
    log.roll(now_ms=NOW_MS, expected_next_offset=20)  # as for a set that is refused afterwards
    below, above = (AppendRequest(records(base_offset=base), AppendOrigin.REPLICATION) for base in (3, 20))
    refused, taken = log.append_many([below, above], now_ms=NOW_MS)
    assert isinstance(refused, LogError)
    assert "cannot begin at 3" in str(refused)
    assert isinstance(taken, AppendInfo)
    assert (bases(log), log.log_end_offset) == ([0, 20], 21)


@pytest.mark.spec("log-format ROLL-10")
def test_rolled_segment_begins_at_the_log_end_at_the_earliest(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(2))
    assert log.roll(now_ms=NOW_MS, expected_next_offset=1).base_offset == 2


@pytest.mark.spec("log-format ROLL-11")
def test_offset_too_far_from_the_base_offset_begins_a_new_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    follow(log, records())
    follow(log, records(2, base_offset=MAX_INT - 1))
    assert bases(log) == [0]
    follow(log, records(1, base_offset=MAX_INT + 2))
    follow(log, records(1, base_offset=MAX_INT + 3))
    assert bases(log) == [0, MAX_INT + 2]
    assert snapshots(log) == [MAX_INT + 2]
    assert [record.offset for record in read_all(log)] == [0, MAX_INT - 1, MAX_INT, MAX_INT + 2, MAX_INT + 3]


@pytest.mark.spec("log-format ROLL-12")
def test_segment_for_a_legacy_set_begins_as_low_as_its_last_offset_allows(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    def zipped(*offsets: int) -> bytes:
        inner = b"".join(legacy(1, offset, b"k", b"v") for offset in range(len(offsets)))
        return wrapper(1, offsets[-1], inner)

    follow(log, zipped(0, 1, 2))
    follow(log, zipped(MAX_INT + 1, MAX_INT + 2, MAX_INT + 3))
    assert bases(log) == [0, 3]
    follow(log, zipped(2 * MAX_INT + 4, 2 * MAX_INT + 5))
    assert bases(log) == [0, 3, MAX_INT + 5]


@pytest.mark.spec("log-format ROLL-13")
def test_each_roll_writes_a_snapshot_at_the_new_base_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        lead(log, records())
        log.roll(now_ms=NOW_MS)
    assert snapshots(log) == [1, 2, 3]
    lead(log, records(3))
    log.flush(up_to=5)
    log.housekeep(NOW_MS)
    assert snapshots(log) == [1, 2, 3]
    assert log.recovery_point == 5


@pytest.mark.spec("log-format ROLL-14")
def test_snapshot_of_a_roll_excludes_the_batch_that_caused_the_roll(tmp_path: Path) -> None:
    data = [records(producer=Producer(1, 0, sequence)) for sequence in range(3)]
    log = open_log(tmp_path, config=LogConfig(segment_bytes=2 * len(data[0])))
    for each in data:
        lead(log, each)
    assert bases(log) == [0, 2]
    (entry,) = log.producers.snapshots.load(2)
    assert (entry.last_sequence, entry.last_offset) == (1, 1)
    log.truncate_to(2, now_ms=NOW_MS)
    assert log.producers.producers[1].last_sequence == 1
    assert log.producers.map_end_offset == 2


@pytest.mark.spec("log-format ROLL-15")
def test_recovery_point_stays_below_a_snapshot_that_cannot_be_synced(tmp_path: Path) -> None:
    disk = FailingDisk()
    log = open_log(tmp_path, disk=disk)
    lead(log, records(2))
    disk.fails = lambda operation, path: operation == "sync" and path.suffix == ".snapshot"
    log.roll(now_ms=NOW_MS)
    with pytest.raises(LogDirOfflineError):
        log.housekeep(NOW_MS)
    assert log.recovery_point == 0


@pytest.mark.spec("log-format ROLL-16")
def test_rolled_segments_are_readable_and_flushed_later(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=len(records()) + 1))
    for _ in range(100):
        lead(log, records())
    assert log.segment_count == 100
    assert [record.offset for record in read_all(log)] == list(range(100))
    log.housekeep(NOW_MS)
    assert log.recovery_point >= log.segments[-1].base_offset


@pytest.mark.spec("log-format ROLL-17")
def test_roll_of_a_log_with_closed_files_takes_the_log_dir_offline(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records())
    log.close_handles()
    with pytest.raises(LogDirOfflineError):
        log.roll(now_ms=NOW_MS)


@pytest.mark.spec("log-format ROLL-18")
def test_index_of_the_active_segment_is_created_by_a_flush_that_includes_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records())
    log.roll(now_ms=NOW_MS)
    index = log.directory / f"{1:020d}.index"
    log.flush()
    assert not index.exists()
    log.flush(including_active=True)
    assert index.exists()
    assert log.recovery_point == 1


@pytest.mark.spec("log-format ROLL-19")
def test_segment_of_a_compacted_topic_is_rolled_at_the_max_compaction_lag(tmp_path: Path) -> None:
    compacted = LogConfig(segment_ms=10 * HOUR_MS, max_compaction_lag_ms=HOUR_MS, cleanup_policy=frozenset({"compact"}))
    log = open_log(tmp_path, config=compacted)
    lead(log, records(timestamp_ms=NOW_MS))
    lead(log, records(timestamp_ms=NOW_MS + HOUR_MS))
    assert log.segment_count == 1
    lead(log, records(timestamp_ms=NOW_MS + HOUR_MS + 1))
    assert log.segment_count == 2


def test_new_settings_apply_from_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records())
    log.update_config(LogConfig(segment_bytes=len(records()) + 1))
    lead(log, records())
    assert bases(log) == [0, 1]
