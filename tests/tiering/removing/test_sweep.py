"""Sweep of the rows, objects and uploads that interrupted copies leave behind."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from tests.tiering.setups import BROKER_ID, CLUSTER_ID, Session, Tier
from tierd.errors import FencedError, RemoteObjectRetainedError, RemoteStorageError
from tierd.model import (
    EpochEntry,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    SoftDelete,
    TopicIdPartition,
    uuid_to_text,
)
from tierd.remote import ObjectKeyFactory, SegmentStorage, UnfinishedUpload
from tierd.remote.segments.segment_storage import UnfinishedSegmentUpload
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.sweep import DanglingSweep, SweepSettings, UploadSweep, is_abandoned

PARTITION = TopicIdPartition(UUID(int=7), "orders", 0)
KEYS = ObjectKeyFactory("", CLUSTER_ID)
GRACE_S = 600.0
SETTINGS = SweepSettings(grace_s=GRACE_S, limit=2, retry_s=30)
SEGMENT_ID = UUID(int=1)
FINISHED = RemoteLogSegmentState.COPY_SEGMENT_FINISHED
DELETING = RemoteLogSegmentState.DELETE_SEGMENT_STARTED


class RecordingStorage(SegmentStorage):
    """Storage that records deletions, may refuse them, and lists made-up uploads."""

    def __init__(self, tier: Tier) -> None:
        super().__init__(tier.store, cluster_id=CLUSTER_ID, broker_id=BROKER_ID)
        self.deleted: list[UUID] = []
        self.refuses = False
        self.keeps: set[UUID] = set()
        self.uploads: list[UnfinishedSegmentUpload] = []
        self.aborted: list[str] = []

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        if self.refuses:
            raise RemoteStorageError("refused")
        if metadata.segment.id in self.keeps:
            raise RemoteObjectRetainedError("kept")
        self.deleted.append(metadata.segment.id)
        await super().delete_log_segment_data(metadata)

    async def list_unfinished_uploads(self) -> list[UnfinishedSegmentUpload]:
        return self.uploads

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        self.aborted.append(upload.upload_id)


class Setup:
    def __init__(self, tmp_path: Path) -> None:
        self.tier = Tier(tmp_path, [])
        self.storage = RecordingStorage(self.tier)
        self.session: Session = self.tier.session(storage=lambda _: self.storage)
        self.being_copied: set[UUID] = set()
        self.deletion = SegmentDeletion(
            metadata=self.session.metadata,
            remote=self.storage,
            recorder=self.session.recorder,
            clock=self.tier.clock,
            broker_id=BROKER_ID,
        )
        self.sweep = DanglingSweep(
            PARTITION,
            metadata=self.session.metadata,
            deletion=self.deletion,
            being_copied=self.being_copied,
            recorder=self.session.recorder,
            clock=self.tier.clock,
            settings=SETTINGS,
        )

    async def begun(self, number: int) -> RemoteLogSegmentMetadata:
        metadata = RemoteLogSegmentMetadata(
            segment=RemoteLogSegmentId(PARTITION, UUID(int=number)),
            start_offset=number * 10,
            end_offset=number * 10 + 9,
            max_timestamp_ms=0,
            broker_id=BROKER_ID,
            event_timestamp_ms=self.tier.clock.now_ms(),
            size_bytes=10,
            segment_leader_epochs=(EpochEntry(0, number * 10),),
            leader_epoch=0,
            session_id=self.session.session_id,
        )
        await self.session.metadata.add(metadata)
        return metadata

    def upload(self, name: str, segment_id: UUID, partition: TopicIdPartition) -> UnfinishedSegmentUpload:
        upload = UnfinishedUpload(name, name, self.tier.clock.now_ms())
        return UnfinishedSegmentUpload(upload, uuid_to_text(partition.topic_id), segment_id, partition.partition)

    def upload_sweep(self) -> UploadSweep:
        return UploadSweep(
            storage=self.storage,
            metadata=self.session.metadata,
            being_copied=self.being_copied,
            recorder=self.session.recorder,
            clock=self.tier.clock,
            settings=SETTINGS,
        )

    def states(self) -> list[RemoteLogSegmentState]:
        return [m.state for m in self.session.metadata.view(PARTITION).list()]


@pytest.fixture
async def setup(tmp_path: Path) -> Setup:
    setup = Setup(tmp_path)
    await setup.session.metadata.become_leader(PARTITION, 0)
    return setup


async def test_sweep_without_dangling_copies_plans_no_further_run(setup: Setup) -> None:
    assert await setup.sweep.run_once() is None


async def test_dangling_copy_is_removed_after_its_grace_and_its_objects_again_after_another_grace(setup: Setup) -> None:
    metadata = await setup.begun(1)
    assert await setup.sweep.run_once() == GRACE_S
    assert setup.storage.deleted == []
    setup.tier.clock.advance(GRACE_S)
    assert await setup.sweep.run_once() == GRACE_S
    assert setup.states() == []
    assert setup.storage.deleted == [metadata.segment.id]
    setup.tier.clock.advance(GRACE_S)
    assert await setup.sweep.run_once() is None
    assert setup.storage.deleted == [metadata.segment.id] * 2
    assert setup.session.recorder.swept == 1


async def test_copy_that_runs_is_not_swept(setup: Setup) -> None:
    metadata = await setup.begun(1)
    setup.being_copied.add(metadata.segment.id)
    setup.tier.clock.advance(10 * GRACE_S)
    assert await setup.sweep.run_once() is None
    assert len(setup.states()) == 1


async def test_sweep_removes_no_more_than_its_limit_in_one_run(setup: Setup) -> None:
    for number in (1, 2, 3):
        await setup.begun(number)
        setup.tier.clock.advance(1)
    setup.tier.clock.advance(GRACE_S)
    assert await setup.sweep.run_once() == 0
    assert setup.storage.deleted == [UUID(int=1), UUID(int=2)]


@pytest.mark.spec("remote-tiering 135")
async def test_a_refused_delete_keeps_the_row_and_is_tried_again(setup: Setup) -> None:
    await setup.begun(1)
    setup.tier.clock.advance(GRACE_S)
    setup.storage.refuses = True
    assert await setup.sweep.run_once() == 30
    assert setup.states() == [RemoteLogSegmentState.DELETE_SEGMENT_STARTED]
    assert setup.session.recorder.delete_failures == 1
    setup.storage.refuses = False
    await setup.sweep.run_once()
    assert setup.states() == []


class TestUploads:
    @staticmethod
    def _judged(
        *,
        segment_id: UUID | None = SEGMENT_ID,
        being_copied: Collection[UUID] = (),
        is_ours: bool = True,
        age_ms: int = 1000,
    ) -> bool:
        return is_abandoned(
            segment_id=segment_id, rows={}, being_copied=being_copied, is_ours=is_ours, age_ms=age_ms, grace_ms=100
        )

    def test_upload_without_a_row_is_abandoned_once_it_is_old(self) -> None:
        assert self._judged()
        assert not self._judged(age_ms=99)

    def test_upload_of_a_copy_in_this_process_is_not_abandoned(self) -> None:
        assert not self._judged(being_copied={SEGMENT_ID})

    def test_upload_in_a_partition_of_another_broker_is_not_abandoned_at_any_age(self) -> None:
        assert not self._judged(is_ours=False, age_ms=10**12)

    def test_upload_of_no_segment_is_not_abandoned(self) -> None:
        assert not self._judged(segment_id=None)

    async def test_upload_of_a_dead_session_is_aborted_at_once(self, setup: Setup) -> None:
        metadata = await setup.begun(1)
        setup.storage.uploads = [
            setup.upload("mine", metadata.segment.id, PARTITION),
            setup.upload("another's", uuid4(), replace(PARTITION, topic_id=uuid4())),
        ]
        assert await setup.upload_sweep().run_once([PARTITION]) == 0
        assert setup.storage.aborted == ["mine"]
        assert setup.session.recorder.aborted == 1

    async def test_unfinished_upload_of_a_log_start_is_aborted_after_the_grace(self, setup: Setup) -> None:
        def upload(name: str, partition: TopicIdPartition) -> UnfinishedSegmentUpload:
            unfinished = UnfinishedUpload(KEYS.log_start(partition), name, setup.tier.clock.now_ms())
            return UnfinishedSegmentUpload.of(unfinished, KEYS)

        other = replace(PARTITION, partition=1)
        setup.storage.uploads = [upload("ours", PARTITION), upload("theirs", other)]
        assert await setup.upload_sweep().run_once([PARTITION]) == 1
        assert setup.storage.aborted == [], "the log start may be written at this moment"
        setup.tier.clock.advance(GRACE_S)
        assert await setup.upload_sweep().run_once([PARTITION]) == 0
        assert setup.storage.aborted == ["ours"]

    async def test_upload_of_a_living_broker_in_another_partition_of_the_topic_is_not_aborted(
        self, setup: Setup
    ) -> None:
        theirs = replace(PARTITION, partition=1)
        other = setup.tier.session()
        await other.metadata.become_leader(theirs, 3)
        setup.storage.uploads = [setup.upload("theirs", uuid4(), theirs)]
        setup.tier.clock.advance(100 * GRACE_S)
        assert await setup.upload_sweep().run_once([PARTITION]) == 0
        assert setup.storage.aborted == []

    async def test_broker_that_lost_the_partition_aborts_no_upload_in_it(self, setup: Setup) -> None:
        metadata = await setup.begun(1)
        successor = setup.tier.session()
        await successor.metadata.become_leader(PARTITION, 1)
        with pytest.raises(FencedError):
            await setup.session.metadata.advance_log_start_offset(PARTITION, 1)
        setup.storage.uploads = [setup.upload("theirs", metadata.segment.id, PARTITION)]
        assert await setup.upload_sweep().run_once([PARTITION]) == 0
        assert setup.storage.aborted == []


async def test_segment_that_can_still_be_undeleted_is_not_swept(setup: Setup) -> None:
    metadata = await setup.begun(1)
    for state, soft in ((FINISHED, None), (DELETING, SoftDelete("retention_time", 0))):
        await setup.session.metadata.update(
            metadata.advance(state, event_timestamp_ms=0, broker_id=BROKER_ID, soft_delete=soft)
        )
    setup.tier.clock.advance(10 * GRACE_S)
    assert await setup.sweep.run_once() is None
    assert setup.states() == [DELETING]


async def test_retained_segments_do_not_use_up_the_limit_of_a_run(setup: Setup) -> None:
    for number in (1, 2, 3):
        await setup.begun(number)
    setup.tier.clock.advance(GRACE_S)
    setup.storage.keeps = {UUID(int=1), UUID(int=2)}
    assert await setup.sweep.run_once() == 0
    assert await setup.sweep.run_once() == GRACE_S
    assert [m.segment.id for m in setup.session.metadata.view(PARTITION).list()] == [UUID(int=1), UUID(int=2)]
    assert setup.session.recorder.delete_failures == 0


async def test_segment_that_another_task_deletes_is_not_swept(setup: Setup) -> None:
    metadata = await setup.begun(1)
    setup.tier.clock.advance(GRACE_S)
    with setup.deletion.exclusively(metadata):
        await setup.sweep.run_once()
    assert setup.storage.deleted == []
