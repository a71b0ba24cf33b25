from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.open_files import open_files
from tests.log import segmented_logs
from tests.log.batches import batch, legacy, marker, plain
from tests.log.segmented_logs import NOW_MS, headers_of, materialise_indexes
from tierd.errors import CorruptRecordError, OffsetOverflowError
from tierd.log.files.disk import OsDisk
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.log_errors import LogClosedError
from tierd.log.records.log_config import MAX_LONG, LogConfig
from tierd.log.records.record_batch import iter_batches
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.offset_lookup import LookupFacts, offset_by_timestamp
from tierd.log.segments.segment_replacement import append_from
from tierd.model import Lineage, TimestampOffset

MAX_INT = 2**31 - 1
CONFIG = LogConfig(index_interval_bytes=10, segment_index_bytes=1000)
DISK = OsDisk()


def open_segment(
    folder: Path, base_offset: int = 40, *, config: LogConfig = CONFIG, create: bool = True, suffix: str = ""
) -> LogSegment:
    return LogSegment(DISK, folder, base_offset, config=config, now_ms=NOW_MS, suffix=suffix, create=create)


@pytest.fixture
def segment(tmp_path: Path) -> LogSegment:
    return open_segment(tmp_path)


def append(segment: LogSegment, *sets: bytes, largest_offset: int | None = None, write: bool = True) -> None:
    for data in sets:
        headers = headers_of(data)
        newest = max(headers, key=lambda header: header.max_timestamp_ms)
        segment.append(
            [data],
            headers,
            largest_offset=headers[-1].last_offset if largest_offset is None else largest_offset,
            max_timestamp_ms=newest.max_timestamp_ms,
            shallow_offset=newest.last_offset,
        )
    if write:
        segment.write_out()


def records(offset: int, count: int = 1) -> bytes:
    """Build one batch; the timestamp of a record is ten times its offset, as in Kafka's own tests of segments."""
    return batch(offset, [(10 * (offset + n), b"k", b"hello") for n in range(count)])


def offsets(segment: LogSegment) -> list[int]:
    with segment.path.open("rb") as file:
        data = file.read(segment.written_bytes)
    return [record.offset for found in iter_batches(data, name="x") for record in found.records()]


def rolls(segment: LogSegment, *, now_ms: int = NOW_MS, timestamp_ms: int = -1, offset: int = 100) -> bool:
    return segment.should_roll(size_bytes=1024, max_timestamp_ms=timestamp_ms, max_offset=offset, now_ms=now_ms)


def times(segment: LogSegment) -> list[tuple[int, int]]:
    entries = map(segment.time_index.entry_at, range(segment.time_index.entries))
    return [(entry.timestamp_ms, entry.offset) for entry in entries]


def positions(segment: LogSegment) -> list[tuple[int, int]]:
    return [segment.offset_index.entry_at(number) for number in range(segment.offset_index.entries)]


# Appending


@pytest.mark.spec("log-format SEG-01")
@pytest.mark.parametrize("offset", [39, 40 + MAX_INT + 1])
def test_append_of_an_offset_out_of_reach_of_the_base_is_refused(segment: LogSegment, offset: int) -> None:
    with pytest.raises(OffsetOverflowError, match=f"offset {offset} is not within"):
        append(segment, records(40), largest_offset=offset)
    assert (segment.size_bytes, segment.path.stat().st_size) == (0, 0)


@pytest.mark.spec("log-format SEG-01")
@pytest.mark.parametrize("offset", [40, 40 + MAX_INT])
def test_append_of_the_farthest_offset_within_reach_succeeds(segment: LogSegment, offset: int) -> None:
    append(segment, records(40), largest_offset=offset)
    assert segment.written_bytes == segment.size_bytes == len(records(40))


def test_appended_sets_are_written_in_one_piece(segment: LogSegment) -> None:
    append(segment, records(40), records(41), write=False)
    assert (segment.written_bytes, segment.size_bytes) == (0, 2 * len(records(40)))
    assert segment.path.stat().st_size == 0
    segment.write_out()
    assert offsets(segment) == [40, 41]
    append(segment, records(42))
    segment.append([], [], largest_offset=0, max_timestamp_ms=0, shallow_offset=0)
    assert offsets(segment) == [40, 41, 42]


