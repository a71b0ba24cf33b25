import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.coded import coded
from tests.log.logs import NOW_MS, follow, lead, open_log, read_all, records
from tierd.errors import OffsetOutOfRangeError, TierErrorCode
from tierd.log.log_errors import AppendError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig
from tierd.log.records.new_record import Producer

SIZE = len(records())
FIVE = 5 * SIZE
COMPACT = frozenset({"compact"})


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def names(log: UnifiedLog, suffix: str) -> list[int]:
    return sorted(int(path.name[:20]) for path in log.directory.glob(f"*{suffix}"))


def filled(
    log_dir: Path, count: int, config: LogConfig, *, timestamp_ms: int = NOW_MS, name: str = "a-0"
) -> UnifiedLog:
    """Append ``count`` records that all replicas have, one per batch."""
    log = open_log(log_dir, name=name, config=config)
    for _ in range(count):
        lead(log, records(timestamp_ms=timestamp_ms))
    log.update_high_watermark(log.log_end_offset)
    return log


@pytest.mark.spec("log-format RET-01")
def test_time_retention_deletes_whole_segments_below_the_high_watermark(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=FIVE, retention_ms=1000))
    for _ in range(100):
        lead(log, records(timestamp_ms=NOW_MS - 2000))
    assert log.delete_old_segments(NOW_MS) == 0
    for high_watermark in range(25, 31):
        log.update_high_watermark(high_watermark)
        log.delete_old_segments(NOW_MS)
        assert log.log_start_offset == bases(log)[0] == high_watermark - high_watermark % 5
    log.assign_leader_epoch(1, log.log_end_offset)
    log.update_high_watermark(log.log_end_offset)
    log.delete_old_segments(NOW_MS)
    assert bases(log) == [100]
    assert log.leader_epochs.entries == ((1, 100),)
    log.delete()
    assert not log.directory.exists()


@pytest.mark.spec("log-format RET-02")
@pytest.mark.parametrize(("limit", "left"), [(10, 2), (15, 3)])
def test_size_retention_deletes_segments_down_to_its_limit(tmp_path: Path, limit: int, left: int) -> None:
    log = filled(tmp_path, 15, LogConfig(segment_bytes=FIVE, retention_bytes=limit * SIZE))
    log.delete_old_segments(NOW_MS)
    assert log.segment_count == left


@pytest.mark.spec("log-format RET-03")
@pytest.mark.parametrize(("timestamp_ms", "left"), [(10, 1), (NOW_MS, 3)])
def test_an_expired_log_keeps_one_empty_segment(tmp_path: Path, timestamp_ms: int, left: int) -> None:
    log = filled(tmp_path, 15, LogConfig(segment_bytes=FIVE, retention_ms=10_000), timestamp_ms=timestamp_ms)
    log.delete_old_segments(NOW_MS)
    assert log.segment_count == left
    assert (log.size_bytes == 0) == (left == 1)


@pytest.mark.spec("log-format RET-04")
@pytest.mark.parametrize(("policy", "left"), [("compact", 3), ("compact,delete", 1)])
def test_a_topic_that_is_only_compacted_does_not_expire(tmp_path: Path, policy: str, left: int) -> None:
    config = LogConfig(segment_bytes=FIVE, retention_ms=10_000, cleanup_policy=frozenset(policy.split(",")))
    log = filled(tmp_path, 15, config, timestamp_ms=10)
    for segment in log.segments:
        os.utime(segment.path, (1, 1))
    log.delete_old_segments(NOW_MS)
    assert log.segment_count == left


@pytest.mark.spec("log-format RET-05")
def test_compacted_topic_deletes_segments_below_the_log_start(tmp_path: Path) -> None:
    log = filled(tmp_path, 15, LogConfig(segment_bytes=FIVE, cleanup_policy=COMPACT))
    log.increment_log_start_offset(5, reason="client delete records request")
    assert log.delete_old_segments(NOW_MS) == 1
    first, *others = bases(log)
    assert first <= log.log_start_offset < min(others)


@pytest.mark.spec("log-format RET-06")
@pytest.mark.parametrize(("log_start", "left"), [(1, 3), (6, 2), (15, 1)])
def test_segments_below_the_log_start_are_deleted(tmp_path: Path, log_start: int, left: int) -> None:
    log = filled(tmp_path, 15, LogConfig(segment_bytes=FIVE))
    log.increment_log_start_offset(log_start, reason="client delete records request")
    log.delete_old_segments(NOW_MS)
    assert log.segment_count == left


