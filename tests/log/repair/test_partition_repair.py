"""Repair and truncation on real files: the broker's crash cases, and a loss of power between any two steps."""

import errno
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.simulated_disk import Fault, PowerLostError, SimulatedDisk
from tests.golden.unpack import GoldenCase, golden_cases, read_lines
from tests.log.logs import NOW_MS, open_log, records
from tests.log.test_golden import as_oracle
from tierd.errors import LogDirLockedError, LogDirOfflineError, OffsetOutOfRangeError
from tierd.log import LogConfig, LogRepairResult, inspect_path, iter_batches, repair_partition, truncate_partition
from tierd.log.dirs.log_manager import LogManager
from tierd.log.dirs.log_manager_settings import LogManagerSettings
from tierd.log.files.disk import Disk, OsDisk
from tierd.log.files.log_dir_lock import LogDirLock
from tierd.log.files.partition_scan import parse_file_name
from tierd.log.inspection import Damage
from tierd.log.repair.side_files import is_side_file, original_name

CRASHES = golden_cases("crash")
SOUND = [
    (case, logdir)
    for case in golden_cases("clean", "epochs", "compact-before")
    for logdir in case.logdirs
    if not case.partition.startswith("__cluster_metadata")
]
UNFINISHED = "crash-leftover-swap-0"
"""A replacement of segments that only a start of the broker finishes."""

NO_ORACLE = {UNFINISHED, "crash-partition-metadata-missing-0"}
"""The broker read what repair leaves to it, or an empty log in the place of the one that it had set aside."""

KEEPS_DAMAGE = {
    UNFINISHED,
    "crash-middle-flip-0",
    "crash-middle-flip-flushed-0",
    "crash-partition-metadata-missing-0",
}

of_each_crash = pytest.mark.parametrize("case", CRASHES, ids=lambda case: case.partition)


class NoLock:
    def release(self) -> None:
        pass


def settings_of(case: GoldenCase) -> LogConfig:
    return LogConfig.from_kafka({name: str(value) for name, value in case.config.items()})


@pytest.fixture
def damaged(golden: Path, tmp_path: Path) -> Callable[[GoldenCase], Path]:
    def copy(case: GoldenCase) -> Path:
        log_dir = tmp_path / "logdir"
        log_dir.mkdir()
        for file in (golden / case.logdirs[0]).iterdir():
            if file.is_file():
                shutil.copy(file, log_dir)
        return Path(shutil.copytree(golden / case.logdirs[0] / case.partition, log_dir / case.partition))

    return copy


def content_of(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in directory.iterdir()}


@pytest.mark.parametrize("replica", SOUND, ids=lambda replica: f"{replica[0].id}-{Path(replica[1]).parent.name}")
def test_repair_of_a_cleanly_stopped_log_has_no_steps(golden: Path, replica: tuple[GoldenCase, str]) -> None:
    case, logdir = replica
    mended = repair_partition(golden / logdir / case.partition, now_ms=NOW_MS, dry_run=True)
    assert (mended.plan.steps, mended.plan.remaining) == ((), ())


@pytest.mark.parametrize("replica", SOUND, ids=lambda replica: f"{replica[0].id}-{Path(replica[1]).parent.name}")
def test_deep_inspection_of_a_cleanly_stopped_log_finds_no_damage(
    golden: Path, replica: tuple[GoldenCase, str]
) -> None:
    case, logdir = replica
    assert not [f for f in inspect_path(golden / logdir / case.partition, deep=True) if isinstance(f, Damage)]


@of_each_crash
def test_dry_run_changes_no_file(golden: Path, case: GoldenCase) -> None:
    directory = golden / case.logdirs[0] / case.partition
    before, beside = content_of(directory), sorted(directory.parent.iterdir())
    repair_partition(directory, now_ms=NOW_MS, dry_run=True)
    assert content_of(directory) == before
    assert sorted(directory.parent.iterdir()) == beside


