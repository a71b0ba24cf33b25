"""Damage in one partition: it is named and quarantined until the damage is repaired, and other partitions continue."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, write_log_dir
from tests.scenarios.conftest import MakeInstallation
from tests.scenarios.damage import cut, flip_byte
from tests.scenarios.installation import Installation

HURT, SOUND = "synthetic-0", "synthetic-1"
SEGMENT_RECORDS = 8  # SegmentShape's defaults: 2 batches of 4 records
RECOVERY_DEADLINE_S = 30.0

Repair = Callable[[], object]


@dataclass(frozen=True, slots=True)
class LogDir:
    """Two partitions of three rolled segments each; a test damages the first one."""

    path: Path

    @property
    def second_segment(self) -> Path:
        """Return the rolled segment between two others."""
        return self.path / HURT / f"{SEGMENT_RECORDS:020d}.log"

    @property
    def rolled_through(self) -> int:
        """Return the last offset of the newest rolled segment."""
        return 3 * SEGMENT_RECORDS - 1


@pytest.fixture
def log_dir(tmp_path: Path) -> LogDir:
    return LogDir(write_log_dir(tmp_path / "logdir", partitions=2, rolled_segments=3).path)


def bit_rot(log_dir: LogDir) -> Repair:
    flip_byte(log_dir.second_segment, position=300)
    return lambda: flip_byte(log_dir.second_segment, position=300)


def torn_batch(log_dir: LogDir) -> Repair:
    segment = log_dir.second_segment
    missing = cut(segment, missing_bytes=100)
    return lambda: segment.write_bytes(segment.read_bytes() + missing)


def garbage_behind_the_last_batch(log_dir: LogDir) -> Repair:
    segment = log_dir.second_segment
    sound = segment.read_bytes()
    segment.write_bytes(sound + bytes(50))
    return lambda: segment.write_bytes(sound)


def unreadable_epochs(log_dir: LogDir) -> Repair:
    checkpoint = log_dir.path / HURT / "leader-epoch-checkpoint"
    sound = checkpoint.read_text()
    checkpoint.write_text("0\n1\nzero 0\n")
    return lambda: checkpoint.write_text(sound)


@pytest.mark.parametrize(
    ("damage", "named", "copied_before"),
    [
        (bit_rot, "00000000000000000008.log", SEGMENT_RECORDS - 1),
        (torn_batch, "00000000000000000008.log", SEGMENT_RECORDS - 1),
        (garbage_behind_the_last_batch, "00000000000000000008.log", SEGMENT_RECORDS - 1),
        (unreadable_epochs, "leader-epoch-checkpoint", -1),
    ],
)
def test_damaged_partition_is_quarantined_without_the_others_and_recovers(
    damage: Callable[[LogDir], Repair],
    named: str,
    copied_before: int,
    log_dir: LogDir,
    make_installation: MakeInstallation,
) -> None:
    repair = damage(log_dir)
    tierd = make_installation([log_dir.path])
    with tierd.daemon() as daemon:
        daemon.wait_copied({SOUND: log_dir.rolled_through})
        daemon.wait_until(lambda: state_of(daemon.partition(HURT)) == "quarantined", what="the quarantine")
        hurt = daemon.partition(HURT)
        assert hurt is not None
        assert named in hurt["last_error"]
        assert hurt["copied_through"] == copied_before
        assert daemon.is_ready()
        assert daemon.metrics()["tierd_quarantined_partitions"] == 1

        repair()

        daemon.wait_copied({HURT: log_dir.rolled_through}, deadline_s=RECOVERY_DEADLINE_S)
    assert_everything_reads_back(tierd, log_dir)


@pytest.mark.parametrize("damage", [bit_rot, torn_batch])
def test_copy_once_reports_damage_and_copies_the_rest(
    damage: Callable[[LogDir], Repair], log_dir: LogDir, make_installation: MakeInstallation
) -> None:
    damage(log_dir)
    tierd = make_installation([log_dir.path])

    ended = tierd.ask("copy", "--once")

    assert ended.exit_code == 1, ended.output
    assert str(log_dir.second_segment) in ended.output
    assert "position" in ended.output
    assert "tierd inspect" in ended.output
    assert tierd.frontier(SOUND) == log_dir.rolled_through
    assert tierd.frontier(HURT) == SEGMENT_RECORDS - 1


@pytest.mark.parametrize(
    "missing", ["00000000000000000008.index", "00000000000000000008.timeindex", "00000000000000000016.snapshot"]
)
def test_a_missing_index_or_snapshot_is_rebuilt_from_the_batches(
    missing: str, log_dir: LogDir, make_installation: MakeInstallation
) -> None:
    (log_dir.path / HURT / missing).unlink()
    tierd = make_installation([log_dir.path])

    ended = tierd.ask("copy", "--once")

    assert ended.exit_code == 0, ended.output
    assert tierd.frontier(HURT) == log_dir.rolled_through
    assert_everything_reads_back(tierd, log_dir)


def test_missing_epoch_file_stops_its_partition_until_the_file_returns(
    log_dir: LogDir, make_installation: MakeInstallation
) -> None:
    file = log_dir.path / HURT / "leader-epoch-checkpoint"
    content = file.read_bytes()
    file.unlink()
    tierd = make_installation([log_dir.path])

    ended = tierd.ask("copy", "--once")

    assert ended.exit_code == 1, ended.output
    assert file.name in ended.output
    assert tierd.frontier(SOUND) == log_dir.rolled_through
    file.write_bytes(content)
    again = tierd.ask("copy", "--once")
    assert again.exit_code == 0, again.output
    assert_everything_reads_back(tierd, log_dir)


def test_segment_of_zero_bytes_is_copied_without_a_gap(tmp_path: Path, make_installation: MakeInstallation) -> None:
    log_dir = LogDirWriter(tmp_path / "logdir")
    partition = log_dir.add_partition("compacted")
    partition.append([b"a", b"b"])
    partition.roll()
    emptied = partition.active_segment  # compaction leaves such files where it removed every record
    partition.append([b"c", b"d"])
    partition.roll()
    emptied.write_bytes(b"")
    partition.append([b"e", b"f"])
    partition.roll()
    partition.append([b"g"])
    log_dir.write_checkpoints()
    tierd = make_installation([log_dir.path])

    ended = tierd.ask("copy", "--once")

    assert ended.exit_code == 0, ended.output
    assert tierd.frontier("compacted-0") == 5
    assert [record["offset"] for record in tierd.cat("compacted-0")] == [0, 1, 4, 5, 6]


def test_directory_that_is_no_partition_is_ignored(log_dir: LogDir, make_installation: MakeInstallation) -> None:
    for name in ("lost+found", "remote-log-index-cache", "not a partition", "backup-x", ".hidden"):
        (log_dir.path / name).mkdir()
    tierd = make_installation([log_dir.path])
    with tierd.daemon() as daemon:
        daemon.wait_copied({SOUND: log_dir.rolled_through, HURT: log_dir.rolled_through})
        listed = {partition["partition"] for partition in daemon.status()["partitions"]}
    assert listed == {HURT, SOUND}


def test_segment_that_vanished_without_a_hold_is_skipped(log_dir: LogDir, make_installation: MakeInstallation) -> None:
    for file in (log_dir.path / HURT).glob("00000000000000000000.*"):
        file.unlink()  # retention deleted the segment before the first start of tierd
    tierd = make_installation([log_dir.path])

    ended = tierd.ask("copy", "--once")

    assert ended.exit_code == 0, ended.output
    assert [segment["start_offset"] for segment in tierd.segments(HURT)] == [8, 16]
    assert tierd.cat(HURT)[0]["offset"] == 8


def test_log_dir_that_disappears_is_copied_again_when_it_returns(
    log_dir: LogDir, make_installation: MakeInstallation
) -> None:
    tierd = make_installation([log_dir.path])
    away = log_dir.path.with_name("unmounted")
    with tierd.daemon() as daemon:
        daemon.wait_copied({HURT: log_dir.rolled_through})
        log_dir.path.rename(away)
        daemon.wait_until(
            lambda: "logdir" in daemon.get("/readyz") or "logdir" in daemon.get("/status"),
            what="the daemon to name the log dir",
        )
        assert daemon.is_alive()
        away.rename(log_dir.path)
        daemon.wait_until(daemon.is_ready, what="the daemon to be ready again")
    assert_everything_reads_back(tierd, log_dir)


def state_of(partition: dict[str, object] | None) -> object:
    return partition and partition["state"]


def assert_everything_reads_back(tierd: Installation, log_dir: LogDir) -> None:
    for partition in (HURT, SOUND):
        offsets = [record["offset"] for record in tierd.cat(partition)]
        assert offsets == list(range(log_dir.rolled_through + 5)), partition
    verified = tierd.ask("verify", "--deep")
    assert verified.exit_code == 0, verified.output
