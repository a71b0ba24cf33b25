import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.simulated_disk import PowerLostError, SimulatedDisk
from tests.log.batches import legacy, plain, wrapper
from tests.log.segmented_logs import NOW_MS, all_offsets, append, names, new_log, reopen
from tierd.errors import CorruptRecordError
from tierd.log.files.disk import Disk, OsDisk, read_file
from tierd.log.files.partition_scan import file_name
from tierd.log.records.log_config import MAX_INT, LogConfig
from tierd.log.segments.leftovers import CLEANED, SWAP
from tierd.log.segments.log_segment import LogSegment
from tierd.log.segments.segmented_log import SegmentedLog

FAR = MAX_INT + 10
FARTHER = 2 * MAX_INT + 100
OVERFLOWED = (plain(100, 3), plain(103), plain(FAR + 100, 2), plain(FAR + 102), plain(FARTHER + 100, 5))
DELAY_MS = 60_000


def overflowed(folder: Path, *batches: bytes, base: int = 100, disk: Disk | None = None) -> SegmentedLog:
    """Write a log of three segments, as an old broker may have left it: the offsets in the second do not fit."""
    disk = disk or OsDisk()
    log = new_log(folder, start=0, disk=disk)
    append(log, plain(0, 2), plain(2, 3))
    log.close()
    for offset, content in ((base, batches), (4 * MAX_INT, (plain(4 * MAX_INT, 2),))):
        file = disk.open(log.directory / file_name(offset, ".log"), create=True)
        file.write(0, content)
        file.sync()
        file.close()
    disk.sync_directory(log.directory)
    return reopen(log.directory, disk=disk)


def split_all(log: SegmentedLog) -> None:
    """Split every segment that overflows, as a load does."""
    for segment in log.segments.values:
        if segment.has_overflow:
            log.split_overflowed(segment, now_ms=NOW_MS)


@pytest.mark.spec("log-format LOAD-14")
def test_an_overflowed_segment_becomes_several_with_the_same_records(tmp_path: Path) -> None:
    log = overflowed(tmp_path, *OVERFLOWED[:4])
    before, size = all_offsets(log), log.segments.size_bytes
    old = log.segments.values[1]
    OsDisk().set_mtime_ms(old.path, 1_234_567_000)
    assert [segment.has_overflow for segment in log.segments] == [False, True, False]
    result = log.split_overflowed(old, now_ms=NOW_MS)
    assert [segment.base_offset for segment in result.added] == [100, FAR + 100]
    assert result.removed == ()  # its base offset is one of the new ones
    assert log.segments.base_offsets == (0, 100, FAR + 100, 4 * MAX_INT)
    assert not any(segment.has_overflow for segment in log.segments)
    assert (all_offsets(log), log.segments.size_bytes) == (before, size)
    assert [path.stat().st_mtime_ns for path in (each.path for each in result.added)] == [1_234_567_000_000_000] * 2
    for segment in result.added:
        with pytest.raises(ValueError, match="nothing to split"):
            log.split_overflowed(segment, now_ms=NOW_MS)
    assert log.run_due_deletions(NOW_MS + DELAY_MS) >= 1
    assert not [name for name in names(log.directory) if name.endswith((CLEANED, SWAP, ".deleted"))]
    log.close()
    assert all_offsets(reopen(log.directory)) == before


@pytest.mark.spec("log-format LOAD-15")
@pytest.mark.parametrize(
    "batches", [(plain(FAR + 100, 2), plain(FAR + 102)), (plain(MAX_INT + 99, 5),)], ids=["all", "by last offset"]
)
def test_split_of_a_segment_without_fitting_offsets_begins_at_its_first_batch(
    tmp_path: Path, batches: list[bytes]
) -> None:
    log = overflowed(tmp_path, *batches)
    before, old = all_offsets(log), log.segments.values[1]
    result = log.split_overflowed(old, now_ms=NOW_MS)
    assert [segment.base_offset for segment in result.added] == [before[5]]
    assert result.removed == (old,)
    assert len(log.segments) == 3
    assert all_offsets(log) == before


