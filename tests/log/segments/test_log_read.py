import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.batches import batch, plain
from tests.log.segmented_logs import NOW_MS, all_offsets, append, new_log, offsets_of
from tierd.errors import CorruptIndexError, CorruptRecordError, OffsetOutOfRangeError, SegmentChangedError
from tierd.log.files.disk import OsDisk, OsFile
from tierd.log.indexes.transaction_index import AbortedTransaction
from tierd.log.records.compression import Compression
from tierd.log.records.log_config import LogConfig
from tierd.log.records.log_offset import LogOffset
from tierd.log.segments.log_read import LogReader
from tierd.log.segments.log_segments import PublishedLog
from tierd.log.segments.segmented_log import SegmentedLog

INDEXED = LogConfig(segment_index_bytes=10_000, index_interval_bytes=0)


def log_of(folder: Path, *segments: list[bytes], start: int = 0, config: LogConfig = INDEXED) -> SegmentedLog:
    """Write a log with these sets, a segment for each list of them."""
    log = new_log(folder, config, start=start)
    for number, sets in enumerate(segments):
        if number:
            log.roll(now_ms=NOW_MS)
        append(log, *sets)
    return log


def read(log: SegmentedLog, offset: int, max_bytes: int = 100_000, **more: bool) -> bytes:
    return log.reader.read(offset, max_bytes=max_bytes, bound=log.log_end, **more).records


@pytest.mark.spec("log-format READ-01")
def test_an_offset_outside_of_the_log_is_out_of_range(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(1024)], start=1024)
    assert read(log, 1025) == b""
    for offset in (0, 1026):
        with pytest.raises(OffsetOutOfRangeError, match=rf"orders-0: offset {offset} .*\[1024, 1025\)"):
            read(log, offset)


@pytest.mark.spec("log-format READ-02")
@pytest.mark.parametrize("config", [INDEXED, LogConfig(segment_index_bytes=8), LogConfig(preallocate=True)])
def test_read_at_any_offset_returns_the_batch_that_holds_it(tmp_path: Path, config: LogConfig) -> None:
    sets = [plain(3 * n, 3, size=n) for n in range(40)]
    log = log_of(tmp_path, sets[:15], sets[15:20], sets[20:], config=config)
    for offset in range(120):
        found = log.reader.read(offset, max_bytes=1, bound=log.log_end)
        assert found.records == sets[offset // 3]
        assert found.start.offset == offset
        assert found.start == log.reader.locate(offset)
    assert read(log, 120) == b""
    assert log.reader.read(120, max_bytes=9, bound=log.log_end).start == log.log_end


@pytest.mark.spec("log-format READ-03")
def test_read_skips_a_gap_at_the_end_of_a_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0)])
    log.roll(10, now_ms=NOW_MS)
    log.roll(20, now_ms=NOW_MS)
    append(log, plain(25, 2))
    assert offsets_of(read(log, 1)) == [25, 26]
    assert offsets_of(read(log, 12)) == [25, 26]
    assert log.reader.locate(12) == LogOffset(12, 20, 0)


@pytest.mark.spec("log-format READ-04")
def test_compressed_batch_is_returned_whole_for_each_of_its_offsets(tmp_path: Path) -> None:
    pairs = [batch(base, [(1, b"a", b"b"), (2, b"c", b"d")], codec=Compression.GZIP) for base in (0, 2)]
    log = log_of(tmp_path, pairs)
    assert [offsets_of(read(log, offset, 1))[0] for offset in range(4)] == [0, 0, 2, 2]


@pytest.mark.spec("log-format READ-05")
@pytest.mark.parametrize("max_bytes", [0, 1, 100, 100_000])
def test_first_batch_is_returned_whole_above_the_limit(tmp_path: Path, max_bytes: int) -> None:
    log = log_of(tmp_path, [plain(0, 5, size=100), plain(5)])
    found = log.reader.read(2, max_bytes=max_bytes, bound=log.log_end)
    assert offsets_of(found.records)[:5] == [0, 1, 2, 3, 4]
    assert not found.first_entry_incomplete
    assert len(found.records) == (len(plain(0, 5, size=100)) if max_bytes < 100_000 else log.active.size_bytes)


