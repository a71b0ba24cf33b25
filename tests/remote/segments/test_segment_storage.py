import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.contracts.remote_storage import RemoteStorageContract, Rolled, rolled
from tests.fakes.memory_object_store import MemoryObjectStore
from tests.fakes.remote_segments import PARTITION, segment
from tests.fakes.transforms import KEY_SEED, transform_named
from tests.services.s3 import S3Service
from tierd.errors import (
    RemoteConflictError,
    RemoteIntegrityError,
    RemoteObjectRetainedError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)
from tierd.model import ByteRange, IndexType
from tierd.remote import Body, ObjectInfo, ObjectStore, SegmentStorage, Tombstone, Transform, UnfinishedUpload
from tierd.remote.backends.client_settings import PartLimits
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.remote.backends.s3 import S3Bucket, S3Keys, S3ObjectStore
from tierd.remote.transform.transform import PLAIN
from tierd.testing import content_of

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
TOMBSTONE = Tombstone("retention-time", deleted_at_ms=5, delete_after_ms=3_600_005, broker_id=1, detail="too old")
FOLDER = f"pre/fix/{CLUSTER}/orders-AAAAAAAAAAAAAAAAAAAABw/0/"


def storage_over(store: ObjectStore, transform: Transform = PLAIN) -> SegmentStorage:
    return SegmentStorage(
        store, cluster_id=CLUSTER, broker_id=1, key_prefix="pre/fix", chunk_size=1 << 20, transform=transform
    )


class TestSegmentStorageInMemory(RemoteStorageContract):
    @pytest.fixture
    def objects(self) -> MemoryObjectStore:
        return MemoryObjectStore()


class TestSegmentStorageOnDisk(RemoteStorageContract):
    @pytest.fixture
    async def objects(self, tmp_path: Path) -> AsyncIterator[FilesystemObjectStore]:
        store = FilesystemObjectStore(tmp_path / "tier")
        yield store
        await store.close()


@pytest.mark.service("s3")
class TestSegmentStorageInS3(RemoteStorageContract):
    @pytest.fixture
    async def objects(self, s3_service: S3Service, s3_bucket: str) -> AsyncIterator[S3ObjectStore]:
        store = S3ObjectStore(
            S3Bucket(name=s3_bucket, endpoint_url=s3_service.endpoint_url, region=s3_service.region, path_style=True),
            keys=S3Keys(access_key_id=s3_service.access_key_id, secret_access_key=s3_service.secret_access_key),
            parts=PartLimits(part_size=5 << 20),
        )
        yield store
        await store.close()


