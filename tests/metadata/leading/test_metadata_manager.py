import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

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
from tierd.errors import (
    BackendUnavailableError,
    FencedError,
    InvalidMetadataError,
    InvalidSegmentTransitionError,
    MetadataDecodeError,
    OutcomeUnknownError,
    RemoteResourceNotFoundError,
    RemoteStorageNotReadyError,
)
from tierd.metadata import (
    Batch,
    Delete,
    KeyValueStore,
    MemoryKeyValueStore,
    MetadataKeyFactory,
    MetadataManagerSettings,
    PartitionView,
    Put,
    RemoteLogMetadataManager,
    read_partition,
    store_identity,
)
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState, TopicIdPartition
from tierd.testing import cancel_at

KEYS = MetadataKeyFactory("cluster")
OTHER = TopicIdPartition(UUID(int=8), "payments", 3)


def manager_of(
    store: KeyValueStore,
    *,
    broker_id: int = 1,
    session_id: UUID = SESSION,
    cluster_id: str = "cluster",
    clock: FakeClock | None = None,
    backend_timeout_s: float = 5.0,
    strict_kafka_compat: bool = False,
) -> RemoteLogMetadataManager:
    return RemoteLogMetadataManager(
        store,
        cluster_id=cluster_id,
        broker_id=broker_id,
        session_id=session_id,
        clock=clock or FakeClock(),
        settings=MetadataManagerSettings(backend_timeout_s=backend_timeout_s, strict_kafka_compat=strict_kafka_compat),
    )


@pytest.fixture
def inner(any_store: KeyValueStore) -> KeyValueStore:
    return any_store


@pytest.fixture
def store(inner: KeyValueStore) -> FaultyKeyValueStore:
    return FaultyKeyValueStore(inner)


@pytest.fixture
async def leader(store: FaultyKeyValueStore) -> RemoteLogMetadataManager:
    manager = manager_of(store)
    await manager.become_leader(PARTITION, 5)
    return manager


async def bring(
    manager: RemoteLogMetadataManager, metadata: RemoteLogSegmentMetadata, *states: RemoteLogSegmentState
) -> RemoteLogSegmentMetadata:
    await manager.add(metadata)
    for state in states:
        await manager.update(step(metadata, state))
    return metadata


async def stored(store: FaultyKeyValueStore) -> PartitionView:
    return await read_partition(store.inner, KEYS, PARTITION)


# ── Written and visible segments ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("remote-tiering 1")
@pytest.mark.spec("remote-tiering 3")
async def test_add_and_update_without_metadata_are_refused(leader: RemoteLogMetadataManager) -> None:
    nothing = cast("Any", None)
    with pytest.raises(TypeError):
        await leader.add(nothing)
    with pytest.raises(TypeError):
        await leader.update(nothing)


@pytest.mark.spec("remote-tiering 2")
async def test_a_refused_add_writes_nothing(leader: RemoteLogMetadataManager, store: FaultyKeyValueStore) -> None:
    before = await stored(store)
    with pytest.raises(InvalidMetadataError):
        await leader.add(replace(segment(0, 9), state=FINISHED))
    assert await stored(store) == before == leader.view(PARTITION)


@pytest.mark.spec("remote-tiering 4")
async def test_update_of_a_segment_that_was_not_added_is_not_found(leader: RemoteLogMetadataManager) -> None:
    with pytest.raises(RemoteResourceNotFoundError):
        await leader.update(step(segment(0, 9), FINISHED))


@pytest.mark.spec("remote-tiering 5")
async def test_update_of_a_partition_that_is_not_loaded_loads_it_first(
    store: FaultyKeyValueStore, leader: RemoteLogMetadataManager
) -> None:
    known = await bring(leader, segment(0, 9))
    successor = manager_of(store, broker_id=2)
    store.read_faults.extend([None, Fault.FAIL])
    with pytest.raises(BackendUnavailableError):
        await successor.become_leader(PARTITION, 6)
    assert not successor.is_ready(PARTITION)
    with pytest.raises(RemoteResourceNotFoundError):  # Kafka's cache would ignore the update
        await successor.update(step(segment(10, 19), FINISHED))
    await successor.update(step(known, FINISHED))
    assert successor.view(PARTITION).segment_for(0, 5) is not None


@pytest.mark.spec("remote-tiering 6")
async def test_an_illegal_step_writes_nothing_and_is_counted(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9))
    before = await stored(store)
    with pytest.raises(InvalidSegmentTransitionError):
        await leader.update(step(metadata, DELETE_FINISHED))
    assert await stored(store) == before
    assert leader.statistics().invalid_transitions == 1


