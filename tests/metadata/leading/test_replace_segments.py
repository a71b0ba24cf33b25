"""Replacement of inputs by an output through the manager: in every store, with every end of the call."""

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest

from tests.coded import coded
from tests.fakes.clock import FakeClock
from tests.fakes.key_value_store import Fault, FaultyKeyValueStore
from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, SESSION, segment, step
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    InvalidMetadataError,
    OutcomeUnknownError,
    RefusedError,
    TierErrorCode,
)
from tierd.metadata import (
    Batch,
    BucketSegment,
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    PartitionView,
    Put,
    RemoteLogMetadataManager,
    changes,
    export_lines,
    import_lines,
    read_partition,
    rebuild_partition,
    rows_of,
)
from tierd.metadata.rows import serde
from tierd.metadata.stored.segment_changes import changes_between
from tierd.model import EpochEntry, SoftDelete, TopicIdPartition
from tierd.testing import cancel_at

KEYS = MetadataKeyFactory("cluster")
GRACE = SoftDelete.replaced(delete_after_ms=1_700_000_999_000)
LATER_MS = 1_700_000_000_500
A, B, C = segment(0, 9), segment(10, 19, {0: 10, 1: 15}), segment(20, 29, 1)
OUTPUT = replace(segment(0, 19, {0: 0, 1: 15}, segment_id=UUID(int=0xF00)), event_timestamp_ms=LATER_MS)
DONE = replace(OUTPUT, state=FINISHED, size_bytes=7, max_timestamp_ms=5, custom_metadata=b"key")


def manager_of(store: KeyValueStore, *, broker_id: int = 1, session_id: UUID = SESSION) -> RemoteLogMetadataManager:
    return RemoteLogMetadataManager(
        store, cluster_id="cluster", broker_id=broker_id, session_id=session_id, clock=FakeClock()
    )


async def leading(store: KeyValueStore) -> RemoteLogMetadataManager:
    """Return a leader with three finished segments and an output for the first two that has begun."""
    manager = manager_of(store)
    await manager.become_leader(PARTITION, 5)
    for metadata in (A, B, C):
        await manager.add(metadata)
        await manager.update(step(metadata, FINISHED))
    await manager.begin_outputs([OUTPUT])
    return manager


INPUTS = [replace(metadata, state=FINISHED, event_timestamp_ms=1_700_000_000_001) for metadata in (A, B)]


async def replaced(manager: RemoteLogMetadataManager, *, compacted_to: int | None = 20) -> None:
    await manager.replace_segments(DONE, INPUTS, soft_delete=GRACE, compacted_to=compacted_to)


@pytest.fixture
def store() -> FaultyKeyValueStore:
    return FaultyKeyValueStore(MemoryKeyValueStore())


def found(view: PartitionView) -> list[int | None]:
    places = [(0, 0), (0, 10), (1, 19), (1, 20)]
    return [None if (m := view.segment_for(*place)) is None else m.segment.id.int for place in places]


BEFORE = [A.segment.id.int, B.segment.id.int, B.segment.id.int, C.segment.id.int]
AFTER = [OUTPUT.segment.id.int] * 3 + [C.segment.id.int]


async def test_nothing_is_replaced_after_the_log_start_was_moved_back(store: FaultyKeyValueStore) -> None:
    manager = await leading(store)
    await manager.advance_log_start_offset(PARTITION, 5)
    with pytest.raises(RefusedError) as refused:
        await manager.replace_segments(DONE, INPUTS, soft_delete=GRACE, compacted_to=20, planned_log_start=6)
    assert refused.value.code is TierErrorCode.INPUTS_CHANGED
    assert found(manager.view(PARTITION)) == BEFORE
    await manager.replace_segments(DONE, INPUTS, soft_delete=GRACE, compacted_to=20, planned_log_start=5)
    assert found(manager.view(PARTITION)) == AFTER


async def test_output_is_found_by_leader_follower_and_loader(any_store: KeyValueStore) -> None:
    manager = await leading(any_store)
    follower = manager_of(any_store, broker_id=2, session_id=UUID(int=2))
    follower.follow(PARTITION)
    before = manager.view(PARTITION)
    assert found(before) == found(await follower.read_view(PARTITION)) == BEFORE
    await replaced(manager)
    assert found(before) == BEFORE
    after = manager.view(PARTITION)
    assert (found(after), after.compacted_to) == (AFTER, 20)
    assert await follower.read_view(PARTITION) == after
    assert await read_partition(any_store, KEYS, PARTITION) == after


