"""Removal of whole partitions: marked, started, finished; grace; the broker that removes; failures of one partition."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.remote_segments import PARTITION
from tests.tiering.removing.removals import remover_of
from tests.tiering.removing.world import CLUSTER_ID, DELETING, FINISHED, STARTED, Process, World
from tierd.errors import RemoteResourceNotFoundError, RemoteStorageError, TierError
from tierd.metadata import partitions_being_deleted
from tierd.metadata.stored.partition_deletes import deleted_partitions
from tierd.model import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteState,
    TopicIdPartition,
    uuid_to_text,
)
from tierd.remote import ObjectStore, SegmentStorage, UnfinishedUpload
from tierd.remote.segments.segment_storage import UnfinishedSegmentUpload
from tierd.tiering.removing.partition_removal import TAKEOVER_S
from tierd.tiering.removing.sweep import SweepSettings, UploadSweep

OTHER = replace(PARTITION, partition=1)
GRACE_S = 3600.0


class UnfinishedUploads(SegmentStorage):
    """Source of made-up uploads; None refuses the listing."""

    def __init__(self, store: ObjectStore, uploads: list[UnfinishedSegmentUpload] | None) -> None:
        super().__init__(store, cluster_id=CLUSTER_ID, broker_id=1)
        self.uploads = uploads

    async def list_unfinished_uploads(self) -> list[UnfinishedSegmentUpload]:
        if self.uploads is None:
            raise RemoteStorageError("refused")
        return list(self.uploads)

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        assert self.uploads is not None
        self.uploads = [each for each in self.uploads if each.upload != upload]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def filled(world: World, process: Process, partition: TopicIdPartition, count: int) -> None:
    world.partition = partition
    await process.lead()
    await process.fill(count)
    world.partition = PARTITION


@pytest.mark.spec("remote-tiering 190")
async def test_five_and_three_segments_are_deleted_in_two_steps_each(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = world.process()
    await filled(world, process, PARTITION, 5)
    await filled(world, process, OTHER, 3)
    updates: list[RemoteLogSegmentMetadataUpdate] = []
    update = process.metadata.update

    async def counted(each: RemoteLogSegmentMetadataUpdate) -> None:
        updates.append(each)
        await update(each)

    monkeypatch.setattr(process.metadata, "update", counted)
    remover = remover_of(process, grace_s=0)
    await remover.accept(PARTITION)
    await remover.accept(OTHER)
    assert await remover.run_once() is None
    assert (len(process.storage.deleted), len(updates)) == (8, 16)
    assert await world.objects.list_objects("") == []
    for partition in (PARTITION, OTHER):
        with pytest.raises(RemoteResourceNotFoundError):
            process.metadata.view(partition)


async def test_series_of_a_topic_are_dropped_with_its_last_partition(world: World) -> None:
    process = world.process()
    await filled(world, process, PARTITION, 2)
    await filled(world, process, OTHER, 2)
    remover = remover_of(process, grace_s=0)
    await remover.accept(PARTITION)
    await remover.run_once()
    assert process.recorder.forgotten == []
    await remover.accept(OTHER)
    await remover.run_once()
    assert process.recorder.forgotten == [PARTITION.topic]


@pytest.mark.spec("remote-tiering 192")
async def test_failed_removal_of_a_partition_does_not_stop_another(world: World) -> None:
    process = world.process()
    await filled(world, process, PARTITION, 2)
    await filled(world, process, OTHER, 2)
    errors: list[tuple[TopicIdPartition, TierError]] = []
    remover = remover_of(process, grace_s=0, errors=errors)
    await remover.accept(PARTITION)
    await remover.accept(OTHER)

    def refuse(metadata: RemoteLogSegmentMetadata) -> None:
        if metadata.segment.topic_id_partition == PARTITION:
            raise RemoteStorageError("refused")

    process.storage.on_delete = refuse
    assert await remover.run_once() == 30
    assert [(partition, str(error)) for partition, error in errors] == [(PARTITION, "refused")]
    assert await left(process) == [PARTITION]
    process.storage.on_delete = lambda _: None
    assert await remover.run_once() is None
    assert await left(process) == []


def delete_state(process: Process) -> RemotePartitionDeleteState | None:
    return process.view.delete_state


async def left(process: Process) -> list[TopicIdPartition]:
    found = await partitions_being_deleted(process.kv, process.metadata.keys)
    return [entry.metadata.partition for entry in found]


async def test_partition_in_its_grace_has_no_readable_row_and_all_its_objects(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    await process.add(200, 299, state=STARTED)
    remover = remover_of(process, grace_s=GRACE_S)
    await remover.accept(PARTITION)
    assert delete_state(process) is RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    assert process.starts(FINISHED) == [0, 100]
    assert await remover.run_once() == GRACE_S
    assert delete_state(process) is RemotePartitionDeleteState.DELETE_PARTITION_STARTED
    assert process.states() == {0: DELETING, 100: DELETING}, "the copy that was never readable is removed"
    assert len(await world.objects.list_objects("")) == 8
    world.clock.advance(GRACE_S)
    assert await remover.run_once() is None
    assert await world.objects.list_objects("") == []
    assert {entry.reason for entry in world.ledger_lines()} == {"topic_deleted"}


async def test_removal_at_once_includes_segments_already_in_their_grace(world: World) -> None:
    process = world.process()
    await process.lead()
    (metadata, _) = await process.fill(2)
    after_ms = world.clock.now_ms() + 3_600_000
    await process.deletion.begin(metadata, reason="retention_time", detail="", delete_after_ms=after_ms)
    remover = remover_of(process, grace_s=GRACE_S)
    await remover.accept(PARTITION, at_once=True)
    assert await remover.run_once() is None
    assert await world.objects.list_objects("") == []


async def test_removal_is_continued_by_the_same_broker_after_a_restart(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    await remover_of(process).accept(PARTITION)
    successor = world.process()
    remover = remover_of(successor, grace_s=GRACE_S)
    assert await remover.run_once() == GRACE_S
    world.clock.advance(GRACE_S)
    assert await remover_of(world.process()).run_once() is None
    assert await world.objects.list_objects("") == []


async def test_removal_without_progress_is_taken_over_by_another_broker(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    await remover_of(process, grace_s=0).accept(PARTITION)
    other = remover_of(world.process(broker_id=2), grace_s=0)
    assert await other.run_once() == pytest.approx(TAKEOVER_S)
    assert len(await world.objects.list_objects("")) == 6
    world.clock.advance(TAKEOVER_S)
    assert await other.run_once() is None
    assert await world.objects.list_objects("") == []


async def test_partition_of_a_deleted_topic_is_removed_by_its_owner_and_not_by_a_follower(world: World) -> None:
    owner = world.process()
    await owner.lead()
    await owner.fill(1)
    follower = remover_of(world.process(broker_id=2), grace_s=0)
    follower.delete_tier(PARTITION)
    assert follower.wake.is_set()
    assert await follower.run_once() == TAKEOVER_S
    assert await left(owner) == []
    mine = remover_of(owner, grace_s=0)
    mine.delete_tier(PARTITION)
    assert await mine.run_once() is None
    assert await world.objects.list_objects("") == []
    assert await follower.run_once() is None, "the removal was done by the owner"


async def test_partition_of_a_dead_owner_is_removed_by_a_follower_after_a_delay(world: World) -> None:
    owner = world.process()
    await owner.lead()
    await owner.fill(1)
    follower = remover_of(world.process(broker_id=2), grace_s=0)
    follower.delete_tier(PARTITION)
    await follower.run_once()
    world.clock.advance(TAKEOVER_S)
    assert await follower.run_once() is None
    assert await world.objects.list_objects("") == []


async def test_retained_object_keeps_its_partition_in_deletion(world: World) -> None:
    process = world.process()
    await process.lead()
    (metadata,) = await process.fill(1)
    world.objects.retained.add(process.key(metadata, ".log"))
    remover = remover_of(process, grace_s=0)
    await remover.accept(PARTITION)
    assert await remover.run_once() == pytest.approx(6 * 3600)
    assert await left(process) == [PARTITION]
    world.objects.retained.clear()
    world.clock.advance(6 * 3600)
    assert await remover.run_once() is None


async def test_log_start_record_is_removed_with_the_partition_once_its_retention_ends(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    await process.metadata.advance_log_start_offset(PARTITION, 150)
    await process.log_starts.keep(PARTITION)
    (record,) = [info.key for info in await world.objects.list_objects("") if info.key.endswith("log-start.json")]
    world.objects.retained.add(record)
    remover = remover_of(process, grace_s=0)
    await remover.accept(PARTITION)
    assert await remover.run_once() == pytest.approx(6 * 3600)
    assert [info.key for info in await world.objects.list_objects("")] == [record]
    assert await left(process) == [PARTITION]
    world.objects.retained.clear()
    assert await remover.run_once() is None
    assert await world.objects.list_objects("") == []


async def test_a_partition_without_a_tier_is_refused(world: World) -> None:
    with pytest.raises(RemoteResourceNotFoundError, match="nothing in the tier"):
        await remover_of(world.process()).accept(replace(PARTITION, topic_id=UUID(int=99)))


async def test_removal_waits_for_a_copy_that_runs(world: World) -> None:
    process = world.process()
    await process.lead()
    copied = await process.add(0, 99, state=STARTED)
    process.being_copied.add(copied.segment.id)
    remover = remover_of(process, grace_s=0)
    await remover.accept(PARTITION)
    assert await remover.run_once() == 30
    assert process.states() == {0: STARTED}
    process.being_copied.clear()
    assert await remover.run_once() is None


async def test_segment_that_a_crash_left_without_a_tombstone_gets_one_and_a_single_grace(world: World) -> None:
    process = world.process()
    await filled(world, process, PARTITION, 1)
    remover = remover_of(process, grace_s=GRACE_S)
    await remover.accept(PARTITION)
    await remover.run_once()
    (metadata,) = process.view.list()
    await process.storage.remove_tombstone(metadata)
    successor = world.process()
    assert await remover_of(successor, grace_s=GRACE_S).run_once() == GRACE_S
    assert ".tombstone" in await successor.suffixes(metadata)
    world.clock.advance(GRACE_S)
    assert await remover_of(successor, grace_s=GRACE_S).run_once() is None
    assert await world.objects.list_objects("") == []


@pytest.mark.parametrize("is_finished", [False, True])
async def test_broker_that_lost_a_deletion_to_another_forgets_its_metadata(world: World, *, is_finished: bool) -> None:
    first, second = world.process(), world.process(broker_id=2)
    await filled(world, first, PARTITION, 2)
    loser, winner = remover_of(first, grace_s=GRACE_S), remover_of(second, grace_s=GRACE_S)
    await loser.accept(PARTITION)
    world.clock.advance(TAKEOVER_S + GRACE_S)
    await winner.run_once()
    if is_finished:
        world.clock.advance(GRACE_S)
        assert await winner.run_once() is None
    await loser.run_once()
    assert first.metadata.statistics().partitions == 0


async def test_tombstone_of_a_deleted_partition_is_removed_after_its_retention(world: World) -> None:
    process = world.process()
    await filled(world, process, PARTITION, 1)
    remover = remover_of(process, grace_s=0)
    await remover.accept(PARTITION)
    await remover.run_once()
    assert await deleted_partitions(process.kv, process.metadata.keys) == [PARTITION]
    world.clock.advance(86_401)
    await remover.run_once()
    assert await deleted_partitions(process.kv, process.metadata.keys) == []
    assert await process.kv.scan(process.metadata.keys.partition_prefix(PARTITION)) == []


async def test_removal_aborts_unfinished_uploads_of_its_partition_and_no_others(world: World) -> None:
    process = world.process()
    await filled(world, process, PARTITION, 1)
    ours, others = (
        UnfinishedSegmentUpload(
            UnfinishedUpload(f"key {number}", f"id {number}", world.clock.now_ms()),
            uuid_to_text(PARTITION.topic_id),
            UUID(int=number),
            number,
        )
        for number in (PARTITION.partition, OTHER.partition)
    )
    storage = UnfinishedUploads(world.objects, [ours, others])
    uploads = UploadSweep(
        storage=storage,
        metadata=process.metadata,
        being_copied=(),
        recorder=process.recorder,
        clock=world.clock,
        settings=SweepSettings(grace_s=GRACE_S, limit=16, retry_s=30),
    )
    remover = remover_of(process, grace_s=0, uploads=uploads)
    await remover.accept(PARTITION)
    assert await remover.run_once() is None
    assert storage.uploads == [others]
    assert process.recorder.aborted == 1


async def test_store_that_cannot_list_uploads_does_not_hold_up_the_removal(world: World) -> None:
    process = world.process()
    await filled(world, process, PARTITION, 1)
    uploads = UploadSweep(
        storage=UnfinishedUploads(world.objects, None),
        metadata=process.metadata,
        being_copied=(),
        recorder=process.recorder,
        clock=world.clock,
        settings=SweepSettings(grace_s=GRACE_S, limit=16, retry_s=30),
    )
    remover = remover_of(process, grace_s=0, uploads=uploads)
    await remover.accept(PARTITION)
    assert await remover.run_once() is None
    assert await world.objects.list_objects("") == []
