"""Run cancelled, or its process killed, at every await: readers find the inputs or the output, the sweep the rest."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from tests.fakes.remote_segments import DELETE_STARTED, FINISHED, PARTITION, STARTED
from tests.pipeline.committing.lab import NOTHING_HIDDEN, LeaderLab
from tests.tiering.setups import Recorded
from tierd.testing import cancel_at
from tierd.tiering.removing.deletion import SegmentDeletion
from tierd.tiering.removing.sweep import DanglingSweep, SweepSettings

GRACE_S = 600.0
BEFORE, AFTER = [(0, 9), (10, 19), (20, 29)], [(0, 19), (20, 29)]


async def whole_run(lab: LeaderLab) -> None:
    """Rewrite one group of two; begin the other and leave it open."""
    await lab.prepare()
    first, _ = await lab.begin(0, 1)
    manifest = await lab.write(first)
    await lab.leader.commit(first.metadata.segment.id, manifest, NOTHING_HIDDEN)


async def swept(lab: LeaderLab) -> None:
    """Sweep at once, and again after the grace."""
    deletion = SegmentDeletion(
        metadata=lab.metadata, remote=lab.storage, recorder=Recorded(), clock=lab.clock, broker_id=1
    )
    sweep = DanglingSweep(
        PARTITION,
        metadata=lab.metadata,
        deletion=deletion,
        being_copied=lab.being_copied,
        recorder=Recorded(),
        clock=lab.clock,
        settings=SweepSettings(grace_s=GRACE_S, limit=100, retry_s=1),
    )
    for _ in range(2):
        await sweep.run_once()
        lab.clock.advance(GRACE_S + 1)
    await sweep.run_once()


async def is_consistent(lab: LeaderLab) -> bool:
    """Check the rows and objects before and after the sweep; return True if the group was committed."""
    await lab.metadata.ensure_ready(PARTITION)
    assert lab.readable() in (BEFORE, AFTER)
    committed = lab.readable() == AFTER
    await swept(lab)
    assert lab.readable() == (AFTER if committed else BEFORE)
    assert not lab.in_state(STARTED)
    replaced = lab.in_state(DELETE_STARTED)
    assert [(row.start_offset, row.soft_delete is not None) for row in replaced] == (
        [(0, True), (10, True)] if committed else []
    )
    with_objects = await lab.storage.list_segment_objects(PARTITION)
    assert set(with_objects) == {row.segment.id for row in [*lab.in_state(FINISHED), *replaced]}
    assert all(len(objects) == 3 for objects in with_objects.values())
    return committed


async def at_every_await(tmp_path: Path, afterwards: Callable[[LeaderLab], Awaitable[LeaderLab]]) -> list[bool]:
    """Interrupt a run at each await in turn; return for each whether the group was committed."""
    committed = []
    for suspension in range(1, 1000):
        lab = LeaderLab(tmp_path)
        await lab.copy_tier(0, 10, 20)
        interrupted = await cancel_at(suspension, partial(whole_run, lab))
        committed.append(await is_consistent(await afterwards(lab)))
        if not interrupted:
            return committed
    raise AssertionError("it never ended")


@pytest.mark.spec("log-format CLN-25")
async def test_a_run_cancelled_at_any_await_leaves_the_inputs_or_the_output(tmp_path: Path) -> None:
    async def ended(lab: LeaderLab) -> LeaderLab:
        await lab.leader.end()
        assert not lab.being_copied
        return lab

    committed = await at_every_await(tmp_path, ended)
    assert committed == sorted(committed), "from some await on it was committed"
    assert (committed[0], committed[-1]) == (False, True)


async def test_a_process_killed_at_any_await_leaves_the_inputs_or_the_output(tmp_path: Path) -> None:
    async def succeeded(lab: LeaderLab) -> LeaderLab:
        successor = LeaderLab(tmp_path, rows=lab.rows, objects=lab.objects, clock=lab.clock)
        await successor.lead(leader_epoch=6)
        return successor

    committed = await at_every_await(tmp_path, succeeded)
    assert (committed[0], committed[-1]) == (False, True)


async def test_end_of_a_run_cancelled_at_any_await_leaves_rows_to_the_sweep(tmp_path: Path) -> None:
    for suspension in range(1, 100):
        lab = LeaderLab(tmp_path)
        await lab.copy_tier(0, 10, 20)
        await lab.prepare()
        for output in await lab.begin(0, 1):
            await lab.write(output)
        interrupted = await cancel_at(suspension, lab.leader.end)
        assert not lab.being_copied
        assert not await is_consistent(lab)
        if not interrupted:
            assert suspension > 1
            return
