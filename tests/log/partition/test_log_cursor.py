from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.open_files import open_files
from tests.log.batches import legacy, plain
from tests.log.segmented_logs import NOW_MS, append, new_log, offsets_of
from tierd.errors import CorruptRecordError, OffsetOutOfRangeError
from tierd.log.files import disk
from tierd.log.partition.log_cursor import LogCursor, SoundBatches, check_batches
from tierd.log.records.record_batch import iter_batches
from tierd.log.segments.segmented_log import SegmentedLog

CursorAt = Callable[[SegmentedLog, int], LogCursor]


def filled(folder: Path, end: int) -> SegmentedLog:
    log = new_log(folder)
    for offset in range(0, end, 2):
        if offset and offset % 20 == 0:
            log.roll(now_ms=NOW_MS)
        append(log, plain(offset, 2, size=offset % 7))
    return log


@pytest.fixture
def cursor_at() -> Iterator[CursorAt]:
    with ExitStack() as cursors:
        yield lambda log, offset: cursors.enter_context(LogCursor(log.reader, offset))


def read_all(cursor: LogCursor, log: SegmentedLog, max_bytes: int = 300) -> list[int]:
    found = list[int]()
    while data := cursor.read(bound=log.log_end, max_bytes=max_bytes):
        found += offsets_of(data)
    return found


@pytest.mark.spec("log-format READ-02")
@pytest.mark.parametrize("max_bytes", [0, 1, 300, 100_000])
def test_cursor_returns_every_record_once(tmp_path: Path, cursor_at: CursorAt, max_bytes: int) -> None:
    log = filled(tmp_path, 100)
    cursor = cursor_at(log, 0)
    assert read_all(cursor, log, max_bytes) == list(range(100))
    append(log, plain(100, 3))
    assert read_all(cursor, log) == [100, 101, 102]
    assert cursor.next_offset == 103


def test_cursor_begins_with_the_batch_that_holds_the_offset(tmp_path: Path, cursor_at: CursorAt) -> None:
    log = filled(tmp_path, 50)
    assert read_all(cursor_at(log, 33), log) == list(range(32, 50))


def test_cursor_goes_on_after_a_rename_and_a_truncation(tmp_path: Path, cursor_at: CursorAt) -> None:
    log = filled(tmp_path, 100)
    cursor = cursor_at(log, 0)
    found = offsets_of(cursor.read(bound=log.log_end, max_bytes=1))
    log.rename_directory("orders-1")
    found += offsets_of(cursor.read(bound=log.log_end, max_bytes=1))
    log.truncate_to(5, now_ms=NOW_MS)
    append(log, plain(5, size=900))
    assert found + read_all(cursor, log) == [0, 1, 2, 3, 5]
    log.truncate_to(1, now_ms=NOW_MS)
    with pytest.raises(OffsetOutOfRangeError):
        cursor.read(bound=log.log_end, max_bytes=1)


def test_cursor_keeps_at_most_one_file_open_and_closes_it(tmp_path: Path) -> None:
    log = filled(tmp_path, 100)

    before = len(open_files(tmp_path))
    with LogCursor(log.reader, 0) as cursor:
        for _ in range(20):
            cursor.read(bound=log.log_end, max_bytes=1)
            assert len(open_files(tmp_path)) == before + 1
    assert len(open_files(tmp_path)) == before


@given(st.lists(st.sampled_from([0, 40, 700, 3000]), min_size=1, max_size=12), st.sampled_from([100, 800, 2000]))
def test_answers_keep_to_the_limit_unless_the_first_batch_is_larger(sizes: list[int], max_bytes: int) -> None:
    with TemporaryDirectory() as folder:
        log = new_log(Path(folder))
        for offset, size in enumerate(sizes):
            append(log, plain(offset, size=size))
        whole, found = log.active.path.read_bytes(), b""
        with LogCursor(log.reader, 0) as cursor:
            while data := bytes(cursor.read(bound=log.log_end, max_bytes=max_bytes)):
                assert len(data) <= max_bytes or len(offsets_of(data)) == 1
                found += data
        assert found == whole


def test_batches_above_the_limit_are_read_once_when_the_one_before_was_as_large(
    tmp_path: Path, cursor_at: CursorAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = new_log(tmp_path)
    for offset in range(6):
        append(log, plain(offset, size=5000))
    sizes = list[int]()
    read_up_to = disk.read_up_to

    def counted(fd: int, position: int, size: int) -> bytes:
        sizes.append(size)
        return read_up_to(fd, position, size)

    cursor = cursor_at(log, 0)
    cursor.read(bound=log.log_end, max_bytes=100)
    monkeypatch.setattr(disk, "read_up_to", counted)
    for _ in range(4):
        cursor.read(bound=log.log_end, max_bytes=100)
    assert sizes == [len(plain(0, size=5000))] * 4


def test_damaged_batch_is_refused_with_its_position(tmp_path: Path, cursor_at: CursorAt) -> None:
    log = filled(tmp_path, 20)
    data = bytearray(log.active.path.read_bytes())
    data[len(plain(0, 2, size=0)) + 70] ^= 1
    log.active.path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match=rf"checksum .* position {len(plain(0, 2, size=0))}$"):
        read_all(cursor_at(log, 0), log, 100_000)


def test_batches_of_every_format_are_checked() -> None:
    old = legacy(0, 3, None, b"v") + legacy(1, 4, b"k", None)
    data = plain(0, 3) + old + plain(5)
    assert check_batches(data, name="log") == SoundBatches(len(data), 6)
    assert check_batches(data[:-1], name="log") == SoundBatches(len(data) - len(plain(5)), 5)
    assert check_batches(plain(0)[:-1], name="log") == SoundBatches(0, -1)
    broken = bytearray(data)
    broken[len(plain(0, 3)) + len(legacy(0, 3, None, b"v")) + 30] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        check_batches(bytes(broken), name="log")


@pytest.mark.parametrize("data", [plain(5) + plain(5), plain(5) + plain(4), plain(5) + legacy(1, 5, None, None)])
def test_check_refuses_offsets_that_do_not_ascend(data: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="again"):
        check_batches(data, name="log")


@given(st.lists(st.integers(1, 3), max_size=5), st.integers(0, 400), st.integers(0, 255))
def test_fast_check_agrees_with_the_full_parser_on_damaged_batches(counts: list[int], place: int, value: int) -> None:
    data, offset = bytearray(), 0
    for count in counts:
        data += plain(offset, count)
        offset += count
    if place < len(data):
        data[place] = value

    def full() -> int | None:
        try:
            return sum(batch.size_bytes for batch in iter_batches(bytes(data), name="log"))
        except CorruptRecordError:
            return None

    def fast() -> int | None:
        try:
            return check_batches(bytes(data), name="log").size_bytes
        except CorruptRecordError as error:
            return full() if "again" in str(error) else None

    assert fast() == full()
