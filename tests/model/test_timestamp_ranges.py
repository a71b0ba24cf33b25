from hypothesis import given
from hypothesis import strategies as st

from tierd.model import CHECKSUM_BLOCK_BYTES, BlockTimestamps, TimestampRange

BLOCK = CHECKSUM_BLOCK_BYTES


def test_timestamps_of_a_batch_count_in_each_block_that_it_touches() -> None:
    blocks = BlockTimestamps()
    blocks.add(BLOCK - 1, TimestampRange(5, 9))
    blocks.add(BLOCK + 1, TimestampRange(1, 2))
    blocks.add(1, TimestampRange(7, 7))
    assert blocks.ranges() == (TimestampRange(1, 9), TimestampRange(1, 2), TimestampRange(7, 7))


def test_block_with_a_batch_of_unknown_timestamps_has_no_range() -> None:
    blocks = BlockTimestamps()
    for size, timestamps in ((10, TimestampRange(1, 1)), (BLOCK, None), (10, TimestampRange(3, 3)), (BLOCK, None)):
        blocks.add(size, timestamps)
    assert blocks.ranges() == (None, None, None)


def test_batch_without_records_changes_no_range() -> None:
    blocks = BlockTimestamps()
    blocks.pass_over(100)
    blocks.add(100, TimestampRange(3, 4))
    blocks.pass_over(BLOCK)
    assert blocks.ranges() == (TimestampRange(3, 4), None)


def test_an_empty_log_has_no_blocks() -> None:
    assert BlockTimestamps().ranges() == ()


@given(st.lists(st.tuples(st.integers(1, 2 * BLOCK), st.integers(-1, 9), st.integers(0, 9)), max_size=20))
def test_ranges_of_blocks_contain_the_timestamps_of_all_their_batches(batches: list[tuple[int, int, int]]) -> None:
    blocks, position = BlockTimestamps(), 0
    for size, low, more in batches:
        blocks.add(size, TimestampRange(low, low + more))
    found = blocks.ranges()
    assert len(found) == -(-sum(size for size, *_ in batches) // BLOCK)
    for size, low, more in batches:
        for number in range(position // BLOCK, -(-(position + size) // BLOCK)):
            known = found[number]
            assert known is not None
            assert known.min_ms <= low <= low + more <= known.max_ms
        position += size
