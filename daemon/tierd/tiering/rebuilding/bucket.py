"""The bucket as segments: the manifests of a partition, read, proven and compared with the listed objects."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from tierd.errors import (
    RemoteFormatError,
    RemoteIntegrityError,
    RemoteObjectTooLargeError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RemoteUnauthenticatedError,
)
from tierd.metadata import BucketLogStart, BucketSegment, RebuildProblem, RebuildSeverity
from tierd.model import (
    EpochEntry,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    SoftDelete,
    TopicIdPartition,
    uuid_from_text,
    uuid_to_text,
)
from tierd.remote import (
    LOG_START,
    MANIFEST,
    TOMBSTONE,
    ObjectInfo,
    ObjectKeyFactory,
    ObjectKind,
    ObjectStore,
    SegmentManifest,
    SegmentStorage,
    StoredLogStart,
    Tombstone,
    read_whole,
    too_large,
)
from tierd.tiering.rebuilding.partition_objects import PartitionObjects

UNAUTHENTICATED: Final = "unauthenticated"
_SEGMENTS_AT_ONCE: Final = 1024  # tasks at a time; how many of them talk to the store is bounded by the slots
_KINDS: Final = ((".manifest", MANIFEST), (".tombstone", TOMBSTONE))


@dataclass(frozen=True, slots=True)
class FoundSegments:
    """Segments, problems and log start that were found in a partition's objects."""

    segments: tuple[BucketSegment, ...]
    problems: tuple[RebuildProblem, ...]
    log_start: BucketLogStart | None = None


@dataclass(frozen=True, slots=True)
class _ReadObject:
    """Result of the read of one manifest, or of the log start record."""

    segment: BucketSegment | None = None
    log_start: BucketLogStart | None = None
    problems: tuple[RebuildProblem, ...] = ()

    @classmethod
    def of(cls, *problems: RebuildProblem) -> "_ReadObject":
        """Return a result with nothing but problems."""
        return cls(problems=problems)


@dataclass(slots=True)
class _Found:
    """Results of a partition so far."""

    segments: dict[UUID, BucketSegment] = field(default_factory=dict)
    problems: list[RebuildProblem] = field(default_factory=list)
    log_start: BucketLogStart | None = None

    def add(self, read: _ReadObject) -> None:
        """Add what was read. Of two segments with one id the first is kept, and a proven one before any other."""
        self.problems += read.problems
        self.log_start = read.log_start or self.log_start
        if read.segment is None:
            return
        segment = read.segment.metadata.segment
        first = self.segments.setdefault(segment.id, read.segment)
        if first is read.segment:
            return
        self.problems.append(_stored_twice(first, read.segment))
        if read.segment.is_authentic and not first.is_authentic:
            self.segments[segment.id] = read.segment


