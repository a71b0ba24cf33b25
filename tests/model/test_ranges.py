import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.model import ByteRange, OffsetRange


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (5, 4)])
def test_negative_start_or_end_before_start_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="no range"):
        ByteRange(start, end)
    with pytest.raises(ValueError, match="no range"):
        OffsetRange(start, end)


@given(st.integers(0, 100), st.integers(1, 100), st.integers(0, 150))
def test_clipped_range_has_the_bytes_within_the_object(start: int, size: int, object_size: int) -> None:
    asked = ByteRange.of_size(start, size)
    assert asked.size == size
    clipped = asked.clipped(object_size)
    kept = range(0) if clipped is None else range(clipped.start, clipped.end + 1)
    assert list(kept) == [position for position in range(start, start + size) if position < object_size]


def test_both_ends_belong_to_a_range() -> None:
    offsets = OffsetRange(3, 5)
    assert [offset in offsets for offset in (2, 3, 5, 6)] == [False, True, True, False]
    assert str(offsets) == "[3-5]"
