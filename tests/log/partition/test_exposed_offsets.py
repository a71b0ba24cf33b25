from pathlib import Path

import pytest

from tests.log.logs import NOW_MS, TransactionalProducer, follow, lead, open_log, records
from tierd.errors import OffsetOutOfRangeError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.model import IsolationLevel


def is_placed(log: UnifiedLog) -> bool:
    return not log._state.offsets.high_watermark.is_offset_only


def test_high_watermark_of_a_new_log_is_the_log_start(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start_offset=7)
    assert (log.high_watermark, log.last_stable_offset) == (7, 7)
    assert log.recovery_point == 7
    assert log.update_high_watermark(3) == 7


def test_high_watermark_at_the_log_end_moves_to_the_new_segment_of_a_roll(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(3))
    log.update_high_watermark(3)
    offsets = log._state.offsets
    assert offsets.high_watermark.segment_base_offset == 0
    log.roll(now_ms=NOW_MS)
    assert offsets.high_watermark == LogOffset(3, 3, 0)


def test_high_watermark_moves_to_the_same_offset_on_a_newer_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(3))
    offsets = log._state.offsets
    assert offsets.increment_high_watermark(LogOffset(2, 0, 10))
    assert not offsets.increment_high_watermark(LogOffset(2, 0, 10))
    assert offsets.increment_high_watermark(LogOffset(2, 1, 0))


def test_position_of_the_high_watermark_is_kept_after_the_first_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        lead(log, records())
    log.update_high_watermark(2)
    assert not is_placed(log)
    first = log.read(0, max_bytes=1 << 20, isolation=IsolationLevel.READ_UNCOMMITTED)
    assert is_placed(log)
    assert log.read(0, max_bytes=1 << 20, isolation=IsolationLevel.READ_UNCOMMITTED) == first
    assert len(first.records) == log._state.offsets.high_watermark.position


def test_local_read_is_empty_when_the_high_watermark_is_below_the_local_log(tmp_path: Path) -> None:
    config = LogConfig(remote_storage_enable=True)
    log = open_log(tmp_path, config=config, log_start_offset=40)
    follow(log, records(5, base_offset=40))
    log.truncate_fully_and_start_at(60, now_ms=NOW_MS, log_start_offset=40)
    follow(log, records(5, base_offset=60))
    log.update_high_watermark(45)
    assert log.read(60, max_bytes=100).records == b""
    with pytest.raises(OffsetOutOfRangeError):
        log.read(45, max_bytes=100, isolation=None)


def test_open_transaction_is_restored_by_a_reload(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(2))
    TransactionalProducer(log, 1).write(2)
    log.close()
    log = open_log(tmp_path)
    log.update_high_watermark(4)
    assert log.last_stable_offset == 2
    found = log.read(0, max_bytes=1 << 20, isolation=IsolationLevel.READ_COMMITTED)
    assert len(found.records) == log._state.offsets.last_stable.position > 0


def test_flush_of_a_roll_that_was_truncated_keeps_the_recovery_point(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(3):
        lead(log, records())
        log.roll(now_ms=NOW_MS)
    assert log.is_housekeeping_due(NOW_MS)
    log.truncate_to(1, now_ms=NOW_MS)
    log.housekeep(NOW_MS)
    assert (log.recovery_point, log.log_end_offset) == (1, 1)
    log.flush(up_to=100)
    assert log.recovery_point == 1


def test_high_watermark_rises_for_readers_after_the_first_unstable_offset_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    lead(log, records(2))
    offsets, producers = log._state.offsets, log._state.producers
    refresh, forget, seen = offsets.refresh_first_unstable, producers.on_high_watermark_updated, []

    def before_refresh() -> None:  # the log end has moved, the first unstable offset not yet
        log.update_high_watermark(log.log_end_offset)
        seen.append(log.last_stable_offset)
        refresh()

    def while_setting(high_watermark: int) -> None:
        forget(high_watermark)
        seen.append(log.last_stable_offset)

    monkeypatch.setattr(offsets, "refresh_first_unstable", before_refresh)
    monkeypatch.setattr(producers, "on_high_watermark_updated", while_setting)
    TransactionalProducer(log, 1).write(2)
    assert log.high_watermark == 4
    assert max(seen) == 2


def test_high_watermark_that_falls_while_the_log_end_moves_keeps_its_lower_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    lead(log, records(3))
    log.update_high_watermark(3)
    offsets = log._state.offsets
    lock = offsets.lock

    class LockThatAnotherThreadHadFirst:
        def __enter__(self) -> None:
            offsets.lock = lock
            log.update_high_watermark(1)

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(offsets, "lock", LockThatAnotherThreadHadFirst())
    offsets.follow_log_end()
    assert log.high_watermark == 1