@pytest.mark.spec("remote-tiering 39")
@pytest.mark.spec("remote-tiering 40")
@pytest.mark.spec("remote-tiering 41")
@pytest.mark.spec("remote-tiering 42")
async def test_each_state_of_a_segment_is_visible_when_its_call_returns(leader: RemoteLogMetadataManager) -> None:
    started = await bring(leader, segment(0, 50))
    finished = await bring(leader, segment(101, 200), FINISHED)
    deleting = await bring(leader, segment(201, 300), FINISHED, DELETE_STARTED)
    await bring(leader, segment(301, 400), FINISHED, DELETE_STARTED, DELETE_FINISHED)
    view = leader.view(PARTITION)
    found = [view.segment_for(0, offset) for offset in (0, 150, 250, 350)]
    assert [metadata and metadata.segment for metadata in found] == [None, finished.segment, None, None]
    expected = [started.segment, finished.segment, deleting.segment]
    assert [metadata.segment for metadata in view.list_epoch(0)] == expected
    assert {metadata.segment for metadata in view.list()} == set(expected)


@pytest.mark.spec("remote-tiering 55")
async def test_a_segment_is_found_once_its_copy_is_finished(leader: RemoteLogMetadataManager) -> None:
    await bring(leader, segment(0, 100), FINISHED)
    second = await bring(leader, segment(101, 200))
    assert leader.view(PARTITION).segment_for(0, 50) is not None
    assert leader.view(PARTITION).segment_for(0, 150) is None
    await leader.update(step(second, FINISHED))
    assert leader.view(PARTITION).segment_for(0, 150) is not None