@pytest.mark.spec("log-format LOAD-15")
def test_split_of_a_compressed_legacy_entry_begins_at_its_first_inner_offset(tmp_path: Path) -> None:
    inner = b"".join(legacy(1, n, None, b"v") for n in range(4))
    log = overflowed(tmp_path, wrapper(1, FAR + 103, inner))
    result = log.split_overflowed(log.segments.values[1], now_ms=NOW_MS)
    assert [segment.base_offset for segment in result.added] == [FAR + 100]


@pytest.mark.parametrize("tail", [b"\0", plain(FARTHER)[:-1]])
def test_split_of_a_segment_with_an_incomplete_batch_is_refused(tmp_path: Path, tail: bytes) -> None:
    log = overflowed(tmp_path, *OVERFLOWED)
    segment, files = log.segments.values[1], names(log.directory)
    with segment.path.open("ab") as file:
        file.write(tail)
    damaged = reopen(log.directory)
    with pytest.raises(CorruptRecordError):
        damaged.split_overflowed(damaged.segments.values[1], now_ms=NOW_MS)
    assert not [name for name in names(log.directory) - files if CLEANED in name or SWAP in name]
    assert damaged.segments.base_offsets == log.segments.base_offsets


def crash_everywhere(
    prepare: Callable[[SimulatedDisk], SegmentedLog],
    work: Callable[[SegmentedLog], None],
    check: Callable[[SegmentedLog], None],
) -> int:
    """Do ``work`` with the power failing at every one of its steps; call ``check`` with the log of the next load."""
    for step in range(1, 10_000):
        for seed in range(3):
            disk = SimulatedDisk()
            log = prepare(disk)
            disk.power_fails_at = disk.moment + step
            try:
                work(log)
            except PowerLostError:
                pass
            else:
                return step
            disk.crash(random.Random(f"{step} {seed}"))
            loaded = reopen(log.directory, disk=disk)
            split_all(loaded)
            check(loaded)
            loaded.run_due_deletions(NOW_MS + DELAY_MS)
            loaded.close()
            check(reopen(log.directory, disk=disk))
    raise AssertionError("the work does not end")


@pytest.mark.spec("log-format LOAD-16")
def test_a_split_that_loses_power_at_any_step_is_undone_or_finished() -> None:
    def check(log: SegmentedLog) -> None:
        assert all_offsets(log) == expected
        assert len(log.segments) == 5

    expected = all_offsets(overflowed(Path("/"), *OVERFLOWED, disk=SimulatedDisk()))
    steps = crash_everywhere(lambda disk: overflowed(Path("/"), *OVERFLOWED, disk=disk), split_all, check)
    assert steps > 20


PHASES = {
    "cleaned made": ("cleaned", "cleaned", "live"),
    "one swap, rest cleaned": ("cleaned", "swap", "live"),
    "all swap, old present": ("swap", "swap", "live"),
    "all swap, old going": ("swap", "swap", "deleted"),
    "all swap, old gone": ("swap", "swap", "gone"),
    "one swap, one final": ("final", "swap", "gone"),
}


@pytest.mark.spec("log-format LOAD-16")
@pytest.mark.parametrize("phase", PHASES)
def test_load_completes_or_repeats_a_split_from_every_phase(tmp_path: Path, phase: str) -> None:
    log = overflowed(tmp_path, *OVERFLOWED[:4])
    before, disk, directory = all_offsets(log), OsDisk(), log.directory
    log.close()
    first, second, old = PHASES[phase]
    content = read_file(disk, directory / file_name(100, ".log"))
    half = len(OVERFLOWED[0] + OVERFLOWED[1])
    old_path = directory / file_name(100, ".log")
    for path in directory.glob(f"{100:020d}.*"):
        path.unlink()
    if old in ("live", "deleted"):
        (old_path if old == "live" else Path(f"{old_path}.deleted")).write_bytes(content)
    for state, base, part in ((first, 100, content[:half]), (second, FAR + 100, content[half:])):
        suffix = {"cleaned": CLEANED, "swap": SWAP, "final": ""}[state]
        (directory / file_name(base, ".log" + suffix)).write_bytes(part)
    loaded = reopen(directory)
    split_all(loaded)
    assert all_offsets(loaded) == before
    assert len(loaded.segments) == 4