def test_append_that_would_exceed_the_largest_file_size_is_refused(segment: LogSegment) -> None:
    with segment.path.open("wb") as file:
        file.truncate(MAX_INT - 10)
    full = open_segment(segment.path.parent, create=False)
    with pytest.raises(ValueError, match="larger than a segment may be"):
        append(full, records(40))
    with segment.path.open("wb") as file:
        file.truncate(MAX_INT + 1)
    with pytest.raises(CorruptRecordError, match="more than a segment may have"):
        open_segment(segment.path.parent, create=False)


def test_first_set_is_not_indexed_and_later_sets_by_last_offset_and_start_position(segment: LogSegment) -> None:
    size = len(records(40) + records(41))
    for offset in range(40, 48, 2):
        append(segment, records(offset) + records(offset + 1))
    assert positions(segment) == [(43, size), (45, 2 * size), (47, 3 * size)]
    assert times(segment) == [(430, 43), (450, 45), (470, 47)]


def test_set_is_indexed_when_the_index_interval_is_exceeded(tmp_path: Path) -> None:
    size = len(records(40))
    exact = open_segment(tmp_path, config=LogConfig(index_interval_bytes=2 * size))
    append(exact, *map(records, range(40, 50)))
    assert positions(exact) == [(43, 3 * size), (46, 6 * size), (49, 9 * size)]


def test_the_earliest_batch_with_the_largest_timestamp_is_indexed(segment: LogSegment) -> None:
    append(segment, plain(40, timestamp_ms=5), plain(41, timestamp_ms=9), plain(42, timestamp_ms=9), plain(43))
    append(segment, plain(44, timestamp_ms=7))
    assert times(segment) == [(9, 41), (1000, 43)]
    assert segment.max_timestamp_so_far == segment.known_max_timestamp == TimestampOffset(1000, 43)
    assert segment.largest_timestamp_ms == 1000


def test_every_batch_of_a_set_is_indexed_with_index_each_batch(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=10, segment_index_bytes=1000, index_each_batch=True)
    later = open_segment(tmp_path, config=config)
    size = len(records(40))
    append(later, b"".join(map(records, range(40, 44))), b"".join(map(records, range(44, 46))))
    assert positions(later) == [(40 + n, n * size) for n in range(1, 6)]
    assert times(later) == [(10 * offset, offset) for offset in range(41, 46)]
    assert later.first_timestamp_ms() == 400


def test_one_set_may_fill_the_index_with_index_each_batch(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=48, index_each_batch=True)
    later = open_segment(tmp_path, config=config)
    append(later, b"".join(map(records, range(40, 60))))
    assert later.is_index_full
    assert (later.offset_index.entries, later.time_index.entries) == (3, 3)
    assert rolls(later)


@pytest.mark.spec("log-format SEG-19")
def test_copy_of_a_file_ends_at_the_first_offset_that_overflows(tmp_path: Path) -> None:
    near = [plain(0, size=1024), plain(500, size=(1 << 20) + 1), plain(MAX_INT - 5, 6, size=1024)]
    far = [plain(MAX_INT + 1, size=1024), plain(MAX_INT + 2, 3)]
    path = tmp_path / "source"
    path.write_bytes(b"".join(near + far))
    source = DISK.open(path, write=False)
    first, second = open_segment(tmp_path, 0), open_segment(tmp_path, MAX_INT)
    copied = append_from(first, source, 0)
    assert copied == sum(map(len, near))
    assert append_from(first, source, copied) == 0
    assert append_from(second, source, copied) == sum(map(len, far))
    source.close()
    assert first.path.read_bytes() + second.path.read_bytes() == path.read_bytes()
    assert (first.read_next_offset(), second.read_next_offset()) == (MAX_INT + 1, MAX_INT + 5)
    assert not first.has_overflow
    assert first.max_timestamp_so_far == TimestampOffset(1005, MAX_INT)


def test_segment_with_an_offset_out_of_reach_reports_overflow(tmp_path: Path) -> None:
    whole = open_segment(tmp_path, 0)
    append(whole, plain(0))
    whole.close()
    whole.path.write_bytes(plain(0) + plain(MAX_INT + 1))
    assert open_segment(tmp_path, 0, create=False).has_overflow


# Content


