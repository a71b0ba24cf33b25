"""Metadata that is older than the bucket: no copy goes that the metadata does not know to be the only one."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.tiering.auditing.audited import Audited
from tests.tiering.compacted import Compaction
from tests.tiering.setups import CLUSTER_ID, Tier, delete_segment, partition_of
from tierd.metadata import Batch, MemoryKeyValueStore, MetadataKeyFactory, PartitionView, Put, read_partition
from tierd.model import RemoteLogSegmentState
from tierd.remote import ObjectKeyFactory, SegmentStorage
from tierd.tiering import MetadataRebuild, StoredTier

STARTED = RemoteLogSegmentState.COPY_SEGMENT_STARTED
KEYS = MetadataKeyFactory(CLUSTER_ID)
WEEK_S = 7 * 86_400


class BackedUpStore(MemoryKeyValueStore):
    """Metadata store with a backup of every state that it had."""

    def __init__(self) -> None:
        super().__init__()
        self.backups: list[list[tuple[str, bytes]]] = []

    async def apply(self, batch: Batch) -> None:
        await super().apply(batch)
        self.backups.append(await self.scan(""))


class Setup:
    """Four rolled segments and an active one, and their tier."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        log_dir = LogDirWriter(tmp_path / "kafka")
        writer = log_dir.add_partition("orders")
        writer.fill(rolled_segments=4, shape=SegmentShape())  # 8 records each
        log_dir.write_checkpoints()
        self.path = writer.path
        self.partition = partition_of(self.path)
        self.rows = BackedUpStore()
        self.tier = Tier(tmp_path, [log_dir.path])
        self.tier.rows = self.rows
        self.session = self.tier.session()

    async def copy(self) -> None:
        assert [outcome.error for outcome in (await self.session.copy_once()).values()] == [None]

    def lose_local(self) -> None:
        """Delete the rolled segments from the log dir, as the broker's retention does."""
        for base_offset in (0, 8, 16, 24):
            delete_segment(self.path, base_offset)

    async def compact(self) -> None:
        """Replace the second and third segment; the objects of both are gone."""
        compaction = Compaction(self.session, self.partition, self.folder / "compacted")
        await compaction.replace(8, 23, {8, 20}, is_grace_over=True)

    async def restore_backup(self, is_wanted: Callable[[PartitionView], bool]) -> None:
        """Lose the metadata store, and restore its last backup with such contents; a later process continues."""
        for backup in reversed(self.rows.backups):
            restored = MemoryKeyValueStore()
            await restored.apply(Batch([Put(key, value) for key, value in backup]))
            if is_wanted(await read_partition(restored, KEYS, self.partition)):
                break
        self.tier.rows = restored
        self.tier.clock.advance(WEEK_S)
        self.session = self.tier.session()

    async def rebuild(self) -> None:
        self.tier.rows = MemoryKeyValueStore()
        await MetadataRebuild(
            StoredTier(
                objects=self.tier.store,
                segments=SegmentStorage(self.tier.store, cluster_id=CLUSTER_ID, broker_id=0),
                object_keys=ObjectKeyFactory("", CLUSTER_ID),
                rows=self.tier.rows,
                row_keys=KEYS,
            ),
            session_id=uuid4(),
            grace_ends_ms=0,
            on_progress=lambda _: None,
        ).run()
        self.session = self.tier.session()

    async def offsets(self) -> list[int]:
        return [record.offset for record in await self.session.read_all(self.path)]


@pytest.fixture
async def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


async def test_copy_that_ended_after_the_backup_is_kept(setup: Setup) -> None:
    await setup.copy()
    setup.lose_local()
    await setup.restore_backup(lambda view: any(m.state is STARTED and m.start_offset == 8 for m in view.list()))
    for _ in range(3):
        await setup.copy()
        setup.tier.clock.advance(WEEK_S)
    assert setup.session.recorder.swept == 0
    await setup.rebuild()
    await setup.copy()
    assert await setup.offsets() == list(range(36))


async def test_output_that_was_committed_after_the_backup_is_kept(setup: Setup) -> None:
    await setup.copy()
    setup.lose_local()
    await setup.compact()
    await setup.restore_backup(lambda view: any(m.state is STARTED for m in view.list()))
    for _ in range(3):
        await setup.copy()
        setup.tier.clock.advance(WEEK_S)
    await setup.rebuild()
    await setup.copy()
    assert await setup.offsets() == [*range(12), *range(20, 36)]


async def test_copy_whose_end_is_unknown_goes_once_its_offsets_are_copied_again(setup: Setup) -> None:
    await setup.copy()
    await setup.restore_backup(lambda view: any(m.state is STARTED and m.start_offset == 24 for m in view.list()))
    setup.session.manager.pause()
    await setup.copy()
    assert len([m for m in setup.session.rows(setup.partition) if m.state is STARTED]) == 1
    setup.session.manager.resume()
    setup.tier.clock.advance(WEEK_S)
    await setup.copy()
    assert setup.session.recorder.swept == 1
    assert setup.session.finished(setup.partition) == [(0, 7), (8, 15), (16, 23), (24, 31)]


async def test_repair_keeps_the_output_of_a_compaction_that_a_restored_backup_does_not_know(tmp_path: Path) -> None:
    tier = Audited(tmp_path, rolled_segments=4)
    await tier.session.copy_once()
    tier.lose_local(0, 8, 16, 24)
    backup = await tier.tier.rows.scan("")
    await Compaction(tier.session, tier.partition, tmp_path / "new").replace(8, 23, {8, 20}, is_grace_over=True)
    tier.tier.rows = MemoryKeyValueStore()
    await tier.tier.rows.apply(Batch([Put(key, value) for key, value in backup]))
    tier.tier.clock.advance(WEEK_S)
    assert ("remove-orphan", "done") not in await tier.results()
    assert len(await tier.objects(".log")) == 3


async def test_repair_does_not_end_a_copy_that_ended_after_the_backup(setup: Setup, tmp_path: Path) -> None:
    await setup.copy()
    setup.lose_local()
    await setup.restore_backup(lambda view: any(m.state is STARTED and m.start_offset == 8 for m in view.list()))
    tier = Audited(tmp_path / "audited")
    tier.path, tier.tier = setup.path, setup.tier
    tier.folder = tmp_path
    assert ("end-deletion", "failed") in await tier.results()
    assert len(await tier.objects(".log")) == 4
