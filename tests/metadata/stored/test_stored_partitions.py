import asyncio
from uuid import UUID

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import FINISHED, PARTITION, SESSION, segment, step
from tierd.errors import BackendUnavailableError, MetadataDecodeError
from tierd.metadata import (
    Batch,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    Put,
    RemoteLogMetadataManager,
    is_tier_known,
    list_partitions,
    read_partition,
    remember_tier,
    store_identity,
)
from tierd.model import TopicIdPartition

KEYS = MetadataKeyFactory("cluster")


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


def manager_of(store: FaultyKeyValueStore, cluster_id: str = "cluster") -> RemoteLogMetadataManager:
    return RemoteLogMetadataManager(store, cluster_id=cluster_id, broker_id=1, session_id=SESSION, clock=FakeClock())


@pytest.mark.spec("remote-tiering 98")
async def test_read_of_a_partition_without_rows_is_empty(store: FaultyKeyValueStore) -> None:
    view = await read_partition(store, KEYS, PARTITION)
    assert view.highest_offset_for_epoch(0) is None
    assert (view.list(), view.list_epoch(0), view.size_of_epoch(0), view.segment_for(0, 0)) == ((), (), 0, None)
    assert (view.revision, view.claim, view.log_start_offset) == (0, None, None)


@pytest.mark.spec("remote-tiering 99")
async def test_read_during_a_finish_returns_the_view_before_or_after(store: FaultyKeyValueStore) -> None:
    manager = manager_of(store)
    await manager.become_leader(PARTITION, 5)
    metadata = segment(0, 9)
    await manager.add(metadata)
    before = manager.view(PARTITION)
    for delay in range(8):
        finishing = asyncio.ensure_future(manager.update(step(metadata, FINISHED)))
        for _ in range(delay):
            await asyncio.sleep(0)
        read = await read_partition(store, KEYS, PARTITION)
        await finishing
        assert read in (before, manager.view(PARTITION))


@pytest.mark.spec("remote-tiering 84")
async def test_partitions_are_listed_by_name_without_reading_their_segments(store: FaultyKeyValueStore) -> None:
    manager, other = manager_of(store), manager_of(store, "other")
    names = [("b_c", 1, 3), ("bxc", 0, 2), ("b_c", 0, 3), ("b_c", 10, 3), ("b_c", 2, 3), ("b_c", 0, 1)]
    partitions = [TopicIdPartition(UUID(int=topic_id), topic, number) for topic, number, topic_id in names]
    for partition in partitions:
        await manager.become_leader(partition, 5)
        await other.become_leader(partition, 5)
    expected = sorted(partitions, key=lambda p: (p.topic, p.partition, p.topic_id))
    assert await list_partitions(store, KEYS) == expected
    assert expected[0].topic_id == UUID(int=1)
    assert await list_partitions(store, MetadataKeyFactory("third")) == []


@pytest.mark.parametrize("key", ["short/0000000000", "AAAAAAAAAAAAAAAAAAAAAQ/x", "AAAAAAAAAAAAAAAAAAAAAQ"])
async def test_undecodable_index_row_is_named(store: FaultyKeyValueStore, key: str) -> None:
    await store.apply(Batch([Put(KEYS.index_prefix + key, b'\x01{"topic":"t"}')]))
    with pytest.raises(MetadataDecodeError, match=key):
        await list_partitions(store, KEYS)


async def test_store_identity_is_created_once_and_kept(store: FaultyKeyValueStore) -> None:
    ids = iter(UUID(int=n) for n in range(1, 100))
    found = await asyncio.gather(*(store_identity(store, KEYS, new_id=lambda: next(ids)) for _ in range(10)))
    assert len(set(found)) == 1
    assert await store_identity(store, KEYS, new_id=lambda: UUID(int=999)) == found[0]
    assert await store_identity(store, MetadataKeyFactory("other"), new_id=lambda: UUID(int=7)) == UUID(int=7)


async def test_undecodable_store_identity_is_an_error_and_not_replaced(store: FaultyKeyValueStore) -> None:
    await store.apply(Batch([Put(KEYS.store_key, b"\x01{}")]))
    with pytest.raises(MetadataDecodeError, match="store"):
        await store_identity(store, KEYS, new_id=lambda: UUID(int=1))


async def test_read_from_a_store_that_does_not_answer_is_an_error(store: FaultyKeyValueStore) -> None:
    store.read_faults.append(Fault.FAIL)
    with pytest.raises(BackendUnavailableError):
        await read_partition(store, KEYS, PARTITION)


async def test_tier_is_known_by_its_key_prefix_after_it_was_remembered(store: FaultyKeyValueStore) -> None:
    assert not await is_tier_known(store, KEYS, key_prefix="")
    await remember_tier(store, KEYS, key_prefix="")
    await remember_tier(store, KEYS, key_prefix="")
    assert await is_tier_known(store, KEYS, key_prefix="")
    assert not await is_tier_known(store, KEYS, key_prefix="ä/b")
    assert not await is_tier_known(store, MetadataKeyFactory("other"), key_prefix="")