@pytest.mark.spec("log-format RET-07")
def test_expired_segment_behind_one_that_the_log_start_deletes_is_deleted_too(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=SIZE, retention_ms=900))
    for age_ms in (0, 1000, 0):
        lead(log, records(timestamp_ms=NOW_MS - age_ms))
    log.update_high_watermark(3)
    assert log.delete_old_segments(NOW_MS) == 0
    log.increment_log_start_offset(1, reason="client delete records request")
    assert log.delete_old_segments(NOW_MS) == 2
    assert log.delete_old_segments(NOW_MS) == 0
    assert bases(log) == [2]


@pytest.mark.spec("log-format RET-08")
def test_deleted_files_are_renamed_immediately_and_unlinked_after_the_delay(tmp_path: Path) -> None:
    log = filled(tmp_path, 15, LogConfig(segment_bytes=FIVE, retention_bytes=0, file_delete_delay_ms=1000))
    log.flush(including_active=True)
    before = sorted(path.name for path in log.directory.iterdir() if path.name[0].isdigit())
    log.delete_old_segments(NOW_MS)
    assert names(log, ".log") == [15]
    assert {f"{name}.deleted" for name in before} == {path.name for path in log.directory.glob("*.deleted")}
    log.housekeep(NOW_MS + 999)
    assert names(log, ".log.deleted") == [0, 5, 10]
    log.housekeep(NOW_MS + 1000)
    assert not list(log.directory.glob("*.deleted"))
    assert not {path.name for path in log.directory.iterdir()} & set(before)


@pytest.mark.spec("log-format RET-09")
@pytest.mark.parametrize("count", [0, 1, 25])
def test_log_end_stays_when_all_records_expire(tmp_path: Path, count: int) -> None:
    log = filled(tmp_path, count, LogConfig(segment_bytes=FIVE, retention_ms=0), timestamp_ms=NOW_MS - 1)
    log.delete_old_segments(NOW_MS)
    assert (log.log_end_offset, log.segment_count) == (count, 1)
    assert log.delete_old_segments(NOW_MS) == 0
    assert lead(log, records()).first_offset == count


@pytest.mark.spec("log-format RET-10")
@pytest.mark.parametrize("active_is_empty", [True, False])
def test_snapshots_of_deleted_segments_are_deleted(tmp_path: Path, active_is_empty: bool) -> None:
    log = open_log(tmp_path, config=LogConfig(retention_ms=1000, file_delete_delay_ms=0))
    for sequence in range(3):
        if sequence:
            log.roll(now_ms=NOW_MS)
        lead(log, records(producer=Producer(1, 0, sequence)))
    if active_is_empty:
        log.roll(now_ms=NOW_MS)
    log.update_high_watermark(3)
    log.delete_old_segments(NOW_MS + 2000)
    log.housekeep(NOW_MS + 2000)
    assert names(log, ".snapshot") == [3]
    assert (log.log_start_offset, bases(log)) == (3, [3])


@pytest.mark.spec("log-format RET-11")
@pytest.mark.spec("log-format RET-12")
def test_retention_keeps_snapshots_of_kept_segments_and_all_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(file_delete_delay_ms=0))
    for producer_id in range(4):
        lead(log, records(producer=Producer(producer_id, 0, 0)))
        log.roll(now_ms=NOW_MS)
    assert names(log, ".snapshot") == [1, 2, 3, 4]
    log.update_high_watermark(4)
    log.increment_log_start_offset(2, reason="client delete records request")
    log.delete_old_segments(NOW_MS)
    log.housekeep(NOW_MS)
    assert bases(log) == names(log, ".snapshot") == [2, 3, 4]
    assert set(log.producers.producers) == {0, 1, 2, 3}


@pytest.mark.spec("log-format RET-13")
@pytest.mark.parametrize(("starts", "left"), [((0, 5, 10), ((1, 5), (2, 10))), ((0, 7, 10), ((0, 5), (1, 7), (2, 10)))])
def test_epochs_below_the_log_start_are_dropped(
    tmp_path: Path, starts: tuple[int, ...], left: tuple[tuple[int, int], ...]
) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=FIVE, retention_bytes=10 * SIZE))
    for offset in range(15):
        epoch = max(epoch for epoch, start in enumerate(starts) if start <= offset)
        follow(log, records(base_offset=offset, epoch=epoch))
    log.update_high_watermark(15)
    log.delete_old_segments(NOW_MS)
    assert log.leader_epochs.entries == left