async def test_thousands_of_inputs_are_replaced_in_one_batch(any_store: KeyValueStore) -> None:
    small = [BucketSegment(metadata=segment(n, n, segment_id=UUID(int=n + 1))) for n in range(1500)]
    rebuilt = rebuild_partition(PARTITION, small, session_id=SESSION, replaced=GRACE).view
    assert rebuilt.row is not None
    rows = {**rows_of(rebuilt, KEYS), KEYS.row(PARTITION): serde.encode_row(rebuilt.row)}
    await any_store.apply(Batch([Put(key, value) for key, value in rows.items()]))
    manager = manager_of(any_store)
    await manager.become_leader(PARTITION, 6)
    output = replace(segment(0, 1499, segment_id=UUID(int=0xF00), leader_epoch=6), event_timestamp_ms=LATER_MS)
    await manager.begin_outputs([output])
    inputs = [m for m in manager.view(PARTITION).list() if m.state is FINISHED]
    assert len(inputs) == 1500
    await manager.replace_segments(replace(output, state=FINISHED), inputs, soft_delete=GRACE, compacted_to=1500)
    view = manager.view(PARTITION)
    assert await read_partition(any_store, KEYS, PARTITION) == view
    assert {found.segment.id for n in range(1500) if (found := view.segment_for(0, n))} == {output.segment.id}


async def test_repeated_replacement_writes_nothing(store: FaultyKeyValueStore) -> None:
    manager = await leading(store)
    await replaced(manager)
    written = len(store.batches)
    await replaced(manager)
    await manager.begin_outputs([])
    assert len(store.batches) == written


async def test_replacement_and_begin_of_outputs_are_one_batch_each(store: FaultyKeyValueStore) -> None:
    manager = await leading(store)
    written = len(store.batches)
    await replaced(manager)
    assert len(store.batches) == written + 1
    await manager.begin_outputs([replace(segment(n, n), event_timestamp_ms=LATER_MS) for n in range(40, 50)])
    assert len(store.batches) == written + 2


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST, Fault.LAND_LATE])
async def test_readers_find_the_inputs_or_the_output_after_a_failed_replacement(
    store: FaultyKeyValueStore, fault: Fault
) -> None:
    manager = await leading(store)
    store.apply_faults.append(fault)
    with pytest.raises((BackendUnavailableError, OutcomeUnknownError)):
        await replaced(manager)
    assert found(await read_partition(store.inner, KEYS, PARTITION)) in (BEFORE, AFTER)
    await replaced(manager)
    await store.land_late()
    assert found(manager.view(PARTITION)) == AFTER
    assert await read_partition(store.inner, KEYS, PARTITION) == manager.view(PARTITION)


async def test_a_fenced_leader_replaces_nothing(store: FaultyKeyValueStore) -> None:
    manager = await leading(store)
    other = manager_of(store, broker_id=2, session_id=UUID(int=2))
    await other.become_leader(PARTITION, 6)
    with pytest.raises(FencedError):
        await replaced(manager)
    assert found(other.view(PARTITION)) == BEFORE
    with pytest.raises(FencedError):
        await manager.begin_outputs([segment(40, 49)])


async def test_outputs_under_another_claim_are_fenced_and_none_begins(store: FaultyKeyValueStore) -> None:
    manager = await leading(store)
    before = manager.view(PARTITION)
    with pytest.raises(FencedError):
        await manager.begin_outputs([segment(40, 49), segment(50, 59, session_id=UUID(int=3))])
    other = segment(0, 9, partition=TopicIdPartition(UUID(int=8), "others", 0))
    with pytest.raises(InvalidMetadataError, match="several partitions"):
        await manager.begin_outputs([segment(40, 49), other])
    assert manager.view(PARTITION) is before


async def test_replacement_with_an_expired_input_is_refused_and_changes_nothing(store: FaultyKeyValueStore) -> None:
    manager = await leading(store)
    await manager.update(step(A, DELETE_STARTED))
    before = manager.view(PARTITION)
    with pytest.raises(RefusedError, check=coded(TierErrorCode.INPUTS_CHANGED)) as caught:
        await manager.replace_segments(DONE, INPUTS, soft_delete=GRACE, compacted_to=20)
    assert isinstance(caught.value, RefusedError)
    assert manager.view(PARTITION) is before
    assert await read_partition(store, KEYS, PARTITION) == before


