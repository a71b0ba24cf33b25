"""Delayed copying: ages of segments from real files, and a copy task that waits for an age."""

from pathlib import Path

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.tiering.setups import Tier, delete_segment, partition_of
from tierd.log import identify_directory, scan_partition
from tierd.tiering import SegmentHold, TopicPolicy
from tierd.tiering.copying.due_segments import ages_of

HOUR_MS = 3_600_000
FIRST_MS = 1_600_000_000_000
SHAPE = SegmentShape()


def _write(log_dir: LogDirWriter) -> Path:
    """Write three rolled segments, an hour apart, and an active one."""
    writer = log_dir.add_partition("orders")
    for hour in range(3):
        writer.append([b"x"], timestamp_ms=FIRST_MS + hour * HOUR_MS)
        writer.roll()
    writer.append([b"active"], timestamp_ms=FIRST_MS + 3 * HOUR_MS)
    log_dir.write_checkpoints()
    return writer.path


def test_age_of_a_segment_has_its_largest_timestamp_and_the_bytes_after_it(tmp_path: Path) -> None:
    path = _write(LogDirWriter(tmp_path / "kafka"))
    directory = identify_directory(path)
    assert directory is not None
    scan = scan_partition(directory)
    hold = SegmentHold(mode="none", hold_dir=tmp_path / "hold", max_bytes=None)
    due = hold.protect(scan, copied_through=-1)
    sizes = [(path / f"{base:020d}.log").stat().st_size for base in range(4)]
    ages = ages_of(due, scan)
    assert [age.bytes_after for age in ages] == [sum(sizes[1:]), sum(sizes[2:]), sizes[3]]
    assert [age.largest_timestamp_ms for age in ages] == [FIRST_MS + hour * HOUR_MS for hour in range(3)]


def test_age_of_a_segment_without_a_usable_time_index_is_that_of_its_last_append(tmp_path: Path) -> None:
    path = _write(LogDirWriter(tmp_path / "kafka"))
    (path / f"{0:020d}.timeindex").write_bytes(b"torn")
    (path / f"{1:020d}.timeindex").unlink()
    directory = identify_directory(path)
    assert directory is not None
    scan = scan_partition(directory)
    due = SegmentHold(mode="none", hold_dir=tmp_path / "hold", max_bytes=None).protect(scan, copied_through=-1)
    assert [age.largest_timestamp_ms for age in ages_of(due, scan)[:2]] == [held.modified_ms for held in due[:2]]


async def test_a_segment_is_copied_when_it_is_old_enough(tmp_path: Path) -> None:
    log_dir = LogDirWriter(tmp_path / "kafka")
    path = _write(log_dir)
    tier = Tier(tmp_path, [log_dir.path])
    tier.clock.step_wall_clock(FIRST_MS + 10 * HOUR_MS - tier.clock.now_ms())
    session = tier.session(policies=lambda _: TopicPolicy(copy_lag_ms=9 * HOUR_MS))
    outcome = (await session.copy_once())["orders-0"]
    assert session.finished(partition_of(path)) == [(0, 0), (1, 1)]
    assert "copy_lag" in outcome.status.reason
    (replica,) = session.tiering.replicas.all()
    assert replica.tasks.copy is not None
    assert await replica.tasks.copy.run_once() == 3600.0, "it returns the delay until the next pass"
    tier.clock.advance(3600)
    await replica.tasks.copy.run_once()
    assert session.finished(partition_of(path)) == [(0, 0), (1, 1), (2, 2)]


async def test_segment_that_the_broker_has_deleted_is_copied_without_delay(tmp_path: Path) -> None:
    log_dir = LogDirWriter(tmp_path / "kafka")
    path = _write(log_dir)
    tier = Tier(tmp_path, [log_dir.path])
    session = tier.session(policies=lambda _: TopicPolicy(copy_lag_ms=1 << 60))
    await session.copy_once()
    assert session.finished(partition_of(path)) == []
    assert session.hold.statistics().segments == 3
    delete_segment(path, 0)
    await session.copy_once()
    assert session.finished(partition_of(path)) == [(0, 0)]
