import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.log.batches import plain
from tests.log.logs import (
    NOW_MS,
    TransactionalProducer,
    end_marker,
    follow,
    lead,
    open_log,
    read_all,
    records,
)
from tests.log.segmented_logs import materialise_indexes
from tierd.errors import CorruptRecordError, LogDirOfflineError, LogError
from tierd.log.files.checkpoints import LEADER_EPOCH_CHECKPOINT
from tierd.log.files.partition_scan import file_name
from tierd.log.log_errors import CheckpointError
from tierd.log.partition.unified_log import UnifiedLog
from tierd.log.records.batch_builder import Producer
from tierd.log.records.log_config import MAX_INT, LogConfig
from tierd.log.segments.offset_lookup import LookupFacts, offset_by_timestamp
from tierd.model import IsolationLevel

BATCH_BYTES = len(records())
SMALL = LogConfig(segment_bytes=5 * BATCH_BYTES, segment_index_bytes=1000, index_interval_bytes=1)
INDEXES = (".index", ".timeindex", ".txnindex")


def fill(log: UnifiedLog, count: int, *, producer_id: int | None = None) -> None:
    """Append single records, one millisecond apart."""
    for number in range(count):
        at = log.log_end_offset
        producer = Producer(producer_id, 0, number) if producer_id is not None else Producer()
        lead(log, records(timestamp_ms=NOW_MS + at, producer=producer))


def crash(log: UnifiedLog) -> Path:
    """End the process without flushing or trimming; return the directory."""
    directory = log.directory
    log.close_handles()
    return directory


def closed(log: UnifiedLog) -> Path:
    log.close()
    return log.directory


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.name.split(".")[0]) for path in directory.glob("*.snapshot"))


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def recovered_bases(events: Iterable[Any]) -> list[int]:
    return [int(Path(e["file"]).name.split(".")[0]) for e in events if e["event"] == "segment_recovered"]


def scanned(events: Iterable[Any]) -> int:
    return sum(e["scanned"] for e in events if e["event"] == "producer_state_rebuilt")


def files_of(directory: Path, *suffixes: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.name.endswith(suffixes)}


def remove(directory: Path, *suffixes: str, base_offset: int | None = None) -> None:
    for path in list(directory.iterdir()):
        if path.name.endswith(suffixes) and (base_offset is None or path.name.startswith(f"{base_offset:020d}.")):
            path.unlink()


def offset_at(log: UnifiedLog, timestamp_ms: int) -> int | None:
    facts = LookupFacts(
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_log_start_offset,
        log_end_offset=log.log_end_offset,
        lineage=log.leader_epochs,
    )
    found = offset_by_timestamp(log._state.segments.reader, timestamp_ms, facts)
    return None if found is None else found.offset


def delete_snapshots_before(log: UnifiedLog, offset: int) -> None:
    for snapshot in log.producers.snapshots.offsets:
        if snapshot < offset:
            log.producers.snapshots.delete(snapshot)


@pytest.mark.spec("log-format LOAD-02")
def test_segments_are_recovered_from_the_one_with_the_recovery_point(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 50)
    starts, end = bases(log), log.log_end_offset
    assert len(starts) >= 8
    delete_snapshots_before(log, starts[-2])
    directory = closed(log)
    with capture_logs() as events:
        log = open_log(tmp_path, config=SMALL, clean=False, recovery_point=starts[-4] + 1)
    assert recovered_bases(events) == starts[-4:]
    assert scanned(events) == len(starts) - 4  # everything before the first of them, once
    assert snapshots(directory) == [*starts[-4:], end]
    assert log.log_end_offset == end
    delete_snapshots_before(log, starts[-4])
    log.close()
    with capture_logs() as events:
        open_log(tmp_path, config=SMALL, clean=False, recovery_point=starts[-4] + 1)
    assert recovered_bases(events) == starts[-4:]
    assert scanned(events) == 0
    assert snapshots(directory) == [*starts[-4:], end]


