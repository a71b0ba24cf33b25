"""Segments that a compaction replaced: tombstone, grace, removal of objects and row, no undelete."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.tiering.interruption import CrashError, InterruptedKeyValueStore, InterruptedObjectStore, Interruption
from tests.tiering.removing.removals import undeletion_of
from tests.tiering.removing.world import DELETING, FINISHED, STARTED, Process, World
from tierd.errors import RefusedError, StateDirError, TierError
from tierd.model import RemoteLogSegmentMetadata, SoftDelete, uuid_to_text
from tierd.tiering.removing.ledger import LedgerEntry
from tierd.tiering.topic_policy import TopicPolicy

GRACE_S = 3600.0


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """Return three segments, the first two of which an output of the same offsets has replaced."""
    world = World(tmp_path)
    world.grace_s = GRACE_S
    process = world.process()
    await process.lead()
    await process.fill(3)
    await compacted(process)
    return world


async def compacted(process: Process, *, grace_s: float = GRACE_S) -> RemoteLogSegmentMetadata:
    clock = process.world.clock
    inputs = [m for m in process.view.list() if m.state is FINISHED and m.end_offset < 200]
    clock.advance(1)
    output = await process.add(0, 199, state=STARTED)
    soft_delete = SoftDelete.replaced(delete_after_ms=clock.now_ms() + round(grace_s * 1000))
    done = replace(output, state=FINISHED, size_bytes=150)
    await process.metadata.replace_segments(done, inputs, soft_delete=soft_delete, compacted_to=200)
    return done


@pytest.fixture
async def process(world: World) -> Process:
    process = world.process()
    await process.lead()
    return process


def inputs_of(process: Process) -> list[RemoteLogSegmentMetadata]:
    return sorted((m for m in process.view.list() if m.state is DELETING), key=lambda m: m.start_offset)


async def test_undeleted_segment_that_is_replaced_later_gets_its_tombstone_from_the_same_task(
    tmp_path: Path,
) -> None:
    """The undelete removed its first tombstone; a rebuild needs a second one once the output expires."""
    world = World(tmp_path)
    world.grace_s = GRACE_S
    process = world.process()
    await process.lead()
    await process.add(0, 199, age_ms=5000)
    await process.add(200, 299)
    task = process.task()
    world.policy = TopicPolicy(retention_ms=1000)
    await task.run_once()
    (first,) = inputs_of(process)
    world.policy = TopicPolicy()
    await undeletion_of(process).run(world.partition, await world.log.facts(sizes=False), None)
    await compacted(process)
    await task.run_once()
    tombstone = await process.storage.read_tombstone(first)
    assert tombstone is not None
    assert tombstone.reason == "replaced"


async def test_replaced_segments_get_tombstones_and_are_removed_after_their_grace(process: Process) -> None:
    world, inputs = process.world, inputs_of(process)
    assert await process.task().run_once() == pytest.approx(GRACE_S)
    for metadata in inputs:
        tombstone = await process.storage.read_tombstone(metadata)
        assert tombstone is not None
        assert tombstone.reason == "replaced"
        assert await process.suffixes(metadata) == [".indexes", ".log", ".manifest", ".tombstone"]
    world.clock.advance(GRACE_S - 1)
    await process.task().run_once()
    assert process.storage.deleted == []
    world.clock.advance(1)
    await process.task().run_once()
    assert process.storage.deleted == [metadata.segment.id for metadata in inputs]
    assert [await process.suffixes(metadata) for metadata in inputs] == [[], []]
    assert process.starts(FINISHED) == [0, 200]
    assert set(process.view.tombstones) == {metadata.segment.id for metadata in inputs}
    assert process.view.log_start_offset is None


async def test_ledger_has_tombstone_and_deletion_of_each_replaced_segment(process: Process) -> None:
    world, inputs = process.world, inputs_of(process)
    await process.task().run_once()
    await process.task().run_once()
    world.clock.advance(GRACE_S)
    await process.task().run_once()
    lines = [(entry.segment_id, entry.step, entry.reason) for entry in world.ledger_lines()]
    ids = [uuid_to_text(metadata.segment.id) for metadata in inputs]
    assert lines == [(id_, step, "replaced") for step in ("tombstoned", "deleted") for id_ in ids]
    assert world.ledger_lines()[0].detail == "its records are in the output of a compaction or merge"


async def test_restart_writes_no_ledger_line_twice(process: Process) -> None:
    await process.task().run_once()
    other = process.world.process()
    await other.lead()
    await other.task().run_once()
    assert [step for step, _ in process.world.steps()] == ["tombstoned", "tombstoned"]


async def test_replaced_segments_are_marked_and_removed_at_once_if_no_task_ran_in_their_grace(process: Process) -> None:
    process.world.clock.advance(GRACE_S + 5)
    await process.task().run_once()
    assert process.starts(DELETING) == []
    assert process.world.steps() == [("tombstoned", 0), ("deleted", 0), ("tombstoned", 100), ("deleted", 100)]


async def test_replaced_segments_without_a_grace_are_removed_by_the_next_pass(tmp_path: Path) -> None:
    world = World(tmp_path)
    process = world.process()
    await process.lead()
    await process.fill(3)
    await compacted(process, grace_s=0)
    await process.task().run_once()
    assert process.starts(FINISHED) == [0, 200]
    assert process.starts(DELETING) == []


async def test_replaced_segment_whose_ledger_line_fails_is_neither_marked_nor_removed(world: World) -> None:
    class FullDisk:
        async def record(self, entry: LedgerEntry) -> None:
            raise StateDirError(f"no space for {entry.step}")

    process = world.process(ledger=FullDisk())
    await process.lead()
    inputs = inputs_of(process)
    with pytest.raises(StateDirError):
        await process.task().run_once()
    world.clock.advance(GRACE_S)
    with pytest.raises(StateDirError):
        await process.task().run_once()
    for metadata in inputs:
        assert await process.suffixes(metadata) == [".indexes", ".log", ".manifest"]


async def test_sweep_does_not_remove_replaced_segments_in_their_grace(process: Process) -> None:
    await process.sweep().run_once()
    assert process.storage.deleted == []
    assert process.starts(DELETING) == [0, 100]


async def test_output_of_a_compaction_expires_like_any_other_segment(process: Process) -> None:
    process.world.policy = TopicPolicy(retention_ms=1000)
    process.world.clock.advance(10)
    await process.task().run_once()
    assert process.view.log_start_offset == 300
    assert process.starts(FINISHED) == []


@pytest.mark.parametrize("force", [False, True])
async def test_undelete_of_a_replaced_segment_is_refused_even_with_force(process: Process, force: bool) -> None:
    facts = await process.world.log.facts(sizes=False)
    first = inputs_of(process)[0]
    output = process.view.segment_for(0, 0)
    assert output is not None
    with pytest.raises(RefusedError, match=r"offsets 0 to 99.* was replaced by a compaction or merge") as caught:
        await undeletion_of(process).run(process.world.partition, facts, {first.segment.id}, force=force)
    assert str(output.segment) in str(caught.value)
    assert "not taken back" in caught.value.remedy
    assert process.starts(DELETING) == [0, 100]


async def test_undelete_of_all_segments_leaves_out_replaced_segments(process: Process) -> None:
    world = process.world
    world.policy = TopicPolicy(retention_ms=1000)
    world.clock.advance(10)
    await process.task().run_once()
    world.policy = TopicPolicy()
    facts = await world.log.facts(sizes=False)
    taken = await undeletion_of(process).run(world.partition, facts, None)
    assert [(each.metadata.start_offset, each.metadata.end_offset) for each in taken] == [(200, 299), (0, 199)]
    assert process.starts(FINISHED) == [0, 200]
    assert process.starts(DELETING) == [0, 100]
    assert process.view.log_start_offset == 0


async def _interrupted(world: World, interruption: Interruption) -> None:
    process = world.process(
        objects=InterruptedObjectStore(world.objects, interruption),
        rows=InterruptedKeyValueStore(world.rows, interruption),
    )
    acting = asyncio.ensure_future(process.task().run_once())
    interruption.victim = cast("asyncio.Task[object]", acting)
    await asyncio.wait([acting])
    if not acting.cancelled():
        error = acting.exception()
        assert error is None or isinstance(error, BaseExceptionGroup | CrashError | TierError)


@pytest.mark.parametrize(("after", "cancels"), [(False, False), (True, False), (False, True), (True, True)])
async def test_removal_interrupted_at_any_call_is_completed_by_the_next_process(
    tmp_path: Path, after: bool, cancels: bool
) -> None:
    for at in range(1, 100):
        world = World(tmp_path / str(at))
        world.state_dir.mkdir()
        world.grace_s = GRACE_S
        process = world.process()
        await process.lead()
        await process.fill(3)
        output = await compacted(process)
        world.clock.advance(GRACE_S)
        interruption = Interruption(at=at, after=after, cancels=cancels)
        await _interrupted(world, interruption)
        next_one = world.process()
        await next_one.lead()
        await next_one.task(with_sweep=True).run_once()
        assert next_one.starts(FINISHED) == [0, 200]
        assert next_one.starts(DELETING) == []
        assert next_one.view.segment_for(0, 150) == output
        assert len(next_one.view.tombstones) == 2
        if interruption.calls < at:
            assert at > 10
            return
    pytest.fail("the pass never ended")
