"""A live segment of a topic with ``preallocate=true``: its end at the zeros, and its damage."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import make_partition, marker, plain, transactional
from tests.log.logs import open_log
from tierd.cost.local_segments import find_partitions
from tierd.errors import CorruptRecordError
from tierd.log import (
    Damage,
    LocalLog,
    Note,
    PartitionScan,
    SegmentFiles,
    build_indexes,
    data_bytes,
    file_name,
    find_log_end_offset,
    first_since,
    identify_directory,
    inspect_path,
    iter_batches,
    last_stable_offset,
    max_timestamp,
    scan_partition,
)
from tierd.log.broker.live_segment import readable_bytes, used_bytes
from tierd.log.files.source import Source, open_source
from tierd.pipeline.source.local_tail import LocalTail

STEP = 1 << 20
SEGMENT = b"".join(plain(i, 2, timestamp_ms=1000 + 10 * i, size=50 * i % 170) for i in range(0, 40, 2))
LAST = plain(40, 2, timestamp_ms=5000, size=300)
TAILS = st.one_of(st.integers(0, 200), st.sampled_from([4095, 4096, 4097, STEP, STEP + 5000]))


def write(folder: Path, content: bytes, room: int = 0, *, indexed: bool = True, base: int = 0) -> Path:
    """Write a partition whose active segment has ``content`` and then a hole of ``room`` bytes, as a broker does."""
    directory = make_partition(folder, {0: b""} if base == 0 else {0: plain(0), base: b""})
    path = directory.path / file_name(base, ".log")
    path.write_bytes(content)
    if indexed:
        offsets, times = build_indexes(path, base_offset=base, index_interval_bytes=300)
        path.with_suffix(".index").write_bytes(offsets + bytes(8 * 100))
        path.with_suffix(".timeindex").write_bytes(times + bytes(12 * 100))
    with path.open("r+b") as file:
        file.truncate(len(content) + room)
    return path


@pytest.mark.parametrize("left", ["the data", "a part of the data", "nothing"])
@pytest.mark.parametrize("room", [100, 4096, STEP + 5000])
def test_file_that_is_cut_while_its_end_is_looked_for_ends_with_what_is_left(
    tmp_path: Path, room: int, left: str
) -> None:
    path = write(tmp_path, SEGMENT + LAST, room)
    size_bytes = {"the data": len(SEGMENT + LAST), "a part of the data": len(SEGMENT), "nothing": 0}[left]
    with open_source(path) as source:
        with path.open("r+b") as file:
            file.truncate(size_bytes)
        assert readable_bytes(source, make_scan(path).segments[-1]) == size_bytes


def test_log_is_read_while_the_broker_cuts_the_unused_room_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, SEGMENT + LAST, 8192)

    def cut_at_the_first_look(source: Source, position: int, size: int) -> bytes:
        if position > len(SEGMENT + LAST):
            with path.open("r+b") as file:
                file.truncate(len(SEGMENT + LAST))
        return read(source, position, size)

    read = Source.read
    monkeypatch.setattr(Source, "read", cut_at_the_first_look)
    assert read_all(path) == list(range(42))


def read_all(path: Path, *, end: int | None = None) -> list[int]:
    directory = make_scan(path)
    end = find_log_end_offset(directory) if end is None else end
    log = LocalLog(directory, high_watermark=end, last_stable_offset=end)
    found: list[int] = []
    at = 0
    while at < end and (data := log.read(at, max_bytes=1 << 20)):
        found += [record.offset for batch in iter_batches(data, name="read") for record in batch.records()]
        at = found[-1] + 1
    return found


def make_scan(path: Path) -> PartitionScan:
    directory = identify_directory(path.parent)
    assert directory is not None
    return scan_partition(directory)


def active(path: Path) -> SegmentFiles:
    return make_scan(path).segments[-1]


@settings(max_examples=60, deadline=None)
@given(room=TAILS, indexed=st.booleans())
def test_live_segment_ends_at_zeros_of_any_length(
    tmp_path_factory: pytest.TempPathFactory, room: int, indexed: bool
) -> None:
    path = write(tmp_path_factory.mktemp("log"), SEGMENT + LAST, room, indexed=indexed)
    scan = make_scan(path)
    assert data_bytes(scan.segments[-1]) == len(SEGMENT + LAST)
    assert find_log_end_offset(scan) == 42
    assert read_all(path) == list(range(42))
    assert last_stable_offset(scan, high_watermark=42) == 42
    found = first_since(scan, 1000 + 10 * 30, start=0, end=42)
    assert found is not None
    assert found.offset == 30
    assert first_since(scan, 9000, start=0, end=42) is None
    latest = max_timestamp(scan, end=42)
    assert latest is not None
    assert latest.offset == 41
    findings = list(inspect_path(path, records=True))
    assert [each for each in findings if isinstance(each, Damage)] == []


@settings(max_examples=80, deadline=None)
@given(cut=st.integers(0, len(LAST) - 1), room=TAILS)
def test_batch_that_is_still_being_written_is_not_returned(
    tmp_path_factory: pytest.TempPathFactory, cut: int, room: int
) -> None:
    """The file has the size of the whole segment from the start: no size shows that a batch is incomplete."""
    path = write(tmp_path_factory.mktemp("log"), SEGMENT + LAST[:cut], len(LAST) - cut + room, indexed=False)
    is_whole = not any(LAST[cut:])
    assert find_log_end_offset(make_scan(path)) == (42 if is_whole else 40)
    assert read_all(path) == list(range(42 if is_whole else 40))
    assert last_stable_offset(make_scan(path), high_watermark=40) == 40
    damage = [each for each in inspect_path(path) if isinstance(each, Damage)]
    assert len(damage) == (0 if is_whole or not any(LAST[:cut]) else 1)


@given(content=st.binary(max_size=50), hole=st.integers(0, 3 * STEP), rest=st.binary(max_size=5), room=TAILS)
@settings(max_examples=60, deadline=None)
def test_used_bytes_end_behind_the_last_byte_that_is_not_zero(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, hole: int, rest: bytes, room: int
) -> None:
    path = tmp_path_factory.mktemp("file") / "x.log"
    with path.open("wb") as file:
        file.write(content)
        file.seek(hole, 1)
        file.write(rest)
        file.truncate(file.tell() + room)
    with open_source(path) as source:
        assert used_bytes(source) == len(path.read_bytes().rstrip(b"\0"))


def test_written_zeros_at_the_end_are_unused_like_a_hole(tmp_path: Path) -> None:
    path = write(tmp_path, SEGMENT)
    with path.open("ab") as file:
        file.write(bytes(3 * STEP))
    assert data_bytes(active(path)) == len(SEGMENT)


def test_preallocated_segment_without_data_is_empty(tmp_path: Path) -> None:
    path = write(tmp_path, b"", STEP)
    assert find_log_end_offset(make_scan(path)) == 0
    assert data_bytes(active(path)) == 0
    assert [each for each in inspect_path(path) if isinstance(each, Damage)] == []


@pytest.mark.parametrize("hole", [13, 61, 5000])
def test_zeros_before_further_batches_are_damage(tmp_path: Path, hole: int) -> None:
    content = SEGMENT + bytes(hole) + LAST
    path = write(tmp_path, content, STEP, indexed=False)
    with pytest.raises(CorruptRecordError, match=f"position {len(SEGMENT)}"):
        find_log_end_offset(make_scan(path))
    with pytest.raises(CorruptRecordError):
        last_stable_offset(make_scan(path), high_watermark=42)
    assert [each.position for each in inspect_path(path) if isinstance(each, Damage)] == [len(SEGMENT)]


def test_zeros_at_the_end_of_a_rolled_segment_are_damage(tmp_path: Path) -> None:
    """A broker cuts the zeros off before it begins the next segment, and at its start after a crash."""
    directory = make_partition(tmp_path, {0: SEGMENT + bytes(100), 40: LAST})
    with pytest.raises(CorruptRecordError):
        last_stable_offset(scan_partition(directory), high_watermark=42)
    assert [each.position for each in inspect_path(directory.path) if isinstance(each, Damage) and each.position] == [
        len(SEGMENT)
    ]


def test_flipped_bit_in_the_last_batch_before_zeros_is_damage(tmp_path: Path) -> None:
    spoilt = bytearray(LAST)
    spoilt[len(LAST) // 2] ^= 1
    spoilt[-1] |= 0x80
    path = write(tmp_path, SEGMENT + bytes(spoilt), STEP, indexed=False)
    with pytest.raises(CorruptRecordError, match="checksum"):
        read_all(path)


def test_open_transaction_in_a_preallocated_segment_holds_the_stable_offset(tmp_path: Path) -> None:
    content = plain(0, 5) + transactional(5, 7) + marker(6, 7, commit=True) + transactional(7, 8)
    path = write(tmp_path, content, 5 * STEP)
    assert last_stable_offset(make_scan(path), high_watermark=8) == 7
    # the high watermark may be ahead of what was seen when the file was opened
    assert last_stable_offset(make_scan(path), high_watermark=100) == 7


def test_inspection_notes_unused_bytes_and_still_compares_the_indexes(tmp_path: Path) -> None:
    path = write(tmp_path, SEGMENT, STEP)
    index = bytearray(path.with_suffix(".index").read_bytes())
    index[7] ^= 4
    path.with_suffix(".index").write_bytes(index)
    findings = list(inspect_path(path.parent))
    assert [each.text for each in findings if isinstance(each, Note) and "room" in each.text] == [
        f"{STEP} bytes of unused room behind the data (preallocate=true)"
    ]
    assert any(isinstance(each, Damage) and each.path.suffix == ".index" for each in findings)
    assert [each for each in inspect_path(path.parent, deep=True) if isinstance(each, Damage) and each.position] == []


def test_estimate_counts_data_without_the_unused_bytes_behind_it(tmp_path: Path) -> None:
    write(tmp_path, SEGMENT, 50 * STEP)
    (partition,) = find_partitions(tmp_path, lambda _: True)
    assert [segment.size_bytes for segment in partition.segments] == [len(SEGMENT)]


@pytest.mark.parametrize("room", [5, 17, 61, 3 * STEP])
def test_recovery_after_a_crash_ends_a_log_where_its_data_end(tmp_path: Path, room: int) -> None:
    path = write(tmp_path, SEGMENT + LAST, room)
    log = open_log(tmp_path, clean=False)
    assert log.log_end_offset == 42
    assert path.stat().st_size == len(SEGMENT + LAST)
    log.close()


def test_local_tail_of_spark_reads_and_measures_data_only(tmp_path: Path) -> None:
    path = write(tmp_path, SEGMENT + LAST, 50 * STEP)
    tail = LocalTail(make_scan(path), 42, 42, None)
    assert tail.size_bytes(0) == len(SEGMENT + LAST)
    read = [r.offset for piece in tail.pieces(0, 42) for b in iter_batches(piece, name="piece") for r in b.records()]
    assert read == list(range(42))