@pytest.mark.spec("log-format SEG-11")
@pytest.mark.parametrize(
    ("timestamp_ms", "offset"), [(420, 42), (421, 43), (430, 43), (431, 44), (491, None), (401, 41), (399, 40)]
)
def test_lookup_finds_the_first_record_at_or_after_a_timestamp(
    tmp_path: Path, timestamp_ms: int, offset: int | None
) -> None:
    config = LogConfig(index_interval_bytes=10, segment_index_bytes=1000)
    log = segmented_logs.new_log(tmp_path, config, start=40)
    segmented_logs.append(log, *map(records, range(40, 50)))
    facts = LookupFacts(log_start_offset=40, local_log_start_offset=40, log_end_offset=50, lineage=Lineage(()))
    found = offset_by_timestamp(log.reader, timestamp_ms, facts)
    assert (found and found.offset) == offset


@pytest.mark.spec("log-format SEG-12")
def test_next_offset_follows_the_last_batch(segment: LogSegment) -> None:
    assert segment.read_next_offset() == 40
    append(segment, plain(50, 3))
    assert segment.read_next_offset() == 53
    segment.close()
    assert open_segment(segment.path.parent, create=False).read_next_offset() == 53


@pytest.mark.spec("log-format SEG-20")
def test_an_empty_segment_has_no_first_timestamp(segment: LogSegment) -> None:
    assert segment.first_timestamp_ms() == MAX_LONG
    append(segment, plain(40, timestamp_ms=1000))
    assert segment.first_timestamp_ms() == 1000
    segment.close()
    assert open_segment(segment.path.parent, create=False).first_timestamp_ms() == 1000


def test_segment_whose_first_batch_has_no_timestamp_has_no_first_timestamp(segment: LogSegment) -> None:
    append(segment, legacy(0, 40, b"k", b"v"))
    assert segment.first_timestamp_ms() == MAX_LONG
    assert segment.time_waited_ms(NOW_MS + 700, 5) == 700
    assert segment.time_index.entries == 0


def test_largest_timestamp_of_a_segment_without_timestamps_is_its_mtime(segment: LogSegment) -> None:
    append(segment, legacy(0, 40, b"k", b"v"))
    DISK.set_mtime_ms(segment.path, 123_456)
    assert segment.largest_timestamp_ms == 123_456


def test_largest_timestamp_is_read_again_after_a_clean_stop(segment: LogSegment) -> None:
    append(segment, plain(40, timestamp_ms=9000), plain(41, timestamp_ms=50))
    segment.close()
    reopened = open_segment(segment.path.parent, create=False)
    assert reopened.known_max_timestamp is None
    assert reopened.max_timestamp_so_far == TimestampOffset(9000, 40)


def test_segment_is_rolled_by_the_present_settings(segment: LogSegment) -> None:
    append(segment, records(40))
    assert not rolls(segment)
    for room, expected in ((1024, False), (1023, True)):
        config = LogConfig(segment_bytes=segment.size_bytes + room)
        assert expected is segment.should_roll(
            size_bytes=1024, max_timestamp_ms=400, max_offset=41, now_ms=NOW_MS, config=config
        )


# Truncation


@pytest.mark.spec("log-format SEG-07")
def test_truncation_keeps_the_batches_below_the_offset(segment: LogSegment) -> None:
    offset = 40
    for _ in range(30):
        append(segment, records(offset), records(offset + 1))
        assert segment.truncate_to(offset + 1, now_ms=NOW_MS) == len(records(offset + 1))
        assert offsets(segment)[-1] == offset
        offset += 1
    assert offsets(segment) == list(range(40, 70))


@pytest.mark.spec("log-format SEG-08")
def test_truncation_gives_the_indexes_of_an_empty_segment_room(segment: LogSegment) -> None:
    materialise_indexes(segment)
    segment.close()
    reopened = open_segment(segment.path.parent, create=False, config=LogConfig(segment_ms=300_000))
    assert (reopened.offset_index.path.stat().st_size, reopened.time_index.path.stat().st_size) == (0, 0)
    assert rolls(reopened)
    now_ms = NOW_MS + 500
    assert reopened.truncate_to(57, now_ms=now_ms) == 0
    assert reopened.time_waited_ms(now_ms, -1) == 0
    assert (reopened.offset_index.max_entries, reopened.time_index.max_entries) == (1310720, 873813)
    assert not reopened.is_index_full
    assert not rolls(reopened, now_ms=now_ms)
    now_ms += 300_001
    assert reopened.time_waited_ms(now_ms, -1) == 300_001
    assert not rolls(reopened, now_ms=now_ms)
    assert rolls(reopened, now_ms=now_ms, offset=MAX_INT + 200)


