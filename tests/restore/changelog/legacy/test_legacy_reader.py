from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from tests.fakes.clock import FakeClock
from tests.fakes.memory_changelog import MemoryChangelogs
from tests.fakes.memory_store import MemoryStore
from tests.restore.changelog.recorded_callbacks import RecordedCallbacks
from tierd.model import TopicPartition
from tierd.restore.changelog.changelog_errors import CorruptSourceError, IllegalRestoreError
from tierd.restore.changelog.legacy.legacy_reader import LegacyReader
from tierd.restore.changelog.legacy.restore_consumer import RestoreConsumer
from tierd.restore.changelog.legacy.state_restorer import NO_CHECKPOINT, NO_OFFSET_LIMIT, StateRestorer

T0, T1, T2 = (TopicPartition("t", partition) for partition in range(3))


@dataclass
class RecordingTask:
    """Task of a test: it notes what it is to wipe, and wipes nothing."""

    task_id: str = "0_0"
    exactly_once: bool = False
    reinitialized: list[TopicPartition] = field(default_factory=list)

    async def reinitialize_state_stores(self, partitions: Iterable[TopicPartition]) -> None:
        self.reinitialized += partitions


class Bench:
    """Reader over changelogs in memory."""

    def __init__(self) -> None:
        self.source = MemoryChangelogs()
        self.clock = FakeClock()
        self.callbacks = RecordedCallbacks()
        self.task = RecordingTask()
        self.consumer = RestoreConsumer(self.source, clock=self.clock)
        self.reader = LegacyReader(self.consumer, clock=self.clock, listener=self.callbacks)
        self.stores: dict[TopicPartition, MemoryStore] = {}
        self.restorers: dict[TopicPartition, StateRestorer] = {}

    def register(
        self,
        partition: TopicPartition = T0,
        *,
        checkpoint: int | None = None,
        persistent: bool = True,
        offset_limit: int = NO_OFFSET_LIMIT,
    ) -> StateRestorer:
        self.stores[partition] = MemoryStore(f"store {partition}", persistent=persistent)
        restorer = StateRestorer(partition, self.stores[partition], checkpoint=checkpoint, offset_limit=offset_limit)
        self.restorers[partition] = restorer
        self.reader.register(restorer)
        return restorer

    def add(self, partition: TopicPartition = T0, *, records: int = 10, first: int = 0, end: int | None = None) -> None:
        """Add a changelog of ``records`` records with a key each."""
        values = [(offset, b"k%d" % offset, b"v") for offset in range(first, first + records)]
        self.source.add(partition, values, earliest=first, end=end)

    async def restore(self) -> set[TopicPartition]:
        return await self.reader.restore(dict.fromkeys(self.source.logs, self.task))

    @property
    def applied(self) -> int:
        return sum(self.stores[T0].batches)


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.spec("changelog-restore 12")
async def test_store_without_checkpoint_gets_all_records(bench: Bench) -> None:
    bench.add()
    bench.register()
    assert await bench.restore() == {T0}
    assert bench.applied == 10
    assert bench.consumer.assignment == frozenset()
    assert bench.callbacks.of(T0) == [("start", 0, 10), ("batch", 9, 10), ("end", 10)]


@pytest.mark.spec("changelog-restore 13")
async def test_checkpoint_leaves_out_the_records_before_it(bench: Bench) -> None:
    bench.add()
    bench.register(checkpoint=5)
    assert await bench.restore() == {T0}
    assert bench.applied == 5
    assert bench.callbacks.of(T0) == [("start", 5, 10), ("batch", 9, 5), ("end", 5)]


@pytest.mark.spec("changelog-restore 14")
async def test_checkpoint_at_the_end_completes_without_callbacks(bench: Bench) -> None:
    bench.add()
    restorer = bench.register(checkpoint=10)
    assert await bench.restore() == {T0}
    assert bench.applied == 0
    assert restorer.restored_offset == 10
    assert bench.callbacks.calls == []


@pytest.mark.spec("changelog-restore 15")
@pytest.mark.parametrize("checkpoint", [None, 0])
async def test_empty_changelog_completes_at_once_without_callbacks(bench: Bench, checkpoint: int | None) -> None:
    bench.add(records=0)
    restorer = bench.register(checkpoint=checkpoint)
    assert await bench.restore() == {T0}
    assert restorer.restored_offset == 0
    assert bench.callbacks.calls == []