@of_each_crash
def test_second_repair_finds_no_steps(damaged: Callable[[GoldenCase], Path], case: GoldenCase) -> None:
    directory = damaged(case)
    mended = repair_partition(directory, now_ms=NOW_MS, config=settings_of(case))
    assert mended.is_sound is (case.partition not in KEEPS_DAMAGE)
    again = repair_partition(directory, now_ms=NOW_MS, config=settings_of(case))
    assert not again.plan.steps
    assert again.plan.remaining == mended.plan.remaining


@of_each_crash
def test_repair_keeps_all_bytes_in_side_files(damaged: Callable[[GoldenCase], Path], case: GoldenCase) -> None:
    directory = damaged(case)
    before = content_of(directory)
    repair_partition(directory, now_ms=NOW_MS, config=settings_of(case), cut_damaged=True)
    assert_nothing_lost(before, content_of(directory))


def assert_nothing_lost(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    for name, content in before.items():
        kept = [after[side] for side in after if is_side_file(side) and original_name(side) == name]
        whole = {*kept, after.get(name), *(after.get(name, b"") + tail for tail in kept)}
        assert content in whole, name


@pytest.mark.parametrize(
    "case", [case for case in CRASHES if case.partition not in NO_ORACLE], ids=lambda case: case.partition
)
def test_repaired_log_has_the_records_of_the_broker_before_the_damage(
    golden: Path, damaged: Callable[[GoldenCase], Path], case: GoldenCase
) -> None:
    directory = damaged(case)
    mended = repair_partition(directory, now_ms=NOW_MS, config=settings_of(case), cut_damaged=True)
    oracle = [line for line in read_lines(golden / case.oracle / "records.jsonl.gz") if "error" not in line]
    expected_end = mended.plan.log_end_offset
    assert list(records_of(directory)) == [line for line in oracle if line["offset"] < expected_end]


def records_of(directory: Path) -> Iterator[object]:
    for log in sorted(directory.glob("[0-9]*.log")):
        for batch in iter_batches(log.read_bytes(), name=log.name):
            if not batch.is_control:
                yield from map(as_oracle, batch.records())


@of_each_crash
def test_start_after_repair_cuts_no_segment_and_keeps_side_files(
    damaged: Callable[[GoldenCase], Path], case: GoldenCase
) -> None:
    directory = damaged(case)
    repair_partition(directory, now_ms=NOW_MS, config=settings_of(case), cut_damaged=True)
    sides = {name: content for name, content in content_of(directory).items() if is_side_file(name)}
    sizes = {file.name: file.stat().st_size for file in directory.glob("[0-9]*.log")}
    with LogManager([directory.parent], LogManagerSettings(config_for=lambda _: settings_of(case))) as manager:
        (log,) = manager.logs()
        ends = log.log_end_offset
    after = content_of(directory)
    assert {name: content for name, content in after.items() if is_side_file(name)} == sides
    if case.partition != UNFINISHED:
        assert {name: len(after[name]) for name in sizes} == sizes
        assert ends == repair_partition(directory, now_ms=NOW_MS, dry_run=True).plan.log_end_offset


def test_repair_of_a_locked_log_dir_is_refused_also_as_dry_run(damaged: Callable[[GoldenCase], Path]) -> None:
    directory = damaged(CRASHES[0])
    lock = LogDirLock.acquire(directory.parent)
    try:
        for dry_run in (False, True):
            with pytest.raises(LogDirLockedError):
                repair_partition(directory, now_ms=NOW_MS, dry_run=dry_run)
    finally:
        lock.release()


# Loss of power


def simulated(directory: Path) -> SimulatedDisk:
    """Return a disk with the durable files of the log dir of ``directory``."""
    disk, log_dir = SimulatedDisk(), directory.parent
    for path in [*reversed(log_dir.parents), log_dir, directory]:
        if disk.status(path) is None:
            disk.make_directory(path)
            disk.sync_directory(path.parent)
    for file in (*log_dir.iterdir(), *directory.iterdir()):
        if file.is_file():
            copy = disk.open(file, create=True)
            copy.write(0, [file.read_bytes()])
            copy.sync()
            copy.close()
            disk.sync_directory(file.parent)
    return disk


def mend(disk: Disk, directory: Path) -> LogRepairResult:
    return repair_partition(directory, now_ms=NOW_MS, cut_damaged=True, disk=disk, acquire_lock=lambda _: NoLock())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name", ["crash-middle-flip-0", "crash-cut-in-batch-0", "crash-txnindex-missing-0", "crash-index-garbage-0"]
)
def test_loss_of_power_at_any_step_of_a_repair_loses_no_bytes(
    damaged: Callable[[GoldenCase], Path], name: str, seed: int
) -> None:
    directory = damaged(next(case for case in CRASHES if case.partition == name))
    before = content_of(directory)
    disk = simulated(directory)
    start = disk.moment
    expected = mend(disk, directory).plan
    choice = random.Random(seed)
    for moment in range(start + 1, disk.moment + 1):
        crashed = simulated(directory)
        crashed.power_fails_at = moment
        with pytest.raises(PowerLostError):
            mend(crashed, directory)
        crashed.crash(choice)
        mended = mend(crashed, directory)
        assert mended.is_sound
        assert mended.plan.log_end_offset == expected.log_end_offset
        after = {path.name: content for path, content in crashed.snapshot(directory).items()}
        assert_nothing_lost(before, after)


