"""ChunkCache over a memory store and a real directory."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.coded import coded
from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.open_files import open_files
from tests.fakes.small_disk import SmallDisk
from tierd.errors import RemoteResourceNotFoundError, RemoteStorageError, RetriableRemoteStorageError, TierErrorCode
from tierd.kernels import crc32c
from tierd.model import ByteRange
from tierd.open_file import OpenFile
from tierd.remote.cache import chunk_cache
from tierd.remote.cache.checked_chunks import CHECKED_S
from tierd.remote.cache.checked_file import file_size_of
from tierd.remote.cache.chunk_cache import ChunkCache
from tierd.remote.cache.chunk_files import ChunkFiles, chunk_name

CHUNK = 1000
OBJECT = bytes(range(250)) * 40


class Store:
    """One object under every key; it can be held up and made to fail."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ByteRange | None]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.error: Exception | None = None

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        self.asked.append((key, byte_range))
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return OBJECT if byte_range is None else OBJECT[byte_range.start : byte_range.end + 1]


OpenCache = Callable[..., Awaitable[ChunkCache]]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "chunks"


@pytest.fixture
async def open_cache(store: Store, directory: Path) -> AsyncIterator[OpenCache]:
    opened: list[ChunkCache] = []

    async def open_one(
        *, capacity_bytes: int = 1 << 20, concurrency: int = 4, clock: FakeClock | None = None
    ) -> ChunkCache:
        opened.append(
            await ChunkCache.open(
                store,
                directory=directory,
                capacity_bytes=capacity_bytes,
                concurrency=concurrency,
                clock=clock or FakeClock(),
            )
        )
        return opened[-1]

    yield open_one
    for cache in opened:
        await cache.close()


def chunk(number: int) -> ByteRange:
    return ByteRange.of_size(number * CHUNK, CHUNK)


def content(number: int) -> bytes:
    return OBJECT[number * CHUNK : (number + 1) * CHUNK]


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.chunk"))


async def settled(cache: ChunkCache) -> None:
    """Wait until everything that was downloaded is on disk."""
    await eventually(lambda: not cache._unwritten.tasks, what="the writes")


async def test_a_range_is_asked_for_once_and_kept_for_the_next_process(open_cache: OpenCache, store: Store) -> None:
    cache = await open_cache()
    assert [await cache.get("key", chunk(n)) for n in (0, 1, 0, 1)] == [content(n) for n in (0, 1, 0, 1)]
    await cache.close()
    again = await open_cache()
    assert again.statistics().entries == 2
    assert await again.get("key", chunk(1)) == content(1)
    assert store.asked == [("key", chunk(0)), ("key", chunk(1))]
    assert (again.statistics().hits, again.statistics().misses) == (1, 0)


async def test_whole_objects_and_ranges_past_the_end_are_not_kept(
    open_cache: OpenCache, store: Store, directory: Path
) -> None:
    cache = await open_cache()
    assert await cache.get("key") == OBJECT
    assert await cache.get("key", ByteRange(9_500, 10_499)) == OBJECT[9_500:]
    assert await cache.get("key", ByteRange(20_000, 20_001)) == b""
    await settled(cache)
    assert files(directory) == []


async def test_full_cache_drops_the_chunk_used_longest_ago(
    open_cache: OpenCache, store: Store, directory: Path
) -> None:
    cache = await open_cache(capacity_bytes=3 * file_size_of(CHUNK))
    for number in (0, 1, 2, 0, 3):
        assert await cache.get("key", chunk(number)) == content(number)
        await settled(cache)
    assert len(files(directory)) == 3
    assert cache.statistics().evictions == 1
    store.asked.clear()
    for number in (0, 2, 3, 1):
        await cache.get("key", chunk(number))
    assert store.asked == [("key", chunk(1))]


