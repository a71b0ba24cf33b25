"""SegmentWriter: one segment to objects, in their order: log, indexes, manifest (DESIGN 4).

A data key belongs to one attempt. The writer keeps it until the attempt has ended, so that a repeated call, after a
cancellation for example, makes the same objects. A task of a job stages with a data key that follows from the content
and from a seed of the output, so that a task that runs again on another host makes the same objects too.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self
from uuid import UUID

from tierd.errors import RemoteConflictError
from tierd.kernels import crc32c
from tierd.model import BlockChecksums, ByteRange, LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata
from tierd.remote.object_keys import INDEXES_SUFFIX, LOG_SUFFIX, MANIFEST_SUFFIX, ObjectKeyFactory
from tierd.remote.object_store import FileBody, ObjectStore, exists
from tierd.remote.segments.description import index_contents
from tierd.remote.segments.manifest import SegmentManifest, Transformation, tierd_version
from tierd.remote.segments.open_segment import opened
from tierd.remote.segments.staged_segment import check_staged
from tierd.remote.transform.binding import ArtefactKind, SegmentBinding
from tierd.remote.transform.chunk_compression import is_compressed_already
from tierd.remote.transform.cipher import SegmentCipher
from tierd.remote.transform.codec import ChunkCodec
from tierd.remote.transform.content_key import ContentDigest
from tierd.remote.transform.key_ring import WrappedKey
from tierd.remote.transform.transform import Transform
from tierd.remote.transform.transformed_log import ChunkEncoder, TransformedLog

_ATTEMPTS_KEPT = 64
"""Encrypted attempts that were broken off; one that is finished is forgotten."""


class _Content(NamedTuple):
    """Content of an attempt: with other content an attempt of the same id is a new one."""

    segment_id: UUID
    checksums: BlockChecksums
    indexes: tuple[int, ...]  # their CRC-32C

    @classmethod
    def of(cls, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> Self:
        return cls(metadata.segment.id, data.log_checksums, tuple(map(crc32c, index_contents(data).values())))


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Transformation of the segment in one attempt."""

    codec: ChunkCodec
    wrapped_key: WrappedKey | None


