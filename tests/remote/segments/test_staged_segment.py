"""Segments that one process stages and another one commits by the manifest, if the objects are what it says."""

import asyncio
import itertools
import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.remote_storage import Rolled, rolled
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import PARTITION, segment
from tests.fakes.transforms import KEY_SEED, TRANSFORM_NAMES, mixed_content, ring, transform_named
from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from tierd.model import ByteRange, IndexType, RemoteLogSegmentMetadata
from tierd.remote import Body, KeyRewrapping, ObjectKeyFactory, RewrapResult, SegmentManifest, SegmentStorage, Transform
from tierd.remote.segments.staged_segment import sampled_chunks
from tierd.remote.transform import codec
from tierd.testing import cancel_at

MIB = 1 << 20
CLUSTER = "cluster"
REPLACED = [segment(start, start + 9).segment for start in (0, 10, 20)]


def storage_over(store: MemoryObjectStore, transform: Transform) -> SegmentStorage:
    return SegmentStorage(store, cluster_id=CLUSTER, broker_id=1, chunk_size=MIB, transform=transform)


def recorded(one: Rolled, transform: Transform) -> RemoteLogSegmentMetadata:
    """Return the row that the leader began, as it will be when it is finished."""
    custom = storage_over(MemoryObjectStore(), transform).custom_metadata(one.metadata)
    return replace(one.metadata, custom_metadata=custom, max_timestamp_ms=77)


async def alter(store: MemoryObjectStore, suffix: str, change: bytes | None) -> None:
    """Put other bytes in the place of an object; None removes it."""
    (info,) = [info for info in await store.list_objects("") if info.key.endswith(suffix)]
    await store.delete(info.key)
    if change is not None:
        await store.put(info.key, change)


async def content_at(store: MemoryObjectStore, suffix: str) -> bytes:
    (info,) = [info for info in await store.list_objects("") if info.key.endswith(suffix)]
    return await store.get(info.key)


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def one(tmp_path: Path) -> Rolled:
    return rolled(tmp_path, mixed_content(5 * MIB + 100), start_offset=100)


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_another_process_commits_with_the_key_ring_and_the_manifest_alone(
    store: MemoryObjectStore, one: Rolled, name: str
) -> None:
    executor, leader, reader = (storage_over(store, transform_named(name)) for _ in range(3))
    metadata = recorded(one, transform_named(name))
    staged = (await executor.stage_log_segment_data(metadata, one.data, key_seed=KEY_SEED)).encode()
    assert not await leader.objects_present(metadata)
    await leader.commit_log_segment(metadata, SegmentManifest.decode(staged, key="staged"), REPLACED)
    assert await reader.fetch_log_segment(metadata, ByteRange(0, 1 << 30)) == one.content
    assert await reader.fetch_index(metadata, IndexType.PRODUCER_SNAPSHOT) == one.data.producer_snapshot
    manifest = await reader.read_manifest(metadata)
    assert len(manifest.replaces) == 3
    assert manifest.model_copy(update={"replaces": (), "encryption": None}) == SegmentManifest.decode(
        staged, key="staged"
    ).model_copy(update={"encryption": None})


async def test_the_row_that_was_begun_is_completed_from_the_manifest(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("plain"))
    begun = replace(one.metadata, size_bytes=1 << 30, max_timestamp_ms=-1)
    done = replace(begun, size_bytes=len(one.content), max_timestamp_ms=77, txn_index_empty=True)
    manifest = pickle.loads(pickle.dumps(await storage.stage_log_segment_data(done, one.data, key_seed=KEY_SEED)))
    assert manifest.completed(begun) == done
    await storage.commit_log_segment(manifest.completed(begun), manifest, REPLACED)


async def test_metadata_of_another_size_than_the_data_is_not_staged(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("plain"))
    with pytest.raises(RemoteIntegrityError, match="describes another segment"):
        await storage.stage_log_segment_data(replace(one.metadata, size_bytes=1), one.data, key_seed=KEY_SEED)


class StopsAfter(MemoryObjectStore):
    """Takes so many objects, and dies with the process then."""

    def __init__(self, objects: int) -> None:
        super().__init__()
        self.left = objects

    async def put(self, key: str, body: Body) -> None:
        if not self.left:
            raise OSError("the executor is gone")
        self.left -= 1
        await super().put(key, body)


async def stage(store: MemoryObjectStore, one: Rolled, name: str, *, key_seed: bytes = KEY_SEED) -> SegmentManifest:
    """Stage a segment as a task of its own process does."""
    storage = storage_over(store, transform_named(name))
    return await storage.stage_log_segment_data(one.metadata, one.data, key_seed=key_seed)