async def test_the_order_of_use_survives_a_restart_and_a_smaller_capacity(
    open_cache: OpenCache, store: Store, directory: Path
) -> None:
    first = await open_cache()
    for number in (0, 1, 2):
        await first.get("key", chunk(number))
        await settled(first)
    for age_s, number in enumerate((1, 0, 2)):  # as seconds would pass
        file = next(f for f in files(directory) if f.name.endswith(f"-{number * CHUNK}-{number * CHUNK + 999}.chunk"))
        os.utime(file, (1_000 - age_s, 1_000 - age_s))
    await first.get("key", chunk(2))
    await first.close()
    second = await open_cache(capacity_bytes=2 * file_size_of(CHUNK))
    assert second.statistics().entries == 2
    store.asked.clear()
    for number in (1, 2):
        await second.get("key", chunk(number))
    assert store.asked == []


async def test_a_chunk_above_the_capacity_is_returned_and_not_kept(open_cache: OpenCache, directory: Path) -> None:
    cache = await open_cache(capacity_bytes=CHUNK)
    assert await cache.get("key", chunk(0)) == content(0)
    await settled(cache)
    assert files(directory) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data + b"more",
    ],
    ids=["torn", "empty", "flipped", "footer", "longer"],
)
async def test_a_damaged_file_is_dropped_and_fetched_anew(
    open_cache: OpenCache, store: Store, directory: Path, damage: Callable[[bytes], bytes]
) -> None:
    cache = await open_cache()
    await cache.get("key", chunk(0))
    await settled(cache)
    (file,) = files(directory)
    file.write_bytes(damage(file.read_bytes()))
    assert await cache.get("key", chunk(0)) == content(0)
    await settled(cache)
    assert await cache.get("key", chunk(0)) == content(0)
    assert len(store.asked) == 2
    assert cache.statistics().damaged == 1


async def test_the_file_of_another_range_or_object_is_not_taken(
    open_cache: OpenCache, store: Store, directory: Path
) -> None:
    cache = await open_cache()
    await cache.get("key", chunk(0))
    await cache.get("key", chunk(1))
    await settled(cache)
    first, second = files(directory)
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)
    assert [await cache.get("key", chunk(n)) for n in (0, 1)] == [content(0), content(1)]
    assert len(store.asked) == 4


async def test_readers_of_one_chunk_share_one_download(open_cache: OpenCache, store: Store) -> None:
    cache = await open_cache()
    store.open.clear()
    readers = [asyncio.create_task(cache.get("key", chunk(0))) for _ in range(5)]
    await eventually(lambda: bool(store.asked), what="the download")
    store.open.set()
    assert await asyncio.gather(*readers) == [content(0)] * 5
    assert len(store.asked) == 1


@pytest.mark.spec("remote-tiering 209")
async def test_cancelled_waiter_leaves_the_download_to_the_others(
    open_cache: OpenCache, store: Store, directory: Path
) -> None:
    cache = await open_cache()
    store.open.clear()
    first = asyncio.create_task(cache.get("key", chunk(0)))
    second = asyncio.create_task(cache.get("key", chunk(0)))
    await eventually(lambda: bool(store.asked), what="the download")
    first.cancel()
    await asyncio.wait({first})
    store.open.set()
    assert await second == content(0)
    await settled(cache)
    assert len(files(directory)) == 1
    assert len(store.asked) == 1


async def test_download_that_has_begun_goes_on_without_waiters(
    open_cache: OpenCache, store: Store, directory: Path
) -> None:
    cache = await open_cache()
    store.open.clear()
    reader = asyncio.create_task(cache.get("key", chunk(0)))
    await eventually(lambda: bool(store.asked), what="the download")
    reader.cancel()
    await asyncio.wait({reader})
    store.open.set()
    await eventually(lambda: len(files(directory)) == 1, what="the chunk")


async def test_queued_download_without_waiters_does_not_begin(open_cache: OpenCache, store: Store) -> None:
    cache = await open_cache(concurrency=1)
    store.open.clear()
    running = asyncio.create_task(cache.get("key", chunk(0)))
    await eventually(lambda: bool(store.asked), what="the download")
    queued = asyncio.create_task(cache.get("key", chunk(1)))
    await eventually(lambda: len(cache._downloads) == 2, what="the queue")
    queued.cancel()
    await asyncio.wait({queued})
    again = asyncio.create_task(cache.get("key", chunk(1)))
    store.open.set()
    assert await again == content(1), "who comes after the one that left gets a download of its own"
    assert await running == content(0)
    assert len(store.asked) == 2


