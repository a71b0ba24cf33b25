from pathlib import Path

import pytest
import structlog

from tests.fakes.memory_store import MemoryStore
from tests.restore.changelog.reader.restorer_bench import T0, T1, T2, RestorerBench, values
from tierd.restore.changelog.changelog_errors import (
    CorruptSourceError,
    IllegalRestoreError,
    IllegalTransitionError,
    RestoreCallbackError,
    RestoreTimeoutError,
    TaskCorruptedError,
)
from tierd.restore.changelog.reader.changelog_restorer import ReaderState
from tierd.restore.changelog.reader.restore_limits import RestorerSettings
from tierd.restore.changelog.reader.restore_task import RestoreTask, TaskType
from tierd.restore.changelog.restore_listener import RestoreListener, SuspendReason

STANDBY = TaskType.STANDBY


@pytest.fixture
def bench(tmp_path: Path) -> RestorerBench:
    return RestorerBench(tmp_path)


@pytest.mark.spec("changelog-restore 33")
def test_registration_without_a_store_or_a_second_time_is_illegal(bench: RestorerBench) -> None:
    with pytest.raises(IllegalRestoreError, match="no store"):
        bench.restorer.register(T1, bench.task(T0))
    bench.register(T0)
    with pytest.raises(IllegalRestoreError, match="already"):
        bench.register(T0)


@pytest.mark.spec("changelog-restore 34")
async def test_unregistration_tells_the_listener_only_between_start_and_end(bench: RestorerBench) -> None:
    for partition in (T0, T1):
        bench.source.add(partition, values(0, 9), end=20)
    bench.register(T0)
    await bench.restorer.unregister([T0])
    assert bench.callbacks.calls == []
    assert bench.restorer.is_empty()

    bench.register(T0)
    assert await bench.restorer.restore() == 10
    bench.source.logs[T1].end = 10
    bench.register(T1)
    await bench.restorer.restore()
    await bench.restorer.unregister([T0, T1, T2])
    assert bench.callbacks.of(T0)[-1] == ("end", 10)
    assert bench.callbacks.of(T1)[-1] == ("end", 10)
    assert bench.restorer.state is ReaderState.ACTIVE_RESTORING


