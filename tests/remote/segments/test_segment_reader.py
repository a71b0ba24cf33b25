"""Reading back what was stored, whole and in ranges, sound and damaged."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contracts.remote_storage import Rolled, rolled
from tests.fakes.clock import FakeClock
from tests.fakes.eventually import eventually
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import segment
from tests.fakes.transforms import TRANSFORM_NAMES, mixed_content, ring, transform_named
from tierd.errors import (
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.model import ByteRange, IndexType
from tierd.remote import MANIFEST, ChunkCache, SegmentStorage, Transform
from tierd.remote.segments.segment_reader import RangeCache

MIB = 1 << 20


class WatchedStore(MemoryObjectStore):
    """Remembers which ranges of logs were read; its objects can be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[ByteRange | None] = []

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        if key.endswith(".log"):
            self.reads.append(byte_range)
        return await super().get(key, byte_range)

    async def key_of(self, suffix: str) -> str:
        return next(info.key for info in await self.list_objects("") if info.key.endswith(suffix))

    async def change(self, suffix: str, content: bytes) -> None:
        key = await self.key_of(suffix)
        await self.replace(key, content, previous=await super().get(key))


class EmptyCache:
    """Cache that keeps nothing: each range is asked of the store."""

    def __init__(self, store: MemoryObjectStore) -> None:
        self._store = store

    async def get(self, key: str, byte_range: ByteRange) -> bytes:
        return await self._store.get(key, byte_range)

    async def open_checked(self, key: str, byte_range: ByteRange, *, crc32c: int, used_bytes: int) -> None:
        del key, byte_range, crc32c, used_bytes

    def check_ahead(self, key: str, byte_range: ByteRange, *, crc32c: int) -> None:
        del key, byte_range, crc32c

    async def drop(self, key: str, byte_range: ByteRange) -> None:
        del key, byte_range


def storage_over(
    store: MemoryObjectStore,
    transform: Transform,
    *,
    chunk_size: int = MIB,
    cache: RangeCache | None = None,
) -> SegmentStorage:
    return SegmentStorage(
        store,
        cluster_id="cluster",
        broker_id=1,
        chunk_size=chunk_size,
        transform=transform,
        cache=cache,
    )


@pytest.fixture
def store() -> WatchedStore:
    return WatchedStore()


@pytest.fixture
def one(tmp_path: Path) -> Rolled:
    return rolled(tmp_path, mixed_content(5 * MIB + 100))


async def copied(store: WatchedStore, one: Rolled, name: str) -> SegmentStorage:
    """Return a storage of another process than the one that copied."""
    await storage_over(store, transform_named(name)).copy_log_segment_data(one.metadata, one.data)
    return storage_over(store, transform_named("plain"))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    how=st.tuples(st.sampled_from(TRANSFORM_NAMES), st.integers(1, 9), st.booleans()),
    chunk_mib=st.integers(1, 3),
    size=st.integers(0, 4 * MIB),
    ranges=st.lists(st.tuples(st.integers(0, 4 * MIB), st.integers(0, 4 * MIB)), max_size=8),
)
def test_range_that_is_read_equals_the_slice_of_the_log(
    how: tuple[str, int, bool], chunk_mib: int, size: int, ranges: list[tuple[int, int]]
) -> None:
    name, level, is_cached = how

    async def check(folder: Path) -> None:
        one, store = rolled(folder, mixed_content(size, seed=size)), MemoryObjectStore()
        named = transform_named(name)
        transform = Transform(level=level if named.level else None, encrypts=named.encrypts, ring=named.ring)
        cache = EmptyCache(store) if is_cached else None
        storage = storage_over(store, transform, chunk_size=chunk_mib * MIB, cache=cache)
        await storage.copy_log_segment_data(one.metadata, one.data)
        for low, high in [(0, 4 * MIB), *map(sorted, ranges)]:
            fetched = await storage.fetch_log_segment(one.metadata, ByteRange(low, high))
            assert fetched == one.content[low : high + 1]
        transform.close()

    with TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder)))


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_segment_is_read_the_same_under_any_present_configuration(
    store: WatchedStore, one: Rolled, name: str
) -> None:
    storage = await copied(store, one, name)
    assert (
        await storage.fetch_log_segment(one.metadata, ByteRange(MIB - 5, 2 * MIB)) == one.content[MIB - 5 : 2 * MIB + 1]
    )
    for kind, content in one.indexes.items():
        assert await storage.fetch_index(one.metadata, kind) == content


