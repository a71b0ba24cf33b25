"""Compacted replica that a broker moved to another log dir: its new log begins with one active segment."""

import asyncio
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from tests.tiering.copying.cut_back_lab import CutBackLab
from tierd.log import identify_directory, iter_batches, scan_partition
from tierd.tiering.copying.follower_task import FollowerTask
from tierd.tiering.local.partition_log import PartitionLog
from tierd.tiering.topic_policy import TopicPolicy

COMPACTED = TopicPolicy(cleanup_policy=frozenset({"compact"}))


@pytest.fixture
async def moved(tmp_path: Path, request: pytest.FixtureRequest) -> CutBackLab:
    """Copy three segments; then clean the log and move it, so that one active segment has all remaining records."""
    drop: int = request.param
    lab = CutBackLab(tmp_path)
    lab.segments(3)
    lab.produce(1)
    await lab.run()
    new, logs = lab.other_log_dir.path / lab.path.name, sorted(lab.path.glob("*.log"))
    new.mkdir()
    for name in ("partition.metadata", "leader-epoch-checkpoint"):
        shutil.copy(lab.path / name, new / name)
    rolled = [each for log in logs[:-1] for each in iter_batches(log.read_bytes(), name=str(log))]
    remaining = [bytes(each.data) for n, each in enumerate(rolled) if n % drop]
    active = new / logs[0].name
    active.write_bytes(b"".join([*remaining, logs[-1].read_bytes()]))
    for suffix in (".index", ".timeindex"):
        active.with_suffix(suffix).touch()
    lab.path.rename(lab.path.with_name(f"{lab.path.name}.{uuid4().hex}-delete"))
    for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
        shutil.copy(lab.log_dir.path / name, lab.other_log_dir.path / name)
    lab.path = lab.writer.path = new
    lab.start(COMPACTED)
    return lab


@pytest.mark.parametrize("moved", [2, 3, 9], indirect=True)
async def test_leader_of_a_moved_compacted_log_shows_the_same_frontier_and_ends_no_copied_segment(
    moved: CutBackLab,
) -> None:
    outcome = await moved.run()

    assert outcome.error is None
    assert outcome.status.copied_through == 17
    assert (moved.ended, moved.finished) == ([], [(0, 5), (6, 11), (12, 17)])


@pytest.mark.parametrize("moved", [2, 3, 9], indirect=True)
async def test_follower_of_a_moved_compacted_log_shows_the_same_frontier(moved: CutBackLab) -> None:
    await moved.run()
    directory = identify_directory(moved.path)
    assert directory is not None
    follower = FollowerTask(
        PartitionLog(scan_partition(directory), moved.session.hold),
        metadata=moved.session.metadata,
        log_offsets=moved.told,
        slots=asyncio.Semaphore(1),
        interval_s=1,
        idle_interval_s=300,
        is_compacted=lambda: True,
    )

    await follower.run_once()

    assert follower.state.copied_through is not None
    assert follower.state.copied_through.offset == 17
