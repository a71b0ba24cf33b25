import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.coded import coded
from tierd.errors import CorruptIndexError, LogError, OffsetOverflowError, TierErrorCode
from tierd.log.files.disk import OsDisk
from tierd.log.indexes.offset_index_file import OffsetIndexFile
from tierd.log.log_errors import LogClosedError

BASE = 45
ROOM = 30 * 8
MAX_INT = 2**31 - 1


def index_at(path: Path, *, base_offset: int = BASE, max_bytes: int = ROOM) -> OffsetIndexFile:
    return OffsetIndexFile(OsDisk(), path, base_offset=base_offset, max_bytes=max_bytes)


@pytest.fixture
def index(tmp_path: Path) -> OffsetIndexFile:
    return index_at(tmp_path / "00000000000000000045.index")


def fill(index: OffsetIndexFile, *entries: tuple[int, int]) -> None:
    for offset, position in entries:
        index.append(offset, position)
    index.write_out()


def content(index: OffsetIndexFile) -> list[tuple[int, int]]:
    return [index.entry_at(number) for number in range(index.entries)]


@pytest.mark.spec("log-format IDX-01")
def test_lookup_in_an_empty_index_returns_the_base_offset_at_position_0(index: OffsetIndexFile) -> None:
    assert index.lookup(92) == (BASE, 0)
    assert index.last_entry == (BASE, 0)
    index.materialise()
    assert index.lookup(92) == (BASE, 0)


@pytest.mark.spec("log-format IDX-02")
@settings(max_examples=50)
@given(st.sets(st.integers(1, 1000), min_size=1, max_size=30), st.integers(-5, 1100))
def test_lookup_returns_the_largest_entry_at_or_below_an_offset(
    tmp_path_factory: pytest.TempPathFactory, offsets: set[int], wanted: int
) -> None:
    index = index_at(tmp_path_factory.mktemp("index") / "x.index", base_offset=0)
    entries = [(offset, 10 * (number + 1)) for number, offset in enumerate(sorted(offsets))]
    fill(index, *entries)
    assert index.lookup(wanted) == max((entry for entry in entries if entry[0] <= wanted), default=(0, 0))
    index.close()


@pytest.mark.spec("log-format IDX-03")
def test_lookup_in_a_full_index_finds_first_and_last_entry(index: OffsetIndexFile) -> None:
    fill(index, *((BASE + 1 + n, 100 * (n + 1)) for n in range(30)))
    assert index.is_full
    assert index.lookup(BASE) == (BASE, 0)
    assert index.lookup(BASE + 30) == (BASE + 30, 3000)
    assert index.lookup(BASE + MAX_INT) == (BASE + 30, 3000)


@pytest.mark.spec("log-format IDX-04")
def test_entry_is_read_by_its_number(index: OffsetIndexFile) -> None:
    fill(index, *((BASE + 1 + n, n + 1) for n in range(5)))
    index.append(BASE + 10, 99)
    assert content(index) == [*((BASE + 1 + n, n + 1) for n in range(5)), (BASE + 10, 99)]
    for number in (-1, 6):
        with pytest.raises(ValueError, match=f"entry {number} of 6"):
            index.entry_at(number)


@pytest.mark.spec("log-format IDX-05")
def test_append_to_a_full_index_is_refused(index: OffsetIndexFile) -> None:
    assert index.max_entries == 30
    fill(index, *((BASE + 1 + n, n + 1) for n in range(30)))
    with pytest.raises(ValueError, match="full with 30 entries"):
        index.append(BASE + 31, 31)


@pytest.mark.spec("log-format IDX-06")
def test_append_of_an_offset_not_above_the_last_one_is_refused(index: OffsetIndexFile) -> None:
    index.append(51, 0)
    for offset in (50, 51):
        with pytest.raises(
            LogError, check=coded(TierErrorCode.INVALID_INDEX_OFFSET), match=f"offset {offset} does not follow 51"
        ):
            index.append(offset, 1)
    assert index.entries == 1


