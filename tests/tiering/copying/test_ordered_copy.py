"""CheckAhead by itself: slots are kept while they are needed, and then released."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes.log_dirs import LogDirWriter, SegmentShape
from tierd.errors import CorruptRecordError
from tierd.log import identify_directory, scan_partition
from tierd.tiering import SegmentHold
from tierd.tiering.copying.complete import prepare_segment
from tierd.tiering.copying.ordered_copy import CheckAhead, CheckedSegment
from tierd.tiering.local.held_segment import HeldSegment


@dataclass
class Checker:
    """Check that waits for a signal of the test."""

    path: Path
    begun: list[int] = field(default_factory=list)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    error: Exception | None = None

    async def check(self, held: HeldSegment) -> CheckedSegment:
        self.begun.append(held.base_offset)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return held, prepare_segment(held, held.lineage, directory=self.path)


@pytest.fixture
def segments(tmp_path: Path) -> tuple[HeldSegment, ...]:
    writer = LogDirWriter(tmp_path / "kafka").add_partition("orders")
    writer.fill(rolled_segments=2, shape=SegmentShape())
    directory = identify_directory(writer.path)
    assert directory is not None
    hold = SegmentHold(mode="none", hold_dir=tmp_path / "hold", max_bytes=None)
    return hold.protect(scan_partition(directory), copied_through=-1)


@pytest.fixture
def checker(tmp_path: Path) -> Checker:
    return Checker(tmp_path / "kafka" / "orders-0")


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_next_segment_is_checked_while_the_first_is_in_use(
    segments: tuple[HeldSegment, ...], checker: Checker
) -> None:
    slots = asyncio.Semaphore(2)
    checker.go.set()
    async with CheckAhead(slots, checker.check) as checks:
        await checks.begin(segments[0])
        assert (await checks.result())[0] is segments[0]
        await checks.begin_ahead(segments[1])
        await _settle()
        assert checker.begun == [0, 8]
        assert slots.locked(), "each has a slot"
        checks.end()
        await checks.begin(segments[1])
        assert (await checks.result())[0] is segments[1]
        checks.end()
    assert checker.begun == [0, 8], "and is not checked again"
    assert _free(slots) == 2


async def test_no_segment_is_checked_ahead_while_slots_are_short(
    segments: tuple[HeldSegment, ...], checker: Checker
) -> None:
    slots = asyncio.Semaphore(1)
    checker.go.set()
    async with CheckAhead(slots, checker.check) as checks:
        await checks.begin(segments[0])
        await checks.result()
        await checks.begin_ahead(segments[1])
        await _settle()
        assert checker.begun == [0]
    assert _free(slots) == 1


async def test_early_exit_releases_both_slots(segments: tuple[HeldSegment, ...], checker: Checker) -> None:
    slots = asyncio.Semaphore(2)
    async with CheckAhead(slots, checker.check) as checks:
        await checks.begin(segments[0])
        await checks.begin_ahead(segments[1])
        await _settle()
        assert slots.locked()
    assert _free(slots) == 2


async def test_cancelled_pass_releases_both_slots(segments: tuple[HeldSegment, ...], checker: Checker) -> None:
    slots = asyncio.Semaphore(2)

    async def run() -> None:
        async with CheckAhead(slots, checker.check) as checks:
            await checks.begin(segments[0])
            await checks.begin_ahead(segments[1])
            await checks.result()

    running = asyncio.create_task(run())
    await _settle()
    running.cancel()
    await asyncio.wait([running])
    assert _free(slots) == 2


async def test_damage_found_ahead_is_raised_at_the_result_of_its_segment(
    segments: tuple[HeldSegment, ...], checker: Checker
) -> None:
    slots = asyncio.Semaphore(2)
    checker.error = CorruptRecordError(segments[0].log, 0, "damaged")
    checker.go.set()
    async with CheckAhead(slots, checker.check) as checks:
        await checks.begin(segments[0])
        with pytest.raises(CorruptRecordError):
            await checks.result()
    assert _free(slots) == 2


def _free(slots: asyncio.Semaphore) -> int:
    return int(slots._value)  # the semaphore has no public count