# Sound logs that look odd


def test_many_clean_restarts_leave_a_sound_log(tmp_path: Path) -> None:
    for at in range(5):
        log = open_log(tmp_path)
        log.assign_topic_id(UUID(int=7))
        log.append_as_leader(records(1, timestamp_ms=NOW_MS + at), leader_epoch=0, now_ms=NOW_MS)
        log.close()
    assert not repair_partition(log.directory, now_ms=NOW_MS, dry_run=True).plan.steps
    assert not [f for f in inspect_path(log.directory, deep=True) if isinstance(f, Damage)]


def test_log_that_rolled_at_its_log_start_lacks_no_snapshot(tmp_path: Path) -> None:
    """A broker takes no snapshot where its log starts, and a load deletes those below."""
    log = open_log(tmp_path)
    log.assign_topic_id(UUID(int=7))
    for offset in range(3):
        log.append_as_leader(records(1), leader_epoch=0, now_ms=NOW_MS)
        log.update_high_watermark(offset + 1)
        if offset == 1:
            log.increment_log_start_offset(2, reason="test")
        log.roll(now_ms=NOW_MS)
    log.close()
    open_log(tmp_path, log_start_offset=2).close()
    assert [int(path.stem) for path in log.directory.glob("*.snapshot")] == [3]
    assert sorted(int(path.stem) for path in log.directory.glob("*.log")) == [0, 1, 2, 3]
    assert not repair_partition(log.directory, now_ms=NOW_MS, dry_run=True).plan.steps
    assert not [f for f in inspect_path(log.directory, deep=True) if isinstance(f, Damage)]


def test_records_of_side_files_appended_again_close_the_hole(damaged: Callable[[GoldenCase], Path]) -> None:
    directory = damaged(next(case for case in CRASHES if case.partition == "crash-middle-flip-0"))
    repair_partition(directory, now_ms=NOW_MS, cut_damaged=True)
    log = open_log(directory.parent, name=directory.name)
    for side in sorted(directory.glob("tierd-kept.*.log.*")):
        for batch in iter_batches(side.read_bytes(), name=side.name, check_crc=False):
            if batch.is_valid:
                log.append_as_follower(batch.data, now_ms=NOW_MS)
    assert log.log_end_offset == 126
    log.close()
    assert not repair_partition(directory, now_ms=NOW_MS, dry_run=True).plan.steps


# Any bytes


