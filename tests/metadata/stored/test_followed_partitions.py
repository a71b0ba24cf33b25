"""Followers: each answer is the present state of the store, which is read again only after a change."""

import asyncio
from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, SESSION, segment, step
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    MetadataDecodeError,
    RemoteResourceNotFoundError,
    RemoteStorageNotReadyError,
)
from tierd.metadata import Batch, Delete, MemoryKeyValueStore, MetadataKeyFactory, Put, RemoteLogMetadataManager
from tierd.model import RemoteLogSegmentMetadata, TopicIdPartition
from tierd.testing import cancel_at

KEYS = MetadataKeyFactory("cluster")
OTHER = TopicIdPartition(UUID(int=8), "payments", 3)


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


def manager_of(store: FaultyKeyValueStore, broker_id: int = 1) -> RemoteLogMetadataManager:
    return RemoteLogMetadataManager(
        store, cluster_id="cluster", broker_id=broker_id, session_id=SESSION, clock=FakeClock()
    )


@pytest.fixture
async def leader(store: FaultyKeyValueStore) -> RemoteLogMetadataManager:
    manager = manager_of(store)
    await manager.become_leader(PARTITION, 5)
    return manager


@pytest.fixture
def follower(store: FaultyKeyValueStore) -> RemoteLogMetadataManager:
    manager = manager_of(store, 2)
    manager.follow(PARTITION)
    return manager


async def finish(leader: RemoteLogMetadataManager, metadata: RemoteLogSegmentMetadata) -> None:
    await leader.add(metadata)
    await leader.update(step(metadata, FINISHED))


@pytest.mark.spec("remote-tiering 58")
async def test_segments_of_leaders_are_visible_to_their_followers(
    store: FaultyKeyValueStore, leader: RemoteLogMetadataManager
) -> None:
    other = manager_of(store, 2)
    await other.become_leader(OTHER, 5)
    leader.follow(OTHER)
    mine, theirs = segment(0, 9), segment(0, 99, partition=OTHER)
    await finish(leader, mine)
    await finish(other, theirs)
    for manager in (leader, other):
        manager.follow(PARTITION if manager is other else OTHER)
        assert (await manager.read_view(PARTITION)).segment_for(0, 5) is not None
        assert (await manager.read_view(OTHER)).segment_for(0, 50) is not None


@pytest.mark.spec("remote-tiering 64")
async def test_restarted_follower_reads_stored_and_later_segments(
    store: FaultyKeyValueStore, leader: RemoteLogMetadataManager
) -> None:
    await finish(leader, segment(0, 9))
    await leader.close()
    restarted, again = manager_of(store, 2), manager_of(store)
    restarted.follow(PARTITION)
    await again.become_leader(PARTITION, 6)
    assert await restarted.read_view(PARTITION) == again.view(PARTITION)
    await finish(again, segment(10, 19, leader_epoch=6))
    assert await restarted.read_view(PARTITION) == again.view(PARTITION)


@pytest.mark.spec("remote-tiering 59")
async def test_partition_that_is_not_followed_is_not_found(follower: RemoteLogMetadataManager) -> None:
    with pytest.raises(RemoteResourceNotFoundError):
        await follower.read_view(OTHER)
    assert not follower.is_ready(OTHER)


@pytest.mark.spec("remote-tiering 98")
async def test_follower_of_a_partition_without_rows_reads_an_empty_view(follower: RemoteLogMetadataManager) -> None:
    view = await follower.read_view(PARTITION)
    assert (view.highest_offset_for_epoch(0), view.list_epoch(0), view.list()) == (None, (), ())
    assert follower.is_ready(PARTITION)


@pytest.mark.spec("remote-tiering 99")
async def test_read_during_a_finish_returns_the_view_before_or_after(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager
) -> None:
    for number in range(12):
        metadata = segment(number * 10, number * 10 + 9)
        await leader.add(metadata)
        before = leader.view(PARTITION)
        finishing = asyncio.ensure_future(leader.update(step(metadata, FINISHED)))
        for _ in range(number):
            await asyncio.sleep(0)
        view = await follower.read_view(PARTITION)
        await finishing
        assert view in (before, leader.view(PARTITION))
        assert all(view.segment(id_) is not None for state in view.epochs.values() for id_ in state.ids)


async def test_read_after_an_acknowledged_write_returns_its_segment(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager
) -> None:
    for number in range(5):
        await finish(leader, segment(number * 10, number * 10 + 9))
        assert await follower.read_view(PARTITION) == leader.view(PARTITION)


