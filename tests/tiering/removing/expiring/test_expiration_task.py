"""Expiration of one partition: the log start first, then the segments, oldest first; grace; faults; fenced leaders."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.fakes.remote_segments import PARTITION
from tests.tiering.removing.rows import SIZE
from tests.tiering.removing.world import DELETING, FINISHED, STARTED, SWEEP_GRACE_S, World, deletions_of
from tierd.errors import FencedError, OffsetOutOfRangeError, RemoteStorageError, StateDirError
from tierd.model import Lineage, RemoteLogSegmentMetadata, RemotePartitionDeleteMetadata, RemotePartitionDeleteState
from tierd.remote import Tombstone
from tierd.tiering.removing.deletion import RETAINED_RETRY_S
from tierd.tiering.removing.expiring.branch_segments import LocalSegment
from tierd.tiering.removing.ledger import LedgerEntry
from tierd.tiering.topic_policy import TopicPolicy

EVERYTHING = TopicPolicy(retention_ms=0)
OBJECTS = [".indexes", ".log", ".manifest"]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.spec("remote-tiering 163")
@pytest.mark.parametrize("policy", [TopicPolicy(retention_ms=0), TopicPolicy(retention_bytes=0)])
async def test_retention_of_zero_deletes_all_segments(world: World, policy: TopicPolicy) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    world.policy = policy
    assert await process.task().run_once() is None
    assert process.states() == {}
    assert process.view.log_start_offset == 200
    assert (process.recorder.deletes, process.recorder.delete_failures) == (2, 0)
    assert [info.key.rsplit("/", 1)[1] for info in await world.objects.list_objects("")] == ["log-start.json"]
    assert process.recorder.succeeded == ["expire"]


@pytest.mark.spec("remote-tiering 164")
async def test_log_start_after_overlapping_segments_is_behind_the_longest(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.add(0, 104)
    await process.add(0, 99)
    world.policy = EVERYTHING
    await process.task().run_once()
    assert process.states() == {}
    assert process.view.log_start_offset == 105


@pytest.mark.spec("remote-tiering 165")
async def test_delete_lag_decreases_with_each_deleted_segment(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    world.policy = EVERYTHING
    task, seen = process.task(), list[tuple[int, int]]()
    process.storage.on_delete = lambda _: seen.append((task.state.lag_bytes, task.state.lag_segments))
    await task.run_once()
    assert seen == [(2 * SIZE, 2), (SIZE, 1)]
    assert (task.state.lag_bytes, task.state.lag_segments) == (0, 0)


@pytest.mark.spec("remote-tiering 166")
async def test_run_ends_at_a_segment_that_is_being_copied(world: World) -> None:
    process = world.process()
    await process.lead()
    copied = await process.add(0, 99, state=STARTED)
    await process.add(100, 199)
    process.being_copied.add(copied.segment.id)
    world.policy = EVERYTHING
    task = process.task()
    assert await task.run_once() == 30
    assert process.states() == {0: STARTED, 100: FINISHED}
    process.being_copied.clear()
    await process.metadata.update(copied.advance(FINISHED, event_timestamp_ms=0, broker_id=1))
    await task.run_once()
    assert process.states() == {}


@pytest.mark.spec("remote-tiering 167")
async def test_mixed_list_of_the_specification_expires_as_specified(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.add(0, 99, state=STARTED)
    await process.add(0, 99, state=DELETING)
    copied = await process.add(200, 299, state=STARTED)
    for start in range(300, 1400, 100):
        await process.add(start, start + 99)
    world.policy = TopicPolicy(retention_bytes=10 * SIZE)
    process.being_copied.add(copied.segment.id)
    task = process.task()
    await task.run_once()
    assert process.starts(FINISHED) == list(range(300, 1400, 100))
    assert process.starts(STARTED) == [200]
    assert process.starts(DELETING) == []
    process.being_copied.clear()
    await process.metadata.update(copied.advance(FINISHED, event_timestamp_ms=0, broker_id=1))
    await task.run_once()
    assert process.starts(FINISHED) == list(range(400, 1400, 100))
    assert process.view.log_start_offset == 400


@pytest.mark.spec("remote-tiering 168")
@pytest.mark.parametrize("count", [0, 1, 23, 50])
async def test_size_limit_deletes_the_oldest_segments_in_order(world: World, count: int) -> None:
    process = world.process()
    await process.lead()
    await process.fill(50)
    world.log.segments = (LocalSegment(5000, None, 512),)
    world.policy = TopicPolicy(retention_bytes=(50 - count) * SIZE + 512)
    with deletions_of(process) as deleted:
        await process.task().run_once()
    assert [m.start_offset for m in deleted] == [n * 100 for n in range(count)]
    assert process.view.log_start_offset == (count * 100 or None)


@pytest.mark.spec("remote-tiering 169")
@pytest.mark.parametrize("count", [0, 1, 23, 50])
async def test_time_limit_deletes_the_oldest_segments_in_order(world: World, count: int) -> None:
    process = world.process()
    await process.lead()
    for n in range(50):
        await process.add(n * 100, n * 100 + 99, age_ms=2000 if n < count else 0)
    world.policy = TopicPolicy(retention_ms=1000)
    with deletions_of(process) as deleted:
        delay_s = await process.task().run_once()
    assert [m.start_offset for m in deleted] == [n * 100 for n in range(count)]
    assert delay_s == (None if count == 50 else 1.0), "the delay is that of the next expiration by time"


@pytest.mark.spec("remote-tiering 170")
async def test_second_segment_is_kept_if_the_first_delete_is_cancelled(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    world.policy = EVERYTHING
    running = asyncio.create_task(process.task().run_once())

    def cancel(metadata: RemoteLogSegmentMetadata) -> None:
        del metadata
        running.cancel()

    process.storage.on_delete = cancel
    with contextlib.suppress(asyncio.CancelledError):
        await running
    assert running.cancelled()
    assert 100 in process.starts(FINISHED)


@pytest.mark.spec("remote-tiering 172")
async def test_failed_delete_ends_the_run_and_is_repeated_by_the_next_run(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2, age_ms=1000)
    world.policy = TopicPolicy(retention_ms=500)
    process.storage.refuses = True
    task = process.task()
    with pytest.raises(RemoteStorageError, match="refused"):
        await task.run_once()
    assert process.view.log_start_offset == 200, "pushed before the first delete"
    assert (process.recorder.deletes, process.recorder.delete_failures) == (1, 1)
    assert process.states() == {0: DELETING, 100: FINISHED}
    assert task.state.lag_segments == 2, "what could not be deleted is still due"
    process.storage.refuses = False
    await task.run_once()
    assert task.state.lag_segments == 0
    assert process.states() == {}
    assert ("failed", 0) in world.steps()


@pytest.mark.spec("remote-tiering 173")
async def test_deleted_segments_are_not_deleted_again(world: World) -> None:
    process = world.process()
    await process.lead()
    for metadata in await process.fill(2):
        await process.deletion.delete(metadata)
    world.policy = EVERYTHING
    with deletions_of(process) as deleted:
        await process.task().run_once()
    assert deleted == []
    assert process.view.log_start_offset is None


@pytest.mark.spec("remote-tiering 179")
async def test_run_ends_if_it_is_cancelled_while_old_epochs_are_removed(world: World) -> None:
    process = world.process()
    await process.lead()
    for n in range(3):
        await process.add(n * 100, n * 100 + 99, {0: n * 100, 1: n * 100 + 50})
    world.log.lineage = Lineage.of([(2, 0)])
    running = asyncio.create_task(process.task().run_once())

    def cancel(metadata: RemoteLogSegmentMetadata) -> None:
        del metadata
        running.cancel()

    process.storage.on_delete = cancel
    await asyncio.wait([running], timeout=60)
    assert running.cancelled()
    assert process.starts(FINISHED) == [100, 200]


@pytest.mark.spec("remote-tiering 177")
@pytest.mark.spec("remote-tiering 178")
@pytest.mark.parametrize("lineage", [Lineage.of([(0, 0), (1, 50)]), Lineage.of([(2, 0)])])
async def test_a_deletion_that_spans_two_epochs_is_done_once(world: World, lineage: Lineage) -> None:
    process = world.process()
    await process.lead()
    await process.add(0, 99, {0: 0, 1: 50}, state=DELETING)
    world.log.lineage = lineage
    with deletions_of(process) as deleted:
        await process.task().run_once()
    assert len(deleted) == 1


@pytest.mark.spec("remote-tiering 180")
async def test_segments_of_older_epochs_are_deleted_after_an_unclean_election(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.add(0, 99, 0)
    await process.add(100, 199, {0: 100, 1: 150})
    await process.add(200, 299, {1: 200, 2: 250})
    world.log.lineage = Lineage.of([(2, 0)])
    await process.task().run_once()
    assert process.states() == {200: FINISHED}
    assert process.view.log_start_offset is None


async def test_segments_of_epochs_that_the_broker_forgot_are_kept(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.add(0, 99, 0)
    await process.add(100, 199, 1)
    await process.metadata.advance_log_start_offset(PARTITION, 0)
    world.log.lineage = Lineage.of([(2, 200)])
    await process.task().run_once()
    assert process.states() == {0: FINISHED, 100: FINISHED}


@pytest.mark.spec("remote-tiering 181")
async def test_only_segments_wholly_below_a_moved_log_start_are_deleted(world: World) -> None:
    process = world.process()
    await process.lead()
    for start, end in ((0, 100), (101, 200), (201, 300)):
        await process.add(start, end)
    await process.metadata.advance_log_start_offset(PARTITION, 300)
    await process.task().run_once()
    assert process.states() == {201: FINISHED}
    assert [entry.reason for entry in world.ledger_lines()] == ["start_offset"] * 4


@pytest.mark.spec("remote-tiering 185")
async def test_log_start_above_the_high_watermark_is_refused_and_no_segment_deleted(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    world.policy = EVERYTHING
    world.log.high_watermark = 150
    with pytest.raises(OffsetOutOfRangeError, match="above the high watermark 150"):
        await process.task().run_once()
    assert process.states() == {0: FINISHED, 100: FINISHED}
    assert process.view.log_start_offset is None
    assert world.ledger_lines() == []


async def test_no_segment_expires_without_a_high_watermark(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(1)
    world.policy = EVERYTHING
    world.log.high_watermark = None
    task = process.task()
    assert await task.run_once() == 30
    assert process.states() == {0: FINISHED}
    assert "no high watermark" in task.state.reason


@pytest.mark.spec("remote-tiering 186")
async def test_next_leader_deletes_the_same_segments_after_a_crash_behind_the_new_log_start(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(3, age_ms=1000)
    await process.add(300, 399)
    await process.metadata.advance_log_start_offset(PARTITION, 300)  # and then the process died
    world.policy = TopicPolicy(retention_ms=500)
    successor = world.process(broker_id=2)
    with deletions_of(successor) as deleted:
        await successor.task(leader_epoch=1).run_once()
    assert [m.start_offset for m in deleted] == [0, 100, 200]
    assert successor.states() == {300: FINISHED}
    assert successor.view.log_start_offset == 300


@pytest.mark.spec("remote-tiering 187")
async def test_a_dangling_copy_of_a_fenced_leader_is_swept_after_its_grace(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.add(0, 99, state=STARTED, has_manifest=False)
    successor = world.process(broker_id=2)
    task = successor.task(leader_epoch=1, with_sweep=True)
    assert await task.run_once() == SWEEP_GRACE_S
    assert successor.states() == {0: STARTED}
    world.clock.advance(SWEEP_GRACE_S)
    await task.run_once()
    assert successor.states() == {}


@pytest.mark.spec("remote-tiering 188")
async def test_sweep_does_not_touch_a_running_copy(world: World) -> None:
    process = world.process()
    await process.lead()
    copied = await process.add(0, 99, state=STARTED)
    process.being_copied.add(copied.segment.id)
    world.clock.advance(2 * SWEEP_GRACE_S)
    await process.task(with_sweep=True).run_once()
    assert process.states() == {0: STARTED}


async def test_late_objects_of_an_expired_dangling_copy_are_deleted(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.add(0, 99, state=STARTED, age_ms=1000)
    world.policy = TopicPolicy(retention_ms=500)
    task = process.task(with_sweep=True)
    assert await task.run_once() == SWEEP_GRACE_S
    assert process.states() == {}
    world.clock.advance(SWEEP_GRACE_S)
    await task.run_once()
    assert len(process.storage.deleted) == 2


class TestGrace:
    async def test_an_expired_segment_stays_until_its_grace_is_over(self, world: World) -> None:
        process = world.process()
        await process.lead()
        (metadata,) = await process.fill(1, age_ms=1000)
        world.policy, world.grace_s = TopicPolicy(retention_ms=500), 3600.0
        task = process.task()
        assert await task.run_once() == 3600.0
        assert process.states() == {0: DELETING}
        assert await process.suffixes(metadata) == [*OBJECTS, ".tombstone"]
        tombstone = await process.storage.read_tombstone(metadata)
        assert tombstone is not None
        assert (tombstone.reason, tombstone.broker_id) == ("retention_time", 1)
        assert tombstone.delete_after_ms == world.clock.now_ms() + 3_600_000
        assert task.state.in_grace == 1
        world.clock.advance(3599)
        assert await task.run_once() == 1.0
        assert process.storage.deleted == []
        world.clock.advance(1)
        assert await task.run_once() is None
        assert process.states() == {}
        assert await process.suffixes(metadata) == []
        assert world.steps() == [("tombstoned", 0), ("deleted", 0)]

    async def test_the_sweep_does_not_cut_the_grace_short(self, world: World) -> None:
        process = world.process()
        await process.lead()
        await process.fill(1, age_ms=1000)
        world.policy, world.grace_s = TopicPolicy(retention_ms=500), 3600.0
        await process.task().run_once()
        world.clock.advance(3000)
        await process.sweep().run_once()
        assert process.states() == {0: DELETING}

    async def test_successor_continues_the_grace_and_restores_the_tombstone(self, world: World) -> None:
        process = world.process()
        await process.lead()
        (metadata,) = await process.fill(1, age_ms=1000)
        world.policy, world.grace_s = TopicPolicy(retention_ms=500), 3600.0
        await process.task().run_once()
        await process.storage.remove_tombstone(metadata)  # as if the process had died before it wrote it
        world.clock.advance(600)
        successor = world.process(broker_id=2)
        task = successor.task(leader_epoch=1)
        assert await task.run_once() == 3000.0
        assert await successor.suffixes(metadata) == [*OBJECTS, ".tombstone"]
        world.clock.advance(3000)
        await task.run_once()
        assert successor.states() == {}

    async def test_grace_begins_again_if_the_tombstone_was_removed(self, world: World) -> None:
        process = world.process()
        await process.lead()
        (metadata,) = await process.fill(1, age_ms=1000)
        world.policy, world.grace_s = TopicPolicy(retention_ms=500), 3600.0
        task = process.task()
        await task.run_once()
        await process.storage.remove_tombstone(metadata)
        world.clock.advance(3600)
        assert await task.run_once() == 3600.0
        assert process.storage.deleted == []
        assert await process.suffixes(metadata) == [*OBJECTS, ".tombstone"]

    async def test_leader_that_was_fenced_while_it_slept_deletes_no_object(self, world: World) -> None:
        process = world.process()
        await process.lead()
        (metadata,) = await process.fill(1, age_ms=1000)
        world.policy, world.grace_s = TopicPolicy(retention_ms=500), 3600.0
        task = process.task()
        await task.run_once()
        successor = world.process(broker_id=2)
        await successor.lead(1)
        taken = successor.view.list()[0]
        await successor.storage.remove_tombstone(taken)
        await successor.metadata.undelete(
            taken.advance(FINISHED, event_timestamp_ms=0, broker_id=2), log_start_offset=0
        )
        world.clock.advance(3600)
        with pytest.raises(FencedError):
            await task.run_once()
        assert await process.suffixes(metadata) == OBJECTS


class TestRetained:
    async def test_retained_object_is_no_failure_and_does_not_hold_up_other_segments(self, world: World) -> None:
        process = world.process()
        await process.lead()
        first, _ = await process.fill(2, age_ms=1000)
        world.objects.retained.add(process.key(first, ".log"))
        world.policy = TopicPolicy(retention_ms=500)
        task = process.task()
        assert await task.run_once() == pytest.approx(3600)
        assert process.states() == {0: DELETING}
        assert task.state.retained == 1
        assert process.recorder.delete_failures == 0
        assert world.steps().count(("retained", 0)) == 1

    async def test_deletion_of_a_retained_object_is_retried_slowly_and_recorded_once(self, world: World) -> None:
        process = world.process()
        await process.lead()
        (metadata,) = await process.fill(1, age_ms=1000)
        world.objects.retained.add(process.key(metadata, ".log"))
        world.policy = TopicPolicy(retention_ms=500)
        task = process.task(with_sweep=True)
        await task.run_once()
        world.clock.advance(RETAINED_RETRY_S - 1)
        await task.run_once()
        assert len(process.storage.deleted) == 1
        world.clock.advance(1)
        await task.run_once()
        assert len(process.storage.deleted) == 2
        assert world.steps().count(("retained", 0)) == 1
        world.objects.retained.clear()
        world.clock.advance(RETAINED_RETRY_S)
        await task.run_once()
        assert process.states() == {}
        assert task.state.retained == 0


class RefusingLedger:
    async def record(self, entry: LedgerEntry) -> None:
        raise StateDirError("disk full")


async def test_segment_whose_ledger_line_fails_is_not_deleted(world: World) -> None:
    process = world.process(ledger=RefusingLedger())
    await process.lead()
    (metadata,) = await process.fill(1)
    world.policy = EVERYTHING
    with pytest.raises(StateDirError):
        await process.task().run_once()
    assert process.states() == {0: FINISHED}
    assert await process.suffixes(metadata) == OBJECTS


async def test_several_segments_are_deleted_concurrently(world: World) -> None:
    process = world.process(width=4)
    await process.lead()
    await process.fill(20)
    world.policy = EVERYTHING
    await process.task().run_once()
    assert process.states() == {}


async def test_a_topic_that_is_only_compacted_keeps_its_segments(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(1, age_ms=1000)
    world.policy = TopicPolicy(retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"}))
    await process.task().run_once()
    assert process.states() == {0: FINISHED}


async def test_pass_without_deletions_plans_once_and_pass_with_deletions_plans_what_is_left(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(3)
    task = process.task()
    await task.run_once()
    assert process.recorder.computed == 1
    world.policy = TopicPolicy(retention_bytes=2 * SIZE)
    await task.run_once()
    assert process.recorder.computed == 3
    assert process.starts(FINISHED) == [100, 200]


async def test_pass_during_which_a_copy_ends_plans_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan without deletions that ended at the copy does not say what is left: the copy may now expire."""
    world.grace_s, world.policy = 3600, EVERYTHING
    process = world.process()
    await process.lead()
    await process.add(0, 99)
    await process.task().run_once()
    copied = await process.add(100, 199, state=STARTED)
    process.being_copied.add(copied.segment.id)
    computed = process.recorder.computed
    write_tombstone = process.storage.write_tombstone

    async def end_copy_meanwhile(metadata: RemoteLogSegmentMetadata, tombstone: Tombstone) -> None:
        process.being_copied.clear()
        await write_tombstone(metadata, tombstone)

    monkeypatch.setattr(process.storage, "write_tombstone", end_copy_meanwhile)
    await process.task().run_once()
    assert process.being_copied == set()
    assert process.recorder.computed == computed + 2


