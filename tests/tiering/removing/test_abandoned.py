"""AbandonedCopies: objects of a fenced or cancelled copy are removed once no row has the copy, and not before."""

from dataclasses import dataclass, field
from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.remote_segments import PARTITION
from tests.tiering.removing.rows import row
from tests.tiering.setups import Recorded
from tierd.errors import BackendUnavailableError, RemoteStorageError
from tierd.metadata import MemoryKeyValueStore, PartitionView, RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.remote import Tombstone
from tierd.tiering.removing import abandoned
from tierd.tiering.removing.abandoned import AbandonedCopies
from tierd.tiering.removing.deletion import SegmentDeletion

GRACE_S = 600.0
STARTED = row(0, 9, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)


@dataclass
class Storage:
    """Storage that records deletions; its other calls are not used."""

    deleted: list[UUID] = field(default_factory=list)
    refuses: bool = False

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        if self.refuses:
            raise RemoteStorageError("refused")
        self.deleted.append(metadata.segment.id)

    async def write_tombstone(self, metadata: RemoteLogSegmentMetadata, tombstone: Tombstone) -> None:
        raise NotImplementedError

    async def read_tombstone(self, metadata: RemoteLogSegmentMetadata) -> Tombstone | None:
        raise NotImplementedError

    async def remove_tombstone(self, metadata: RemoteLogSegmentMetadata) -> None:
        raise NotImplementedError

    async def any_object_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        raise NotImplementedError

    async def objects_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        raise NotImplementedError


class Left:
    """AbandonedCopies task, with or without a row of the copy."""

    def __init__(self) -> None:
        self.clock, self.storage = FakeClock(), Storage()
        self.view: PartitionView | None = PartitionView(PARTITION)
        metadata = RemoteLogMetadataManager(
            MemoryKeyValueStore(), cluster_id="c", broker_id=1, session_id=UUID(int=1), clock=self.clock
        )
        deletion = SegmentDeletion(
            metadata=metadata, remote=self.storage, recorder=Recorded(), clock=self.clock, broker_id=1
        )
        self.task = AbandonedCopies(read=self._read, deletion=deletion, clock=self.clock, grace_s=GRACE_S)

    async def _read(self, _partition: TopicIdPartition) -> PartitionView:
        if self.view is None:
            raise BackendUnavailableError("down")
        return self.view

    async def after_grace(self) -> float | None:
        self.clock.advance(GRACE_S)
        return await self.task.run_once()


@pytest.fixture
def left() -> Left:
    left = Left()
    left.task.add(STARTED)
    return left


async def test_objects_without_a_row_are_removed_after_the_grace(left: Left) -> None:
    assert await left.task.run_once() == GRACE_S
    assert left.storage.deleted == []
    assert await left.after_grace() is None
    assert left.storage.deleted == [STARTED.segment.id]


async def test_objects_with_a_row_are_left_to_the_sweep(left: Left) -> None:
    left.view = PartitionView(PARTITION).with_added(STARTED).view
    assert await left.after_grace() == GRACE_S
    assert left.storage.deleted == []
    left.view = PartitionView(PARTITION)
    assert await left.after_grace() is None
    assert left.storage.deleted == [STARTED.segment.id]


async def test_copy_that_was_finished_after_all_is_kept(left: Left) -> None:
    finish = STARTED.advance(RemoteLogSegmentState.COPY_SEGMENT_FINISHED, event_timestamp_ms=0, broker_id=1)
    left.view = PartitionView(PARTITION).with_added(STARTED).view.with_updated(finish).view
    assert await left.after_grace() is None
    left.view = PartitionView(PARTITION)
    assert await left.after_grace() is None
    assert left.storage.deleted == []


async def test_removal_that_failed_is_tried_again_after_the_grace(left: Left) -> None:
    left.view = None
    assert await left.after_grace() == GRACE_S
    left.view, left.storage.refuses = PartitionView(PARTITION), True
    assert await left.after_grace() == GRACE_S
    left.storage.refuses = False
    assert await left.after_grace() is None
    assert left.storage.deleted == [STARTED.segment.id]


async def test_number_of_remembered_copies_is_bounded(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abandoned, "REMEMBERED", 1)
    left.task.add(second := row(10, 19, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED, segment_id=UUID(int=77)))
    assert await left.after_grace() is None
    assert left.storage.deleted == [second.segment.id]
