"""Small batches joined to batches of a given size."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tierd.scanning.range_rows import BatchPacker

LIMIT = 1_000


def batch(sizes: list[int], first: int) -> pa.RecordBatch:
    """Return a row for each size, with a number that tells its place."""
    values = pa.array([bytes(size) for size in sizes], type=pa.binary())
    topics = pa.DictionaryArray.from_arrays(pa.array([0] * len(sizes), type=pa.int32()), pa.array(["orders"]))
    numbers = pa.array(range(first, first + len(sizes)), type=pa.int64())
    return pa.RecordBatch.from_arrays([values, topics, numbers], names=["value", "topic", "number"])


@given(st.lists(st.lists(st.integers(0, 1_500), min_size=1, max_size=5), max_size=12))
def test_packed_batches_have_all_rows_in_order_and_a_bounded_size(sizes: list[list[int]]) -> None:
    packer, first, packed = BatchPacker(LIMIT), 0, list[pa.RecordBatch]()
    for each in sizes:
        packed += packer.add(batch(each, first))
        first += len(each)
    packed += packer.rest()

    numbers = [number for each in packed for number in each.column("number").to_pylist()]
    assert numbers == list(range(first))
    assert all(each.nbytes <= LIMIT or each.num_rows == 1 for each in packed)
    assert all(a.nbytes + b.nbytes > LIMIT // 2 for a, b in pairwise(packed))


def test_packer_has_nothing_left_after_its_rest() -> None:
    packer = BatchPacker(LIMIT)
    assert packer.add(batch([1], 0)) == []
    assert len(packer.rest()) == 1
    assert packer.rest() == []
