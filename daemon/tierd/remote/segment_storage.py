"""SegmentStorage: a segment as three objects in an ObjectStore, the manifest last (DESIGN 4, remote-tiering 4)."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple
from uuid import UUID

from tierd.errors import RemoteIntegrityError, RemoteResourceNotFoundError, RemoteStorageError
from tierd.kernels import crc32c
from tierd.model import (
    CHECKSUM_BLOCK_BYTES,
    ByteRange,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
)
from tierd.remote.keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX, ObjectKeyFactory, SegmentKey
from tierd.remote.manifest import SegmentManifest, index_contents, tierd_version
from tierd.remote.object_store import FileBody, ObjectInfo, ObjectStore, UnfinishedUpload

_MANIFESTS_KEPT = 64


class UnfinishedSegmentUpload(NamedTuple):
    """An unfinished upload below our prefix; the ids are None where the key is not that of a segment's object."""

    upload: UnfinishedUpload
    topic_id: str | None
    segment_id: UUID | None


class SegmentStorage:
    """The ``RemoteStorageManager`` over any ``ObjectStore``.

    Args:
        store: where the objects go.
        cluster_id: part of every key.
        broker_id: recorded in manifests.
        key_prefix: of new segments; older ones are found by their custom metadata.
        chunk_size: bytes per checksum in a manifest, a multiple of 1 MiB.
    """

    def __init__(
        self, store: ObjectStore, *, cluster_id: str, broker_id: int, key_prefix: str = "", chunk_size: int = 4 << 20
    ) -> None:
        if chunk_size <= 0 or chunk_size % CHECKSUM_BLOCK_BYTES:
            raise ValueError(f"chunk_size {chunk_size} is not a multiple of {CHECKSUM_BLOCK_BYTES} bytes")
        self._store = store
        self._keys = ObjectKeyFactory(key_prefix, cluster_id)
        self._broker_id = broker_id
        self._chunk_size = chunk_size
        self._tierd_version = tierd_version()
        self._manifests: OrderedDict[str, SegmentManifest] = OrderedDict()

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        """Return the key prefix: everything else in a segment's keys follows from its metadata."""
        del metadata  # the same for every segment, until the configured prefix changes
        return self._keys.custom_metadata()

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes:
        """Store log, indexes and manifest, in this order; a reader that sees the manifest finds the others."""
        size = data.log_checksums.size_bytes
        body = FileBody(data.log, ByteRange.of_size(0, size) if size else None, data.log_checksums)
        with _storage_errors("copy", metadata):
            keys = self._keys_of(metadata)
            manifest = SegmentManifest.describe(
                metadata,
                data,
                cluster_id=self._keys.cluster_id,
                broker_id=self._broker_id,
                chunk_size=self._chunk_size,
                tierd_version=self._tierd_version,
            )
            await self._store.put(keys.segment(metadata, LOG_SUFFIX), body)
            await self._store.put(keys.segment(metadata, INDEXES_SUFFIX), b"".join(index_contents(data).values()))
            await self._store.put(keys.segment(metadata, MANIFEST_SUFFIX), manifest.encode())
        return keys.custom_metadata()

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Return the log's bytes in ``byte_range``, clipped at its end; empty when past it.

        Raises:
            RemoteResourceNotFoundError: the object is not there.
            RemoteIntegrityError: the object is shorter than the segment was.
        """
        with _storage_errors("fetch", metadata):
            clipped = byte_range.clipped(metadata.size_bytes)
            if clipped is None:
                return b""
            key = self._keys_of(metadata).segment(metadata, LOG_SUFFIX)
            content = await self._store.get(key, clipped)
            if len(content) != clipped.size:
                raise RemoteIntegrityError(
                    f"{key}: bytes {clipped.start}-{clipped.end} are {len(content)} bytes",
                    remedy="run tierd verify; the object was cut short or replaced",
                )
            return content

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one artefact, checked against the checksum in the manifest.

        Raises:
            RemoteResourceNotFoundError: it is not there; normal for ``TRANSACTION``.
            RemoteIntegrityError: its bytes are not those that were stored.
        """
        with _storage_errors("fetch", metadata):
            artefact = (await self.read_manifest(metadata)).index(index_type)
            key = self._keys_of(metadata).segment(metadata, INDEXES_SUFFIX)
            if artefact is None:
                raise RemoteResourceNotFoundError(f"{key}: the segment has no {index_type.value} index")
            if not artefact.size_bytes:
                return b""
            content = await self._store.get(key, ByteRange.of_size(artefact.position, artefact.size_bytes))
            if len(content) != artefact.size_bytes or crc32c(content) != artefact.crc32c:
                raise RemoteIntegrityError(
                    f"{key}: the {index_type.value} index does not match its checksum in the manifest",
                    remedy="run tierd verify --deep; the index can be rebuilt from the log",
                )
            return content

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove manifest, indexes and log, in this order; what is gone already is no error."""
        with _storage_errors("delete", metadata):
            keys = self._keys_of(metadata)
            self._manifests.pop(keys.segment(metadata, MANIFEST_SUFFIX), None)
            for suffix in (MANIFEST_SUFFIX, INDEXES_SUFFIX, LOG_SUFFIX):
                await self._store.delete(keys.segment(metadata, suffix))

    async def read_manifest(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        """Return the segment's manifest; the last few are kept, for they never change.

        Raises:
            RemoteResourceNotFoundError: there is none, so the segment was never completely stored, or is deleted.
            RemoteIntegrityError: it is damaged, or describes another segment.
        """
        with _storage_errors("read the manifest of", metadata):
            key = self._keys_of(metadata).segment(metadata, MANIFEST_SUFFIX)
            if key in self._manifests:
                self._manifests.move_to_end(key)
                return self._manifests[key]
            manifest = SegmentManifest.decode(await self._store.get(key), key=key)
            manifest.require_describes(metadata, key=key)
            self._manifests[key] = manifest
            if len(self._manifests) > _MANIFESTS_KEPT:
                self._manifests.popitem(last=False)
            return manifest

    async def list_segment_objects(self, partition: TopicIdPartition) -> dict[UUID, list[ObjectInfo]]:
        """Return every object of the partition below the configured prefix, by segment id."""
        found: dict[UUID, list[ObjectInfo]] = {}
        for item in await self._store.list_objects(self._keys.partition_prefix(partition)):
            if parsed := self._keys.parse(item.key):
                found.setdefault(parsed.segment_id, []).append(item)
        return found

    async def list_unfinished_uploads(self) -> list[UnfinishedSegmentUpload]:
        """Return uploads below the configured prefix that were begun and neither completed nor aborted."""
        uploads = await self._store.list_unfinished_uploads(self._keys.root)
        return [_identified(upload, self._keys.parse(upload.key)) for upload in uploads]

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload; one that is gone is no error."""
        await self._store.abort_upload(upload)

    def _keys_of(self, metadata: RemoteLogSegmentMetadata) -> ObjectKeyFactory:
        return self._keys.for_custom_metadata(metadata.custom_metadata)


def _identified(upload: UnfinishedUpload, key: SegmentKey | None) -> UnfinishedSegmentUpload:
    if key is None:
        return UnfinishedSegmentUpload(upload, None, None)
    return UnfinishedSegmentUpload(upload, key.topic_id, key.segment_id)


@contextmanager
def _storage_errors(action: str, metadata: RemoteLogSegmentMetadata) -> Iterator[None]:
    """Turn whatever else goes wrong into a ``RemoteStorageError``: callers clean up after that, and only after that."""
    try:
        yield
    except RemoteStorageError:
        raise
    except Exception as error:
        raise RemoteStorageError(
            f"cannot {action} segment {metadata.segment}: {type(error).__name__}: {error}",
            remedy="the partition tries again; report this if it stays, with the log lines around it",
        ) from error
