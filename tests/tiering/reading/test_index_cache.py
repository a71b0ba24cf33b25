"""RemoteIndexCache over a real directory (Kafka: RemoteIndexCacheTest)."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from tests.coded import coded
from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.remote_segments import segment
from tests.fakes.storage_manager import UnusedStorage
from tierd.errors import (
    RemoteIndexAbsentError,
    RemoteIntegrityError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
    TierErrorCode,
)
from tierd.log import AbortedTransaction, OffsetIndex, TransactionIndex
from tierd.log.indexes import offset_index, time_index, transaction_index
from tierd.model import (
    IndexType,
    RemoteLogSegmentMetadata,
    uuid_to_text,
)
from tierd.remote.cache.checked_file import file_size_of
from tierd.tiering.reading.index_cache import DELETE_DELAY_S, RemoteIndexCache
from tierd.tiering.reading.index_files import SUFFIXES, IndexFiles
from tierd.tiering.reading.remote_indexes import RemoteIndexes

OFFSET, TIMESTAMP, TRANSACTION = IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.TRANSACTION

CONTENTS = {
    OFFSET: b"".join(offset_index.ENTRY.pack(n * 10, n * 100) for n in range(1, 9)),
    TIMESTAMP: b"".join(time_index.ENTRY.pack(1_000 + n, n * 10) for n in range(1, 9)),
    TRANSACTION: transaction_index.encode_entry(AbortedTransaction(7, 101, 1020, 1021)),
}
ENTRY_BYTES = sum(file_size_of(len(content)) for content in CONTENTS.values())


class Remote(UnusedStorage):
    """Storage of segments with equal indexes, which a test can block or make return wrong bytes."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, IndexType]] = []
        self.contents: dict[IndexType, bytes | Exception] = dict(CONTENTS)
        self.open = asyncio.Event()
        self.open.set()

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        self.asked.append((metadata.start_offset, index_type))
        await self.open.wait()
        content = self.contents[index_type]
        if isinstance(content, Exception):
            raise content
        return content


OpenCache = Callable[..., Awaitable[RemoteIndexCache]]


@pytest.fixture
def remote() -> Remote:
    return Remote()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "remote-log-index-cache"


@pytest.fixture
async def open_cache(remote: Remote, directory: Path, clock: FakeClock) -> AsyncIterator[OpenCache]:
    opened: list[RemoteIndexCache] = []

    async def open_one(*, capacity_bytes: int = 1 << 20) -> RemoteIndexCache:
        cache = await RemoteIndexCache.open(directory, remote=remote, capacity_bytes=capacity_bytes, clock=clock)
        assert cache is not None
        opened.append(cache)
        return cache

    yield open_one
    for cache in opened:
        await cache.close()


@pytest.fixture
async def cache(open_cache: OpenCache) -> RemoteIndexCache:
    return await open_cache()


def at(start_offset: int) -> RemoteLogSegmentMetadata:
    return segment(start_offset, start_offset + 99)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def stem(metadata: RemoteLogSegmentMetadata) -> str:
    return f"{metadata.start_offset}_{uuid_to_text(metadata.segment.id)}"


async def load(cache: RemoteIndexCache, *segments: RemoteLogSegmentMetadata) -> None:
    for metadata in segments:
        assert await cache.read(metadata, OFFSET) == CONTENTS[OFFSET]


@pytest.mark.spec("remote-tiering 217")
async def test_a_segments_indexes_become_three_files_and_are_fetched_once(
    cache: RemoteIndexCache, remote: Remote, directory: Path
) -> None:
    metadata = at(100)
    assert {index_type: await cache.read(metadata, index_type) for index_type in SUFFIXES} == CONTENTS
    assert names(directory) == sorted(stem(metadata) + suffix for suffix in (".index", ".timeindex", ".txnindex"))
    assert sorted(index_type.value for _, index_type in remote.asked) == ["offset", "timestamp", "transaction"]


