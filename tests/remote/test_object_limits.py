"""Limits of objects: whatever another process may have put is read up to its limit, by every reader of it."""

import ast
import os
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

import tierd
from tests.contracts.remote_storage import Rolled, rolled
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import PARTITION
from tests.fakes.transforms import ring
from tierd.config import RemoteSettings
from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteObjectTooLargeError,
    RemoteResourceNotFoundError,
    RetriableRemoteStorageError,
)
from tierd.model import ByteRange, IndexType
from tierd.remote import (
    ERASURE_REPORT,
    LOG_START,
    MANIFEST,
    TOMBSTONE,
    KeyRewrapping,
    ObjectInfo,
    ObjectKeyFactory,
    ObjectKind,
    RewrapResult,
    SegmentManifest,
    SegmentStorage,
    Tombstone,
    Transform,
    claim_tier,
    read_tier_identity,
    read_whole,
)
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.remote.object_limits import MAX_CHUNK_BYTES, MAX_CHUNKS, TIER_IDENTITY, early_indexes, max_index_bytes

MIB = 1 << 20
KIND = ObjectKind("note", 10)
KEYS = ObjectKeyFactory("", "cluster")
KINDS = (MANIFEST, TOMBSTONE, LOG_START, TIER_IDENTITY, ERASURE_REPORT)


class CountingStore(MemoryObjectStore):
    """Counts what leaves it, and may be away when it is asked for the size of an object."""

    def __init__(self) -> None:
        super().__init__()
        self.sent_bytes = 0
        self.is_away = False

    async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
        content = await super().get(key, byte_range)
        self.sent_bytes += len(content)
        return content

    async def head(self, key: str) -> ObjectInfo:
        if self.is_away:
            raise RetriableRemoteStorageError("away")
        return await super().head(key)


@pytest.mark.parametrize("size", [0, 1, 9, 10])
async def test_object_up_to_its_limit_is_read_whole(size: int) -> None:
    store = CountingStore()
    await store.put("a", b"x" * size)
    assert await read_whole(store, "a", KIND) == b"x" * size


@pytest.mark.parametrize("size", [11, 12, 5_000])
async def test_object_beyond_its_limit_is_named_with_size_and_limit_and_one_byte_more_is_read(size: int) -> None:
    store = CountingStore()
    await store.put("a/b", b"x" * size)
    with pytest.raises(
        RemoteObjectTooLargeError, match=f"a/b has {size} bytes, and no note has more than 10"
    ) as caught:
        await read_whole(store, "a/b", KIND)
    assert store.sent_bytes == 11
    assert not caught.value.retriable
    assert "restore" in caught.value.remedy


async def test_object_beyond_its_limit_is_named_although_the_store_does_not_tell_its_size() -> None:
    store = CountingStore()
    await store.put("a", b"x" * 11)
    store.is_away = True
    with pytest.raises(RemoteObjectTooLargeError, match="a has more than 10 bytes"):
        await read_whole(store, "a", KIND)


async def test_object_that_is_not_there_is_not_found() -> None:
    with pytest.raises(RemoteResourceNotFoundError):
        await read_whole(CountingStore(), "a", KIND)


def test_every_read_of_an_object_of_another_process_has_a_range() -> None:
    root = Path(tierd.__file__).parent
    # The cache passes on what it is asked; the suites of tierd.testing read what they put.
    exempt = {"app/checks/store_self_test.py", "remote/cache/chunk_cache.py", *map(str, _below(root, "testing"))}
    found = {
        f"{path.relative_to(root)}:{call.lineno}"
        for path in root.rglob("*.py")
        if str(path.relative_to(root)) not in exempt and "ObjectStore" in path.read_text()
        for call in _gets_of_stores(ast.parse(path.read_text()))
    }
    assert found == set()


def _below(root: Path, room: str) -> Iterator[Path]:
    for path in (root / room).rglob("*.py"):
        yield path.relative_to(root)