async def test_compacted_to_offset_is_kept_by_every_rewrite_of_the_row(any_store: KeyValueStore) -> None:
    manager = await leading(any_store)
    await replaced(manager)
    await manager.advance_compacted_to(PARTITION, 25)
    await manager.advance_compacted_to(PARTITION, 24)
    await manager.advance_log_start_offset(PARTITION, 3)
    await manager.update(step(C, DELETE_STARTED))
    other = manager_of(any_store, broker_id=2, session_id=UUID(int=2))
    await other.become_leader(PARTITION, 6)
    assert other.view(PARTITION).compacted_to == 25
    assert other.view(PARTITION) == await read_partition(any_store, KEYS, PARTITION)


async def test_export_contains_replacements_and_the_compacted_to_offset(store: FaultyKeyValueStore) -> None:
    await replaced(await leading(store))
    lines = [line async for line in export_lines(store, KEYS, exported_ms=1)]
    target = MemoryKeyValueStore()
    await import_lines(target, KEYS, lambda: iter(lines), on_progress=lambda _: None)
    assert await read_partition(target, KEYS, PARTITION) == await read_partition(store, KEYS, PARTITION)
    assert (await read_partition(target, KEYS, PARTITION)).compacted_to == 20


async def test_feed_yields_the_output_and_every_input_at_one_revision(store: FaultyKeyValueStore) -> None:
    manager = await leading(store)
    clock = FakeClock()
    async with contextlib.aclosing(changes(store, KEYS, PARTITION, clock=clock)) as feed:
        first = [await anext(feed) for _ in range(4)]
        assert {change.after.segment.id for change in first if change.after} == set(manager.view(PARTITION).segments)
        await replaced(manager)
        told = [await anext(feed) for _ in range(3)]
    assert {change.revision for change in told} == {manager.view(PARTITION).revision}
    became = {change.after.segment.id: change.after.state for change in told if change.after}
    assert became == {OUTPUT.segment.id: FINISHED, A.segment.id: DELETE_STARTED, B.segment.id: DELETE_STARTED}


async def test_statistics_count_output_and_inputs(store: FaultyKeyValueStore) -> None:
    manager = await leading(store)
    await replaced(manager)
    assert manager.statistics().segments == 4
    assert changes_between(manager.view(PARTITION), manager.view(PARTITION)) == []


OPERATIONS: dict[str, Callable[[RemoteLogMetadataManager], Awaitable[None]]] = {
    "begin outputs": lambda manager: manager.begin_outputs(
        [replace(segment(n, n, segment_id=UUID(int=n)), event_timestamp_ms=LATER_MS) for n in (40, 41)]
    ),
    "replace": replaced,
    "advance": lambda manager: manager.advance_compacted_to(PARTITION, 9),
}


@pytest.mark.parametrize("operation", list(OPERATIONS))
async def test_view_equals_the_store_after_a_cancellation_at_any_await_of_a_replacement(operation: str) -> None:
    for suspension in range(1, 50):
        store = FaultyKeyValueStore(MemoryKeyValueStore())
        manager = await leading(store)

        async def run(manager: RemoteLogMetadataManager = manager) -> None:
            await OPERATIONS[operation](manager)

        cancelled = await cancel_at(suspension, run)
        view = manager.view(PARTITION)
        assert view == await read_partition(store, KEYS, PARTITION)
        assert found(view) in (BEFORE, AFTER)
        await run()
        assert manager.view(PARTITION) == await read_partition(store, KEYS, PARTITION)
        if not cancelled:
            assert suspension > 1
            return
    pytest.fail("the operation never ended")


async def test_an_output_that_replaces_one_segment_of_several_epochs_is_found_in_each(any_store: KeyValueStore) -> None:
    manager = await leading(any_store)
    output = replace(
        segment(10, 19, {0: 10, 1: 15}, segment_id=UUID(int=0xF0F)),
        event_timestamp_ms=LATER_MS,
        segment_leader_epochs=(EpochEntry(0, 10), EpochEntry(1, 15)),
    )
    await manager.begin_outputs([output])
    done = replace(output, state=FINISHED, size_bytes=0)
    await manager.replace_segments(done, INPUTS[1:], soft_delete=GRACE, compacted_to=None)
    view = await read_partition(any_store, KEYS, PARTITION)
    assert found(view) == [A.segment.id.int, 0xF0F, 0xF0F, C.segment.id.int]
    assert view.compacted_to is None
