"""CheckedChunks: a check counts for a bounded time, is shared by its callers, and bounds the open files."""

import asyncio
import os
import resource
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.open_files import open_files
from tierd.open_file import OpenFile
from tierd.remote.cache.checked_chunks import CHECKED_S, CheckedChunks

MOST_OPEN = 3


class World:
    """Chunks named by numbers, and the number of their checks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.chunks = CheckedChunks(clock=self.clock, most_open=MOST_OPEN)
        self.checks = 0
        self.go_on = asyncio.Event()
        self.go_on.set()
        for number in range(10):
            (folder / str(number)).write_bytes(b"chunk")

    @property
    def open(self) -> list[str]:
        return sorted(Path(each).name for each in open_files(self.folder))

    async def check(self, number: int) -> OpenFile | None:
        async def check() -> OpenFile | None:
            self.checks += 1
            await self.go_on.wait()
            path = self.folder / str(number)
            return OpenFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

        return await self.chunks.check(str(number), check)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    found = World(tmp_path)
    yield found
    found.go_on.set()
    await found.chunks.close()
    assert found.open == []


async def test_chunk_is_found_until_its_check_is_too_old(world: World) -> None:
    assert world.chunks.find("1") is None
    file = await world.check(1)
    assert file is not None
    world.clock.advance(CHECKED_S)
    assert world.chunks.find("1") is file
    world.clock.advance(0.1)
    assert world.chunks.find("1") is None


async def test_age_of_a_check_begins_before_it_reads(world: World) -> None:
    world.go_on.clear()
    checking = asyncio.create_task(world.check(1))
    await eventually(lambda: world.checks == 1, what="the check")
    world.clock.advance(CHECKED_S + 1)
    world.go_on.set()
    await checking
    assert world.chunks.find("1") is None


async def test_chunk_that_an_owner_doubts_is_not_found(world: World) -> None:
    file = await world.check(1)
    assert file is not None
    file.is_doubted = True
    assert world.chunks.find("1") is None


async def test_callers_share_a_check_and_one_that_is_cancelled_leaves_it_to_the_other(world: World) -> None:
    world.go_on.clear()
    one, other = asyncio.create_task(world.check(1)), asyncio.create_task(world.check(1))
    await eventually(lambda: world.checks == 1, what="the check")
    one.cancel()
    await asyncio.wait([one])
    world.go_on.set()
    assert await other is world.chunks.find("1") is not None
    assert (one.cancelled(), world.checks) == (True, 1)


async def test_check_whose_only_caller_is_cancelled_keeps_its_file(world: World) -> None:
    world.go_on.clear()
    checking = asyncio.create_task(world.check(1))
    await eventually(lambda: world.checks == 1, what="the check")
    checking.cancel()
    await asyncio.wait([checking])
    world.go_on.set()
    await eventually(lambda: world.chunks.find("1") is not None, what="the end of the check")


async def test_chunk_that_is_discarded_during_its_check_is_not_given_out(world: World) -> None:
    world.go_on.clear()
    checking = asyncio.create_task(world.check(1))
    await eventually(lambda: world.checks == 1, what="the check")
    world.chunks.discard(["1"])
    world.go_on.set()
    assert await checking is None
    assert (world.chunks.find("1"), world.open) == (None, [])


async def test_discarded_chunk_stays_open_for_an_answer_on_its_way(world: World) -> None:
    file = await world.check(1)
    assert file is not None
    (world.folder / "1").unlink()
    world.chunks.discard(["1"])
    assert world.chunks.find("1") is None
    assert os.pread(file.descriptor, 5, 0) == b"chunk"
    del file
    await asyncio.sleep(0)  # the step of a task refers to the future that it awaited
    assert open_files(world.folder) == []


async def test_names_are_those_of_kept_chunks_and_of_files_that_are_in_use(world: World) -> None:
    file = await world.check(1)
    await world.check(2)
    world.go_on.clear()
    checking = asyncio.create_task(world.check(3))
    await eventually(lambda: world.checks == 3, what="the check")
    assert world.chunks.names == {"1", "2", "3"}
    world.chunks.discard(["1", "2", "3"])
    assert world.chunks.names == {"1", "3"}
    world.go_on.set()
    await checking
    del file
    await asyncio.sleep(0)
    assert world.chunks.names == set()


async def test_file_used_longest_ago_is_closed_for_one_more(world: World) -> None:
    for number in (0, 1, 2):
        await world.check(number)
    world.chunks.find("0")
    await world.check(3)
    assert world.open == ["0", "2", "3"]
    assert world.chunks.open == MOST_OPEN


async def test_no_file_is_opened_beyond_the_bound_while_answers_use_all(world: World) -> None:
    used = [await world.check(number) for number in range(MOST_OPEN)]
    assert await world.check(5) is None
    assert world.checks == MOST_OPEN, "no file is read for nothing"
    assert len(world.open) == MOST_OPEN
    del used[0]
    await asyncio.sleep(0)
    assert await world.check(6) is not None
    assert len(world.open) == MOST_OPEN


@pytest.mark.parametrize(("limit", "most_open"), [(65536, 256), (1024, 32), (20, 0)])
async def test_few_files_are_open_where_descriptors_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, most_open: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    chunks, path = CheckedChunks(clock=ManualClock()), tmp_path / "chunk"
    path.write_bytes(b"chunk")

    async def check() -> OpenFile:
        return OpenFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    for number in range(300):
        await chunks.check(str(number), check)
    assert len(open_files(tmp_path)) == most_open
    await chunks.close()


async def test_old_files_are_closed_without_a_further_use(world: World) -> None:
    await world.check(1)
    world.clock.advance(CHECKED_S / 2)
    await world.check(2)
    world.clock.advance(CHECKED_S / 2 + 1)
    world.chunks._close_old()
    assert world.open == ["2"]


async def test_close_waits_for_a_check_that_is_under_way(world: World) -> None:
    world.go_on.clear()
    checking = asyncio.create_task(world.check(1))
    await eventually(lambda: world.checks == 1, what="the check")
    world.chunks.discard(["1"])
    closing = asyncio.create_task(world.chunks.close())
    await asyncio.sleep(0)
    assert not closing.done()
    world.go_on.set()
    await closing
    await checking
