"""Expiration, undelete and deletion of partitions, interrupted at every call of either store, then begun again."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.tiering.interruption import (
    CrashError,
    InterruptedKeyValueStore,
    InterruptedObjectStore,
    Interruption,
)
from tests.tiering.removing.removals import remover_of, undeletion_of
from tests.tiering.removing.world import DELETING, FINISHED, STARTED, Process, World
from tierd.errors import RemoteResourceNotFoundError, TierError
from tierd.model import RemoteLogSegmentMetadata, RemoteLogSegmentState
from tierd.testing import cancel_at
from tierd.tiering.topic_policy import TopicPolicy

# More calls than each of the sequences makes, which a test checks: the last ones run uninterrupted.
EXPIRE = 24
FINISH = 24
UNDELETE = 24
REMOVE = 50
GRACE_S = 3600.0
Act = Callable[[Process], Awaitable[object]]


async def _begun(tmp_path: Path) -> World:
    """Make three segments of which two have expired, and an unfinished copy."""
    world = World(tmp_path)
    world.grace_s = GRACE_S
    process = world.process()
    await process.lead()
    await process.add(0, 99, age_ms=5000)
    await process.add(100, 199, age_ms=5000)
    await process.add(200, 299, state=STARTED, age_ms=5000)
    await process.add(300, 399)
    world.policy = TopicPolicy(retention_ms=1000)
    world.clock.advance(0.5)
    return world


async def _interrupted(world: World, act: Act, interruption: Interruption) -> None:
    process = world.process(
        objects=InterruptedObjectStore(world.objects, interruption),
        rows=InterruptedKeyValueStore(world.rows, interruption),
    )
    acting = asyncio.ensure_future(act(process))
    interruption.victim = acting
    await asyncio.wait([acting])
    if not acting.cancelled():
        error = acting.exception()
        assert error is None or isinstance(error, BaseExceptionGroup | CrashError | TierError)


async def _expire(process: Process) -> None:
    await process.task().run_once()


async def _require_no_orphans(process: Process) -> None:
    found = await process.storage.list_segment_objects(process.world.partition)
    assert set(found) == {m.segment.id for m in process.view.list()}, "no object without a row, no row without objects"
    for metadata in process.view.list():
        if metadata.state is FINISHED:
            assert await process.suffixes(metadata) == [".indexes", ".log", ".manifest"]


@pytest.mark.parametrize("kind", ["crash before", "crash after", "cancelled before", "cancelled after"])
@pytest.mark.parametrize("at", range(1, EXPIRE))
async def test_an_interrupted_expiration_is_completed_by_the_next_process(tmp_path: Path, at: int, kind: str) -> None:
    world = await _begun(tmp_path)
    interruption = Interruption(at=at, after=kind.endswith("after"), cancels=kind.startswith("cancelled"))
    await _interrupted(world, _expire, interruption)
    process = world.process()
    task = process.task()
    world.policy = TopicPolicy(retention_ms=1000)
    await task.run_once()
    assert process.view.log_start_offset == 200
    assert process.starts(FINISHED) == [300]
    assert process.starts(DELETING) == [0, 100], "in their grace, begun by either process"
    for metadata in process.view.list():
        if metadata.state is DELETING:
            assert ".tombstone" in await process.suffixes(metadata)
    world.policy = TopicPolicy()
    world.clock.advance(2 * GRACE_S)
    await task.run_once()
    assert process.states() == {300: FINISHED}
    await _require_no_orphans(process)
    assert {start for step, start in world.steps() if step == "deleted"} == {0, 100, 200}


@pytest.mark.parametrize("kind", ["crash before", "crash after", "cancelled before", "cancelled after"])
@pytest.mark.parametrize("at", range(1, FINISH))
async def test_an_interrupted_removal_after_the_grace_is_completed(tmp_path: Path, at: int, kind: str) -> None:
    world = await _begun(tmp_path)
    await world.process().task().run_once()
    world.policy = TopicPolicy()
    world.clock.advance(GRACE_S)
    interruption = Interruption(at=at, after=kind.endswith("after"), cancels=kind.startswith("cancelled"))
    await _interrupted(world, _expire, interruption)
    process = world.process()
    await process.task().run_once()
    assert process.states() == {300: FINISHED}, "without another grace"
    await _require_no_orphans(process)


async def _take_back(process: Process) -> None:
    await process.lead()
    await undeletion_of(process).run(process.world.partition, await process.world.log.facts(sizes=False), None)


@pytest.mark.parametrize("kind", ["crash before", "crash after", "cancelled before", "cancelled after"])
@pytest.mark.parametrize("at", range(1, UNDELETE))
async def test_interrupted_undelete_is_completed_by_the_next_undelete(tmp_path: Path, at: int, kind: str) -> None:
    world = await _begun(tmp_path)
    await world.process().task().run_once()
    world.policy = TopicPolicy()  # retention was raised
    interruption = Interruption(at=at, after=kind.endswith("after"), cancels=kind.startswith("cancelled"))
    await _interrupted(world, _take_back, interruption)
    process = world.process()
    await process.lead()
    for metadata in process.view.list():
        if metadata.state is FINISHED:
            assert ".tombstone" not in await process.suffixes(metadata), "a readable segment has no tombstone"
    await _take_back(process)
    assert process.starts(FINISHED) == [0, 100, 300]
    assert process.view.log_start_offset == 0
    await _require_no_orphans(process)


@pytest.mark.parametrize("kind", ["crash before", "crash after", "cancelled before", "cancelled after"])
@pytest.mark.parametrize("at", range(1, UNDELETE))
async def test_interrupted_undelete_that_is_not_repeated_leaves_a_sound_tier(
    tmp_path: Path, at: int, kind: str
) -> None:
    world = await _begun(tmp_path)
    await world.process().task().run_once()
    world.policy = TopicPolicy()
    interruption = Interruption(at=at, after=kind.endswith("after"), cancels=kind.startswith("cancelled"))
    await _interrupted(world, _take_back, interruption)
    process = world.process()
    task = process.task()
    for _ in range(3):
        await task.run_once()
        world.clock.advance(GRACE_S)
    await task.run_once()
    assert process.starts(DELETING) == []
    assert 300 in process.starts(FINISHED)
    await _require_no_orphans(process)
    start = process.view.log_start_offset
    assert start is not None
    assert [s for s in (0, 100) if s >= start] == [s for s in process.starts(FINISHED) if s < 300]


async def _remove_partition(process: Process) -> None:
    remover = remover_of(process, grace_s=0.0)
    try:
        await remover.accept(process.world.partition)
    except RemoteResourceNotFoundError:
        return
    await remover.run_once()


@pytest.mark.parametrize("kind", ["crash before", "crash after", "cancelled before", "cancelled after"])
@pytest.mark.parametrize("at", range(1, REMOVE))
async def test_interrupted_deletion_of_a_partition_is_continued(tmp_path: Path, at: int, kind: str) -> None:
    world = await _begun(tmp_path)
    interruption = Interruption(at=at, after=kind.endswith("after"), cancels=kind.startswith("cancelled"))
    await _interrupted(world, _remove_partition, interruption)
    process = world.process()
    remover = remover_of(process, grace_s=0.0)
    await remover.run_once()
    await remover.run_once()
    if await world.objects.list_objects(
        ""
    ):  # the process died before the mark was durable: the request was not accepted
        await process.lead()
        assert process.view.delete_state is None
        assert len(process.view.list()) == 4
        return
    with pytest.raises(RemoteResourceNotFoundError):
        await remover.accept(world.partition)


@pytest.mark.parametrize(("act", "calls"), [(_expire, EXPIRE), (_take_back, UNDELETE), (_remove_partition, REMOVE)])
async def test_interruption_numbers_reach_the_end_of_the_sequence(tmp_path: Path, act: Act, calls: int) -> None:
    world = await _begun(tmp_path)
    if act is _take_back:
        await world.process().task().run_once()
        world.policy = TopicPolicy()
    interruption = Interruption(at=None)
    await _interrupted(world, act, interruption)
    assert 10 < interruption.calls < calls


@pytest.mark.parametrize("state", [FINISHED, STARTED])
async def test_a_deletion_cancelled_at_every_suspension_is_completed(
    tmp_path: Path, state: RemoteLogSegmentState
) -> None:
    """The writes of the ledger are awaits too, although they are calls of neither store."""
    suspension, cancelled = 1, True
    while cancelled:
        directory = tmp_path / str(suspension)
        directory.mkdir()
        world = World(directory)
        process = world.process()
        await process.lead()
        metadata = await process.add(0, 99, state=state)
        cancelled = await cancel_at(suspension, partial(_delete, process, metadata))
        successor = world.process()
        await successor.lead()
        for row in successor.view.list():
            await _delete(successor, row)
        assert successor.states() == {}
        await _require_no_orphans(successor)
        suspension += 1
    assert suspension > 4


async def _delete(process: Process, metadata: RemoteLogSegmentMetadata) -> None:
    if metadata.state is FINISHED:
        metadata = await process.deletion.begin(metadata, reason="retention_time", detail="", delete_after_ms=0)
    if metadata.soft_delete is None:
        await process.deletion.delete(metadata)
    elif not await process.deletion.finish(metadata):  # its tombstone was missing, and is written now
        assert await process.deletion.finish(metadata)