@pytest.mark.spec("remote-tiering 58")
async def test_rows_of_the_leader_load_to_the_view_of_the_leader(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await bring(leader, segment(0, 9), FINISHED)
    assert await stored(store) == leader.view(PARTITION)


@pytest.mark.spec("remote-tiering 59")
@pytest.mark.spec("remote-tiering 60")
async def test_partition_without_a_role_is_not_found(leader: RemoteLogMetadataManager) -> None:
    assert not leader.is_ready(OTHER)
    with pytest.raises(RemoteResourceNotFoundError):
        leader.view(OTHER)


@pytest.mark.spec("remote-tiering 64")
async def test_new_process_loads_segments_and_log_start_and_writes_on(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED)
    await leader.advance_log_start_offset(PARTITION, 3)
    await leader.close()
    successor = manager_of(store.inner, session_id=UUID(int=2))
    await successor.become_leader(PARTITION, 5)
    view = successor.view(PARTITION)
    assert ([listed.segment for listed in view.list()], view.log_start_offset) == ([metadata.segment], 3)
    await successor.update(step(metadata, DELETE_STARTED))
    assert (await stored(store)).segment_for(0, 5) is None


@pytest.mark.spec("remote-tiering 65")
@pytest.mark.spec("remote-tiering 68")
@pytest.mark.spec("remote-tiering 71")
async def test_concurrently_announced_partitions_all_become_ready(store: FaultyKeyValueStore) -> None:
    manager = manager_of(store)
    partitions = [TopicIdPartition(UUID(int=n // 4), f"topic-{n // 4}", n % 4) for n in range(40)]
    await asyncio.gather(*(manager.become_leader(partition, 5) for partition in partitions + partitions))
    assert all(manager.is_ready(partition) for partition in partitions)
    statistics = manager.statistics()
    assert (statistics.partitions, statistics.ready_partitions, statistics.claims) == (40, 40, 40)


@pytest.mark.spec("remote-tiering 66")
@pytest.mark.spec("remote-tiering 69")
async def test_partition_is_not_ready_until_the_store_answers(
    store: FaultyKeyValueStore,
) -> None:
    manager = manager_of(store)
    store.read_faults.extend([Fault.FAIL, None, Fault.FAIL])
    for _ in range(2):
        with pytest.raises(BackendUnavailableError):
            await manager.become_leader(PARTITION, 5)
        assert not manager.is_ready(PARTITION)
        with pytest.raises(RemoteStorageNotReadyError):
            manager.view(PARTITION)
    await manager.ensure_ready(PARTITION)
    assert manager.is_ready(PARTITION)


@pytest.mark.spec("remote-tiering 14")
async def test_waiting_caller_continues_when_the_partition_is_loaded(store: FaultyKeyValueStore) -> None:
    manager = manager_of(store)
    store.read_faults.append(Fault.HANG)
    announcing = asyncio.ensure_future(manager.become_leader(PARTITION, 5))
    await store.hanging.wait()
    waiting = asyncio.ensure_future(manager.ensure_ready(PARTITION))
    await asyncio.sleep(0)
    assert not waiting.done()
    store.release()
    await asyncio.gather(announcing, waiting)
    assert manager.is_ready(PARTITION)
    assert manager.statistics().claims == 1


@pytest.mark.spec("remote-tiering 67")
async def test_manager_without_partitions_may_be_closed_twice() -> None:
    manager = manager_of(MemoryKeyValueStore())
    await manager.close()
    await manager.close()
    with pytest.raises(BackendUnavailableError, match="closed"):
        await manager.become_leader(PARTITION, 5)


@pytest.mark.spec("remote-tiering 70")
async def test_partition_that_is_stopped_and_led_again_is_loaded_again(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    leader.stop(PARTITION)
    between = manager_of(store.inner, broker_id=2, session_id=UUID(int=2))
    await between.become_leader(PARTITION, 6)
    await bring(between, segment(0, 9, leader_epoch=6, session_id=UUID(int=2)), FINISHED)
    await leader.become_leader(PARTITION, 7)
    assert leader.view(PARTITION).segment_for(0, 5) is not None


@pytest.mark.spec("remote-tiering 101")
async def test_repeated_deletes_of_a_deleted_segment_succeed_and_write_nothing(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED, DELETE_STARTED, DELETE_FINISHED)
    written = len(store.batches)
    await leader.update(step(metadata, DELETE_STARTED))
    await leader.update(step(metadata, DELETE_FINISHED))
    assert len(store.batches) == written


@pytest.mark.spec("remote-tiering 102")
async def test_repeated_add_writes_nothing(leader: RemoteLogMetadataManager, store: FaultyKeyValueStore) -> None:
    metadata = await bring(leader, segment(0, 9))
    written = len(store.batches)
    await leader.add(metadata)
    assert len(store.batches) == written
    with pytest.raises(ValueError, match="exists already"):
        await leader.add(replace(metadata, end_offset=10))


@pytest.mark.spec("remote-tiering 107")
async def test_clusters_that_share_a_store_have_separate_rows(store: FaultyKeyValueStore) -> None:
    one, other = manager_of(store, cluster_id="one"), manager_of(store, cluster_id="other")
    await asyncio.gather(one.become_leader(PARTITION, 5), other.become_leader(PARTITION, 5))
    await bring(one, segment(0, 9), FINISHED)
    assert other.view(PARTITION).list() == ()
    assert (await read_partition(store, MetadataKeyFactory("other"), PARTITION)).list() == ()


@pytest.mark.spec("remote-tiering 108")
async def test_rows_written_per_event_do_not_grow_with_the_partition() -> None:
    store = FaultyKeyValueStore(MemoryKeyValueStore())
    manager = manager_of(store)
    await manager.become_leader(PARTITION, 5)
    written: list[int] = []
    for number in range(600):
        before = store.bytes_written
        await bring(manager, segment(100_000 + number * 10, 100_000 + number * 10 + 9), FINISHED)
        written.append(store.bytes_written - before)
    assert max(written[500:]) <= max(written[:10]) + 20


async def test_operations_on_one_partition_are_written_in_the_order_of_their_calls(
    leader: RemoteLogMetadataManager,
) -> None:
    segments = [segment(n * 10, n * 10 + 9) for n in range(20)]
    calls: list[Awaitable[None]] = []
    for metadata in segments:
        calls += [leader.add(metadata), leader.update(step(metadata, FINISHED))]
    await asyncio.gather(*calls)
    assert leader.view(PARTITION).highest_offset_for_epoch(0) == 199


async def test_log_start_offset_is_stored_and_does_not_move_back(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await leader.advance_log_start_offset(PARTITION, 40)
    await leader.advance_log_start_offset(PARTITION, 30)
    assert leader.view(PARTITION).log_start_offset == 40
    assert await stored(store) == leader.view(PARTITION)


async def test_expired_tombstones_are_removed_by_the_next_update(store: FaultyKeyValueStore) -> None:
    clock = FakeClock()
    manager = manager_of(store, clock=clock)
    await manager.become_leader(PARTITION, 5)
    gone, other = segment(0, 9), segment(10, 19)
    await bring(manager, gone, DELETE_STARTED)
    await manager.update(step(gone, DELETE_FINISHED, event_timestamp_ms=clock.now_ms()))
    clock.advance(86_000)
    await bring(manager, other)
    assert manager.statistics().tombstones == 1
    clock.advance(1_000)
    await manager.update(step(other, FINISHED))
    assert manager.statistics().tombstones == 0
    assert await store.inner.get(KEYS.segment(PARTITION, gone.segment.id)) is None
    assert await stored(store) == manager.view(PARTITION)


async def test_statistics_count_calls_and_latencies_of_the_store(leader: RemoteLogMetadataManager) -> None:
    await bring(leader, segment(0, 9), FINISHED)
    backend = leader.statistics().backend
    assert {operation: latency.count for operation, latency in backend.items()} == {"get": 1, "scan": 1, "apply": 3}
    assert leader.statistics().segments == 1


# ── First durable, then visible ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.spec("remote-tiering 86")
async def test_failed_write_is_not_visible_and_the_next_one_succeeds(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = segment(0, 9)
    store.apply_faults.append(Fault.FAIL)
    with pytest.raises(BackendUnavailableError):
        await leader.add(metadata)
    assert leader.is_ready(PARTITION)
    assert leader.view(PARTITION).list() == ()
    await leader.add(metadata)
    assert leader.view(PARTITION).list() == (metadata,)


async def test_segment_is_not_visible_before_the_store_answers(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.HANG)
    adding = asyncio.ensure_future(leader.add(segment(0, 9)))
    await store.hanging.wait()
    assert leader.view(PARTITION).list() == ()
    store.release()
    await adding
    assert len(leader.view(PARTITION).list()) == 1


@pytest.mark.spec("remote-tiering 87")
@pytest.mark.spec("remote-tiering 88")
@pytest.mark.parametrize(
    ("fault", "state"),
    [(Fault.LOSE_ANSWER, FINISHED), (Fault.DROP_REQUEST, STARTED), (Fault.LAND_LATE, STARTED)],
)
async def test_unknown_outcome_reloads_the_partition_and_a_repeated_request_succeeds(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore, fault: Fault, state: RemoteLogSegmentState
) -> None:
    metadata = await bring(leader, segment(0, 9))
    store.apply_faults.append(fault)
    with pytest.raises(OutcomeUnknownError):
        await leader.update(step(metadata, FINISHED))
    assert not leader.is_ready(PARTITION)
    with pytest.raises(RemoteStorageNotReadyError):
        leader.view(PARTITION)
    assert leader.statistics().dirty_partitions == 1

    await leader.ensure_ready(PARTITION)
    assert [listed.state for listed in leader.view(PARTITION).list()] == [state]
    await leader.update(step(metadata, FINISHED))
    assert leader.view(PARTITION).segment_for(0, 5) is not None
    assert leader.view(PARTITION) == await stored(store)
    statistics = leader.statistics()
    assert (statistics.unknown_outcomes, statistics.reloads, statistics.dirty_partitions) == (1, 1, 0)


@pytest.mark.parametrize("fault", [Fault.LOSE_ANSWER, Fault.DROP_REQUEST, Fault.BREAK])
async def test_operation_after_an_unknown_outcome_reloads_the_partition(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore, fault: Fault
) -> None:
    first, second = segment(0, 9), segment(10, 19)
    store.apply_faults.append(fault)
    with pytest.raises((OutcomeUnknownError, RuntimeError)):
        await leader.add(first)
    await leader.add(second)
    expected = {second.segment} if fault is Fault.DROP_REQUEST else {first.segment, second.segment}
    assert {metadata.segment for metadata in leader.view(PARTITION).list()} == expected
    assert leader.view(PARTITION) == await stored(store)


async def test_request_that_lands_after_the_reload_is_refused(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.LAND_LATE)
    with pytest.raises(OutcomeUnknownError):
        await leader.add(segment(0, 9))
    await leader.ensure_ready(PARTITION)
    (late,) = await store.land_late()
    assert late is not None
    assert leader.view(PARTITION).list() == ()
    assert leader.view(PARTITION) == await stored(store)


async def test_failed_reload_is_repeated_before_the_next_operation(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = segment(0, 9)
    store.apply_faults.extend([Fault.LOSE_ANSWER, Fault.DROP_REQUEST, Fault.FAIL, Fault.LOSE_ANSWER])
    for expected in (OutcomeUnknownError, OutcomeUnknownError, BackendUnavailableError, OutcomeUnknownError):
        with pytest.raises(expected):
            await leader.add(metadata)
        assert not leader.is_ready(PARTITION)
    await leader.add(metadata)
    assert leader.view(PARTITION).list() == (metadata,)


async def test_write_without_an_answer_ends_at_its_deadline_with_unknown_outcome() -> None:
    store = FaultyKeyValueStore(MemoryKeyValueStore())
    manager = manager_of(store, backend_timeout_s=0.2)
    await manager.become_leader(PARTITION, 5)
    store.apply_faults.append(Fault.HANG)
    with pytest.raises(OutcomeUnknownError, match=r"within 0\.2 s"):
        await manager.add(segment(0, 9))
    store.release()
    await manager.ensure_ready(PARTITION)
    assert manager.is_ready(PARTITION)


@pytest.mark.spec("remote-tiering 89")
async def test_view_equals_the_store_after_a_cancelled_write(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.HANG)
    metadata = segment(0, 9)
    adding = asyncio.ensure_future(leader.add(metadata))
    await store.hanging.wait()
    adding.cancel()
    await asyncio.sleep(0)
    assert not adding.done()
    adding.cancel()
    store.release()
    await asyncio.wait({adding})
    assert adding.cancelled()
    assert leader.view(PARTITION).list() == (metadata,)
    assert leader.view(PARTITION) == await stored(store)


async def test_operation_cancelled_while_it_waits_is_not_written(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.HANG)
    first = asyncio.ensure_future(leader.add(segment(0, 9)))
    await store.hanging.wait()
    second = asyncio.ensure_future(leader.add(segment(10, 19)))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    assert second.cancelled()
    store.release()
    await first
    assert [metadata.start_offset for metadata in leader.view(PARTITION).list()] == [0]


OPERATIONS: dict[str, Callable[[RemoteLogMetadataManager, RemoteLogSegmentMetadata], Awaitable[None]]] = {
    "become leader": lambda manager, _: manager.become_leader(PARTITION, 6),
    "add": lambda manager, _: manager.add(segment(10, 19)),
    "finish": lambda manager, metadata: manager.update(step(metadata, FINISHED)),
    "advance": lambda manager, _: manager.advance_log_start_offset(PARTITION, 5),
}


@pytest.mark.parametrize("operation", list(OPERATIONS))
async def test_view_equals_the_store_after_a_cancellation_at_any_await_of_an_operation(operation: str) -> None:
    for suspension in range(1, 50):
        store = FaultyKeyValueStore(MemoryKeyValueStore())
        manager = manager_of(store)
        await manager.become_leader(PARTITION, 5)
        metadata = await bring(manager, segment(0, 9))

        async def run(manager: RemoteLogMetadataManager = manager, it: RemoteLogSegmentMetadata = metadata) -> None:
            await OPERATIONS[operation](manager, it)

        cancelled = await cancel_at(suspension, run)
        assert manager.view(PARTITION) == await stored(store)
        await run()
        assert manager.view(PARTITION) == await stored(store)
        if not cancelled:
            assert suspension > 1
            return
    pytest.fail("the operation never ended")


@pytest.mark.spec("remote-tiering 105")
async def test_close_ends_operations_that_exceed_its_limit(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.HANG)
    running = asyncio.ensure_future(leader.add(segment(0, 9)))
    await store.hanging.wait()
    waiting = asyncio.ensure_future(leader.add(segment(10, 19)))
    await asyncio.sleep(0)
    await leader.close(limit_s=0.01)
    outcomes = await asyncio.gather(running, waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknownError, BackendUnavailableError]
    with pytest.raises(BackendUnavailableError, match="closed"):
        await leader.add(segment(20, 29))


async def test_close_waits_for_a_running_write_within_its_limit(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.HANG)
    running = asyncio.ensure_future(leader.add(segment(0, 9)))
    await store.hanging.wait()
    closing = asyncio.ensure_future(leader.close(limit_s=60))
    await asyncio.sleep(0)
    store.release()
    await asyncio.gather(running, closing)
    assert len((await stored(store)).list()) == 1


# ── Fencing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def rival_of(store: FaultyKeyValueStore, *, broker_id: int = 2, session: int = 2) -> RemoteLogMetadataManager:
    return manager_of(store.inner, broker_id=broker_id, session_id=UUID(int=session))


@pytest.mark.spec("remote-tiering 90")
async def test_replaced_leader_writes_nothing_and_is_fenced(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9))
    await rival_of(store).become_leader(PARTITION, 6)
    before = await store.inner.scan("")
    for _ in range(2):
        with pytest.raises(FencedError, match="leader epoch 6 of broker 2"):
            await leader.update(step(metadata, FINISHED))
    assert await store.inner.scan("") == before
    assert not leader.is_ready(PARTITION)
    with pytest.raises(RemoteStorageNotReadyError):
        leader.view(PARTITION)
    statistics = leader.statistics()
    assert (statistics.fenced_writes, statistics.fenced_partitions) == (1, 1)


async def test_replaced_leader_may_lead_again_under_a_later_epoch(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await rival_of(store).become_leader(PARTITION, 6)
    with pytest.raises(FencedError):
        await leader.add(segment(0, 9))
    with pytest.raises(FencedError):
        await leader.become_leader(PARTITION, 5)
    await leader.become_leader(PARTITION, 7)
    await leader.add(segment(0, 9, leader_epoch=7))
    assert leader.view(PARTITION) == await stored(store)


@pytest.mark.spec("remote-tiering 91")
@pytest.mark.parametrize("epoch", [5, 6])
async def test_claim_of_an_older_epoch_or_of_another_brokers_epoch_is_refused(
    store: FaultyKeyValueStore, epoch: int
) -> None:
    await rival_of(store).become_leader(PARTITION, 6)
    manager = manager_of(store)
    with pytest.raises(FencedError):
        await manager.become_leader(PARTITION, epoch)
    assert not manager.is_ready(PARTITION)
    with pytest.raises(FencedError):
        await manager.add(segment(0, 9))


@pytest.mark.spec("remote-tiering 92")
async def test_restarted_broker_claims_its_own_epoch_again_and_fences_its_earlier_process(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    restarted = rival_of(store, broker_id=1)
    await restarted.become_leader(PARTITION, 5)
    with pytest.raises(FencedError):
        await leader.add(segment(0, 9))
    with pytest.raises(FencedError):
        await leader.become_leader(PARTITION, 5)
    await restarted.add(segment(0, 9, session_id=UUID(int=2)))
    assert restarted.view(PARTITION) == await stored(store)


async def test_older_session_cannot_reclaim_its_partition_after_an_unknown_outcome(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.DROP_REQUEST)
    with pytest.raises(OutcomeUnknownError):
        await leader.add(segment(0, 9))
    restarted = rival_of(store, broker_id=1)
    await restarted.become_leader(PARTITION, 5)
    with pytest.raises(FencedError):
        await leader.ensure_ready(PARTITION)
    await restarted.add(segment(0, 9, session_id=UUID(int=2)))


@pytest.mark.spec("remote-tiering 93")
async def test_a_write_that_landed_before_the_claim_is_loaded(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9))
    rival = rival_of(store)
    store.apply_faults.append(Fault.LOSE_ANSWER)
    with pytest.raises(OutcomeUnknownError):
        await leader.update(step(metadata, FINISHED))
    await rival.become_leader(PARTITION, 6)
    assert rival.view(PARTITION).segment_for(0, 5) is not None
    with pytest.raises(FencedError):
        await leader.ensure_ready(PARTITION)


async def test_a_write_that_arrives_after_the_claim_is_fenced(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9))
    rival = rival_of(store)

    async def claim_first() -> None:
        await rival.become_leader(PARTITION, 6)

    store.before_apply = claim_first
    with pytest.raises(FencedError):
        await leader.update(step(metadata, FINISHED))
    assert rival.view(PARTITION).segment_for(0, 5) is None
    assert rival.view(PARTITION) == await stored(store)


@pytest.mark.spec("remote-tiering 94")
@pytest.mark.parametrize("strict", [False, True])
async def test_next_leader_loads_the_view_of_the_last_one(store: FaultyKeyValueStore, strict: bool) -> None:
    first = manager_of(store, strict_kafka_compat=strict)
    await first.become_leader(PARTITION, 5)
    await bring(first, segment(0, 100, {0: 0, 1: 50}), FINISHED)
    await bring(first, segment(0, 40), FINISHED)
    await bring(first, segment(10, 200, {0: 10, 1: 50, 2: 150}), FINISHED)
    await bring(first, segment(201, 300, 2))
    await bring(first, segment(201, 300, 2), FINISHED, DELETE_STARTED)
    await bring(first, segment(301, 400, 3), FINISHED, DELETE_STARTED, DELETE_FINISHED)
    await first.advance_log_start_offset(PARTITION, 7)
    old = first.view(PARTITION)
    second = manager_of(store.inner, broker_id=2, session_id=UUID(int=2), strict_kafka_compat=strict)
    await second.become_leader(PARTITION, 6)
    new = second.view(PARTITION)
    assert replace(new, row=old.row) == old
    assert new.highest_offset_for_epoch(3) == 400
    assert second.statistics().repairs == 0


@pytest.mark.spec("remote-tiering 95")
async def test_tombstones_are_not_counted_as_segments_after_a_load(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED, DELETE_STARTED, DELETE_FINISHED)
    rival = rival_of(store)
    await rival.become_leader(PARTITION, 6)
    assert rival.view(PARTITION).list() == ()
    assert rival.statistics().segments == 0
    await rival.update(step(metadata, DELETE_FINISHED))


async def tamper(store: FaultyKeyValueStore, *writes: Put) -> None:
    await store.inner.apply(Batch(writes))


@pytest.mark.spec("remote-tiering 96")
async def test_reference_to_an_unknown_segment_is_deleted_and_reported(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    await bring(leader, segment(0, 9), FINISHED)
    ghost = KEYS.epoch_reference(PARTITION, 0, 10)
    await tamper(store, Put(ghost, b'\x01{"id":"AAAAAAAAAAAAAAAAAAAAAQ"}'))
    rival = rival_of(store)
    await rival.become_leader(PARTITION, 6)
    assert rival.is_ready(PARTITION)
    assert rival.view(PARTITION).segment_for(0, 10) is None
    assert rival.view(PARTITION).segment_for(0, 9) is not None
    assert rival.statistics().repairs == 1
    assert await store.inner.get(ghost) is None
    assert rival.view(PARTITION) == await stored(store)


@pytest.mark.spec("remote-tiering 97")
async def test_undecodable_row_keeps_only_its_partition_not_ready(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9), FINISHED)
    key = KEYS.segment(PARTITION, metadata.segment.id)
    sound = await store.inner.get(key)
    await tamper(store, Put(key, b"\x01{}"))
    rival = rival_of(store)
    await rival.become_leader(OTHER, 1)
    with pytest.raises(MetadataDecodeError, match="seg/"):
        await rival.become_leader(PARTITION, 6)
    assert (rival.is_ready(PARTITION), rival.is_ready(OTHER)) == (False, True)
    assert sound is not None
    await tamper(store, Put(key, sound))
    await rival.ensure_ready(PARTITION)
    assert rival.is_ready(PARTITION)


@pytest.mark.spec("remote-tiering 100")
async def test_write_of_a_broker_that_does_not_lead_is_fenced(store: FaultyKeyValueStore) -> None:
    manager = manager_of(store)
    with pytest.raises(FencedError, match="does not lead"):
        await manager.add(segment(0, 9))
    with pytest.raises(FencedError):
        await manager.ensure_ready(PARTITION)
    with pytest.raises(RemoteResourceNotFoundError):
        manager.view(PARTITION)
    assert await store.inner.scan("") == []


async def test_stopped_partition_is_dropped_from_memory(leader: RemoteLogMetadataManager) -> None:
    leader.stop(PARTITION)
    leader.stop(PARTITION)
    with pytest.raises(RemoteResourceNotFoundError):
        leader.view(PARTITION)
    with pytest.raises(FencedError):
        await leader.add(segment(0, 9))
    assert leader.statistics().partitions == 0


async def test_a_write_that_waits_while_its_partition_is_stopped_is_refused(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.HANG)
    running = asyncio.ensure_future(leader.add(segment(0, 9)))
    await store.hanging.wait()
    waiting = asyncio.ensure_future(leader.add(segment(10, 19)))
    await asyncio.sleep(0)
    leader.stop(PARTITION)
    store.release()
    announcing = asyncio.ensure_future(leader.become_leader(PARTITION, 6))
    outcomes = await asyncio.gather(running, waiting, announcing, return_exceptions=True)
    assert isinstance(outcomes[1], FencedError)
    assert outcomes[2] is None
    await leader.ensure_ready(PARTITION)
    assert 10 not in {metadata.start_offset for metadata in leader.view(PARTITION).list()}
    assert leader.view(PARTITION) == await stored(store)


async def test_a_write_that_waits_while_leadership_ends_is_refused(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    store.apply_faults.append(Fault.HANG)
    running = asyncio.ensure_future(leader.add(segment(0, 9)))
    await store.hanging.wait()
    waiting = asyncio.ensure_future(leader.add(segment(10, 19)))
    await asyncio.sleep(0)
    leader.stop(PARTITION)
    store.release()
    outcomes = await asyncio.gather(running, waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), FencedError]
    assert [metadata.start_offset for metadata in (await stored(store)).list()] == [0]


@pytest.mark.parametrize("load_fails", [False, True])
async def test_leader_that_returns_loads_the_rows_of_the_leader_between(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore, load_fails: bool
) -> None:
    rival = rival_of(store)
    await rival.become_leader(PARTITION, 6)
    await bring(rival, segment(0, 9, leader_epoch=6, session_id=UUID(int=2)), FINISHED)
    if load_fails:
        store.read_faults.extend([None, Fault.FAIL])
        with pytest.raises(BackendUnavailableError):
            await leader.become_leader(PARTITION, 7)
        assert not leader.is_ready(PARTITION)
    await leader.become_leader(PARTITION, 7)
    assert leader.view(PARTITION).segment_for(0, 5) is not None
    assert leader.view(PARTITION) == await stored(store)


async def test_claim_that_another_broker_overtakes_before_the_load_is_fenced(store: FaultyKeyValueStore) -> None:
    manager, rival = manager_of(store), rival_of(store)

    async def overtake() -> None:
        await rival.become_leader(PARTITION, 6)

    store.before_scan = overtake
    with pytest.raises(FencedError, match="leader epoch 6 of broker 2"):
        await manager.become_leader(PARTITION, 5)
    assert not manager.is_ready(PARTITION)
    assert rival.view(PARTITION) == await stored(store)


async def test_add_of_a_copy_begun_under_another_claim_is_fenced(leader: RemoteLogMetadataManager) -> None:
    for metadata in (segment(0, 9, leader_epoch=4), segment(0, 9, session_id=UUID(int=3))):
        with pytest.raises(FencedError):
            await leader.add(metadata)
    assert leader.is_ready(PARTITION)


async def test_later_epoch_of_the_same_broker_needs_no_load(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9))
    await leader.become_leader(PARTITION, 8)
    assert (leader.statistics().claims, leader.statistics().loads) == (2, 1)
    await leader.update(step(metadata, FINISHED))
    assert leader.view(PARTITION) == await stored(store)
    with pytest.raises(FencedError):
        await leader.become_leader(PARTITION, 7)
    assert leader.is_ready(PARTITION)


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_ANSWER, Fault.DROP_REQUEST])
async def test_failed_later_claim_leaves_the_partition_not_ready(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore, fault: Fault
) -> None:
    await bring(leader, segment(0, 9), FINISHED)
    store.apply_faults.append(fault)
    with pytest.raises((BackendUnavailableError, OutcomeUnknownError)):
        await leader.become_leader(PARTITION, 6)
    assert not leader.is_ready(PARTITION)
    await leader.become_leader(PARTITION, 6)
    assert leader.view(PARTITION) == await stored(store)
    assert leader.view(PARTITION).segment_for(0, 5) is not None


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_no_partition_begins_anew_in_a_store_that_has_lost_its_contents(
    store: FaultyKeyValueStore, is_replaced: bool
) -> None:
    identity = await store_identity(store, KEYS, new_id=uuid4)
    leader = manager_of(store)
    await leader.become_leader(PARTITION, 5)
    await leader.become_leader(OTHER, 5)
    begun = segment(0, 9)
    await leader.add(begun)
    rows = await store.scan("")
    await store.apply(Batch([Delete(key) for key, _ in rows]))
    if is_replaced:  # by an empty one, which another process has begun to fill
        assert await store_identity(store, KEYS, new_id=uuid4) != identity
    left = await store.scan("")
    for _ in range(2):
        with pytest.raises(BackendUnavailableError):
            await leader.update(step(begun, FINISHED))
    with pytest.raises(BackendUnavailableError):
        await leader.become_leader(replace(OTHER, partition=4), 5)
    assert await store.scan("") == left
    await store.apply(Batch([Put(key, value) for key, value in rows]))
    await leader.ensure_ready(PARTITION)
    assert len(leader.view(PARTITION).list()) == 1


async def test_a_row_edited_by_hand_is_reported_and_reloaded(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    key = KEYS.row(PARTITION)
    row = await store.inner.get(key)
    assert row is not None
    await tamper(store, Put(key, row.replace(b"}", b',"log_start_offset":33}')))
    with pytest.raises(BackendUnavailableError, match="changed though this broker owns it"):
        await leader.add(segment(0, 9))
    assert leader.statistics().unexpected_revisions == 1
    await leader.add(segment(0, 9))
    assert leader.view(PARTITION).log_start_offset == 33
    assert leader.view(PARTITION) == await stored(store)


async def test_fields_of_a_later_tierd_survive_an_update(
    leader: RemoteLogMetadataManager, store: FaultyKeyValueStore
) -> None:
    metadata = await bring(leader, segment(0, 9))
    for key in (KEYS.segment(PARTITION, metadata.segment.id), KEYS.row(PARTITION)):
        value = await store.inner.get(key)
        assert value is not None
        await tamper(store, Put(key, value[:-1] + b',"later":[1]}'))
    rival = rival_of(store)
    await rival.become_leader(PARTITION, 6)
    await rival.update(step(metadata, FINISHED))
    for key in (KEYS.segment(PARTITION, metadata.segment.id), KEYS.row(PARTITION)):
        assert b'"later":[1]' in (await store.inner.get(key) or b"")


@pytest.mark.spec("remote-tiering 103")
async def test_concurrent_writes_of_brokers_equal_a_sequential_order(store: FaultyKeyValueStore) -> None:
    managers = [rival_of(store, broker_id=n, session=n) for n in range(1, 4)]
    epochs = iter(range(1, 1000))
    highest = 0

    async def work(manager: RemoteLogMetadataManager, broker_id: int) -> None:
        nonlocal highest
        for number in range(20):
            try:
                epoch = next(epochs)
                await manager.become_leader(PARTITION, epoch)
                start = number * 100 + broker_id * 10
                metadata = segment(start, start + 9, leader_epoch=epoch, session_id=UUID(int=broker_id))
                await bring(manager, metadata, FINISHED)
                highest = max(highest, start + 9)
            except (FencedError, BackendUnavailableError):  # overtaken before or during its claim
                await asyncio.sleep(0)

    await asyncio.gather(*(work(manager, broker_id) for broker_id, manager in enumerate(managers, 1)))
    await managers[0].become_leader(PARTITION, 1000)
    view = managers[0].view(PARTITION)
    finished = [metadata for metadata in view.list() if metadata.state is FINISHED]
    assert finished
    assert view.highest_offset_for_epoch(0) == highest == max(metadata.end_offset for metadata in finished)
    assert all(view.segment_for(0, metadata.end_offset) == metadata for metadata in finished)
