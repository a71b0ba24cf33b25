"""The bucket as segments: its objects grouped by partition, its manifests read and held against what is there."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final
from uuid import UUID

from tierd.errors import RemoteIntegrityError, RemoteResourceNotFoundError, RemoteStorageError
from tierd.metadata import BucketSegment, RebuildProblem, RebuildSeverity
from tierd.model import (
    EpochEntry,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SoftDelete,
    TopicIdPartition,
    uuid_from_text,
    uuid_to_text,
)
from tierd.remote import ObjectInfo, ObjectKeyFactory, ObjectStore, SegmentKey, SegmentManifest, SegmentStorage

_PAGE: Final = 1000
_SEGMENTS_AT_ONCE: Final = 1024  # tasks at a time; how many of them talk to the store is bounded by the slots
MAX_MANIFEST_BYTES: Final = 16 << 20
"""Some fifty times what the largest segment's takes. Whatever is larger is never read."""
MAX_TOMBSTONE_BYTES: Final = 64 << 10
_LIMITS: Final = ((".manifest", MAX_MANIFEST_BYTES), (".tombstone", MAX_TOMBSTONE_BYTES))
_SUFFIXES: Final = (".log", ".indexes", ".manifest", ".tombstone")


@dataclass(frozen=True, slots=True)
class PartitionObjects:
    """The objects of one partition: per segment, by suffix; and keys that are nobody's."""

    partition: TopicIdPartition
    segments: dict[UUID, dict[str, ObjectInfo]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundSegments:
    """What a partition's objects tell."""

    segments: tuple[BucketSegment, ...]
    problems: tuple[RebuildProblem, ...]


async def list_partition_objects(
    store: ObjectStore, keys: ObjectKeyFactory
) -> AsyncGenerator[PartitionObjects | RebuildProblem, None]:
    """Yield partition after partition below the prefix, and a note for every key that is no segment's.

    The listing comes in pages, in the order of its keys, so that a partition's objects are neighbours.

    Raises:
        RemoteStorageError: the store failed.
    """
    current: PartitionObjects | None = None
    last = ""
    while page := await store.list_objects(keys.root, start_after=last, limit=_PAGE):
        last = page[-1].key
        for info in page:
            parsed = keys.parse(info.key)
            partition = None if parsed is None else _partition_of(parsed)
            if parsed is None or partition is None:
                if info.key != keys.tier_identity:
                    yield RebuildProblem(
                        RebuildSeverity.NOTE, "foreign object", info.key, "it is no object of a segment"
                    )
                continue
            if current is None or current.partition != partition:
                if current is not None:
                    yield current
                current = PartitionObjects(partition)
            suffix = next(suffix for suffix in _SUFFIXES if info.key.endswith(suffix))
            current.segments.setdefault(parsed.segment_id, {})[suffix] = info
    if current is not None:
        yield current


class BucketReader:
    """Reads what manifests and tombstones say.

    Args:
        store: the objects.
        storage: proves manifests of encrypted segments.
        keys: of the cluster's tier.
        concurrency: requests at once, over all partitions.
    """

    def __init__(
        self, store: ObjectStore, storage: SegmentStorage, keys: ObjectKeyFactory, *, concurrency: int = 64
    ) -> None:
        self._store = store
        self._storage = storage
        self._keys = keys
        self._slots = asyncio.Semaphore(concurrency)

    async def read(self, objects: PartitionObjects) -> FoundSegments:
        """Read every manifest of a partition; what is damaged, foreign or half there is a problem, and left out.

        Raises:
            RemoteStorageError: retriable; the store failed.
        """
        found: list[BucketSegment | RebuildProblem] = []
        segments = list(objects.segments.values())
        for start in range(0, len(segments), _SEGMENTS_AT_ONCE):
            some = segments[start : start + _SEGMENTS_AT_ONCE]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._read(objects.partition, each)) for each in some]
            found += [task.result() for task in tasks]
        return FoundSegments(
            tuple(each for each in found if isinstance(each, BucketSegment)),
            tuple(each for each in found if isinstance(each, RebuildProblem)),
        )

    async def _read(
        self, partition: TopicIdPartition, objects: dict[str, ObjectInfo]
    ) -> BucketSegment | RebuildProblem:
        manifest = objects.get(".manifest")
        if manifest is None:
            key = next(iter(objects.values())).key
            what = "a copy that was never finished, or a deletion that was; its objects are in nobody's metadata"
            return RebuildProblem(RebuildSeverity.NOTE, "no manifest", key, what)
        for suffix, limit in _LIMITS:
            if (info := objects.get(suffix)) is not None and info.size_bytes > limit:
                what = f"it has {info.size_bytes} bytes, and no {suffix} has more than {limit}"
                return RebuildProblem(RebuildSeverity.DAMAGE, "too large", info.key, what)
        try:
            async with self._slots:
                return await self._described(partition, manifest.key, objects)
        except RemoteResourceNotFoundError:
            return RebuildProblem(RebuildSeverity.NOTE, "gone", manifest.key, "it was deleted while it was read")
        except RemoteStorageError as error:
            if error.retriable:
                raise
            kind = "damaged" if isinstance(error, RemoteIntegrityError) else "not understood"
            return RebuildProblem(RebuildSeverity.DAMAGE, kind, manifest.key, str(error))

    async def _described(
        self, partition: TopicIdPartition, key: str, objects: dict[str, ObjectInfo]
    ) -> BucketSegment | RebuildProblem:
        manifest = SegmentManifest.decode(await self._store.get(key), key=key)
        try:
            metadata = self._metadata(partition, manifest)
            replaces = frozenset(map(uuid_from_text, manifest.replaces))
        except ValueError as error:
            return RebuildProblem(
                RebuildSeverity.DAMAGE, "damaged", key, f"the manifest contradicts the model: {error}"
            )
        named = (self._keys.segment(metadata, ".manifest"), manifest.cluster_id, manifest.topic_id)
        if named != (key, self._keys.cluster_id, uuid_to_text(partition.topic_id)):
            what = f"the manifest describes another segment: {named[0]} of cluster {manifest.cluster_id}"
            return RebuildProblem(RebuildSeverity.DAMAGE, "foreign manifest", key, what)
        if manifest.encryption is not None:
            await self._storage.read_manifest(metadata)  # its tag proves that nobody changed it
        if ".tombstone" in objects and (tombstone := await self._storage.read_tombstone(metadata)) is not None:
            return BucketSegment(
                metadata=metadata,
                replaces=replaces,
                soft_delete=SoftDelete(tombstone.reason, tombstone.delete_after_ms),
                deleted_ms=tombstone.deleted_at_ms,
                deleted_by=tombstone.broker_id,
            )
        return _problem(manifest, key, objects) or BucketSegment(metadata=metadata, replaces=replaces)

    def _metadata(self, partition: TopicIdPartition, manifest: SegmentManifest) -> RemoteLogSegmentMetadata:
        """The segment as it was when its copy began."""
        if (manifest.topic, manifest.partition) != (partition.topic, partition.partition):
            raise ValueError(f"it is of {manifest.topic}-{manifest.partition}")
        if not -1 <= manifest.leader_epoch < 2**31:  # no leader could claim the partition after it
            raise ValueError(f"its leader epoch is {manifest.leader_epoch}")
        return RemoteLogSegmentMetadata(
            segment=RemoteLogSegmentId(partition, uuid_from_text(manifest.segment_id)),
            start_offset=manifest.start_offset,
            end_offset=manifest.end_offset,
            max_timestamp_ms=manifest.max_timestamp_ms,
            broker_id=manifest.broker_id,
            event_timestamp_ms=manifest.copy_started_ms,
            size_bytes=manifest.size_bytes,
            segment_leader_epochs=_epochs(manifest),
            leader_epoch=manifest.leader_epoch,
            session_id=UUID(manifest.session_id),
            custom_metadata=self._keys.custom_metadata(is_encrypted=manifest.encryption is not None),
            txn_index_empty=manifest.txn_index_empty,
        )