@pytest.mark.spec("log-format SEG-09")
def test_truncation_determines_largest_timestamp_and_next_offset_anew(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=2 * len(records(0)) - 1)
    segment = open_segment(tmp_path, config=config)
    append(segment, *map(records, range(40, 70)))
    assert segment.read_next_offset() == 70
    assert segment.time_index.entries == 14
    segment.truncate_to(41, now_ms=NOW_MS)
    assert segment.time_index.entries == 0
    assert segment.largest_timestamp_ms == 400
    assert segment.read_next_offset() == 41


@pytest.mark.spec("log-format SEG-10")
def test_truncation_of_all_records_resets_the_age_of_the_segment(segment: LogSegment) -> None:
    append(segment, records(40, 2))
    assert segment.time_waited_ms(NOW_MS, 900) == 900 - 410
    now_ms = NOW_MS + 500
    segment.truncate_to(0, now_ms=now_ms)
    assert (segment.size_bytes, segment.path.stat().st_size) == (0, 0)
    assert segment.time_waited_ms(now_ms, -1) == 0
    assert not segment.is_index_full
    append(segment, records(40, 2))
    assert offsets(segment) == [40, 41]


@pytest.mark.spec("log-format SEG-18")
def test_truncation_to_an_offset_in_a_gap_removes_the_batches_above(segment: LogSegment) -> None:
    append(segment, records(40), records(43))
    assert segment.truncate_to(41, now_ms=NOW_MS) == len(records(43))
    assert offsets(segment) == [40]


def test_truncation_within_a_batch_removes_the_whole_batch(segment: LogSegment) -> None:
    append(segment, records(40, 3), records(43, 5), records(48, 5))
    assert segment.truncate_to(45, now_ms=NOW_MS) == len(records(43, 5) + records(48, 5))
    assert offsets(segment) == [40, 41, 42]
    assert segment.truncate_to(99, now_ms=NOW_MS) == 0


def test_a_truncation_cuts_the_transaction_index(segment: LogSegment) -> None:
    append(segment, records(40), marker(41, 7, commit=False))
    segment.transaction_index.append(AbortedTransaction(7, 40, 41, 42))
    segment.truncate_to(41, now_ms=NOW_MS)
    assert segment.transaction_index.all() == ()


def test_truncation_with_a_wrong_offset_index_cuts_at_the_right_batch(segment: LogSegment) -> None:
    append(segment, *map(records, range(40, 60)))
    segment.close()
    path = segment.offset_index.path
    path.write_bytes(b"".join((n + 1).to_bytes(4, "big") + (7 * n + 1).to_bytes(4, "big") for n in range(19)))
    reopened = open_segment(segment.path.parent, create=False)
    reopened.truncate_to(50, now_ms=NOW_MS)
    assert offsets(reopened) == list(range(40, 50))


def test_truncation_that_meets_a_damaged_header_cuts_no_byte(segment: LogSegment) -> None:
    append(segment, records(40))
    segment.path.write_bytes(records(40) + bytes(100))
    reopened = open_segment(segment.path.parent, create=False)
    with pytest.raises(CorruptRecordError):
        reopened.truncate_to(50, now_ms=NOW_MS)
    assert segment.path.read_bytes() == records(40) + bytes(100)


def test_truncation_to_a_larger_size_is_refused(segment: LogSegment) -> None:
    append(segment, records(40))
    assert segment.log.truncate(segment.size_bytes) == 0
    with pytest.raises(ValueError, match="cannot be cut"):
        segment.log.truncate(segment.size_bytes + 1)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(0, 50)), min_size=1, max_size=15),
    st.integers(0, 60),
    st.integers(0, 300),
)
def test_truncated_segment_equals_one_with_fewer_appends(
    tmp_path_factory: pytest.TempPathFactory, sets: list[tuple[int, int, int]], cut: int, interval: int
) -> None:
    config = LogConfig(index_interval_bytes=interval, segment_index_bytes=400)
    whole, part = (open_segment(tmp_path_factory.mktemp("x"), 0, config=config) for _ in range(2))
    offset = 0
    for gap, count, timestamp_ms in sets:
        offset += gap
        data = batch(offset, [(timestamp_ms, b"k", b"v")] * count)
        offset += count
        append(whole, data)
        if offset <= cut:
            append(part, data)
    whole.truncate_to(cut, now_ms=NOW_MS)
    assert whole.path.read_bytes() == part.path.read_bytes()
    assert positions(whole) == positions(part)
    assert whole.max_timestamp_so_far.timestamp_ms == part.max_timestamp_so_far.timestamp_ms
    assert whole.read_next_offset() == part.read_next_offset()
    for segment in (whole, part):
        segment.close()


