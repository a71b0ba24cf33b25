"""Deletion of a partition's remote data: its steps, the remaining rows, and its continuation after a restart."""

from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import DELETE_FINISHED, DELETE_STARTED, PARTITION, SESSION, segment, step
from tests.fakes.remote_segments import FINISHED as COPIED
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    InvalidMetadataError,
    InvalidSegmentTransitionError,
    MetadataDecodeError,
    OutcomeUnknownError,
    RemoteResourceNotFoundError,
)
from tierd.metadata import (
    Batch,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    MetadataManagerSettings,
    PartitionBeingDeleted,
    Put,
    RemoteLogMetadataManager,
    list_partitions,
    partitions_being_deleted,
    read_partition,
)
from tierd.model import RemotePartitionDeleteMetadata, RemotePartitionDeleteState, TopicIdPartition
from tierd.testing import cancel_at

KEYS = MetadataKeyFactory("cluster")
MARKED, STARTED, FINISHED = RemotePartitionDeleteState
NEIGHBOUR = TopicIdPartition(PARTITION.topic_id, PARTITION.topic, 10)


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def manager_of(
    store: FaultyKeyValueStore, clock: FakeClock, *, broker_id: int = 1, session_id: UUID = SESSION
) -> RemoteLogMetadataManager:
    return RemoteLogMetadataManager(
        store,
        cluster_id="cluster",
        broker_id=broker_id,
        session_id=session_id,
        clock=clock,
        settings=MetadataManagerSettings(tombstone_retention_s=100),
    )


@pytest.fixture
async def leader(store: FaultyKeyValueStore, clock: FakeClock) -> RemoteLogMetadataManager:
    manager = manager_of(store, clock)
    await manager.become_leader(PARTITION, 5)
    return manager


def deleting(
    state: RemotePartitionDeleteState, *, partition: TopicIdPartition = PARTITION, event_timestamp_ms: int = 1_000
) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(
        partition=partition, state=state, event_timestamp_ms=event_timestamp_ms, broker_id=1
    )


async def with_deleted_segments(leader: RemoteLogMetadataManager, count: int) -> None:
    """Add segments and delete them: tombstones and the highest offsets of their epochs remain."""
    for number in range(count):
        metadata = segment(number * 10, number * 10 + 9, number)
        await leader.add(metadata)
        for state in (COPIED, DELETE_STARTED, DELETE_FINISHED):
            await leader.update(step(metadata, state))


async def with_remembered_epochs(store: FaultyKeyValueStore, count: int) -> None:
    """Store the highest offset of each of many epochs, as years of leader changes leave them."""
    rows = [Put(KEYS.epoch_highest(PARTITION, epoch), b'\x01{"offset":1}') for epoch in range(count)]
    await store.inner.apply(Batch(rows))


async def delete_whole(leader: RemoteLogMetadataManager, *, event_timestamp_ms: int = 1_000) -> None:
    for state in RemotePartitionDeleteState:
        await leader.put_partition_delete(deleting(state, event_timestamp_ms=event_timestamp_ms))


async def rows_below(store: FaultyKeyValueStore, partition: TopicIdPartition) -> list[str]:
    prefix = KEYS.partition_prefix(partition)
    return [key.removeprefix(prefix) for key, _ in await store.scan(prefix)]


