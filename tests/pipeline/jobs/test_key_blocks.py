import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tierd.pipeline.jobs.key_blocks import BLOCK_ROWS, LatestKeys, key_blocks
from tierd.pipeline.jobs.task_layout import BucketRange

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.integers(-2, 2)), max_size=60)


def added(keys: LatestKeys, rows: list[tuple[int, int]], first_offset: int) -> None:
    hi, lo = (np.array([row[part] for row in rows], dtype=np.int64) << 40 for part in (0, 1))
    keys.add(hi, lo, np.arange(first_offset, first_offset + len(rows), dtype=np.int64))


def latest(rows: list[tuple[int, int]]) -> list[int]:
    return sorted({row: offset for offset, row in enumerate(rows)}.values())


@given(st.lists(ROWS, max_size=6), st.integers(1, 5), st.integers(1, 20))
def test_key_blocks_of_splits_are_joined_bucket_by_bucket(
    splits: list[list[tuple[int, int]]], buckets: int, fold_rows: int
) -> None:
    joined: dict[int, LatestKeys] = {}
    first_offset = 0
    for rows in splits:
        keys = LatestKeys(fold_rows)
        added(keys, rows, first_offset)
        first_offset += len(rows)
        for bucket, block in key_blocks(keys, index=3, buckets=BucketRange(10, buckets)):
            assert 10 <= bucket < 10 + buckets
            joined.setdefault(bucket, LatestKeys(fold_rows)).add_block(block)
    found = sorted(offset for keys in joined.values() for offset in keys.take()[2].tolist())
    assert found == latest([row for rows in splits for row in rows])


def test_size_of_a_block_is_bounded() -> None:
    keys = LatestKeys()
    rows = np.arange(3 * BLOCK_ROWS + 1, dtype=np.int64)
    keys.add(rows, rows, rows)
    sizes = [len(block.columns) for _, block in key_blocks(keys, index=0, buckets=BucketRange(0, 1))]
    assert sizes == [20 * BLOCK_ROWS] * 3 + [20]


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20, unique=True))
@example([5, 5 + 2**32 - 1])
@example([5, 5 + 2**32])
def test_key_blocks_keep_offsets_that_are_far_apart(offsets: list[int]) -> None:
    keys = LatestKeys()
    rows = np.arange(len(offsets), dtype=np.int64)
    keys.add(rows, -rows, np.array(offsets, dtype=np.int64))
    joined = LatestKeys()
    for _, block in key_blocks(keys, index=0, buckets=BucketRange(0, 1)):
        joined.add_block(block)
    hi, lo, offset = (column.tolist() for column in joined.take())
    assert sorted(zip(hi, lo, offset, strict=True)) == [(n, -n, at) for n, at in enumerate(offsets)]


def test_distinct_keys_fill_the_table_and_repeated_keys_do_not() -> None:
    keys = LatestKeys(100)
    for at in range(10):
        added(keys, [(n % 7, 0) for n in range(50)], at * 50)
    assert not keys.is_full
    different = np.arange(100, dtype=np.int64)
    keys.add(different, different, different)
    filled = keys.is_full
    assert (filled, len(keys.take()[0]), keys.is_full) == (True, 106, False)