@pytest.mark.spec("log-format LOAD-04")
@pytest.mark.parametrize(
    ("clean", "recovery_point", "expected", "is_scanned"),
    [(True, 23, [15, 20, 23], False), (False, 23, [15, 20, 23], True), (False, 0, [5, 10, 15, 20, 23], False)],
)
def test_load_without_snapshots_scans_for_producers_only_after_an_unclean_stop(
    tmp_path: Path, clean: bool, recovery_point: int, expected: list[int], is_scanned: bool
) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 23)
    assert bases(log) == [0, 5, 10, 15, 20]
    directory = closed(log)
    remove(directory, ".snapshot")
    with capture_logs() as events:
        log = open_log(tmp_path, config=SMALL, clean=clean, recovery_point=recovery_point)
    assert snapshots(directory) == expected
    assert bool(scanned(events)) == is_scanned


@pytest.mark.spec("log-format LOAD-04")
@pytest.mark.parametrize("clean", [True, False])
def test_load_after_a_clean_stop_without_snapshots_has_no_producers(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 23, producer_id=7)
    remove(closed(log), ".snapshot")
    log = open_log(tmp_path, config=SMALL, clean=clean, recovery_point=23)
    assert list(log.producers.producers) == ([] if clean else [7])


@pytest.mark.spec("log-format LOAD-05")
def test_recovery_accepts_a_marker_of_an_older_coordinator(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for offset, coordinator_epoch in enumerate((5, 3)):
        follow(
            log,
            end_marker(
                1,
                commit=True,
                base_offset=offset,
                producer_epoch=offset,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=NOW_MS + offset,
            ),
        )
    crash(log)
    log = open_log(tmp_path, clean=False)
    producer = log.producers.producers[1]
    assert (producer.coordinator_epoch, producer.producer_epoch, producer.last_timestamp_ms) == (3, 1, NOW_MS + 1)


@pytest.mark.spec("log-format LOAD-06")
def test_producer_below_the_log_start_is_kept_while_its_segment_exists(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for producer_id in (1, 2):
        lead(log, records(producer=Producer(producer_id, 0, 0)))
    log.update_high_watermark(2)
    log.increment_log_start_offset(1, reason="client delete records request")
    crash(log)
    log = open_log(tmp_path, clean=False, log_start_offset=1)
    assert log.log_start_offset == 1
    assert sorted(log.producers.producers) == [1, 2]


@pytest.mark.spec("log-format LOAD-06")
def test_producer_of_a_deleted_segment_is_dropped_by_the_next_load(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    lead(log, records(producer=Producer(1, 0, 0)))
    log.roll(now_ms=NOW_MS)
    lead(log, records(producer=Producer(2, 0, 0)))
    log.update_high_watermark(2)
    log.increment_log_start_offset(1, reason="client delete records request")
    assert log.delete_old_segments(NOW_MS) == 1
    assert sorted(log.producers.producers) == [1, 2]
    crash(log)
    log = open_log(tmp_path, clean=False, log_start_offset=1)
    assert sorted(log.producers.producers) == [2]


@pytest.mark.spec("log-format LOAD-07")
def test_load_deletes_stray_snapshots_except_that_of_a_clean_stop(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(2):
        fill(log, 1)
        log.roll(now_ms=NOW_MS)
    fill(log, 2)
    directory = closed(log)
    assert snapshots(directory) == [1, 2, 4]
    (directory / file_name(3, ".snapshot")).write_bytes((directory / file_name(4, ".snapshot")).read_bytes())
    open_log(tmp_path)
    assert snapshots(directory) == [1, 2, 4]


@pytest.mark.spec("log-format LOAD-07")
def test_a_snapshot_above_the_log_end_is_removed(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / file_name(42, ".snapshot")).write_bytes(b"anything")
    open_log(tmp_path)
    assert snapshots(tmp_path / "orders-0") == []


@pytest.mark.spec("log-format LOAD-08")
def test_recovery_rebuilds_the_same_indexes_and_keeps_the_recovery_point(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=7 * BATCH_BYTES, segment_index_bytes=4096, index_interval_bytes=3)
    log = open_log(tmp_path, config=config)
    fill(log, 100)
    entries = [(s.offset_index.entries, s.time_index.last_entry) for s in log.segments]
    directory = closed(log)
    before = files_of(directory, ".log", *INDEXES)
    for recovery_point in (100, 10):
        log = open_log(tmp_path, config=config, clean=False, recovery_point=recovery_point)
        assert [(s.offset_index.entries, s.time_index.last_entry) for s in log.segments] == entries
        assert log.recovery_point == recovery_point
        log.flush()
        assert log.recovery_point == 100
        log.close()
        assert files_of(directory, ".log", *INDEXES) == before


@pytest.mark.spec("log-format LOAD-09")
@pytest.mark.parametrize("damage", ["missing", "two blanks"])
def test_missing_and_damaged_indexes_are_rebuilt(tmp_path: Path, damage: str) -> None:
    config = LogConfig(segment_bytes=20 * BATCH_BYTES, segment_index_bytes=1000, index_interval_bytes=1)
    log = open_log(tmp_path, config=config)
    fill(log, 200)
    directory = closed(log)
    assert len(bases(log)) >= 9
    before = files_of(directory, *INDEXES)
    for path in [*directory.glob("*.index"), *directory.glob("*.timeindex")]:
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(b"  ")
    log = open_log(tmp_path, config=config, clean=False)
    for offset in range(200):
        assert read_all(log, start=offset)[0].offset == offset
        assert offset_at(log, NOW_MS + offset) == offset
    log.close()
    assert files_of(directory, *INDEXES) == before


@pytest.mark.spec("log-format LOAD-10")
def test_load_removes_an_index_without_its_segment(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    for base_offset in (0, 5):
        for suffix in (".index", ".timeindex"):
            (directory / file_name(base_offset, suffix)).touch()
    with capture_logs() as events:
        log = open_log(tmp_path, config=SMALL)
    assert [e["event"] for e in events if e["log_level"] == "warning"] == ["orphaned_index_found"] * 4
    materialise_indexes(log.segments[0])
    assert {name: len(data) for name, data in files_of(directory, *INDEXES).items()} == {
        file_name(0, ".index"): 1000,
        file_name(0, ".timeindex"): 996,
    }
    fill(log, 10)


@pytest.mark.spec("log-format LOAD-11")
def test_reopened_log_is_truncated_to_an_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 23)
    log.close()
    log = open_log(tmp_path, config=SMALL)
    log.truncate_to(3, now_ms=NOW_MS)
    assert (log.segment_count, log.log_end_offset) == (1, 3)


@pytest.mark.spec("log-format LOAD-12")
def test_a_pending_deletion_is_finished_by_the_next_load(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 23)
    log.update_high_watermark(23)
    log.increment_log_start_offset(20, reason="client delete records request")
    assert log.delete_old_segments(NOW_MS) == 4
    directory = closed(log)
    assert len(files_of(directory, ".deleted")) >= 12
    log = open_log(tmp_path, config=SMALL, log_start_offset=20)
    assert not files_of(directory, ".deleted")
    assert log.segment_count == 1


@pytest.mark.spec("log-format LOAD-13")
@pytest.mark.parametrize("seed", range(50))
def test_load_cuts_garbage_behind_the_log_and_in_an_index(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    log = open_log(tmp_path, config=SMALL)
    fill(log, choice.randrange(30))
    before, end = read_all(log), log.log_end_offset
    directory = closed(log)
    for path in (*sorted(directory.glob("*.log"))[-1:], *sorted(directory.glob("*.index"))):
        with path.open("ab") as file:
            file.write(choice.randbytes(choice.randrange(1, 300)))
    log = open_log(tmp_path, config=SMALL, clean=False)
    assert (read_all(log), log.log_end_offset) == (before, end)
    fill(log, 7)
    assert len(read_all(log)) == end + 7


def write_segment(directory: Path, base_offset: int, *batches: bytes, suffix: str = "") -> None:
    (directory / file_name(base_offset, ".log" + suffix)).write_bytes(b"".join(batches))


FAR = MAX_INT + 10


@pytest.mark.spec("log-format LOAD-14")
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("has_index", [True, False])
def test_an_overflowed_segment_is_split_when_it_is_loaded(tmp_path: Path, clean: bool, has_index: bool) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    write_segment(directory, 0, plain(0, 5))
    write_segment(directory, 10, plain(10, 3), plain(FAR + 10, 2))
    write_segment(directory, 3 * MAX_INT, plain(3 * MAX_INT, 1))
    if has_index:
        for base_offset in (0, 10, 3 * MAX_INT):
            (directory / file_name(base_offset, ".index")).touch()
    log = open_log(tmp_path, config=SMALL, clean=clean)
    is_split = not (clean and has_index)  # otherwise the load does not read the segment
    assert bases(log) == ([0, 10, FAR + 10, 3 * MAX_INT] if is_split else [0, 10, 3 * MAX_INT])
    assert [record.offset for record in read_all(log)] == [*range(5), 10, 11, 12, FAR + 10, FAR + 11, 3 * MAX_INT]
    assert not any(segment.has_overflow for segment in log.segments) or not is_split
    log.close()
    log = open_log(tmp_path, config=SMALL, clean=False)
    assert bases(log) == [0, 10, FAR + 10, 3 * MAX_INT]


@pytest.mark.spec("log-format LOAD-16")
@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (["old", "a.cleaned", "b.cleaned"], "split again"),
        (["old", "a.cleaned", "b.swap"], "split again"),
        (["old", "a.swap", "b.swap"], "finished"),
        (["a.swap", "b.swap"], "finished"),
        (["a", "b.swap"], "finished"),
        (["a.swap", "b"], "finished"),
    ],
)
def test_a_split_that_was_interrupted_is_undone_or_finished(tmp_path: Path, present: list[str], expected: str) -> None:
    """An undone split leaves a segment that overflows; the load splits it again. Both ways keep the records."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    first, second = plain(10, 3), plain(FAR + 10, 2)
    write_segment(directory, 0, plain(0, 5))
    for what in present:
        name, _, suffix = what.partition(".")
        if name == "old":
            write_segment(directory, 10, first, second)
        else:
            base_offset, content = (10, first) if name == "a" else (FAR + 10, second)
            write_segment(directory, base_offset, content, suffix=f".{suffix}" if suffix else "")
    with capture_logs() as events:
        log = open_log(tmp_path, config=SMALL, clean=False)
    assert bases(log) == [0, 10, FAR + 10]
    assert [record.offset for record in read_all(log)] == [*range(5), 10, 11, 12, FAR + 10, FAR + 11]
    assert any(e["event"] == "segment_overflowed" for e in events) == (expected == "split again")
    assert not files_of(directory, ".cleaned", ".swap")


@pytest.mark.spec("log-format LOAD-17")
@pytest.mark.parametrize(
    ("suffixes", "is_old_there", "expected"),
    [
        ({0: ".cleaned"}, True, "original"),
        ({0: ".cleaned", 10: ".swap"}, True, "original"),
        ({0: ".swap", 10: ".swap"}, True, "cleaned"),
        ({0: ".swap", 10: ".swap"}, False, "cleaned"),
        ({0: "", 10: ".swap"}, False, "cleaned"),
        ({0: "", 10: ""}, False, "cleaned"),
    ],
)
def test_a_compaction_that_was_interrupted_is_undone_or_finished(
    tmp_path: Path, suffixes: dict[int, str], is_old_there: bool, expected: str
) -> None:
    """Segments 0, 5, 10, 15 were being replaced by 0 and 10 with every second record."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    write_segment(directory, 20, plain(20, 5))
    if is_old_there:
        for base_offset in (0, 5, 10, 15):
            write_segment(directory, base_offset, *(plain(base_offset + n) for n in range(5)))
            (directory / file_name(base_offset, ".snapshot")).write_bytes(b"of the old segment")
    for base_offset, suffix in suffixes.items():
        kept = [plain(base_offset + n) for n in range(1, 10, 2)]
        write_segment(directory, base_offset, *kept, suffix=suffix)
        if suffix == ".swap":
            (directory / file_name(base_offset, ".index.swap")).touch()
    log = open_log(tmp_path, config=SMALL, clean=False)
    offsets = [record.offset for record in read_all(log)]
    assert offsets == ([*range(20)] if expected == "original" else [*range(1, 20, 2)]) + [*range(20, 25)]
    assert not files_of(directory, ".cleaned", ".swap")


@pytest.mark.spec("log-format LOAD-17")
def test_load_renames_an_index_of_an_interrupted_swap(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 8)
    directory = closed(log)
    before = files_of(directory, ".log", *INDEXES)
    path = directory / file_name(0, ".timeindex")
    path.rename(path.with_name(path.name + ".swap"))
    (directory / file_name(0, ".log.deleted")).write_bytes(b"replaced")
    log = open_log(tmp_path, config=SMALL)
    log.close()
    assert files_of(directory, ".log", *INDEXES, ".swap", ".deleted") == before


@pytest.mark.spec("log-format LOAD-18")
def test_recovery_restores_lost_leader_epochs_from_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for offset, epoch in enumerate((1, 2, 2, 3)):
        follow(log, records(base_offset=offset, epoch=epoch))
    directory = crash(log)
    (directory / LEADER_EPOCH_CHECKPOINT).write_text("0\n2\n1 0\n2 1\n")
    log = open_log(tmp_path, clean=False)
    assert log.leader_epochs.entries == ((1, 0), (2, 1), (3, 3))
    assert (directory / LEADER_EPOCH_CHECKPOINT).read_text() == "0\n3\n1 0\n2 1\n3 3\n"


def transactional_log(folder: Path) -> UnifiedLog:
    config = LogConfig(segment_bytes=12 * BATCH_BYTES, segment_index_bytes=1000)
    log = open_log(folder, config=config)
    producers = [TransactionalProducer(log, producer_id) for producer_id in range(1, 5)]
    choice = random.Random(1)
    for _ in range(60):
        producer = choice.choice(producers)
        producer.write(choice.randrange(1, 4))
        if choice.random() < 0.4:
            producer.end(commit=choice.random() < 0.5)
    assert log.segment_count >= 5
    return log


@pytest.mark.spec("log-format LOAD-19")
@pytest.mark.parametrize("lost", ["all indexes", "of the last segment", "of the last segment, and snapshots"])
def test_lost_transaction_index_is_rebuilt_with_the_same_entries(tmp_path: Path, lost: str) -> None:
    log = transactional_log(tmp_path)
    config, last = log.config, bases(log)[-1]
    log.update_high_watermark(log.log_end_offset)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    unstable = log.first_unstable_offset
    directory = crash(log)
    before = files_of(directory, ".txnindex")
    assert len(before) >= 3
    remove(directory, *INDEXES, base_offset=None if lost == "all indexes" else last)
    if lost.endswith("snapshots"):
        remove(directory, ".snapshot")
    recovery_point = 0 if lost == "all indexes" else last
    log = open_log(tmp_path, config=config, clean=False, recovery_point=recovery_point)
    assert files_of(directory, ".txnindex") == before
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    assert log.first_unstable_offset == unstable


def damaged_below_the_log_start(folder: Path, segments: int) -> Path:
    """Write segments of one record with damage at offset 3, log start 4, and no clean stop."""
    config = LogConfig(segment_bytes=BATCH_BYTES, segment_index_bytes=1000)
    log = open_log(folder, config=config)
    fill(log, segments)
    assert bases(log) == list(range(segments))
    directory = crash(log)
    path = directory / file_name(3, ".log")
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    return directory


@pytest.mark.spec("log-format LOAD-20")
def test_log_that_ends_below_its_log_start_is_emptied_at_the_log_start(tmp_path: Path) -> None:
    directory = damaged_below_the_log_start(tmp_path, 5)
    log = open_log(tmp_path, config=LogConfig(segment_bytes=BATCH_BYTES), clean=False, log_start_offset=4)
    assert bases(log) == [4]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (4, 4, 0)
    assert not log.leader_epochs
    log.flush(including_active=True)
    assert {name.partition(".")[2] for name in files_of(directory, ".log", ".index", ".timeindex")} == {
        "log",
        "index",
        "timeindex",
    }


@pytest.mark.spec("log-format LOAD-21")
def test_new_segments_stay_when_old_ones_at_their_offsets_are_deleted(tmp_path: Path) -> None:
    directory = damaged_below_the_log_start(tmp_path, 10)
    config = LogConfig(segment_bytes=BATCH_BYTES, segment_index_bytes=1000)
    log = open_log(tmp_path, config=config, clean=False, log_start_offset=4)
    assert not files_of(directory, ".snapshot")
    fill(log, 6)
    assert bases(log) == list(range(4, 10))
    log.housekeep(NOW_MS + config.file_delete_delay_ms)
    assert not files_of(directory, ".deleted")
    assert [record.offset for record in read_all(log)] == list(range(4, 10))
    assert snapshots(directory) == list(range(5, 10))
    log.close()
    assert bases(open_log(tmp_path, config=config, log_start_offset=4)) == list(range(4, 10))


@pytest.mark.spec("log-format LOAD-22")
def test_unflushed_segment_without_indexes_is_recovered_without_an_error_line(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 5)
    log.flush()
    log.roll(now_ms=NOW_MS)
    directory = crash(log)
    assert not (directory / file_name(5, ".index")).exists()
    with capture_logs() as events:
        log = open_log(tmp_path, config=SMALL, clean=False, recovery_point=5)
    assert not [e for e in events if e["log_level"] in ("warning", "error")]
    assert 5 in recovered_bases(events)
    assert log.segments[-1].time_index.entries == 0


@pytest.mark.spec("log-format LOAD-22")
def test_a_flushed_empty_segment_needs_no_recovery(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 5)
    log.roll(now_ms=NOW_MS)
    log.flush(including_active=True)
    log.close()
    with capture_logs() as events:
        open_log(tmp_path, config=SMALL)
    assert recovered_bases(events) == []


def test_missing_index_of_a_flushed_segment_is_logged_as_an_error(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 12)
    directory = closed(log)
    before = files_of(directory, *INDEXES)
    (directory / file_name(5, ".index")).unlink()
    with capture_logs() as events:
        log = open_log(tmp_path, config=SMALL)
    assert [e["event"] for e in events if e["log_level"] == "error"] == ["offset_index_missing"]
    assert recovered_bases(events) == [5]
    log.close()
    assert files_of(directory, *INDEXES) == before


def test_missing_time_index_beside_an_offset_index_is_created_empty(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 12)
    directory = closed(log)
    (directory / file_name(5, ".timeindex")).unlink()
    log = open_log(tmp_path, config=SMALL)
    log.close()
    assert (directory / file_name(5, ".timeindex")).read_bytes() == b""


def test_impossible_transaction_index_is_rebuilt_after_a_clean_stop(tmp_path: Path) -> None:
    log = transactional_log(tmp_path)
    config = log.config
    directory = closed(log)
    before = files_of(directory, ".txnindex")
    path = directory / sorted(before)[1]
    path.write_bytes(bytes(34))
    with capture_logs() as events:
        open_log(tmp_path, config=config)
    assert "corrupted_index_found" in [e["event"] for e in events]
    assert files_of(directory, ".txnindex") == before


@pytest.mark.spec("log-format LOAD-23")
@pytest.mark.parametrize(("tiered", "expected"), [(False, 5), (True, 0)])
def test_log_start_is_raised_to_the_first_segment_unless_the_log_is_tiered(
    tmp_path: Path, tiered: bool, expected: int
) -> None:
    config = LogConfig(remote_storage_enable=tiered)
    log = open_log(tmp_path, config=config, log_start_offset=5)
    lead(log, records(3))
    log.close()
    log = open_log(tmp_path, config=config, log_start_offset=0)
    assert (log.log_start_offset, log.local_log_start_offset) == (expected, 5)


@pytest.mark.spec("log-format LOAD-24")
def test_a_log_without_files_begins_at_its_checkpointed_start(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert lead(log, records()).last_offset == 500


@pytest.mark.spec("log-format LOAD-25")
def test_aborted_transaction_is_decided_after_recovery(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    producer = TransactionalProducer(log, 1)
    producer.write(10)
    producer.end(commit=False)
    crash(log)
    log = open_log(tmp_path, clean=False)
    log.update_high_watermark(11)
    assert (log.first_unstable_offset, log.last_stable_offset) == (None, 11)
    found = log.read(0, max_bytes=1 << 20, isolation=IsolationLevel.READ_COMMITTED)
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in found.aborted or ()] == [(1, 0, 10)]


@pytest.mark.spec("log-format LOAD-26")
def test_truncation_of_a_log_without_producers_scans_no_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 10)
    with capture_logs() as events:
        log.truncate_to(5, now_ms=NOW_MS)
    assert scanned(events) == 0
    assert log.producers.map_end_offset == 5
    assert log.producers.latest_snapshot_offset == 5


@pytest.mark.spec("log-format DIR-32")
def test_a_directory_to_be_deleted_is_opened_without_recovery(tmp_path: Path) -> None:
    name = f"orders-0.{'a' * 32}-delete"
    log = open_log(tmp_path, name=name, clean=False, recovery_point=7)
    assert (log.segment_count, log.log_end_offset, log.recovery_point) == (1, 0, 0)
    log.delete()
    assert not (tmp_path / name).exists()


def test_directory_to_be_deleted_keeps_its_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 12)
    directory = crash(log)
    renamed = directory.rename(tmp_path / f"orders-0.{'a' * 32}-delete")
    with capture_logs() as events:
        log = open_log(tmp_path, name=renamed.name, config=SMALL, clean=False)
    assert recovered_bases(events) == []
    assert (log.segment_count, log.log_end_offset) == (3, 0)


def test_recovery_cuts_a_log_at_a_batch_whose_offset_descends(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    directory = crash(log)
    with (directory / file_name(0, ".log")).open("ab") as file:
        file.write(records(base_offset=1))
    log = open_log(tmp_path, clean=False)
    assert log.log_end_offset >= 3
    assert [record.offset for record in read_all(log)][:3] == [0, 1, 2]
    assert all(before < after for before, after in pairwise(record.offset for record in read_all(log)))


def test_an_unreadable_epoch_file_takes_the_log_dir_offline(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / LEADER_EPOCH_CHECKPOINT).write_text("0\n1\none 0\n")
    with pytest.raises(LogDirOfflineError) as caught:
        open_log(tmp_path)
    assert isinstance(caught.value.__cause__, CheckpointError)


def test_damaged_swap_file_is_an_error_and_no_file_changes(tmp_path: Path) -> None:
    directory = tmp_path / "orders-0"
    directory.mkdir()
    write_segment(directory, 0, plain(0, 5))
    write_segment(directory, 0, b"\x01" * 100, suffix=".swap")
    before = files_of(directory, "")
    with pytest.raises(CorruptRecordError):
        open_log(tmp_path, clean=False)
    assert files_of(directory, "") == before


def test_bytes_behind_the_last_batch_are_cut_after_a_clean_stop(tmp_path: Path) -> None:
    """A broker would append behind these bytes, and its new records could not be read."""
    log = open_log(tmp_path, config=SMALL)
    fill(log, 7)
    directory = closed(log)
    with (directory / file_name(5, ".log")).open("ab") as file:
        file.write(records(base_offset=7)[:-1])
    log = open_log(tmp_path, config=SMALL)
    fill(log, 1)
    assert [record.offset for record in read_all(log)] == list(range(8))


def test_log_end_is_found_with_a_wrong_offset_index(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 9)
    directory = closed(log)
    (directory / file_name(5, ".index")).write_bytes(b"\x7f" * 16)
    log = open_log(tmp_path, config=SMALL)
    assert log.log_end_offset == 9


def test_segment_with_offsets_below_its_base_offset_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, config=SMALL)
    fill(log, 12)
    directory = closed(log)
    (directory / file_name(10, ".log")).write_bytes((directory / file_name(0, ".log")).read_bytes())
    with pytest.raises(CorruptRecordError, match="below its name"):
        open_log(tmp_path, config=SMALL)
    log = open_log(tmp_path, config=SMALL, clean=False, recovery_point=10)
    assert log.log_end_offset == 10


def damage(choice: random.Random, directory: Path) -> None:
    path = choice.choice(sorted(directory.iterdir()))
    data = bytearray(path.read_bytes())
    match choice.randrange(6):
        case 0 if data:
            data[choice.randrange(len(data))] ^= 1 << choice.randrange(8)
        case 1:
            del data[choice.randrange(len(data) + 1) :]
        case 2:
            data += choice.randbytes(choice.randrange(200))
        case 3:
            data += bytes(choice.randrange(3000))
        case 4:
            path.rename(path.with_name(path.name + choice.choice([".swap", ".cleaned", ".deleted"])))
            return
        case _:
            path.unlink()
            return
    path.write_bytes(data)


@pytest.mark.parametrize("seed", range(100))
def test_damaged_directory_is_refused_or_loads_the_same_the_second_time(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    log = transactional_log(tmp_path)
    config = log.config
    directory = closed(log) if choice.random() < 0.5 else crash(log)
    for _ in range(choice.randrange(1, 4)):
        damage(choice, directory)
    clean = choice.random() < 0.3
    try:
        log = open_log(tmp_path, config=config, clean=clean, recovery_point=choice.choice([0, 50, 1000]))
        appended = lead(log, records())
        assert read_all(log, start=appended.last_offset)[-1].offset == appended.last_offset
        log.close()
    except LogError:
        return
    again = open_log(tmp_path, config=config, log_start_offset=log.log_start_offset)
    assert (again.log_start_offset, again.log_end_offset) == (log.log_start_offset, log.log_end_offset)
    assert again.producers.producers.keys() == log.producers.producers.keys()


def test_time_index_that_names_offsets_above_the_log_end_is_rebuilt(tmp_path: Path) -> None:
    """A segment with such an index could never be finished."""
    log = open_log(tmp_path, config=SMALL)
    fill(log, 9)
    directory = closed(log)
    path = directory / file_name(5, ".timeindex")
    before = path.read_bytes()
    path.write_bytes(b"\x7f" * 12)
    log = open_log(tmp_path, config=SMALL)
    log.close()
    assert path.read_bytes() == before


def test_directory_with_the_name_of_a_segment_is_skipped(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(records(), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    (log.directory / file_name(100, ".log")).mkdir()
    for clean in (True, False):
        log = open_log(tmp_path, clean=clean)
        assert log.log_end_offset == 1
        log.close()


@pytest.mark.parametrize("clean", [True, False])
def test_transaction_index_above_the_size_limit_is_rebuilt(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path)
    log.append_as_leader(records(), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    path = log.directory / file_name(0, ".txnindex")
    with path.open("wb") as file:
        file.truncate(8 << 30)
    log = open_log(tmp_path, clean=clean)
    assert log.log_end_offset == 1
    assert not path.stat().st_size
    log.close()