@pytest.mark.parametrize(("padding", "asked"), [(0, 1), (MIB, 2)])
async def test_manifest_larger_than_any_that_tierd_writes_is_read_and_not_kept(
    one: Rolled, padding: int, asked: int
) -> None:
    """Some dozens of manifests are kept: together they must not take what a bucket writer likes."""

    class Manifests(WatchedStore):
        reads_of_manifests = 0

        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            self.reads_of_manifests += key.endswith(".manifest")
            return await super().get(key, byte_range)

    store = Manifests()
    storage = await copied(store, one, "plain")
    await store.change(".manifest", await store.get(await store.key_of(".manifest")) + b" " * padding)
    store.reads_of_manifests = 0
    for _ in range(2):
        assert (await storage.read_manifest(one.metadata)).size_bytes == len(one.content)
    assert store.reads_of_manifests == asked


async def test_neighbouring_chunks_are_read_at_once(store: WatchedStore, one: Rolled) -> None:
    storage = await copied(store, one, "aes")
    await storage.read_manifest(one.metadata)
    await storage.fetch_log_segment(one.metadata, ByteRange(MIB + 1, 4 * MIB))
    assert store.reads == [ByteRange.of_size(MIB + 16, 4 * (MIB + 16))]


async def test_a_read_larger_than_a_run_takes_several(store: WatchedStore, tmp_path: Path) -> None:
    large = rolled(tmp_path, mixed_content(20 * MIB))
    storage = await copied(store, large, "aes")
    assert await storage.fetch_log_segment(large.metadata, ByteRange(0, 20 * MIB)) == large.content
    assert [read.size for read in store.reads if read] == [15 * (MIB + 16), 5 * (MIB + 16)]


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_chunk_that_was_damaged_in_the_store_is_read_once_the_store_has_it_whole(
    store: WatchedStore, one: Rolled, tmp_path: Path, name: str
) -> None:
    """A cache on disk may keep bytes of a damaged object. They go when the store has the object whole again."""
    await copied(store, one, name)
    cache = await ChunkCache.open(store, directory=tmp_path / "chunks", capacity_bytes=64 << 20, clock=FakeClock())
    storage = storage_over(store, transform_named(name), cache=cache)
    whole = ByteRange(0, len(one.content) - 1)
    try:
        sound = await MemoryObjectStore.get(store, await store.key_of(".log"))
        await store.change(".log", sound[:100] + bytes([sound[100] ^ 1]) + sound[101:])
        for _ in range(2):
            with pytest.raises(RemoteIntegrityError, match="chunk 0 is damaged"):
                await storage.fetch_log_segment(one.metadata, whole)
        await store.change(".log", sound)
        assert await storage.fetch_log_segment(one.metadata, whole) == one.content
        store.reads.clear()
        await eventually(lambda: cache.statistics().entries == len(one.content) // MIB + 1, what="chunks on disk")
        assert await storage.fetch_log_segment(one.metadata, whole) == one.content
        assert store.reads == []
    finally:
        await cache.close()


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_a_cache_is_asked_for_single_chunks(store: WatchedStore, one: Rolled, name: str) -> None:
    await copied(store, one, name)
    storage = storage_over(store, transform_named(name), cache=EmptyCache(store))
    manifest = await storage.read_manifest(one.metadata)
    for _ in range(2):
        store.reads.clear()
        await storage.fetch_log_segment(one.metadata, ByteRange(MIB + 1, 3 * MIB))
        layout = manifest.layout()
        assert store.reads == [layout.stored_range(range(n, n + 1)) for n in (1, 2, 3)]


async def test_plain_log_without_a_cache_is_read_by_the_asked_range(store: WatchedStore, one: Rolled) -> None:
    storage = await copied(store, one, "plain")
    await storage.fetch_log_segment(one.metadata, ByteRange(7, 2 * MIB + 9))
    assert store.reads == [ByteRange(7, 2 * MIB + 9)]


async def test_failure_of_one_request_of_a_read_fails_the_read(store: WatchedStore, one: Rolled) -> None:
    await copied(store, one, "aes")

    class Failing(EmptyCache):
        async def get(self, key: str, byte_range: ByteRange) -> bytes:
            raise RetriableRemoteStorageError(f"{key} {byte_range.start}: busy")

    storage = storage_over(store, transform_named("aes"), cache=Failing(store))
    with pytest.raises(RetriableRemoteStorageError, match="busy"):
        await storage.fetch_log_segment(one.metadata, ByteRange(0, 3 * MIB))


# ------------------------------------------------------------ damage


@pytest.mark.parametrize("name", ["plain", "zstd", "aes", "zstd+aes"])
async def test_a_changed_byte_is_found_wherever_a_whole_chunk_is_read(
    store: WatchedStore, one: Rolled, name: str
) -> None:
    storage = await copied(store, one, name)
    layout = (await storage.read_manifest(one.metadata)).layout()
    content = bytearray(await store.get(await store.key_of(".log")))
    for number in range(len(layout.chunks)):
        where = layout.stored_range(range(number, number + 1))
        for position in (where.start + 20, (where.start + where.end) // 2, where.end):
            content[position] ^= 1
            await store.change(".log", bytes(content))
            with pytest.raises(RemoteIntegrityError, match=rf"\.log: chunk {number} is damaged"):
                await storage.fetch_log_segment(one.metadata, ByteRange(0, 9 * MIB))
            content[position] ^= 1


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_a_log_that_was_cut_short_is_found(store: WatchedStore, one: Rolled, name: str) -> None:
    storage = await copied(store, one, name)
    content = await store.get(await store.key_of(".log"))
    await store.change(".log", content[:-1])
    with pytest.raises(RemoteIntegrityError, match=r"are [0-9]+ bytes"):
        await storage.fetch_log_segment(one.metadata, ByteRange(0, 9 * MIB))


async def test_swapped_chunks_of_an_encrypted_log_are_found(store: WatchedStore, one: Rolled) -> None:
    storage = await copied(store, one, "aes")
    content, size = await store.get(await store.key_of(".log")), MIB + 16
    await store.change(".log", content[size : 2 * size] + content[:size] + content[2 * size :])
    with pytest.raises(RemoteIntegrityError, match="chunk 0 is damaged: it does not open"):
        await storage.fetch_log_segment(one.metadata, ByteRange(0, 5))


async def test_objects_of_another_segment_are_found(store: WatchedStore, tmp_path: Path) -> None:
    segments = [rolled(tmp_path, mixed_content(MIB + 5, seed=3), start_offset=at) for at in (0, 10)]
    for each in segments:
        storage = await copied(store, each, "aes")
    for suffix in (".log", ".indexes", ".manifest"):
        first, second = [info.key for info in await store.list_objects("") if info.key.endswith(suffix)]
        mine, other = await store.get(first), await store.get(second)
        await store.replace(first, other, previous=mine)
        fresh = storage_over(store, transform_named("aes"))
        reading = (
            fresh.fetch_index(segments[0].metadata, IndexType.OFFSET)
            if suffix == ".indexes"
            else fresh.fetch_log_segment(segments[0].metadata, ByteRange(0, 5))
        )
        with pytest.raises(RemoteIntegrityError):
            await reading
        await store.replace(first, mine, previous=other)
    assert await storage.fetch_log_segment(segments[0].metadata, ByteRange(0, 5)) == segments[0].content[:6]


async def test_an_older_copy_of_the_same_segment_is_found(store: WatchedStore, one: Rolled) -> None:
    """A log of another attempt, put under this one's key: replayed."""
    storage = await copied(store, one, "aes")
    again = WatchedStore()
    await copied(again, one, "aes")
    await store.change(".log", await again.get(await again.key_of(".log")))
    with pytest.raises(RemoteIntegrityError, match="does not open"):
        await storage.fetch_log_segment(one.metadata, ByteRange(0, 5))


async def test_any_changed_byte_of_an_encrypted_manifest_is_found(store: WatchedStore, tmp_path: Path) -> None:
    small = rolled(tmp_path, b"records " * 100)
    await copied(store, small, "zstd+aes")
    content = await store.get(await store.key_of(".manifest"))
    for at in range(len(content)):  # every bit of each has its test with the manifest
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        await store.change(".manifest", bytes(changed))
        storage = storage_over(store, transform_named("plain"))
        with pytest.raises(RemoteStorageError):
            await storage.fetch_log_segment(small.metadata, ByteRange(0, 5))
    await store.change(".manifest", content)


@pytest.mark.parametrize("kind", IndexType)
async def test_any_changed_bit_of_an_encrypted_index_is_found(
    store: WatchedStore, tmp_path: Path, kind: IndexType
) -> None:
    small = rolled(tmp_path, b"records")
    storage = await copied(store, small, "aes")
    artefact = (await storage.read_manifest(small.metadata)).index(kind)
    assert artefact is not None
    content = await store.get(await store.key_of(".indexes"))
    for at in range(artefact.position * 8, (artefact.position + artefact.size_bytes) * 8):
        changed = bytearray(content)
        changed[at // 8] ^= 1 << at % 8
        await store.change(".indexes", bytes(changed))
        with pytest.raises(RemoteIntegrityError, match=f"{kind.value} index is damaged"):
            await storage.fetch_index(small.metadata, kind)


@pytest.mark.parametrize(
    "change",
    [
        {"leader_epoch": 99},
        {"size_bytes": 7},
        {"max_timestamp_ms": 1},
        {"replaces": ["AAAAAAAAAAAAAAAAAAAAAA"]},
        {"something": "new"},
        {"encryption": None},
    ],
)
async def test_a_manipulated_field_of_an_encrypted_manifest_is_found(
    store: WatchedStore, one: Rolled, change: dict[str, object]
) -> None:
    await copied(store, one, "aes")
    fields = json.loads(await store.get(await store.key_of(".manifest")))
    await store.change(".manifest", json.dumps(fields | change).encode())
    with pytest.raises(RemoteIntegrityError):
        await storage_over(store, transform_named("aes")).read_manifest(one.metadata)


async def test_an_encrypted_manifest_may_be_laid_out_anew(store: WatchedStore, one: Rolled) -> None:
    await copied(store, one, "aes")
    fields = json.loads(await store.get(await store.key_of(".manifest")))
    await store.change(".manifest", json.dumps(fields, indent=2, sort_keys=True).encode())
    assert await storage_over(store, transform_named("aes")).fetch_log_segment(one.metadata, ByteRange(0, 5))


async def test_a_segment_of_another_cluster_does_not_open(store: WatchedStore, one: Rolled) -> None:
    await copied(store, one, "aes")
    content = {info.key: await store.get(info.key) for info in await store.list_objects("")}
    for key, value in content.items():
        await store.put(key.replace("cluster/", "another/"), value)
    another = SegmentStorage(store, cluster_id="another", broker_id=1, transform=transform_named("aes"))
    with pytest.raises(RemoteIntegrityError, match="does not open"):
        await another.fetch_log_segment(one.metadata, ByteRange(0, 5))


async def test_a_key_that_is_missing_stops_its_segments_only(store: WatchedStore, tmp_path: Path) -> None:
    first, second = (rolled(tmp_path, mixed_content(MIB, seed=n), start_offset=n * 10) for n in range(2))
    for each, key_id in ((first, "old"), (second, "new")):
        transform = transform_named("aes", active_id=key_id)
        await storage_over(store, transform).copy_log_segment_data(each.metadata, each.data)
    storage = storage_over(store, Transform(encrypts=True, ring=ring("new", "new")))
    with pytest.raises(RemoteKeyMissingError, match="'old'"):
        await storage.fetch_log_segment(first.metadata, ByteRange(0, 5))
    with pytest.raises(RemoteKeyMissingError, match="'old'"):
        await storage.fetch_index(first.metadata, IndexType.OFFSET)
    assert await storage.fetch_log_segment(second.metadata, ByteRange(0, 5)) == second.content[:6]


async def test_a_manifest_that_is_remembered_is_still_that_of_one_segment(store: WatchedStore, one: Rolled) -> None:
    storage = await copied(store, one, "aes")
    await storage.read_manifest(one.metadata)
    with pytest.raises(RemoteIntegrityError, match="describes another segment"):
        await storage.fetch_log_segment(replace(one.metadata, end_offset=99), ByteRange(0, 5))


async def test_manifests_are_remembered_within_a_bound(store: WatchedStore, tmp_path: Path) -> None:
    storage = storage_over(store, transform_named("plain"))
    data = rolled(tmp_path, b"x").data
    manifests: list[str] = []
    get = store.get

    async def counting(key: str, byte_range: ByteRange | None = None) -> bytes:
        manifests.append(key)
        return await get(key, byte_range)

    many = [segment(n * 10, n * 10 + 9, size_bytes=1) for n in range(70)]
    for metadata in many:
        await storage.copy_log_segment_data(metadata, data)
    store.get = counting  # type: ignore[method-assign]  # to count
    for metadata in [*many, many[-1], many[0]]:
        await storage.read_manifest(metadata)
    assert len(manifests) == 71  # the last one is remembered, the first one is not any more


class HeldStore(WatchedStore):
    """Answers nothing before a test has seen what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, ByteRange | None]] = []
        self.answer = asyncio.Event()
        self.answer.set()

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        self.asked.append((key.rpartition(".")[2], byte_range))
        await self.answer.wait()
        return await super().get(key, byte_range)


async def held(one: Rolled, name: str, *, align: bool = False) -> tuple[HeldStore, SegmentStorage]:
    store = HeldStore()
    await copied(store, one, name)
    store.asked.clear()
    store.answer.clear()
    return store, storage_over(store, transform_named("plain"), cache=EmptyCache(store) if align else None)


async def test_manifest_and_first_bytes_take_one_round_trip(one: Rolled) -> None:
    store, storage = await held(one, "plain")
    reads = [
        asyncio.create_task(storage.fetch_log_segment(one.metadata, ByteRange.of_size(at, MIB)))
        for at in (0, MIB, 2 * MIB)
    ]
    await eventually(lambda: len(store.asked) == 4, what="three ranges, and the manifest once")
    assert sorted(kind for kind, _ in store.asked) == ["log", "log", "log", "manifest"]
    store.answer.set()
    assert b"".join(await asyncio.gather(*reads)) == one.content[: 3 * MIB]
    assert len(store.asked) == 4


async def test_a_cache_is_asked_for_whole_chunks_with_the_manifest(one: Rolled) -> None:
    store, storage = await held(one, "plain", align=True)
    read = asyncio.create_task(storage.fetch_log_segment(one.metadata, ByteRange(MIB + 1, 2 * MIB)))
    await eventually(lambda: len(store.asked) == 3, what="two chunks and the manifest")
    store.answer.set()
    assert await read == one.content[MIB + 1 : 2 * MIB + 1]
    assert len(store.asked) == 3


async def test_several_indexes_take_one_round_trip_and_two_requests(one: Rolled) -> None:
    store, storage = await held(one, "aes")
    kinds = list(one.indexes)
    reads = [asyncio.create_task(storage.fetch_index(one.metadata, kind)) for kind in kinds]
    await eventually(lambda: len(store.asked) == 2, what="the indexes and the manifest")
    store.answer.set()
    assert await asyncio.gather(*reads) == [one.indexes[kind] for kind in kinds]
    assert len(store.asked) == 2


async def test_reader_guesses_no_range_after_a_transformed_segment(one: Rolled) -> None:
    store, storage = await held(one, "zstd")
    store.answer.set()
    assert await storage.fetch_log_segment(one.metadata, ByteRange(0, 9)) == one.content[:10]
    storage._reader._open.clear()
    store.asked.clear()
    store.answer.clear()
    read = asyncio.create_task(storage.fetch_log_segment(one.metadata, ByteRange(0, 9)))
    await eventually(lambda: len(store.asked) == 1, what="the manifest")
    for _ in range(5):
        await asyncio.sleep(0)
    assert store.asked == [("manifest", ByteRange.of_size(0, MANIFEST.max_bytes + 1))]
    store.answer.set()
    assert await read == one.content[:10]


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_stream_fetches_no_stored_byte_twice_and_holds_one_bounded_piece(name: str, tmp_path: Path) -> None:
    store = MemoryObjectStore()
    large = rolled(tmp_path, mixed_content(20 * MIB + 5))
    await storage_over(store, transform_named(name)).copy_log_segment_data(large.metadata, large.data)
    fetched: list[int] = []
    get = store.get

    async def counted(key: str, byte_range: ByteRange | None = None) -> bytes:
        content = await get(key, byte_range)
        fetched.append(len(content) if key.endswith(".log") else 0)
        return content

    store.get = counted  # type: ignore[method-assign] # what leaves the store is counted
    stream = storage_over(store, transform_named(name)).stream_log_segment(large.metadata, 0)
    pieces = [piece async for piece in stream]
    assert b"".join(pieces) == large.content
    assert max(map(len, pieces)) == 8 * MIB
    (log,) = [info for info in await store.list_objects("") if info.key.endswith(".log")]
    assert sum(fetched) == log.size_bytes


async def test_stream_that_is_left_early_fetches_nothing_more(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    large = rolled(tmp_path, mixed_content(20 * MIB))
    storage = storage_over(store, transform_named("plain"))
    await storage.copy_log_segment_data(large.metadata, large.data)
    stream = storage.stream_log_segment(large.metadata, 0)
    assert len(await anext(stream)) == 8 * MIB
    await storage.delete_log_segment_data(large.metadata)
    await stream.aclose()