@pytest.mark.spec("log-format READ-06")
def test_read_without_min_one_message_is_cut_at_the_limit(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)])
    one = len(plain(0))

    def ask(max_bytes: int) -> tuple[int, bool]:
        found = log.reader.read(0, max_bytes=max_bytes, bound=log.log_end, min_one_message=False)
        return len(found.records), found.first_entry_incomplete

    assert [ask(n) for n in (0, 1, one - 1, one, one + 1)] == [
        (0, False),
        (1, True),
        (one - 1, True),
        (one, False),
        (one + 1, False),
    ]
    with pytest.raises(ValueError, match="negative"):
        ask(-1)


def test_read_ends_with_its_segment(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)], [plain(2)])
    assert offsets_of(read(log, 0)) == [0, 1]


@pytest.mark.spec("log-format READ-07")
@pytest.mark.parametrize("min_one", [True, False])
def test_read_ends_below_its_bound(tmp_path: Path, min_one: bool) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)], [plain(2), plain(3), plain(4)])
    bound = log.reader.locate(3)
    for offset, expected in ((0, [0, 1]), (1, [1]), (2, [2]), (3, []), (4, []), (5, [])):
        found = log.reader.read(offset, max_bytes=100_000, bound=bound, min_one_message=min_one)
        assert offsets_of(found.records) == expected
        assert found.start == (log.reader.locate(offset) if offset < 5 else log.log_end)


@pytest.mark.spec("log-format READ-08")
@pytest.mark.spec("log-format SEG-06")
def test_read_with_a_bound_of_unknown_position_is_empty(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)], [plain(2), plain(3)])
    for bound, offset in (
        (log.reader.locate(2), 2),  # the bound itself
        (log.reader.locate(1), 3),  # above the bound, in a later segment
        (LogOffset(3), 1),  # the position of the bound is unknown
        (LogOffset(3), 3),
        (LogOffset(4, 0, 100), 2),  # a wrong bound in an earlier segment
    ):
        found = log.reader.read(offset, max_bytes=1000, bound=bound)
        assert (found.records, found.start.offset, found.first_entry_incomplete) == (b"", offset, False)
        assert found.start == (bound if bound.offset == offset else log.reader.locate(offset))


def test_read_is_cut_at_a_bound_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)])
    found = log.reader.read(0, max_bytes=1000, bound=LogOffset(2, 0, len(plain(0)) + 7))
    assert found.records == plain(0) + plain(1)[:7]


@pytest.mark.spec("log-format READ-09")
def test_read_collects_aborted_transactions_over_segments(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)], [plain(2)], [plain(3), plain(4)])
    log.segments.values[2].transaction_index.append(AbortedTransaction(7, 0, 3, 4))
    found = log.reader.read(0, max_bytes=1, bound=log.log_end, with_aborted=True)
    assert found.aborted == (AbortedTransaction(7, 0, 3, 4),)
    assert log.reader.read(0, max_bytes=1, bound=log.log_end).aborted is None
    assert log.reader.read(4, max_bytes=1, bound=log.log_end, with_aborted=True).aborted == ()
    assert log.reader.read(5, max_bytes=1, bound=log.log_end, with_aborted=True).aborted == ()
    assert log.reader.aborted_transactions(0, 1) == found.aborted


@pytest.mark.spec("log-format READ-09")
def test_read_collects_aborted_transactions_up_to_the_next_index_entry(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(n) for n in range(10)])
    for pid, first in ((1, 0), (2, 4), (3, 8)):
        log.active.transaction_index.append(AbortedTransaction(pid, first, first + 1, first + 1))
    one = len(plain(0))

    def ask(offset: int, batches: int) -> list[int]:
        found = log.reader.read(offset, max_bytes=batches * one, bound=log.log_end, with_aborted=True)
        return [entry.producer_id for entry in found.aborted or ()]

    assert ask(0, 3) == [1]
    assert ask(0, 4) == [1]
    assert ask(0, 5) == [1, 2]
    assert ask(3, 4) == [2]
    assert ask(2, 100) == [2, 3]


@pytest.mark.spec("log-format READ-09")
def test_read_with_a_wrong_offset_index_returns_its_aborted_transaction(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(n) for n in range(10)])
    log.active.transaction_index.append(AbortedTransaction(1, 6, 8, 9))
    log.active.offset_index.path.write_bytes(struct.pack(">ii", 1, 1 << 30) + struct.pack(">ii", 2, 1 << 30))
    found = log.reader.read(0, max_bytes=100_000, bound=log.log_end, with_aborted=True)
    assert [entry.producer_id for entry in found.aborted or ()] == [1]