# Files


def names(folder: Path) -> dict[str, int]:
    return {path.name.removeprefix("0" * 18 + "40"): path.stat().st_size for path in folder.iterdir()}


@pytest.mark.spec("log-format IDX-26")
def test_index_files_are_created_when_they_are_materialised(tmp_path: Path) -> None:
    segment = open_segment(tmp_path, suffix=".cleaned")
    assert names(tmp_path) == {".log.cleaned": 0}
    segment.change_suffix(".cleaned", "")
    assert names(tmp_path) == {".log": 0}
    materialise_indexes(segment)
    assert names(tmp_path) == {".log": 0, ".index": 1000, ".timeindex": 996}
    with pytest.raises(ValueError, match="suffix"):
        segment.change_suffix(".cleaned", "")


@pytest.mark.spec("log-format IDX-26")
def test_queries_of_an_empty_segment_create_no_index(segment: LogSegment, tmp_path: Path) -> None:
    assert not rolls(segment)
    assert segment.max_timestamp_so_far == TimestampOffset(-1, 40)
    assert segment.read_next_offset() == 40
    segment.close()
    assert names(tmp_path) == {".log": 0}


def test_flush_creates_every_file_of_an_empty_segment(segment: LogSegment, tmp_path: Path) -> None:
    segment.flush()
    assert names(tmp_path) == {".log": 0, ".index": 1000, ".timeindex": 996}


def test_finished_segment_has_its_last_timestamp_indexed_and_trimmed_indexes(
    segment: LogSegment, tmp_path: Path
) -> None:
    append(segment, *map(records, range(40, 44)), plain(44, timestamp_ms=430))
    segment.finish()
    size = segment.size_bytes
    assert names(tmp_path) == {".log": size, ".index": 32, ".timeindex": 36}
    append(other := open_segment(tmp_path, 50), records(50))
    other.finish()
    assert times(other) == [(500, 50)]
    empty = open_segment(tmp_path, 60)
    empty.finish()
    assert (empty.offset_index.path.stat().st_size, empty.time_index.path.stat().st_size) == (0, 0)


def test_finished_segment_with_a_full_time_index_has_its_last_timestamp_indexed(tmp_path: Path) -> None:
    tiny = open_segment(tmp_path, config=LogConfig(segment_index_bytes=4))
    assert rolls(tiny)
    append(tiny, records(40))
    tiny.finish()
    assert times(tiny) == [(400, 40)]
    assert tiny.time_index.path.stat().st_size == 12


def test_finished_segment_closes_its_files_after_the_flush(segment: LogSegment, tmp_path: Path) -> None:
    append(segment, *map(records, range(40, 50)))
    segment.flush()
    assert open_files(tmp_path)
    segment.finish()
    segment.flush()
    assert not open_files(tmp_path)
    assert segment.offset_index.lookup(45).offset == 45
    segment.flush()
    assert not open_files(tmp_path)
    segment.truncate_to(45, now_ms=NOW_MS)
    append(segment, records(45))
    assert offsets(segment) == list(range(40, 46))
    segment.close()
    assert not open_files(tmp_path)


def test_close_of_a_flushed_segment_opens_no_file(segment: LogSegment, tmp_path: Path) -> None:
    append(segment, *map(records, range(40, 50)))
    segment.close()
    reopened = open_segment(tmp_path, create=False)
    before = names(tmp_path)
    assert reopened.largest_timestamp_ms == 490
    reopened.path.rename(tmp_path / "away")
    reopened.close()
    (tmp_path / "away").rename(reopened.path)
    assert names(tmp_path) == before


