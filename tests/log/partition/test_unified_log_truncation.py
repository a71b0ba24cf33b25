from pathlib import Path

import pytest

from tests.coded import coded
from tests.log.batches import TOPIC_ID
from tests.log.logs import (
    NOW_MS,
    TransactionalProducer,
    follow,
    headers_of,
    lead,
    open_log,
    read_all,
    records,
)
from tierd.errors import CorruptIndexError, CorruptRecordError, LogDirOfflineError, LogError, TierErrorCode
from tierd.log.log_errors import LogClosedError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.batch_builder import BatchBuilder, encode_empty_batch
from tierd.log.records.batch_header import LOG_OVERHEAD_BYTES
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import NewRecord, Producer
from tierd.log.segments.log_segment import LogSegment
from tierd.model import IsolationLevel


def snapshots(log: UnifiedLog) -> list[int]:
    return sorted(int(path.stem) for path in log.directory.glob("*.snapshot"))


def epochs(log: UnifiedLog) -> list[tuple[int, int]]:
    return [(entry.epoch, entry.start_offset) for entry in log.leader_epochs.entries]


def unstable(log: UnifiedLog) -> int | None:
    return log.first_unstable_offset


def with_producer(log: UnifiedLog, count: int, *, producer_id: int = 1) -> None:
    for sequence in range(count):
        lead(log, records(producer=Producer(producer_id, 0, sequence)))


@pytest.mark.spec("log-format TRN-01")
@pytest.mark.spec("log-format TRN-03")
def test_truncation_cuts_at_a_batch_and_appends_go_on(tmp_path: Path) -> None:
    size = len(records())
    log = open_log(tmp_path, config=LogConfig(segment_bytes=3 * size))
    for _ in range(12):
        lead(log, records())
    before = log.size_bytes
    assert not log.truncate_to(12, now_ms=NOW_MS)
    assert not log.truncate_to(13, now_ms=NOW_MS)
    assert log.size_bytes == before
    assert log.truncate_to(7, now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert log.log_end_offset == 7
    for _ in range(5):
        lead(log, records())
    assert (log.size_bytes, log.log_end_offset) == (before, 12)
    assert [record.offset for record in read_all(log)] == list(range(12))
    assert log.truncate_to(0, now_ms=NOW_MS)
    assert (log.size_bytes, log.log_end_offset, log.segment_count) == (0, 0, 1)
    with pytest.raises(ValueError, match="cannot truncate to -1"):
        log.truncate_to(-1, now_ms=NOW_MS)


@pytest.mark.spec("log-format TRN-02")
def test_truncation_below_the_log_start_empties_the_log_at_that_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start_offset=5)
    lead(log, records(3))
    log.truncate_to(0, now_ms=NOW_MS)
    assert (log.log_end_offset, log.log_start_offset, log.size_bytes, log.high_watermark) == (0, 0, 0, 0)


def test_truncation_within_a_batch_removes_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(2))
    lead(log, records(5), epoch=1)
    log.flush()
    log.update_high_watermark(7)
    log.truncate_to(4, now_ms=NOW_MS)
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (4, 4, 4)
    assert [record.offset for record in read_all(log)] == [0, 1]
    assert epochs(log) == [(0, 0), (1, 2)]
    log.truncate_to(2, now_ms=NOW_MS)
    assert epochs(log) == [(0, 0)]


def test_truncation_at_the_log_end_drops_the_epoch_of_a_leader_without_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(2))
    log.assign_leader_epoch(7, 2)
    assert not log.truncate_to(2, now_ms=NOW_MS)
    assert epochs(log) == [(0, 0)]
    log.housekeep(NOW_MS)
    assert "7 2" not in (log.directory / "leader-epoch-checkpoint").read_text()


