"""Hashes of keys and the latest record of each key: known answers, and kernels that agree."""

import os
from array import array
from collections.abc import Callable
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.log.encoded_record import encode_record
from tierd.kernels import compiled, decode_records, hash_keys, latest_per_key, reference

TWINS = pytest.mark.parametrize("kernels", [reference, compiled])
SECRET = bytes(range(16))
ASCENDING = {  # SipHash-2-4-128 of the bytes 0, 1, 2 ... under SECRET (reference code, vectors.h)
    0: "a3817f04ba25a8e66df67214c7550293",
    1: "da87c1d86b99af44347659119b22fc45",
    2: "8177228da4a45dc7fca38bdef60affe4",
    7: "a1f1ebbed8dbc153c0b84aa61ff08239",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    15: "5493e99933b0a8117e08ec0f97cfc3d9",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    63: "5150d1772f50834a503e069a973fbd7c",
}
longs = st.one_of(st.integers(-2, 2), st.integers(-(2**63), 2**63 - 1))
hash_rows = st.lists(st.tuples(st.integers(-1, 1), longs, longs), max_size=40)


def ints(*numbers: int) -> memoryview:
    return memoryview(array("i", numbers))


def columns_of(rows: list[tuple[int, ...]], count: int) -> list[np.ndarray]:
    table = np.array(rows, dtype=np.int64).reshape(-1, count)
    return [np.ascontiguousarray(table[:, index]) for index in range(count)]


@TWINS
@pytest.mark.parametrize(("size", "expected"), ASCENDING.items())
def test_hash_is_siphash_2_4_of_128_bits(kernels: ModuleType, size: int, expected: str) -> None:
    hi, lo = kernels.hash_keys(bytes(range(64)), ints(0), ints(size), SECRET)
    assert (hi.dtype, lo.dtype) == (np.int64, np.int64)
    assert (lo.tobytes() + hi.tobytes()).hex() == expected


@given(st.binary(max_size=300), st.binary(min_size=16, max_size=16), st.data())
def test_reference_and_compiled_kernel_hash_any_bytes_alike(payload: bytes, secret: bytes, data: st.DataObject) -> None:
    starts = data.draw(st.lists(st.integers(0, len(payload)), max_size=8))
    sizes = [data.draw(st.integers(-2, len(payload) - start)) for start in starts]
    expected, found = (k.hash_keys(payload, ints(*starts), ints(*sizes), secret) for k in (reference, compiled))
    assert [half.tolist() for half in found] == [half.tolist() for half in expected]
    assert all(half.dtype == np.int64 for half in (*found, *expected))


@TWINS
def test_null_key_has_the_hash_of_an_empty_key_at_any_position(kernels: ModuleType) -> None:
    hi, lo = kernels.hash_keys(b"abc", ints(0, 3, 2**31 - 1, -9), ints(0, -1, -1, 0), SECRET)
    assert (len(set(hi.tolist())), len(set(lo.tolist()))) == (1, 1)


@TWINS
@pytest.mark.parametrize(
    ("start", "size"), [(-1, 1), (0, 4), (3, 1), (2**31 - 1, 1), (2**31 - 1, 2**31 - 1), (-(2**31), 2**31 - 1)]
)
def test_a_key_beyond_the_payload_is_refused(kernels: ModuleType, start: int, size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes at {start} reach beyond the 3"):
        kernels.hash_keys(b"abc", ints(0, start), ints(3, size), SECRET)


@TWINS
def test_secret_or_columns_of_a_wrong_length_are_refused(kernels: ModuleType) -> None:
    with pytest.raises(ValueError, match="secret of 15 bytes"):
        kernels.hash_keys(b"", ints(), ints(), bytes(15))
    with pytest.raises(ValueError, match=r"sizes|argument"):
        kernels.hash_keys(b"", ints(0), ints(), SECRET)
    with pytest.raises(ValueError, match=r"shape|argument"):
        kernels.latest_per_key(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64))


def test_another_secret_gives_another_hash() -> None:
    hashes = {int(hash_keys(b"key", ints(0), ints(3), bytes([n]) * 16)[0][0]) for n in range(50)}
    assert len(hashes) == 50


def test_keys_are_hashed_at_the_positions_of_the_decoder() -> None:
    payload = b"".join(encode_record(0, n, key, b"v") for n, key in enumerate((b"a", None, b"b", b"a")))
    columns = decode_records(payload, 4)
    hi, lo = hash_keys(payload, columns.key_start, columns.key_size, SECRET)
    assert (hi[0], lo[0]) == (hi[3], lo[3])
    assert len(set(zip(hi.tolist(), lo.tolist(), strict=True))) == 3


@given(hash_rows)
def test_latest_per_key_keeps_the_largest_position_in_order_of_appearance(rows: list[tuple[int, ...]]) -> None:
    expected: dict[tuple[int, int], int] = {}
    for hi, lo, position in rows:
        expected[hi, lo] = max(expected.get((hi, lo), position), position)
    for kernels in (reference, compiled):
        found = kernels.latest_per_key(*columns_of(rows, 3))
        assert all(column.dtype == np.int64 for column in found)
        assert list(zip(*(column.tolist() for column in found), strict=True)) == [
            (*key, position) for key, position in expected.items()
        ]


@given(hnp.arrays(np.int64, st.integers(0, 300), elements=st.integers(0, 30)))
def test_reference_and_compiled_kernel_agree_where_keys_repeat_often(numbers: np.ndarray) -> None:
    columns = (numbers % 3, numbers // 7, numbers[::-1])  # neither in order nor contiguous
    expected, found = (kernels.latest_per_key(*columns) for kernels in (reference, compiled))
    assert [column.tolist() for column in found] == [column.tolist() for column in expected]


@pytest.mark.parametrize(
    "columns",
    [
        lambda n: (np.zeros(n, np.int64), np.zeros(n, np.int64)),
        lambda n: (np.zeros(n, np.int64), np.arange(n) << 40),
        lambda n: (np.arange(n) << 40, np.zeros(n, np.int64)),
        lambda n: (np.arange(n), np.arange(n)),
    ],
    ids=["all equal", "in high bits of the lower half", "in high bits of the upper half", "halves alike"],
)
def test_a_million_similar_hashes_are_distinguished(
    columns: Callable[[int], tuple[np.ndarray, np.ndarray]],
) -> None:
    hi, lo = columns(1_000_000)
    found = compiled.latest_per_key(hi, lo, np.arange(1_000_000))
    assert found[2].tolist() == ([999_999] if not hi.any() and not lo.any() else list(range(1_000_000)))


def test_latest_of_many_records_is_found_by_the_chosen_kernel() -> None:
    payload = os.urandom(4000)
    starts, sizes = np.arange(1000, dtype=np.int32) % 10 * 4, np.full(1000, 4, np.int32)
    hi, lo = hash_keys(payload, starts, sizes, SECRET)
    assert latest_per_key(hi, lo, np.arange(1000))[2].tolist() == list(range(990, 1000))
