import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.pipeline.rewriting import OffsetSet

BASE = 1 << 40
SPAN = 1 << 31
OFFSETS = st.lists(st.one_of(st.integers(0, 300_000), st.integers(0, SPAN - 1)), max_size=60)


def array(offsets: list[int]) -> np.ndarray:
    return np.array(offsets, dtype=np.int64)


@given(OFFSETS, OFFSETS, OFFSETS)
def test_offset_set_contains_the_added_offsets_and_no_others(
    first: list[int], second: list[int], asked: list[int]
) -> None:
    found = OffsetSet.of(BASE, BASE + SPAN, array(first) + BASE)
    found.union_in_place(array(second) + BASE)
    wanted = sorted({*asked, *first})
    known = {*first, *second}
    assert len(found) == len(known)
    expected = [offset in known for offset in wanted]
    assert found.contains(array(wanted) + BASE).tolist() == expected


@pytest.mark.parametrize("step", [1, 2, 15, 16, 17, 1000])
def test_dense_and_sparse_pages_give_the_same_answers(step: int) -> None:
    offsets = np.arange(10, 200_000, step, dtype=np.int64)
    found = OffsetSet.of(10, 200_000, offsets[::-1])
    found.union_in_place(offsets[:100])
    asked = np.arange(10, 200_000, dtype=np.int64)
    assert np.array_equal(found.contains(asked), np.isin(asked, offsets))
    assert len(found) == offsets.size


def test_page_takes_at_most_one_bit_per_offset() -> None:
    dense = OffsetSet.of(0, 1 << 20, np.arange(1 << 20, dtype=np.int64))
    assert sum(page.nbytes for page in dense._pages.values()) == (1 << 20) // 8
    sparse = OffsetSet.of(0, 1 << 31, np.arange(0, 1 << 31, 1 << 16, dtype=np.int64))
    assert sum(page.nbytes for page in sparse._pages.values()) == 2 * (1 << 15)


def test_an_offset_of_another_group_is_refused() -> None:
    found = OffsetSet(5, 10)
    for outside in (4, 15):
        with pytest.raises(ValueError, match=f"offset {outside} is not within 10 of 5"):
            found.union_in_place(array([5, outside]))
    assert len(found) == 0
    assert found.contains(array([])).tolist() == []
