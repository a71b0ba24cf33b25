import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import FrozenInstanceError
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import (
    DELETE_FINISHED,
    DELETE_STARTED,
    FINISHED,
    PARTITION,
    SESSION,
    STARTED,
    segment,
    step,
)
from tests.metadata.leading.test_partition_deletes import deleting
from tierd.errors import BackendUnavailableError
from tierd.metadata import (
    MemoryKeyValueStore,
    MetadataKeyFactory,
    PartitionView,
    RemoteLogMetadataManager,
    SegmentChange,
    changes,
)
from tierd.metadata.stored.segment_changes import changes_between
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, RemotePartitionDeleteState

KEYS = MetadataKeyFactory("cluster")


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


@pytest.fixture
async def leader(store: FaultyKeyValueStore) -> RemoteLogMetadataManager:
    manager = RemoteLogMetadataManager(store, cluster_id="cluster", broker_id=1, session_id=SESSION, clock=FakeClock())
    await manager.become_leader(PARTITION, 5)
    return manager


def feed_of(store: FaultyKeyValueStore, clock: FakeClock | None = None) -> AsyncGenerator[SegmentChange, None]:
    return changes(store, KEYS, PARTITION, clock=clock or FakeClock(), interval_s=1, patience_s=10)


def steps_of(change: SegmentChange) -> tuple[RemoteLogSegmentState | None, RemoteLogSegmentState | None]:
    before, after = change.before, change.after
    return before.state if before else None, after.state if after else None


async def test_feed_yields_existing_segments_and_then_each_change_in_order(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    second, first = segment(10, 19), segment(0, 9)
    for metadata in (second, first):
        await leader.add(metadata)
    await leader.update(step(first, FINISHED))
    async with contextlib.aclosing(feed_of(store)) as feed:
        shown = [await anext(feed), await anext(feed)]
        assert [change.after and change.after.start_offset for change in shown] == [0, 10]
        assert [steps_of(change) for change in shown] == [(None, FINISHED), (None, STARTED)]
        await leader.update(step(second, FINISHED))
        change = await anext(feed)
        assert steps_of(change) == (STARTED, FINISHED)
        assert change.revision == leader.view(PARTITION).revision
        await leader.update(step(first, DELETE_STARTED))
        assert steps_of(await anext(feed)) == (FINISHED, DELETE_STARTED)
        await leader.update(step(first, DELETE_FINISHED))
        assert steps_of(await anext(feed)) == (DELETE_STARTED, DELETE_FINISHED)


async def test_feed_of_an_unchanged_partition_reads_one_row_at_a_time(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await leader.add(segment(0, 9))
    scans = 0

    async def count() -> None:
        nonlocal scans
        scans += 1

    store.before_scan = count
    clock = FakeClock()
    async with contextlib.aclosing(feed_of(store, clock)) as feed:
        await anext(feed)
        waiting = asyncio.ensure_future(anext(feed))
        for _ in range(100):
            await asyncio.sleep(0)
        await leader.add(segment(10, 19))
        await waiting
    assert len(clock.sleeps_s) > 20
    assert scans == 2
    assert set(clock.sleeps_s) == {1}


async def test_feed_survives_a_short_outage_and_fails_after_a_long_one(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await leader.add(segment(0, 9))
    store.read_faults.extend([Fault.FAIL] * 5)
    clock = FakeClock()
    async with contextlib.aclosing(feed_of(store, clock)) as feed:
        assert (await anext(feed)).before is None
        assert clock.monotonic_s() == 5
        store.read_faults.extend([Fault.FAIL] * 100)
        with pytest.raises(BackendUnavailableError):
            await anext(feed)
        assert clock.monotonic_s() == 15


async def test_feed_ends_when_the_partition_is_deleted(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = segment(0, 9)
    await leader.add(metadata)
    async with contextlib.aclosing(feed_of(store)) as feed:
        await anext(feed)
        await leader.update(step(metadata, DELETE_STARTED))
        await leader.update(step(metadata, DELETE_FINISHED))
        for state in RemotePartitionDeleteState:
            await leader.put_partition_delete(deleting(state))
        assert [steps_of(change) async for change in feed] == [(STARTED, None)]


async def test_feed_waits_for_a_partition_that_does_not_exist_yet(store: FaultyKeyValueStore) -> None:
    clock = FakeClock()
    async with contextlib.aclosing(feed_of(store, clock)) as feed:
        waiting = asyncio.ensure_future(anext(feed))
        for _ in range(20):
            await asyncio.sleep(0)
        manager = RemoteLogMetadataManager(
            store, cluster_id="cluster", broker_id=1, session_id=SESSION, clock=FakeClock()
        )
        await manager.become_leader(PARTITION, 5)
        await manager.add(segment(0, 9))
        assert steps_of(await waiting) == (None, STARTED)


def test_segment_change_is_immutable() -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(SegmentChange(1, None, segment(0, 9)), "revision", 2)  # noqa: B010  not to be seen by mypy


segments_by_id = st.dictionaries(st.integers(1, 6), st.sampled_from(RemoteLogSegmentState), max_size=6)


def view_of(states: dict[int, RemoteLogSegmentState]) -> PartitionView:
    found: dict[UUID, RemoteLogSegmentMetadata] = {}
    for number, state in states.items():
        metadata = segment(number, number, segment_id=UUID(int=number))
        found[UUID(int=number)] = metadata if state is STARTED else metadata.updated(step(metadata, state))
    gone = {id_: m for id_, m in found.items() if m.state is DELETE_FINISHED}
    return PartitionView(PARTITION, segments={i: m for i, m in found.items() if i not in gone}, tombstones=gone)


@given(segments_by_id, segments_by_id)
def test_changes_between_two_views_lead_from_the_segments_of_one_to_the_other(
    before: dict[int, RemoteLogSegmentState], after: dict[int, RemoteLogSegmentState]
) -> None:
    old, new = view_of(before), view_of(after)
    applied = dict(old.segments)
    for change in changes_between(old, new):
        assert change.before != change.after
        if change.before is not None:
            assert {**old.segments, **old.tombstones}[change.before.segment.id] == change.before
            applied.pop(change.before.segment.id, None)
        if change.after is not None and change.after.state is not DELETE_FINISHED:
            applied[change.after.segment.id] = change.after
    assert applied == dict(new.segments)
    assert changes_between(new, new) == []
