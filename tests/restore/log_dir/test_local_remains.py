"""Records that the old disk has beyond the tier's end join the restored log, if it is sound and of its lineage."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.log.logs import TransactionalProducers, lead, read_all, records
from tests.restore.log_dir.lab import Lab, closed, content_of, new_log, values
from tierd.errors import PlanOutdatedError
from tierd.log import identify_directory
from tierd.model import RemoteLogSegmentMetadata
from tierd.restore.log_dir.local_remains import JoinSourceReader
from tierd.restore.log_dir.restored_partition import RestoredPartition
from tierd.restore.plan.joined_sources import join_sources
from tierd.restore.plan.partition_plan import PartitionPlan, RestoreMode


@dataclass
class Disk:
    """A broker's log of five segments of ten offsets, of which the tier has the first two."""

    lab: Lab
    segments: list[RemoteLogSegmentMetadata]
    records: list[tuple[int, int, bytes | None]]

    @property
    def directory(self) -> Path:
        """Return the broker's partition directory, in the log dir into which it is restored."""
        return self.lab.directory

    def log(self, base_offset: int) -> Path:
        """Return the log file of a segment."""
        return self.directory / f"{base_offset:020d}.log"

    async def restored(
        self, *, mode: RestoreMode = RestoreMode.LAST_COPY, is_compacted: bool = False
    ) -> RestoredPartition:
        """Restore over what is left."""
        return await self.lab.restore(self.lab.plan(self.segments, mode=mode, is_compacted=is_compacted))

    def found(self) -> list[tuple[int, int, bytes | None]]:
        """Return what the restored log has."""
        return values(read_all(self.lab.load()))


@pytest.fixture
async def disk(tmp_path: Path) -> Disk:
    lab = Lab(tmp_path)
    log = new_log(lab.log_dir)
    for epoch in (0, 0, 1, 1, 2):
        for _ in range(5):
            at = 1_000 + log.log_end_offset
            lead(log, records(2, timestamp_ms=at, value=b"%06d" % log.log_end_offset), now_ms=at, epoch=epoch)
        if epoch < 2:
            log.roll(now_ms=at)
    written = values(read_all(log))
    return Disk(lab, await lab.copy(closed(log), through=10), written)


async def test_sound_remains_are_joined(disk: Disk) -> None:
    epochs = (disk.directory / "leader-epoch-checkpoint").read_bytes()
    restored = await disk.restored()
    assert (restored.end_offset, restored.merged_offset, restored.dropped) == (50, 20, ())
    assert disk.found() == disk.records
    assert (disk.directory / "leader-epoch-checkpoint").read_bytes() == epochs
    assert restored.moved_aside is not None
    assert (restored.moved_aside / f"{20:020d}.log").exists()


async def test_tiers_end_inside_a_local_segment_is_no_obstacle(disk: Disk, tmp_path: Path) -> None:
    """The tier's last segment ended elsewhere than this broker's: it was another replica's."""
    (tmp_path / "other").mkdir()
    other = new_log(tmp_path / "other")
    for _ in range(7):
        at = 1_000 + other.log_end_offset
        lead(other, records(2, timestamp_ms=at, value=b"%06d" % other.log_end_offset), now_ms=at)
    other.roll(now_ms=1)
    disk.segments = await disk.lab.copy(closed(other))
    restored = await disk.restored()
    assert (restored.end_offset, restored.merged_offset) == (50, 14)
    assert disk.found() == disk.records