def _partition_of(key: SegmentKey) -> TopicIdPartition | None:
    topic_id = uuid_from_text(key.topic_id)
    if uuid_to_text(topic_id) != key.topic_id or key.partition >= 2**31:
        return None
    return TopicIdPartition(topic_id, key.topic, key.partition)


def _epochs(manifest: SegmentManifest) -> tuple[EpochEntry, ...]:
    entries = tuple(EpochEntry(epoch, start) for epoch, start in manifest.segment_leader_epochs)
    ascending = all(a.epoch < b.epoch and a.start_offset <= b.start_offset for a, b in pairwise(entries))
    inside = all(0 <= entry.epoch < 2**31 and entry.start_offset <= manifest.end_offset for entry in entries)
    if not entries or not ascending or not inside or entries[0].start_offset != manifest.start_offset:
        raise ValueError(f"its leader epochs {manifest.segment_leader_epochs} do not cover it")
    return entries


def _problem(manifest: SegmentManifest, key: str, objects: dict[str, ObjectInfo]) -> RebuildProblem | None:
    for suffix, size_bytes in ((".log", manifest.log.size_bytes), (".indexes", manifest.indexes_size_bytes)):
        info = objects.get(suffix)
        if info is None:
            return RebuildProblem(
                RebuildSeverity.DAMAGE, "missing object", key, f"there is no {suffix} object beside it"
            )
        if info.size_bytes != size_bytes:
            what = f"it has {info.size_bytes} bytes, its manifest says {size_bytes}"
            return RebuildProblem(RebuildSeverity.DAMAGE, "wrong size", info.key, what)
    return None
