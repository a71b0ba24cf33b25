"""Copied segments compared with the log of another log dir or another broker, and rewritten segments of the tier."""

import os
import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from tests.tiering.compacted import Compaction
from tests.tiering.copying.cut_back_lab import CutBackLab
from tierd.log import build_indexes, iter_batches

LONG_AGO_NS = 10**18


@pytest.fixture
def lab(tmp_path: Path) -> CutBackLab:
    return CutBackLab(tmp_path / "1")


def follower_of(lab: CutBackLab, folder: Path) -> CutBackLab:
    """Return the empty log of another broker that replicates the partition of ``lab``."""
    return CutBackLab(folder / "2", leader=lab, broker_id=2)


def touch_long_ago(path: Path) -> None:
    """Date the segments of a log before every copy, as files that were not changed for long."""
    for log in path.glob("*.log"):
        os.utime(log, ns=(LONG_AGO_NS, LONG_AGO_NS))


def move(lab: CutBackLab) -> None:
    """Move the replica to the other log dir: new files of the same content."""
    new = lab.other_log_dir.path / lab.path.name
    shutil.copytree(lab.path, new)
    _follow_to(lab, new)


def move_and_compact(lab: CutBackLab, *, drop: int) -> None:
    """Move the replica after a cleaning by the broker: one segment of its remaining records, and an active one."""
    new, logs = lab.other_log_dir.path / lab.path.name, sorted(lab.path.glob("*.log"))
    new.mkdir()
    for name in ("partition.metadata", "leader-epoch-checkpoint"):
        shutil.copy(lab.path / name, new / name)
    rolled = [each for log in logs[:-1] for each in iter_batches(log.read_bytes(), name=str(log))]
    merged = new / logs[0].name
    merged.write_bytes(b"".join(bytes(each.data) for n, each in enumerate(rolled) if n % drop))
    offsets, times = build_indexes(merged, base_offset=int(merged.stem))
    merged.with_suffix(".index").write_bytes(offsets)
    merged.with_suffix(".timeindex").write_bytes(times)
    for file in lab.path.glob(f"{logs[-1].stem}.*"):
        shutil.copy(file, new / file.name)
    _follow_to(lab, new)


def _follow_to(lab: CutBackLab, new: Path) -> None:
    lab.path.rename(lab.path.with_name(f"{lab.path.name}.{uuid4().hex}-delete"))
    for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
        shutil.copy(lab.log_dir.path / name, lab.other_log_dir.path / name)
    lab.path = lab.writer.path = new


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_log_that_was_moved_to_another_log_dir_ends_no_copied_segment(
    lab: CutBackLab, is_restarted: bool
) -> None:
    lab.segments(3)
    await lab.run()
    move(lab)
    if is_restarted:
        lab.start()
    outcome = await lab.run()
    assert outcome.error is None
    assert (lab.ended, lab.finished) == ([], [(0, 5), (6, 11), (12, 17)])
    assert await lab.read() == lab.values


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("drop", [2, 3, 9])
async def test_log_that_was_moved_and_compacted_ends_no_copied_segment(
    lab: CutBackLab, drop: int, is_restarted: bool
) -> None:
    lab.segments(3)
    lab.produce(1)
    await lab.run()
    move_and_compact(lab, drop=drop)
    if is_restarted:
        lab.start()
    outcome = await lab.run()
    assert outcome.error is None
    assert (lab.ended, lab.finished) == ([], [(0, 5), (6, 11), (12, 17)])
    assert outcome.status.copied_through == 17, "the status goes on saying how far the log is in the tier"


async def test_log_that_was_cut_back_and_then_moved_is_copied_again(lab: CutBackLab) -> None:
    lab.segments(4)
    await lab.run()
    lab.lose_from(14)
    lab.segments(2)
    touch_long_ago(lab.path)
    move(lab)
    lab.start()
    await lab.run()
    assert lab.ended == [(12, 17), (18, 23)]
    assert await lab.read_tier_only(1000) == lab.values


@pytest.mark.parametrize("is_old", [False, True])
async def test_new_leader_with_the_same_batches_ends_no_copied_segment(
    lab: CutBackLab, tmp_path: Path, is_old: bool
) -> None:
    lab.segments(3)
    await lab.run()
    follower = follower_of(lab, tmp_path)
    follower.segments(3)
    if is_old:
        touch_long_ago(follower.path)
    follower.writer.begin_epoch(1)
    follower.segments(1)

    outcome = await follower.run()

    assert outcome.error is None
    assert follower.ended == []
    assert follower.finished == [(0, 5), (6, 11), (12, 17), (18, 23)]
    assert await follower.read_tier_only(1000) == follower.values


async def test_new_leader_with_segments_of_other_sizes_ends_no_copied_segment(lab: CutBackLab, tmp_path: Path) -> None:
    """Replicas roll their segments by their own configuration."""
    lab.segments(4)
    await lab.run()
    follower = follower_of(lab, tmp_path)
    for _ in range(2):
        follower.produce(6)
        follower.writer.roll()
    follower.writer.begin_epoch(1)
    follower.segments(1)
    outcome = await follower.run()
    assert outcome.error is None
    assert follower.ended == []
    assert await follower.read() == follower.values


@pytest.mark.parametrize("is_old", [False, True])
async def test_new_leader_with_other_batches_copies_its_own_batches(
    lab: CutBackLab, tmp_path: Path, is_old: bool
) -> None:
    """A file of another broker that has not changed since the copy is no proof that the copy was made of it."""
    lab.segments(3)
    await lab.run()
    follower = follower_of(lab, tmp_path)
    follower.segments(2)
    follower.produce_others(3)
    follower.writer.roll()
    if is_old:
        touch_long_ago(follower.path)
    follower.writer.begin_epoch(1)
    follower.segments(1)

    outcome = await follower.run()

    assert outcome.error is None
    assert follower.ended == [(12, 17)]
    assert await follower.read_tier_only(1000) == follower.values
    assert await follower.read() == follower.values


