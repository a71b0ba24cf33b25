"""Copy sequence interrupted at every call of either store, then repeated: it loses no segment and leaves no orphan."""

import asyncio
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.tiering.interruption import (
    CrashError,
    InterruptedKeyValueStore,
    InterruptedObjectStore,
    Interruption,
)
from tests.tiering.setups import Session, Tier, delete_segment, partition_of
from tierd.metadata import MemoryKeyValueStore

SEGMENTS = 2
CALLS = 40  # more than the sequence makes: the last ones run uninterrupted, which a test checks


class _Story:
    """Partition of two rolled segments, and two stores that survive interruptions."""

    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        writer = LogDirWriter(tmp_path / "kafka")
        self.partition_writer = writer.add_partition("orders")
        self.partition_writer.fill(rolled_segments=SEGMENTS, shape=SegmentShape())
        writer.write_checkpoints()
        self.path = self.partition_writer.path
        self.rows, self.objects = MemoryKeyValueStore(), MemoryObjectStore()

    async def copy_interrupted(self, interruption: Interruption) -> None:
        tier = Tier(
            self.tmp_path,
            [self.path.parent],
            store=InterruptedObjectStore(self.objects, interruption),
            rows=InterruptedKeyValueStore(self.rows, interruption),
        )
        session = tier.session()
        copying = asyncio.create_task(session.copy_once())
        interruption.victim = copying
        await asyncio.wait([copying])
        session.hold.close()
        if not copying.cancelled():
            error = copying.exception()
            assert error is None or isinstance(error, BaseExceptionGroup | CrashError)

    async def recover(self) -> None:
        """Run a new process, and another after the grace, so that the sweep removes leftovers of the first."""
        tier = Tier(self.tmp_path, [self.path.parent], store=self.objects, rows=self.rows)
        await self._pass(tier)
        tier.clock.advance(3600)
        session = await self._pass(tier)
        partition = partition_of(self.path)
        bases = [base for base, _ in session.finished(partition)]
        assert bases == [0, 8], "every rolled segment once"
        assert len(session.rows(partition)) == SEGMENTS, "no row is left behind"
        objects = await session.storage.list_segment_objects(partition)
        assert set(objects) == {row.segment.id for row in session.rows(partition)}, "no orphan"
        assert session.hold.statistics().segments == 0
        assert await session.findings(self.path) == []
        assert [record.offset for record in await session.read_all(self.path)] == list(range(20))

    async def new_process(self) -> Session:
        return await self._pass(Tier(self.tmp_path, [self.path.parent], store=self.objects, rows=self.rows))

    async def _pass(self, tier: Tier) -> Session:
        session = tier.session()
        outcomes = await session.copy_once()
        assert [outcome.error for outcome in outcomes.values()] == [None]
        return session


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, CALLS))
async def test_a_crash_at_any_call_loses_no_segment_and_leaves_no_orphan(tmp_path: Path, at: int, after: bool) -> None:
    story = _Story(tmp_path)
    await story.copy_interrupted(Interruption(at=at, after=after))
    await story.recover()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, CALLS))
async def test_a_cancellation_at_any_call_loses_no_segment_and_leaves_no_orphan(
    tmp_path: Path, at: int, after: bool
) -> None:
    story = _Story(tmp_path)
    await story.copy_interrupted(Interruption(at=at, after=after, cancels=True))
    await story.recover()


async def test_interruption_numbers_reach_the_end_of_the_sequence(tmp_path: Path) -> None:
    interruption = Interruption(at=None)
    await _Story(tmp_path).copy_interrupted(interruption)
    assert 10 < interruption.calls < CALLS


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 8))
async def test_a_crash_in_the_first_leadership_makes_no_false_gap(tmp_path: Path, at: int, after: bool) -> None:
    story = _Story(tmp_path)
    delete_segment(story.path, 0)
    await story.copy_interrupted(Interruption(at=at, after=after))
    session = await story.new_process()
    assert session.metadata.view(partition_of(story.path)).log_start_offset == 8
    assert session.recorder.gaps == []
