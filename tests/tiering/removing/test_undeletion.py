"""Undelete of segments in their grace: the segments that may return, their order, and the resulting log."""

from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.fakes.remote_segments import PARTITION
from tests.tiering.removing.removals import undeletion_of
from tests.tiering.removing.world import DELETING, FINISHED, STARTED, Process, World
from tierd.errors import FencedError, RefusedError, RemoteResourceNotFoundError
from tierd.model import (
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    SoftDelete,
)
from tierd.tiering.removing.log_start_keeper import INTERVAL_S
from tierd.tiering.removing.undelete_plan import TakenBack
from tierd.tiering.topic_policy import TopicPolicy

GRACE_S = 3600.0


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """Return four segments of which three have expired, with retention raised afterwards."""
    world = World(tmp_path)
    world.grace_s = GRACE_S
    process = world.process()
    await process.lead()
    await process.fill(3, age_ms=5000)
    await process.add(300, 399)
    world.policy = TopicPolicy(retention_ms=1000)
    await process.task().run_once()
    assert process.starts(DELETING) == [0, 100, 200]
    assert process.view.log_start_offset == 300
    world.policy = TopicPolicy()
    return world


@pytest.fixture
async def process(world: World) -> Process:
    process = world.process()
    await process.lead()
    return process


def at(process: Process, start: int) -> RemoteLogSegmentMetadata:
    return next(m for m in process.view.list() if m.start_offset == start)


async def take_back(process: Process, *starts: int, force: bool = False) -> list[int]:
    wanted = {at(process, start).segment.id for start in starts} or None
    facts = await process.world.log.facts(sizes=False)
    taken = await undeletion_of(process).run(process.world.partition, facts, wanted, force=force)
    return [each.metadata.start_offset for each in taken]


async def test_undelete_restores_all_segments_newest_first_and_the_old_log_start(process: Process) -> None:
    assert await take_back(process) == [200, 100, 0]
    assert process.starts(FINISHED) == [0, 100, 200, 300]
    assert process.view.log_start_offset == 0
    assert process.view.segment_for(0, 150) == at(process, 100)
    assert await process.suffixes(at(process, 100)) == [".indexes", ".log", ".manifest"]
    assert process.world.steps()[-3:] == [("undeleted", 200), ("undeleted", 100), ("undeleted", 0)]


async def test_undelete_lowers_the_log_start_in_the_bucket(process: Process) -> None:
    task = process.task()
    await task.run_once()
    await take_back(process)
    process.world.clock.advance(INTERVAL_S)
    await task.run_once()
    stored = await process.storage.log_starts.read(PARTITION)
    assert stored is not None
    assert stored.record is not None
    assert stored.record.log_start_offset == 0
    row = process.view.row
    assert row is not None
    assert row.is_log_start_recorded


async def test_undelete_is_refused_without_changes_while_the_log_start_is_written(process: Process) -> None:
    async with process.log_starts.lowered(PARTITION, 250):
        with pytest.raises(RefusedError, match="written at this moment"):
            await take_back(process, 200)
    assert process.starts(DELETING) == [0, 100, 200]
    assert ".tombstone" in await process.suffixes(at(process, 200))
    assert await take_back(process, 200) == [200]
    assert process.view.log_start_offset == 200


async def test_restored_segment_is_not_deleted_at_the_end_of_its_old_grace(process: Process) -> None:
    task = process.task()
    await task.run_once()
    await take_back(process)
    process.world.clock.advance(2 * GRACE_S)
    await task.run_once()
    assert process.starts(FINISHED) == [0, 100, 200, 300]


async def test_segment_directly_below_the_log_start_is_restored_alone(process: Process) -> None:
    assert await take_back(process, 200) == [200]
    assert process.view.log_start_offset == 200
    assert process.starts(DELETING) == [0, 100]


