"""One log through both kinds of ``LogSnapshot``: as its writer publishes it, and as a broker's directory."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import TOPIC_ID_TEXT, Row, batch
from tests.log.segmented_logs import NOW_MS, append, new_log
from tierd.errors import SegmentChangedError
from tierd.log import first_since, identify_directory, scan_partition
from tierd.log.broker.timestamp_lookup import ScannedLog
from tierd.log.records.log_config import LogConfig
from tierd.log.segments.log_read import PublishedSnapshot
from tierd.log.segments.log_snapshot import LogSnapshot, first_in_segments, indexed_timestamp
from tierd.log.segments.segmented_log import SegmentedLog
from tierd.model import TimestampOffset

INDEXED = LogConfig(segment_index_bytes=10_000, index_interval_bytes=0)


def rows(timestamps: list[int]) -> list[Row]:
    return [(timestamp_ms, b"k", b"v") for timestamp_ms in timestamps]


def log_of(folder: Path, *segments: list[list[int]]) -> SegmentedLog:
    """Write a log with one batch for each list of timestamps."""
    log = new_log(folder, INDEXED)
    (log.directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID_TEXT}")
    for number, batches in enumerate(segments):
        if number:
            log.roll(now_ms=NOW_MS)
        for timestamps in batches:
            append(log, batch(log.next_offset, rows(timestamps)))
    return log


def published(log: SegmentedLog) -> PublishedSnapshot:
    return PublishedSnapshot(log.reader, log.published)


def scanned(log: SegmentedLog) -> ScannedLog:
    directory = identify_directory(log.directory)
    assert directory is not None
    return ScannedLog(scan_partition(directory))


Kind = Callable[[SegmentedLog], LogSnapshot]


@pytest.fixture(params=[published, scanned])
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


def test_snapshot_yields_the_segments_in_order(tmp_path: Path, kind: Kind) -> None:
    log = log_of(tmp_path, [[1], [2]], [[3]], [[4]])
    assert [(s.base_offset, s.next_base_offset) for s in kind(log).segments()] == [(0, 2), (2, 3), (3, None)]


def test_open_log_ends_where_readers_may_read(tmp_path: Path, kind: Kind) -> None:
    snapshot = kind(log_of(tmp_path, [[1], [2]], [[3]]))
    ends = []
    for segment in snapshot.segments():
        with snapshot.open_log(segment) as opened:
            assert opened.source.path == segment.log
            ends.append(opened.end)
    size = len(batch(0, rows([1])))
    assert ends == [2 * size, size]


def test_missing_segment_is_reported_as_changed(tmp_path: Path, kind: Kind) -> None:
    log = log_of(tmp_path, [[1]], [[2]])
    snapshot = kind(log)
    gone, _ = snapshot.segments()
    gone.log.unlink()
    with pytest.raises(SegmentChangedError), snapshot.open_log(gone):
        pytest.fail("opened")


def test_a_missing_time_index_has_no_entry_and_the_search_finds_the_record(tmp_path: Path, kind: Kind) -> None:
    log = log_of(tmp_path, [[5], [7]], [[3]])
    snapshot = kind(log)
    segments = list(snapshot.segments())
    assert indexed_timestamp(snapshot, segments[0], 8) == TimestampOffset(7, 1)
    segments[0].time_index.unlink()
    assert indexed_timestamp(snapshot, segments[0], 8) is None
    assert first_in_segments(snapshot, segments, 6) == TimestampOffset(7, 1, 0)


@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=3), min_size=1, max_size=4), min_size=1, max_size=5
    ),
    st.integers(0, 20),
    st.integers(0, 40),
)
@settings(max_examples=30, deadline=None)
def test_both_snapshots_find_the_record_that_a_search_of_all_records_finds(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[list[int]]], start: int, end: int
) -> None:
    log = log_of(tmp_path_factory.mktemp("snapshot"), *segments)
    times = [timestamp_ms for batches in segments for timestamps in batches for timestamp_ms in timestamps]
    everything = [TimestampOffset(timestamp_ms, offset, 0) for offset, timestamp_ms in enumerate(times)][start:end]
    broker_log = scanned(log)
    for wanted in range(0, 32, 3):
        expected = next((each for each in everything if each.timestamp_ms >= wanted), None)
        for snapshot in (published(log), broker_log):
            assert first_in_segments(snapshot, snapshot.segments(), wanted, start=start, end=end) == expected
        assert first_since(broker_log.scan, wanted, start=start, end=end) == expected
    log.close()