class SegmentWriter:
    """Writer of the segments of one cluster, with one transform.

    Args:
        store: where the objects go.
        cluster_id: recorded in manifests; encrypted bytes are bound to it.
        broker_id: recorded in manifests.
        chunk_size: original bytes per chunk.
        transform: for new segments.
    """

    def __init__(
        self, store: ObjectStore, *, cluster_id: str, broker_id: int, chunk_size: int, transform: Transform
    ) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._broker_id = broker_id
        self._chunk_size = chunk_size
        self._transform = transform
        self._tierd_version = tierd_version()
        self._attempts: OrderedDict[_Content, _Attempt] = OrderedDict()

    async def write(self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> None:
        """Store log, indexes and manifest, in this order; overwrite objects of an attempt that left no manifest.

        The caller makes sure that no other attempt of the same id is under way.

        Raises:
            RemoteConflictError: a manifest is there already, and an object with other bytes.
            RemoteIntegrityError: the log has changed since its check.
        """
        content = _Content.of(metadata, data)
        try:
            await self._put_all(keys, metadata, data, content)
        except RemoteConflictError:
            if await exists(self._store, keys.segment(metadata, MANIFEST_SUFFIX)):
                raise
            for suffix in (LOG_SUFFIX, INDEXES_SUFFIX):
                await self._store.delete(keys.segment(metadata, suffix))
            await self._put_all(keys, metadata, data, content)
        self._attempts.pop(content, None)

    async def stage(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, *, key_seed: bytes
    ) -> SegmentManifest:
        """Store log and indexes; return the manifest, sealed where it is encrypted. No object is overwritten.

        Args:
            keys: of the segment.
            metadata: of the segment as it will be when it is finished.
            data: the content.
            key_seed: 32 secret random bytes that belong to this segment id.

        Raises:
            RemoteConflictError: an object is there already with other bytes.
            RemoteIntegrityError: the log has changed since its check.
        """
        attempt = await self._staging(metadata, data, key_seed)
        manifest = await self._put_artefacts(keys, metadata, data, attempt)
        manifest.require_describes(metadata, key=keys.segment(metadata, MANIFEST_SUFFIX))
        return manifest

    async def commit(
        self,
        keys: ObjectKeyFactory,
        metadata: RemoteLogSegmentMetadata,
        manifest: SegmentManifest,
        replaces: Iterable[RemoteLogSegmentId],
    ) -> None:
        """Store the manifest of a segment that any process has staged, if the objects agree with the manifest.

        The tag of a staged manifest is checked with the data key that the manifest carries: without the key ring such a
        pair cannot be made. The manifest is sealed anew with the same key, because ``replaces`` is part of it.

        Raises:
            RemoteStorageError: as ``SegmentStorage.commit_log_segment``.
        """
        key = keys.segment(metadata, MANIFEST_SUFFIX)
        staged = opened(manifest.encode(), metadata, self._cluster_id, self._transform.ring, key=key)
        await check_staged(self._store, keys, metadata, staged, cluster_id=self._cluster_id)
        committed = staged.manifest.replacing(replaces, staged.codec.cipher)
        await self._store.put(key, committed.encode())

    async def _put_all(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, content: _Content
    ) -> None:
        attempt = await self._attempt(content, metadata, data)
        manifest = await self._put_artefacts(keys, metadata, data, attempt)
        await self._store.put(keys.segment(metadata, MANIFEST_SUFFIX), manifest.encode())

    async def _put_artefacts(
        self, keys: ObjectKeyFactory, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, attempt: _Attempt
    ) -> SegmentManifest:
        transformation = await self._put_log(keys.segment(metadata, LOG_SUFFIX), data, attempt)
        encode = attempt.codec.encode_index
        indexes = index_contents(data).items()
        stored = b"".join(encode(ArtefactKind.of_index(kind), index) for kind, index in indexes)
        await self._store.put(keys.segment(metadata, INDEXES_SUFFIX), stored)
        manifest = SegmentManifest.describe(
            metadata,
            data,
            cluster_id=self._cluster_id,
            broker_id=self._broker_id,
            chunk_size=self._chunk_size,
            tierd_version=self._tierd_version,
            transformation=transformation,
        )
        return manifest if attempt.codec.cipher is None else manifest.sealed(attempt.codec.cipher)

    async def _put_log(self, key: str, data: LogSegmentData, attempt: _Attempt) -> Transformation | None:
        checksums = data.log_checksums
        if attempt.codec.is_plain:
            whole = ByteRange.of_size(0, checksums.size_bytes) if checksums.size_bytes else None
            await self._store.put(key, FileBody(data.log, whole, checksums))
            return None
        log = self._transformed(data, attempt.codec)
        await self._store.put(key, log.body())
        return Transformation(await log.layout(), attempt.codec.level, attempt.wrapped_key)

    async def _attempt(self, content: _Content, metadata: RemoteLogSegmentMetadata, data: LogSegmentData) -> _Attempt:
        if content in self._attempts:
            return self._attempts[content]
        level = await self._level(data)
        if not self._transform.encrypts:
            return _Attempt(ChunkCodec(level, None), None)
        binding = SegmentBinding.of(metadata, cluster_id=self._cluster_id)
        data_key, cipher = SegmentCipher.of_new_key(binding)
        attempt = _Attempt(ChunkCodec(level, cipher), self._transform.ring.wrap(data_key, binding))
        self._attempts[content] = attempt
        if len(self._attempts) > _ATTEMPTS_KEPT:
            self._attempts.popitem(last=False)
        return attempt

    async def _staging(self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, key_seed: bytes) -> _Attempt:
        """Return the attempt, the same for the same arguments; with encryption this takes a pass over the content."""
        level = await self._level(data)
        if not self._transform.encrypts:
            return _Attempt(ChunkCodec(level, None), None)
        binding = SegmentBinding.of(metadata, cluster_id=self._cluster_id)
        digest = ContentDigest(level, binding)
        await self._transformed(data, digest).layout()
        for kind, index in index_contents(data).items():
            digest.add_index(ArtefactKind.of_index(kind), index)
        data_key = digest.data_key(key_seed)
        cipher = SegmentCipher(data_key, binding, digests=digest.pieces)
        return _Attempt(ChunkCodec(level, cipher), self._transform.ring.wrap(data_key, binding))

    async def _level(self, data: LogSegmentData) -> int | None:
        """Return the level of zstd for a segment; None where the segment is compressed already."""
        level = self._transform.level
        if level is None or await self._transform.threads.submit(partial(is_compressed_already, data, level)):
            return None
        return level

    def _transformed(self, data: LogSegmentData, codec: ChunkEncoder) -> TransformedLog:
        return TransformedLog(
            data.log, data.log_checksums, chunk_size=self._chunk_size, codec=codec, threads=self._transform.threads
        )
