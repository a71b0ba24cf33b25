import random
import struct
import tracemalloc
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.open_files import open_files
from tests.log import segmented_logs
from tests.log.batches import Row, batch, forged, legacy, marker, plain, transactional, wrapper
from tests.log.producer_steps import manager_of
from tests.log.segmented_logs import NOW_MS, materialise_indexes
from tierd.errors import OffsetOverflowError
from tierd.log.files.disk import OsDisk
from tierd.log.files.leader_epoch import LeaderEpochFileCache
from tierd.log.indexes.index_build import build_indexes
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.log_errors import EndMarkerError, InvalidTransactionStateError
from tierd.log.producers.producer_manager import ProducerStateManager
from tierd.log.producers.transactions import read_end_marker
from tierd.log.records.batch_header import iter_headers, parse_header
from tierd.log.records.log_config import LogConfig
from tierd.log.records.record import ControlRecordType
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.segment_recovery import recover_segment
from tierd.model import TimestampOffset

MAX_INT = 2**31 - 1
ABORT, COMMIT, LEADER_CHANGE = ControlRecordType.ABORT, ControlRecordType.COMMIT, ControlRecordType.LEADER_CHANGE
DISK = OsDisk()
CONFIG = LogConfig(index_interval_bytes=10, segment_index_bytes=10_000)


class Crashed:
    """A segment after a crash, and its recovery."""

    def __init__(self, folder: Path, data: bytes, *, base_offset: int = 0, config: LogConfig = CONFIG) -> None:
        (folder / f"{base_offset:020d}.log").write_bytes(data)
        self.segment = LogSegment(DISK, folder, base_offset, config=config, now_ms=NOW_MS)
        self.producers = manager_of(folder, config)
        self.producers.update_map_end_offset(base_offset)
        self.epochs = LeaderEpochFileCache(DISK, folder)

    def recover(self) -> int:
        return recover_segment(self.segment, producers=self.producers, epochs=self.epochs)

    @property
    def data(self) -> bytes:
        return self.segment.path.read_bytes()

    @property
    def indexes(self) -> tuple[bytes, bytes]:
        return self.segment.offset_index.path.read_bytes(), self.segment.time_index.path.read_bytes()


def control(
    offset: int, kind: ControlRecordType, value: bytes, *, producer_id: int = 7, producer_epoch: int = 0
) -> bytes:
    """Build a control batch with any type and value, with or without a producer."""
    rows: list[Row] = [(1000 + offset, struct.pack(">hh", 0, kind.value), value)]
    data = bytearray(batch(offset, rows, producer_id=7, producer_epoch=producer_epoch, base_sequence=0))
    struct.pack_into(">h", data, 21, 0x30)
    struct.pack_into(">q", data, 43, producer_id)
    return forged(bytes(data))


# Indexes


@pytest.mark.spec("log-format SEG-13")
@pytest.mark.parametrize("garbage", [b"", bytes(10_000), b"\xff" * 777, b"\0\0\0\1" * 9])
def test_recovery_replaces_garbage_in_the_indexes(tmp_path: Path, garbage: bytes) -> None:
    crashed = Crashed(tmp_path, b"".join(plain(n, timestamp_ms=10 * n) for n in range(100)))
    for index in (crashed.segment.offset_index, crashed.segment.time_index):
        index.path.write_bytes(garbage)
    assert crashed.recover() == 0
    size = len(plain(0))
    offset_index, time_index = crashed.segment.offset_index, crashed.segment.time_index
    assert all(offset_index.lookup(n) == (n, n * size) for n in range(1, 100))
    assert all(time_index.lookup(10 * n) == TimestampOffset(10 * n, n) for n in range(1, 100))
    assert crashed.indexes == build_indexes(crashed.segment.path, base_offset=0, index_interval_bytes=10)
    assert crashed.segment.max_timestamp_so_far == TimestampOffset(990, 99)