@pytest.mark.spec("remote-tiering 218")
async def test_missing_transaction_index_is_cached_as_an_empty_file(
    cache: RemoteIndexCache, remote: Remote, directory: Path
) -> None:
    remote.contents[TRANSACTION] = RemoteIndexAbsentError("none")
    metadata = at(100)
    assert await cache.read(metadata, TRANSACTION) == b""
    assert (directory / f"{stem(metadata)}.txnindex").stat().st_size == file_size_of(0)
    assert await RemoteIndexes(cache.read).transaction_index(metadata) == TransactionIndex()


async def test_transaction_index_of_a_removed_segment_is_an_error(cache: RemoteIndexCache, remote: Remote) -> None:
    remote.contents[TRANSACTION] = RemoteResourceNotFoundError("the object is gone")
    for fetch in (cache.read, remote.fetch_index):
        with pytest.raises(RemoteResourceNotFoundError):
            await RemoteIndexes(fetch).transaction_index(at(100))


@pytest.mark.spec("remote-tiering 203")
async def test_a_transaction_index_known_to_be_empty_is_not_fetched(cache: RemoteIndexCache, remote: Remote) -> None:
    metadata = replace(at(100), txn_index_empty=True)
    assert await cache.read(metadata, TRANSACTION) == b""
    assert TRANSACTION not in [index_type for _, index_type in remote.asked]


@pytest.mark.spec("remote-tiering 219")
async def test_lookup_below_the_first_entry_returns_the_start_of_the_segment(cache: RemoteIndexCache) -> None:
    indexes = RemoteIndexes(cache.read)
    metadata = at(100)
    assert await indexes.lookup_offset(metadata, 100) == 0
    assert await indexes.lookup_offset(metadata, 109) == 0
    assert await indexes.lookup_offset(metadata, 110) == 100
    assert await indexes.lookup_offset(metadata, 199) == 800


async def test_a_timestamp_leads_to_a_position_that_is_not_below_the_start(cache: RemoteIndexCache) -> None:
    indexes = RemoteIndexes(cache.read)
    metadata = at(100)
    assert await indexes.lookup_timestamp(metadata, 0, 100) == 0
    assert await indexes.lookup_timestamp(metadata, 1_003, 100) == 300
    assert await indexes.lookup_timestamp(metadata, 1_003, 155) == 500


@pytest.mark.spec("remote-tiering 220")
async def test_full_cache_evicts_an_entry_and_fetches_it_again_later(
    open_cache: OpenCache, remote: Remote, directory: Path, clock: FakeClock
) -> None:
    cache = await open_cache(capacity_bytes=2 * ENTRY_BYTES)
    one, two, three = at(100), at(200), at(300)
    await load(cache, one, two, one, three)
    assert [metadata.segment.id in cache for metadata in (one, two, three)] == [True, False, True]
    await eventually(lambda: len(names(directory)) == 6, what="the files to go")
    assert DELETE_DELAY_S in clock.sleeps_s
    assert not [name for name in names(directory) if name.startswith(stem(two))]
    assert cache.statistics().evictions == 1
    remote.asked.clear()
    await load(cache, one, three)
    assert remote.asked == []
    await load(cache, two)
    assert len(remote.asked) == 3


async def test_entry_above_the_capacity_is_returned_and_not_kept(open_cache: OpenCache, directory: Path) -> None:
    cache = await open_cache(capacity_bytes=ENTRY_BYTES - 1)
    await load(cache, at(100))
    assert len(cache) == 0
    await eventually(lambda: names(directory) == [], what="the files to go")


@pytest.mark.spec("remote-tiering 221")
async def test_closed_cache_refuses_reads_and_its_cleaner_has_stopped(cache: RemoteIndexCache, directory: Path) -> None:
    metadata = at(100)
    await load(cache, metadata)
    await cache.close()
    await cache.close()
    with pytest.raises(RemoteStorageError, check=coded(TierErrorCode.READER_CLOSED)):
        await cache.read(metadata, OFFSET)
    assert len(names(directory)) == 3
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "remote index cleaner"]


