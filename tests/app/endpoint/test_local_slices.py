import asyncio
import random
from pathlib import Path

import pytest

from tests.fakes.manual_clock import ManualClock
from tests.log.batches import plain, scan_of
from tierd.app.endpoint.local_slices import LocalSlices, SliceQuery
from tierd.errors import SegmentChangedError
from tierd.log import KnownPositions, LocalSlice, PartitionScan, find_slice

_BATCH_BYTES = len(plain(0))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def slices(clock: ManualClock) -> LocalSlices:
    return LocalSlices(clock=clock)


@pytest.fixture
def scan(tmp_path: Path) -> PartitionScan:
    return scan_of(tmp_path, {0: b"".join(map(plain, range(20))), 20: b"".join(map(plain, range(20, 30)))})


def query(
    scan: PartitionScan, offset: int, *, end: int = 30, batches: int = 2, at_least_one: bool = True
) -> SliceQuery:
    return SliceQuery(scan, offset, end, batches * _BATCH_BYTES, at_least_one)


def found_anew(wanted: SliceQuery) -> LocalSlice | None:
    return find_slice(
        wanted.scan,
        wanted.offset,
        end_offset=wanted.end_offset,
        max_bytes=wanted.max_bytes,
        at_least_one=wanted.at_least_one,
        known=KnownPositions(),
    )


async def test_slice_behind_a_read_is_found_before_it_is_asked_for(slices: LocalSlices, scan: PartitionScan) -> None:
    first = await slices.find(query(scan, 0))
    assert first is not None
    assert first.upper_offset == 2
    expected = found_anew(query(scan, 2))
    await _end_of_searches(slices)
    first.path.unlink()
    assert await slices.find(query(scan, 2)) == expected


async def test_slice_that_was_found_long_ago_is_searched_anew(
    slices: LocalSlices, scan: PartitionScan, clock: ManualClock
) -> None:
    first = await slices.find(query(scan, 0))
    assert first is not None
    await _end_of_searches(slices)
    first.path.unlink()
    clock.advance(1.5)
    with pytest.raises(SegmentChangedError):
        await slices.find(query(scan, 2))


async def test_read_in_doubt_is_searched_anew(slices: LocalSlices, scan: PartitionScan) -> None:
    first = await slices.find(query(scan, 0))
    assert first is not None
    await _end_of_searches(slices)
    first.path.unlink()
    with pytest.raises(SegmentChangedError):
        await slices.find(query(scan, 2), is_doubted=True)


async def test_failure_of_a_search_ahead_is_not_that_of_the_read(slices: LocalSlices, scan: PartitionScan) -> None:
    log = scan.segments[1].log
    hidden = log.with_name("hidden")
    log.rename(hidden)
    assert await slices.find(query(scan, 18)) is not None
    await _end_of_searches(slices)
    hidden.rename(log)
    assert await slices.find(query(scan, 20)) == found_anew(query(scan, 20))


async def test_read_of_other_files_is_searched_anew(slices: LocalSlices, scan: PartitionScan, tmp_path: Path) -> None:
    await slices.find(query(scan, 0))
    await _end_of_searches(slices)
    (tmp_path / "other").mkdir()
    other = scan_of(tmp_path / "other", {0: b"".join(plain(offset, 2) for offset in range(0, 30, 2))})
    assert await slices.find(query(other, 2)) == found_anew(query(other, 2))


async def test_searches_ahead_are_bounded(slices: LocalSlices, scan: PartitionScan) -> None:
    kept = []
    for batches in range(1, 15):
        for offset in range(15):
            await slices.find(query(scan, offset, batches=batches))
            await asyncio.sleep(0)
            kept.append(len(slices._ahead))
    assert max(kept) == 32
    await _end_of_searches(slices)


@pytest.mark.parametrize("seed", range(20))
async def test_every_read_finds_what_a_search_of_now_finds(slices: LocalSlices, scan: PartitionScan, seed: int) -> None:
    chance = random.Random(seed)
    offset, end = 0, 12
    for _ in range(200):
        wanted = query(scan, offset, end=end, batches=chance.randint(1, 3), at_least_one=chance.random() < 0.7)
        if chance.random() < 0.1:
            wanted = SliceQuery(scan, offset, end, _BATCH_BYTES - 1, wanted.at_least_one)
        found = await slices.find(wanted)
        await asyncio.sleep(0)
        assert found == found_anew(wanted), wanted
        end = min(30, max(1, end + chance.randint(-2, 3)))
        is_next = found is not None and found.size_bytes and chance.random() < 0.8
        offset = found.upper_offset if found is not None and is_next else chance.randrange(end)
        offset = min(offset, end)
    await _end_of_searches(slices)


async def test_slice_up_to_an_earlier_end_is_not_the_answer_once_the_log_has_grown(
    slices: LocalSlices, scan: PartitionScan
) -> None:
    await slices.find(query(scan, 0, end=3))
    await _end_of_searches(slices)
    found = await slices.find(query(scan, 2, end=4))
    assert found is not None
    assert found.upper_offset == 4


async def test_slice_beyond_an_end_that_went_back_is_not_the_answer(slices: LocalSlices, scan: PartitionScan) -> None:
    await slices.find(query(scan, 0, end=10))
    await _end_of_searches(slices)
    found = await slices.find(query(scan, 2, end=3))
    assert found is not None
    assert found.upper_offset == 3


async def _end_of_searches(slices: LocalSlices) -> None:
    await asyncio.sleep(0)  # they begin in the next round of the loop
    for ahead in list(slices._ahead.values()):
        try:
            await ahead.found
        except SegmentChangedError:
            continue
