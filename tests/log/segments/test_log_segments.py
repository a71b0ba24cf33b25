from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.log.segmented_logs import NOW_MS
from tierd.log.files.disk import OsDisk
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.log_segments import LogSegments, PublishedLog
from tierd.log.segments.segment_ranges import floor_index, segments_between

CONFIG = LogConfig(segment_index_bytes=100)


def segment(folder: Path, base_offset: int) -> LogSegment:
    return LogSegment(OsDisk(), folder, base_offset, config=CONFIG, now_ms=NOW_MS, create=True)


def segments(folder: Path, *bases: int) -> LogSegments:
    return LogSegments(segment(folder, base) for base in bases)


def bases(found: object) -> list[int]:
    assert isinstance(found, tuple)
    return [each.base_offset for each in found]


def base(found: LogSegment | None) -> int | None:
    return None if found is None else found.base_offset


@pytest.mark.spec("log-format SEG-22")
def test_floor_and_lower_segments_of_an_offset_are_found(tmp_path: Path) -> None:
    found = segments(tmp_path, 20, 0, 10)
    assert found.base_offsets == (0, 10, 20)
    assert [base(found.floor(n)) for n in (-1, 0, 9, 10, 20, 99)] == [None, 0, 0, 10, 20, 20]
    assert [base(found.lower(n)) for n in (0, 1, 10, 11, 99)] == [None, 0, 0, 10, 20]
    assert [base(found.higher(n)) for n in (-1, 0, 10, 19, 20)] == [0, 10, 20, 20, None]
    assert (base(found.first), base(found.last), base(found.active)) == (0, 20, 20)
    assert [10 in found, 11 in found] == [True, False]


@pytest.mark.spec("log-format SEG-22")
@pytest.mark.spec("log-format READ-16")
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (10, 10, []),
        (0, 21, [0, 10, 20]),
        (1, 5, [0]),
        (13, 21, [10, 20]),
        (0, 10, [0]),
        (10, 20, [10]),
        (13, 17, [10]),
        (20, 21, [20]),
        (25, 99, [20]),
        (0, 0, []),
    ],
)
def test_range_begins_with_the_segment_that_holds_its_start(
    tmp_path: Path, start: int, end: int, expected: list[int]
) -> None:
    assert bases(tuple(segments(tmp_path, 0, 10, 20).range(start, end))) == expected


@pytest.mark.spec("log-format SEG-22")
@pytest.mark.spec("log-format READ-16")
def test_a_range_that_ends_before_it_begins_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="begin at 21 and end at 20"):
        segments(tmp_path, 0, 10, 20).range(21, 20)


def test_added_segment_replaces_one_with_the_same_base_offset(tmp_path: Path) -> None:
    found = segments(tmp_path, 0, 10)
    seen, old, new = found.values, found.get(10), segment(tmp_path, 10)
    assert found.add(new) is old
    assert (found.get(10), len(found)) == (new, 2)
    assert seen[1] is old  # a reader with the old tuple does not see the change
    assert found.remove(10) is new
    assert found.remove(10) is None
    assert found.add(segment(tmp_path, 5)) is None
    assert found.base_offsets == (0, 5)
    found.clear()
    assert (len(found), found.first, found.last, found.floor(9)) == (0, None, None, None)


def test_published_log_returns_the_present_file_names(tmp_path: Path) -> None:
    found = segments(tmp_path, 0, 10)
    published = PublishedLog(found.values, LogOffset(10, 10, 0))
    assert [published.files(n).next_base_offset for n in (0, 1)] == [10, None]
    assert published.files(0).log == found.values[0].path
    found.values[0].change_suffix("", ".deleted")
    assert published.files(0).log == found.values[0].path
    assert published.files(0).offset_index.name == "00000000000000000000.index.deleted"


@given(st.sets(st.integers(0, 30)), st.integers(-2, 32), st.integers(-2, 32))
def test_ranges_agree_with_a_list(found: set[int], start: int, end: int) -> None:
    class Segment:
        def __init__(self, base_offset: int) -> None:
            self.base_offset = base_offset

    ordered = [Segment(n) for n in sorted(found)]
    below = [n for n in sorted(found) if n <= start]
    assert floor_index(ordered, start) == len(below) - 1
    if start <= end:
        first = below[-1] if below else -3
        expected = [n for n in sorted(found) if first <= n < end] if start < end else []
        assert [each.base_offset for each in segments_between(ordered, start, end)] == expected