async def test_undelete_that_leaves_a_hole_is_refused_without_force(process: Process) -> None:
    with pytest.raises(RefusedError, match="offsets 200 to 299 would be missing"):
        await take_back(process, 100)
    assert process.starts(DELETING) == [0, 100, 200]
    assert await take_back(process, 100, force=True) == [100]
    assert process.view.log_start_offset == 100


async def test_restored_log_start_is_the_first_readable_offset_of_the_segment(tmp_path: Path) -> None:
    """The log start lay inside the segment when it was copied: no reader finds the records below."""
    world = World(tmp_path)
    world.grace_s = GRACE_S
    process = world.process()
    await process.lead()
    await process.add(0, 99, age_ms=5000)
    await process.add(100, 199, {0: 150}, age_ms=5000)
    await process.add(200, 299)
    world.policy = TopicPolicy(retention_ms=1000)
    await process.task().run_once()
    assert process.starts(DELETING) == [0, 100]
    world.policy = TopicPolicy()
    assert await take_back(process, 100) == [100]
    assert process.view.log_start_offset == 150
    with pytest.raises(RefusedError, match="offsets 100 to 149 would be missing"):
        await take_back(process, 0)


async def test_undelete_of_a_segment_that_retention_would_delete_again_is_refused_without_force(
    process: Process,
) -> None:
    process.world.policy = TopicPolicy(retention_ms=1000)
    with pytest.raises(RefusedError, match="retention would delete it again at once: retention_time") as refused:
        await take_back(process)
    assert "raise the topic's retention" in refused.value.remedy
    assert process.starts(DELETING) == [0, 100, 200]
    assert await take_back(process, force=True) == [200, 100, 0]
    await process.task().run_once()
    assert process.starts(DELETING) == [0, 100, 200], "with a grace of its own"


async def compact(process: Process) -> None:
    """Replace all readable segments, as a compaction does that does not know those in their grace."""
    process.world.clock.advance(1)
    output = await process.add(300, 399, state=STARTED)
    soft_delete = SoftDelete.replaced(delete_after_ms=process.world.clock.now_ms() + round(GRACE_S * 1000))
    done = replace(output, state=FINISHED)
    inputs = [m for m in process.view.list() if m.state is FINISHED]
    await process.metadata.replace_segments(done, inputs, soft_delete=soft_delete, compacted_to=400)