def test_recovery_indexes_batches_and_the_last_timestamp(tmp_path: Path) -> None:
    size = len(plain(0))
    config = LogConfig(index_interval_bytes=2 * size - 1)
    crashed = Crashed(tmp_path, b"".join(plain(n, timestamp_ms=10 * n) for n in range(6)), config=config)
    crashed.recover()
    index, times = crashed.segment.offset_index, crashed.segment.time_index
    assert [index.entry_at(n) for n in range(index.entries)] == [(2, 2 * size), (4, 4 * size)]
    assert [times.entry_at(n) for n in range(times.entries)] == [
        TimestampOffset(20, 2),
        TimestampOffset(40, 4),
        TimestampOffset(50, 5),
    ]
    assert [len(found) for found in crashed.indexes] == [16, 36]
    crashed.segment.grow_indexes()
    assert not crashed.segment.is_index_full
    assert index.last_offset == 4


def test_recovered_index_is_not_larger_than_its_limit(tmp_path: Path) -> None:
    config = LogConfig(index_interval_bytes=0, segment_index_bytes=100)
    crashed = Crashed(tmp_path, b"".join(plain(n, timestamp_ms=10 * n) for n in range(40)), config=config)
    assert crashed.recover() == 0
    assert [len(found) for found in crashed.indexes] == [7 * 8, 8 * 12]
    assert crashed.segment.time_index.last_entry == TimestampOffset(390, 39)
    crashed.segment.grow_indexes()
    assert crashed.segment.is_index_full


def test_recovered_empty_segment_has_empty_indexes(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, b"", base_offset=7)
    materialise_indexes(crashed.segment)
    assert crashed.recover() == 0
    assert crashed.indexes == (b"", b"")
    assert crashed.producers.map_end_offset == 7


def test_recovered_segment_takes_appends(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, plain(0) + plain(1) + plain(2)[:-1])
    crashed.recover()
    crashed.segment.grow_indexes()
    data = plain(2, timestamp_ms=5000)
    crashed.segment.append([data], [], largest_offset=2, max_timestamp_ms=5000, shallow_offset=2)
    crashed.segment.finish()
    assert crashed.data == plain(0) + plain(1) + data
    assert crashed.segment.time_index.last_entry == TimestampOffset(5000, 2)


# Cuts


@pytest.mark.spec("log-format SEG-16")
def test_recovery_keeps_the_batches_before_a_damaged_one(tmp_path: Path) -> None:
    chance = random.Random(0)
    batches = [plain(n) for n in range(20)]
    ends = [0, *accumulate(map(len, batches))]
    for _ in range(40):
        kept = chance.randrange(20)
        data = bytearray(b"".join(batches))
        at = chance.randrange(ends[kept] + 21, ends[kept + 1])
        data[at] ^= 1 << chance.randrange(8)
        crashed = Crashed(tmp_path, bytes(data))
        assert crashed.recover() == len(data) - ends[kept]
        assert crashed.data == b"".join(batches[:kept])
        assert crashed.segment.read_next_offset() == kept
        assert crashed.producers.map_end_offset == kept


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"\0",
        bytes(16),
        bytes(17),
        bytes(5000),
        bytes(3 << 20),
        plain(2)[:-1],
        plain(2)[:30],
        plain(2)[:13],
        struct.pack(">qi", 2, MAX_INT) + plain(2)[12:],
        struct.pack(">qi", 2, -1) + plain(2)[12:],
        struct.pack(">qi", 2, 48) + plain(2)[12:],
        struct.pack(">qi", 2, 14) + plain(2)[12:],
        struct.pack(">qi", -2, len(plain(2)) - 12) + plain(2)[12:],
        plain(2)[:16] + b"\x03" + plain(2)[17:],
        plain(2)[:16] + b"\xff" + plain(2)[17:],
        forged(plain(2), last_offset_delta=-1),
        legacy(1, 2, b"k", b"v")[:-1],
        legacy(1, 2, b"k", b"v")[:-1] + b"w",
        legacy(0, 2, b"k", b"v")[:20],
    ],
)
def test_recovery_cuts_bytes_that_are_no_batch(tmp_path: Path, tail: bytes) -> None:
    crashed = Crashed(tmp_path, plain(0) + plain(1) + tail)
    assert crashed.recover() == len(tail)
    assert crashed.data == plain(0) + plain(1)