async def test_a_failure_of_the_store_reaches_every_waiter_and_is_not_kept(open_cache: OpenCache, store: Store) -> None:
    cache = await open_cache()
    store.error = RetriableRemoteStorageError("slow")
    results = await asyncio.gather(*(cache.get("key", chunk(0)) for _ in range(3)), return_exceptions=True)
    assert results == [store.error] * 3
    store.error = RemoteResourceNotFoundError("gone")
    with pytest.raises(RemoteResourceNotFoundError):
        await cache.get("key", chunk(0))
    store.error = None
    assert await cache.get("key", chunk(0)) == content(0)


async def test_close_ends_downloads_and_refuses_later_calls(open_cache: OpenCache, store: Store) -> None:
    cache = await open_cache()
    store.open.clear()
    reader = asyncio.create_task(cache.get("key", chunk(0)))
    await eventually(lambda: bool(store.asked), what="the download")
    await cache.close()
    await cache.close()
    with pytest.raises(RemoteStorageError, check=coded(TierErrorCode.READER_CLOSED)):
        await reader
    with pytest.raises(RemoteStorageError, check=coded(TierErrorCode.READER_CLOSED)):
        await cache.get("key", chunk(0))


async def test_two_processes_share_a_directory(open_cache: OpenCache, store: Store, directory: Path) -> None:
    one, other = await open_cache(), await open_cache()
    await one.get("key", chunk(0))
    await settled(one)
    assert await other.get("key", chunk(0)) == content(0)
    assert len(store.asked) == 1
    for file in files(directory):
        file.unlink()  # evicted by the one
    assert await other.get("key", chunk(0)) == content(0)
    assert len(store.asked) == 2


async def test_two_processes_keep_one_bound(open_cache: OpenCache, directory: Path) -> None:
    capacity = 16 * file_size_of(CHUNK)
    caches = [await open_cache(capacity_bytes=capacity) for _ in range(2)]
    for number in range(60):
        cache = caches[number % 2]
        await cache.get(f"key-{number}", chunk(0))
        await settled(cache)
    assert sum(file.stat().st_size for file in files(directory)) <= capacity * (1 + 2 / 8)


async def test_open_removes_temporary_files_of_dead_processes_and_not_of_living_ones(
    open_cache: OpenCache, directory: Path
) -> None:
    directory.mkdir(parents=True)
    old, fresh = directory / "a.chunk.1-2.tmp", directory / "b.chunk.1-2.tmp"
    for file in (old, fresh):
        file.write_bytes(b"half")
    os.utime(old, (1_000, 1_000))
    cache = await open_cache()
    assert not old.exists()
    assert fresh.exists()
    assert cache.statistics().entries == 0


class TestDisksThatFail:
    async def test_reads_go_to_the_store_when_the_directory_cannot_be_made(
        self, open_cache: OpenCache, store: Store, directory: Path
    ) -> None:
        directory.parent.parent.mkdir(exist_ok=True)
        directory.parent.write_bytes(b"a file in the way")
        cache = await open_cache()
        for _ in range(2):
            assert await cache.get("key", chunk(0)) == content(0)
        assert len(store.asked) == 2
        assert cache.statistics().write_failures == 1, "said once, and not tried at every read"

    async def test_disk_is_tried_again_after_a_pause_when_a_write_failed(
        self, open_cache: OpenCache, directory: Path
    ) -> None:
        clock = FakeClock()
        cache = await open_cache(clock=clock)
        directory.rmdir()
        await cache.get("key", chunk(0))
        await settled(cache)
        assert cache.statistics().write_failures == 1
        directory.mkdir()
        await cache.get("key", chunk(0))
        await settled(cache)
        assert files(directory) == []
        clock.advance(61)
        await cache.get("key", chunk(0))
        await settled(cache)
        assert len(files(directory)) == 1

    def test_reads_go_to_the_store_when_the_disk_is_full(self, tmp_path: Path) -> None:
        script = tmp_path / "story.py"
        script.write_text(_FULL_DISK)
        disk = tmp_path / "disk"
        disk.mkdir()
        told = SmallDisk(disk, size_kib=64).tell([sys.executable, script, disk])
        assert told.exit_codes == [0], told.output
        assert told.lines[-1] == "ok 1 0", told.output