async def test_read_of_an_unchanged_partition_gets_one_row(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await finish(leader, segment(0, 9))
    first = await follower.read_view(PARTITION)
    for _ in range(10):
        assert await follower.read_view(PARTITION) is first
    figures = follower.statistics()
    assert (figures.follower_reads, figures.follower_loads, figures.followed_partitions) == (11, 1, 1)
    await leader.become_leader(PARTITION, 6)  # the claim alone moves the revision
    assert await follower.read_view(PARTITION) is not first


async def test_concurrent_readers_share_one_load(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager
) -> None:
    await finish(leader, segment(0, 9))
    views = await asyncio.gather(*(follower.read_view(PARTITION) for _ in range(20)))
    assert all(view is views[0] for view in views)
    assert follower.statistics().follower_loads == 1


async def test_follower_is_ready_while_the_store_answers(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await finish(leader, segment(0, 9))
    assert not follower.is_ready(PARTITION)
    await follower.read_view(PARTITION)
    assert follower.is_ready(PARTITION)
    store.read_faults.append(Fault.FAIL)
    with pytest.raises(RemoteStorageNotReadyError, match="refused for a test"):
        await follower.read_view(PARTITION)
    assert not follower.is_ready(PARTITION)
    assert await follower.read_view(PARTITION) == leader.view(PARTITION)


@pytest.mark.spec("remote-tiering 97")
async def test_undecodable_row_makes_only_its_partition_not_ready(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await finish(leader, segment(0, 9))
    await leader.become_leader(OTHER, 5)
    follower.follow(OTHER)
    await store.apply(Batch([Put(KEYS.segment(PARTITION, UUID(int=1)), b"\x63")]))
    with pytest.raises(MetadataDecodeError, match="/seg/"):
        await follower.read_view(PARTITION)
    assert not follower.is_ready(PARTITION)
    assert await follower.read_view(OTHER) == leader.view(OTHER)


async def test_leader_that_becomes_a_follower_is_fenced_and_reads_the_rows_of_the_next_leader(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = segment(0, 9)
    await finish(leader, metadata)
    leader.follow(PARTITION)
    leader.follow(PARTITION)
    with pytest.raises(FencedError):
        await leader.add(segment(10, 19))
    with pytest.raises(RemoteResourceNotFoundError):
        leader.view(PARTITION)
    successor = manager_of(store, 2)
    await successor.become_leader(PARTITION, 6)
    await successor.update(step(metadata, DELETE_STARTED))
    assert (await leader.read_view(PARTITION)).segment_for(0, 5) is None


async def test_a_follower_that_becomes_leader_serves_from_memory(
    follower: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await follower.read_view(PARTITION)
    await follower.become_leader(PARTITION, 5)
    store.read_faults.append(Fault.FAIL)
    assert await follower.read_view(PARTITION) is follower.view(PARTITION)
    assert follower.statistics().followed_partitions == 0


async def test_stopped_partition_is_not_found(follower: RemoteLogMetadataManager) -> None:
    await follower.read_view(PARTITION)
    follower.stop(PARTITION)
    follower.stop(PARTITION)
    with pytest.raises(RemoteResourceNotFoundError):
        await follower.read_view(PARTITION)


async def test_read_after_a_cancelled_read_returns_the_view(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager
) -> None:
    await finish(leader, segment(0, 9))
    suspension = 1
    while await cancel_at(suspension, lambda: follower.read_view(PARTITION)):
        assert await follower.read_view(PARTITION) == leader.view(PARTITION)
        await leader.advance_log_start_offset(PARTITION, suspension)
        suspension += 1
    assert suspension > 1


@pytest.mark.spec("remote-tiering 96")
async def test_a_reference_to_a_segment_without_a_row_is_left_out(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await finish(leader, segment(0, 9))
    dangling = Put(KEYS.epoch_reference(PARTITION, 0, 100), b'\x01{"id":"AAAAAAAAAAAAAAAAAAAAAQ"}')
    await store.apply(Batch([dangling]))
    view = await follower.read_view(PARTITION)
    assert view.segment_for(0, 100) is None
    assert len(view.list_epoch(0)) == 1


async def test_store_that_lost_writes_gives_no_revision_to_two_states(
    leader: RemoteLogMetadataManager, follower: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    """A failover may lose the last writes, or a backup may be restored under a running leader."""
    kept = segment(0, 9)
    await finish(leader, kept)
    before = await store.scan("")
    await finish(leader, segment(10, 19))
    assert (await follower.read_view(PARTITION)).segment_for(0, 15) is not None
    lost = [Delete(key) for key, _ in await store.scan("")]
    await store.inner.apply(Batch([*lost, *(Put(key, value) for key, value in before)]))
    with pytest.raises(BackendUnavailableError, match="changed though this broker owns it"):
        await leader.add(segment(20, 29))
    await leader.add(segment(20, 29))  # the claim before this write makes as many writes as were lost
    view = await follower.read_view(PARTITION)
    assert view.segment_for(0, 15) is None
    assert view == leader.view(PARTITION)