@pytest.mark.spec("log-format RET-14")
def test_retention_does_not_move_the_log_start_above_the_high_watermark(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=LogConfig(segment_bytes=FIVE, retention_ms=0))
    for _ in range(100):
        lead(log, records(timestamp_ms=NOW_MS - 1))
    for high_watermark in range(101):
        log.update_high_watermark(high_watermark)
        log.delete_old_segments(NOW_MS)
        assert log.log_start_offset <= high_watermark
        assert bases(log)[0] <= high_watermark
        assert all(base > high_watermark for base in bases(log)[1:])
    assert (log.segment_count, log.size_bytes) == (1, 0)


@pytest.mark.spec("log-format RET-15")
def test_increment_of_the_log_start_above_the_high_watermark_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(10))
    log.update_high_watermark(5)
    with pytest.raises(OffsetOutOfRangeError):
        log.increment_log_start_offset(6, reason="client delete records request")
    assert log.log_start_offset == 0


@pytest.mark.spec("log-format RET-22")
def test_silent_producer_expires(tmp_path: Path) -> None:
    config = LogConfig(producer_id_expiration_ms=200, producer_id_expiration_check_interval_ms=100)
    log = open_log(tmp_path, config=config)
    lead(log, records(producer=Producer(1, 0, 0)))
    for now_ms, is_known in ((NOW_MS + 99, True), (NOW_MS + 100, True), (NOW_MS + 199, True), (NOW_MS + 200, False)):
        log.housekeep(now_ms)
        assert (1 in log.producers.producers) == is_known


@pytest.mark.spec("log-format RET-23")
@pytest.mark.parametrize(
    "config",
    [
        LogConfig(segment_bytes=FIVE, retention_ms=1000),
        LogConfig(segment_bytes=FIVE, retention_ms=-1, retention_bytes=0),
    ],
)
def test_log_takes_appends_after_retention_deleted_all_records(tmp_path: Path, config: LogConfig) -> None:
    log = filled(tmp_path, 50, config, timestamp_ms=NOW_MS - 2000)
    log.delete_old_segments(NOW_MS)
    log.housekeep(NOW_MS + config.file_delete_delay_ms)
    assert names(log, ".log") == bases(log)
    assert log.segment_count == 1
    with pytest.raises(OffsetOutOfRangeError):
        log.read(0, max_bytes=100, isolation=None)
    assert lead(log, records()).first_offset == 50


