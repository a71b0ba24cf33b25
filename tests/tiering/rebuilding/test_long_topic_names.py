"""Topics with names of every legal length: stored, listed, rebuilt from the bucket, read and deleted."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.fakes.memory_object_store import MemoryObjectStore
from tests.services.s3 import S3Service
from tests.tiering.rebuilding.tier import CONTENT, OBJECT_KEYS, FilledTier, rebuilt, view_in
from tierd.errors import RemoteResourceNotFoundError
from tierd.metadata import MemoryKeyValueStore, RebuildSeverity
from tierd.model import ByteRange, TopicIdPartition
from tierd.remote import ObjectStore
from tierd.remote.backends.files import FilesystemObjectStore
from tierd.remote.backends.s3 import S3Bucket, S3Keys, S3ObjectStore

LENGTHS = range(1, 250)


def partition_of_length(length: int, number: int = 0) -> TopicIdPartition:
    return TopicIdPartition(UUID(int=(2**128 - 1) ^ (length << 8)), ("long.topic-name_" * 16)[:length], number)


async def fill(tier: FilledTier, lengths: range) -> list[TopicIdPartition]:
    await tier.claim()
    partitions = [partition_of_length(length) for length in lengths]
    for partition in partitions:
        await tier.lead(partition)
        await tier.copy(0, 9, partition=partition)
    return partitions


async def require_round_trip(tier: FilledTier, lengths: range) -> None:
    """Fill the tier, rebuild its metadata from the bucket, compare row by row, read, and delete by the new rows."""
    partitions = await fill(tier, lengths)
    report, rows = await rebuilt(tier.store, MemoryKeyValueStore())
    assert not [each for each in report.problems if each.severity is not RebuildSeverity.NOTE]
    for partition in partitions:
        ours, theirs = await view_in(tier.metadata, partition), await view_in(rows, partition)
        assert [(m.segment, m.custom_metadata) for m in theirs.list()] == [
            (m.segment, m.custom_metadata) for m in ours.list()
        ]
        (row,) = theirs.list()
        assert await tier.storage.fetch_log_segment(row, ByteRange(0, len(CONTENT) - 1)) == CONTENT
        assert len(await tier.storage.list_segment_objects(partition)) == 1
        await tier.storage.delete_log_segment_data(row)
    assert [info.key for info in await tier.store.list_objects("")] == [OBJECT_KEYS.tier_identity]


async def test_topics_of_every_length_are_rebuilt_from_a_directory(tmp_path: Path) -> None:
    store = FilesystemObjectStore(tmp_path / "tier")
    await require_round_trip(FilledTier(tmp_path, store), LENGTHS)
    await store.close()


@pytest.mark.service("s3")
async def test_topics_with_long_names_are_rebuilt_from_an_s3_server_on_a_file_system(
    tmp_path: Path, s3_service: S3Service, s3_bucket: str
) -> None:
    store = s3_store(s3_service, s3_bucket)
    await require_round_trip(FilledTier(tmp_path, store), range(230, 250))
    await store.close()


def s3_store(service: S3Service, bucket: str) -> S3ObjectStore:
    return S3ObjectStore(
        S3Bucket(name=bucket, endpoint_url=service.endpoint_url, region=service.region, path_style=True),
        keys=S3Keys(access_key_id=service.access_key_id, secret_access_key=service.secret_access_key),
    )


async def respell(store: ObjectStore, partition: TopicIdPartition) -> None:
    """Move the objects of a partition to the keys of earlier versions of tierd."""
    now, before = OBJECT_KEYS.forms(partition.topic)
    for info in await store.list_objects(now.partition_prefix(partition)):
        await store.put(
            info.key.replace(now.partition_prefix(partition), before.partition_prefix(partition)),
            await store.get(info.key),
        )
        await store.delete(info.key)


async def test_objects_of_a_long_topic_name_under_old_and_new_keys_are_rebuilt_together(tmp_path: Path) -> None:
    tier = FilledTier(tmp_path, MemoryObjectStore())
    partition = partition_of_length(249)
    await tier.claim()
    await tier.lead(partition)
    first = await tier.copy(0, 9, partition=partition)
    await respell(tier.store, partition)
    second = await tier.copy(10, 19, partition=partition)
    assert first.custom_metadata == b"\x03tiers/a"

    report, rows = await rebuilt(tier.store)
    assert not report.problems
    found = sorted((await view_in(rows, partition)).list(), key=lambda row: row.start_offset)
    assert [row.segment for row in found] == [first.segment, second.segment]
    assert [row.custom_metadata for row in found] == [b"\x01tiers/a", b"\x03tiers/a"]
    for row in found:
        assert await tier.storage.fetch_log_segment(row, ByteRange(0, 6)) == CONTENT[:7]
    assert len(await tier.storage.list_segment_objects(partition)) == 2


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.service("s3"))])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "directory":
        return FilesystemObjectStore(tmp_path / "tier")
    return s3_store(request.getfixturevalue("s3_service"), request.getfixturevalue("s3_bucket"))


async def test_segment_whose_old_keys_are_too_long_for_the_store_is_not_found(
    any_store: ObjectStore, tmp_path: Path
) -> None:
    tier = FilledTier(tmp_path, any_store)
    partition = partition_of_length(249)
    await tier.claim()
    await tier.lead(partition)
    row = await tier.copy(0, 9, partition=partition, through="started")
    row = replace(row, custom_metadata=b"\x01tiers/a")
    assert not await tier.storage.objects_present(row)
    assert await tier.storage.read_tombstone(row) is None
    with pytest.raises(RemoteResourceNotFoundError):
        await tier.storage.read_manifest(row)
    with pytest.raises(RemoteResourceNotFoundError):
        await any_store.get(OBJECT_KEYS.forms(partition.topic)[1].segment(row, ".log"), ByteRange(0, 5))
    assert await tier.storage.list_segment_objects(partition) == {}
    await tier.storage.delete_log_segment_data(row)
    await any_store.close()
