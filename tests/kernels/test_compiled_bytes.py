"""Copies of bytes between arrays, which numba compiles to a memmove and does not check."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tierd.kernels.compiled.varints import write_bytes

_NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-3, 80)


def _array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint8)


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300), st.integers(0, 20), st.integers(0, 20))
def test_copied_bytes_stand_at_their_place_and_nothing_else_changes(
    data: bytes, first: int, second: int, before: int, after: int
) -> None:
    start, end = sorted((min(first, len(data)), min(second, len(data))))
    out = np.full(before + end - start + after, 0xEE, dtype=np.uint8)
    assert write_bytes(out, before, _array(data), start, end) == before + end - start
    assert out.tobytes() == b"\xee" * before + data[start:end] + b"\xee" * after


@example(b"abc", 5, (1 << 63) - 1, 0, 3)
@example(b"abc", 5, 0, 1, -(1 << 63))
@example(b"abc", 5, -1, 0, 3)
@given(st.binary(max_size=70), st.integers(0, 70), _NUMBERS, _NUMBERS, _NUMBERS)
def test_bytes_outside_of_either_array_are_refused_and_change_nothing(
    data: bytes, room: int, at: int, start: int, end: int
) -> None:
    out = np.full(room, 0xEE, dtype=np.uint8)
    if 0 <= start <= end <= len(data) and 0 <= at <= room - (end - start):
        assert write_bytes(out, at, _array(data), start, end) == at + end - start
        return
    with pytest.raises(ValueError, match="bytes outside of an array"):
        write_bytes(out, at, _array(data), start, end)
    assert out.tobytes() == b"\xee" * room


def test_bytes_are_copied_within_one_array_where_the_places_overlap() -> None:
    out = np.arange(32, dtype=np.uint8)
    write_bytes(out, 4, out, 0, 16)
    assert out[4:20].tolist() == list(range(16))