async def test_an_idle_partition_is_not_planned_again(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(3)
    task = process.task()
    await task.run_once()
    computed = process.recorder.computed
    await task.run_once()
    assert process.recorder.computed == computed
    await process.add(300, 399)
    await task.run_once()
    assert process.recorder.computed > computed


async def test_own_log_gets_the_new_log_start_before_any_deletion(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(2)
    world.policy = EVERYTHING
    process.storage.on_delete = lambda _: world.log.starts.append(-1)
    await process.task().run_once()
    assert world.log.starts == [200, -1, -1]


async def test_a_partition_that_is_being_deleted_is_left_to_the_remover(world: World) -> None:
    process = world.process()
    await process.lead()
    await process.fill(1)
    marked = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    await process.metadata.put_partition_delete(
        RemotePartitionDeleteMetadata(partition=PARTITION, state=marked, event_timestamp_ms=0, broker_id=1)
    )
    world.policy = EVERYTHING
    assert await process.task().run_once() is None
    assert process.states() == {0: FINISHED}


async def test_segment_that_another_task_deletes_is_left_alone(world: World) -> None:
    process = world.process()
    await process.lead()
    metadata = await process.add(0, 99, state=STARTED, age_ms=1000)
    world.policy = TopicPolicy(retention_ms=500)
    with process.deletion.exclusively(metadata):
        assert await process.task().run_once() == 30
    assert process.states() == {0: STARTED}


async def test_tier_of_a_log_that_restarted_empty_is_kept_for_a_week(world: World) -> None:
    """The disk of the log was replaced by an empty one: the tier may have the last copy."""
    world.grace_s = 3600.0
    process = world.process()
    await process.lead()
    segments = await process.fill(2)
    world.log.lineage = Lineage.of([(7, 0)])
    await process.task().run_once()
    assert process.starts(DELETING) == [0, 100]
    world.clock.advance(6 * 86_400)
    await process.task().run_once()
    assert await process.suffixes(segments[0]) == [".indexes", ".log", ".manifest", ".tombstone"]
    world.clock.advance(86_400)
    await process.task().run_once()
    assert process.states() == {}


async def test_old_epochs_below_the_log_start_have_the_ordinary_grace(world: World) -> None:
    world.grace_s = 3600.0
    process = world.process()
    await process.lead()
    await process.fill(1)
    await process.metadata.advance_log_start_offset(PARTITION, 100)
    world.log.lineage = Lineage.of([(7, 100)])
    await process.task().run_once()
    assert process.starts(DELETING) == [0]
    world.clock.advance(3601)
    await process.task().run_once()
    assert process.states() == {}
