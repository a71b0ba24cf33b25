import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import Row, batch, legacy, plain
from tests.log.segmented_logs import NOW_MS, append, new_log, reopen
from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.log.files.disk import OsDisk
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import LogConfig
from tierd.log.segments.offset_lookup import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    LookupFacts,
    offset_by_timestamp,
)
from tierd.log.segments.segmented_log import SegmentedLog
from tierd.model import Lineage, TimestampOffset

T = 1_000_000
INDEXED = LogConfig(segment_index_bytes=10_000, index_interval_bytes=0)


def rows(*timestamps: int) -> list[Row]:
    return [(timestamp, b"k", b"v") for timestamp in timestamps]


def log_of(folder: Path, *segments: list[bytes], config: LogConfig = INDEXED) -> SegmentedLog:
    log = new_log(folder, config)
    for number, sets in enumerate(segments):
        if number:
            log.roll(now_ms=NOW_MS)
        append(log, *sets)
    return log


def facts(log: SegmentedLog, *epochs: tuple[int, int]) -> LookupFacts:
    return LookupFacts(
        log_start_offset=log.segments.values[0].base_offset,
        local_log_start_offset=log.segments.values[0].base_offset,
        log_end_offset=log.log_end.offset,
        lineage=Lineage.of(epochs),
    )


def ask(log: SegmentedLog, timestamp_ms: int, known: LookupFacts | None = None) -> TimestampOffset | None:
    return offset_by_timestamp(log.reader, timestamp_ms, known or facts(log))


@pytest.mark.spec("log-format READ-11")
def test_first_and_last_offsets_are_returned_with_their_leader_epochs(tmp_path: Path) -> None:
    log = log_of(tmp_path, [batch(0, rows(T), epoch=0), batch(1, rows(T + 1), epoch=1)])
    known = facts(log, (0, 0), (1, 1))
    assert ask(log, EARLIEST, known) == TimestampOffset(-1, 0, 0)
    assert ask(log, EARLIEST_LOCAL, known) == TimestampOffset(-1, 0, 0)
    assert ask(log, LATEST, known) == TimestampOffset(-1, 2, 1)
    assert ask(log, LATEST, facts(log, (0, 0), (1, 1), (2, 2))) == TimestampOffset(-1, 2, 2)
    assert ask(log, T, known) == TimestampOffset(T, 0, 0)
    assert ask(log, T + 1, known) == TimestampOffset(T + 1, 1, 1)
    assert ask(log, T + 2, known) is None
    assert ask(log, EARLIEST, facts(log)) == TimestampOffset(-1, 0, None)
    assert ask(log, LATEST, facts(log)) == TimestampOffset(-1, 2, None)
    late = replace(facts(log, (4, 1)), log_start_offset=0)
    assert ask(log, EARLIEST, late) == TimestampOffset(-1, 0, None)  # the epoch began after the log did


@pytest.mark.spec("log-format READ-12")
def test_the_largest_timestamp_is_found_at_its_first_record(tmp_path: Path) -> None:
    log = log_of(tmp_path, [batch(0, rows(T)), batch(1, rows(T + 1)), batch(2, rows(T))])
    assert ask(log, MAX_TIMESTAMP) == TimestampOffset(T + 1, 1, 0)


@pytest.mark.spec("log-format READ-12")
def test_largest_timestamp_is_found_in_the_first_segment_that_has_it(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        [batch(0, rows(T))],
        [batch(1, rows(T, T + 5, T + 5, T)), batch(5, rows(T + 5))],
        [batch(6, rows(T + 5))],
    )
    assert ask(log, MAX_TIMESTAMP) == TimestampOffset(T + 5, 2, 0)
    log.close()
    assert ask(reopen(log.directory), MAX_TIMESTAMP) == TimestampOffset(T + 5, 2, 0)