class OrderedStore(MemoryObjectStore):
    """Remembers the order of what is written and removed."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[str] = []

    async def put(self, key: str, body: Body) -> None:
        self.changes.append(f"put {key.rpartition('.')[2]}")
        await super().put(key, body)

    async def delete(self, key: str) -> None:
        self.changes.append(f"delete {key.rpartition('.')[2]}")
        await super().delete(key)


@pytest.fixture
def store() -> OrderedStore:
    return OrderedStore()


@pytest.fixture
def storage(store: OrderedStore) -> SegmentStorage:
    return storage_over(store)


@pytest.fixture
def one(tmp_path: Path) -> Rolled:
    return rolled(tmp_path, content_of((2 << 20) + 3), start_offset=1234)


async def test_the_manifest_is_written_last_and_the_tombstone_removed_last(
    storage: SegmentStorage, store: OrderedStore, one: Rolled
) -> None:
    await storage.copy_log_segment_data(one.metadata, one.data)
    await storage.delete_log_segment_data(one.metadata)
    assert store.changes == [
        "put log",
        "put indexes",
        "put manifest",
        "delete log",
        "delete indexes",
        "delete manifest",
        "delete tombstone",
    ]


async def test_keys_name_cluster_topic_id_partition_offset_and_segment(
    storage: SegmentStorage, store: OrderedStore, tmp_path: Path
) -> None:
    data = rolled(tmp_path, b"x").data
    metadata = segment(1234, 1240, segment_id=UUID(int=0xABC), size_bytes=1)
    await storage.copy_log_segment_data(metadata, data)
    stem = f"{FOLDER}00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA"
    assert [info.key for info in await store.list_objects("")] == [
        f"{stem}.indexes",
        f"{stem}.log",
        f"{stem}.manifest",
    ]


async def test_manifest_of_a_copy_describes_all_its_objects(
    storage: SegmentStorage, store: OrderedStore, one: Rolled
) -> None:
    await storage.copy_log_segment_data(one.metadata, one.data)
    manifest = await storage.read_manifest(one.metadata)
    key = next(info.key for info in await store.list_objects("") if info.key.endswith(".manifest"))
    fields = json.loads(await store.get(key))
    assert fields["format_version"] == 1
    assert (fields["cluster_id"], fields["topic"], fields["partition"]) == (CLUSTER, "orders", 0)
    assert fields["topic_id"] == "AAAAAAAAAAAAAAAAAAAABw"
    assert (fields["start_offset"], fields["end_offset"], fields["size_bytes"]) == (1234, 1243, len(one.content))
    assert fields["segment_leader_epochs"] == [[0, 1234]]
    assert [chunk["size_bytes"] for chunk in fields["log"]["chunks"]] == [1 << 20, 1 << 20, 3]
    assert fields["indexes"]["transaction"]["position"] == len(b"offset index")
    assert (fields["compression"], fields["encryption"], fields["replaces"]) == ({"type": "none"}, None, [])
    assert manifest.log.chunks[2].size_bytes == 3


async def test_a_changed_prefix_does_not_orphan_old_segments(
    storage: SegmentStorage, store: OrderedStore, one: Rolled
) -> None:
    custom_metadata = await storage.copy_log_segment_data(one.metadata, one.data)
    assert custom_metadata == b"\x01pre/fix"
    elsewhere = SegmentStorage(store, cluster_id=CLUSTER, broker_id=1, key_prefix="another")
    recorded = replace(one.metadata, custom_metadata=custom_metadata)
    assert await elsewhere.fetch_log_segment(recorded, ByteRange(0, 1)) == one.content[:2]
    await elsewhere.delete_log_segment_data(recorded)
    assert await store.list_objects("") == []


@pytest.mark.spec("remote-tiering 238")
async def test_the_directory_of_a_deleted_partition_goes_with_its_segments(tmp_path: Path) -> None:
    store = FilesystemObjectStore(tmp_path / "tier")
    storage = storage_over(store)
    for number in range(10):
        each = rolled(tmp_path, content_of(1000, seed=number), start_offset=10 * number)
        await storage.copy_log_segment_data(each.metadata, each.data)
        await storage.write_tombstone(each.metadata, TOMBSTONE)
    listed = await storage.list_segment_objects(PARTITION)
    assert {len(objects) for objects in listed.values()} == {4}
    for segment_id in listed:
        start = int(listed[segment_id][0].key.rpartition("/")[2][:20])
        await storage.delete_log_segment_data(segment(start, start + 9, segment_id=segment_id))
    assert await store.list_objects("") == []
    assert not (tmp_path / "tier" / FOLDER).exists()
    await store.close()


@pytest.mark.spec("remote-tiering 239")
async def test_objects_stay_where_the_store_refuses_to_delete(one: Rolled) -> None:
    store = MemoryObjectStore()
    storage = storage_over(store)
    await storage.copy_log_segment_data(one.metadata, one.data)
    before = await store.list_objects("")
    store.retained = {info.key for info in before}
    with pytest.raises(RemoteObjectRetainedError):
        await storage.delete_log_segment_data(one.metadata)
    assert await store.list_objects("") == before
    assert await storage.fetch_log_segment(one.metadata, ByteRange(0, 9999)) == one.content[:10_000]


async def test_the_first_tombstone_stays(storage: SegmentStorage, one: Rolled) -> None:
    assert await storage.read_tombstone(one.metadata) is None
    await storage.write_tombstone(one.metadata, TOMBSTONE)
    await storage.write_tombstone(one.metadata, replace(TOMBSTONE, reason="operator", deleted_at_ms=9))
    assert await storage.read_tombstone(one.metadata) == TOMBSTONE
    await storage.remove_tombstone(one.metadata)
    await storage.remove_tombstone(one.metadata)
    assert await storage.read_tombstone(one.metadata) is None


async def test_object_that_is_no_tombstone_in_its_place_is_damage(
    storage: SegmentStorage, store: OrderedStore, one: Rolled
) -> None:
    await storage.write_tombstone(one.metadata, TOMBSTONE)
    (info,) = await store.list_objects("")
    await store.delete(info.key)
    await store.put(info.key, b"{}")
    for call in (storage.write_tombstone(one.metadata, TOMBSTONE), storage.read_tombstone(one.metadata)):
        with pytest.raises(RemoteIntegrityError, match="is no tombstone"):
            await call


@pytest.mark.parametrize("missing", [".log", ".indexes", ".manifest"])
async def test_a_segment_is_present_only_with_all_three_objects(
    storage: SegmentStorage, store: OrderedStore, one: Rolled, missing: str
) -> None:
    assert not await storage.objects_present(one.metadata)
    await storage.copy_log_segment_data(one.metadata, one.data)
    assert await storage.objects_present(one.metadata)
    (key,) = [info.key for info in await store.list_objects("") if info.key.endswith(missing)]
    await store.delete(key)
    assert not await storage.objects_present(one.metadata)


async def test_log_is_required_to_be_there_with_the_size_of_the_manifest(
    storage: SegmentStorage, store: OrderedStore, one: Rolled
) -> None:
    await storage.copy_log_segment_data(one.metadata, one.data)
    await storage.require_whole_log(one.metadata)
    (key,) = [info.key for info in await store.list_objects("") if info.key.endswith(".log")]
    content = await store.get(key)
    await store.delete(key)
    with pytest.raises(RemoteResourceNotFoundError):
        await storage.require_whole_log(one.metadata)
    await store.put(key, content[:-1])
    with pytest.raises(RemoteIntegrityError, match="the manifest says"):
        await storage.require_whole_log(one.metadata)


async def test_a_finished_copy_of_another_process_is_found_to_be_there(
    storage: SegmentStorage, store: OrderedStore, tmp_path: Path, one: Rolled
) -> None:
    first, second = (storage_over(store, transform_named("aes")) for _ in range(2))
    await first.copy_log_segment_data(one.metadata, one.data)
    keys = await store.list_objects("")
    await second.copy_log_segment_data(one.metadata, one.data)
    assert await store.list_objects("") == keys
    with pytest.raises(RemoteConflictError):  # it must be as asked for: encrypted or not
        await storage.copy_log_segment_data(one.metadata, one.data)
    other = rolled(tmp_path, content_of(len(one.content), seed=5), start_offset=1234)
    with pytest.raises(RemoteConflictError):
        await second.copy_log_segment_data(one.metadata, other.data)


async def test_copy_over_leftovers_removes_them_before_it_writes_and_ends_with_the_manifest(
    store: OrderedStore, one: Rolled
) -> None:
    await storage_over(store, transform_named("aes")).stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    store.changes.clear()
    await storage_over(store, transform_named("aes")).copy_log_segment_data(one.metadata, one.data)
    assert store.changes == [
        "put log",
        "delete log",
        "delete indexes",
        "put log",
        "put indexes",
        "put manifest",
    ]


async def test_copy_removes_nothing_while_it_is_not_known_whether_a_manifest_is_there(
    store: OrderedStore, one: Rolled, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(key: str) -> ObjectInfo:
        raise RetriableRemoteStorageError(f"{key}: no answer")

    await storage_over(store, transform_named("aes")).stage_log_segment_data(one.metadata, one.data, key_seed=KEY_SEED)
    monkeypatch.setattr(store, "head", unknown)
    with pytest.raises(RetriableRemoteStorageError):
        await storage_over(store, transform_named("aes")).copy_log_segment_data(one.metadata, one.data)
    assert not [change for change in store.changes if change.startswith("delete")]


async def test_custom_metadata_of_an_encrypted_segment_demands_encryption(store: OrderedStore, one: Rolled) -> None:
    encrypting = storage_over(store, transform_named("aes"))
    assert encrypting.custom_metadata(one.metadata) == b"\x02pre/fix"
    recorded = replace(one.metadata, custom_metadata=b"\x02pre/fix")
    assert encrypting.has_configured_prefix(recorded)
    await storage_over(store).copy_log_segment_data(one.metadata, one.data)  # an intruder puts a plain one there
    assert await encrypting.fetch_log_segment(one.metadata, ByteRange(0, 3)) == one.content[:4]
    with pytest.raises(RemoteIntegrityError, match="is not encrypted, the metadata says that it is"):
        await storage_over(store, transform_named("aes")).fetch_log_segment(recorded, ByteRange(0, 3))


async def test_custom_metadata_of_another_version_is_refused(storage: SegmentStorage, one: Rolled) -> None:
    with pytest.raises(RemoteStorageError, match="custom metadata"):
        await storage.fetch_log_segment(replace(one.metadata, custom_metadata=b"\x03x"), ByteRange(0, 1))


async def test_damaged_index_is_refused(store: OrderedStore, one: Rolled) -> None:
    await storage_over(store).copy_log_segment_data(one.metadata, one.data)
    key = next(info.key for info in await store.list_objects("") if info.key.endswith(".indexes"))
    content = await store.get(key)
    await store.delete(key)
    await store.put(key, bytes(len(content)))
    with pytest.raises(RemoteIntegrityError, match="offset index is damaged: it does not match"):
        await storage_over(store).fetch_index(one.metadata, IndexType.OFFSET)


async def test_the_manifest_of_another_segment_is_refused(store: OrderedStore, one: Rolled) -> None:
    await storage_over(store).copy_log_segment_data(one.metadata, one.data)
    for other in (
        replace(one.metadata, end_offset=one.metadata.end_offset + 1),
        replace(one.metadata, size_bytes=one.metadata.size_bytes + 1),
    ):
        with pytest.raises(RemoteIntegrityError, match="describes another segment"):
            await storage_over(store).fetch_index(other, IndexType.OFFSET)


async def test_a_manifest_is_read_once_for_many_indexes(one: Rolled) -> None:
    gets: list[str] = []

    class CountingStore(MemoryObjectStore):
        async def get(self, key: str, byte_range: ByteRange | None = None) -> bytes:
            gets.append(key.rpartition(".")[2])
            return await super().get(key, byte_range)

    storage = storage_over(CountingStore())
    await storage.copy_log_segment_data(one.metadata, one.data)
    for kind in IndexType:
        await storage.fetch_index(one.metadata, kind)
    assert gets == ["manifest"] + ["indexes"] * 5  # the time index of this segment is empty


async def test_unexpected_exception_of_a_store_becomes_a_storage_error(one: Rolled) -> None:
    class BrokenStore(MemoryObjectStore):
        async def put(self, key: str, body: Body) -> None:
            raise ZeroDivisionError("a bug")

        async def delete(self, key: str) -> None:
            raise KeyError("another")

    storage = storage_over(BrokenStore())
    with pytest.raises(RemoteStorageError, match="ZeroDivisionError: a bug"):
        await storage.copy_log_segment_data(one.metadata, one.data)
    with pytest.raises(RemoteStorageError, match="cannot delete segment orders-0:"):
        await storage.delete_log_segment_data(one.metadata)


async def test_objects_of_a_partition_are_listed_by_segment(
    storage: SegmentStorage, store: OrderedStore, one: Rolled
) -> None:
    await storage.copy_log_segment_data(one.metadata, one.data)
    await store.put(f"{FOLDER}README", b"not ours")
    listed = await storage.list_segment_objects(PARTITION)
    assert list(listed) == [one.metadata.segment.id]
    assert [info.key.rpartition(".")[2] for info in listed[one.metadata.segment.id]] == ["indexes", "log", "manifest"]


async def test_unfinished_uploads_are_listed_with_topic_and_segment(one: Rolled) -> None:
    segment_key = f"{FOLDER}00000000000000001234-AAAAAAAAAAAAAAAAAAAKvA.log"
    uploads = [
        UnfinishedUpload(segment_key, "1", 0),
        UnfinishedUpload(f"pre/fix/{CLUSTER}/something else", "2", 0),
    ]

    class StoreWithUploads(MemoryObjectStore):
        async def list_unfinished_uploads(self, prefix: str) -> list[UnfinishedUpload]:
            assert prefix == f"pre/fix/{CLUSTER}/"
            return uploads

    found = await storage_over(StoreWithUploads()).list_unfinished_uploads()
    assert [(u.topic_id, u.segment_id) for u in found] == [
        ("AAAAAAAAAAAAAAAAAAAABw", UUID(int=0xABC)),
        (None, None),
    ]


@pytest.mark.parametrize("chunk_size", [0, 1000, (1 << 20) + 1])
def test_a_chunk_size_that_cuts_checksum_blocks_is_refused(chunk_size: int) -> None:
    with pytest.raises(ValueError, match="multiple"):
        SegmentStorage(MemoryObjectStore(), cluster_id=CLUSTER, broker_id=1, chunk_size=chunk_size)