class BucketReader:
    """Reader of manifests, tombstones and log start records.

    Where a key ring is configured, only objects that a holder of the key ring wrote are believed (decision 31). Any
    other object is a conflict and left out: a segment, a tombstone whose segment stays, a log start that stays unset.

    Args:
        store: the objects.
        storage: proves manifests, tombstones and log starts.
        keys: the keys of the cluster's objects.
        accepts_unauthenticated: believe also objects without proof, and note each.
        concurrency: requests at once, over all partitions.
    """

    def __init__(
        self,
        store: ObjectStore,
        storage: SegmentStorage,
        keys: ObjectKeyFactory,
        *,
        accepts_unauthenticated: bool = False,
        concurrency: int = 64,
    ) -> None:
        self._store = store
        self._storage = storage
        self._keys = keys
        self._accepts_unauthenticated = accepts_unauthenticated
        self._slots = asyncio.Semaphore(concurrency)

    async def read(self, objects: PartitionObjects) -> FoundSegments:
        """Read every manifest of a partition; what is damaged, foreign or half there is a problem, and left out.

        Raises:
            RemoteStorageError: retriable; the store failed.
        """
        found = _Found()
        segments = list(objects.segments.values())
        for start in range(0, len(segments), _SEGMENTS_AT_ONCE):
            some = segments[start : start + _SEGMENTS_AT_ONCE]
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._read(objects.partition, each)) for each in some]
            for task in tasks:
                found.add(task.result())
        if objects.log_start is not None:
            found.add(await self._log_start(objects.partition, objects.log_start))
        return FoundSegments(tuple(found.segments.values()), tuple(found.problems), found.log_start)

    async def _log_start(self, partition: TopicIdPartition, info: ObjectInfo) -> "_ReadObject":
        if info.size_bytes > LOG_START.max_bytes:
            return _ReadObject.of(_too_large(info, LOG_START))
        try:
            async with self._slots:
                stored = await self._storage.log_starts.read(partition)
        except RemoteStorageError as error:
            if error.retriable:
                raise
            return _ReadObject.of(RebuildProblem(RebuildSeverity.DAMAGE, "not understood", info.key, str(error)))
        if stored is None:
            return _ReadObject()  # deleted since it was listed: the whole partition goes
        return self._judged(stored, info.key)

    def _judged(self, stored: StoredLogStart, key: str) -> "_ReadObject":
        record, problems = stored.record, []
        if stored.unauthenticated is not None:
            problems.append(self._unauthenticated(key, stored.damage))
            record = stored.unauthenticated if self._accepts_unauthenticated else None
        elif record is None:
            problems.append(RebuildProblem(RebuildSeverity.DAMAGE, "damaged", key, stored.damage))
        if record is None:
            return _ReadObject.of(*problems)
        found = BucketLogStart(
            log_start_offset=record.log_start_offset, leader_epoch=record.leader_epoch, broker_id=record.broker_id
        )
        return _ReadObject(log_start=found, problems=tuple(problems))

    async def _read(self, partition: TopicIdPartition, objects: Mapping[str, ObjectInfo]) -> "_ReadObject":
        manifest = objects.get(".manifest")
        if manifest is None:
            key = next(iter(objects.values())).key
            what = "a copy that was never finished, or a deletion that was; no metadata names its objects"
            return _ReadObject.of(RebuildProblem(RebuildSeverity.NOTE, "no manifest", key, what))
        if (problem := self._never_read(objects)) is not None:
            return _ReadObject.of(problem)
        try:
            async with self._slots:
                return await self._described(partition, manifest.key, objects)
        except RemoteResourceNotFoundError:
            return _ReadObject.of(
                RebuildProblem(RebuildSeverity.NOTE, "gone", manifest.key, "it was deleted while it was read")
            )
        except RemoteStorageError as error:
            if error.retriable:
                raise
            kind = "damaged" if isinstance(error, RemoteIntegrityError) else "not understood"
            return _ReadObject.of(RebuildProblem(RebuildSeverity.DAMAGE, kind, manifest.key, str(error)))

    def _never_read(self, objects: Mapping[str, ObjectInfo]) -> RebuildProblem | None:
        """Return the problem of a segment whose manifest or tombstone is never read.

        A tombstone that is larger than any cannot be proven, so with a key ring it hides no segment.
        """
        for suffix, kind in _KINDS:
            info = objects.get(suffix)
            if info is None or info.size_bytes <= kind.max_bytes:
                continue
            if kind is not TOMBSTONE or not self._storage.asks_for_proof:
                return _too_large(info, kind)
        return None

    async def _described(
        self, partition: TopicIdPartition, key: str, objects: Mapping[str, ObjectInfo]
    ) -> "_ReadObject":
        content, problems = await read_whole(self._store, key, MANIFEST), list[RebuildProblem]()
        try:
            manifest = self._storage.prove_manifest(content, key=key)
            is_authentic = True
        except RemoteUnauthenticatedError as error:
            problems.append(self._unauthenticated(key, str(error)))
            if not self._accepts_unauthenticated:
                return _ReadObject.of(*problems)
            manifest, is_authentic = SegmentManifest.decode(content, key=key), False
        except ValueError as error:
            return _ReadObject.of(_contradiction(key, error))
        found = self._segment(partition, key, manifest, is_authentic=is_authentic)
        if isinstance(found, RebuildProblem):
            return _ReadObject.of(*problems, found)
        tombstone = None
        if (info := objects.get(".tombstone")) is not None:
            tombstone, doubts = await self._tombstone(found.metadata, info)
            problems += doubts
        if tombstone is None and (problem := _problem(manifest, key, objects)) is not None:
            return _ReadObject.of(*problems, problem)
        return _ReadObject(_with_tombstone(found, tombstone), problems=tuple(problems))

    def _segment(
        self, partition: TopicIdPartition, key: str, manifest: SegmentManifest, *, is_authentic: bool
    ) -> BucketSegment | RebuildProblem:
        """Return the segment that the manifest at ``key`` describes, if it is the one of that key."""
        parsed = self._keys.parse(key)
        assert parsed is not None, "only keys of segments are read"
        keys = self._keys.form_of(parsed)
        try:
            metadata = self._metadata(keys, partition, manifest)
            replaces = frozenset(map(uuid_from_text, manifest.replaces))
        except ValueError as error:
            return _contradiction(key, error)
        named = (keys.segment(metadata, ".manifest"), manifest.cluster_id, manifest.topic_id)
        if named != (key, self._keys.cluster_id, uuid_to_text(partition.topic_id)):
            what = f"the manifest describes another segment: {named[0]} of cluster {manifest.cluster_id}"
            return RebuildProblem(RebuildSeverity.DAMAGE, "foreign manifest", key, what)
        return BucketSegment(metadata=metadata, replaces=replaces, is_authentic=is_authentic)

    async def _tombstone(
        self, metadata: RemoteLogSegmentMetadata, info: ObjectInfo
    ) -> tuple[Tombstone | None, list[RebuildProblem]]:
        """Return the tombstone as far as it is believed, and why it is not."""
        try:
            return await self._storage.read_tombstone(metadata), []
        except RemoteUnauthenticatedError as error:
            doubts = [self._unauthenticated(info.key, str(error))]
        except RemoteStorageError as error:
            if not self._storage.asks_for_proof or not _is_unseen(error):
                raise
            return None, [RebuildProblem(RebuildSeverity.CONFLICT, UNAUTHENTICATED, info.key, str(error))]
        if not self._accepts_unauthenticated:
            return None, doubts
        return await self._storage.read_tombstone(metadata, accepts_unauthenticated=True), doubts

    def _unauthenticated(self, key: str, why: str) -> RebuildProblem:
        """Return a conflict, which is a note once a person has said that such objects are believed."""
        if self._accepts_unauthenticated:
            return RebuildProblem(RebuildSeverity.NOTE, UNAUTHENTICATED, key, f"accepted as asked for: {why}")
        return RebuildProblem(RebuildSeverity.CONFLICT, UNAUTHENTICATED, key, why)

    def _metadata(
        self, keys: ObjectKeyFactory, partition: TopicIdPartition, manifest: SegmentManifest
    ) -> RemoteLogSegmentMetadata:
        """Return the segment as it was when its copy began."""
        if (manifest.topic, manifest.partition) != (partition.topic, partition.partition):
            raise ValueError(f"it is of {manifest.topic}-{manifest.partition}")
        return RemoteLogSegmentMetadata(
            segment=RemoteLogSegmentId(partition, uuid_from_text(manifest.segment_id)),
            start_offset=manifest.start_offset,
            end_offset=manifest.end_offset,
            max_timestamp_ms=manifest.max_timestamp_ms,
            broker_id=manifest.broker_id,
            event_timestamp_ms=manifest.copy_started_ms,
            size_bytes=manifest.size_bytes,
            segment_leader_epochs=tuple(EpochEntry(*entry) for entry in manifest.segment_leader_epochs),
            leader_epoch=manifest.leader_epoch,
            session_id=UUID(manifest.session_id),
            custom_metadata=keys.custom_metadata(partition.topic, is_encrypted=manifest.encryption is not None),
            txn_index_empty=manifest.txn_index_empty,
        )