class TestTiering:
    """Local segments of a topic with a tier."""

    def tiered(self, log_dir: Path, batches: list[int], config: LogConfig) -> UnifiedLog:
        """Write one segment for each batch."""
        log = open_log(log_dir, config=config)
        for at, count in enumerate(batches):
            if at:
                log.roll(now_ms=NOW_MS)
            lead(log, records(count))
        log.update_high_watermark(log.log_end_offset)
        return log

    @pytest.mark.spec("log-format RET-17")
    def test_expired_active_segment_is_rolled_and_deleted_after_its_upload(self, tmp_path: Path) -> None:
        log = self.tiered(tmp_path, [1], LogConfig(remote_storage_enable=True, local_retention_ms=1000))
        assert log.delete_old_segments(NOW_MS + 2000) == 0
        assert bases(log) == [0, 1]
        log.replace_highest_remote_offset(1, epoch=0)
        assert log.delete_old_segments(NOW_MS + 2000) == 1
        assert (bases(log), log.local_log_start_offset, log.log_start_offset) == ([1], 1, 0)

    @pytest.mark.spec("log-format RET-18")
    def test_segment_that_is_not_uploaded_stays_until_the_log_start_passes_it(self, tmp_path: Path) -> None:
        log = self.tiered(tmp_path, [4, 1], LogConfig(remote_storage_enable=True, local_retention_ms=1000))
        later = NOW_MS + 2000
        log.delete_old_segments(later)
        assert bases(log) == [0, 4]
        log.update_log_start_from_remote_tier(3)
        log.delete_old_segments(later)
        assert bases(log) == [0, 4]
        log.update_log_start_from_remote_tier(4)
        log.delete_old_segments(later)
        assert bases(log)[0] == 4
        log.update_log_start_from_remote_tier(5)
        log.delete_old_segments(later)
        assert (bases(log), log.size_bytes, log.log_start_offset) == ([5], 0, 5)

    @pytest.mark.spec("log-format RET-19")
    @pytest.mark.parametrize("limit", ["bytes", "ms"])
    def test_local_limits_of_minus_2_are_the_total_limits(self, tmp_path: Path, limit: str) -> None:
        config = LogConfig(remote_storage_enable=True, retention_bytes=1)
        if limit == "ms":
            config = LogConfig(remote_storage_enable=True, retention_ms=1000)
        log = self.tiered(tmp_path, [1] * 6, config)
        log.replace_highest_remote_offset(1, epoch=0)
        log.delete_old_segments(NOW_MS + 2000)
        assert bases(log) == [2, 3, 4, 5]
        assert (log.local_log_start_offset, log.log_start_offset) == (2, 0)

    @pytest.mark.spec("log-format RET-20")
    def test_total_limits_apply_when_copies_are_disabled(self, tmp_path: Path) -> None:
        copying = LogConfig(remote_storage_enable=True, retention_bytes=5 * SIZE, local_retention_bytes=1)
        log = self.tiered(tmp_path, [1] * 6, copying)
        log.replace_highest_remote_offset(1, epoch=0)
        log.delete_old_segments(NOW_MS)
        assert (log.segment_count, log.log_start_offset, log.local_log_start_offset) == (4, 0, 2)

        log.update_config(LogConfig(remote_storage_enable=True, remote_log_copy_disable=True, retention_bytes=5 * SIZE))
        assert log.delete_old_segments(NOW_MS) == 0
        log.update_log_start_from_remote_tier(2)
        assert (log.segment_count, log.log_start_offset, log.local_log_start_offset) == (4, 2, 2)

        for _ in range(3):
            log.roll(now_ms=NOW_MS)
            lead(log, records())
        log.update_high_watermark(9)
        assert log.delete_old_segments(NOW_MS) == 2
        assert (log.segment_count, log.log_start_offset, log.local_log_start_offset) == (5, 4, 4)

        log.update_config(LogConfig(remote_storage_enable=True, remote_log_copy_disable=True, retention_ms=1000))
        assert log.delete_old_segments(NOW_MS + 1000) == 0
        log.delete_old_segments(NOW_MS + 1001)
        assert (log.segment_count, log.log_start_offset, log.local_log_start_offset) == (1, 9, 9)

    @pytest.mark.spec("log-format RET-21")
    def test_uploaded_segments_are_deleted_and_others_kept(self, tmp_path: Path) -> None:
        log = self.tiered(tmp_path, [11, 10, 10, 10, 9], LogConfig(remote_storage_enable=True, local_retention_bytes=1))
        log.replace_highest_remote_offset(30, epoch=0)
        log.delete_old_segments(NOW_MS)
        assert (bases(log), log.local_log_start_offset, log.log_start_offset) == ([31, 41], 31, 0)
        assert [record.offset for record in read_all(log, start=31)] == list(range(31, 50))
        with pytest.raises(OffsetOutOfRangeError):
            log.read(30, max_bytes=100, isolation=None)

    def test_remote_offsets_are_ignored_by_a_log_without_a_tier(self, tmp_path: Path) -> None:
        log = filled(tmp_path, 5, LogConfig())
        log.replace_highest_remote_offset(3, epoch=0)
        log.update_log_start_from_remote_tier(3)
        assert (log.highest_remote_offset, log.log_start_offset) == (-1, 0)


class TestDeleteRecords:
    """Requests of clients to delete records."""

    def test_deletion_of_records_moves_the_log_start_and_keeps_the_files(self, tmp_path: Path) -> None:
        log = filled(tmp_path, 15, LogConfig(segment_bytes=FIVE))
        assert log.delete_records(7) == 7
        assert log.delete_records(3) == 7
        assert bases(log) == [0, 5, 10]
        assert log.recovery_point == 7
        with pytest.raises(OffsetOutOfRangeError):
            log.read(6, max_bytes=100)
        assert [record.offset for record in read_all(log)] == list(range(7, 15))
        assert log.delete_records(-1) == 15

    def test_deletion_above_the_high_watermark_or_below_minus_1_is_refused(self, tmp_path: Path) -> None:
        log = filled(tmp_path, 5, LogConfig())
        lead(log, records())
        for offset in (6, -2):
            with pytest.raises(OffsetOutOfRangeError):
                log.delete_records(offset)

    def test_deletion_of_records_is_refused_on_internal_and_compacted_topics(self, tmp_path: Path) -> None:
        for name, config in (("__consumer_offsets-0", LogConfig()), ("a-0", LogConfig(cleanup_policy=COMPACT))):
            with pytest.raises(AppendError, check=coded(TierErrorCode.POLICY_VIOLATION)):
                filled(tmp_path, 5, config, name=name).delete_records(1)


