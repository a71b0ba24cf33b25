"""SegmentStorage: a segment as three objects in an ObjectStore, the manifest last (DESIGN 4, remote-tiering 4)."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple, Self
from uuid import UUID

from tierd.errors import RemoteConflictError, RemoteIntegrityError, RemoteStorageError
from tierd.kernels import crc32c, crc32c_of_file
from tierd.model import (
    CHECKSUM_BLOCK_BYTES,
    ByteRange,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    TopicIdPartition,
    uuid_to_text,
)
from tierd.remote.catalogue_object import CatalogueCodec
from tierd.remote.log_start import LogStartStorage
from tierd.remote.object_keys import (
    INDEXES_SUFFIX,
    LOG_SUFFIX,
    MANIFEST_SUFFIX,
    TOMBSTONE_SUFFIX,
    ObjectKeyFactory,
)
from tierd.remote.object_store import ObjectInfo, ObjectStore, UnfinishedUpload, exists
from tierd.remote.segments.description import index_contents
from tierd.remote.segments.manifest import SegmentManifest
from tierd.remote.segments.open_segment import proven
from tierd.remote.segments.segment_reader import CachedBytes, RangeCache, SegmentReader
from tierd.remote.segments.segment_writer import SegmentWriter
from tierd.remote.segments.staged_segment import log_object_problem
from tierd.remote.segments.tombstone import Tombstone, TombstoneStorage
from tierd.remote.transform.binding import erasure_report_binding
from tierd.remote.transform.object_tag import require_tag
from tierd.remote.transform.transform import PLAIN, Transform

STREAM_PIECE_BYTES: Final = 8 << 20

_OBJECTS = (LOG_SUFFIX, INDEXES_SUFFIX, MANIFEST_SUFFIX)


class UnfinishedSegmentUpload(NamedTuple):
    """Unfinished upload below the configured prefix.

    Attributes:
        upload: as the store lists it.
        topic_id: in Kafka's form; None where the key is not that of an object of a partition.
        segment_id: None where the object is a log start, or ``topic_id`` is None.
        partition: None where ``topic_id`` is.
    """

    upload: UnfinishedUpload
    topic_id: str | None
    segment_id: UUID | None
    partition: int | None = None

    @classmethod
    def of(cls, upload: UnfinishedUpload, keys: ObjectKeyFactory) -> Self:
        """Return the upload with the identity that its key contains."""
        if (key := keys.parse(upload.key)) is not None:
            return cls(upload, key.topic_id, key.segment_id, key.partition)
        if (partition := keys.parse_log_start(upload.key)) is not None:
            return cls(upload, uuid_to_text(partition.topic_id), None, partition.partition)
        return cls(upload, None, None)


class SegmentStorage:
    """The ``RemoteStorageManager`` over any ``ObjectStore``.

    Args:
        store: where the objects go.
        cluster_id: part of every key.
        broker_id: recorded in manifests.
        key_prefix: of new segments; the custom metadata of an older segment holds its prefix.
        chunk_size: original bytes per chunk, a multiple of 1 MiB.
        transform: compression and encryption; it belongs to the caller, who closes it.
        cache: reads logs instead of the store, whole chunks of plain logs too. A damaged chunk is dropped from the
            cache and asked of the store once more.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        cluster_id: str,
        broker_id: int,
        key_prefix: str = "",
        chunk_size: int = 4 << 20,
        transform: Transform = PLAIN,
        cache: RangeCache | None = None,
    ) -> None:
        if chunk_size <= 0 or chunk_size % CHECKSUM_BLOCK_BYTES:
            raise ValueError(f"chunk_size {chunk_size} is not a multiple of {CHECKSUM_BLOCK_BYTES} bytes")
        self._store = store
        self._keys = ObjectKeyFactory(key_prefix, cluster_id)
        self._cluster_id = cluster_id
        self._ring = transform.ring
        self.log_starts = LogStartStorage(store, self._keys, transform.ring)  # below the configured prefix
        self._tombstones = TombstoneStorage(store, cluster_id, transform.ring)
        self._is_encrypting = transform.encrypts
        self._deleted: list[Callable[[RemoteLogSegmentMetadata, str], Awaitable[None]]] = []
        self._writer = SegmentWriter(
            store, cluster_id=cluster_id, broker_id=broker_id, chunk_size=chunk_size, transform=transform
        )
        self._reader = SegmentReader(
            store,
            cluster_id=cluster_id,
            transform=transform,
            cache=cache,
            plain_chunk_size=None if transform.encrypts or transform.level is not None else chunk_size,
        )

    def custom_metadata(self, metadata: RemoteLogSegmentMetadata) -> bytes:
        """Return the key prefix and the mark of encryption: the rest of each key follows from the metadata."""
        topic = metadata.segment.topic_id_partition.topic
        return self._keys.custom_metadata(topic, is_encrypted=self._is_encrypting)

    def has_configured_prefix(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if the segment lies under the prefix that is configured now, so that a listing shows it."""
        return self._keys_of(metadata).prefix == self._keys.prefix

    async def copy_log_segment_data(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> bytes:
        """Store log, indexes and manifest, in this order: a reader that sees the manifest finds the others."""
        with _storage_errors("copy", metadata):
            keys = self._keys_of(metadata)
            try:
                await self._writer.write(keys, metadata, data)
            except RemoteConflictError:
                if not await self._is_stored(keys, metadata, data):
                    raise
        topic = metadata.segment.topic_id_partition.topic
        return keys.custom_metadata(topic, is_encrypted=self._is_encrypting)

    async def stage_log_segment_data(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, *, key_seed: bytes
    ) -> SegmentManifest:
        """Store log and indexes only; return the manifest for ``commit_log_segment``, perhaps of another process.

        The segment cannot be read before its commit. A repetition with the same data and seed succeeds, in any process.
        An object that is there with other bytes stays: a task that outlives its run overwrites no committed segment.

        Args:
            metadata: as it will be when it is finished, with the size of ``data`` and its largest timestamp.
            data: the content; it may be empty.
            key_seed: 32 secret random bytes that belong to this segment id: the data key of an encrypted segment
                follows from them and the content.

        Raises:
            RemoteConflictError: an object is there already with other bytes.
            RemoteIntegrityError: the log has changed since its check.
        """
        with _storage_errors("stage", metadata):
            return await self._writer.stage(self._keys_of(metadata), metadata, data, key_seed=key_seed)

    async def commit_log_segment(
        self, metadata: RemoteLogSegmentMetadata, manifest: SegmentManifest, replaces: Iterable[RemoteLogSegmentId]
    ) -> None:
        """Check a staged segment and store its manifest, which has the segments that it ``replaces``. Repeatable.

        These things are checked: the manifest is this segment's; a holder of the key ring made it, where the segment is
        encrypted; the sizes of both objects; every index; samples of the log.

        Args:
            metadata: as ``manifest.completed`` gives it.
            manifest: from ``stage_log_segment_data``.
            replaces: the segments that this one makes obsolete, in the order of their offsets.

        Raises:
            RemoteResourceNotFoundError: an object is not there.
            RemoteIntegrityError: an object contradicts the manifest, or the manifest is of another segment.
            RemoteKeyMissingError: the segment is encrypted, and the key ring has not its key.
            RemoteConflictError: another manifest of the segment was committed already.
        """
        with _storage_errors("commit", metadata):
            await self._writer.commit(self._keys_of(metadata), metadata, manifest, replaces)

    async def fetch_log_segment(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> bytes:
        """Return the log's bytes in ``byte_range``, clipped at its end; empty when past it.

        Raises:
            RemoteResourceNotFoundError: an object is not there.
            RemoteIntegrityError: the stored bytes have changed; object and chunk are named.
            RemoteKeyMissingError: the segment is encrypted, and the key ring has not its key.
        """
        with _storage_errors("fetch", metadata):
            keys, clipped = self._keys_of(metadata), byte_range.clipped(metadata.size_bytes)
            if clipped is None:
                await self._reader.require_log(keys, metadata)
                return b""
            return await self._reader.read_log(keys, metadata, clipped)

    async def open_cached(self, metadata: RemoteLogSegmentMetadata, byte_range: ByteRange) -> list[CachedBytes] | None:
        """Return the places of ``byte_range``, which lies within the log, in checked files of the cache.

        None where ``fetch_log_segment`` has to return the bytes.

        Raises:
            RemoteIntegrityError: the manifest is of another segment.
        """
        with _storage_errors("fetch", metadata):
            return await self._reader.open_cached(self._keys_of(metadata), metadata, byte_range)

    async def stream_log_segment(
        self, metadata: RemoteLogSegmentMetadata, start_position: int, end_position: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the log's bytes from ``start_position`` to ``end_position``, or to its end, in pieces of a few MiB.

        Raises:
            As ``fetch_log_segment``, and ValueError: a negative start, or an end before it.
        """
        last = max(metadata.size_bytes - 1, start_position) if end_position is None else end_position
        wanted = ByteRange(start_position, last)
        clipped = wanted.clipped(metadata.size_bytes)
        if clipped is None:
            await self.fetch_log_segment(metadata, wanted)
            return
        chunk_size = (await self.read_manifest(metadata)).log.chunk_size_bytes
        for piece in stream_pieces(clipped, chunk_size=chunk_size):
            yield await self.fetch_log_segment(metadata, piece)

    async def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> bytes:
        """Return one artefact, checked against the checksum in the manifest.

        Raises:
            RemoteIndexAbsentError: the segment never had it; normal for ``TRANSACTION``.
            RemoteResourceNotFoundError: the object is not there.
            RemoteIntegrityError: its bytes are not those that were stored.
            RemoteKeyMissingError: the segment is encrypted, and the key ring has not its key.
        """
        with _storage_errors("fetch", metadata):
            return await self._reader.read_index(self._keys_of(metadata), metadata, index_type)

    async def delete_log_segment_data(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove log, indexes, manifest and tombstone, in this order; what is gone already is no error.

        The tombstone goes last: until then it keeps a rebuild from recovering the segment.
        """
        with _storage_errors("delete", metadata):
            keys = self._keys_of(metadata)
            self._reader.forget(keys, metadata)
            for suffix in (*_OBJECTS, TOMBSTONE_SUFFIX):
                await self._store.delete(keys.segment(metadata, suffix))
        for listener in self._deleted:
            await listener(metadata, keys.segment(metadata, LOG_SUFFIX))

    def on_deleted(self, listener: Callable[[RemoteLogSegmentMetadata, str], Awaitable[None]]) -> None:
        """Call ``listener`` with every segment whose objects are gone, and the key of its log; it must not raise."""
        self._deleted.append(listener)

    async def read_manifest(self, metadata: RemoteLogSegmentMetadata) -> SegmentManifest:
        """Return the segment's manifest. The last few manifests are kept in memory.

        Raises:
            RemoteResourceNotFoundError: there is no manifest: the segment was not completely stored, or is deleted.
            RemoteIntegrityError: the manifest is damaged, was changed, or describes another segment.
            RemoteKeyMissingError: the segment is encrypted, and the key ring has not its key.
        """
        with _storage_errors("read the manifest of", metadata):
            return (await self._reader.open(self._keys_of(metadata), metadata)).manifest

    @property
    def asks_for_proof(self) -> bool:
        """Return True where a key ring is configured, so that manifests and tombstones must be proven by it."""
        return not self._ring.is_empty

    def prove_manifest(self, content: bytes, *, key: str) -> SegmentManifest:
        """Return the manifest ``content``; with a key ring, after the proof that a holder of the ring wrote it.

        Raises:
            RemoteUnauthenticatedError: a key ring is configured, and the segment is not encrypted.
            RemoteIntegrityError: the manifest is damaged, was changed, or its data key is another segment's.
            RemoteKeyMissingError: the segment is encrypted, and the key ring has not its key.
            ValueError: the ids of an encrypted segment are no UUIDs.
        """
        manifest = SegmentManifest.decode(content, key=key)
        if self._ring.is_empty and manifest.encryption is None:
            return manifest
        return proven(content, self._cluster_id, self._ring, key=key)

    def prove_erasure_report(self, content: bytes, request_id: UUID, *, key: str) -> None:
        """Raise unless it is proven that a holder of the key ring wrote the report of a request; without a ring return.

        Raises:
            RemoteUnauthenticatedError: nothing proves it.
        """
        require_tag(content, self._ring, erasure_report_binding(self._cluster_id, request_id), key=key)

    def prove_catalogue_object(self, content: bytes, keys: ObjectKeyFactory, *, key: str) -> None:
        """Raise unless it is proven that a holder of the key ring wrote an object of the catalogue below ``keys``.

        Raises:
            RemoteUnauthenticatedError: nothing proves it.
            RemoteIntegrityError: its compression is damaged.
        """
        CatalogueCodec(keys.cluster_id, keys.catalogue.prefix, self._ring).require_proof(key, content)

    async def require_whole_log(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Raise unless the ``.log`` object is there, with the size that the manifest says; it is not read.

        Raises:
            RemoteResourceNotFoundError: it is not there, or the manifest is not.
            RemoteIntegrityError: it has another size, or another CRC-32C where the store reports one of a plain log.
            RemoteStorageError: the store failed.
        """
        with _storage_errors("look for", metadata):
            keys = self._keys_of(metadata)
            found = await self._reader.require_log(keys, metadata)
            manifest = (await self._reader.open(keys, metadata)).manifest
            if (problem := log_object_problem(manifest, found)) is not None:
                raise RemoteIntegrityError(f"{found.key}: {problem}", remedy="run tierd verify --deep")

    async def objects_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if log, indexes and manifest are all there."""
        with _storage_errors("look for", metadata):
            keys = self._keys_of(metadata)
            for suffix in _OBJECTS:
                if not await exists(self._store, keys.segment(metadata, suffix)):
                    return False
            return True

    async def any_object_present(self, metadata: RemoteLogSegmentMetadata) -> bool:
        """Return True if log, indexes, manifest or tombstone is there."""
        with _storage_errors("look for", metadata):
            keys = self._keys_of(metadata)
            for suffix in (*_OBJECTS, TOMBSTONE_SUFFIX):
                if await exists(self._store, keys.segment(metadata, suffix)):
                    return True
            return False

    # ------------------------------------------------------------ tombstones

    async def write_tombstone(self, metadata: RemoteLogSegmentMetadata, tombstone: Tombstone) -> None:
        """Store durably that the segment is to be deleted, as ``TombstoneStorage.write``.

        Raises:
            RemoteIntegrityError: the present object is no tombstone.
        """
        with _storage_errors("write the tombstone of", metadata):
            await self._tombstones.write(self._keys_of(metadata), metadata, tombstone)

    async def read_tombstone(
        self, metadata: RemoteLogSegmentMetadata, *, accepts_unauthenticated: bool = False
    ) -> Tombstone | None:
        """Return the segment's tombstone, None when it has none, as ``TombstoneStorage.read``.

        Raises:
            RemoteUnauthenticatedError: nothing proves that a holder of the key ring wrote it.
            RemoteIntegrityError: the present object is no tombstone.
        """
        with _storage_errors("read the tombstone of", metadata):
            keys = self._keys_of(metadata)
            return await self._tombstones.read(keys, metadata, accepts_unauthenticated=accepts_unauthenticated)

    async def remove_tombstone(self, metadata: RemoteLogSegmentMetadata) -> None:
        """Remove the segment's tombstone; none is no error."""
        with _storage_errors("remove the tombstone of", metadata):
            await self._store.delete(self._keys_of(metadata).segment(metadata, TOMBSTONE_SUFFIX))

    # ------------------------------------------------------------ listings

    async def list_segment_objects(self, partition: TopicIdPartition) -> dict[UUID, list[ObjectInfo]]:
        """Return every object of the partition below the configured prefix, tombstones included, by segment id."""
        found: dict[UUID, list[ObjectInfo]] = {}
        for keys in self._keys.forms(partition.topic):
            for item in await self._store.list_objects(keys.partition_prefix(partition)):
                if parsed := keys.parse(item.key):
                    found.setdefault(parsed.segment_id, []).append(item)
        return found

    async def list_unfinished_uploads(self) -> list[UnfinishedSegmentUpload]:
        """Return uploads below the configured prefix that were begun and neither completed nor aborted."""
        uploads = await self._store.list_unfinished_uploads(self._keys.root)
        return [UnfinishedSegmentUpload.of(upload, self._keys) for upload in uploads]

    async def abort_upload(self, upload: UnfinishedUpload) -> None:
        """Discard an unfinished upload; one that is gone is no error."""
        await self._store.abort_upload(upload)

    def _keys_of(self, metadata: RemoteLogSegmentMetadata) -> ObjectKeyFactory:
        topic = metadata.segment.topic_id_partition.topic
        return self._keys.for_custom_metadata(metadata.custom_metadata, topic)

    async def _is_stored(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, data: LogSegmentData
    ) -> bool:
        """Return True if a finished copy of the same content is there; encrypted, its bytes differ from a new copy."""
        try:
            manifest = (await self._reader.open(keys, metadata)).manifest
            log = await self._store.head(keys.segment(metadata, LOG_SUFFIX))
            indexes = await self._store.head(keys.segment(metadata, INDEXES_SUFFIX))
        except RemoteStorageError:  # a manifest that cannot be used is none
            return False
        checksums = {kind.value: crc32c(content) for kind, content in index_contents(data).items()}
        return (
            manifest.log.crc32c == crc32c_of_file(data.log_checksums)
            and {name: index.crc32c for name, index in manifest.indexes.items()} == checksums
            and (manifest.encryption is not None) == self._is_encrypting
            and (log.size_bytes, indexes.size_bytes) == (manifest.log.size_bytes, manifest.indexes_size_bytes)
        )


@contextmanager
def _storage_errors(action: str, metadata: RemoteLogSegmentMetadata) -> Iterator[None]:
    """Translate every other exception into a ``RemoteStorageError``, after which callers clean up."""
    try:
        yield
    except RemoteStorageError:
        raise
    except Exception as error:
        raise RemoteStorageError(
            f"cannot {action} segment {metadata.segment}: {type(error).__name__}: {error}",
            remedy="the partition tries again; report this if it stays, with the log lines around it",
        ) from error


def stream_pieces(byte_range: ByteRange, *, chunk_size: int) -> Iterator[ByteRange]:
    """Yield neighbouring ranges that make up ``byte_range``, in order.

    A range has at most ``STREAM_PIECE_BYTES`` bytes, or one chunk where chunks are larger. Each but the last ends where
    a chunk ends, so that no chunk is fetched twice.
    """
    step = max(chunk_size, STREAM_PIECE_BYTES // chunk_size * chunk_size)
    start = byte_range.start
    while start <= byte_range.end:
        end = min((start // step + 1) * step - 1, byte_range.end)
        yield ByteRange(start, end)
        start = end + 1