async def test_segment_cut_by_another_epoch_is_compared_up_to_that_epoch(lab: CutBackLab, tmp_path: Path) -> None:
    """The lineage hides the end of the copied segment; the visible beginning may be of a lost log too."""
    lab.segments(2)
    lab.produce(6)
    lab.writer.roll()
    lab.log_dir.write_checkpoints()
    await lab.run()
    assert lab.finished[-1] == (12, 23)
    lab.lose_from(14)
    lab.produce(1)
    lab.writer.begin_epoch(1)
    lab.segments(2)

    outcome = await lab.run()

    assert outcome.error is None
    assert lab.ended == [(12, 23)]
    assert await lab.read() == lab.values
    assert await lab.read_tier_only(1000) == lab.values


async def test_segment_cut_by_another_epoch_is_kept_if_it_is_the_same_up_to_that_epoch(lab: CutBackLab) -> None:
    lab.segments(2)
    lab.produce(6)
    lab.writer.roll()
    lab.log_dir.write_checkpoints()
    await lab.run()
    lab.lose_from(18)
    lab.writer.begin_epoch(1)
    lab.segments(2)

    outcome = await lab.run()

    assert outcome.error is None
    assert lab.ended == []
    assert await lab.read() == lab.values


@pytest.mark.parametrize("kept", [(12, 14, 16), (12, 16), (12, 14), (14,), ()])
async def test_segment_that_the_tier_has_compacted_is_the_same_history(
    lab: CutBackLab, tmp_path: Path, kept: tuple[int, ...]
) -> None:
    lab.segments(3)
    await lab.run()
    await Compaction(lab.session, lab.partition, tmp_path / "job").replace(12, 17, kept)
    await lab.run()
    lab.start()
    outcome = await lab.run()
    assert outcome.error is None
    assert [offsets for offsets in lab.ended if offsets != (12, 17)] == []
    assert lab.finished == [(0, 5), (6, 11), (12, 17)]


async def test_segments_that_the_tier_has_merged_are_the_same_history(lab: CutBackLab, tmp_path: Path) -> None:
    lab.segments(4)
    await lab.run()
    await Compaction(lab.session, lab.partition, tmp_path / "job").replace(6, 23, lambda _: True)
    lab.start()
    outcome = await lab.run()
    assert outcome.error is None
    assert lab.finished == [(0, 5), (6, 23)]


@pytest.mark.parametrize("kept", [(12, 14, 16), (12, 16), (12, 14)])
async def test_cut_log_is_found_although_the_tier_has_compacted_the_lost_records(
    lab: CutBackLab, tmp_path: Path, kept: tuple[int, ...]
) -> None:
    """The output of a compaction is newer than the local file, which therefore need not be what was copied."""
    lab.segments(3)
    await lab.run()
    lab.lose_from(14)
    lab.produce_others(2)
    lab.writer.roll()
    lab.produce(1)
    lab.log_dir.write_checkpoints()
    touch_long_ago(lab.path)
    await Compaction(lab.session, lab.partition, tmp_path / "job").replace(12, 17, kept, compacted_to=18)
    lab.start()

    outcome = await lab.run()

    assert outcome.error is None
    assert lab.finished == [(0, 5), (6, 11), (12, 17)]
    assert await lab.read_tier_only(18) == lab.values[:18]


async def test_cut_log_is_found_although_the_tier_has_merged_the_lost_records(lab: CutBackLab, tmp_path: Path) -> None:
    lab.segments(4)
    await lab.run()
    await Compaction(lab.session, lab.partition, tmp_path / "job").replace(6, 23, lambda _: True)
    lab.lose_from(14)
    lab.segments(3)
    lab.start()

    outcome = await lab.run()

    assert outcome.error is None
    assert (6, 23) in lab.ended
    assert await lab.read_tier_only(1000) == lab.values


async def test_segment_whose_log_start_lies_inside_it_is_compared(lab: CutBackLab) -> None:
    lab.segments(1)
    lab.produce(3)
    lab.writer.forget_epochs_below(8)
    lab.writer.roll()
    lab.log_dir.write_checkpoints()
    (lab.log_dir.path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 8\n")
    await lab.run()
    (copied,) = [row for row in lab.session.rows(lab.partition) if row.start_offset == 6]
    assert copied.first_readable_offset == 8
    lab.lose_from(10)
    lab.produce_others(1)
    lab.writer.roll()
    lab.produce(1)
    (lab.log_dir.path / "replication-offset-checkpoint").write_text("0\n1\norders 0 14\n")

    assert [each.kind for each in await lab.session.findings(lab.path)] == ["diverged-log"]
    lab.start()
    outcome = await lab.run()

    assert outcome.error is None
    assert lab.ended == [(6, 11)]
    assert await lab.read() == lab.values[8:]


async def test_stale_segment_below_a_newer_right_copy_is_found_by_deep_verify_alone(lab: CutBackLab) -> None:
    """An older tierd copied on above stale segments; a comparison of every copied segment would read the whole tier."""
    lab.segments(3)
    await lab.run()
    lab.cut_back_and_grow_the_same_above(8, 12)
    lab.start()

    outcome = await lab.run()

    assert outcome.error is None
    assert (lab.ended, lab.finished) == ([], [(0, 5), (6, 11), (12, 17)])
    found = await lab.session.findings(lab.path)
    assert [(each.kind, each.what) for each in found] == [
        ("diverged-log", "the local log has another record at offset 8: it lost this one")
    ]