async def test_damage_ends_what_is_joined_and_is_reported(disk: Disk) -> None:
    content = bytearray(disk.log(30).read_bytes())
    content[len(content) // 2] ^= 1
    disk.log(30).write_bytes(content)
    restored = await disk.restored()
    assert (restored.end_offset, restored.merged_offset) == (34, 20)
    ((start, end, reason),) = restored.dropped
    assert (start, end) == (34, 50)
    assert "a damaged batch at position" in reason
    assert restored.log_end_offset == 51, "offsets that were issued are not issued again"
    assert disk.found() == [each for each in disk.records if each[0] < 34]


async def test_torn_last_batch_is_left_out(disk: Disk) -> None:
    content = disk.log(40).read_bytes()
    disk.log(40).write_bytes(content[:-3])
    restored = await disk.restored()
    assert (restored.end_offset, restored.dropped) == (48, ())


async def test_lost_segment_ends_what_is_joined(disk: Disk) -> None:
    disk.log(30).unlink()
    restored = await disk.restored()
    assert restored.end_offset == 30
    assert [each[:2] for each in restored.dropped] == [(30, 50)]


async def test_remains_of_another_branch_are_not_joined(disk: Disk) -> None:
    (disk.directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 15\n")
    restored = await disk.restored()
    assert (restored.end_offset, restored.merged_offset) == (20, None)
    ((start, end, reason),) = restored.dropped
    assert (start, end, reason) == (20, 50, f"{disk.directory}: its leader epochs are not those of the tier")


@pytest.mark.parametrize(("cleaned", "end_offset"), [(20, 50), (21, 20)])
async def test_remains_of_a_compacted_topic_are_joined_only_if_the_cleaner_was_not_there(
    disk: Disk, cleaned: int, end_offset: int
) -> None:
    (disk.lab.log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\norders 0 {cleaned}\n")
    restored = await disk.restored(is_compacted=True)
    assert restored.end_offset == end_offset


def standby_of(disk: Disk, tmp_path: Path) -> Path:
    """Return the log dir of a standby that has the same log."""
    shutil.copytree(disk.directory, tmp_path / "standby" / disk.directory.name)
    return tmp_path / "standby"


async def test_standby_goes_on_where_the_old_disk_is_damaged(disk: Disk, tmp_path: Path) -> None:
    standby = standby_of(disk, tmp_path)
    content = bytearray(disk.log(30).read_bytes())
    content[len(content) // 2] ^= 1
    disk.log(30).write_bytes(content)
    restored = await disk.lab.restore(disk.lab.plan(disk.segments), standbys=(standby,))
    assert (restored.end_offset, restored.dropped) == (50, ())
    assert [tuple(each) for each in restored.joined] == [
        (disk.directory, 20, 34),
        (standby / disk.directory.name, 34, 50),
    ]
    assert disk.found() == disk.records


@pytest.mark.parametrize("has_gap", [False, True])
async def test_standby_that_missed_an_election_loses_to_the_old_disk(
    disk: Disk, tmp_path: Path, *, has_gap: bool
) -> None:
    """Its leader went on from 40 with records that no other replica got; then the leader of epoch 2 replaced them."""
    (tmp_path / "standby").mkdir()
    stale = new_log(tmp_path / "standby")
    for epoch in (0, 0, 1, 1, 1, 1):
        for _ in range(5):
            at = 1_000 + stale.log_end_offset
            lead(stale, records(2, timestamp_ms=at, value=b"%06d" % stale.log_end_offset), now_ms=at, epoch=epoch)
    stale.close()
    if has_gap:  # what both have is taken from the standby
        disk.log(20).unlink()
    restored = await disk.lab.restore(disk.lab.plan(disk.segments), standbys=(tmp_path / "standby",))
    assert (restored.end_offset, restored.log_end_offset) == (50, 61)
    assert disk.found() == disk.records
    reasons = [each[2] for each in restored.dropped]
    assert reasons == [
        f"{tmp_path / 'standby' / disk.directory.name}: a newer leader has replaced its records from offset 40 on"
    ]


async def test_standby_of_a_compacted_topic_is_restored_whole_without_the_tier(disk: Disk, tmp_path: Path) -> None:
    standby = standby_of(disk, tmp_path)
    (standby / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 40\n")
    shutil.rmtree(disk.directory)
    plan = disk.lab.plan(disk.segments, is_compacted=True)
    directory = identify_directory(standby / disk.directory.name)
    assert directory is not None
    source = JoinSourceReader().read(directory, is_existing=False)
    assert source is not None
    joined = join_sources(plan, [source])
    assert joined.parts == ()
    restored = await disk.lab.restore(joined, standbys=(standby,))
    assert (restored.end_offset, [each[1:] for each in restored.joined]) == (50, [(0, 50)])
    assert disk.found() == disk.records


async def test_plan_is_outdated_once_the_cleaner_of_a_standby_that_runs_went_on(disk: Disk, tmp_path: Path) -> None:
    standby = standby_of(disk, tmp_path)
    shutil.rmtree(disk.directory)
    directory = identify_directory(standby / disk.directory.name)
    assert directory is not None

    def joined() -> PartitionPlan:
        source = JoinSourceReader().read(directory, is_existing=False)
        assert source is not None
        return join_sources(disk.lab.plan(disk.segments, is_compacted=True), [source])

    plan = joined()
    assert [(each.start_offset, each.end_offset) for each in plan.joins] == [(20, 50)]
    (standby / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 40\n")
    with pytest.raises(PlanOutdatedError, match=r"has rewritten .* since the plan, and what it has from offset 20 on"):
        await disk.lab.restore(plan, standbys=(standby,))
    assert not disk.directory.exists()
    restored = await disk.lab.restore(joined(), standbys=(standby,))
    assert (restored.end_offset, [each[1:] for each in restored.joined]) == (50, [(0, 50)])
    assert disk.found() == disk.records


@pytest.mark.parametrize("checkpointed", [33, 4])  # a standby writes the checkpoint at intervals, the epochs at once
async def test_log_begins_with_a_standby_whose_leader_deleted_what_the_tier_lacks(
    disk: Disk, tmp_path: Path, checkpointed: int
) -> None:
    standby = standby_of(disk, tmp_path)
    (standby / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {checkpointed}\n")
    (standby / disk.directory.name / "leader-epoch-checkpoint").write_text("0\n2\n1 33\n2 40\n")
    shutil.rmtree(disk.directory)
    directory = identify_directory(standby / disk.directory.name)
    assert directory is not None
    source = JoinSourceReader().read(directory, is_existing=False)
    assert source is not None
    joined = join_sources(disk.lab.plan(disk.segments), [source])
    assert (joined.parts, joined.log_start_offset) == ((), 33)
    restored = await disk.lab.restore(joined, standbys=(standby,))
    assert (restored.end_offset, [each[1:] for each in restored.joined]) == (50, [(32, 50)])
    assert disk.found() == [each for each in disk.records if each[0] >= 33]
    assert (disk.lab.log_dir / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 33\n"


async def test_import_joins_the_records_of_a_standby(disk: Disk, tmp_path: Path) -> None:
    standby = standby_of(disk, tmp_path)
    shutil.rmtree(disk.directory)
    restored = await disk.lab.restore(
        disk.lab.plan(disk.segments, mode=RestoreMode.IMPORT), partition=disk.lab.partition, standbys=(standby,)
    )
    assert (restored.end_offset, restored.merged_offset) == (50, 20)


async def test_import_sets_local_remains_aside_and_joins_none(disk: Disk) -> None:
    before = content_of(disk.directory)
    restored = await disk.lab.restore(
        disk.lab.plan(disk.segments, mode=RestoreMode.IMPORT), partition=disk.lab.partition
    )
    assert (restored.end_offset, restored.merged_offset) == (20, None)
    assert restored.moved_aside is not None
    assert content_of(restored.moved_aside) == before


async def test_restore_to_an_offset_joins_nothing(disk: Disk) -> None:
    restored = await disk.lab.restore(disk.lab.plan(disk.segments, end_offset=20))
    assert (restored.end_offset, restored.merged_offset) == (20, None)
    assert restored.log_end_offset == 51, "offsets that were issued are not issued again"


async def test_directory_that_cannot_be_understood_is_moved_aside(disk: Disk) -> None:
    (disk.directory / "partition.metadata").write_text("rubbish")
    restored = await disk.restored()
    assert (restored.end_offset, restored.merged_offset) == (20, None)
    assert "partition.metadata" in restored.not_merged[disk.directory]
    assert restored.moved_aside is not None


async def test_transactions_that_the_remains_leave_open_are_left_out(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    log = new_log(lab.log_dir)
    producers = TransactionalProducers(log)
    for entry in ("-", "A"):
        producers.append(entry)
    log.roll(now_ms=1)
    for entry in ("A+", "-", "B", "-"):
        producers.append(entry)
    segments = await lab.copy(closed(log), through=0)
    restored = await lab.restore(lab.plan(segments))
    assert (restored.end_offset, restored.merged_offset, restored.log_end_offset) == (4, 2, 7)
    assert [record.offset for record in read_all(lab.load())] == [0, 1, 2, 3]
