"""FileSlices: files in memory are sent without a thread, from files that are kept open for a short time only."""

import asyncio
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.eventually import eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.open_files import open_files
from tierd.errors import SegmentChangedError
from tierd.serve.kafka.connections.file_slices import FileSlices
from tierd.serve.kafka.served.served_log import FileSlice

MOST_KEPT = 20
CONTENT = bytes(range(256)) * 100


class World:
    """Slices, the clock and a socket with its other end."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self.clock = ManualClock()
        self.slices = FileSlices(executor, clock=self.clock, most_kept=MOST_KEPT)
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)

    def received(self, size_bytes: int) -> bytes:
        """Return bytes that were sent before."""
        return self.theirs.recv(size_bytes, socket.MSG_WAITALL)


@pytest.fixture
def world() -> Iterator[World]:
    with ThreadPoolExecutor(1) as executor:
        found = World(executor)
        yield found
        found.slices.close()
        found.ours.close()
        found.theirs.close()


@pytest.fixture
def piece(tmp_path: Path) -> FileSlice:
    return segment(tmp_path / "0.log")


def segment(path: Path) -> FileSlice:
    path.write_bytes(CONTENT)
    return FileSlice(path, path.stat().st_ino, 0, len(CONTENT))


async def test_first_slice_of_a_file_takes_a_thread_and_later_ones_none(world: World, piece: FileSlice) -> None:
    assert world.slices.push_cached(world.ours, piece, 0) is None

    assert await world.slices.push(world.ours, replace(piece, size_bytes=1000), 0) == 1000
    assert world.slices.push_cached(world.ours, replace(piece, size_bytes=3000), 1000) == 2000

    assert world.received(3000) == CONTENT[:3000]
    assert world.slices.kept == 1


async def test_kept_file_is_read_without_a_thread(world: World, piece: FileSlice) -> None:
    assert await world.slices.read(piece, 10, 20) == CONTENT[10:30]
    piece.path.unlink()

    assert await world.slices.read(piece, len(CONTENT) - 5, 20) == CONTENT[-5:]


async def test_kept_file_is_that_of_the_slice_even_if_another_has_its_name(world: World, piece: FileSlice) -> None:
    await world.slices.push(world.ours, replace(piece, size_bytes=10), 0)
    (piece.path.parent / "new").write_bytes(bytes(1000))
    (piece.path.parent / "new").rename(piece.path)
    other = replace(piece, inode=piece.path.stat().st_ino, size_bytes=1000)

    assert world.slices.push_cached(world.ours, replace(piece, position=10, size_bytes=10), 0) == 10
    assert world.slices.push_cached(world.ours, other, 0) is None
    assert await world.slices.push(world.ours, other, 0) == 1000

    assert world.received(1020) == CONTENT[:20] + bytes(1000)


async def test_socket_that_is_full_takes_nothing(world: World, piece: FileSlice) -> None:
    await world.slices.push(world.ours, replace(piece, size_bytes=10), 0)
    while world.slices.push_cached(world.ours, piece, 0):
        pass

    assert world.slices.push_cached(world.ours, piece, 0) == 0
    assert await world.slices.push(world.ours, piece, 0) == 0


async def test_kept_file_that_became_shorter_is_an_error(world: World, piece: FileSlice) -> None:
    await world.slices.push(world.ours, replace(piece, size_bytes=10), 0)
    os.truncate(piece.path, 5000)

    with pytest.raises(SegmentChangedError):
        world.slices.push_cached(world.ours, replace(piece, position=6000, size_bytes=10), 0)
    with pytest.raises(SegmentChangedError):
        await world.slices.read(piece, 6000, 10)


async def test_file_is_closed_soon_after_its_last_use(world: World, piece: FileSlice, tmp_path: Path) -> None:
    watching = asyncio.create_task(world.slices.watch())
    await world.slices.push(world.ours, replace(piece, size_bytes=10), 0)
    for _ in range(4):  # in use all the time
        await eventually(lambda: world.clock.sleeping == 1, what="the watch")
        world.clock.advance(1)
        assert world.slices.push_cached(world.ours, replace(piece, size_bytes=20), 10) == 10
    assert len(open_files(tmp_path)) == 1

    for _ in range(2):
        await eventually(lambda: world.clock.sleeping == 1, what="the watch")
        world.clock.advance(1)

    await eventually(lambda: open_files(tmp_path) == [], what="the file is closed")
    assert world.clock.sleeping == 0  # nothing to watch
    watching.cancel()
    await asyncio.wait({watching})


async def test_number_of_kept_files_is_bounded(world: World, tmp_path: Path) -> None:
    for number in range(MOST_KEPT + 10):
        assert await world.slices.read(segment(tmp_path / f"{number}.log"), 0, 10) == CONTENT[:10]

    assert world.slices.kept == MOST_KEPT
    assert len(open_files(tmp_path)) == MOST_KEPT

    world.slices.close()

    assert open_files(tmp_path) == []
