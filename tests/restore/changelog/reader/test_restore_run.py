"""Runs of the reader to the end: failures, new beginnings, crashes, parallelism."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_changelog import MemoryChangelog, MemoryChangelogs
from tests.fakes.memory_store import MemoryStore
from tests.restore.changelog.reader.restorer_bench import T0, T1, T2, RestorerBench, values
from tierd.log import Record
from tierd.model import IsolationLevel, Lineage, TopicPartition
from tierd.restore.changelog.changelog_errors import (
    ChangelogRangeError,
    CorruptSourceError,
    OutdatedPositionError,
    RestoreCallbackError,
    RestoreTimeoutError,
)
from tierd.restore.changelog.changelog_source import ChangelogRecords, ReadResult
from tierd.restore.changelog.checkpoints.task_checkpoint import CheckpointedOffset
from tierd.restore.changelog.reader.changelog_restorer import ChangelogRestorer
from tierd.restore.changelog.reader.restore_limits import RestorerSettings
from tierd.restore.changelog.reader.restore_task import RestoreTask, TaskType

DAY_MS = 86_400_000
HOUR_S = 3600


@pytest.fixture
def bench(tmp_path: Path) -> RestorerBench:
    return RestorerBench(tmp_path)


def contents(records: Sequence[tuple[int, bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    """Return what a store has after these records."""
    content: dict[bytes, bytes] = {}
    for _, key, value in records:
        if key is not None and value is not None:
            content[key] = value
        elif key is not None:
            content.pop(key, None)
    return content


async def test_run_restores_all_active_changelogs_and_writes_their_checkpoints(bench: RestorerBench) -> None:
    for number, partition in enumerate((T0, T1, T2)):
        bench.source.add(partition, values(0, 9 + number))
        bench.register(partition)
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == {T0, T1, T2}
    assert outcome.failed == {}
    assert [bench.checkpointed(partition).split()[-1] for partition in (T0, T1, T2)] == ["9", "10", "11"]
    assert bench.callbacks.of(T1) == [("start", 0, 11), ("batch", 10, 11), ("end", 11)]


async def test_run_of_nothing_ends_at_once(bench: RestorerBench) -> None:
    outcome = await bench.restorer.run_until_completed()
    assert (outcome.completed, outcome.failed) == (frozenset(), {})


async def test_longest_restore_begins_first(tmp_path: Path) -> None:
    bench = RestorerBench(tmp_path, RestorerSettings(parallelism=1))
    for partition, last in ((T0, 4), (T1, 9), (T2, 6)):
        bench.source.add(partition, values(0, last))
        bench.register(partition)
    await bench.restorer.run_until_completed()
    assert [partition for partition, _ in bench.source.reads] == [T1, T2, T0]


async def test_source_that_is_away_for_minutes_is_waited_for(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    bench.source.time_out("end_offset", 100)
    bench.source.time_out("read", 100)
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == {T0}
    assert 190 <= sum(bench.clock.sleeps_s) <= 210


async def test_changelog_without_progress_fails_at_its_deadline_and_no_other_does(bench: RestorerBench) -> None:
    for partition in (T0, T1):
        bench.source.add(partition, values(0, 9))
        bench.register(partition, exactly_once=True)
    bench.source.logs[T0].stable = 10  # a transaction that never ends
    bench.source.logs[T0].end = 20
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == {T1}
    assert isinstance(outcome.failed[T0], RestoreTimeoutError)
    assert bench.callbacks.of(T0)[-1] == ("suspended", 10)
    assert bench.checkpointed(T0).split()[-1] == "9"
    assert bench.progress.use().failures == 1


async def test_failed_changelog_can_be_registered_again(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    bench.source.fail("read", CorruptSourceError(T0, "torn batch"))
    outcome = await bench.restorer.run_until_completed()
    assert isinstance(outcome.failed[T0], CorruptSourceError)
    bench.register(T0)
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == {T0}
    assert outcome.failed == {}


@pytest.mark.parametrize("phase", ["start", "batch", "end"])
async def test_failure_of_a_listener_fails_its_changelog(bench: RestorerBench, phase: str) -> None:
    for partition in (T0, T1):
        bench.source.add(partition, values(0, 9))
        bench.register(partition)
    bench.callbacks.failing = phase
    outcome = await bench.restorer.run_until_completed()
    assert isinstance(outcome.failed[T0], RestoreCallbackError)
    assert isinstance(outcome.failed[T1], RestoreCallbackError)
    assert outcome.completed == frozenset()


async def test_failure_of_a_listener_at_the_suspension_keeps_the_first_error(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    bench.source.fail("read", CorruptSourceError(T0, "torn batch"))
    bench.callbacks.failing = "suspended"
    outcome = await bench.restorer.run_until_completed()
    assert isinstance(outcome.failed[T0], CorruptSourceError)
    assert bench.restorer.is_empty()


@pytest.mark.parametrize("earliest", [5, 8])
async def test_changelog_out_of_range_is_wiped_and_begins_anew(bench: RestorerBench, earliest: int) -> None:
    bench.source.add(T0, values(0, 9))
    bench.checkpoint(T0, 2)
    bench.register(T0)
    await bench.restorer.restore(max_records=1)
    bench.source.logs[T0].earliest = earliest
    bench.source.fail("read", ChangelogRangeError(T0, offset=4, earliest_offset=earliest, end_offset=10))
    bench.restorer._changelogs[T0]._buffer.drop(10)
    bench.restorer._changelogs[T0]._limit_index = 0
    bench.restorer._changelogs[T0].position = 4
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == {T0}
    assert bench.stores[T0].content == contents(values(earliest, 9))
    assert bench.callbacks.of(T0) == [
        ("start", 3, 10),
        ("batch", 3, 1),
        ("suspended", 1),
        ("start", earliest, 10),
        ("batch", 9, 10 - earliest),
        ("end", 10 - earliest),
    ]
    assert bench.progress.use().wipes["out_of_range"] == 1


async def test_wipe_that_fails_leaves_the_old_checkpoint_and_tells_the_end_once(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.checkpoint(T0, 2)
    bench.register(T0)
    bench.source.fail("read", ChangelogRangeError(T0, offset=3, earliest_offset=0, end_offset=10))
    bench.stores[T0].failures["wipe"] = [OSError("busy")]
    outcome = await bench.restorer.run_until_completed()
    assert "wipe of store store t-0 failed: busy" in str(outcome.failed[T0])
    assert bench.callbacks.of(T0) == [("start", 3, 10), ("suspended", 0)]
    assert not (bench.directory / str(T0) / ".checkpoint.meta").exists()  # nothing was written for a broken store


async def test_failed_changelog_returns_its_bytes_to_the_budget(tmp_path: Path) -> None:
    bench = RestorerBench(tmp_path, RestorerSettings(fetch_bytes=300, batch_records=3))
    bench.source.add(T0, values(0, 29))
    bench.register(T0)
    bench.callbacks.failing = "batch"
    outcome = await bench.restorer.run_until_completed()
    assert T0 in outcome.failed
    assert len(bench.source.reads) == 2  # the second one ran ahead
    assert bench.restorer._parallel._budget.used_bytes == 0


async def test_cancellation_waits_for_the_batch_that_the_store_is_taking(bench: RestorerBench) -> None:
    class WaitingStore(MemoryStore):
        """Store that takes a batch when the test lets it."""

        def __init__(self) -> None:
            super().__init__()
            self.is_called, self.go_on = asyncio.Event(), asyncio.Event()

        async def restore_batch(self, records: ChangelogRecords, last_offset: int) -> None:
            self.is_called.set()
            await self.go_on.wait()
            await super().restore_batch(records, last_offset)

    store = WaitingStore()
    bench.stores[T0] = store
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    running = asyncio.create_task(bench.restorer.run_until_completed())
    await store.is_called.wait()
    running.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not running.done()
    store.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert bench.restorer.offsets() == {T0: 10}
    await bench.restorer.unregister([T0])
    assert bench.checkpointed(T0).split()[-1] == "9"


async def test_changelog_that_is_out_of_range_again_and_again_fails(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    error = ChangelogRangeError(T0, offset=4, earliest_offset=0, end_offset=10)
    bench.source.fail("read", *[error] * 4)
    outcome = await bench.restorer.run_until_completed()
    assert outcome.failed == {T0: error}
    assert [name for name, *_ in bench.callbacks.of(T0)] == ["start", "suspended"] * 4
    assert bench.progress.use().wipes["out_of_range"] == 3


@pytest.mark.spec("changelog-restore 60")
async def test_recreated_topic_is_wiped_and_restored_anew(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    await bench.restorer.run_until_completed()
    bench.start()
    bench.source.add(T0, [(offset, b"new%d" % offset, b"v") for offset in range(20)]).topic_id = UUID(int=8)
    bench.register(T0)
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == {T0}
    assert sorted(bench.stores[T0].content) == sorted(b"new%d" % offset for offset in range(20))
    assert bench.progress.use().wipes["topic_recreated"] == 1


@pytest.mark.spec("changelog-restore 60")
async def test_offset_beyond_the_end_is_wiped_and_never_complete(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 4))
    bench.checkpoint(T0, 9)
    bench.register(T0)
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == {T0}
    assert bench.callbacks.of(T0) == [("start", 0, 5), ("batch", 4, 5), ("end", 5)]
    assert b"before" not in bench.stores[T0].content


async def test_changelog_truncated_below_the_offset_and_written_on_is_wiped(bench: RestorerBench) -> None:
    log = bench.source.add(T0, values(0, 9))
    log.lineage = Lineage.of([(0, 0)])
    bench.register(T0)
    await bench.restorer.run_until_completed()
    bench.start()
    log = bench.source.add(T0, [*values(0, 5), *((offset, b"other", b"1") for offset in range(6, 30))])
    log.lineage = Lineage.of([(0, 0), (1, 6)])
    bench.register(T0)
    await bench.restorer.run_until_completed()
    assert bench.stores[T0].content == contents(values(0, 5)) | {b"other": b"1"}


@pytest.mark.spec("changelog-restore 61")
async def test_exactly_once_task_has_no_checkpoint_once_it_processes(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0, exactly_once=True)
    await bench.restorer.run_until_completed()
    assert bench.checkpointed(T0)
    await bench.tasks[T0].begin_processing()
    assert bench.checkpointed(T0) == ""
    await bench.restorer.unregister([T0])
    assert list((bench.directory / str(T0)).iterdir()) == []
    # A crash while processing: what is in the store may be of an aborted transaction.
    bench.stores[T0].put(aborted=b"1")
    bench.after_crash()
    bench.register(T0, exactly_once=True)
    await bench.restorer.run_until_completed()
    assert bench.stores[T0].content == contents(values(0, 9))
    assert bench.progress.use().wipes["no_offset"] == 1


async def test_exactly_once_task_that_processes_gets_no_checkpoint_by_a_store_that_is_still_restored(
    tmp_path: Path,
) -> None:
    task = RestoreTask("0_0", tmp_path, {T0: MemoryStore("a"), T1: MemoryStore("b")}, exactly_once=True)
    await task.begin_processing()
    await task.write_checkpoint({T1: CheckpointedOffset(has_entry=True, last_applied=5, meta=None)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_known", [False, True])
async def test_facts_of_a_checkpoint_have_the_epoch_of_the_last_record(bench: RestorerBench, *, is_known: bool) -> None:
    log = bench.source.add(T0, values(0, 9))
    log.lineage = Lineage.of([(0, 0), (4, 9)])
    if is_known:  # the batch says it
        log.batches[9] = Record(9, 1009, "CreateTime", b"k", b"v", (), 0)
    bench.register(T0)
    await bench.restorer.run_until_completed()
    meta = (await bench.tasks[T0].checkpointed(T0)).meta
    assert meta is not None
    assert meta.leader_epoch == (0 if is_known else 4)
    assert (meta.offset, meta.topic_id, meta.store_id) == (9, UUID(int=7), "store t-0 1")


@pytest.mark.parametrize("is_recreated", [False, True])
async def test_transactional_store_that_was_killed_before_its_first_checkpoint_has_its_facts(
    bench: RestorerBench, *, is_recreated: bool
) -> None:
    bench.stores[T0] = MemoryStore(transactional=True)
    log = bench.source.add(T0, values(0, 9))
    log.lineage = Lineage.of([(0, 0), (2, 3)])
    bench.register(T0)
    await bench.restorer.restore(max_records=6)
    bench.after_crash()
    if is_recreated:
        log.topic_id = UUID(int=8)
    bench.register(T0)
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == {T0}
    assert bench.stores[T0].batches == ([10] if is_recreated else [4])


async def test_checkpoint_of_a_store_that_needs_nothing_is_as_young_as_the_look_at_it(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    await bench.restorer.run_until_completed()
    bench.clock.advance(3600)
    bench.start()
    bench.register(T0)
    await bench.restorer.run_until_completed()
    meta = (await bench.tasks[T0].checkpointed(T0)).meta
    assert meta is not None
    assert meta.read_since_ms == bench.clock.now_ms()


async def test_at_least_once_task_keeps_its_checkpoint_while_it_processes(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    await bench.restorer.run_until_completed()
    await bench.tasks[T0].begin_processing()
    assert bench.checkpointed(T0)


async def test_checkpoint_follows_the_flush_and_comes_after_thirty_seconds_and_ten_thousand_offsets(
    tmp_path: Path,
) -> None:
    bench = RestorerBench(tmp_path, RestorerSettings(checkpoint_offsets=5, fetch_bytes=300, batch_records=3))
    bench.source.add(T0, values(0, 29))
    bench.register(T0)
    assert await bench.restorer.restore() == 3
    bench.clock.advance(30)
    assert await bench.restorer.restore() == 3
    assert bench.checkpointed(T0).split()[-1] == "5"
    assert bench.stores[T0].calls[-1] == "flush"
    assert await bench.restorer.restore() == 3
    bench.clock.advance(30)
    assert await bench.restorer.restore() == 3
    assert bench.checkpointed(T0).split()[-1] == "11"
    for _ in range(5):  # far enough, too early
        assert await bench.restorer.restore() == 3
    assert bench.checkpointed(T0).split()[-1] == "11"


async def test_transactional_store_is_not_flushed_for_its_checkpoint(bench: RestorerBench) -> None:
    bench.stores[T0] = MemoryStore(transactional=True)
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    await bench.restorer.run_until_completed()
    assert bench.stores[T0].calls == ["restore_batch"]
    assert bench.checkpointed(T0).split()[-1] == "9"


async def test_store_in_memory_has_no_checkpoint_and_begins_at_the_beginning(bench: RestorerBench) -> None:
    bench.stores[T0] = MemoryStore(persistent=False)
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    await bench.restorer.run_until_completed()
    assert bench.checkpointed(T0) == ""
    bench.after_crash()
    bench.register(T0)
    await bench.restorer.run_until_completed()
    assert bench.stores[T0].batches == [10]


async def test_checkpoint_that_cannot_be_written_fails_its_changelog(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    (bench.directory / str(T0) / ".checkpoint.tmp").mkdir()
    outcome = await bench.restorer.run_until_completed()
    assert "checkpoint" in str(outcome.failed[T0])
    assert bench.callbacks.of(T0)[-1] == ("suspended", 10)


async def test_standbys_are_followed_until_cancelled_while_active_ones_come_first(tmp_path: Path) -> None:
    bench = RestorerBench(tmp_path)
    clock = ManualClock()
    bench.restorer = ChangelogRestorer(bench.source, clock=clock, listener=bench.callbacks)
    for partition in (T0, T1, T2):
        bench.source.add(partition, values(0, 9))
    bench.register(T0)
    bench.register(T1, kind=TaskType.STANDBY)
    running = asyncio.create_task(bench.restorer.run_until_cancelled())

    async def settle() -> None:
        async with asyncio.timeout(60):
            while not clock.sleeping:  # it rests once there is nothing to do
                await asyncio.to_thread(int)

    await settle()
    assert bench.restorer.completed() == {T0}
    assert bench.stores[T1].content == contents(values(0, 9))
    bench.source.add(T1, values(0, 14))
    bench.register(T2)
    clock.advance(0.1)
    await settle()
    assert bench.restorer.completed() == {T0, T2}
    clock.advance(0.1)
    await settle()
    assert bench.stores[T1].content == contents(values(0, 14))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await bench.restorer.unregister([T1])
    assert bench.checkpointed(T1).split()[-1] == "14"


async def test_standby_out_of_range_begins_anew(tmp_path: Path) -> None:
    bench = RestorerBench(tmp_path)
    clock = ManualClock()
    bench.restorer = ChangelogRestorer(bench.source, clock=clock, listener=bench.callbacks)
    bench.source.add(T0, values(5, 9), earliest=5)
    bench.source.fail("read", ChangelogRangeError(T0, offset=5, earliest_offset=7, end_offset=10))
    bench.register(T0, kind=TaskType.STANDBY)
    running = asyncio.create_task(bench.restorer.run_until_cancelled())
    async with asyncio.timeout(60):
        while not bench.stores[T0].content:
            await asyncio.to_thread(int)
            if clock.sleeping:
                clock.advance(0.1)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert bench.callbacks.of(T0) == [
        ("update start", 5),
        ("update suspended", -1, -1, "migrated"),
        ("update start", 5),
        ("loaded", 9, 5, 10),
    ]


def compacted(bench: RestorerBench) -> MemoryChangelog:
    """Add a changelog that has a key ``a`` first, and its tombstone at 9."""
    log = bench.source.add(T0, [(0, b"a", b"1"), *values(1, 8), (9, b"a", None), *values(10, 14)])
    log.delete_retention_ms = DAY_MS
    return log


def clean(log: MemoryChangelog) -> None:
    """Remove what the log cleaner has removed once ``delete.retention.ms`` is over."""
    del log.batches[0], log.batches[9]


@pytest.fixture
def slow(tmp_path: Path) -> RestorerBench:
    """Return a reader that takes three records at a time."""
    return RestorerBench(tmp_path, RestorerSettings(fetch_bytes=300, batch_records=3))


@pytest.mark.spec("changelog-restore 50")
async def test_restore_that_outlasts_the_tombstones_begins_anew_without_the_deleted_key(slow: RestorerBench) -> None:
    log = compacted(slow)
    slow.register(T0)
    assert await slow.restorer.restore() == 3
    assert b"a" in slow.stores[T0].content
    slow.clock.advance(24 * HOUR_S)
    clean(log)

    outcome = await slow.restorer.run_until_completed()

    assert outcome.completed == {T0}
    assert slow.stores[T0].content == contents([*values(1, 8), *values(10, 14)])
    assert slow.progress.use().wipes["too_old"] == 1


async def test_restore_that_outlasts_the_tombstones_each_time_is_given_up(
    slow: RestorerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted(slow)
    read = slow.source.read

    async def slowly(
        partition: TopicPartition, offset: int, *, max_bytes: int, isolation: IsolationLevel
    ) -> ReadResult:
        slow.clock.advance(10 * HOUR_S)
        return await read(partition, offset, max_bytes=max_bytes, isolation=isolation)

    monkeypatch.setattr(slow.source, "read", slowly)
    slow.register(T0)

    outcome = await slow.restorer.run_until_completed()

    assert isinstance(outcome.failed[T0], OutdatedPositionError)
    assert "delete.retention.ms" in str(outcome.failed[T0])
    assert slow.callbacks.of(T0)[-1][0] == "suspended"


@pytest.mark.spec("changelog-restore 59")
async def test_run_that_goes_on_after_others_is_as_old_as_the_first_of_them(slow: RestorerBench) -> None:
    log = compacted(slow)
    for offset in (0, 3):
        slow.register(T0)
        assert await slow.restorer.restore() == 3
        assert slow.source.reads[-1] == (T0, offset)
        await slow.restorer.unregister([T0])
        slow.clock.advance(12 * HOUR_S)
        slow.start()
    clean(log)
    slow.register(T0)

    await slow.restorer.run_until_completed()

    assert slow.stores[T0].content == contents([*values(1, 8), *values(10, 14)])
    assert slow.progress.use().wipes["too_old"] == 1


async def test_completed_restore_is_as_young_as_the_end_that_it_reached(bench: RestorerBench) -> None:
    log = compacted(bench)
    for last in (15, 16, 17):
        log.batches[last] = Record(last, 1, "CreateTime", b"z", b"%d" % last)
        log.end = last + 1
        bench.register(T0)
        outcome = await bench.restorer.run_until_completed()
        assert outcome.completed == {T0}
        assert not sum(bench.progress.use().wipes.values())
        bench.clock.advance(20 * HOUR_S)
        bench.start()


async def test_standby_that_reads_to_the_end_now_and_then_never_begins_anew(bench: RestorerBench) -> None:
    log = compacted(bench)
    bench.register(T0, kind=TaskType.STANDBY)
    bench.restorer.transit_to_update_standby()
    for last in (15, 16, 17):
        log.batches[last] = Record(last, 1, "CreateTime", b"z", b"%d" % last)
        log.end = last + 1
        assert await bench.restorer.restore()
        assert not await bench.restorer.restore()  # the end
        bench.clock.advance(20 * HOUR_S)
    assert not sum(bench.progress.use().wipes.values())


class SlowChangelogs(MemoryChangelogs):
    """Changelogs whose reads take some turns of the loop, and count how many run at a time."""

    def __init__(self, choice: Random) -> None:
        super().__init__()
        self._choice = choice
        self.running = 0
        self.most_running = 0

    async def read(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int,
        isolation: IsolationLevel,
        is_encoded: bool = False,
    ) -> ReadResult:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            for _ in range(self._choice.randrange(4)):
                await asyncio.sleep(0)
            return await super().read(partition, offset, max_bytes=max_bytes, isolation=isolation)
        finally:
            self.running -= 1


@pytest.mark.spec("changelog-restore 63")
@pytest.mark.parametrize("seed", range(3))
async def test_parallel_restore_equals_a_sequential_one_within_the_budget(tmp_path: Path, seed: int) -> None:
    choice = Random(seed)
    partitions = [TopicPartition("t", number) for number in range(8)]
    settings = RestorerSettings(parallelism=4, fetch_bytes=1000, budget_bytes=3000, batch_records=7)
    bench = RestorerBench(tmp_path, settings)
    bench.source = SlowChangelogs(choice)
    bench.start()
    logs = {}
    for partition in partitions:
        logs[partition] = [
            (offset, b"k%d" % choice.randrange(20), None if choice.random() < 0.3 else b"v%d" % offset)
            for offset in sorted(choice.sample(range(400), choice.randrange(200)))
        ]
        bench.source.add(partition, logs[partition])
        bench.register(partition)
    outcome = await bench.restorer.run_until_completed()
    assert outcome.completed == set(partitions)
    assert {each: bench.stores[each].content for each in partitions} == {
        each: contents(logs[each]) for each in partitions
    }
    assert bench.source.most_running <= 3
    assert bench.restorer._parallel._budget.used_bytes == 0


async def test_changelogs_of_one_store_follow_each_other(tmp_path: Path) -> None:
    class Exclusive(MemoryStore):
        """Store that is never called for two changelogs in turn."""

        def __init__(self) -> None:
            super().__init__()
            self.order: list[bytes] = []

        async def restore_batch(self, records: ChangelogRecords, last_offset: int) -> None:
            self.order += {bytes(key or b"")[:1] for key in records.keys}
            await super().restore_batch(records, last_offset)

    bench = RestorerBench(tmp_path, RestorerSettings(fetch_bytes=300, batch_records=3))
    store = Exclusive()
    for partition, letter in ((T0, b"a"), (T1, b"b")):
        bench.source.add(partition, [(offset, letter + b"%d" % offset, b"v") for offset in range(30)])
    task = RestoreTask("0_0", tmp_path, {T0: store, T1: store})
    for partition in (T0, T1):
        bench.restorer.register(partition, task)
    await bench.restorer.run_until_completed()
    assert store.order == sorted(store.order)
    assert len(store.content) == 60


@pytest.mark.parametrize("transactional", [False, True])
@pytest.mark.parametrize("exactly_once", [False, True])
@pytest.mark.parametrize("seed", range(3))
async def test_restore_that_is_cancelled_and_crashes_again_and_again_ends_with_the_right_content(
    tmp_path: Path, seed: int, *, transactional: bool, exactly_once: bool
) -> None:
    choice = Random(seed)
    settings = RestorerSettings(fetch_bytes=700, batch_records=5, checkpoint_offsets=10, checkpoint_interval_s=0)
    bench = RestorerBench(tmp_path, settings)
    bench.source = SlowChangelogs(choice)
    log = [
        (offset, b"k%d" % choice.randrange(10), None if choice.random() < 0.4 else b"v%d" % offset)
        for offset in range(100)
    ]
    bench.source.add(T0, log, end=103)
    bench.stores[T0] = MemoryStore(transactional=transactional)
    for attempt in range(12):
        bench.start()
        bench.register(T0, exactly_once=exactly_once)
        running = asyncio.create_task(bench.restorer.run_until_completed())
        if attempt < 11:
            for _ in range(choice.randrange(60)):
                await asyncio.sleep(0)
            running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        if choice.random() < 0.3:
            await bench.restorer.unregister([T0])
        if attempt < 11 and choice.random() < 0.6:
            bench.after_crash()
    assert bench.restorer.is_empty() or bench.restorer.completed() == {T0}
    assert bench.stores[T0].content == contents(log)
