"""Rows of a store: the twins copy them and bring them into order alike."""

from array import array
from collections.abc import Sequence
from itertools import accumulate
from types import ModuleType

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tierd.kernels import compiled, latest_in_order, pack_rows, reference
from tierd.kernels.arrays import PackedRows

TWINS = pytest.mark.parametrize("kernels", [reference, compiled])
Pair = tuple[bytes | None, bytes | None, int]

# Few bytes, so that keys begin one another; around 7 and 8, where the compiled twin goes on to the next digit.
keys = st.one_of(
    st.text("\0a\xff", max_size=20).map(lambda text: text.encode("latin-1")),
    st.integers(0, 24).map(lambda size: b"\xff" * size),
    st.integers(0, 3).map(lambda number: b"a-long-common-prefix-%d" % number),
    st.binary(max_size=20),
)
values = st.one_of(st.none(), st.just(b""), st.binary(max_size=12))
timestamps = st.integers(-(2**63), 2**63 - 1)


def ints(numbers: Sequence[int]) -> memoryview:
    return memoryview(array("i", numbers))


def packed(
    kernels: ModuleType, pairs: Sequence[Pair], *, room: int, at: int, timestamped: bool
) -> tuple[PackedRows, bytes]:
    fields = [field for key, value, _ in pairs for field in (key, value)]
    starts = [0, *accumulate(len(field or b"") for field in fields)][:-1]
    sizes = [-1 if field is None else len(field) for field in fields]
    out = np.zeros(room, dtype=np.uint8)
    rows = kernels.pack_rows(
        out,
        at,
        b"".join(field or b"" for field in fields),
        (ints(starts[::2]), ints(sizes[::2])),
        (ints(starts[1::2]), ints(sizes[1::2])),
        timestamps_ms=memoryview(array("q", [each[2] for each in pairs])) if timestamped else None,
    )
    return rows, out.tobytes()


@given(st.lists(st.tuples(st.one_of(st.none(), keys), values, timestamps), max_size=30), st.booleans())
def test_rows_are_keys_and_values_of_records_with_a_key(pairs: list[Pair], timestamped: bool) -> None:
    expected, sizes = b"", []
    for key, value, timestamp_ms in pairs:
        if key is None:
            continue
        stamp = timestamp_ms.to_bytes(8, "big", signed=True) if timestamped else b""
        row = b"" if value is None else stamp + value
        expected += key + row
        sizes.append((len(key), -1 if value is None else len(row)))

    for kernels in (reference, compiled):
        rows, out = packed(kernels, pairs, room=len(expected) + 3, at=3, timestamped=timestamped)

        assert (rows.end, out) == (len(expected) + 3, bytes(3) + expected)
        assert list(zip(rows.key_sizes.tolist(), rows.value_sizes.tolist(), strict=True)) == sizes


@given(st.lists(keys, max_size=60))
@example([b"a" * size for size in range(40)] * 2)
@example([])
def test_last_row_of_each_key_comes_in_the_order_of_the_keys(found: list[bytes]) -> None:
    payload = b"".join(found)
    starts = ints([0, *accumulate(map(len, found))][:-1] if found else [])
    latest = {key: index for index, key in enumerate(found)}

    for function in (reference.latest_in_order, compiled.latest_in_order, latest_in_order):
        order = function(payload, starts, ints([len(key) for key in found]))

        assert order.dtype == np.int32
        assert order.tolist() == [latest[key] for key in sorted(latest)]


@pytest.mark.parametrize(
    "key_of",
    [
        lambda number: b"%016x" % (number * 0x9E3779B97F4A7C15 & (1 << 64) - 1),
        lambda number: b"customers/of/a/region/%09d" % (number * 7919 % 50_000),
        lambda number: b"k%d" % (number % 100),
        lambda number: b"%09d" % number,
        lambda number: b"%09d" % -number,
        lambda _: b"one key for every row",
        lambda number: b"a" * (number % 300),
    ],
    ids=["any order", "long common prefix", "often equal", "ascending", "descending", "all equal", "prefixes"],
)
def test_many_keys_are_sorted(key_of: object) -> None:
    assert callable(key_of)
    found = [key_of(number) for number in range(50_000)]
    sizes = [len(key) for key in found]
    starts = [0, *accumulate(sizes)][:-1]
    latest = {key: index for index, key in enumerate(found)}

    order = compiled.latest_in_order(b"".join(found), ints(starts), ints(sizes))

    assert order.tolist() == [latest[key] for key in sorted(latest)]


@TWINS
def test_rows_without_room_or_beyond_the_payload_are_refused(kernels: ModuleType) -> None:
    for timestamped, room in ((False, 3), (True, 11)):
        packed(kernels, [(b"ab", b"c", 5)], room=room, at=0, timestamped=timestamped)
        with pytest.raises(ValueError, match="no room"):
            packed(kernels, [(b"ab", b"c", 5)], room=room - 1, at=0, timestamped=timestamped)
    for start, size in ((-1, 1), (0, 4), (3, 1), (2**31 - 1, 2**31 - 1)):
        out, good, bad = np.zeros(9, np.uint8), (ints([0]), ints([1])), (ints([start]), ints([size]))
        for key, value in ((bad, good), (good, bad)):
            with pytest.raises(ValueError, match="beyond"):
                kernels.pack_rows(out, 0, b"abc", key, value, timestamps_ms=None)
        with pytest.raises(ValueError, match="beyond"):
            kernels.latest_in_order(b"abc", ints([start]), ints([size]))


@TWINS
def test_columns_of_different_lengths_are_refused(kernels: ModuleType) -> None:
    one, two = (ints([0]), ints([1])), (ints([0, 0]), ints([1, 1]))
    out = np.zeros(99, np.uint8)
    with pytest.raises(ValueError, match=r"shape|argument"):
        kernels.pack_rows(out, 0, b"abc", one, two, timestamps_ms=None)
    with pytest.raises(ValueError, match=r"columns|argument"):
        kernels.pack_rows(out, 0, b"abc", one, one, timestamps_ms=memoryview(array("q", [1, 2])))
    with pytest.raises(ValueError, match=r"shape|argument"):
        kernels.latest_in_order(b"abc", ints([0, 0]), ints([1]))


def test_chosen_twin_packs_rows() -> None:
    out = np.zeros(4, np.uint8)
    rows = pack_rows(out, 0, b"kv", (ints([0]), ints([1])), (ints([1]), ints([1])), timestamps_ms=None)
    assert (rows.end, out.tobytes()) == (2, b"kv\0\0")