@pytest.mark.spec("log-format READ-12")
def test_lookup_uses_the_batch_timestamp_for_log_append_time(tmp_path: Path) -> None:
    stamped = batch(3, rows(T, T, T), log_append_ms=T + 9, codec=Compression.LZ4)
    log = log_of(tmp_path, [plain(0, 3), stamped])
    assert ask(log, MAX_TIMESTAMP) == TimestampOffset(T + 9, 3, 0)
    assert ask(log, T + 9) == TimestampOffset(T + 9, 3, 0)


def test_log_without_timestamps_has_no_largest_timestamp(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert ask(log, MAX_TIMESTAMP) is None
    append(log, legacy(0, 0, None, b"v"))
    assert ask(log, MAX_TIMESTAMP) is None


@pytest.mark.spec("log-format READ-13")
def test_lookup_asks_the_tier_before_the_local_log(tmp_path: Path) -> None:
    log = log_of(tmp_path, [batch(0, rows(T), epoch=0)], [batch(1, rows(T + 1), epoch=1)])
    known = replace(facts(log, (0, 0), (1, 1)), local_log_start_offset=1, is_tiered=True)
    asked: list[tuple[int, int]] = []

    def remote(timestamp_ms: int, start: int) -> TimestampOffset | None:
        asked.append((timestamp_ms, start))
        return TimestampOffset(T, 0, 0) if timestamp_ms <= T else None

    assert offset_by_timestamp(log.reader, T, known, remote=remote) == TimestampOffset(T, 0, 0)
    assert offset_by_timestamp(log.reader, T + 1, known, remote=remote) == TimestampOffset(T + 1, 1, 1)
    assert asked == [(T, 0), (T + 1, 0)]
    assert offset_by_timestamp(log.reader, T + 1, known) == TimestampOffset(T + 1, 1, 1)
    assert ask(log, EARLIEST_LOCAL, known) == TimestampOffset(-1, 1, 1)
    assert ask(log, EARLIEST, known) == TimestampOffset(-1, 0, 0)


@pytest.mark.spec("log-format READ-14")
def test_latest_tiered_offset_is_that_of_the_tier_or_unknown(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0, 2)])
    known = facts(log, (0, 0), (1, 1))
    assert ask(log, LATEST_TIERED, known) == TimestampOffset(-1, -1, -1)
    assert ask(log, LATEST_TIERED, replace(known, is_tiered=True)) == TimestampOffset(-1, -1, -1)
    uploaded = replace(known, is_tiered=True, highest_remote_offset=0)
    assert ask(log, LATEST_TIERED, uploaded) == TimestampOffset(-1, 0, 0)


@pytest.mark.spec("log-format READ-15")
def test_lookup_in_an_empty_log_does_not_ask_the_tier(tmp_path: Path) -> None:
    log = new_log(tmp_path)

    def remote(_timestamp_ms: int, _start: int) -> TimestampOffset | None:
        raise AssertionError("asked")

    known = replace(facts(log), is_tiered=True)
    assert offset_by_timestamp(log.reader, T, known, remote=remote) is None


def test_lookup_leaves_out_records_that_the_caller_may_not_fetch(tmp_path: Path) -> None:
    log = log_of(tmp_path, [batch(0, rows(T)), batch(1, rows(T + 1))])
    known = replace(facts(log, (3, 0)), last_fetchable_offset=1)
    assert ask(log, T, known) == TimestampOffset(T, 0, 0)
    assert ask(log, T + 1, known) is None
    assert ask(log, MAX_TIMESTAMP, known) is None
    assert ask(log, LATEST, known) == TimestampOffset(-1, 1, 3)


def test_unknown_special_timestamp_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="-6 stands for nothing"):
        ask(new_log(tmp_path), -6)