async def test_close_ends_a_load_and_its_readers_get_an_error(cache: RemoteIndexCache, remote: Remote) -> None:
    remote.open.clear()
    reader = asyncio.create_task(cache.read(at(100), OFFSET))
    await eventually(lambda: len(remote.asked) == 3, what="the load")
    await cache.close()
    with pytest.raises(RemoteStorageError, check=coded(TierErrorCode.READER_CLOSED)):
        await reader


@pytest.mark.spec("remote-tiering 222")
async def test_removed_entries_are_renamed_at_once_and_deleted_in_the_background(
    cache: RemoteIndexCache, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    remove = IndexFiles.remove

    def look_and_remove(files: IndexFiles, paths: list[Path]) -> list[OSError]:
        seen.extend(names(directory))
        return remove(files, paths)

    monkeypatch.setattr(IndexFiles, "remove", look_and_remove)
    one, two, three = at(100), at(200), at(300)
    await load(cache, one, two, three)
    cache.remove([uuid4()])
    assert len(cache) == 3
    cache.remove([one.segment.id])
    await eventually(lambda: len(names(directory)) == 6, what="the files to go")
    assert [name for name in seen if name.startswith(stem(one))] == [
        stem(one) + suffix + ".deleted" for suffix in (".index", ".timeindex", ".txnindex")
    ]
    cache.remove([two.segment.id, three.segment.id])
    assert len(cache) == 0
    await eventually(lambda: names(directory) == [], what="the files to go")


@pytest.mark.spec("remote-tiering 223")
async def test_many_readers_of_one_cold_segment_cost_one_fetch_per_index(
    cache: RemoteIndexCache, remote: Remote
) -> None:
    metadata = at(100)
    remote.open.clear()
    readers = [asyncio.create_task(cache.read(metadata, t)) for t in (OFFSET, TIMESTAMP, TRANSACTION) * 5]
    await eventually(lambda: len(remote.asked) == 3, what="the load")
    readers[0].cancel()
    await asyncio.wait({readers[0]})
    remote.open.set()
    assert await asyncio.gather(*readers[1:]) == [CONTENTS[t] for t in (OFFSET, TIMESTAMP, TRANSACTION) * 5][1:]
    assert len(remote.asked) == 3


class TestReadersAndRemovers:
    @pytest.mark.spec("remote-tiering 231")
    async def test_an_entry_that_is_removed_while_it_is_read_can_be_read_to_the_end(
        self, cache: RemoteIndexCache, directory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        metadata = at(100)
        await load(cache, metadata)
        reading, goes_on = threading.Event(), threading.Event()
        read = IndexFiles.read

        def slow_read(files: IndexFiles, name: str, index_type: IndexType) -> bytes | None:
            reading.set()
            assert goes_on.wait(10)
            return read(files, name, index_type)

        monkeypatch.setattr(IndexFiles, "read", slow_read)
        reader = asyncio.create_task(cache.read(metadata, TIMESTAMP))
        await eventually(reading.is_set, what="the reader")
        cache.remove([metadata.segment.id])
        assert metadata.segment.id not in cache
        assert len(names(directory)) == 3, "not renamed under its reader"
        goes_on.set()
        assert await reader == CONTENTS[TIMESTAMP]
        await eventually(lambda: names(directory) == [], what="the files to go")

    @pytest.mark.spec("remote-tiering 224")
    async def test_read_after_a_removal_loads_a_whole_entry(
        self, cache: RemoteIndexCache, remote: Remote, directory: Path
    ) -> None:
        metadata = at(100)
        await load(cache, metadata)
        for _ in range(20):
            cache.remove([metadata.segment.id])
            found = await asyncio.gather(*(cache.read(metadata, t) for t in SUFFIXES))
            assert found == [CONTENTS[t] for t in SUFFIXES]
            assert metadata.segment.id in cache
            assert [n for n in names(directory) if not n.endswith(".deleted")] == sorted(
                stem(metadata) + suffix for suffix in SUFFIXES.values()
            )
        assert len(remote.asked) == 21 * 3

    @pytest.mark.spec("remote-tiering 224")
    async def test_removal_during_a_load_leaves_a_whole_entry(
        self, cache: RemoteIndexCache, remote: Remote, directory: Path
    ) -> None:
        metadata = at(100)
        remote.open.clear()
        reader = asyncio.create_task(cache.read(metadata, OFFSET))
        await eventually(lambda: len(remote.asked) == 3, what="the load")
        cache.remove([metadata.segment.id])
        remote.open.set()
        await reader
        assert metadata.segment.id in cache, "it was removed before its load ended"
        assert len(names(directory)) == 3


class TestStart:
    @pytest.mark.spec("remote-tiering 225")
    async def test_entries_survive_a_restart_without_a_call(
        self, open_cache: OpenCache, remote: Remote, directory: Path
    ) -> None:
        first = await open_cache()
        one, two = at(100), at(200)
        await load(first, one, two)
        await first.close()
        remote.asked.clear()
        second = await open_cache()
        assert (len(second), second.statistics().size_bytes) == (2, 2 * ENTRY_BYTES)
        await load(second, one, two)
        assert remote.asked == []

    @pytest.mark.spec("remote-tiering 226")
    @pytest.mark.parametrize("missing", SUFFIXES.values())
    async def test_entry_with_a_missing_file_is_removed_at_start(
        self, open_cache: OpenCache, directory: Path, missing: str
    ) -> None:
        first = await open_cache()
        metadata = at(100)
        await load(first, metadata)
        await first.close()
        (directory / (stem(metadata) + missing)).unlink()
        assert len(await open_cache()) == 0
        assert names(directory) == []

    @pytest.mark.spec("remote-tiering 227")
    async def test_temporary_and_deleted_files_are_removed_at_start(
        self, open_cache: OpenCache, directory: Path
    ) -> None:
        directory.mkdir(parents=True)
        for name in ("1_a.index.deleted", "1_a.index.12-ff.tmp", "2_b.txnindex.tmp", "2_b.timeindex.deleted"):
            (directory / name).write_bytes(b"left")
        await open_cache()
        assert names(directory) == []

    @pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: b"", lambda data: b"\xff" * len(data)])
    async def test_a_torn_file_does_not_stop_the_start(
        self, open_cache: OpenCache, directory: Path, damage: Callable[[bytes], bytes]
    ) -> None:
        first = await open_cache()
        sound, torn = at(100), at(200)
        await load(first, sound, torn)
        await first.close()
        file = directory / f"{stem(torn)}.timeindex"
        file.write_bytes(damage(file.read_bytes()))
        second = await open_cache()
        assert [metadata.segment.id in second for metadata in (sound, torn)] == [True, False]

    async def test_directory_is_open_in_one_process_at_a_time(
        self, cache: RemoteIndexCache, open_cache: OpenCache, remote: Remote, directory: Path, clock: FakeClock
    ) -> None:
        assert await RemoteIndexCache.open(directory, remote=remote, capacity_bytes=1, clock=clock) is None
        await cache.close()
        await open_cache()

    async def test_cache_is_not_opened_if_its_directory_cannot_be_made(
        self, remote: Remote, directory: Path, clock: FakeClock
    ) -> None:
        directory.parent.write_bytes(b"a file in the way")
        assert await RemoteIndexCache.open(directory, remote=remote, capacity_bytes=1, clock=clock) is None

    async def test_directory_and_files_are_readable_by_their_owner_only(
        self, cache: RemoteIndexCache, directory: Path
    ) -> None:
        await load(cache, at(100))
        assert directory.stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}