def deletions(log: UnifiedLog) -> list[dict[str, object]]:
    with capture_logs() as events:
        log.delete_old_segments(NOW_MS)
    told = [dict(event) for event in events if event["event"] == "deleting_segments"]
    where = {"partition": "a-0", "log_dir": str(log.directory.parent), "event": "deleting_segments"}
    for event in told:
        assert where.items() <= event.items()
    keys = {*where, "log_level"}
    return [{key: value for key, value in event.items() if key not in keys} for event in told]


def test_deletion_by_size_logs_the_setting_the_limit_and_the_remaining_size(tmp_path: Path) -> None:
    log = filled(tmp_path, 15, LogConfig(segment_bytes=FIVE, retention_bytes=10 * SIZE))

    assert deletions(log) == [
        {
            "breach": "retention size",
            "setting": "retention.bytes",
            "limit_bytes": 10 * SIZE,
            "segments": [0],
            "size_bytes": FIVE,
            "log_size_after_bytes": 2 * FIVE,
            "largest_timestamp_ms": NOW_MS,
        }
    ]


def test_deletion_by_time_logs_the_setting_the_limit_and_the_newest_deleted_timestamp(tmp_path: Path) -> None:
    log = filled(tmp_path, 12, LogConfig(segment_bytes=FIVE, retention_ms=10_000), timestamp_ms=NOW_MS - 20_000)
    lead(log, records(timestamp_ms=NOW_MS))

    assert deletions(log) == [
        {
            "breach": "retention time",
            "setting": "retention.ms",
            "limit_ms": 10_000,
            "segments": [0, 5],
            "size_bytes": 2 * FIVE,
            "log_size_after_bytes": 3 * SIZE,
            "largest_timestamp_ms": NOW_MS - 20_000,
        }
    ]


def test_deletion_by_log_start_logs_the_offset(tmp_path: Path) -> None:
    log = filled(tmp_path, 12, LogConfig(segment_bytes=FIVE, retention_ms=-1))
    log.delete_records(7)

    assert [(event["breach"], event["log_start_offset"], event["segments"]) for event in deletions(log)] == [
        ("log start offset", 7, [0])
    ]


@pytest.mark.parametrize(
    ("config", "breach", "setting"),
    [
        ({"local_retention_bytes": FIVE, "retention_bytes": 10 * FIVE}, "retention size", "local.retention.bytes"),
        ({"retention_bytes": FIVE}, "retention size", "retention.bytes"),
        ({"local_retention_ms": 1, "retention_ms": 10**15}, "retention time", "local.retention.ms"),
        ({"retention_ms": 1}, "retention time", "retention.ms"),
    ],
)
def test_deletion_from_a_tiered_log_logs_the_setting_that_applied(
    tmp_path: Path, config: dict[str, int], breach: str, setting: str
) -> None:
    settings = {"retention_ms": -1, **config}
    log = filled(
        tmp_path,
        12,
        LogConfig(segment_bytes=FIVE, remote_storage_enable=True, **settings),  # type: ignore[arg-type] # integers all
        timestamp_ms=NOW_MS - 20_000,
    )
    log.replace_highest_remote_offset(9, epoch=0)

    (event,) = deletions(log)

    assert (event["breach"], event["setting"]) == (breach, setting)


def test_flush_logs_its_offset_the_time_of_the_last_flush_and_the_unflushed_records(tmp_path: Path) -> None:
    log = filled(tmp_path, 3, LogConfig())
    with capture_logs() as events:
        log.flush(now_ms=NOW_MS)
        log.flush(now_ms=NOW_MS + 1)
        lead(log, records())
        log.flush(now_ms=NOW_MS + 2)

    told = [event for event in events if event["event"] == "flushing_log"]
    assert {event["log_level"] for event in told} == {"debug"}
    assert {(event["partition"], event["log_dir"]) for event in told} == {("a-0", str(tmp_path))}
    assert [(e["offset"], e["recovery_point"], e["last_flushed_ms"], e["unflushed"]) for e in told] == [
        (3, 0, None, 3),
        (4, 3, NOW_MS, 1),
    ], "a flush without anything to flush is no event"