@pytest.mark.spec("log-format TRN-04")
def test_truncation_restores_producers_from_the_newest_snapshot_below(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with_producer(log, 2)
    log.producers.take_snapshot(sync=False)
    lead(log, records(producer=Producer(1, 0, 2)))
    log.producers.take_snapshot(sync=False)
    assert snapshots(log) == [2, 3]
    for offset, latest in ((2, 2), (1, 1), (0, None)):
        log.truncate_to(offset, now_ms=NOW_MS)
        assert log.producers.latest_snapshot_offset == latest
        assert log.producers.map_end_offset == offset


@pytest.mark.spec("log-format TRN-05")
def test_truncation_without_snapshots_restores_producers_from_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with_producer(log, 2)
    log.roll(now_ms=NOW_MS)
    lead(log, records(producer=Producer(1, 0, 2)))
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    log.truncate_to(1, now_ms=NOW_MS)
    assert log.producers.producers[1].last_sequence == 0


@pytest.mark.spec("log-format TRN-06")
@pytest.mark.parametrize("kept", [(24, 26), ()])
def test_truncation_restores_sequences_of_compacted_batches_from_their_headers(
    tmp_path: Path, kept: tuple[int, ...]
) -> None:
    producer = Producer(1, 0, 0)
    if kept:
        builder = BatchBuilder(base_offset=23, producer=producer, leader_epoch=0)
        for offset in kept:
            builder.append(NewRecord(b"k", b"v", NOW_MS), offset=offset)
        compacted, end, last_sequence = builder.build(), 27, 3
    else:
        compacted = encode_empty_batch(base_offset=23, last_offset=24, producer=producer, leader_epoch=0)
        end, last_sequence = 25, 1
    log = open_log(tmp_path)
    follow(log, compacted)
    follow(log, records(2, base_offset=end, producer=Producer(1, 0, last_sequence + 1)))
    log.truncate_to(end, now_ms=NOW_MS)
    assert log.log_end_offset == end
    assert log.producers.producers[1].last_sequence == last_sequence


@pytest.mark.spec("log-format TRN-07")
@pytest.mark.parametrize("fully", [True, False])
def test_truncation_forgets_an_open_transaction_above_the_offset(tmp_path: Path, fully: bool) -> None:
    log = open_log(tmp_path)
    lead(log, records(3))
    TransactionalProducer(log, 1).write(2)
    log.close()
    log = open_log(tmp_path)
    assert unstable(log) == 3
    if fully:
        log.truncate_fully_and_start_at(0, now_ms=NOW_MS)
    else:
        log.truncate_to(0, now_ms=NOW_MS)
    assert unstable(log) is None
    assert not log.producers.producers


@pytest.mark.spec("log-format TRN-08")
def test_full_truncation_removes_records_producers_and_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(2):
        with_producer(log, 2)
        log.roll(now_ms=NOW_MS)
        log.truncate_fully_and_start_at(29, now_ms=NOW_MS)
        assert [segment.base_offset for segment in log.segments] == [29]
        assert not snapshots(log)
        assert log.producers.map_end_offset == 29
        assert not log.producers.producers
        assert not log.leader_epochs
        log.housekeep(NOW_MS)
    log.truncate_fully_and_start_at(2, now_ms=NOW_MS, log_start_offset=1)
    assert (log.log_end_offset, log.log_start_offset) == (2, 1)
    assert lead(log, records()).first_offset == 2


@pytest.mark.spec("log-format TRN-09")
def test_full_truncation_of_a_tiered_log_keeps_the_log_start(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(remote_storage_enable=True), log_start_offset=40)
    follow(log, records(10, base_offset=40))
    log.truncate_fully_and_start_at(60, now_ms=NOW_MS, log_start_offset=40)
    assert (log.local_log_start_offset, log.log_start_offset, log.log_end_offset) == (60, 40, 60)


@pytest.mark.spec("log-format TRN-10")
@pytest.mark.spec("log-format TRN-11")
def test_renamed_log_takes_records_and_no_longer_writes_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    lead(log, records())
    old = log.directory
    assert not log.rename_directory(old.name)
    assert log.rename_directory("orders-0.1234567890abcdef1234567890abcdef-delete")
    assert not old.exists()
    checkpoint = log.directory / "leader-epoch-checkpoint"
    before = checkpoint.read_text()
    lead(log, records(), epoch=20)
    assert (log.log_end_offset, len(read_all(log))) == (2, 2)
    assert not old.exists()
    assert checkpoint.read_text() == before
    assert not log.leader_epochs
    log.assign_leader_epoch(21, 2)
    assert not log.leader_epochs
    log.roll(now_ms=NOW_MS)
    log.housekeep(NOW_MS)
    log.delete()
    assert not log.directory.exists()


@pytest.mark.spec("log-format TRN-12")
def test_flush_after_another_program_renamed_the_directory_is_no_error(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records())
    log.flush()
    lead(log, records())
    log.directory.rename(tmp_path / "moved-0")
    log.flush()
    assert log.recovery_point == 2


@pytest.mark.spec("log-format TRN-13")
@pytest.mark.spec("log-format TRN-14")
def test_deleted_log_has_no_directory_and_refuses_calls(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with_producer(log, 1)
    log.delete()
    assert not log.directory.exists()
    with pytest.raises(LogClosedError):
        log.housekeep(NOW_MS + 10**12)  # the call that would expire producers
    with pytest.raises(LogClosedError):
        lead(log, records())


@pytest.mark.spec("log-format TRN-14")
def test_second_close_is_no_error_but_close_after_closed_files_is(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records())
    log.close()
    log.close()
    log.close_handles()
    with pytest.raises(LogClosedError):
        lead(log, records())
    log = open_log(tmp_path)
    log.close_handles()
    log.close_handles()
    with pytest.raises(LogDirOfflineError):
        log.close()


def test_clean_stop_leaves_a_snapshot_trimmed_indexes_and_flushed_files(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    with_producer(log, 3)
    log.close()
    assert log.recovery_point == 3
    assert snapshots(log) == [3]
    assert (log.directory / f"{0:020d}.timeindex").stat().st_size == 12
    assert (log.directory / f"{0:020d}.index").stat().st_size == 0
    again = open_log(tmp_path, recovery_point=3)
    assert again.producers.producers[1].last_sequence == 2


@pytest.mark.spec("log-format TRN-16")
def test_statistics_of_a_log_created_again_exclude_the_deleted_one(tmp_path: Path) -> None:
    old = open_log(tmp_path)
    lead(old, records(5))
    old.rename_directory("orders-0.1234567890abcdef1234567890abcdef-delete")
    new = open_log(tmp_path)
    assert (new.statistics().segment_count, new.statistics().log_end_offset, new.statistics().size_bytes) == (1, 0, 0)
    assert old.statistics().log_end_offset == 5
    old.delete()
    follow(new, records(2))
    assert new.statistics().log_end_offset == 2


@pytest.mark.spec("log-format TRN-19")
def test_new_settings_apply_from_the_next_retention_and_roll(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records())
    room = log.segments[0].offset_index.max_entries
    log.update_config(LogConfig(segment_index_bytes=80, retention_ms=1, cleanup_policy=frozenset({"compact"})))
    assert log.config.is_compacted
    log.update_high_watermark(1)
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    assert log.segments[0].offset_index.max_entries == room
    log.update_config(LogConfig(segment_index_bytes=80, retention_ms=1))
    assert log.delete_old_segments(NOW_MS + 1000) == 1
    assert log.segments[0].offset_index.max_entries == 10


def test_assignment_of_another_topic_id_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.assign_topic_id(TOPIC_ID)
    log.assign_topic_id(TOPIC_ID)
    log.housekeep(NOW_MS)
    log.close()
    again = open_log(tmp_path)
    assert again.topic_id == TOPIC_ID
    with pytest.raises(LogError, check=coded(TierErrorCode.INCONSISTENT_TOPIC_ID)):
        again.assign_topic_id(type(TOPIC_ID)(int=1))


def test_reads_go_on_after_a_truncation(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(10):
        lead(log, records())
    log.update_high_watermark(10)
    log.truncate_to(5, now_ms=NOW_MS)
    assert len(headers_of(log)) == 5
    assert [record.offset for record in read_all(log, isolation=IsolationLevel.READ_UNCOMMITTED)] == list(range(5))


def damage(segment: LogSegment, batch: int) -> None:
    """Make the size of a batch impossible, in a segment of batches of equal size."""
    data = bytearray(segment.path.read_bytes())
    at = batch * (LOG_OVERHEAD_BYTES + int.from_bytes(data[8:LOG_OVERHEAD_BYTES], "big"))
    data[at + 8 : at + LOG_OVERHEAD_BYTES] = bytes(4)
    segment.path.write_bytes(data)


@pytest.mark.parametrize("index", [False, True])
def test_truncation_that_damage_prevents_changes_no_file(tmp_path: Path, index: bool) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=3 * len(records())))
    for _ in range(9):
        lead(log, records())
    log.flush()
    if index:
        log.segments[1].path.with_suffix(".txnindex").write_bytes(b"\1" * 34)
    else:
        damage(log.segments[1], 1)
    with pytest.raises(CorruptIndexError if index else CorruptRecordError):
        log.truncate_to(5, now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    assert (log.log_end_offset, log.recovery_point) == (9, 9)
    assert lead(log, records()).first_offset == 9


def test_log_whose_producers_cannot_be_restored_refuses_appends(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=3 * len(records())))
    with_producer(log, 9)
    log.update_high_watermark(9)
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    damage(log.segments[0], 1)
    with pytest.raises(CorruptRecordError):
        log.truncate_to(7, now_ms=NOW_MS)
    assert (log.log_end_offset, log.high_watermark) == (7, 7)
    with pytest.raises(LogDirOfflineError, match="the log's files are closed"):
        lead(log, records(producer=Producer(1, 0, 7)))