@pytest.mark.spec("changelog-restore 16")
async def test_limit_ends_the_restore(bench: Bench) -> None:
    bench.add()
    restorer = bench.register(offset_limit=3)
    assert await bench.restore() == {T0}
    assert bench.applied == 3
    assert restorer.restored_offset == 3


@pytest.mark.spec("changelog-restore 17")
async def test_callbacks_of_a_limited_restore_have_offset_distances(bench: Bench) -> None:
    bench.add()
    bench.register(checkpoint=0, offset_limit=5)
    assert await bench.restore() == {T0}
    assert bench.callbacks.of(T0) == [("start", 0, 5), ("batch", 4, 10), ("end", 5)]


@pytest.mark.spec("changelog-restore 18")
async def test_records_without_key_are_left_out(bench: Bench) -> None:
    bench.source.add(T0, [(0, b"x", b"1"), (1, None, b"2"), (2, b"y", b"3")])
    bench.register()
    assert await bench.restore() == {T0}
    assert bench.stores[T0].content == {b"x": b"1", b"y": b"3"}
    assert bench.callbacks.of(T0)[1] == ("batch", 2, 3)


async def test_batch_without_any_key_moves_the_position_and_calls_nothing(bench: Bench) -> None:
    bench.source.add(T0, [(0, None, b"1"), (1, None, b"2")])
    bench.register()
    assert await bench.restore() == {T0}
    assert bench.stores[T0].batches == []
    assert bench.callbacks.of(T0) == [("start", 0, 2), ("end", 2)]


@pytest.mark.spec("changelog-restore 19")
async def test_marker_at_the_end_is_passed_by_the_position(bench: Bench) -> None:
    bench.add(end=11)
    restorer = bench.register()
    assert await bench.restore() == {T0}
    assert bench.applied == 10
    assert restorer.restored_offset == 11


@pytest.mark.spec("changelog-restore 20")
async def test_timeout_of_the_end_lookup_loses_nothing(bench: Bench) -> None:
    bench.add()
    bench.register()
    bench.source.time_out("end_offset")
    assert await bench.restore() == set()
    assert bench.reader.needs_initializing == {T0}
    assert await bench.restore() == {T0}
    assert bench.applied == 10


@pytest.mark.spec("changelog-restore 21")
async def test_timeout_of_the_list_of_topics_leaves_the_work_to_the_next_run(bench: Bench) -> None:
    bench.add()
    bench.register()
    bench.source.time_out("list_partitions")
    assert await bench.restore() == set()
    assert await bench.restore() == {T0}
    assert bench.applied == 10


@pytest.mark.spec("changelog-restore 22")
async def test_consumer_with_a_subscription_is_fatal(bench: Bench) -> None:
    bench.add()
    consumer = RestoreConsumer(bench.source, clock=bench.clock, subscription=["sometopic"])
    reader = LegacyReader(consumer, clock=bench.clock)
    reader.register(StateRestorer(T0, MemoryStore()))
    with pytest.raises(IllegalRestoreError, match="sometopic"):
        await reader.restore({T0: bench.task})


@pytest.mark.spec("changelog-restore 23")
async def test_invalid_offset_wipes_and_restores_all_after_it_is_registered_again(bench: Bench) -> None:
    bench.add()
    restorer = bench.register(checkpoint=5)
    bench.source.logs[T0].earliest = 6  # between the lookup of the end and the read
    assert await bench.restore() == set()
    assert restorer.checkpoint == NO_CHECKPOINT
    assert bench.task.reinitialized == [T0]
    assert bench.reader.needs_initializing == bench.reader.needs_restoring == frozenset()
    bench.source.logs[T0].earliest = 0
    bench.reader.register(restorer)
    assert await bench.restore() == {T0}
    assert bench.applied == 10


@pytest.mark.spec("changelog-restore 24")
async def test_checkpoint_below_the_log_start_restores_from_the_log_start(bench: Bench) -> None:
    bench.add(first=5, records=5)
    restorer = bench.register(checkpoint=1)
    assert await bench.restore() == set()
    assert restorer.checkpoint == NO_CHECKPOINT
    assert bench.task.reinitialized == [T0]
    bench.reader.register(restorer)
    assert await bench.restore() == {T0}
    assert bench.callbacks.of(T0)[-3:] == [("start", 5, 10), ("batch", 9, 5), ("end", 5)]