@pytest.mark.parametrize("force", [False, True])
async def test_compaction_that_is_committed_during_an_undelete_ends_it(
    process: Process, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    process.world.policy = TopicPolicy(cleanup_policy=frozenset({"compact", "delete"}))
    remove, removed = process.storage.remove_tombstone, list[RemoteLogSegmentMetadata]()

    async def compact_first(metadata: RemoteLogSegmentMetadata) -> None:
        await remove(metadata)
        if not removed:
            await compact(process)
        removed.append(metadata)

    monkeypatch.setattr(process.storage, "remove_tombstone", compact_first)
    if force:
        assert await take_back(process, force=True) == [200, 100, 0]
        return
    with pytest.raises(RefusedError, match="deleted keys would be back"):
        await take_back(process)
    assert process.view.log_start_offset == 300
    assert at(process, 200).state is DELETING
    await process.task().run_once()
    assert ".tombstone" in await process.suffixes(at(process, 200)), "it goes on to go"


@pytest.mark.parametrize("policy", ["compact,delete", "delete"])
async def test_undelete_of_a_segment_that_a_later_compaction_ignored_is_refused_without_force(
    process: Process, policy: str
) -> None:
    """The compaction has removed tombstones whose records were gone by then; a merge removes no tombstone."""
    process.world.policy = TopicPolicy(cleanup_policy=frozenset(policy.split(",")))
    await compact(process)
    if policy != "delete":
        with pytest.raises(RefusedError, match="deleted keys would be back"):
            await take_back(process)
        assert process.view.log_start_offset == 300
    assert await take_back(process, force=policy != "delete") == [200, 100, 0]
    assert process.view.log_start_offset == 0


async def test_undelete_of_a_segment_below_a_requested_log_start_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.grace_s = GRACE_S
    process = world.process()
    await process.lead()
    await process.fill(2)
    await process.metadata.advance_log_start_offset(PARTITION, 100)
    await process.task().run_once()
    assert process.starts(DELETING) == [0]
    with pytest.raises(RefusedError, match="below a log start that was moved"):
        await take_back(process)


async def test_undelete_of_an_unknown_segment_names_the_segment(process: Process) -> None:
    facts = await process.world.log.facts(sizes=False)
    with pytest.raises(RemoteResourceNotFoundError, match="gone, unknown, or not being deleted"):
        await undeletion_of(process).run(PARTITION, facts, {uuid4()})
    with pytest.raises(RemoteResourceNotFoundError, match="gone, unknown, or not being deleted"):
        await take_back(process, 300)


async def test_segment_that_lost_an_object_is_not_restored(process: Process) -> None:
    await process.world.objects.delete(process.key(at(process, 200), ".indexes"))
    with pytest.raises(RemoteResourceNotFoundError, match="some of its objects are gone"):
        await take_back(process)
    assert process.starts(DELETING) == [0, 100, 200], "the segments below are not restored either"
    assert ".tombstone" in await process.suffixes(at(process, 200))


async def test_undelete_of_a_segment_whose_objects_are_being_deleted_is_refused(process: Process) -> None:
    with (
        process.deletion.exclusively(at(process, 200)),
        pytest.raises(RefusedError, match="goes on at this moment"),
    ):
        await take_back(process)


async def test_copy_that_was_never_readable_is_not_restored(process: Process) -> None:
    await process.add(400, 499, state=STARTED)
    assert 400 not in await take_back(process)


async def test_undelete_by_a_stale_leader_is_fenced(process: Process) -> None:
    successor = process.world.process(broker_id=2)
    await successor.lead(1)
    with pytest.raises(FencedError):
        await take_back(process)
    assert successor.starts(DELETING) == [0, 100, 200]


async def test_undelete_in_a_partition_that_is_being_deleted_is_refused(process: Process) -> None:
    marked = RemotePartitionDeleteState.DELETE_PARTITION_MARKED
    await process.metadata.put_partition_delete(
        RemotePartitionDeleteMetadata(partition=PARTITION, state=marked, event_timestamp_ms=0, broker_id=1)
    )
    with pytest.raises(RefusedError, match="none of it comes back"):
        await take_back(process)


async def test_plan_of_an_undelete_changes_no_row(process: Process) -> None:
    facts = await process.world.log.facts(sizes=False)
    planned = await undeletion_of(process).plan(PARTITION, facts, None)
    assert planned == tuple(TakenBack(at(process, start), start) for start in (200, 100, 0))
    assert process.starts(DELETING) == [0, 100, 200]


async def test_retained_segments_can_be_restored_after_their_grace(process: Process) -> None:
    for start in (0, 100, 200):
        process.world.objects.retained.add(process.key(at(process, start), ".log"))
    process.world.clock.advance(GRACE_S)
    task = process.task()
    await task.run_once()
    assert task.state.retained == 3
    assert await take_back(process) == [200, 100, 0]
    assert task.state.retained == 0


async def test_leader_that_slept_does_not_remove_a_segment_that_its_successor_restores(
    world: World, process: Process
) -> None:
    world.clock.advance(GRACE_S + 1)
    asleep = at(process, 100)
    follower = world.process(broker_id=2)
    await follower.lead(leader_epoch=1)
    with pytest.raises(FencedError):
        await process.deletion.finish(asleep)
    assert process.storage.deleted == []
    assert await take_back(follower, 200, 100, force=True) == [200, 100]


async def test_segment_that_another_broker_may_be_removing_is_restored_only_with_force(
    world: World, process: Process
) -> None:
    world.clock.advance(GRACE_S + 1)
    with pytest.raises(RefusedError, match="grace is over"):
        await take_back(process, 200)
    assert await take_back(process, 200, force=True) == [200]