_FULL_DISK = """
import asyncio, sys
from pathlib import Path
from tierd.clock import SystemClock
from tierd.model import ByteRange
from tierd.remote.cache.chunk_cache import ChunkCache
from tierd.remote.cache.chunk_files import ChunkFiles

class Store:
    async def get(self, key, byte_range=None):
        return bytes(byte_range.size)

async def main():
    cache = await ChunkCache.open(
        Store(), directory=Path(sys.argv[1]) / "chunks", capacity_bytes=1 << 20, clock=SystemClock()
    )
    for number in range(8):
        assert await cache.get(f"key-{number}", ByteRange(0, 19_999)) == bytes(20_000)
        while cache._unwritten.tasks:
            await asyncio.wait(cache._unwritten.tasks)
    await cache.close()
    left = [f for f in (Path(sys.argv[1]) / "chunks").iterdir() if f.suffix == ".tmp"]
    print("ok", cache.statistics().write_failures, len(left))

asyncio.run(main())
"""


async def test_chunk_that_is_written_while_the_directory_is_listed_again_is_counted(
    open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = await open_cache(capacity_bytes=20 * file_size_of(CHUNK))
    listing, go_on, real = threading.Event(), threading.Event(), ChunkFiles.list

    def list_slowly(files: ChunkFiles) -> list[tuple[str, int]]:
        found = real(files)
        listing.set()
        assert go_on.wait(30)
        return found

    monkeypatch.setattr(ChunkFiles, "list", list_slowly)
    for number in range(3):
        await cache.get("key", chunk(number))
    await eventually(listing.is_set, what="the listing after an eighth of the capacity")
    await cache.get("key", chunk(3))
    await eventually(lambda: cache.statistics().entries == 4, what="the chunk that comes during the listing")
    go_on.set()
    await eventually(lambda: not cache._unwritten.tasks, what="the end of all writes")
    assert cache.statistics().entries == 4


class _HeldWrites:
    """Writes of chunks that wait until they may go on; it notes which of them were asked to pass the page cache by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self.are_direct: dict[str, bool] = {}
        real = ChunkFiles.write

        def write(files: ChunkFiles, name: str, content: bytes, *, identity: str, is_direct: bool = False) -> None:
            self.are_direct[name] = is_direct
            assert self.go_on.wait(30)
            real(files, name, content, identity=identity, is_direct=is_direct)

        monkeypatch.setattr(ChunkFiles, "write", write)


async def test_chunks_pass_the_page_cache_by_while_the_disk_keeps_up(
    open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk_cache, "_DIRECT_BYTES", 2 * file_size_of(CHUNK))
    held, cache = _HeldWrites(monkeypatch), await open_cache()
    for number in range(4):
        await cache.get("key", chunk(number))
    held.go_on.set()
    await eventually(lambda: not cache._unwritten.tasks, what="the end of all writes")
    names = [chunk_name("key", chunk(number)) for number in range(4)]
    assert [held.are_direct[name] for name in names] == [True, True, False, False]
    assert cache.statistics().entries == 4


async def test_read_of_a_chunk_on_disk_waits_for_no_write(
    open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = await open_cache()
    await cache.get("key", chunk(0))
    await eventually(lambda: not cache._unwritten.tasks, what="the end of the write")
    held = _HeldWrites(monkeypatch)
    try:
        for number in range(1, 9):
            await cache.get("key", chunk(number))
        async with asyncio.timeout(10):
            assert await cache.get("key", chunk(0)) == OBJECT[:CHUNK]
        assert cache.statistics().hits == 1
    finally:
        held.go_on.set()


class _HeldChecks:
    """Checks of chunks that wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        real = ChunkFiles.open

        def check(files: ChunkFiles, name: str, *, size_bytes: int, crc32c: int) -> OpenFile:
            assert self.go_on.wait(30)
            return real(files, name, size_bytes=size_bytes, crc32c=crc32c)

        monkeypatch.setattr(ChunkFiles, "open", check)


class TestCheckedFiles:
    """Files of chunks that are sent without another look at their bytes."""

    @staticmethod
    async def opened(cache: ChunkCache, number: int, used_bytes: int = CHUNK) -> OpenFile | None:
        return await cache.open_checked("key", chunk(number), crc32c=crc32c(content(number)), used_bytes=used_bytes)

    @staticmethod
    async def kept(cache: ChunkCache, *numbers: int) -> None:
        for number in numbers:
            await cache.get("key", chunk(number))
        await settled(cache)

    async def test_chunk_on_disk_is_given_as_a_file_that_begins_with_its_bytes(self, open_cache: OpenCache) -> None:
        cache = await open_cache()
        await self.kept(cache, 3)
        file = await self.opened(cache, 3, used_bytes=10)
        assert file is not None
        assert os.pread(file.descriptor, CHUNK, 0) == content(3)
        assert await self.opened(cache, 3, used_bytes=20) is file
        assert (cache.statistics().hits, cache.statistics().hit_bytes) == (2, 30)

    async def test_chunk_of_an_earlier_process_is_checked_and_given(self, open_cache: OpenCache) -> None:
        first = await open_cache()
        await self.kept(first, 3)
        await first.close()
        assert await self.opened(await open_cache(), 3) is not None

    async def test_chunk_that_is_not_on_disk_is_left_to_get(self, open_cache: OpenCache, store: Store) -> None:
        cache = await open_cache()
        assert await self.opened(cache, 3) is None
        await self.kept(cache, 3)
        (file,) = files(cache._files.directory)
        file.unlink()
        assert await self.opened(cache, 3) is None
        assert cache.statistics().entries == 0
        assert await cache.get("key", chunk(3)) == content(3)
        assert (len(store.asked), cache.statistics().hits) == (2, 0)

    async def test_rot_is_found_by_the_next_check_and_the_chunk_fetched_anew(
        self, open_cache: OpenCache, directory: Path, store: Store
    ) -> None:
        clock = FakeClock()
        cache = await open_cache(clock=clock)
        await self.kept(cache, 3)
        assert await self.opened(cache, 3) is not None
        (file,) = files(directory)
        with file.open("r+b") as rotten:
            rotten.write(b"rot")
        clock.advance(CHECKED_S + 1)
        assert await self.opened(cache, 3) is None
        assert (files(directory), cache.statistics().damaged) == ([], 1)
        await self.kept(cache, 3)
        found = await self.opened(cache, 3)
        assert found is not None
        assert os.pread(found.descriptor, CHUNK, 0) == content(3)
        assert len(store.asked) == 2

    async def test_file_that_became_shorter_is_checked_again_once_it_is_doubted(
        self, open_cache: OpenCache, directory: Path
    ) -> None:
        cache = await open_cache()
        await self.kept(cache, 3)
        found = await self.opened(cache, 3)
        assert found is not None
        os.truncate(files(directory)[0], 10)
        found.is_doubted = True
        assert await self.opened(cache, 3) is None
        assert files(directory) == []

    async def test_evicted_chunk_stays_readable_for_an_answer_and_is_not_given_again(
        self, open_cache: OpenCache, directory: Path
    ) -> None:
        cache = await open_cache(capacity_bytes=2 * file_size_of(CHUNK))
        await self.kept(cache, 0)
        found = await self.opened(cache, 0)
        assert found is not None
        await self.kept(cache, 1, 2, 3)
        await eventually(lambda: len(files(directory)) == 2, what="the eviction")
        assert await self.opened(cache, 0) is None
        assert os.pread(found.descriptor, CHUNK, 0) == content(0)

    async def test_chunk_that_is_given_as_a_file_counts_as_used(self, open_cache: OpenCache) -> None:
        cache = await open_cache(capacity_bytes=2 * file_size_of(CHUNK))
        await self.kept(cache, 0, 1)
        assert await self.opened(cache, 0) is not None
        await self.kept(cache, 2)
        await eventually(lambda: cache.statistics().evictions == 1, what="the eviction")
        assert await self.opened(cache, 0) is not None
        assert await self.opened(cache, 1) is None

    @pytest.mark.parametrize("way", ["remove", "purge", "drop"])
    async def test_removed_chunk_is_not_given_again(self, open_cache: OpenCache, way: str) -> None:
        cache = await open_cache()
        await self.kept(cache, 0)
        assert await self.opened(cache, 0) is not None
        if way == "remove":
            await cache.remove("key")
        elif way == "purge":
            assert await cache.purge(["key"]) == 0
        else:
            await cache.drop("key", chunk(0))
        assert await self.opened(cache, 0) is None

    @pytest.mark.parametrize("way", ["remove", "purge"])
    async def test_chunk_that_another_process_evicted_is_not_given_after_its_removal(
        self, open_cache: OpenCache, directory: Path, way: str
    ) -> None:
        cache = await open_cache()
        await self.kept(cache, 0)
        assert await self.opened(cache, 0) is not None
        files(directory)[0].unlink()
        await cache._list_again()
        if way == "remove":
            await cache.remove("key")
        else:
            assert await cache.purge(["key"]) == 0
        assert await self.opened(cache, 0) is None
        assert open_files(directory) == []

    async def test_purge_counts_a_chunk_that_a_client_is_being_sent(
        self, open_cache: OpenCache, directory: Path
    ) -> None:
        cache = await open_cache()
        await self.kept(cache, 0, 1)
        used = await self.opened(cache, 0)
        assert await self.opened(cache, 1) is not None
        assert await cache.purge(["other"]) == 0
        assert await cache.purge(["key"]) == 1
        assert files(directory) == []
        assert used is not None
        assert os.pread(used.descriptor, CHUNK, 0) == content(0)
        del used
        assert await cache.purge(["key"]) == 0
        assert open_files(directory) == []

    async def test_purge_counts_a_chunk_that_is_being_checked(
        self, open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = await open_cache()
        await self.kept(cache, 0)
        held = _HeldChecks(monkeypatch)
        try:
            cache.check_ahead("key", chunk(0), crc32c=crc32c(content(0)))
            assert await cache.purge(["key"]) == 1
        finally:
            held.go_on.set()
        await eventually(lambda: not cache._checked._running, what="the check")
        assert await cache.purge(["key"]) == 0

    async def test_close_that_is_cancelled_during_a_check_leaves_no_threads(
        self, open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = await open_cache()
        await self.kept(cache, 0)
        held = _HeldChecks(monkeypatch)
        try:
            cache.check_ahead("key", chunk(0), crc32c=crc32c(content(0)))
            closing = asyncio.create_task(cache.close())
            for _ in range(3):  # until the close waits for the check
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.sleep(0)
            assert not closing.done()
        finally:
            held.go_on.set()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert cache._threads._shutdown
        assert cache._writers._shutdown

    async def test_closed_cache_gives_no_file_and_has_none_open(self, open_cache: OpenCache, directory: Path) -> None:
        cache = await open_cache()
        await self.kept(cache, 0)
        assert await self.opened(cache, 0) is not None
        await cache.close()
        assert await self.opened(cache, 0) is None
        await eventually(lambda: open_files(directory) == [], what="the last thread lets its file go")

    async def test_file_that_cannot_be_opened_is_left_to_get(
        self, open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = await open_cache()
        await self.kept(cache, 0)

        def refuse(files: ChunkFiles, name: str, *, size_bytes: int, crc32c: int) -> OpenFile:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(ChunkFiles, "open", refuse)
        assert await self.opened(cache, 0) is None
        assert cache.statistics().entries == 1

    async def test_chunk_that_is_checked_ahead_is_given_without_another_check(
        self, open_cache: OpenCache, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checked, real = list[str](), ChunkFiles.open

        def count(files: ChunkFiles, name: str, *, size_bytes: int, crc32c: int) -> OpenFile:
            checked.append(name)
            return real(files, name, size_bytes=size_bytes, crc32c=crc32c)

        monkeypatch.setattr(ChunkFiles, "open", count)
        cache = await open_cache()
        await self.kept(cache, 0)
        for _ in range(3):
            cache.check_ahead("key", chunk(0), crc32c=crc32c(content(0)))
        cache.check_ahead("key", chunk(1), crc32c=crc32c(content(1)))  # not on disk
        assert await self.opened(cache, 0) is not None
        cache.check_ahead("key", chunk(0), crc32c=crc32c(content(0)))
        assert checked == [chunk_name("key", chunk(0))]