@pytest.mark.parametrize("offset", [0, 1])
def test_recovery_cuts_at_an_offset_that_does_not_ascend(tmp_path: Path, offset: int) -> None:
    crashed = Crashed(tmp_path, plain(0) + plain(1) + plain(offset) + plain(3))
    assert crashed.recover() == 2 * len(plain(0))


@pytest.mark.parametrize("first", [plain(6), legacy(1, 6, b"k", b"v")])
def test_recovery_cuts_at_an_offset_below_the_base_offset(tmp_path: Path, first: bytes) -> None:
    crashed = Crashed(tmp_path, first + plain(8), base_offset=7)
    assert crashed.recover() == len(first + plain(8))


@pytest.mark.parametrize("last", [plain(7 + MAX_INT + 1), legacy(0, 7 + MAX_INT + 1, b"k", b"v")])
def test_last_offset_out_of_reach_of_the_base_is_an_overflow_to_split(tmp_path: Path, last: bytes) -> None:
    data = plain(7) + plain(7 + MAX_INT) + last
    for tail in (b"", bytes(20)):
        crashed = Crashed(tmp_path, data + tail, base_offset=7)
        with pytest.raises(OffsetOverflowError):
            crashed.recover()
        assert crashed.data == data + tail
    assert Crashed(tmp_path, data, base_offset=7).segment.has_overflow


def test_recovery_cuts_at_a_lone_offset_out_of_reach(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, plain(7) + plain(2**40) + plain(9), base_offset=7)
    assert crashed.recover() == 2 * len(plain(7))
    assert crashed.data == plain(7)


def test_recovery_keeps_gaps_and_empty_batches(tmp_path: Path) -> None:
    empty = batch(5, [], producer_id=7, producer_epoch=0, base_sequence=0)
    data = plain(0) + empty + plain(1000) + control(1001, LEADER_CHANGE, b"", producer_id=-1)
    crashed = Crashed(tmp_path, data)
    assert crashed.recover() == 0
    assert crashed.producers.map_end_offset == 1002
    assert list(crashed.producers.producers) == [7]