@pytest.mark.spec("remote-tiering 56")
async def test_segments_stay_listed_during_the_deletion_of_their_partition(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    first, second = segment(0, 9), segment(10, 19)
    for metadata in (first, second):
        await leader.add(metadata)
        await leader.update(step(metadata, COPIED))
    for state in (MARKED, STARTED):
        await leader.put_partition_delete(deleting(state))
        for view in (leader.view(PARTITION), await read_partition(store, KEYS, PARTITION)):
            assert view.delete_state is state
            assert {m.segment for m in view.list()} == {first.segment, second.segment}
            assert len(view.list_epoch(0)) == 2


@pytest.mark.spec("remote-tiering 57")
@pytest.mark.spec("remote-tiering 106")
async def test_deleted_partition_is_not_found_and_refuses_changes(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore, clock: FakeClock
) -> None:
    metadata = segment(0, 9)
    await leader.add(metadata)
    await leader.update(step(metadata, COPIED))
    await leader.put_partition_delete(deleting(MARKED))
    await leader.put_partition_delete(deleting(STARTED))
    await leader.update(step(metadata, DELETE_STARTED))
    await leader.update(step(metadata, DELETE_FINISHED))
    await leader.put_partition_delete(deleting(FINISHED))
    follower = manager_of(store, clock, broker_id=2)
    follower.follow(PARTITION)
    with pytest.raises(RemoteResourceNotFoundError):
        leader.view(PARTITION)
    for manager in (leader, follower):
        with pytest.raises(RemoteResourceNotFoundError):
            await manager.read_view(PARTITION)
    with pytest.raises(RemoteResourceNotFoundError):
        await leader.add(segment(10, 19))
    with pytest.raises(RemoteResourceNotFoundError):
        await leader.update(step(metadata, DELETE_FINISHED))
    with pytest.raises(RemoteResourceNotFoundError):
        await leader.advance_log_start_offset(PARTITION, 100)
    assert await rows_below(store, PARTITION) == ["row"]


async def test_partition_under_deletion_refuses_new_and_undeleted_segments(leader: RemoteLogMetadataManager) -> None:
    metadata = segment(0, 9)
    await leader.add(metadata)
    await leader.update(step(metadata, COPIED))
    await leader.update(step(metadata, DELETE_STARTED))
    await leader.put_partition_delete(deleting(MARKED))
    with pytest.raises(InvalidMetadataError, match="MARKED"):
        await leader.add(segment(10, 19))
    with pytest.raises(InvalidMetadataError, match="MARKED"):
        await leader.undelete(step(metadata, COPIED))


@pytest.mark.spec("remote-tiering 110")
@pytest.mark.parametrize("state", [STARTED, FINISHED])
async def test_deletion_that_does_not_begin_with_the_mark_is_refused(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore, state: RemotePartitionDeleteState
) -> None:
    before = len(store.batches)
    with pytest.raises(InvalidSegmentTransitionError):
        await leader.put_partition_delete(deleting(state))
    assert len(store.batches) == before
    assert leader.statistics().invalid_transitions == 1


async def test_repeated_step_of_a_deletion_writes_nothing(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    for state in RemotePartitionDeleteState:
        await leader.put_partition_delete(deleting(state))
        before = len(store.batches)
        await leader.put_partition_delete(deleting(state, event_timestamp_ms=2_000))
        assert len(store.batches) == before


async def test_last_step_of_a_deletion_is_refused_while_segments_remain(leader: RemoteLogMetadataManager) -> None:
    await leader.add(segment(0, 9))
    await leader.put_partition_delete(deleting(MARKED))
    await leader.put_partition_delete(deleting(STARTED))
    with pytest.raises(InvalidMetadataError, match="1 segments are left"):
        await leader.put_partition_delete(deleting(FINISHED))
    assert leader.view(PARTITION).delete_state is STARTED


async def test_deletion_by_a_broker_that_does_not_lead_is_fenced(store: FaultyKeyValueStore, clock: FakeClock) -> None:
    manager = manager_of(store, clock)
    with pytest.raises(FencedError):
        await manager.put_partition_delete(deleting(MARKED))
    manager.follow(PARTITION)
    with pytest.raises(FencedError):
        await manager.put_partition_delete(deleting(MARKED))
    assert store.batches == []


@pytest.mark.spec("remote-tiering 109")
@pytest.mark.parametrize("last", [MARKED, STARTED])
async def test_restarted_broker_continues_its_deletions(
    leader: RemoteLogMetadataManager,
    store: FaultyKeyValueStore,
    clock: FakeClock,
    last: RemotePartitionDeleteState,
) -> None:
    await leader.become_leader(NEIGHBOUR, 5)
    for state in RemotePartitionDeleteState:
        if state <= last:
            await leader.put_partition_delete(deleting(state))
    found = await partitions_being_deleted(store, KEYS)
    assert found == [PartitionBeingDeleted(deleting(last), leader_epoch=5)]
    restarted = manager_of(store, clock, session_id=UUID(int=2))
    await restarted.become_leader(found[0].metadata.partition, found[0].leader_epoch)
    assert restarted.view(PARTITION).delete_state is last
    for state in RemotePartitionDeleteState:
        if state > last:
            await restarted.put_partition_delete(deleting(state))
    assert await partitions_being_deleted(store, KEYS) == []
    assert await list_partitions(store, KEYS) == [NEIGHBOUR]


@pytest.mark.spec("remote-tiering 83")
async def test_deletion_erases_no_rows_of_other_partitions(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await leader.become_leader(NEIGHBOUR, 5)
    kept = segment(0, 9, partition=NEIGHBOUR)
    await leader.add(kept)
    await with_deleted_segments(leader, 3)
    before = await rows_below(store, NEIGHBOUR)
    await delete_whole(leader)
    assert await rows_below(store, PARTITION) == ["row"]
    assert await rows_below(store, NEIGHBOUR) == before
    assert leader.view(NEIGHBOUR).list() == (kept,)


async def test_a_large_partition_is_erased_in_batches_of_bounded_size(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await with_remembered_epochs(store, 1200)
    before = len(store.batches)
    await delete_whole(leader)
    erasing = store.batches[before + 3 :]
    assert len(erasing) == 4  # three times at most 500 rows, and the end
    assert all(len(batch.writes) <= 501 and batch.expect for batch in erasing)
    assert await rows_below(store, PARTITION) == ["row"]


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST])
@pytest.mark.parametrize("failing", range(1, 4))
async def test_failed_erasure_is_completed_by_the_repeated_step(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore, clock: FakeClock, failing: int, fault: Fault
) -> None:
    await with_remembered_epochs(store, 600)
    await leader.put_partition_delete(deleting(MARKED))
    await leader.put_partition_delete(deleting(STARTED))
    store.apply_faults.extend([*[None] * failing, fault])
    with pytest.raises((BackendUnavailableError, OutcomeUnknownError)):
        await leader.put_partition_delete(deleting(FINISHED))
    store.apply_faults.clear()
    restarted = manager_of(store, clock, session_id=UUID(int=2))
    for manager in (leader, restarted):
        await manager.become_leader(PARTITION, 5 if manager is leader else 6)
        with pytest.raises(RemoteResourceNotFoundError):
            manager.view(PARTITION)
        await manager.put_partition_delete(deleting(FINISHED))
        assert await rows_below(store, PARTITION) == ["row"]
    assert await partitions_being_deleted(store, KEYS) == []
    assert await list_partitions(store, KEYS) == []


async def test_deletion_cancelled_at_any_await_is_completed_by_the_repeated_steps(clock: FakeClock) -> None:
    for suspension in range(1, 100):
        store = FaultyKeyValueStore(MemoryKeyValueStore())
        leader = manager_of(store, clock)
        await leader.become_leader(PARTITION, 5)
        await with_remembered_epochs(store, 600)

        async def delete(leader: RemoteLogMetadataManager = leader) -> None:
            await delete_whole(leader)

        was_cancelled = await cancel_at(suspension, delete)
        for state in RemotePartitionDeleteState:
            present = (await read_partition(store, KEYS, PARTITION)).delete_state
            if present is None or state >= present:
                await leader.put_partition_delete(deleting(state))
        assert await rows_below(store, PARTITION) == ["row"]
        assert await partitions_being_deleted(store, KEYS) == []
        if not was_cancelled:
            return
    raise AssertionError("it never came to its end")


async def test_tombstone_of_a_partition_refuses_a_late_leader_until_it_expires(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore, clock: FakeClock
) -> None:
    await delete_whole(leader, event_timestamp_ms=clock.now_ms())
    leader.stop(PARTITION)
    late = manager_of(store, clock, broker_id=2)
    await late.become_leader(PARTITION, 6)
    with pytest.raises(RemoteResourceNotFoundError):
        await late.add(segment(0, 9, leader_epoch=6))
    late.stop(PARTITION)
    clock.advance(100)
    assert await leader.forget_deleted_partitions() == 0
    clock.advance(1)
    assert await leader.forget_deleted_partitions() == 1
    assert await store.scan(KEYS.all_prefix) == []


async def test_topic_created_again_with_another_id_begins_without_segments(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await delete_whole(leader)
    again = TopicIdPartition(UUID(int=99), PARTITION.topic, PARTITION.partition)
    await leader.become_leader(again, 0)
    metadata = segment(0, 9, partition=again, leader_epoch=0)
    await leader.add(metadata)
    assert leader.view(again).list() == (metadata,)
    assert await list_partitions(store, KEYS) == [again]


@pytest.mark.parametrize("value", [b'\x01{"topic":"t"}', b'\x01{"topic":"t","leader_epoch":1,"state":9}', b"\x02{}"])
async def test_undecodable_entry_of_a_deletion_is_named(store: FaultyKeyValueStore, value: bytes) -> None:
    await store.apply(Batch([Put(KEYS.deleting(PARTITION), value)]))
    with pytest.raises(MetadataDecodeError, match="deleting"):
        await partitions_being_deleted(store, KEYS)


async def test_entry_of_a_deletion_under_a_malformed_key_is_named(store: FaultyKeyValueStore) -> None:
    value = b'\x01{"topic":"t","leader_epoch":1,"state":0,"event_ts":1,"broker":1}'
    await store.apply(Batch([Put(KEYS.deleting_prefix + "short/1", value)]))
    with pytest.raises(MetadataDecodeError, match="short"):
        await partitions_being_deleted(store, KEYS)