def test_an_offset_out_of_reach_of_the_base_is_refused(index: OffsetIndexFile) -> None:
    for offset in (BASE - 1, BASE + MAX_INT + 1):
        with pytest.raises(OffsetOverflowError):
            index.append(offset, 1)
    index.append(BASE + MAX_INT, MAX_INT)
    index.write_out()
    assert index.lookup(BASE + MAX_INT) == (BASE + MAX_INT, MAX_INT)


@pytest.mark.spec("log-format IDX-07")
def test_upper_bound_is_the_first_entry_behind_a_read(index: OffsetIndexFile) -> None:
    assert index.upper_bound(0, 5) is None
    fill(index, (45, 0), (46, 10), (47, 23), (48, 37))
    reads = ((0, 5), (0, 10), (0, 22), (0, 23), (0, 200), (10, 24), (37, 1))
    bounds = [index.upper_bound(position, size) for position, size in reads]
    assert [bound and bound.offset for bound in bounds] == [46, 46, 47, 47, None, 48, None]


@pytest.mark.spec("log-format IDX-08")
def test_closed_index_is_trimmed_and_is_full_when_reopened(index: OffsetIndexFile) -> None:
    fill(index, (51, 10), (52, 20))
    assert index.path.stat().st_size == ROOM
    index.close()
    assert index.path.stat().st_size == 16
    reopened = index_at(index.path)
    assert (reopened.entries, reopened.last_offset, reopened.is_full) == (2, 52, True)
    assert [reopened.lookup(offset) for offset in (50, 51, 52)] == [(45, 0), (51, 10), (52, 20)]
    with pytest.raises(ValueError, match="full"):
        reopened.append(53, 30)


@pytest.mark.spec("log-format IDX-09")
@pytest.mark.parametrize(("offset", "last"), [(12, 9), (10, 9), (9, 8), (5, 4), (0, None)])
def test_truncation_removes_the_entries_from_an_offset_on(tmp_path: Path, offset: int, last: int | None) -> None:
    index = index_at(tmp_path / "x.index", base_offset=0)
    fill(index, *((n, n) for n in range(1, 10)))
    index.truncate_to(offset)
    assert [entry[0] for entry in content(index)] == ([] if last is None else list(range(1, last + 1)))
    assert index.last_offset == (last or 0)
    assert index.path.stat().st_size == ROOM
    index.append((last or 0) + 1, 77)
    index.write_out()
    assert index.lookup(1000) == ((last or 0) + 1, 77)


def test_truncation_of_every_entry_keeps_the_file_size(index: OffsetIndexFile) -> None:
    fill(index, (51, 10), (52, 20))
    index.truncate()
    assert (index.entries, index.max_entries, index.last_entry) == (0, 30, (BASE, 0))
    assert index.path.read_bytes() == bytes(ROOM)


@pytest.mark.spec("log-format IDX-10")
def test_entry_at_the_base_offset_passes_the_sanity_check(index: OffsetIndexFile) -> None:
    fill(index, (BASE, 0))
    index.sanity_check()


def test_sanity_check_refuses_a_wrong_size_and_a_last_offset_below_the_base(tmp_path: Path) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(bytes(12))
    with pytest.raises(CorruptIndexError, match="no whole number"):
        index_at(path).sanity_check()
    path.write_bytes(b"\xff\xff\xff\xff\x00\x00\x00\x01")
    with pytest.raises(CorruptIndexError, match="below the segment's base"):
        index_at(path).sanity_check()


@pytest.mark.spec("log-format IDX-11")
def test_calls_to_a_closed_index_are_refused(index: OffsetIndexFile) -> None:
    fill(index, (51, 10))
    index.close_handle()
    assert index.path.stat().st_size == ROOM
    for call in (
        lambda: index.append(52, 20),
        lambda: index.entries,
        lambda: index.lookup(51),
        lambda: index.resize(8),
        index.flush,
    ):
        with pytest.raises(LogClosedError):
            call()


