"""What one process stages, another one commits: by the manifest alone, and only if the objects are what it says."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.remote_storage import Rolled, rolled
from tests.fakes.cancellation import cancel_at
from tests.fakes.remote_segments import PARTITION, segment
from tests.fakes.transforms import TRANSFORM_NAMES, mixed_content, ring, transform_named
from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteKeyMissingError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
)
from tierd.model import ByteRange, IndexType, RemoteLogSegmentMetadata
from tierd.remote import KeyRewrapping, ObjectKeyFactory, RewrapResult, SegmentManifest, SegmentStorage, Transform
from tierd.remote.backends.memory import MemoryObjectStore
from tierd.remote.segments.staged_segment import sampled_chunks

MIB = 1 << 20
CLUSTER = "cluster"
REPLACED = [segment(start, start + 9).segment for start in (0, 10, 20)]


def storage_over(store: MemoryObjectStore, transform: Transform) -> SegmentStorage:
    return SegmentStorage(store, cluster_id=CLUSTER, broker_id=1, chunk_size=MIB, transform=transform)


def recorded(one: Rolled, transform: Transform) -> RemoteLogSegmentMetadata:
    """The row that the leader began, as it will be when it is finished."""
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
    staged = (await executor.stage_log_segment_data(metadata, one.data)).encode()
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
    manifest = pickle.loads(pickle.dumps(await storage.stage_log_segment_data(done, one.data)))
    assert manifest.completed(begun) == done
    await storage.commit_log_segment(manifest.completed(begun), manifest, REPLACED)


async def test_metadata_of_another_size_than_the_data_is_not_staged(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("plain"))
    with pytest.raises(RemoteIntegrityError, match="describes another segment"):
        await storage.stage_log_segment_data(replace(one.metadata, size_bytes=1), one.data)


@pytest.mark.parametrize("name", ["plain", "zstd"])
async def test_staging_again_writes_the_very_same_objects(store: MemoryObjectStore, one: Rolled, name: str) -> None:
    staged = [
        await storage_over(store, transform_named(name)).stage_log_segment_data(one.metadata, one.data)
        for _ in range(2)
    ]
    assert staged[0] == staged[1]


async def test_an_encrypted_segment_that_was_staged_by_another_process_is_in_the_way(
    store: MemoryObjectStore, one: Rolled
) -> None:
    await storage_over(store, transform_named("aes")).stage_log_segment_data(one.metadata, one.data)
    with pytest.raises(RemoteConflictError):
        await storage_over(store, transform_named("aes")).stage_log_segment_data(one.metadata, one.data)


@pytest.mark.parametrize("missing", [".log", ".indexes"])
@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_nothing_is_committed_without_its_objects(
    store: MemoryObjectStore, one: Rolled, name: str, missing: str
) -> None:
    storage = storage_over(store, transform_named(name))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data)
    await alter(store, missing, None)
    with pytest.raises(RemoteResourceNotFoundError):
        await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    assert not any(info.key.endswith(".manifest") for info in await store.list_objects(""))


@pytest.mark.parametrize("suffix", [".log", ".indexes"])
@pytest.mark.parametrize("name", TRANSFORM_NAMES)
async def test_objects_that_are_not_what_was_staged_are_not_committed(
    store: MemoryObjectStore, one: Rolled, name: str, suffix: str
) -> None:
    storage = storage_over(store, transform_named(name))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data)
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
    manifest = await storage.stage_log_segment_data(one.metadata, one.data)
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
async def test_a_manifest_that_tells_another_story_than_the_metadata_is_refused(
    store: MemoryObjectStore, one: Rolled, change: dict[str, object]
) -> None:
    storage = storage_over(store, transform_named("plain"))
    metadata = recorded(one, transform_named("plain"))
    manifest = await storage.stage_log_segment_data(metadata, one.data)
    told = SegmentManifest.decode(json.dumps(json.loads(manifest.encode()) | change).encode(), key="told")
    with pytest.raises(RemoteIntegrityError):
        await storage.commit_log_segment(metadata, told, REPLACED)


async def test_an_encrypted_manifest_is_believed_only_from_a_holder_of_the_key_ring(
    store: MemoryObjectStore, one: Rolled
) -> None:
    storage = storage_over(store, transform_named("zstd+aes"))
    metadata = recorded(one, transform_named("zstd+aes"))
    manifest = await storage.stage_log_segment_data(metadata, one.data)
    with pytest.raises(RemoteIntegrityError, match="its tag does not fit"):
        await storage.commit_log_segment(metadata, manifest.model_copy(update={"record_count": 11}), REPLACED)
    plain = await storage_over(MemoryObjectStore(), transform_named("plain")).stage_log_segment_data(metadata, one.data)
    with pytest.raises(RemoteIntegrityError, match="is not encrypted, the metadata says that it is"):
        await storage.commit_log_segment(metadata, plain, REPLACED)
    without = storage_over(store, Transform(encrypts=True, ring=ring("new", "new")))
    with pytest.raises(RemoteKeyMissingError):
        await without.commit_log_segment(metadata, manifest, REPLACED)
    await storage.commit_log_segment(metadata, manifest, REPLACED)


async def test_what_it_replaces_is_under_the_tag(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("aes"))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    fields = json.loads(await content_at(store, ".manifest"))
    await alter(store, ".manifest", json.dumps(fields | {"replaces": fields["replaces"][1:]}).encode())
    with pytest.raises(RemoteIntegrityError, match="its tag does not fit"):
        await storage_over(store, transform_named("aes")).read_manifest(one.metadata)


async def test_a_committed_segment_is_rewrapped_as_any_other(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("aes"))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    rewrapping = KeyRewrapping(store, ring("new"))
    outcomes = [outcome async for outcome in rewrapping.run(ObjectKeyFactory("", CLUSTER))]
    assert [outcome.result for outcome in outcomes] == [RewrapResult.REWRAPPED]
    reader = storage_over(store, Transform(encrypts=True, ring=ring("new", "new")))
    assert await reader.fetch_log_segment(one.metadata, ByteRange(0, 99)) == one.content[:100]


async def test_other_segments_replaced_by_the_same_output_are_a_conflict(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("plain"))
    manifest = await storage.stage_log_segment_data(one.metadata, one.data)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)
    with pytest.raises(RemoteConflictError):
        await storage.commit_log_segment(one.metadata, manifest, REPLACED[:1])


@pytest.mark.parametrize("name", ["plain", "zstd+aes"])
async def test_a_cancellation_anywhere_leaves_what_can_be_staged_and_committed(tmp_path: Path, name: str) -> None:
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
    manifest = await storage.stage_log_segment_data(one.metadata, one.data)
    await storage.commit_log_segment(one.metadata, manifest, REPLACED)


async def test_what_was_staged_is_deleted_like_any_segment(store: MemoryObjectStore, one: Rolled) -> None:
    storage = storage_over(store, transform_named("aes"))
    await storage.stage_log_segment_data(one.metadata, one.data)
    assert len(await storage.list_segment_objects(PARTITION)) == 1
    await storage.delete_log_segment_data(one.metadata)
    assert await store.list_objects("") == []


async def test_what_no_store_should_raise_is_a_storage_error_too(one: Rolled) -> None:
    class Broken(MemoryObjectStore):
        async def put(self, key: str, body: object) -> None:
            raise ZeroDivisionError(key, body)

    with pytest.raises(RemoteStorageError, match="cannot stage segment"):
        await storage_over(Broken(), transform_named("plain")).stage_log_segment_data(one.metadata, one.data)


def test_the_first_and_the_last_chunk_are_always_looked_at() -> None:
    assert sampled_chunks(0) == []
    assert sampled_chunks(3) == [0, 1, 2]
    assert sampled_chunks(5) == [0, 1, 2, 4]
    assert sampled_chunks(256) == [0, 85, 170, 255]
