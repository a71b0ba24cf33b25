import os
import struct
import tracemalloc
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import batch, legacy, marker, plain, transactional, wrapper
from tierd.errors import CorruptRecordError, LogDirOfflineError, SegmentChangedError
from tierd.kernels import crc32c_of_file
from tierd.log import Compression, SegmentCheckResult, check_segment
from tierd.model import CHECKSUM_BLOCK_BYTES, EpochEntry


def check(folder: Path, data: bytes, *, base: int = 0, end: int | None = None) -> SegmentCheckResult:
    path = folder / "segment.log"
    path.write_bytes(data)
    return check_segment(path, base_offset=base, next_base_offset=end)


def test_check_of_a_sound_segment_returns_its_sizes_counts_and_epochs(tmp_path: Path) -> None:
    data = (
        plain(10, 5, timestamp_ms=500)
        + plain(15, 1, timestamp_ms=400, epoch=2)
        + plain(20, 2, timestamp_ms=504, epoch=2)
    )
    found = check(tmp_path, data, base=10, end=30)
    assert (found.size_bytes, found.batch_count, found.record_count) == (len(data), 3, 8)
    assert (found.first_offset, found.last_offset) == (10, 21)
    assert (found.max_timestamp_ms, found.shallow_offset_of_max_timestamp) == (505, 21)
    assert found.epochs == (EpochEntry(0, 10), EpochEntry(2, 15))
    assert crc32c_of_file(found.checksums) == crc32c(data)


def test_largest_timestamp_belongs_to_the_earliest_batch_that_has_it(tmp_path: Path) -> None:
    found = check(tmp_path, plain(0, 2, timestamp_ms=100) + plain(2, 2, timestamp_ms=100))
    assert (found.max_timestamp_ms, found.shallow_offset_of_max_timestamp) == (101, 1)


def test_an_empty_segment_is_sound(tmp_path: Path) -> None:
    found = check(tmp_path, b"", base=7, end=9)
    assert (found.batch_count, found.first_offset, found.last_offset, found.max_timestamp_ms) == (0, -1, -1, -1)
    assert found.checksums.crc32c == ()


def test_batches_that_compaction_emptied_are_sound_and_their_last_offset_counts(tmp_path: Path) -> None:
    found = check(tmp_path, plain(0) + batch(5, [], last_offset_delta=4))
    assert (found.batch_count, found.record_count, found.last_offset) == (2, 1, 9)


def test_check_reports_transactions_and_abort_markers(tmp_path: Path) -> None:
    assert not check(tmp_path, plain(0)).has_transactions
    committed = check(tmp_path, transactional(0, 7) + marker(1, 7, commit=True))
    assert (committed.has_transactions, committed.has_abort_markers) == (True, False)
    assert check(tmp_path, transactional(0, 7) + marker(1, 7, commit=False)).has_abort_markers


def test_check_reports_the_highest_producer_id(tmp_path: Path) -> None:
    assert check(tmp_path, plain(0)).highest_producer_id == -1
    data = transactional(0, 7) + marker(1, 7, commit=True) + transactional(2, 5) + plain(3)
    assert check(tmp_path, data).highest_producer_id == 7