def test_second_recovery_gives_the_same_files_and_epochs(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, b"".join(plain(n, epoch=n // 4) for n in range(10)) + b"torn")
    assert crashed.recover() == 4
    before = crashed.data, crashed.indexes, crashed.epochs.lineage.entries
    again = Crashed(tmp_path, crashed.data)
    assert again.recover() == 0
    assert (again.data, again.indexes, again.epochs.lineage.entries) == before


# Legacy


def test_recovery_keeps_legacy_entries_without_epochs_and_producers(tmp_path: Path) -> None:
    inner = b"".join(legacy(1, n, b"k", b"v") for n in range(3))
    old = legacy(0, 0, b"k", b"v") + legacy(1, 1, b"k", b"v", timestamp_ms=7000) + wrapper(1, 4, inner)
    crashed = Crashed(tmp_path, old + plain(5) + legacy(1, 6, b"k", b"v") + plain(7))
    assert crashed.recover() == 0
    assert crashed.segment.max_timestamp_so_far == TimestampOffset(7000, 1)
    assert [(entry.epoch, entry.start_offset) for entry in crashed.epochs.lineage.entries] == [(0, 5)]
    assert crashed.producers.map_end_offset == 8
    assert crashed.indexes == build_indexes(crashed.segment.path, base_offset=0, index_interval_bytes=10)
    only_old = Crashed(tmp_path, old)
    assert only_old.recover() == 0
    assert only_old.producers.map_end_offset == 0


# Epochs


@pytest.mark.spec("log-format SEG-15")
def test_recovery_assigns_the_leader_epochs_of_the_batches(tmp_path: Path) -> None:
    places = ((0, 104), (1, 106), (1, 108), (2, 110))
    data = b"".join(plain(offset, 2, epoch=epoch) for epoch, offset in places) + plain(112, epoch=-1)
    crashed = Crashed(tmp_path, data, base_offset=100)
    crashed.recover()
    found = [(entry.epoch, entry.start_offset) for entry in crashed.epochs.lineage.entries]
    assert found == [(0, 104), (1, 106), (2, 110)]
    assert LeaderEpochFileCache(DISK, tmp_path).lineage == crashed.epochs.lineage


def test_recovery_does_not_assign_a_known_epoch_again(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, plain(100, epoch=3) + plain(101, epoch=4), base_offset=100)
    crashed.epochs.assign(epoch=3, start_offset=50)
    crashed.recover()
    assert [(entry.epoch, entry.start_offset) for entry in crashed.epochs.lineage.entries] == [(3, 50), (4, 101)]


# Producers


def interleaved() -> bytes:
    """Kafka: LogSegmentTest.testRecoverTransactionIndex."""
    return b"".join(
        [
            transactional(100, 1, 2),
            transactional(102, 2, 2),
            batch(104, [(1000, b"k", b"v")] * 2, producer_id=-1),
            marker(106, 2, commit=False),
            marker(107, 1, commit=True),
        ]
    )


@pytest.mark.spec("log-format SEG-14")
def test_recovery_indexes_an_aborted_transaction(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, interleaved(), base_offset=100)
    crashed.segment.transaction_index.append(AbortedTransaction(9, 100, 101, 102))
    assert crashed.recover() == 0
    assert crashed.segment.transaction_index.all() == (AbortedTransaction(2, 102, 106, 100),)
    assert crashed.producers.map_end_offset == 108


@pytest.mark.spec("log-format SEG-14")
def test_recovery_indexes_a_transaction_begun_in_an_earlier_segment(tmp_path: Path) -> None:
    crashed = Crashed(tmp_path, interleaved(), base_offset=100)
    earlier = parse_header(transactional(75, 2, 5), 0, name="earlier", position=0)
    assert earlier is not None
    crashed.producers.replay(earlier, None)
    crashed.recover()
    assert crashed.segment.transaction_index.all() == (AbortedTransaction(2, 75, 106, 100),)


def test_recovery_cuts_behind_a_marker_that_is_too_short(tmp_path: Path) -> None:
    short = control(2, COMMIT, bytes(3))
    data = plain(0) + transactional(1, 7) + short
    crashed = Crashed(tmp_path, data + plain(3))
    assert crashed.recover() == len(plain(3))
    assert crashed.data == data
    assert crashed.producers.map_end_offset == 2
    assert crashed.producers.has_open_transaction(7)


def test_marker_of_an_unknown_type_is_an_error_and_not_cut(tmp_path: Path) -> None:
    strange = control(1, LEADER_CHANGE, bytes(6))
    crashed = Crashed(tmp_path, plain(0) + strange)
    with pytest.raises(EndMarkerError):
        crashed.recover()
    assert crashed.data == plain(0) + strange


def test_a_batch_that_is_not_of_the_open_transaction_is_an_error(tmp_path: Path) -> None:
    alone = batch(1, [(1000, b"k", b"v")], producer_id=7, producer_epoch=0, base_sequence=1)
    crashed = Crashed(tmp_path, transactional(0, 7) + alone)
    with pytest.raises(InvalidTransactionStateError):
        crashed.recover()


@st.composite
def producer_logs(draw: st.DrawFn) -> bytes:
    """Draw batches that three producers may write: runs of batches, transactions, epochs that rise."""
    data, offset, sequences, open_by = bytearray(), 0, [0, 0, 0], set[int]()
    epochs = [0, 0, 0]
    for _ in range(draw(st.integers(0, 40))):
        who, what = draw(st.integers(0, 2)), draw(st.integers(0, 9))
        if what == 9 and who not in open_by:
            epochs[who], sequences[who] = epochs[who] + 1, 0
            continue
        if what >= 7:
            kind = draw(st.sampled_from([ABORT, COMMIT]))
            data += control(offset, kind, bytes(6), producer_id=who, producer_epoch=epochs[who])
            open_by.discard(who)
            offset += 1
            continue
        count = draw(st.integers(1, 3))
        is_transactional = who in open_by or what < 3
        data += batch(
            offset,
            [(1000 + offset, b"k", b"v")] * count,  # timestamps distinguish the batches
            producer_id=who,
            producer_epoch=epochs[who],
            base_sequence=sequences[who],
            transactional=is_transactional,
        )
        if is_transactional:
            open_by.add(who)
        sequences[who] += count
        offset += count
    return bytes(data)


def state(producers: ProducerStateManager) -> object:
    unstable = producers.first_unstable_offset
    return (
        {pid: (entry.to_snapshot(), tuple(entry.batches)) for pid, entry in producers.producers.items()},
        unstable and unstable.offset,
        producers.map_end_offset,
    )


@settings(max_examples=100, deadline=None)
@given(producer_logs())
def test_recovered_producers_equal_those_of_a_replay_of_every_batch(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("crashed")
    crashed = Crashed(folder, data)
    assert crashed.recover() == 0
    expected, aborted = manager_of(folder), list[AbortedTransaction]()
    with crashed.segment.log.reading() as source:
        for header in iter_headers(source):
            entry = expected.replay(header, read_end_marker(source, header))
            aborted += [entry] if entry else []
    assert state(crashed.producers) == state(expected)
    assert list(crashed.segment.transaction_index.all()) == aborted


# Windows


@pytest.mark.parametrize("size", [300, 4096, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 2_500_000])
def test_recovery_accepts_batches_of_any_size(tmp_path: Path, size: int) -> None:
    count = 5 if size > 1000 else (3 << 20) // size
    padding = max(0, size - len(plain(0, size=0)))
    data = b"".join(plain(n, size=padding, timestamp_ms=n) for n in range(count))
    crashed = Crashed(tmp_path, data, config=LogConfig())
    assert crashed.recover() == 0
    assert crashed.indexes == build_indexes(crashed.segment.path, base_offset=0)
    torn = Crashed(tmp_path, data[:-1], config=LogConfig())
    assert torn.recover() == len(plain(count - 1, size=padding)) - 1


def test_recovery_accepts_legacy_entries_across_windows(tmp_path: Path) -> None:
    data = b"".join(legacy(1, n, b"k", b"v" * (n % 5000), timestamp_ms=n) for n in range(1000))
    crashed = Crashed(tmp_path, data + legacy(0, 1000, b"k", bytes(2 << 20)) + plain(1001), config=LogConfig())
    assert crashed.recover() == 0
    assert crashed.indexes == build_indexes(crashed.segment.path, base_offset=0)


def test_memory_of_a_recovery_is_bounded_for_any_claimed_batch_size(tmp_path: Path) -> None:
    large = bytearray(plain(1, size=32 << 20))
    beyond = struct.pack(">qi", 2, MAX_INT) + plain(2)[12:]
    for data, kept in (
        (plain(0) + large + beyond, len(plain(0) + large)),
        (plain(0) + large[:-1] + b"!" + plain(2), len(plain(0))),
    ):
        crashed = Crashed(tmp_path, bytes(data))
        tracemalloc.start()
        cut = crashed.recover()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert len(data) - cut == kept
        assert peak < 8 << 20


def test_recovery_cuts_behind_a_marker_that_is_too_large(tmp_path: Path) -> None:
    large = control(1, COMMIT, bytes(2 << 20))
    crashed = Crashed(tmp_path, plain(0) + large + plain(2))
    assert crashed.recover() == len(plain(2))


def test_recovered_segments_hold_no_open_files(tmp_path: Path) -> None:
    log = segmented_logs.new_log(tmp_path)
    for offset in range(3):
        segmented_logs.append(log, plain(offset))
        log.roll(now_ms=NOW_MS)
    log.close_handles()
    folder = tmp_path / "orders-0"
    for offset in range(3):
        crashed = Crashed(folder, (folder / f"{offset:020d}.log").read_bytes(), base_offset=offset)
        crashed.recover()
    assert open_files(folder) == []


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 3))
def test_random_bytes_behind_the_batches_are_cut(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, count: int
) -> None:
    data = b"".join(plain(n) for n in range(count))
    crashed = Crashed(tmp_path_factory.mktemp("x"), data + garbage)
    assert crashed.recover() == len(garbage)
    assert crashed.data == data
