"""Hashes of a segment's keys: what was encoded comes back, and every change of it is refused."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import CorruptIndexError
from tierd.log import KEY_ROW_BYTES, KeyHashes, key_secret_id

BASE = 1 << 40
SECRET = bytes(range(16))
INT64 = st.integers(-(2**63), 2**63 - 1)
ROWS = st.dictionaries(st.integers(0, 2**32 - 1), st.tuples(INT64, INT64), max_size=20)


def hashes_of(rows: dict[int, tuple[int, int]]) -> KeyHashes:
    hi, lo = (np.array([rows[distance][half] for distance in sorted(rows)], dtype=np.int64) for half in (0, 1))
    return KeyHashes(key_secret_id(SECRET), BASE, hi, lo, np.array(sorted(rows), dtype=np.uint32))


ENCODED = hashes_of({3: (1, 2), 7: (-1, -2)}).to_bytes()


def parse(data: bytes, *, base_offset: int = BASE, end_offset: int | None = BASE + 7) -> KeyHashes | None:
    return KeyHashes.from_bytes(data, base_offset, "orders-0 hashes", end_offset=end_offset)


@given(ROWS)
def test_hashes_come_back_as_they_were_encoded(rows: dict[int, tuple[int, int]]) -> None:
    hashes = hashes_of(rows)
    assert hashes.size_bytes == len(hashes.to_bytes())
    found = KeyHashes.from_bytes(hashes.to_bytes(), BASE, "hashes", end_offset=BASE + max(rows, default=0))
    assert found is not None
    assert (len(found), found.secret_id, found.base_offset) == (len(rows), key_secret_id(SECRET), BASE)
    assert found.hi.tolist() == [rows[distance][0] for distance in sorted(rows)]
    assert found.lo.tolist() == [rows[distance][1] for distance in sorted(rows)]
    assert found.offsets(slice(None)).tolist() == [BASE + distance for distance in sorted(rows)]


def test_layout_is_that_of_the_format() -> None:
    header = struct.pack("<B3x8sIq", 1, key_secret_id(SECRET), 2, BASE)
    assert header + struct.pack("<4q2I", 1, -1, 2, -2, 3, 7) == ENCODED


@pytest.mark.parametrize("size", range(len(ENCODED)))
def test_cut_hashes_are_refused(size: int) -> None:
    with pytest.raises(CorruptIndexError, match="orders-0 hashes"):
        parse(ENCODED[:size])


@pytest.mark.parametrize(
    ("position", "value"),
    [(0, 0), (1, 1), (3, 9), (12, 1), (12, 3), (16, 1), (len(ENCODED) - 8, 7), (len(ENCODED) - 8, 9)],
    ids=["version", "zeros", "last of the zeros", "too few", "too many", "base", "equal offsets", "falling offsets"],
)
def test_hashes_that_contradict_themselves_are_refused(position: int, value: int) -> None:
    changed = bytearray(ENCODED)
    changed[position] = value
    with pytest.raises(CorruptIndexError, match="orders-0 hashes"):
        parse(bytes(changed))


def test_hashes_of_another_place_are_refused() -> None:
    with pytest.raises(CorruptIndexError, match=f"base offset {BASE}, the segment's is {BASE + 1}"):
        parse(ENCODED, base_offset=BASE + 1)
    with pytest.raises(CorruptIndexError, match=f"offset {BASE + 7} is behind the segment's end"):
        parse(ENCODED, end_offset=BASE + 6)
    with pytest.raises(CorruptIndexError):
        parse(ENCODED + bytes(KEY_ROW_BYTES))


def test_a_later_version_is_not_used_and_is_no_damage() -> None:
    assert parse(b"\x02" + ENCODED[1:]) is None
    assert parse(b"\x02") is None


def test_the_id_of_a_secret_is_one_way_and_its_own() -> None:
    assert len(key_secret_id(SECRET)) == 8
    assert key_secret_id(SECRET) not in (SECRET[:8], SECRET[8:], key_secret_id(bytes(16)))