@pytest.mark.spec("log-format SEG-17")
def test_a_preallocated_segment_is_trimmed_when_it_is_closed(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=512 << 20, preallocate=True)
    segment = open_segment(tmp_path, config=config)
    append(segment, records(40, 2))
    assert (segment.path.stat().st_size, segment.size_bytes) == (512 << 20, len(records(40, 2)))
    assert segment.read_next_offset() == 42
    assert offsets(segment) == [40, 41]
    segment.close()
    assert segment.path.read_bytes() == records(40, 2)
    reopened = open_segment(tmp_path, config=config, create=False)
    assert reopened.size_bytes == len(records(40, 2))
    append(reopened, records(42))
    assert offsets(reopened) == [40, 41, 42]


def test_roll_and_truncation_trim_a_preallocated_segment(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1 << 20, preallocate=True)
    rolled, cut = (open_segment(tmp_path, base, config=config) for base in (40, 50))
    append(rolled, records(40))
    rolled.finish()
    assert rolled.path.read_bytes() == records(40)
    append(cut, records(50), records(51))
    cut.truncate_to(51, now_ms=NOW_MS)
    assert cut.path.read_bytes() == records(50)


@pytest.mark.spec("log-format SEG-21")
def test_deletion_of_missing_segment_files_is_no_error(segment: LogSegment, tmp_path: Path) -> None:
    append(segment, *map(records, range(40, 50)))
    segment.path.unlink()
    segment.delete_files()
    assert names(tmp_path) == {}
    open_segment(tmp_path, 50).delete_files()


def test_renamed_segment_is_read_and_appended_to(segment: LogSegment, tmp_path: Path) -> None:
    append(segment, records(40), records(41))
    segment.transaction_index.append(AbortedTransaction(7, 40, 41, 42))
    segment.change_suffix("", ".deleted")
    assert set(names(tmp_path)) == {".log.deleted", ".index.deleted", ".timeindex.deleted", ".txnindex.deleted"}
    assert segment.read_next_offset() == 42
    append(segment, records(42))
    segment.delete_files()
    assert names(tmp_path) == {}


def test_segment_follows_a_renamed_directory(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    segment = open_segment(tmp_path / "a")
    append(segment, records(40))
    (tmp_path / "a").rename(tmp_path / "b")
    segment.moved(tmp_path / "b")
    append(segment, records(41), records(42))
    assert offsets(segment) == [40, 41, 42]
    segment.finish()
    segment.flush()
    assert set(names(tmp_path / "b")) == {".log", ".index", ".timeindex"}


def test_calls_to_a_closed_segment_are_refused(segment: LogSegment) -> None:
    append(segment, records(40))
    segment.close()
    segment.close()
    for call in (segment.flush, segment.finish, lambda: append(segment, records(41))):
        with pytest.raises(LogClosedError):
            call()


def test_open_of_a_missing_segment_is_refused_and_creates_no_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_segment(tmp_path, create=False)
    assert names(tmp_path) == {}


# In a log


@pytest.mark.spec("log-format IDX-27", "log-format IDX-28")
def test_rolled_segment_of_10_batches_has_9_entries_and_regains_room_after_a_truncation(tmp_path: Path) -> None:
    size = len(plain(0))
    config = LogConfig(index_interval_bytes=size - 1, segment_bytes=10 * size, segment_index_bytes=1000)
    log = segmented_logs.new_log(tmp_path, config)
    for offset in range(10):
        segmented_logs.append(log, plain(offset, timestamp_ms=1000 + offset))
    log.roll(now_ms=NOW_MS)
    first = log.segments.values[0]
    for index in (first.offset_index, first.time_index):
        assert (index.entries, index.max_entries) == (9, 9)
    log.truncate_to(0, now_ms=NOW_MS)
    active = log.active
    assert (active.base_offset, active.size_bytes) == (0, 0)
    assert (active.offset_index.max_entries, active.time_index.max_entries) == (1000 // 8, 1000 // 12)
    for offset in range(10):
        assert not active.should_roll(size_bytes=size, max_timestamp_ms=1000, max_offset=offset, now_ms=NOW_MS)
        segmented_logs.append(log, plain(offset))


@pytest.mark.spec("log-format IDX-29")
def test_all_but_the_first_of_a_hundred_batches_are_indexed(tmp_path: Path) -> None:
    log = segmented_logs.new_log(tmp_path, LogConfig(index_interval_bytes=1))
    segmented_logs.append(log, *(plain(offset, timestamp_ms=5000 + offset) for offset in range(100)))
    active = log.active
    assert active.time_index.entries == 99
    assert active.time_index.last_entry == TimestampOffset(5099, 99)
