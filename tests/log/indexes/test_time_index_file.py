from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coded import coded
from tierd.errors import CorruptIndexError, LogError, OffsetOverflowError, TierErrorCode
from tierd.log.files.disk import OsDisk
from tierd.log.indexes.time_index import ENTRY
from tierd.log.indexes.time_index_file import TimeIndexFile
from tierd.model import TimestampOffset

BASE = 45
ROOM = 30 * 12


def index_at(path: Path, *, base_offset: int = BASE) -> TimeIndexFile:
    return TimeIndexFile(OsDisk(), path, base_offset=base_offset, max_bytes=ROOM + 5)


@pytest.fixture
def index(tmp_path: Path) -> TimeIndexFile:
    return index_at(tmp_path / "00000000000000000045.timeindex")


def fill(index: TimeIndexFile, *entries: tuple[int, int]) -> None:
    for timestamp_ms, offset in entries:
        index.maybe_append(timestamp_ms, offset)
    index.write_out()


def content(index: TimeIndexFile) -> list[tuple[int, int]]:
    return [(entry.timestamp_ms, entry.offset) for entry in map(index.entry_at, range(index.entries))]


@pytest.mark.spec("log-format IDX-12")
def test_lookup_in_an_empty_index_returns_the_base_offset_without_a_timestamp(index: TimeIndexFile) -> None:
    assert index.lookup(100) == TimestampOffset(-1, BASE)
    assert index.last_entry == TimestampOffset(-1, BASE)
    index.materialise()
    assert index.lookup(100) == TimestampOffset(-1, BASE)


@pytest.mark.spec("log-format IDX-13")
def test_lookup_returns_the_entry_with_the_largest_timestamp_at_or_below(index: TimeIndexFile) -> None:
    fill(index, (10, 55), (20, 65), (30, 75))
    assert [index.lookup(timestamp_ms) for timestamp_ms in (9, 25, 30)] == [
        TimestampOffset(-1, 45),
        TimestampOffset(20, 65),
        TimestampOffset(30, 75),
    ]


@settings(max_examples=50)
@given(st.sets(st.integers(0, 1000), min_size=1, max_size=29), st.integers(-5, 1100))
def test_a_lookup_agrees_with_a_search_of_all_entries(
    tmp_path_factory: pytest.TempPathFactory, timestamps: set[int], wanted: int
) -> None:
    index = index_at(tmp_path_factory.mktemp("index") / "x.timeindex")
    entries = [TimestampOffset(timestamp_ms, BASE + number) for number, timestamp_ms in enumerate(sorted(timestamps))]
    fill(index, *((entry.timestamp_ms, entry.offset) for entry in entries))
    assert index.lookup(wanted) == max(
        (entry for entry in entries if entry.timestamp_ms <= wanted), default=TimestampOffset(-1, BASE)
    )
    index.close()


@pytest.mark.spec("log-format IDX-14")
def test_last_entry_of_a_full_index_is_reserved_for_the_roll(index: TimeIndexFile) -> None:
    fill(index, *((10 * n, BASE + n) for n in range(1, 30)))
    assert index.is_full
    with pytest.raises(ValueError, match="full with 29 entries"):
        index.maybe_append(1000, BASE + 50)
    with pytest.raises(LogError, check=coded(TierErrorCode.INVALID_INDEX_OFFSET), match="offset 46 is below 74"):
        index.maybe_append(10_000, BASE + 1, skip_full_check=True)
    index.maybe_append(1000, BASE + 50, skip_full_check=True)
    index.write_out()
    assert index.last_entry == index.lookup(5000) == TimestampOffset(1000, BASE + 50)
    assert index.path.stat().st_size == ROOM


@pytest.mark.spec("log-format IDX-15")
def test_truncation_removes_the_entries_from_an_offset_on(index: TimeIndexFile) -> None:
    fill(index, (10, 55), (20, 65), (30, 75))
    index.truncate_to(76)
    assert index.entries == 3
    index.truncate_to(65)
    assert content(index) == [(10, 55)]
    assert index.last_entry == TimestampOffset(10, 55)
    index.truncate_to(45)
    assert (index.entries, index.last_entry) == (0, TimestampOffset(-1, BASE))


@pytest.mark.spec("log-format IDX-16")
@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (ENTRY.pack(50, 1) + ENTRY.pack(40, 2), "below the first"),
        (ENTRY.pack(50, -1), "below the segment's base"),
        (ENTRY.pack(50, 1) + b"\0", "no whole number"),
    ],
)
def test_sanity_check_refuses_an_impossible_index(index: TimeIndexFile, data: bytes, problem: str) -> None:
    index.path.write_bytes(data)
    with pytest.raises(CorruptIndexError, match=problem):
        index.sanity_check()


def test_sanity_check_accepts_an_empty_index_and_equal_offsets(index: TimeIndexFile) -> None:
    index.sanity_check()
    fill(index, (10, 45), (20, 45))
    index.sanity_check()


@pytest.mark.spec("log-format IDX-17")
def test_resize_changes_the_file_only_to_another_size(index: TimeIndexFile) -> None:
    fill(index, (10, 55), (20, 65))
    assert not index.resize(ROOM)
    assert index.resize(ROOM // 2)
    assert (index.max_entries, index.last_entry, index.entries) == (15, TimestampOffset(20, 65), 2)
    assert index.path.stat().st_size == ROOM // 2


@pytest.mark.spec("log-format IDX-18")
def test_append_of_an_equal_timestamp_adds_no_entry(index: TimeIndexFile) -> None:
    fill(index, (10, 55), (10, 60))
    assert content(index) == [(10, 55)]
    fill(index_without := index_at(index.path.with_name("x.timeindex")), (-1, 55), (-1, 60))
    assert index_without.entries == 0


def test_a_smaller_timestamp_is_refused(index: TimeIndexFile) -> None:
    fill(index, (10, 55))
    with pytest.raises(ValueError, match="timestamp 9 is below 10"):
        index.maybe_append(9, 60)


def test_an_offset_out_of_reach_of_the_base_is_refused(index: TimeIndexFile) -> None:
    with pytest.raises(OffsetOverflowError):
        index.maybe_append(10, BASE + 2**31)
    assert index.entries == 0


def test_a_closed_index_is_trimmed(index: TimeIndexFile) -> None:
    fill(index, (1_700_000_000_123, BASE + 9))
    index.close()
    assert index.path.read_bytes() == bytes.fromhex("0000018bcfe5687b00000009")
    assert index_at(index.path).last_entry == TimestampOffset(1_700_000_000_123, BASE + 9)
