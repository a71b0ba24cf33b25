"""The walk over a segment, and its two inlined twins: the check before a copy and the recovery after a crash."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import batch, legacy, marker, plain, transactional, wrapper
from tests.log.producer_steps import manager_of
from tests.log.segmented_logs import NOW_MS
from tierd.errors import CorruptRecordError, OffsetOverflowError
from tierd.log.broker.check import check_segment
from tierd.log.files.disk import OsDisk
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.files.source import open_source
from tierd.log.records.batch_header import BatchHeader
from tierd.log.records.batch_walk import BatchFault, DamagedBatch, NoBatch, walk
from tierd.log.records.log_config import MAX_INT, LogConfig
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.segment_recovery import recover_segment
from tierd.model import EpochEntry, TimestampOffset

BASE, NEXT_BASE = 100, 5000

T = TypeVar("T")


def walked(
    path: Path, *, next_base_offset: int | None = NEXT_BASE, end: int | None = None
) -> list[BatchHeader | DamagedBatch | NoBatch]:
    with open_source(path) as source:
        return list(walk(source, base_offset=BASE, next_base_offset=next_base_offset, end=end))


def written(folder: Path, *batches: bytes) -> Path:
    path = folder / f"{BASE:020d}.log"
    path.write_bytes(b"".join(batches))
    return path


def test_walk_yields_headers_of_a_sound_segment(tmp_path: Path) -> None:
    found = walked(written(tmp_path, plain(100, 2), legacy(1, 102, b"k", b"v"), plain(110)))
    assert [each.base_offset for each in found if isinstance(each, BatchHeader)] == [100, 102, 110]
    assert len(found) == 3


def test_walk_of_an_empty_segment_yields_nothing(tmp_path: Path) -> None:
    assert walked(written(tmp_path)) == []


@pytest.mark.parametrize(
    ("damaged", "faults"),
    [
        (plain(103)[:-1] + b"!", (BatchFault.CHECKSUM,)),
        (plain(101), (BatchFault.OFFSET_AGAIN,)),
        (plain(4998, 3), (BatchFault.OFFSET_OF_NEXT_SEGMENT,)),
        (plain(BASE + MAX_INT + 1), (BatchFault.OFFSET_OF_NEXT_SEGMENT, BatchFault.OFFSET_TOO_FAR)),
        (plain(101)[:-1] + b"!", (BatchFault.CHECKSUM, BatchFault.OFFSET_AGAIN)),
    ],
)
def test_walk_names_every_fault_of_a_batch_and_goes_on(
    tmp_path: Path, damaged: bytes, faults: tuple[BatchFault, ...]
) -> None:
    following = plain(BASE + MAX_INT + 1 + 10)
    _, second, _ = walked(written(tmp_path, plain(100, 3), damaged, following))
    assert isinstance(second, DamagedBatch)
    assert (second.faults, second.expected_offset, second.header.position) == (faults, 103, len(plain(100, 3)))


def test_walk_expects_the_offset_behind_a_damaged_batch(tmp_path: Path) -> None:
    found = walked(written(tmp_path, plain(200), plain(150), plain(151)))
    assert [type(each) for each in found] == [BatchHeader, DamagedBatch, BatchHeader]


@pytest.mark.parametrize("garbage", [b"abc", bytes(4096), plain(101)[:-1], plain(101)[:16] + b"\x07" + plain(101)[17:]])
def test_walk_ends_where_no_batch_begins(tmp_path: Path, garbage: bytes) -> None:
    first, last = walked(written(tmp_path, plain(100), garbage))
    assert isinstance(first, BatchHeader)
    assert isinstance(last, NoBatch)
    assert last.error.position == len(plain(100))


def test_walk_stops_at_the_end_that_it_is_given(tmp_path: Path) -> None:
    path = written(tmp_path, plain(100), bytes(4096))
    assert len(walked(path, end=len(plain(100)))) == 1


# Twins


@dataclass(frozen=True, slots=True)
class Reference:
    """The result of a walk: the sound batches before the first damage, and that damage."""

    sound: list[BatchHeader]
    damage: DamagedBatch | NoBatch | None

    @classmethod
    def of(cls, path: Path, *, next_base_offset: int | None) -> "Reference":
        sound: list[BatchHeader] = []
        for found in walked(path, next_base_offset=next_base_offset):
            if not isinstance(found, BatchHeader):
                return cls(sound, found)
            sound.append(found)
        return cls(sound, None)

    @property
    def damage_position(self) -> int | None:
        match self.damage:
            case None:
                return None
            case DamagedBatch(header):
                return header.position
            case NoBatch(error):
                return error.position

    @property
    def max_timestamp(self) -> TimestampOffset | None:
        """Return the largest timestamp and the last offset of the earliest batch with it; None without a timestamp."""
        largest = max((header.max_timestamp_ms for header in self.sound), default=-1)
        if largest < 0:
            return None
        return TimestampOffset(largest, next(h.last_offset for h in self.sound if h.max_timestamp_ms == largest))

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        found: list[EpochEntry] = []
        for header in self.sound:
            epoch = header.partition_leader_epoch
            if epoch >= 0 and (not found or found[-1].epoch != epoch):
                found.append(EpochEntry(epoch, header.base_offset))
        return tuple(found)


def records_of(size: int) -> Callable[[int], bytes]:
    def encode(offset: int) -> bytes:
        return plain(offset, 1 + offset % 3, timestamp_ms=1000 + 7 * offset % 50, size=size, epoch=offset % 4)

    return encode


SIMPLE: list[Callable[[int], bytes]] = [
    *map(records_of, [0, 10, 300, 5000]),
    lambda offset: batch(offset, [], last_offset_delta=3),
    lambda offset: legacy(0, offset, b"k", b"v"),
    lambda offset: legacy(1, offset, b"k", b"v", timestamp_ms=1010),
]
LARGE = records_of((1 << 20) + 100)
WITH_TRANSACTIONS: list[Callable[[int], bytes]] = [
    *SIMPLE,
    lambda offset: transactional(offset, 7, 2),
    lambda offset: marker(offset, 7, commit=True),
    lambda offset: marker(offset, 7, commit=False),
]
WITH_WRAPPERS: list[Callable[[int], bytes]] = [
    *SIMPLE,
    lambda offset: wrapper(1, offset + 1, b"".join(legacy(1, n, None, b"v") for n in range(2))),
]
STEPS = [0] * 12 + [1, 40, -1, -2, NEXT_BASE, MAX_INT]


@st.composite
def segments(draw: st.DrawFn, kinds: list[Callable[[int], bytes]]) -> bytes:
    """Draw a log of any kinds of batches: sound, with offsets out of order, with changed or with missing bytes."""
    data, offset = bytearray(), BASE
    steps = STEPS if draw(st.booleans()) else [0, 0, 0, 5]
    for _ in range(draw(st.integers(0, 8))):
        offset = max(0, offset + draw(st.sampled_from(steps)))
        kind = draw(st.sampled_from(kinds)) if draw(st.integers(0, 60)) else LARGE
        data += kind(offset)
        offset += 4
    for _ in range(draw(st.sampled_from([0, 0, 1, 2])) if data else 0):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    end = len(data) - draw(st.sampled_from([0, 0, 0, 1, 30, 70]))
    return bytes(data[: max(end, 0)]) + draw(st.sampled_from([b"", b"", b"", b"abc", bytes(100)]))


def outcome(call: Callable[[], T]) -> T | CorruptRecordError:
    try:
        return call()
    except CorruptRecordError as error:
        return error


@given(segments(WITH_TRANSACTIONS), st.sampled_from([NEXT_BASE, None]))
@settings(max_examples=200, deadline=None)
def test_check_finds_the_damage_and_the_facts_that_the_walk_finds(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, next_base_offset: int | None
) -> None:
    path = written(tmp_path_factory.getbasetemp(), data)
    expected = Reference.of(path, next_base_offset=next_base_offset)
    found = outcome(lambda: check_segment(path, base_offset=BASE, next_base_offset=next_base_offset))
    if isinstance(found, CorruptRecordError):
        assert found.position == expected.damage_position
        return
    assert expected.damage is None
    sound = expected.sound
    assert found.batch_count == len(sound)
    assert found.record_count == sum(header.record_count for header in sound)
    assert found.first_offset == (sound[0].base_offset if sound else -1)
    assert found.last_offset == (sound[-1].last_offset if sound else -1)
    largest = expected.max_timestamp or TimestampOffset(-1, -1)
    assert (found.max_timestamp_ms, found.shallow_offset_of_max_timestamp) == (largest.timestamp_ms, largest.offset)
    assert found.epochs == expected.epochs
    assert found.has_transactions == any(header.is_transactional for header in sound)
    assert found.min_magic == min((header.magic for header in sound), default=2)


@given(segments(WITH_WRAPPERS))
@settings(max_examples=200, deadline=None)
def test_recovery_cuts_a_segment_where_the_walk_finds_damage(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("crashed")
    path = written(folder, data)
    expected = Reference.of(path, next_base_offset=None)
    segment = LogSegment(OsDisk(), folder, BASE, config=LogConfig(), now_ms=NOW_MS)
    producers, epochs = manager_of(folder), LeaderEpochFileCache(OsDisk(), folder)
    producers.update_map_end_offset(BASE)
    try:
        cut = recover_segment(segment, producers=producers, epochs=epochs)
    except OffsetOverflowError:
        assert isinstance(expected.damage, DamagedBatch)
        assert expected.damage.faults == (BatchFault.OFFSET_TOO_FAR,)
        return
    assert len(data) - cut == segment.size_bytes == path.stat().st_size
    assert segment.size_bytes == (len(data) if expected.damage_position is None else expected.damage_position)
    assert segment.max_timestamp_so_far == (expected.max_timestamp or TimestampOffset(-1, BASE))
    rising: list[EpochEntry] = []
    for entry in expected.epochs:
        if not rising or entry.epoch > rising[-1].epoch:
            rising.append(entry)
    assert epochs.lineage.entries == tuple(rising)
    if expected.sound and expected.sound[-1].magic == 2:
        assert producers.map_end_offset == expected.sound[-1].last_offset + 1