@pytest.mark.spec("log-format READ-10")
def test_offset_outside_of_the_log_is_located_without_a_position(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(10), plain(11)], [plain(12)], start=10)
    assert [log.reader.locate_if_known(n, log_start_offset=11) for n in (9, 10, 14)] == [
        LogOffset(9),
        LogOffset(10),
        LogOffset(14),
    ]
    assert log.reader.locate_if_known(11, log_start_offset=11) == LogOffset(11, 10, len(plain(10)))
    assert log.reader.locate_if_known(13, log_start_offset=11) == log.log_end
    with pytest.raises(OffsetOutOfRangeError):
        log.reader.locate(14)


@pytest.mark.spec("log-format SEG-02")
@pytest.mark.spec("log-format SEG-03")
@pytest.mark.spec("log-format SEG-04")
@pytest.mark.spec("log-format SEG-05")
def test_read_in_a_gap_begins_with_the_next_batch(tmp_path: Path) -> None:
    log = log_of(tmp_path, start=40)
    assert read(log, 40) == b""
    append(log, plain(50, 2), plain(60, 2))
    assert offsets_of(read(log, 41, 1)) == [50, 51]
    assert offsets_of(read(log, 52, 1)) == [60, 61]
    assert offsets_of(read(log, 55, 1)) == [60, 61]
    assert read(log, 62) == b""


def test_read_leaves_out_batches_that_are_not_written_yet(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0)])
    append(log, plain(1), write=False)
    assert offsets_of(read(log, 0)) == [0]
    with log.active.path.open("ab") as file:
        file.write(plain(1)[:50])  # the writer is in the middle of a write
    assert offsets_of(read(log, 0)) == [0]
    assert read(log, 1) == b""


def test_damage_is_reported_with_its_position_after_one_search(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)], config=LogConfig(segment_index_bytes=100))
    data = bytearray(log.active.path.read_bytes())
    data[len(plain(0)) + 16] = 9
    log.active.path.write_bytes(data)
    assert offsets_of(read(log, 0, 1)) == [0]
    with pytest.raises(CorruptRecordError, match=f"magic 9 .* position {len(plain(0))}"):
        read(log, 1)


def test_a_damaged_transaction_index_is_an_error(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0)])
    log.active.transaction_index.append(AbortedTransaction(1, 0, 0, 1))
    log.active.path.with_suffix(".txnindex").write_bytes(b"\x00\x09" + bytes(32))
    with pytest.raises(CorruptIndexError):
        log.reader.read(0, max_bytes=1, bound=log.log_end, with_aborted=True)


def test_read_of_a_file_that_was_removed_or_cut_is_an_error(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)])
    log.active.path.write_bytes(plain(0))
    with pytest.raises(SegmentChangedError):
        read(log, 1)
    log.active.path.unlink()
    with pytest.raises(SegmentChangedError, match="not there"):
        read(log, 0)


@given(
    st.binary(max_size=200)
    | st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 20_000))).map(
        lambda entries: b"".join(struct.pack(">ii", *entry) for entry in sorted(entries))
    )
)
@settings(max_examples=40, deadline=None)
def test_read_with_an_offset_index_of_any_bytes_returns_the_asked_offset(
    tmp_path_factory: pytest.TempPathFactory, index: bytes
) -> None:
    log = log_of(tmp_path_factory.mktemp("lying"), [plain(3 * n, 3, size=n) for n in range(60)])
    log.active.path.with_suffix(".index").write_bytes(index)
    for offset in (0, 91, 179):
        assert offset in offsets_of(read(log, offset, 1))


class InterruptedDisk(OsDisk):
    """A disk that runs a callback before it opens the next file, as the writer may change files during a read."""

    def __init__(self) -> None:
        self.interruption: Callable[[], object] | None = None
        self.opened = 0

    def open(self, path: Path, *, create: bool = False, write: bool = True) -> OsFile:
        self.opened += not write
        if not write and self.interruption is not None:
            interruption, self.interruption = self.interruption, None
            interruption()
        return super().open(path, create=create, write=write)


def interrupted(log: SegmentedLog) -> tuple[LogReader, InterruptedDisk]:
    disk = InterruptedDisk()
    return LogReader(disk, lambda: log.published, name="orders-0"), disk