def test_index_that_was_not_trimmed_counts_unused_room_as_entries(index: OffsetIndexFile) -> None:
    fill(index, (51, 10))
    index.close_handle()
    left_by_a_crash = index_at(index.path)
    assert (left_by_a_crash.entries, left_by_a_crash.is_full) == (30, True)
    left_by_a_crash.reset()
    assert (left_by_a_crash.entries, left_by_a_crash.max_entries) == (0, 30)
    assert left_by_a_crash.path.read_bytes() == bytes(ROOM)


def test_resize_rounds_down_to_whole_entries_and_keeps_existing_ones(index: OffsetIndexFile) -> None:
    fill(index, (51, 10), (52, 20))
    assert not index.resize(ROOM + 7)
    assert index.resize(3 * 8 + 1)
    assert (index.max_entries, index.path.stat().st_size, index.last_offset) == (3, 24, 52)
    with pytest.raises(ValueError, match="2 entries do not fit into 8 bytes"):
        index.resize(8)


def test_index_larger_than_its_limit_is_full_after_grow(index: OffsetIndexFile) -> None:
    fill(index, *((BASE + 1 + n, n + 1) for n in range(20)))
    index.close()
    reopened = index_at(index.path, max_bytes=10 * 8)
    reopened.grow()
    assert (reopened.entries, reopened.max_entries, reopened.is_full) == (20, 20, True)
    roomy = index_at(index.path)
    roomy.grow()
    assert (roomy.entries, roomy.max_entries) == (20, 30)


def test_index_file_is_created_by_the_first_write(index: OffsetIndexFile) -> None:
    assert index.entries == 0
    index.append(51, 10)
    assert not index.exists
    index.write_out()
    assert index.path.read_bytes() == bytes.fromhex("000000060000000a") + bytes(ROOM - 8)


def test_close_of_an_unwritten_index_creates_no_file(index: OffsetIndexFile) -> None:
    assert index.entries == 0
    index.close()
    assert not index.exists


def test_rebuilt_index_has_no_unused_room(index: OffsetIndexFile) -> None:
    fill(index, (51, 10), (52, 20), (53, 30))
    index.append(54, 40)
    index.fill(bytes.fromhex("000000070000000b"))
    index.write_out()
    assert content(index) == [(52, 11)]
    assert (index.is_full, index.last_offset, index.path.stat().st_size) == (True, 52, 8)
    index.fill(b"")
    assert (index.entries, index.last_entry, index.path.stat().st_size) == (0, (BASE, 0), 0)


def test_appends_after_a_rename_go_to_the_renamed_file(index: OffsetIndexFile, tmp_path: Path) -> None:
    fill(index, (51, 10))
    index.rename(tmp_path / "x.index.deleted")
    fill(index, (52, 20))
    assert index.lookup(60) == (52, 20)
    index.release_handle()
    fill(index, (53, 30))
    assert [path.name for path in tmp_path.iterdir()] == ["x.index.deleted"]
    assert content(index_at(index.path))[:3] == [(51, 10), (52, 20), (53, 30)]
    assert index.delete()
    assert not index.delete()


def test_index_agrees_with_a_list_after_any_sequence_of_calls(tmp_path: Path) -> None:
    chance = random.Random(1)
    index, model = index_at(tmp_path / "x.index", base_offset=0), list[tuple[int, int]]()
    for _ in range(600):
        match chance.randrange(8):
            case 0:
                index.write_out()
            case 1:
                cut = chance.randrange(model[-1][0] + 2 if model else 2)
                index.truncate_to(cut)
                model = [entry for entry in model if entry[0] < cut]
            case 2:
                index.close()
                index = index_at(index.path, base_offset=0)
                index.resize(ROOM)
            case 3:
                index.release_handle()
            case _ if len(model) < 30:
                entry = (model[-1][0] if model else 0) + chance.randrange(1, 9), chance.randrange(1, 999)
                index.append(*entry)
                model.append(entry)
            case _:
                assert index.is_full
        assert content(index) == model
        assert index.last_entry == (model[-1] if model else (0, 0))