@pytest.mark.spec("changelog-restore 25")
async def test_exactly_once_without_checkpoint_wipes_before_it_restores(bench: Bench) -> None:
    bench.task.exactly_once = True
    bench.add()
    restorer = bench.register()
    assert await bench.restore() == set()
    assert bench.task.reinitialized == [T0]
    assert bench.reader.needs_restoring == bench.reader.needs_initializing == frozenset()
    assert restorer.checkpoint == 0
    assert bench.callbacks.calls == []
    bench.reader.register(restorer)
    assert await bench.restore() == {T0}
    assert bench.applied == 10


async def test_exactly_once_wipes_one_store_and_restores_its_neighbour(bench: Bench) -> None:
    bench.task.exactly_once = True
    bench.add(T0)
    bench.add(T1)
    bench.register(T0)
    bench.register(T1, checkpoint=4)
    assert await bench.restore() == {T1}
    assert bench.task.reinitialized == [T0]
    assert sum(bench.stores[T1].batches) == 6


@pytest.mark.spec("changelog-restore 26")
async def test_at_least_once_without_checkpoint_restores_over_the_data(bench: Bench) -> None:
    bench.add()
    bench.register()
    bench.stores[T0].put(k1=b"old", other=b"kept")
    assert await bench.restore() == {T0}
    assert bench.task.reinitialized == []
    assert bench.stores[T0].content[b"k1"] == b"v"
    assert bench.stores[T0].content[b"other"] == b"kept"


@pytest.mark.spec("changelog-restore 27")
async def test_changelog_that_is_registered_later_completes_too(bench: Bench) -> None:
    bench.add(T0)
    bench.add(T1, records=3)
    bench.register(T0)
    assert await bench.restore() == {T0}
    bench.register(T1)
    assert await bench.restore() == {T0, T1}
    assert sum(bench.stores[T1].batches) == 3


@pytest.mark.spec("changelog-restore 28")
async def test_second_registration_keeps_the_first_restorer_and_begins_anew(bench: Bench) -> None:
    bench.add()
    first = bench.register()
    store = bench.stores[T0]
    assert await bench.restore() == {T0}
    bench.register()
    assert bench.reader.needs_initializing == {T0}
    assert await bench.restore() == {T0}
    assert sum(store.batches) == 20
    assert bench.stores[T0].batches == []
    assert first.restored_offset == 10


@pytest.mark.spec("changelog-restore 29")
async def test_listener_of_each_store_gets_its_own_numbers(bench: Bench) -> None:
    own = {}
    for partition, records in ((T0, 10), (T1, 5), (T2, 3)):
        bench.add(partition, records=records)
        own[partition] = RecordedCallbacks()
        bench.reader.register(StateRestorer(partition, MemoryStore(), store_listener=own[partition]))
    assert await bench.restore() == {T0, T1, T2}
    for partition, records in ((T0, 10), (T1, 5), (T2, 3)):
        expected = [("start", 0, records), ("batch", records - 1, records), ("end", records)]
        assert own[partition].of(partition) == bench.callbacks.of(partition) == expected
        assert len(own[partition].calls) == 3


@pytest.mark.spec("changelog-restore 30")
async def test_restored_offsets_are_those_of_persistent_stores(bench: Bench) -> None:
    bench.add(T0)
    bench.add(T1)
    bench.register(T0, persistent=True)
    bench.register(T1, persistent=False)
    assert bench.reader.restored_offsets() == {T0: 0}
    await bench.restore()
    assert bench.reader.restored_offsets() == {T0: 10}


@pytest.mark.spec("changelog-restore 31")
async def test_reset_empties_all_registries(bench: Bench) -> None:
    bench.add(T0)
    bench.register(T0)
    bench.register(T1)  # never initialised: the source does not know it
    await bench.restore()
    assert not bench.reader.is_empty()
    bench.reader.reset()
    assert bench.reader.is_empty()
    assert bench.reader.restored_offsets() == {}
    assert bench.reader.needs_initializing == bench.reader.needs_restoring == frozenset()
    assert await bench.restore() == set()


async def test_removed_changelog_is_forgotten_and_the_others_stay(bench: Bench) -> None:
    bench.add(T0)
    bench.add(T1)
    bench.register(T0)
    bench.register(T1)
    await bench.restore()
    bench.reader.remove([T0])
    assert bench.reader.restored_offsets() == {T1: 10}
    assert await bench.restore() == {T1}
    bench.reader.remove([T1])
    assert bench.reader.is_empty()


