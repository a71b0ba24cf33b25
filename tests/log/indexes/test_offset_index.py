import random
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.errors import CorruptIndexError
from tierd.log import OffsetIndex
from tierd.log.files.source import open_source
from tierd.log.indexes.index_lookup import lookup_offset

BASE = 45


def encode(*entries: tuple[int, int], base: int = BASE) -> bytes:
    return b"".join(struct.pack(">ii", offset - base, position) for offset, position in entries)


def index_of(*entries: tuple[int, int]) -> OffsetIndex:
    return OffsetIndex.from_bytes(encode(*entries), BASE, "file")


def on_disk(folder: Path, data: bytes, offset: int) -> tuple[int, int]:
    (folder / "x.index").write_bytes(data)
    with open_source(folder / "x.index") as source:
        return lookup_offset(source, base_offset=BASE, offset=offset)


@pytest.mark.spec("log-format REC-50")
def test_golden_entry_is_decoded() -> None:
    (entry,) = OffsetIndex.from_bytes(bytes.fromhex("0000000e00001068"), 100, "file").entries()
    assert entry == (114, 4200)


@pytest.mark.spec("log-format IDX-01")
def test_lookup_in_an_empty_index_returns_the_base_offset_at_position_0(tmp_path: Path) -> None:
    assert index_of().lookup(92) == (BASE, 0)
    assert on_disk(tmp_path, b"", 92) == (BASE, 0)


@pytest.mark.spec("log-format IDX-02")
@pytest.mark.spec("log-format IDX-03")
def test_lookup_returns_the_largest_entry_at_or_below_an_offset(tmp_path: Path) -> None:
    rng = random.Random(3)
    offsets = sorted(rng.sample(range(BASE + 1, BASE + 500), 40))
    entries = [(offset, 10 * i + 1) for i, offset in enumerate(offsets)]
    index = index_of(*entries)
    for target in range(BASE, BASE + 510):
        expected = max((e for e in entries if e[0] <= target), default=(BASE, 0))
        assert index.lookup(target) == expected
        assert on_disk(tmp_path, encode(*entries) + bytes(800), target) == expected


@pytest.mark.spec("log-format IDX-04")
def test_entries_are_counted_and_numbered() -> None:
    index = index_of((46, 10), (47, 23))
    assert (len(index), index[1]) == (2, (47, 23))
    with pytest.raises(IndexError):
        _ = index[2]


@pytest.mark.spec("log-format IDX-07")
def test_upper_bound_of_a_read_is_the_next_entry_behind_the_read() -> None:
    index = index_of((45, 0), (46, 10), (47, 23), (48, 37))
    asked = [(0, 5), (0, 10), (0, 22), (0, 23), (0, 200), (10, 24), (37, 1)]
    bounds = [index.upper_bound(position, size) for position, size in asked]
    assert [bound and bound.offset for bound in bounds] == [46, 46, 47, 47, None, 48, None]


@pytest.mark.spec("log-format IDX-10")
def test_an_entry_at_the_base_offset_is_sound() -> None:
    assert index_of((BASE, 70)).lookup(BASE) == (BASE, 70)


def test_zeros_of_unused_room_at_the_end_are_no_entries() -> None:
    data = encode((50, 256), (51, 512))
    assert list(OffsetIndex.from_bytes(data + bytes(4096), BASE, "file").entries()) == [(50, 256), (51, 512)]


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 7 + b"\1" + b"\0",
        encode((50, 10), (50, 20)),
        encode((51, 10), (50, 20)),
        encode((50, 20), (51, 20)),
        encode((50, 20), (51, 10)),
        encode((44, 10)),
        encode((50, -10)),
        bytes(8) + encode((50, 10)) + b"x",
    ],
)
def test_entries_that_do_not_increase_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptIndexError, match=r"^file: "):
        OffsetIndex.from_bytes(data, BASE, "file")


@given(st.binary(max_size=80), st.integers(0, 2**63 - 1))
def test_index_of_any_bytes_is_looked_up_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, offset: int
) -> None:
    found = on_disk(tmp_path_factory.getbasetemp(), data, offset)
    assert found[1] >= 0
    try:
        index = OffsetIndex.from_bytes(data, BASE, "file")
    except CorruptIndexError:
        return
    assert index.lookup(offset).position <= 2**31
    if offset >= BASE:
        assert index.lookup(offset).offset <= offset or not len(index)
