"""Reads of a range of an open segment that end before, during and after their session."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.open_files import open_files
from tests.replication.leader.push_story import batch
from tierd.errors import LogError
from tierd.log import AppendedRecords
from tierd.replication.leader.logs.open_segments import OpenRange, RecentSets
from tierd.replication.leader.logs.shared_file import SharedFile

DATA = [batch(0, size=100), batch(1, size=200), batch(2, size=100)]


class QueuedReads:
    """Reads that wait for a thread until the test runs them."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], bytes], asyncio.Future[bytes]]] = []

    async def run(self, read: Callable[[], bytes]) -> bytes:
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append((read, answer))
        return await answer

    def proceed(self) -> None:
        for read, answer in self.waiting:
            try:
                answer.set_result(read())
            except LogError as error:
                answer.set_exception(error)
        self.waiting.clear()


@pytest.fixture
def reads() -> QueuedReads:
    return QueuedReads()


def recent(path: Path) -> RecentSets:
    """Return the sets of a new segment with all of ``DATA``."""
    path.write_bytes(b"".join(DATA))
    position, sets = 0, None
    for offset, data in enumerate(DATA):
        append = AppendedRecords(offset, data, offset + 1, path, position)
        if sets is None:
            sets = RecentSets(SharedFile.open(path), append)
        sets.add(append)
        position += len(data)
    assert sets is not None
    return sets


async def begin(found: OpenRange, reads: QueuedReads, position: int, max_bytes: int) -> "asyncio.Task[bytes]":
    reading = asyncio.create_task(found.read(position, max_bytes), name="read")
    await asyncio.sleep(0)
    assert len(reads.waiting) == 1
    return reading


@pytest.mark.spec("push-replication F23")
async def test_range_stays_readable_after_its_segment_was_deleted_and_forgotten(
    tmp_path: Path, reads: QueuedReads
) -> None:
    sets = recent(tmp_path / "0.log")
    found = sets.range_from(1, 3, reads.run)
    assert found is not None
    sets.close()
    (tmp_path / "0.log").unlink()

    reading = await begin(found, reads, 0, 1000)
    reads.proceed()

    assert await reading == DATA[1] + DATA[2]
    found.close()
    assert open_files(tmp_path) == []


async def test_read_returns_a_batch_that_is_larger_than_the_limit(tmp_path: Path, reads: QueuedReads) -> None:
    sets = recent(tmp_path / "0.log")
    found = sets.range_from(1, 3, reads.run)
    assert found is not None

    reading = await begin(found, reads, 0, 150)
    reads.proceed()

    assert await reading == DATA[1]
    found.close()
    sets.close()


async def test_read_that_is_cancelled_before_its_turn_keeps_no_file_open(tmp_path: Path, reads: QueuedReads) -> None:
    sets = recent(tmp_path / "0.log")
    found = sets.range_from(0, 3, reads.run)
    assert found is not None
    reading = await begin(found, reads, 0, 1000)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading

    found.close()
    sets.close()

    assert open_files(tmp_path) == []


async def test_read_whose_turn_comes_after_the_release_fails(tmp_path: Path, reads: QueuedReads) -> None:
    sets = recent(tmp_path / "0.log")
    found = sets.range_from(0, 3, reads.run)
    assert found is not None
    reading = await begin(found, reads, 0, 1000)
    found.close()
    sets.close()

    reads.proceed()

    with pytest.raises(LogError):
        await reading


async def test_bounds_inside_a_set_have_no_range(tmp_path: Path, reads: QueuedReads) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(batch(0, count=10))
    append = AppendedRecords(0, batch(0, count=10), 10, path, 0)
    sets = RecentSets(SharedFile.open(path), append)
    sets.add(append)
    assert sets.range_from(5, 10, reads.run) is None
    assert sets.range_from(0, 5, reads.run) is None
    sets.close()