@pytest.mark.parametrize("seed", [*range(60), 305, 394])  # the last two: a flipped leader epoch
def test_damage_by_any_bytes_in_any_file_is_repaired_or_reported(
    damaged: Callable[[GoldenCase], Path], seed: int
) -> None:
    choice = random.Random(seed)
    name = choice.choice(["crash-txn-untouched-0", "crash-idempotent-untouched-0", "crash-untouched-0"])
    directory = damaged(next(case for case in CRASHES if case.partition == name))
    for file in choice.sample(sorted(directory.iterdir()), 3):
        content = bytearray(file.read_bytes())
        match choice.randrange(4):
            case 0:
                content[choice.randrange(len(content) + 1) :] = choice.randbytes(choice.randrange(300))
            case 1:
                content = bytearray(choice.randbytes(len(content)))
            case 2 if content:
                content[choice.randrange(len(content))] ^= 1 << choice.randrange(8)
            case _:
                start = choice.randrange(len(content) + 1)
                content[start : start + 200] = bytes(min(200, len(content) - start))
        file.write_bytes(content)
    before = content_of(directory)
    first = repair_partition(directory, now_ms=NOW_MS, cut_damaged=True)
    assert_nothing_lost(before, content_of(directory))
    again = repair_partition(directory, now_ms=NOW_MS, cut_damaged=True)
    assert not again.plan.steps
    assert {left.name for left in first.plan.remaining} == {left.name for left in again.plan.remaining}
    for _ in inspect_path(directory, deep=True):
        pass


# Truncation


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """Write five segments of two batches of five records."""
    log = open_log(tmp_path, config=LogConfig(index_interval_bytes=1))
    log.assign_topic_id(UUID(int=7))
    for at in range(10):
        if at and at % 2 == 0:
            log.roll(now_ms=NOW_MS)
        log.append_as_leader(records(5), leader_epoch=at // 4, now_ms=NOW_MS)
    log.close()
    return log.directory


@pytest.mark.parametrize(("offset", "end"), [(0, 0), (3, 0), (5, 5), (10, 10), (27, 25), (30, 30), (49, 45), (50, 50)])
def test_a_truncated_log_ends_before_the_batch_of_the_offset(orders: Path, offset: int, end: int) -> None:
    mended = truncate_partition(orders, offset, now_ms=NOW_MS, confirm=lambda _: True)
    assert mended is not None
    assert mended.plan.log_end_offset == end
    log = open_log(orders.parent)
    assert log.log_end_offset == end
    assert all(entry.start_offset <= end for entry in log.leader_epochs.entries)
    log.close()
    assert not repair_partition(orders, now_ms=NOW_MS, dry_run=True).plan.remaining


def test_truncation_keeps_cut_bytes_in_side_files(orders: Path) -> None:
    before = content_of(orders)
    truncate_partition(orders, 12, now_ms=NOW_MS, confirm=lambda _: True)
    assert_nothing_lost(before, content_of(orders))


def test_truncation_without_confirmation_changes_no_file(orders: Path) -> None:
    before = content_of(orders)
    assert truncate_partition(orders, 12, now_ms=NOW_MS, confirm=lambda _: False) is None
    assert content_of(orders) == before


def test_truncation_to_an_offset_below_the_log_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.truncate_fully_and_start_at(100, now_ms=NOW_MS)
    log.append_as_leader(records(5), leader_epoch=0, now_ms=NOW_MS)
    log.close()
    with pytest.raises(OffsetOutOfRangeError):
        truncate_partition(log.directory, 99, now_ms=NOW_MS, confirm=lambda _: True)


def test_side_files_have_names_that_a_broker_ignores(orders: Path) -> None:
    truncate_partition(orders, 12, now_ms=NOW_MS, confirm=lambda _: True)
    own = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".deleted", ".cleaned", ".swap", ".checkpoint")
    sides = [name for name in OsDisk().list_names(orders) if is_side_file(name)]
    assert len(sides) > 5
    for name in sides:
        assert parse_file_name(name) is None
        assert not name.endswith(own)
        assert not name[0].isdigit()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_full_disk_leaves_no_partial_side_file(damaged: Callable[[GoldenCase], Path], number: int) -> None:
    directory = damaged(next(case for case in CRASHES if case.partition == "crash-cut-in-batch-0"))
    disk = simulated(directory)
    before = disk.list_names(directory)
    disk.faults.append(Fault("write", ("tierd-kept",), number, times=None))
    for _ in range(2):
        with pytest.raises(LogDirOfflineError):
            mend(disk, directory)
    assert disk.list_names(directory) == before
