import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import CorruptIndexError
from tierd.log import TimeIndex
from tierd.model import TimestampOffset

BASE = 45


def encode(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", timestamp, offset - BASE) for timestamp, offset in entries)


@pytest.mark.spec("log-format REC-50")
def test_golden_entry_is_decoded() -> None:
    index = TimeIndex.from_bytes(bytes.fromhex("0000018bcfe5687b00000009"), 100, "file")
    assert index.entries == (TimestampOffset(1700000000123, 109),)


@pytest.mark.spec("log-format IDX-12")
def test_lookup_in_an_empty_index_returns_the_base_offset_without_a_timestamp() -> None:
    assert TimeIndex.from_bytes(b"", BASE, "file").lookup(100) == TimestampOffset(-1, BASE)


@pytest.mark.parametrize(("size_bytes", "entries"), [(0, ()), (12, (TimestampOffset(0, BASE),)), (24, ()), (240, ())])
def test_zeros_are_the_entry_of_timestamp_0_where_there_is_no_unused_room(
    size_bytes: int, entries: tuple[TimestampOffset, ...]
) -> None:
    index = TimeIndex.from_bytes(bytes(size_bytes), BASE, "file")
    assert index.entries == entries
    assert index.size_bytes == 12 * len(entries)


@pytest.mark.spec("log-format IDX-13")
def test_lookup_returns_the_largest_entry_at_or_below_a_timestamp() -> None:
    index = TimeIndex.from_bytes(encode((10, 55), (20, 65), (30, 75)) + bytes(120), BASE, "file")
    assert [index.lookup(t) for t in (9, 25, 30)] == [
        TimestampOffset(-1, BASE),
        TimestampOffset(20, 65),
        TimestampOffset(30, 75),
    ]
    assert len(index) == 3


@pytest.mark.spec("log-format IDX-16")
@pytest.mark.parametrize(
    "data",
    [
        encode((10, 55)) + b"x",
        encode((20, 55), (10, 65)),
        encode((10, 55), (10, 65)),
        encode((10, 55), (20, 50)),
        encode((10, 44)),
    ],
)
def test_entries_that_do_not_increase_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError, match=r"^file: "):
        TimeIndex.from_bytes(data, BASE, "file")


@given(st.binary(max_size=80), st.integers(-(2**63), 2**63 - 1))
def test_index_of_any_bytes_is_looked_up_or_refused(data: bytes, timestamp: int) -> None:
    try:
        index = TimeIndex.from_bytes(data, BASE, "file")
    except CorruptIndexError:
        return
    assert index.lookup(timestamp).offset >= BASE