def _stored_twice(first: BucketSegment, second: BucketSegment) -> RebuildProblem:
    """Return the problem of two segments with one id, of which one is left out."""
    where, other = str(first.metadata.segment), second.metadata
    is_same = (first.metadata.start_offset, first.is_authentic) == (other.start_offset, second.is_authentic)
    if is_same:  # an authentic id has one start offset; the name of a long topic has two forms
        what = "its objects are there a second time, under the other form of the topic's name"
        return RebuildProblem(RebuildSeverity.NOTE, "stored twice", where, what)
    starts = f"offsets {first.metadata.start_offset} and {other.start_offset}"
    what = f"two segments that begin at {starts} have this id; one that is proven is kept, or else the first"
    return RebuildProblem(RebuildSeverity.CONFLICT, "stored twice", where, what)


def _is_unseen(error: RemoteStorageError) -> bool:
    """Return whether the store does not show an object, or only so much that nothing can be said of it."""
    is_read = isinstance(error, (RemoteIntegrityError, RemoteFormatError))
    return isinstance(error, RemoteObjectTooLargeError) or not (is_read or error.retriable)


def _contradiction(key: str, error: ValueError) -> RebuildProblem:
    what = f"the manifest contradicts the model: {error}"
    return RebuildProblem(RebuildSeverity.DAMAGE, "damaged", key, what)


def _too_large(info: ObjectInfo, kind: ObjectKind) -> RebuildProblem:
    """Return the problem of an object that the listing shows to be larger than any of its kind."""
    error = too_large(info.key, f"{info.size_bytes} bytes", kind)
    return RebuildProblem(RebuildSeverity.DAMAGE, "too large", info.key, str(error))


def _with_tombstone(segment: BucketSegment, tombstone: Tombstone | None) -> BucketSegment:
    if tombstone is None:
        return segment
    return replace(
        segment,
        soft_delete=SoftDelete(tombstone.reason, tombstone.delete_after_ms),
        deleted_ms=tombstone.deleted_at_ms,
        deleted_by=tombstone.broker_id,
    )


def _problem(manifest: SegmentManifest, key: str, objects: Mapping[str, ObjectInfo]) -> RebuildProblem | None:
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
