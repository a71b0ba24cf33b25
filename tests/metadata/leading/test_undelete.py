"""Undeletion, a step that Kafka lacks: a segment whose deletion has begun becomes finished again."""

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    PARTITION,
    SESSION,
    segment,
    step,
)
from tierd.errors import (
    FencedError,
    InvalidMetadataError,
    InvalidSegmentTransitionError,
    OutcomeUnknownError,
    RemoteResourceNotFoundError,
)
from tierd.metadata import MemoryKeyValueStore, MetadataKeyFactory, RemoteLogMetadataManager, read_partition
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState

KEYS = MetadataKeyFactory("cluster")


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


@pytest.fixture
async def leader(store: FaultyKeyValueStore) -> RemoteLogMetadataManager:
    manager = RemoteLogMetadataManager(store, cluster_id="cluster", broker_id=1, session_id=SESSION, clock=FakeClock())
    await manager.become_leader(PARTITION, 5)
    return manager


async def bring(
    leader: RemoteLogMetadataManager, metadata: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState
) -> RemoteLogSegmentMetadata:
    await leader.add(metadata)
    for state in states:
        await leader.update(step(metadata, state, custom_metadata=b"key"))
    return metadata


async def test_undeleted_segment_is_found_like_one_just_finished(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9, {0: 0, 1: 5}), FINISHED, DELETE_STARTED)
    await leader.undelete(step(metadata, FINISHED, custom_metadata=b"key"))
    view = leader.view(PARTITION)
    found = view.segment_for(1, 7)
    assert found is not None
    assert (found.state, found.custom_metadata) == (FINISHED, b"key")
    assert view.segment_for(0, 3) == found
    assert await read_partition(store, KEYS, PARTITION) == view


@pytest.mark.spec("remote-tiering 11")
async def test_update_from_delete_started_to_finished_is_refused(leader: RemoteLogMetadataManager) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED, DELETE_STARTED)
    with pytest.raises(InvalidSegmentTransitionError):
        await leader.update(step(metadata, FINISHED))
    assert leader.view(PARTITION).segment_for(0, 5) is None


async def test_undeleted_segment_is_found_beside_segments_finished_meanwhile(leader: RemoteLogMetadataManager) -> None:
    long = await bring(leader, segment(0, 99), FINISHED, DELETE_STARTED)
    short = await bring(leader, segment(10, 19), FINISHED)
    await leader.undelete(step(long, FINISHED))
    view = leader.view(PARTITION)
    for offset in (5, 15, 50):
        found = view.segment_for(0, offset)
        assert found is not None
        assert found.segment == long.segment
    assert short.segment.id in view.epochs[0].unreferenced


async def test_repeated_undeletion_writes_nothing(leader: RemoteLogMetadataManager, store: FaultyKeyValueStore) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED, DELETE_STARTED)
    await leader.undelete(step(metadata, FINISHED))
    before = len(store.batches)
    await leader.undelete(step(metadata, FINISHED))
    assert len(store.batches) == before


@pytest.mark.parametrize(
    ("states", "error"),
    [
        ((), InvalidSegmentTransitionError),
        ((FINISHED, DELETE_STARTED, DELETE_FINISHED), InvalidSegmentTransitionError),
    ],
)
async def test_undeletion_of_a_segment_in_another_state_is_refused(
    leader: RemoteLogMetadataManager, states: tuple[RemoteLogSegmentState, ...], error: type[Exception]
) -> None:
    metadata = await bring(leader, segment(0, 9), *states)
    with pytest.raises(error):
        await leader.undelete(step(metadata, FINISHED))


async def test_undeletion_of_an_unknown_segment_is_not_found(leader: RemoteLogMetadataManager) -> None:
    with pytest.raises(RemoteResourceNotFoundError):
        await leader.undelete(step(segment(0, 9), FINISHED))


@pytest.mark.parametrize("state", [DELETE_STARTED, DELETE_FINISHED])
async def test_undeletion_to_another_state_than_finished_is_refused(
    leader: RemoteLogMetadataManager, state: RemoteLogSegmentState
) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED, DELETE_STARTED)
    with pytest.raises(InvalidMetadataError):
        await leader.undelete(step(metadata, state))


async def test_undeletion_may_move_the_log_start_back_in_the_same_batch(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED, DELETE_STARTED)
    await leader.advance_log_start_offset(PARTITION, 10)
    before = len(store.batches)
    await leader.undelete(step(metadata, FINISHED), log_start_offset=0)
    assert leader.view(PARTITION).log_start_offset == 0
    assert len(store.batches) == before + 1
    assert await read_partition(store, KEYS, PARTITION) == leader.view(PARTITION)


async def test_undeletion_is_repeated_after_a_lost_answer(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED, DELETE_STARTED)
    store.apply_faults.append(Fault.LOSE_ANSWER)
    with pytest.raises(OutcomeUnknownError):
        await leader.undelete(step(metadata, FINISHED))
    assert not leader.is_ready(PARTITION)
    await leader.undelete(step(metadata, FINISHED))
    assert leader.view(PARTITION).segment_for(0, 5) is not None


async def test_undeletion_by_a_stale_leader_is_fenced(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED, DELETE_STARTED)
    successor = RemoteLogMetadataManager(
        store, cluster_id="cluster", broker_id=2, session_id=SESSION, clock=FakeClock()
    )
    await successor.become_leader(PARTITION, 6)
    with pytest.raises(FencedError):
        await leader.undelete(step(metadata, FINISHED))
    assert successor.view(PARTITION).segment_for(0, 5) is None