def cleaned(log: SegmentedLog, base: int, *batches: bytes) -> LogSegment:
    """Write the output of a compaction, complete and durable."""
    disk = log.active._disk
    segment = LogSegment(
        disk,
        log.directory,
        base,
        config=LogConfig(segment_index_bytes=1000),
        now_ms=NOW_MS,
        suffix=CLEANED,
        create=True,
    )
    holder = SegmentedLog(
        disk, log.directory, log.config, type(log.segments)([segment]), recovery_point=0, next_offset=log.log_end
    )
    append(holder, *batches)
    segment.finish()
    segment.flush()
    return segment


def compactable(disk: Disk, folder: Path = Path("/")) -> SegmentedLog:
    log = new_log(folder, disk=disk)
    for base in (0, 10, 20):
        append(log, *(plain(base + n) for n in range(10)))
        log.roll(now_ms=NOW_MS)
    append(log, plain(30))
    log.flush(31)
    return log


def compact(log: SegmentedLog) -> None:
    new = [cleaned(log, 0, plain(4), plain(8)), cleaned(log, 10, plain(19, 1))]
    log.replace_segments(new, log.segments.values[:2], now_ms=NOW_MS)


ORIGINAL = list(range(31))
COMPACTED = [4, 8, 19, *range(20, 31)]


@pytest.mark.spec("log-format LOAD-17")
def test_a_replacement_that_loses_power_at_any_step_leaves_either_set_whole() -> None:
    seen = set[int]()

    def check(log: SegmentedLog) -> None:
        found = all_offsets(log)
        assert found in (ORIGINAL, COMPACTED)
        seen.add(len(found))

    crash_everywhere(compactable, compact, check)
    assert seen == {len(ORIGINAL), len(COMPACTED)}


def test_output_of_an_abandoned_replacement_leaves_a_later_one_whole() -> None:
    """A round of the cleaner ends between its two steps, and the next round makes other groups."""

    def with_leftover(disk: Disk, folder: Path = Path("/")) -> SegmentedLog:
        log = compactable(disk, folder)
        cleaned(log, 5, plain(5)).close_handles()
        disk.sync_directory(log.directory)
        return log

    def replace_second(log: SegmentedLog) -> None:
        log.replace_segments([cleaned(log, 10, plain(19, 1))], log.segments.values[1:2], now_ms=NOW_MS)

    def check(log: SegmentedLog) -> None:
        assert all_offsets(log) in (ORIGINAL, [*range(10), 19, *range(20, 31)])

    crash_everywhere(with_leftover, replace_second, check)


def test_replaced_segments_are_deleted_later_and_already_deleted_ones_skipped(tmp_path: Path) -> None:
    log = compactable(OsDisk(), tmp_path)
    first, second, third, _ = log.segments.values
    log.delete_segments([first], now_ms=NOW_MS)
    gone = log.replace_segments([cleaned(log, 20, plain(25))], [first, second, third], now_ms=NOW_MS)
    assert gone == [second]
    assert log.segments.base_offsets == (20, 30)
    assert all_offsets(log) == [25, 30]
    assert file_name(10, ".log.deleted") in names(log.directory)
    log.run_due_deletions(NOW_MS + DELAY_MS)
    assert {name for name in names(log.directory) if ".log" in name} == {file_name(20, ".log"), file_name(30, ".log")}