def _gets_of_stores(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            owner = ast.unparse(node.func.value).removeprefix("self.").strip("_")
            if owner in {"store", "inner"} and len(node.args) == 1:
                yield node


# ------------------------------------------------------------ an attacker's object, kind by kind


@pytest.fixture
def one(tmp_path: Path) -> Rolled:
    return rolled(tmp_path, bytes(range(256)) * 4096)


def storage_over(store: MemoryObjectStore) -> SegmentStorage:
    return SegmentStorage(store, cluster_id="cluster", broker_id=1, chunk_size=MIB)


async def copied(one: Rolled) -> CountingStore:
    store = CountingStore()
    await storage_over(store).copy_log_segment_data(one.metadata, one.data)
    return store


async def put_oversized(store: CountingStore, key: str, kind: ObjectKind) -> None:
    await store.delete(key)
    await store.put(key, b" " * (kind.max_bytes + 2))
    store.sent_bytes = 0


Read = Callable[[CountingStore, Rolled], Awaitable[object]]


async def _rewrap(store: CountingStore, _: Rolled) -> None:
    (outcome,) = [outcome async for outcome in KeyRewrapping(store, ring()).run(KEYS)]
    assert outcome.result is RewrapResult.DAMAGED
    raise RemoteObjectTooLargeError(outcome.problem)


MANIFEST_READERS: dict[str, Read] = {
    "log": lambda store, one: storage_over(store).fetch_log_segment(one.metadata, ByteRange(0, 9)),
    "index": lambda store, one: storage_over(store).fetch_index(one.metadata, IndexType.OFFSET),
    "manifest": lambda store, one: storage_over(store).read_manifest(one.metadata),
    "rewrapping of keys": _rewrap,
}


@pytest.mark.parametrize("reader", MANIFEST_READERS)
async def test_oversized_manifest_is_refused_by_its_readers(one: Rolled, reader: str) -> None:
    store = await copied(one)
    key = KEYS.segment(one.metadata, ".manifest")
    await put_oversized(store, key, MANIFEST)
    with pytest.raises(RemoteObjectTooLargeError, match=key):
        await MANIFEST_READERS[reader](store, one)
    assert (
        store.sent_bytes
        <= MANIFEST.max_bytes + 1 + one.metadata.size_bytes + early_indexes(one.metadata.size_bytes).size
    )


async def test_oversized_tombstone_is_refused_by_its_reader(one: Rolled) -> None:
    store = await copied(one)
    key = KEYS.segment(one.metadata, ".tombstone")
    await put_oversized(store, key, TOMBSTONE)
    with pytest.raises(RemoteObjectTooLargeError, match=key):
        await storage_over(store).read_tombstone(one.metadata)
    assert store.sent_bytes == TOMBSTONE.max_bytes + 1


async def test_oversized_log_start_is_refused_by_its_reader() -> None:
    store = CountingStore()
    await put_oversized(store, KEYS.log_start(PARTITION), LOG_START)
    with pytest.raises(RemoteObjectTooLargeError, match="log-start"):
        await storage_over(store).log_starts.read(PARTITION)
    assert store.sent_bytes == LOG_START.max_bytes + 1


@pytest.mark.parametrize("kind", [TOMBSTONE, LOG_START, ERASURE_REPORT], ids=lambda kind: kind.name)
async def test_oversized_object_with_a_tag_is_refused_by_the_rewrapping_of_keys(one: Rolled, kind: ObjectKind) -> None:
    keys = {
        TOMBSTONE: KEYS.segment(one.metadata, ".tombstone"),
        LOG_START: KEYS.log_start(PARTITION),
        ERASURE_REPORT: KEYS.erasure_report(UUID(int=3)),
    }
    store = CountingStore()
    await put_oversized(store, keys[kind], kind)
    with pytest.raises(RemoteObjectTooLargeError, match=kind.name):
        await _rewrap(store, one)
    assert store.sent_bytes == kind.max_bytes + 1


async def test_oversized_tombstone_is_refused_by_its_writer_with_a_key_ring_too(one: Rolled) -> None:
    store = await copied(one)
    await put_oversized(store, KEYS.segment(one.metadata, ".tombstone"), TOMBSTONE)
    storage = SegmentStorage(
        store, cluster_id="cluster", broker_id=1, chunk_size=MIB, transform=Transform(encrypts=True, ring=ring())
    )
    with pytest.raises(RemoteObjectTooLargeError, match="tombstone"):
        await storage.write_tombstone(one.metadata, Tombstone("retention-time", 1, 2, 1))
    assert store.sent_bytes == TOMBSTONE.max_bytes + 1


async def test_oversized_identity_of_the_tier_is_refused_by_claim_and_reader() -> None:
    store = CountingStore()
    await put_oversized(store, KEYS.tier_identity, TIER_IDENTITY)
    with pytest.raises(RemoteObjectTooLargeError, match=r"tierd\.json"):
        await read_tier_identity(store, key_prefix="", cluster_id="cluster")
    with pytest.raises(RemoteObjectTooLargeError, match=r"tierd\.json"):
        await claim_tier(store, key_prefix="", cluster_id="cluster", store_id=UUID(int=1))


async def test_object_that_grew_is_not_read_whole_to_be_replaced(tmp_path: Path) -> None:
    store = await store_of_a_tebibyte(tmp_path)
    with tracing(below=4 * MIB), pytest.raises(RemoteConflictError):
        await store.replace("a", b"new", previous=b"old")
    await store.close()


# ------------------------------------------------------------ what a manifest may claim


async def manifest_of(one: Rolled) -> SegmentManifest:
    return await storage_over(await copied(one)).read_manifest(one.metadata)


async def test_manifest_with_chunks_larger_than_the_format_has_is_refused(one: Rolled) -> None:
    manifest = await manifest_of(one)
    log = manifest.log.model_copy(update={"chunk_size_bytes": MAX_CHUNK_BYTES + 1})
    with pytest.raises(RemoteIntegrityError, match="none has more than"):
        SegmentManifest.decode(manifest.model_copy(update={"log": log}).encode(), key="k")


async def test_manifest_with_more_chunks_than_a_log_has_is_refused(one: Rolled) -> None:
    manifest = await manifest_of(one)
    log = manifest.log.model_copy(update={"chunks": manifest.log.chunks * (MAX_CHUNKS + 1)})
    with pytest.raises(RemoteIntegrityError, match="no log has more than"):
        SegmentManifest.decode(manifest.model_copy(update={"log": log}).encode(), key="k")


@pytest.mark.parametrize("index_type", IndexType)
async def test_manifest_with_an_index_larger_than_its_log_can_have_is_refused(
    one: Rolled, index_type: IndexType
) -> None:
    manifest = await manifest_of(one)
    limit = max_index_bytes(index_type, one.metadata.size_bytes)
    for size, is_sound in ((limit, True), (limit + 1, False)):
        index = manifest.indexes["offset"].model_copy(update={"size_bytes": size})
        content = manifest.model_copy(update={"indexes": {index_type.value: index}}).encode()
        if is_sound:
            SegmentManifest.decode(content, key="k")
            continue
        with pytest.raises(RemoteIntegrityError, match=f"{index_type.value} index"):
            SegmentManifest.decode(content, key="k")


async def test_index_behind_the_early_bytes_is_read_by_its_place(one: Rolled) -> None:
    padded = bytes(early_indexes(one.metadata.size_bytes).size)
    data = replace(one.data, offset_index=padded)
    store = CountingStore()
    await storage_over(store).copy_log_segment_data(one.metadata, data)
    for index_type, content in ((IndexType.TIMESTAMP, data.time_index), (IndexType.OFFSET, padded)):
        assert await storage_over(store).fetch_index(one.metadata, index_type) == content


def test_limits_allow_what_configuration_and_kafka_allow() -> None:
    chunk_size = RemoteSettings.model_fields["chunk_size_bytes"]
    assert next(each.le for each in chunk_size.metadata if hasattr(each, "le")) == MAX_CHUNK_BYTES
    largest_log = 2**31 - 1
    assert largest_log // MIB < MAX_CHUNKS
    assert max_index_bytes(IndexType.OFFSET, largest_log) >= largest_log // 61 * 8
    assert max_index_bytes(IndexType.TIMESTAMP, largest_log) >= largest_log // 61 * 12
    assert all(max_index_bytes(each, 0) >= 10 * MIB for each in IndexType)  # segment.index.bytes of a broker


# ------------------------------------------------------------ memory


@contextmanager
def tracing(*, below: int) -> Iterator[None]:
    """Fail where Python's objects take as many bytes at once."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < below
    finally:
        tracemalloc.stop()


async def store_of_a_tebibyte(root: Path) -> FilesystemObjectStore:
    """Return a store with the object ``a``, a file without blocks."""
    store = FilesystemObjectStore(root)
    await store.put("a", b"old")
    os.truncate(next(path for path in root.rglob("a*") if path.is_file()), 1 << 40)
    return store


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_object_of_a_tebibyte_takes_no_more_memory_than_its_limit(tmp_path: Path, kind: ObjectKind) -> None:
    store = await store_of_a_tebibyte(tmp_path)
    with tracing(below=kind.max_bytes + 2 * MIB), pytest.raises(RemoteObjectTooLargeError, match=str(1 << 40)):
        await read_whole(store, "a", kind)
    await store.close()