@pytest.mark.spec("changelog-restore 34")
async def test_unregistration_before_completion_suspends_with_the_total_so_far(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    assert await bench.restorer.restore(max_records=4) == 4
    await bench.restorer.unregister([T0])
    assert bench.callbacks.of(T0) == [("start", 0, 10), ("batch", 3, 4), ("suspended", 4)]
    assert bench.checkpointed(T0) == "0\n1\nt 0 3\n"
    assert bench.restorer.is_empty()


@pytest.mark.spec("changelog-restore 34")
async def test_unregistration_of_the_last_standby_restores_active_again(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0, kind=STANDBY)
    bench.restorer.transit_to_update_standby()
    await bench.restorer.restore()
    await bench.restorer.unregister([T0], reason=SuspendReason.PROMOTED)
    assert bench.callbacks.of(T0) == [
        ("update start", 0),
        ("loaded", 9, 10, 10),
        ("update suspended", 9, -1, "promoted"),
    ]
    assert bench.restorer.state is ReaderState.ACTIVE_RESTORING


@pytest.mark.spec("changelog-restore 35")
async def test_active_restore_leaves_records_beyond_the_end_in_the_buffer(bench: RestorerBench) -> None:
    log = bench.source.add(T0, [(6, b"a", b"1"), (7, b"b", b"2"), (8, None, b"3"), (9, b"c", b"4"), (11, b"d", b"5")])
    log.end = 10
    bench.checkpoint(T0, 5)
    bench.register(T0)
    await bench.restorer.restore(tasks=[], max_records=0)
    assert await bench.restorer.restore(max_records=0) == 0
    log.end = 12  # the end of the restore is fixed
    assert await bench.restorer.restore() == 3
    assert bench.source.reads[0] == (T0, 6)
    assert bench.restorer.completed() == {T0}
    assert bench.callbacks.of(T0) == [("start", 6, 10), ("batch", 9, 3), ("end", 3)]
    assert bench.restorer.paused() == {T0}
    changelog = bench.restorer._changelogs[T0]
    assert changelog.buffered == 1
    assert b"d" not in bench.stores[T0].content


@pytest.mark.spec("changelog-restore 36")
async def test_standby_applies_everything_and_never_completes(bench: RestorerBench) -> None:
    bench.source.add(T0, [(6, b"a", b"1"), (7, b"b", b"2"), (8, None, b"3"), (9, b"c", b"4"), (11, b"d", b"5")])
    bench.checkpoint(T0, 5)
    bench.register(T0, kind=STANDBY)
    bench.restorer.transit_to_update_standby()
    assert await bench.restorer.restore() == 4
    assert bench.restorer.completed() == set()
    assert bench.restorer._changelogs[T0].buffered == 0
    assert bench.restorer._changelogs[T0].total_restored == 4
    assert bench.callbacks.of(T0) == [("update start", 6), ("loaded", 11, 4, 12)]


@pytest.mark.spec("changelog-restore 37")
async def test_end_zero_completes_without_reading(bench: RestorerBench) -> None:
    bench.source.add(T0, [])
    bench.register(T0)
    assert await bench.restorer.restore() == 0
    assert bench.restorer.completed() == {T0}
    assert bench.source.reads == []
    assert bench.callbacks.of(T0) == [("start", 0, 0), ("end", 0)]


async def test_start_at_the_end_completes_with_both_callbacks_and_without_reading(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.checkpoint(T0, 9)
    bench.register(T0)
    assert await bench.restorer.restore() == 0
    assert bench.callbacks.of(T0) == [("start", 10, 10), ("end", 0)]
    assert bench.source.reads == []
    assert bench.restorer.offsets() == {T0: 10}


@pytest.mark.spec("changelog-restore 38")
async def test_timeout_of_the_position_reports_zero_and_goes_on(bench: RestorerBench) -> None:
    bench.source.add(T0, values(3, 9), earliest=3)
    bench.register(T0)
    bench.source.time_out("earliest_offset")
    assert await bench.restorer.restore() == 7
    assert bench.callbacks.of(T0) == [("start", 0, 10), ("batch", 9, 7), ("end", 7)]


@pytest.mark.spec("changelog-restore 39")
async def test_timeout_of_the_end_lookup_starts_a_deadline_that_success_clears(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9), end=20)
    bench.register(T0)
    changelog = bench.restorer._changelogs[T0]
    bench.source.time_out("end_offset")
    assert await bench.restorer.restore() == 0
    assert changelog.state.name == "REGISTERED"
    assert changelog.has_deadline
    bench.clock.advance(200)
    assert await bench.restorer.restore() == 10
    assert not changelog.has_deadline


@pytest.mark.spec("changelog-restore 39")
async def test_timeout_past_the_deadline_is_fatal(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    bench.source.time_out("end_offset", 3)
    await bench.restorer.restore()
    bench.clock.advance(299)
    await bench.restorer.restore()
    bench.clock.advance(2)
    with pytest.raises(RestoreTimeoutError) as caught:
        await bench.restorer.restore()
    assert caught.value.partitions == {T0}


async def test_changelog_behind_an_open_transaction_is_given_up_at_its_deadline(bench: RestorerBench) -> None:
    log = bench.source.add(T0, values(0, 9))
    log.stable = 6
    bench.register(T0, exactly_once=True)
    assert await bench.restorer.restore() == 6
    assert await bench.restorer.restore() == 0
    bench.clock.advance(299)
    assert await bench.restorer.restore() == 0
    bench.clock.advance(2)
    with pytest.raises(RestoreTimeoutError, match="transaction"):
        await bench.restorer.restore()
    log.stable = None
    assert await bench.restorer.restore() == 4
    assert bench.restorer.completed() == {T0}


@pytest.mark.spec("changelog-restore 40")
async def test_standby_of_a_source_topic_applies_up_to_the_committed_offset(bench: RestorerBench) -> None:
    records = [(offset, None if offset == 8 else b"k", b"v") for offset in (5, 6, 7, 8, 9, 10, 11)]
    bench.source.add(T0, records, earliest=5)
    bench.source.committed[T0] = 7
    bench.register(T0, kind=STANDBY, limit_group="app")
    bench.restorer.transit_to_update_standby()
    changelog = bench.restorer._changelogs[T0]
    assert await bench.restorer.restore() == 2
    assert changelog.buffered == 4
    bench.source.committed[T0] = 10
    assert await bench.restorer.restore() == 0
    bench.clock.advance(30)  # the interval is not over: strictly more
    assert await bench.restorer.restore() == 0
    assert changelog.end_offset == 7
    bench.clock.advance(0.001)
    assert await bench.restorer.restore() == 0
    assert changelog.end_offset == 10
    assert await bench.restorer.restore() == 2
    assert changelog.buffered == 2


@pytest.mark.spec("changelog-restore 41")
async def test_committed_offset_that_goes_down_is_illegal(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.source.committed[T0] = 7
    bench.register(T0, kind=STANDBY, limit_group="app")
    bench.restorer.transit_to_update_standby()
    await bench.restorer.restore()
    bench.source.committed[T0] = 6
    bench.clock.advance(31)
    with pytest.raises(IllegalRestoreError, match="from 7 down to 6"):
        await bench.restorer.restore()


@pytest.mark.spec("changelog-restore 42")
async def test_active_restore_while_standbys_are_updated_is_illegal(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.restorer.enforce_restore_active()
    bench.restorer.enforce_restore_active()
    bench.restorer.transit_to_update_standby()
    with pytest.raises(IllegalTransitionError, match="STANDBY_UPDATING"):
        bench.restorer.transit_to_update_standby()
    bench.register(T0)
    with pytest.raises(IllegalRestoreError, match="t-0"):
        await bench.restorer.restore()
    bench.restorer.enforce_restore_active()
    assert await bench.restorer.restore() == 10


async def test_only_one_kind_is_read_at_a_time(bench: RestorerBench) -> None:
    for partition in (T0, T1):
        bench.source.add(partition, values(0, 9))
    bench.register(T0)
    bench.register(T1, kind=STANDBY)
    assert await bench.restorer.restore() == 10
    assert bench.restorer.paused() == {T0, T1}
    assert bench.source.reads == [(T0, 0)]
    bench.restorer.transit_to_update_standby()
    assert await bench.restorer.restore() == 10
    assert bench.restorer.paused() == {T0}


@pytest.mark.spec("changelog-restore 43")
@pytest.mark.parametrize("phase", ["start", "batch", "end"])
async def test_failure_of_a_listener_is_wrapped_with_its_phase(bench: RestorerBench, phase: str) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    bench.callbacks.failing = phase
    with pytest.raises(RestoreCallbackError) as caught:
        await bench.restorer.restore()
    names = {"start": "on_restore_start", "batch": "on_batch_restored", "end": "on_restore_end"}
    assert caught.value.phase == names[phase]
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.spec("changelog-restore 43")
async def test_failure_of_a_store_is_wrapped_with_its_phase(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    bench.stores[T0].failures["restore_batch"] = [OSError("no room")]
    with pytest.raises(RestoreCallbackError, match="restore_batch of store store t-0 failed: no room") as caught:
        await bench.restorer.restore()
    assert caught.value.partition == T0
    assert await bench.restorer.restore() == 10  # nothing was lost


@pytest.mark.spec("changelog-restore 44")
async def test_paused_task_is_not_initialised_and_its_changelog_is_paused(bench: RestorerBench) -> None:
    for partition in (T0, T1):
        bench.source.add(partition, values(0, 9))
        bench.register(partition)
    assert await bench.restorer.restore(tasks=[str(T0)]) == 10
    assert bench.callbacks.of(T1) == []
    assert await bench.restorer.restore(tasks=[str(T1)], max_records=1) == 1
    assert await bench.restorer.restore(tasks=[str(T0)]) == 0
    assert bench.restorer.paused() == {T0, T1}
    assert await bench.restorer.restore() == 9


@pytest.mark.spec("changelog-restore 45")
async def test_invalid_offsets_are_an_error_that_names_the_tasks(bench: RestorerBench) -> None:
    for partition in (T0, T1, T2):
        bench.source.add(partition, values(0, 9))
        bench.checkpoint(partition, 4)
        bench.register(partition)
    await bench.restorer.restore(max_records=0)
    for partition in (T0, T2):
        bench.source.logs[partition].earliest = 8
        bench.restorer._changelogs[partition].position = 5
    with pytest.raises(TaskCorruptedError, match=r"task t-0.*task t-2") as caught:
        await bench.restorer.restore()
    assert {task: set(errors) for task, errors in caught.value.tasks.items()} == {"t-0": {T0}, "t-2": {T2}}
    assert bench.restorer.completed() == {T1}  # all others made their step
    assert bench.stores[T0].calls == []  # nothing is repaired in place


async def test_damaged_changelog_is_an_error_after_the_others_made_their_step(bench: RestorerBench) -> None:
    for partition in (T0, T1):
        bench.source.add(partition, values(0, 9))
        bench.register(partition)
    bench.source.fail("read", CorruptSourceError(T0, "torn batch"))
    with pytest.raises(CorruptSourceError):
        await bench.restorer.restore()
    assert len(bench.restorer.completed()) == 1


def test_store_with_the_name_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IllegalRestoreError, match=r"\.checkpoint"):
        RestoreTask("0_0", tmp_path, {T0: MemoryStore(".checkpoint")})


async def test_clear_forgets_all_without_callbacks(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    await bench.restorer.restore(max_records=2)
    bench.callbacks.calls.clear()
    bench.restorer.clear()
    assert bench.restorer.is_empty()
    assert bench.callbacks.calls == []
    bench.register(T0)
    assert await bench.restorer.restore() == 10


async def test_source_topic_ends_at_the_committed_offset_of_the_start(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.source.committed[T0] = 4
    bench.source.add(T1, values(0, 9))
    bench.register(T0, limit_group="app")
    bench.register(T1, limit_group="app")
    assert await bench.restorer.restore() == 4
    assert bench.restorer.completed() == {T0, T1}
    assert bench.callbacks.of(T1) == [("start", 0, 0), ("end", 0)]


async def test_end_of_an_exactly_once_restore_is_the_log_end(bench: RestorerBench) -> None:
    log = bench.source.add(T0, values(0, 9))
    log.stable = 4  # below data that the store has already (KAFKA-10167)
    bench.checkpoint(T0, 7)
    bench.register(T0, exactly_once=True)
    await bench.restorer.restore()
    assert bench.callbacks.of(T0) == [("start", 8, 10)]


async def test_standby_above_its_limit_is_not_read_on_when_the_buffer_is_full(tmp_path: Path) -> None:
    bench = RestorerBench(tmp_path, RestorerSettings(buffer_records=5, fetch_bytes=300))
    bench.source.add(T0, values(0, 99))
    bench.source.committed[T0] = 0
    bench.register(T0, kind=STANDBY, limit_group="app")
    bench.restorer.transit_to_update_standby()
    for _ in range(5):
        assert await bench.restorer.restore() == 0
    assert bench.restorer._changelogs[T0].buffered == 6
    bench.source.committed[T0] = 100
    bench.clock.advance(31)
    assert sum([await bench.restorer.restore() for _ in range(40)]) == 100


async def test_batches_are_cut_at_records_and_at_bytes(tmp_path: Path) -> None:
    bench = RestorerBench(tmp_path, RestorerSettings(batch_records=4, batch_bytes=100))
    sizes = [1, 1, 1, 1, 1, 200, 1, 60, 60, 1]
    bench.source.add(T0, [(offset, b"k", b"v" * size) for offset, size in enumerate(sizes)])
    bench.register(T0)
    assert await bench.restorer.restore() == 10
    assert bench.stores[T0].batches == [4, 2, 3, 1]


async def test_records_wait_for_a_full_batch_until_the_source_is_idle(tmp_path: Path) -> None:
    bench = RestorerBench(tmp_path, RestorerSettings(batch_records=5, fetch_bytes=300))
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    assert [await bench.restorer.restore() for _ in range(4)] == [0, 5, 0, 5]
    assert bench.restorer.completed() == {T0}


async def test_timestamped_store_gets_the_timestamp_before_the_value(bench: RestorerBench) -> None:
    bench.stores[T0] = MemoryStore(timestamped=True)
    bench.source.add(T0, [(0, b"a", b"1"), (1, b"b", b"2"), (2, b"b", None), (3, b"c", b"")])
    bench.register(T0)
    await bench.restorer.restore()
    stamp = (1000).to_bytes(8, "big")
    assert bench.stores[T0].content == {b"a": stamp + b"1", b"c": (1003).to_bytes(8, "big")}


async def test_transactional_store_that_differs_from_its_checkpoint_wins_with_a_warning(bench: RestorerBench) -> None:
    bench.stores[T0] = MemoryStore(transactional=True)
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    await bench.restorer.restore(max_records=6)
    (bench.directory / str(T0) / ".checkpoint").write_text("0\n1\nt 0 2\n")
    bench.start()
    bench.register(T0)
    with structlog.testing.capture_logs() as logs:
        assert await bench.restorer.restore() == 4
    differing = [entry for entry in logs if entry["event"] == "checkpoint_differs_from_store"]
    assert [(entry["log_level"], entry["store_offset"]) for entry in differing] == [("warning", 5)]


async def test_store_that_is_a_listener_too_is_ignored_as_such_with_a_warning(bench: RestorerBench) -> None:
    class ListeningStore(MemoryStore, RestoreListener):
        """Store that has callbacks as well."""

    bench.source.add(T0, values(0, 1))
    bench.stores[T0] = ListeningStore()
    with structlog.testing.capture_logs() as logs:
        bench.register(T0)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["store_is_no_listener"]


async def test_records_that_were_read_are_applied_while_the_source_is_away(bench: RestorerBench) -> None:
    bench.source.add(T0, values(0, 9))
    bench.register(T0)
    assert await bench.restorer.restore(max_records=4) == 4
    changelog = bench.restorer._changelogs[T0]
    bench.source.time_out("read", 3)
    deadlines = []
    for allowed, applied in ((0, 0), (4, 4), (2, 2)):
        assert await bench.restorer.restore(max_records=allowed) == applied
        deadlines.append(changelog.has_deadline)
    assert deadlines == [True, False, False]
    assert bench.restorer.completed() == {T0}