DAMAGED = {
    "crc": (plain(0) + plain(1)[:-1] + b"!", len(plain(0))),
    "torn batch": (plain(0) + plain(1)[:-1], len(plain(0))),
    "torn header": (plain(0) + plain(1)[:30], len(plain(0))),
    "a few bytes": (plain(0) + b"abc", len(plain(0))),
    "zero tail": (plain(0) + bytes(4096), len(plain(0))),
    "short zero tail": (plain(0) + bytes(10), len(plain(0))),
    "magic": (plain(0) + plain(1)[:16] + b"\x07" + plain(1)[17:], len(plain(0))),
    "offset again": (plain(0, 3) + plain(2), len(plain(0, 3))),
    "below the base": (plain(-1 & 0) + plain(0), len(plain(0))),
    "behind the end": (plain(0) + plain(50), len(plain(0))),
    "length": (struct.pack(">qi", 0, 30) + plain(0)[12:], 0),
    "negative length": (struct.pack(">qi", 0, -5) + plain(0)[12:], 0),
    "huge length": (struct.pack(">qi", 0, 2**31 - 1) + plain(0)[12:], 0),
    "negative delta": (batch(5, [(0, None, None)], last_offset_delta=-2), 0),
    "negative count": (batch(5, [], count=-3), 0),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_named_with_its_position(tmp_path: Path, name: str) -> None:
    data, position = DAMAGED[name]
    with pytest.raises(CorruptRecordError, match=rf"segment\.log: .* at position {position}$") as caught:
        check(tmp_path, data, end=50)
    assert caught.value.position == position


def test_an_offset_that_no_index_can_express_is_damage(tmp_path: Path) -> None:
    with pytest.raises(CorruptRecordError):
        check(tmp_path, plain(2**31))
    assert check(tmp_path, plain(2**31 - 1)).last_offset == 2**31 - 1


def test_batches_across_the_bounds_of_blocks_are_checked(tmp_path: Path) -> None:
    sizes = (100, 4000, 5000, 70_000, CHECKSUM_BLOCK_BYTES - 10, 3 * CHECKSUM_BLOCK_BYTES, 61)
    data, offset = bytearray(), 0
    for _ in range(3):
        for size in sizes:
            data += batch(offset, [(offset, None, os.urandom(size))])
            offset += 1
    found = check(tmp_path, bytes(data))
    assert (found.batch_count, found.last_offset) == (offset, offset - 1)
    assert crc32c_of_file(found.checksums) == crc32c(data)
    assert len(found.checksums.crc32c) == -(-len(data) // CHECKSUM_BLOCK_BYTES)
    for at in (CHECKSUM_BLOCK_BYTES + 5, 2 * CHECKSUM_BLOCK_BYTES - 1, len(data) - 1):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        with pytest.raises(CorruptRecordError):
            check(tmp_path, bytes(damaged))


@given(
    st.integers(CHECKSUM_BLOCK_BYTES - 400, CHECKSUM_BLOCK_BYTES), st.lists(st.integers(1, 300), min_size=2, max_size=6)
)
@settings(max_examples=60, deadline=None)
def test_batches_of_any_size_are_counted_and_summed_across_blocks(
    tmp_path_factory: pytest.TempPathFactory, first: int, others: list[int]
) -> None:
    data = b"".join(batch(i, [(i, None, bytes(size))]) for i, size in enumerate([first, *others]))
    found = check(tmp_path_factory.mktemp("cut"), data)
    assert found.batch_count == 1 + len(others)
    assert crc32c_of_file(found.checksums) == crc32c(data)


def test_memory_does_not_grow_with_the_segment(tmp_path: Path) -> None:
    path = tmp_path / "segment.log"
    with path.open("wb") as file:
        for offset in range(16):
            file.write(batch(offset, [(0, None, bytes(4 << 20))]))
    tracemalloc.start()
    try:
        check_segment(path, base_offset=0, next_base_offset=None)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 << 20


@pytest.mark.parametrize("magic", [0, 1])
def test_entries_of_old_formats_and_their_wrappers_are_checked(tmp_path: Path, magic: int) -> None:
    inner = b"".join(legacy(magic, 1 + i if magic == 0 else i, b"k", b"v") for i in range(3))
    data = legacy(magic, 0, b"k", None) + wrapper(magic, 3, inner) + plain(4, 2) + legacy(magic, 6, None, b"")
    found = check(tmp_path, data, end=7)
    assert (found.batch_count, found.record_count, found.first_offset, found.last_offset) == (4, 7, 0, 6)
    assert (found.min_magic, found.epochs) == (magic, (EpochEntry(0, 4),))
    for at in (len(data) - 1, 17 + 20, len(legacy(magic, 0, b"k", None)) + 60):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(CorruptRecordError):
            check(tmp_path, bytes(damaged), end=7)


def test_entries_of_old_formats_are_checked_across_blocks(tmp_path: Path) -> None:
    inner = b"".join(legacy(1, i, None, os.urandom(1000)) for i in range(3000))
    data = b"".join(wrapper(1, 3000 * (i + 1) - 1, inner, codec=Compression.SNAPPY) for i in range(2)) + plain(6000)
    found = check(tmp_path, data)
    assert (found.batch_count, found.record_count, found.last_offset) == (3, 6001, 6000)


def test_segment_is_checked_by_a_link_or_descriptor_with_another_name(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(plain(5))
    linked = tmp_path / "held-by-link"
    linked.hardlink_to(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        path.unlink()
        for held in (linked, Path(f"/proc/self/fd/{fd}")):
            assert check_segment(held, base_offset=5, next_base_offset=6).record_count == 1
    finally:
        os.close(fd)


def test_missing_segment_is_reported_as_changed(tmp_path: Path) -> None:
    with pytest.raises(SegmentChangedError):
        check_segment(tmp_path / "gone.log", base_offset=0, next_base_offset=None)


def test_segment_that_shrinks_during_the_check_is_reported_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(batch(0, [(0, None, bytes(3 << 20))]))
    read = os.preadv

    def shrinking(fd: int, buffers: list[memoryview], offset: int) -> int:
        os.truncate(path, 1000)
        return read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", shrinking)
    with pytest.raises(SegmentChangedError, match="changed while"):
        check_segment(path, base_offset=0, next_base_offset=None)


def test_segment_that_grows_during_the_check_is_reported_as_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(plain(0))
    read = os.preadv

    def growing(fd: int, buffers: list[memoryview], offset: int) -> int:
        with path.open("ab") as file:
            file.write(plain(1))
        return read(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", growing)
    with pytest.raises(SegmentChangedError, match="changed while"):
        check_segment(path, base_offset=0, next_base_offset=None)


def test_path_that_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "link.log").symlink_to(tmp_path / "elsewhere.log")
    (tmp_path / "elsewhere.log").write_bytes(plain(0))
    for path in (tmp_path / "pipe.log", tmp_path / "link.log", tmp_path):
        with pytest.raises(LogDirOfflineError):
            check_segment(path, base_offset=0, next_base_offset=None)


def test_a_failing_disk_takes_the_log_dir_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "segment.log"
    path.write_bytes(plain(0))

    def failing(fd: int, buffers: list[memoryview], offset: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", failing)
    with pytest.raises(LogDirOfflineError, match="Input/output error"):
        check_segment(path, base_offset=0, next_base_offset=None)


SOUND = plain(0, 2) + marker(2, 5, commit=False) + legacy(1, 3, b"k", b"v") + wrapper(0, 4, legacy(0, 4, b"a", b"b"))


@given(
    st.binary(max_size=400)
    | st.builds(
        lambda at, byte, cut: bytes(bytearray(SOUND[:at] + bytes([byte]) + SOUND[at + 1 :])[: len(SOUND) - cut]),
        st.integers(0, 350),
        st.integers(0, 255),
        st.integers(0, 20),
    )
)
@settings(max_examples=300, deadline=None)
def test_check_of_any_bytes_succeeds_or_raises_corrupt_record(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    try:
        found = check(tmp_path_factory.getbasetemp(), data)
    except CorruptRecordError:
        return
    assert found.size_bytes == len(data)
    assert crc32c_of_file(found.checksums) == crc32c(data)