@pytest.mark.parametrize("objects", [0, 1, 2])
@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_task_that_runs_again_in_another_process_writes_the_very_same_objects(
    one: Rolled, name: str, objects: int
) -> None:
    store, alone = StopsAfter(objects), MemoryObjectStore()
    if objects < 2:
        with pytest.raises(RemoteStorageError, match="the executor is gone"):
            await stage(store, one, name)
    else:
        await stage(store, one, name)
    store.left = 3
    manifest = await stage(store, one, name)
    await stage(alone, one, name)
    for suffix in (".log", ".indexes"):
        assert await content_at(store, suffix) == await content_at(alone, suffix)
    leader = storage_over(store, transform_named(name))
    await leader.commit_log_segment(one.metadata, manifest, REPLACED)
    assert await leader.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == one.content


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_manifest_of_either_of_two_tasks_at_the_same_time_can_be_committed(
    store: MemoryObjectStore, one: Rolled, name: str
) -> None:
    manifests = await asyncio.gather(*(stage(store, one, name) for _ in range(2)))
    for manifest in manifests:
        reader = storage_over(store, transform_named(name))
        await reader.commit_log_segment(one.metadata, manifest, REPLACED)
        assert await reader.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == one.content
        await alter(store, ".manifest", None)


@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_task_that_makes_other_content_is_refused_and_changes_nothing(
    store: MemoryObjectStore, one: Rolled, tmp_path: Path, name: str
) -> None:
    manifest = await stage(store, one, name)
    before = [await content_at(store, suffix) for suffix in (".log", ".indexes")]
    other = rolled(tmp_path, one.content[:-1] + b"?", start_offset=100)
    with pytest.raises(RemoteConflictError):
        await stage(store, replace(other, metadata=one.metadata), name)
    assert [await content_at(store, suffix) for suffix in (".log", ".indexes")] == before
    await storage_over(store, transform_named(name)).commit_log_segment(one.metadata, manifest, REPLACED)


async def test_content_that_differs_in_its_last_byte_is_encrypted_under_another_data_key(
    one: Rolled, tmp_path: Path
) -> None:
    stores = MemoryObjectStore(), MemoryObjectStore(), MemoryObjectStore()
    await stage(stores[0], one, "aes")
    await stage(stores[1], one, "aes", key_seed=bytes(32))
    other = rolled(tmp_path, one.content[:-1] + b"?", start_offset=100)
    await stage(stores[2], replace(other, metadata=one.metadata), "aes")
    assert len({(await content_at(store, ".log"))[:MIB] for store in stores}) == 3, "the first chunk is the same in all"


async def test_compressor_that_does_not_repeat_itself_is_refused_before_a_byte_leaves(
    store: MemoryObjectStore, one: Rolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    salts = itertools.count()
    monkeypatch.setattr(codec, "compress", lambda content, level: b"%d" % next(salts))
    with pytest.raises(RemoteIntegrityError, match="not what it was in the attempt before"):
        await stage(store, one, "zstd+aes")
    assert await store.list_objects("") == []


@pytest.mark.parametrize("missing", [".log", ".indexes"])
@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_commit_without_the_objects_is_refused(
    store: MemoryObjectStore, one: Rolled, name: str, missing: str
) -> None:
    storage = storage_over(store, transform_named(name))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    await alter(store, missing, None)
    with pytest.raises(RemoteResourceNotFoundError):
        await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    assert not any(info.key.endswith(".manifest") for info in await store.list_objects(""))


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_commit_of_objects_that_changed_since_staging_is_refused(
    store: MemoryObjectStore, one: Rolled, name: str, suffix: str
) -> None:
    storage = storage_over(store, transform_named(name))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    sound = await content_at(store, suffix)
    for other in (sound[:-1], sound + b"!", bytes([sound[0] ^ 1]) + sound[1:], sound[:-1] + bytes([sound[-1] ^ 1])):
        await alter(store, suffix, other)
        with pytest.raises(RemoteIntegrityError):
            await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    await alter(store, suffix, sound)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)


async def test_a_plain_log_is_compared_whole_where_the_store_tells_its_checksum(
    store: MemoryObjectStore, tmp_path: Path
) -> None:
    one = rolled(tmp_path, mixed_content(9 * MIB))
    storage = storage_over(store, transform_named("plain"))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    assert 1 not in sampled_chunks(9)
    changed = bytearray(one.content)
    changed[MIB + 5] ^= 1
    await alter(store, ".log", bytes(changed))
    with pytest.raises(RemoteIntegrityError, match="CRC-32C"):
        await storage.commit_log_segment(one.metadata, manifest, REPLACED)


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "payments"},
        {"cluster_id": "another"},
        {"leader_epoch": 6},
        {"copy_started_ms": 1},
        {"session_id": "00000000-0000-0000-0000-000000000000"},
        {"segment_leader_epochs": [[1, 100]]},
        {"max_timestamp_ms": 78},
        {"txn_index_empty": True},
        {"end_offset": 110},
        {"segment_id": "AAAAAAAAAAAAAAAAAAAKvA"},
        {"indexes": {}},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_manifest_that_differs_from_the_metadata_is_refused(
    store: MemoryObjectStore, one: Rolled, change: dict[str, object]
) -> None:
    storage = storage_over(store, transform_named("plain"))
    metadata = recorded(one, transform_named("plain"))
    manifest = await storage.stage_log_segment_data(metadata, one.data, key_seed=KEY_SEED)
    told = SegmentManifest.decode(json.dumps(json.loads(manifest.encode()) | change).encode(), key="told")
    with pytest.raises(RemoteIntegrityError):
        await storage.commit_log_segment(metadata, told, REPLACED)


