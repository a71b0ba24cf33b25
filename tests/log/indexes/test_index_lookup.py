import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import SegmentChangedError
from tierd.log.indexes.index_lookup import lookup_offset, lookup_timestamp, lookup_upper_bound
from tierd.log.indexes.offset_index import OffsetIndex
from tierd.log.indexes.time_index import TimeIndex
from tierd.model import TimestampOffset

BASE = 100


class Bytes:
    """A ``Readable`` in memory."""

    path = Path("index")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size_bytes = len(data)

    def read(self, position: int, size: int) -> bytes:
        return self.data[position : position + size]

    def read_into(self, target: memoryview, position: int) -> None:
        target[:] = self.data[position : position + len(target)]

    def changed(self) -> SegmentChangedError:
        return SegmentChangedError("index")


numbers = st.lists(st.integers(1, 60), max_size=12, unique=True).map(sorted)


@given(numbers, st.sampled_from([0, 2, 3]), st.integers(90, 170))
def test_offset_lookup_in_a_file_agrees_with_the_loaded_index(offsets: list[int], room: int, wanted: int) -> None:
    data = b"".join(struct.pack(">ii", offset, 10 * n) for n, offset in enumerate(offsets))
    loaded = OffsetIndex.from_bytes(data, BASE, "index")
    source = Bytes(data + bytes(8 * room))
    assert lookup_offset(source, base_offset=BASE, offset=wanted) == loaded.lookup(wanted)


@given(numbers, st.sampled_from([0, 2, 3]), st.integers(0, 70), st.integers(0, 70))
def test_upper_bound_in_a_file_agrees_with_the_loaded_index(
    positions: list[int], room: int, start: int, size: int
) -> None:
    data = b"".join(struct.pack(">ii", 5 * n + 1, position) for n, position in enumerate(positions))
    loaded = OffsetIndex.from_bytes(data, BASE, "index")
    source = Bytes(data + bytes(8 * room))
    found = lookup_upper_bound(source, base_offset=BASE, position=start, size_bytes=size)
    assert found == loaded.upper_bound(start, size)


@given(numbers, st.sampled_from([0, 2, 3]), st.integers(-1, 70))
def test_timestamp_lookup_in_a_file_agrees_with_the_loaded_index(timestamps: list[int], room: int, wanted: int) -> None:
    data = b"".join(struct.pack(">qi", timestamp, n) for n, timestamp in enumerate(timestamps))
    loaded = TimeIndex.from_bytes(data, BASE, "index")
    source = Bytes(data + bytes(12 * room))
    assert lookup_timestamp(source, base_offset=BASE, timestamp_ms=wanted) == loaded.lookup(wanted)


@given(st.binary(max_size=100), st.integers(-(2**63), 2**63 - 1))
def test_lookups_in_an_index_of_any_bytes_return(data: bytes, wanted: int) -> None:
    source = Bytes(data)
    lookup_offset(source, base_offset=BASE, offset=wanted)
    lookup_upper_bound(source, base_offset=BASE, position=abs(wanted), size_bytes=1)
    lookup_timestamp(source, base_offset=BASE, timestamp_ms=wanted)


def test_time_index_of_one_zero_entry_has_an_entry_and_of_two_has_none() -> None:
    assert lookup_timestamp(Bytes(bytes(12)), base_offset=BASE, timestamp_ms=5) == TimestampOffset(0, BASE)
    assert lookup_timestamp(Bytes(bytes(24)), base_offset=BASE, timestamp_ms=5) == TimestampOffset(-1, BASE)