@pytest.mark.spec("log-format SEG-11")
def test_lookup_finds_the_first_record_at_or_after_a_timestamp(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.truncate_fully_and_start_at(40, now_ms=NOW_MS)
    append(log, *(batch(40 + n, rows(400 + 10 * n)) for n in range(10)))
    found = [ask(log, timestamp) for timestamp in (420, 421, 430, 431, 491, 401, 399)]
    assert [each and each.offset for each in found] == [42, 43, 43, 44, None, 41, 40]


def test_records_below_the_log_start_are_not_found(tmp_path: Path) -> None:
    log = log_of(tmp_path, [batch(0, rows(T, T + 1, T + 2)), batch(3, rows(T))])
    assert ask(log, T, replace(facts(log), log_start_offset=2)) == TimestampOffset(T + 2, 2, 0)
    assert ask(log, T, replace(facts(log), log_start_offset=3)) == TimestampOffset(T, 3, 0)


def test_lookup_takes_the_mtime_of_a_segment_without_timestamps(tmp_path: Path) -> None:
    log = log_of(tmp_path, [legacy(0, 0, None, b"v")], [batch(1, rows(T))])
    OsDisk().set_mtime_ms(log.segments.values[0].path, T - 1)
    assert ask(log, T) == TimestampOffset(T, 1, 0)
    OsDisk().set_mtime_ms(log.segments.values[0].path, T + 1)
    assert ask(log, T) is None  # only the first segment that may hold it is searched, as Kafka does


def test_lookup_leaves_out_records_in_the_write_buffer(tmp_path: Path) -> None:
    log = log_of(tmp_path, [batch(0, rows(T)), batch(1, rows(T + 1))])
    append(log, batch(2, rows(T + 7)), write=False)
    assert ask(log, MAX_TIMESTAMP) == TimestampOffset(T + 1, 1, 0)
    assert ask(log, T + 2) is None
    log.write_out()
    assert ask(log, MAX_TIMESTAMP) == ask(log, T + 2) == TimestampOffset(T + 7, 2, 0)


def test_lookup_that_meets_a_damaged_batch_is_an_error(tmp_path: Path) -> None:
    log = log_of(tmp_path, [batch(0, rows(T), count=5, last_offset_delta=4)])
    with pytest.raises(CorruptRecordError):
        ask(log, T, replace(facts(log), log_start_offset=1))
    log.active.path.unlink()
    with pytest.raises(SegmentChangedError):
        ask(log, T)


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=30), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_a_lookup_agrees_with_a_search_through_all_records(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], per_segment: int
) -> None:
    log, everything = new_log(tmp_path_factory.mktemp("lookup"), INDEXED), list[TimestampOffset]()
    for number, timestamps in enumerate(batches):
        if number and number % per_segment == 0:
            log.roll(now_ms=NOW_MS)
        base = log.next_offset
        append(log, batch(base, rows(*timestamps)))
        everything += [TimestampOffset(t, base + n, 0) for n, t in enumerate(timestamps)]
    best = max(each.timestamp_ms for each in everything)
    for lookup in (log, reopened(log)):
        for timestamp in range(32):
            expected = next((each for each in everything if each.timestamp_ms >= timestamp), None)
            assert ask(lookup, timestamp) == expected
        assert ask(lookup, MAX_TIMESTAMP) == next(each for each in everything if each.timestamp_ms == best)


def reopened(log: SegmentedLog) -> SegmentedLog:
    log.close()
    return reopen(log.directory)


@given(
    st.binary(max_size=100)
    | st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 99))).map(
        lambda entries: b"".join(struct.pack(">qi", *entry) for entry in sorted(entries))
    )
)
@settings(max_examples=40, deadline=None)
def test_lookup_with_a_time_index_of_any_bytes_returns(tmp_path_factory: pytest.TempPathFactory, index: bytes) -> None:
    log = log_of(tmp_path_factory.mktemp("lying"), [batch(n, rows(T + n)) for n in range(20)])
    log.close()
    log.active.path.with_suffix(".timeindex").write_bytes(index)
    loaded = reopen(log.directory)
    for timestamp in (0, T, T + 10, T + 100, MAX_TIMESTAMP):
        found = ask(loaded, timestamp)
        assert found is None or found.timestamp_ms == T + found.offset