INTERRUPTIONS: dict[str, Callable[[SegmentedLog], object]] = {
    "rename": lambda log: log.rename_directory("orders-0.0123-delete"),
    "truncation behind": lambda log: log.truncate_to(4, now_ms=NOW_MS),
    "deletion before": lambda log: log.delete_segments([log.segments.values[0]], now_ms=NOW_MS, at_once=True),
    "roll": lambda log: log.roll(now_ms=NOW_MS),
}


@pytest.mark.parametrize("interruption", INTERRUPTIONS)
@pytest.mark.parametrize("with_aborted", [True, False])
def test_read_that_a_change_of_files_interrupts_is_repeated(
    tmp_path: Path, interruption: str, with_aborted: bool
) -> None:
    log = log_of(tmp_path, [plain(0), plain(1)], [plain(2), plain(3)], [plain(4)])
    log.segments.values[1].transaction_index.append(AbortedTransaction(7, 2, 3, 9))
    reader, disk = interrupted(log)
    disk.interruption = lambda: INTERRUPTIONS[interruption](log)
    found = reader.read(2, max_bytes=1000, bound=log.log_end, with_aborted=with_aborted)
    assert offsets_of(found.records) == [2, 3]
    assert found.aborted == ((AbortedTransaction(7, 2, 3, 9),) if with_aborted else None)


def test_read_whose_segment_is_deleted_meanwhile_is_out_of_range(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0)], [plain(1)])
    reader, disk = interrupted(log)
    disk.interruption = lambda: log.delete_segments([log.segments.values[0]], now_ms=NOW_MS)
    with pytest.raises(OffsetOutOfRangeError):
        reader.read(0, max_bytes=1, bound=log.log_end)


def test_read_ends_with_an_error_when_changes_do_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("tierd.log.segments.log_read.time.sleep", pauses.append)
    log = log_of(tmp_path, [plain(0)])
    versions = iter(range(1, 10_000))
    reader = LogReader(
        OsDisk(), lambda: PublishedLog(log.segments.values, log.log_end, next(versions)), name="orders-0"
    )
    with pytest.raises(SegmentChangedError, match="again and again"):
        reader.read(0, max_bytes=1, bound=log.log_end)
    assert 0 < sum(pauses) <= 1


def test_missing_file_is_an_immediate_error_when_the_log_does_not_change(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0)])
    reader, disk = interrupted(log)
    log.active.path.unlink()
    with pytest.raises(SegmentChangedError, match="not there"):
        reader.read(0, max_bytes=1, bound=log.log_end)
    assert disk.opened == 1


def test_reads_succeed_while_the_writer_rolls_truncates_and_deletes(tmp_path: Path) -> None:
    log = log_of(tmp_path, [plain(0)])
    stop, failures, reads = threading.Event(), list[BaseException](), [0] * 3

    def read_on(number: int) -> None:
        choice = random.Random(number)
        try:
            while not stop.is_set():
                seen = log.published
                end, start = seen.log_end, seen.segments[0].base_offset
                offset = choice.randint(start, end.offset)
                try:
                    data = log.reader.read(offset, max_bytes=500, bound=end, with_aborted=True).records
                except OffsetOutOfRangeError:
                    continue
                for found in offsets_of(data)[:1]:
                    assert found <= offset + 40
                reads[number] += 1
        except BaseException as error:  # noqa: BLE001 - told to the test below
            failures.append(error)

    threads = [threading.Thread(target=read_on, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        change_everything(log, rounds=150)
    finally:
        stop.set()
        for thread in threads:
            thread.join(timeout=60)
    assert not failures
    assert all(reads)
    assert all_offsets(log)[-1] == log.log_end.offset - 1


def change_everything(log: SegmentedLog, *, rounds: int) -> None:
    choice = random.Random(0)
    for number in range(rounds):
        for _ in range(choice.randint(1, 6)):
            append(log, plain(log.next_offset, choice.randint(1, 3), size=choice.randint(1, 200)))
        match choice.randrange(6):
            case 0 | 1:
                log.roll(now_ms=NOW_MS)
            case 2:
                log.flush(log.next_offset)
            case 3 if len(log.segments) > 3:
                log.delete_segments(log.segments.values[:1], now_ms=NOW_MS)
            case 4:
                first = log.segments.values[0].base_offset
                log.truncate_to(max(first + 1, log.next_offset - choice.randint(1, 8)), now_ms=NOW_MS)
            case 5:
                log.rename_directory(f"orders-{number % 3}")
                log.run_due_deletions(NOW_MS + 60_000)
