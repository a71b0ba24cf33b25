"""Unfinished deletions in a partition that left the host of its leader: the daemon completes them, and a repair may."""

from pathlib import Path

import pytest

from tests.fakes.remote_segments import PARTITION
from tests.tiering.removing.removals import remover_of
from tests.tiering.removing.world import DELETING, FINISHED, STARTED, SWEEP_GRACE_S, Process, World
from tierd.model import TopicIdPartition
from tierd.tiering.removing.left_deletions import LeftDeletions, partitions_left

GRACE_S = 900.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def left_deletions(process: Process, *here: TopicIdPartition) -> LeftDeletions:
    return LeftDeletions(
        store=process.kv,
        metadata=process.metadata,
        deletion=process.deletion,
        being_copied=process.being_copied,
        is_here=here.__contains__,
        clock=process.world.clock,
        broker_id=process.broker_id,
        copy_grace_s=SWEEP_GRACE_S,
    )


async def interrupted(world: World) -> None:
    """Make a readable segment, one in its grace, one whose deletion stopped half-way, and an unfinished copy."""
    process = world.process()
    await process.lead()
    _, soft = await process.fill(2)
    after_ms = world.clock.now_ms() + round(GRACE_S * 1000)
    await process.deletion.begin(soft, reason="retention_time", detail="", delete_after_ms=after_ms)
    await process.add(200, 299, state=DELETING)
    await process.add(300, 399, state=STARTED, has_manifest=False)


async def states_of(world: World) -> dict[int, str]:
    process = world.process()
    await process.lead(1000)
    await process.metadata.ensure_ready(PARTITION)
    return {start: state.name for start, state in sorted(process.states().items())}


async def test_deletions_of_a_partition_that_left_the_host_are_completed_when_they_are_due(world: World) -> None:
    await interrupted(world)
    task = left_deletions(world.process())
    assert await task.run_once() == SWEEP_GRACE_S
    world.clock.advance(SWEEP_GRACE_S)
    assert await task.run_once() == GRACE_S - SWEEP_GRACE_S
    world.clock.advance(GRACE_S - SWEEP_GRACE_S)
    assert await task.run_once() == 3600
    assert len(await world.objects.list_objects("")) == 3, "the readable segment is kept"
    assert await states_of(world) == {0: FINISHED.name}


async def test_whole_copy_whose_offsets_no_other_segment_has_is_kept(world: World) -> None:
    """Its end was lost with the last writes of the metadata store: nothing else has these records any more."""
    process = world.process()
    await process.lead()
    await process.fill(2)
    await process.add(100, 199, state=STARTED)
    await process.add(150, 249, state=STARTED)
    world.clock.advance(SWEEP_GRACE_S)
    await left_deletions(world.process()).run_once()
    assert await states_of(world) == {0: FINISHED.name, 100: FINISHED.name, 150: STARTED.name}


async def test_deletions_of_a_partition_on_this_host_are_left_to_its_leader(world: World) -> None:
    await interrupted(world)
    world.clock.advance(GRACE_S)
    await left_deletions(world.process(), PARTITION).run_once()
    assert len(await world.objects.list_objects("")) == 12


async def test_deletions_of_a_partition_that_another_broker_led_last_are_not_touched(world: World) -> None:
    await interrupted(world)
    world.clock.advance(GRACE_S)
    other = world.process(broker_id=2)
    await left_deletions(other).run_once()
    assert len(await world.objects.list_objects("")) == 12
    await other.lead(7)
    await left_deletions(world.process()).run_once()
    assert len(await world.objects.list_objects("")) == 12
    assert await partitions_left(other.kv, other.metadata.keys, broker_id=2, is_here=lambda _: False) == {PARTITION: 7}


async def test_partition_that_is_deleted_as_a_whole_is_left_to_its_remover(world: World) -> None:
    await interrupted(world)
    process = world.process()
    await remover_of(process).accept(PARTITION)
    keys = process.metadata.keys
    assert await partitions_left(process.kv, keys, broker_id=process.broker_id, is_here=lambda _: False) == {}
