"""Adoption of a segment that only the bucket has: one batch, fenced, repeatable."""

from dataclasses import replace
from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, segment, step
from tierd.errors import FencedError, InvalidMetadataError, OutcomeUnknownError
from tierd.metadata import (
    MemoryKeyValueStore,
    MetadataKeyFactory,
    RemoteLogMetadataManager,
    read_partition,
    read_segment,
)
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition

KEYS = MetadataKeyFactory("cluster")
SESSION = UUID(int=1)


class Leader:
    def __init__(self) -> None:
        self.store = FaultyKeyValueStore(MemoryKeyValueStore())
        self.metadata = RemoteLogMetadataManager(
            self.store, cluster_id="cluster", broker_id=1, session_id=SESSION, clock=FakeClock()
        )

    async def lead(self) -> None:
        await self.metadata.become_leader(PARTITION, 5)

    def orphan(self, start: int = 0, end: int = 9) -> RemoteLogSegmentMetadata:
        return segment(start, end, leader_epoch=5, session_id=SESSION)


@pytest.fixture
async def leader() -> Leader:
    leader = Leader()
    await leader.lead()
    return leader


async def test_adopted_segment_is_readable_and_stored_in_one_batch(leader: Leader) -> None:
    orphan, before = leader.orphan(), len(leader.store.batches)
    await leader.metadata.adopt(orphan)
    assert len(leader.store.batches) == before + 1
    finished = replace(orphan, state=FINISHED)
    assert leader.metadata.view(PARTITION).segment_for(0, 5) == finished
    stored = await read_partition(leader.store, KEYS, PARTITION)
    assert stored.segment_for(0, 5) == finished
    assert stored.highest_offset_for_epoch(0) == 9


async def test_repeated_adoption_writes_nothing(leader: Leader) -> None:
    orphan = leader.orphan()
    await leader.metadata.adopt(orphan)
    before = len(leader.store.batches)
    await leader.metadata.adopt(orphan)
    assert len(leader.store.batches) == before


async def test_repeated_adoption_succeeds_after_an_unknown_outcome(leader: Leader) -> None:
    orphan = leader.orphan()
    leader.store.apply_faults.append(Fault.LOSE_ANSWER)
    with pytest.raises(OutcomeUnknownError):
        await leader.metadata.adopt(orphan)
    await leader.metadata.adopt(orphan)
    assert leader.metadata.view(PARTITION).segment_for(0, 9) is not None


async def test_adoption_of_a_known_segment_is_refused(leader: Leader) -> None:
    orphan = leader.orphan()
    await leader.metadata.adopt(orphan)
    await leader.metadata.update(step(orphan, DELETE_STARTED))
    with pytest.raises(InvalidMetadataError):
        await leader.metadata.adopt(orphan)


async def test_adoption_under_another_claim_is_fenced(leader: Leader) -> None:
    with pytest.raises(FencedError):
        await leader.metadata.adopt(replace(leader.orphan(), leader_epoch=4))


async def test_single_segment_is_read_with_the_row_of_its_partition(leader: Leader) -> None:
    orphan = leader.orphan()
    nothing = await read_segment(leader.store, KEYS, orphan.segment)
    assert nothing.segment is None
    assert nothing.row is not None
    await leader.metadata.adopt(orphan)
    found = await read_segment(leader.store, KEYS, orphan.segment)
    assert found.segment == replace(orphan, state=FINISHED)
    renamed = replace(orphan.segment, topic_id_partition=TopicIdPartition(PARTITION.topic_id, "other", 0))
    assert await read_segment(leader.store, KEYS, renamed) == (None, None)
