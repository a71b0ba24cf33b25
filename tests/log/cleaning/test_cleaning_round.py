from pathlib import Path

import pytest

from tests.fakes.clock import FakeClock
from tests.log.batches import plain
from tests.log.cleaning.cleaners import begin_round, clean, own_log_rules
from tests.log.logs import NOW_MS, open_log, read_all
from tierd.errors import CorruptRecordError
from tierd.log.cleaning.cleaning_control import CleaningControl
from tierd.log.log_errors import CleaningAbortedError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.batch_builder import encode_batch
from tierd.log.records.log_config import MAX_INT, LogConfig
from tierd.log.records.new_record import NewRecord

COMPACT = frozenset({"compact"})


def log_of(tmp_path: Path, *keys: bytes, config: LogConfig | None = None) -> UnifiedLog:
    """Write a log with a segment for each key and an empty active segment."""
    log = open_log(tmp_path, config=config or LogConfig(cleanup_policy=COMPACT))
    for key in keys:
        data = encode_batch([NewRecord(key, b"value", NOW_MS)], base_offset=0)
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
        log.roll(now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    return log


def offsets(log: UnifiedLog) -> list[int]:
    return [record.offset for record in read_all(log)]


def temporary(log: UnifiedLog) -> list[str]:
    return sorted(path.name for path in log.directory.iterdir() if path.suffix in {".cleaned", ".swap"})


@pytest.mark.spec("log-format CLN-25")
def test_aborted_round_leaves_no_output(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"a", b"a", b"b")
    control = CleaningControl("orders-0", clock=FakeClock())
    begun = begin_round(log, cleaned_to=None, now_ms=NOW_MS, control=control)
    begun.map_keys()
    control.abort()
    with pytest.raises(CleaningAbortedError):
        begun.rewrite(begun.groups()[0])
    assert temporary(log) == []
    assert offsets(log) == [0, 1, 2]


@pytest.mark.spec("log-format CLN-02")
def test_retention_of_a_source_segment_ends_the_round_without_output(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"a", b"a", b"b")
    begun = begin_round(log, cleaned_to=None, now_ms=NOW_MS)
    begun.map_keys()
    (group,) = begun.groups()
    output = begun.rewrite(group)
    log.increment_log_start_offset(2, reason="test")
    log.delete_old_segments(NOW_MS)
    with pytest.raises(CleaningAbortedError):
        log.apply(lambda _: begun.replace(group, output, now_ms=NOW_MS))
    assert temporary(log) == []
    assert offsets(log) == [2]


@pytest.mark.spec("log-format CLN-21")
def test_map_of_one_key_makes_progress_by_one_record(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"a", b"b", b"a", b"b", b"a", b"b")
    rules = own_log_rules(max_keys=1)
    ends = [0]
    while ends[-1] < 6:
        ends.append(clean(log, cleaned_to=ends[-1], now_ms=NOW_MS, rules=rules))
    assert ends == list(range(7))
    assert offsets(log)[-2:] == [4, 5]


@pytest.mark.spec("log-format CLN-31")
def test_map_of_two_keys_holds_the_first_two_dirty_ones(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"a", b"b", b"a", b"b", b"c")
    assert clean(log, cleaned_to=2, now_ms=NOW_MS, rules=own_log_rules(max_keys=2)) == 4
    assert offsets(log) == [2, 3, 4]


@pytest.mark.spec("log-format CLN-03")
def test_output_of_a_preallocated_log_is_as_long_as_its_content(tmp_path: Path) -> None:
    log = log_of(
        tmp_path, b"a", b"a", b"b", config=LogConfig(cleanup_policy=COMPACT, preallocate=True, segment_bytes=5000)
    )
    clean(log, cleaned_to=None, now_ms=NOW_MS)
    first = log.segments[0]
    assert 0 < first.path.stat().st_size == first.size_bytes < 300
    assert offsets(log) == [1, 2]


def test_output_has_the_mtime_of_its_last_source_and_snapshots_between_are_deleted(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"a", b"a", b"b")
    mtime_ns = log.segments[2].path.stat().st_mtime_ns
    clean(log, cleaned_to=None, now_ms=NOW_MS)
    assert log.segments[0].path.stat().st_mtime_ns // 1_000_000 == mtime_ns // 1_000_000
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    assert {int(path.stem) for path in log.directory.glob("*.snapshot")} <= {0, 3}


@pytest.mark.spec("log-format CLN-30")
def test_segment_whose_offsets_overflow_is_split_by_the_load_and_cleaned_without_overflow(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(plain(0, 2) + plain(MAX_INT + 10, 2))
    log = open_log(tmp_path, config=LogConfig(cleanup_policy=COMPACT))
    log.roll(now_ms=NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    clean(log, cleaned_to=None, now_ms=NOW_MS)
    assert not any(segment.has_overflow for segment in log.segments)


def test_damaged_segment_is_an_error_that_names_it_and_leaves_no_output(tmp_path: Path) -> None:
    log = log_of(tmp_path, b"a", b"a", b"b")
    path = log.segments[1].path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    begun = begin_round(log, cleaned_to=None, now_ms=NOW_MS)
    with pytest.raises(CorruptRecordError, match=path.name):
        begun.map_keys()
    assert temporary(log) == []