class TestDamage:
    @pytest.mark.spec("remote-tiering 228")
    async def test_a_corrupt_file_without_an_entry_is_downloaded_again(
        self, cache: RemoteIndexCache, remote: Remote, directory: Path
    ) -> None:
        metadata = at(100)
        for suffix in SUFFIXES.values():
            (directory / (stem(metadata) + suffix)).write_bytes(b"nonsense")
        await load(cache, metadata)
        assert len(remote.asked) == 3

    async def test_sound_files_without_an_entry_are_used(
        self, cache: RemoteIndexCache, open_cache: OpenCache, remote: Remote, directory: Path
    ) -> None:
        metadata = at(100)
        await load(cache, metadata)
        kept = {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in SUFFIXES.values()}
        cache.remove([metadata.segment.id])
        await eventually(lambda: names(directory) == [], what="the files to go")
        for name, content in kept.items():
            (directory / name).write_bytes(content)
        remote.asked.clear()
        await load(cache, metadata)
        assert remote.asked == []

    @pytest.mark.parametrize("index_type", SUFFIXES)
    async def test_file_that_is_damaged_later_is_fetched_again(
        self, cache: RemoteIndexCache, remote: Remote, directory: Path, index_type: IndexType
    ) -> None:
        metadata = at(100)
        await load(cache, metadata)
        file = directory / (stem(metadata) + SUFFIXES[index_type])
        content = bytearray(file.read_bytes())
        content[3] ^= 1
        file.write_bytes(content)
        assert await cache.read(metadata, index_type) == CONTENTS[index_type]
        assert cache.statistics().damaged == 1
        assert metadata.segment.id in cache

    @pytest.mark.spec("remote-tiering 229")
    @pytest.mark.parametrize("index_type", SUFFIXES)
    async def test_a_corrupt_download_is_an_error_and_no_entry(
        self, cache: RemoteIndexCache, remote: Remote, directory: Path, index_type: IndexType
    ) -> None:
        remote.contents[index_type] = b"\xff" * 35
        with pytest.raises(RemoteIntegrityError):
            await cache.read(at(100), OFFSET)
        assert len(cache) == 0
        assert names(directory) == []

    async def test_a_store_that_does_not_answer_is_an_error_and_no_entry(
        self, cache: RemoteIndexCache, remote: Remote
    ) -> None:
        remote.contents[TIMESTAMP] = RetriableRemoteStorageError("slow")
        metadata = at(100)
        with pytest.raises(RetriableRemoteStorageError):
            await cache.read(metadata, OFFSET)
        remote.contents[TIMESTAMP] = CONTENTS[TIMESTAMP]
        await load(cache, metadata)

    async def test_indexes_are_read_without_a_cache_if_the_disk_is_full(
        self, cache: RemoteIndexCache, remote: Remote, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(IndexFiles, "write", full)
        await load(cache, at(100), at(100))
        assert len(cache) == 0
        assert cache.statistics().write_failures == 2


@pytest.mark.spec("remote-tiering 230")
async def test_new_capacity_applies_at_once(cache: RemoteIndexCache, directory: Path) -> None:
    segments = [at(100 * n) for n in range(1, 5)]
    await load(cache, *segments)
    cache.resize(8 * ENTRY_BYTES)
    assert len(cache) == 4
    cache.resize(2 * ENTRY_BYTES)
    assert [metadata.segment.id in cache for metadata in segments] == [False, False, True, True]
    await eventually(lambda: len(names(directory)) == 6, what="the files to go")
    cache.resize(0)
    await eventually(lambda: names(directory) == [], what="the files to go")


class TestInMemory:
    async def test_decoded_indexes_are_kept_within_their_bound(self, cache: RemoteIndexCache) -> None:
        asked: list[int] = []

        async def fetch(metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
            asked.append(metadata.start_offset)
            return await cache.read(metadata, index_type)

        indexes = RemoteIndexes(fetch, kept_bytes=2 * (1024 + len(CONTENTS[OFFSET])))
        one, two, three = at(100), at(200), at(300)
        for metadata in (one, two, one, three, one, two):
            index = await indexes.offset_index(metadata)
            assert index == OffsetIndex.from_bytes(CONTENTS[OFFSET], metadata.start_offset, "the same")
        assert asked == [100, 200, 300, 200]
