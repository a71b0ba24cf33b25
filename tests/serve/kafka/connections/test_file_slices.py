"""FileSlices: files in memory are sent without a thread, from files that are kept open for a short time only."""

import asyncio
import errno
import gc
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
from tierd.open_file import OpenFile
from tierd.serve.kafka.connections.connection_errors import PeerGoneError
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


class TestOpenedFile:
    """A slice of a file that its owner has open: the file of a cached chunk."""

    @pytest.fixture
    def opened(self, piece: FileSlice) -> FileSlice:
        return replace(piece, opened=OpenFile(piece.path, os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC)))

    async def test_first_slice_takes_no_thread_and_no_descriptor(
        self, world: World, opened: FileSlice, tmp_path: Path
    ) -> None:
        assert world.slices.push_cached(world.ours, replace(opened, position=7, size_bytes=3000), 0) == 3000
        assert world.received(3000) == CONTENT[7:3007]
        assert (world.slices.kept, len(open_files(tmp_path))) == (0, 1)

    async def test_deleted_file_is_sent_and_read_and_not_closed(self, world: World, opened: FileSlice) -> None:
        opened.path.unlink()
        assert await world.slices.push(world.ours, replace(opened, size_bytes=3000), 1000) == 2000
        assert world.received(2000) == CONTENT[1000:3000]
        assert await world.slices.read(opened, 10, 20) == CONTENT[10:30]
        world.slices.close()
        assert world.slices.push_cached(world.ours, replace(opened, size_bytes=10), 0) == 10

    @pytest.mark.parametrize("way", ["push_cached", "push", "read"])
    async def test_file_that_became_shorter_is_an_error_and_doubted(
        self, world: World, opened: FileSlice, way: str
    ) -> None:
        assert opened.opened is not None
        os.truncate(opened.path, 5000)
        behind = replace(opened, position=6000, size_bytes=10)

        async def send() -> object:
            match way:
                case "push_cached":
                    return world.slices.push_cached(world.ours, behind, 0)
                case "push":
                    return await world.slices.push(world.ours, behind, 0)
            return await world.slices.read(behind, 0, 10)

        with pytest.raises(SegmentChangedError, match="it is shorter"):
            await send()
        assert opened.opened.is_doubted

    @pytest.mark.parametrize("way", ["push_cached", "push"])
    async def test_file_that_the_disk_cannot_read_is_doubted(
        self, world: World, opened: FileSlice, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        def fail(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        assert opened.opened is not None
        monkeypatch.setattr(os, "sendfile", fail)

        async def send() -> object:
            if way == "push":
                return await world.slices.push(world.ours, opened, 0)
            return world.slices.push_cached(world.ours, opened, 0)

        with pytest.raises(OSError, match="Input/output error"):
            await send()
        assert opened.opened.is_doubted

    async def test_client_that_goes_away_is_no_doubt_in_the_file(self, world: World, opened: FileSlice) -> None:
        assert opened.opened is not None
        world.theirs.close()
        with pytest.raises(PeerGoneError):
            await world.slices.push(world.ours, opened, 0)
        assert not opened.opened.is_doubted

    async def test_client_that_goes_away_leaves_no_file_open_until_garbage_is_collected(
        self, world: World, piece: FileSlice, tmp_path: Path
    ) -> None:
        """The daemon collects rarely, and a file that is open takes one of few places."""
        world.theirs.close()
        gc.disable()
        try:
            file = OpenFile(piece.path, os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC))
            with pytest.raises(PeerGoneError):
                await world.slices.push(world.ours, replace(piece, opened=file), 0)
            del file
            await eventually(lambda: open_files(tmp_path) == [], what="the thread lets the file go")
        finally:
            gc.enable()