@pytest.mark.spec("changelog-restore 32")
@pytest.mark.parametrize(
    ("position", "end", "limit"), [(11, 10, NO_OFFSET_LIMIT), (51, 100, 50), (0, 0, NO_OFFSET_LIMIT), (0, 10, 0)]
)
def test_restorer_is_complete_at_the_end_and_at_the_limit(position: int, end: int, limit: int) -> None:
    assert StateRestorer(T0, MemoryStore(), offset_limit=limit).has_completed(position, end)


@pytest.mark.parametrize(("position", "end", "limit"), [(9, 10, NO_OFFSET_LIMIT), (49, 100, 50), (0, 1, 5)])
def test_restorer_is_not_complete_below_the_end_and_the_limit(position: int, end: int, limit: int) -> None:
    assert not StateRestorer(T0, MemoryStore(), offset_limit=limit).has_completed(position, end)


@pytest.mark.spec("changelog-restore 32")
def test_restorer_cuts_offsets_at_its_limit_and_counts_distances() -> None:
    restorer = StateRestorer(T0, MemoryStore(), offset_limit=50)
    restorer.restored_offset = 100
    assert restorer.restored_offset == 50
    restorer = StateRestorer(T0, MemoryStore())
    restorer.starting_offset, restorer.restored_offset = 20, 40
    assert restorer.restored_num_records == 20
    restorer.restored_offset = restorer.ending_offset = 100
    assert (restorer.restored_offset, restorer.ending_offset) == (100, 100)


async def test_several_reads_are_applied_until_the_end(bench: Bench) -> None:
    bench.consumer = RestoreConsumer(bench.source, clock=bench.clock, partition_bytes=300)
    bench.reader = LegacyReader(bench.consumer, clock=bench.clock, listener=bench.callbacks)
    bench.add()
    bench.register()
    for _ in range(3):
        assert await bench.restore() == set()
    assert bench.consumer.assignment == {T0}
    assert await bench.restore() == {T0}
    assert bench.callbacks.of(T0) == [
        ("start", 0, 10),
        *[("batch", last, count) for last, count in ((2, 3), (5, 3), (8, 3), (9, 1))],
        ("end", 10),
    ]


async def test_completed_store_that_is_registered_again_is_restored_to_its_end(bench: Bench) -> None:
    bench.consumer = RestoreConsumer(bench.source, clock=bench.clock, partition_bytes=300)
    bench.reader = LegacyReader(bench.consumer, clock=bench.clock, listener=bench.callbacks)
    bench.add()
    restorer = bench.register()
    for _ in range(4):
        await bench.restore()
    bench.stores[T0].content.clear()  # wiped
    bench.reader.register(restorer)
    assert [await bench.restore() == {T0} for _ in range(4)] == [False, False, False, True]
    assert len(bench.stores[T0].content) == 10


async def test_invalid_offset_of_a_completed_changelog_does_not_stop_the_others(bench: Bench) -> None:
    bench.consumer = RestoreConsumer(bench.source, clock=bench.clock, partition_bytes=600)
    bench.reader = LegacyReader(bench.consumer, clock=bench.clock, listener=bench.callbacks)
    bench.add(T0, records=6)
    bench.add(T1, records=20)
    bench.register(T0)
    bench.register(T1)
    assert await bench.restore() == {T0}
    bench.source.logs[T0].earliest = bench.source.logs[T0].end = 50
    active = {T1: bench.task}  # the task of the first one runs already
    for _ in range(5):
        await bench.reader.restore(active)
    assert await bench.reader.restore(active) == {T0, T1}
    assert bench.task.reinitialized == []


async def test_source_that_does_not_answer_leaves_the_others_going_on(bench: Bench) -> None:
    bench.add(T0)
    bench.add(T1)
    bench.register(T0)
    bench.register(T1)
    bench.source.time_out("read")
    assert len(await bench.restore()) == 1
    assert await bench.restore() == {T0, T1}


async def test_damaged_changelog_is_an_error(bench: Bench) -> None:
    bench.add()
    bench.register()
    bench.source.fail("read", CorruptSourceError(T0, "torn batch"))
    with pytest.raises(CorruptSourceError):
        await bench.restore()


async def test_failure_of_a_listener_passes_through(bench: Bench) -> None:
    bench.add()
    bench.register()
    bench.callbacks.failing = "batch"
    with pytest.raises(ValueError, match="batch fails"):
        await bench.restore()