async def test_encrypted_manifest_without_the_key_ring_behind_it_is_refused(
    store: MemoryObjectStore, one: Rolled
) -> None:
    storage = storage_over(store, transform_named("zstd+aes"))
    metadata = recorded(one, transform_named("zstd+aes"))
    manifest = await storage.stage_log_segment_data(metadata, one.data, key_seed=KEY_SEED)
    with pytest.raises(RemoteIntegrityError, match="its tag does not fit"):
        await storage.commit_log_segment(metadata, manifest.model_copy(update={"record_count": 11}), REPLACED)
    plain = await storage_over(MemoryObjectStore(), transform_named("plain")).stage_log_segment_data(
        metadata, one.data, key_seed=KEY_SEED
    )
    with pytest.raises(RemoteIntegrityError, match="is not encrypted, the metadata says that it is"):
        await storage.commit_log_segment(metadata, plain, REPLACED)
    without = storage_over(store, Transform(encrypts=True, ring=ring("new", "new")))
    with pytest.raises(RemoteKeyMissingError):
        await without.commit_log_segment(metadata, manifest, REPLACED)
    await storage.commit_log_segment(metadata, manifest, REPLACED)


async def test_replaced_segments_are_under_the_tag_of_the_manifest(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("aes"))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    fields = json.loads(await content_at(store, ".manifest"))
    await alter(store, ".manifest", json.dumps(fields | {"replaces": fields["replaces"][1:]}).encode())
    with pytest.raises(RemoteIntegrityError, match="its tag does not fit"):
        await storage_over(store, transform_named("aes")).read_manifest(one.metadata)


async def test_a_committed_segment_is_rewrapped_as_any_other(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("aes"))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    rewrapping = KeyRewrapping(store, ring("new"))
    outcomes = [outcome async for outcome in rewrapping.run(ObjectKeyFactory("", CLUSTER))]
    assert [outcome.result for outcome in outcomes] == [RewrapResult.REWRAPPED]
    reader = storage_over(store, Transform(encrypts=True, ring=ring("new", "new")))
    assert await reader.fetch_log_segment(one.metadata, ByteRange(0, 99)) == one.content[:100]


async def test_other_segments_replaced_by_the_same_output_are_a_conflict(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("plain"))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    with pytest.raises(RemoteConflictError):
        await storage.commit_log_segment(one.metadata, manifest, REPLACED[:1])


@pytest.mark.parametrize("name", ["plain", "zstd+aes"])
async def test_staging_and_commit_succeed_after_a_cancellation_at_any_await(tmp_path: Path, name: str) -> None:
    number = 1
    while True:
        store = MemoryObjectStore()
        one = rolled(tmp_path, mixed_content(2 * MIB + number), start_offset=10 * number)
        storage = storage_over(store, transform_named(name))
        was_cancelled = await cancel_at(number, lambda: _staged_and_committed(storage, one))  # noqa: B023 - called at once
        is_committed = any(info.key.endswith(".manifest") for info in await store.list_objects(""))
        if is_committed:
            assert await storage.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == one.content
            await storage.delete_log_segment_data(one.metadata)
            assert await store.list_objects("") == []
        else:
            await storage.delete_log_segment_data(one.metadata)
            await _staged_and_committed(storage, one)
            assert await storage.fetch_log_segment(one.metadata, ByteRange(0, 1 << 30)) == one.content
        if not was_cancelled:
            break
        number += 1
    assert number > 4


async def _staged_and_committed(storage: SegmentStorage, one: Rolled) -> None:
    manifest = await storage.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)


async def test_staged_segment_is_deleted_like_any_other(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("aes"))
    await storage.stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    assert len(await storage.list_segment_objects(PARTITION)) == 1
    await storage.delete_log_segment_data(one.metadata)
    assert await store.list_objects("") == []


async def test_unexpected_exception_in_staging_becomes_a_storage_error(one: Rolled) -> None:
    class Broken(MemoryObjectStore):
        async def put(self, key: str, body: object) -> None:
            raise ZeroDivisionError(key, body)

    with pytest.raises(RemoteStorageError, match="cannot stage segment"):
        await storage_over(Broken(), transform_named("plain")).stage_log_segment_data(
            one.metadata, one.data, key_seed=KEY_SEED
        )


def test_sample_of_chunks_has_the_first_and_the_last_one() -> None:
    assert sampled_chunks(0) == []
    assert sampled_chunks(3) == [0, 1, 2]
    assert sampled_chunks(5) == [0, 1, 2, 4]
    assert sampled_chunks(256) == [0, 85, 170, 255]
