"""OpenSegment: a manifest that was checked, and the checks."""

from dataclasses import dataclass

from tierd.errors import RemoteIntegrityError, RemoteUnauthenticatedError
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.remote.chunks import ByteView
from tierd.remote.object_keys import must_be_encrypted
from tierd.remote.segments.manifest import SegmentManifest
from tierd.remote.segments.manifest_parts import IndexArtefact
from tierd.remote.transform.binding import ArtefactKind, SegmentBinding
from tierd.remote.transform.chunk_layout import ChunkLayout
from tierd.remote.transform.cipher import SegmentCipher
from tierd.remote.transform.codec import ChunkCodec, ChunkDamagedError
from tierd.remote.transform.key_ring import KeyRing


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """A checked manifest, and the tools to read the objects of its segment."""

    manifest: SegmentManifest
    layout: ChunkLayout
    codec: ChunkCodec

    def decode_chunk(self, number: int, stored: ByteView, *, key: str) -> ByteView:
        """Return the original bytes of chunk ``number`` of the log, as ``ChunkCodec.decode``, at ``key``. Blocking.

        Raises:
            RemoteIntegrityError: ``stored`` differs from the bytes that were stored.
        """
        layout = self.layout
        try:
            return self.codec.decode(
                stored,
                layout.chunks[number],
                number=number,
                count=len(layout.chunks),
                size_bytes=layout.original_range(number).size,
            )
        except ChunkDamagedError as error:
            raise RemoteIntegrityError(
                f"{key}: chunk {number} is damaged: {error}",
                remedy="run tierd verify --deep; restore the object from a version or a replica of the bucket",
            ) from error

    def decode_index(self, index_type: IndexType, artefact: IndexArtefact, stored: bytes, *, key: str) -> bytes:
        """Return the original bytes of an index, which lies at ``key``.

        Raises:
            RemoteIntegrityError: ``stored`` differs from the bytes that were stored.
        """
        kind = ArtefactKind.of_index(index_type)
        try:
            return self.codec.decode_index(kind, stored, artefact.size_bytes, expected_crc=artefact.crc32c)
        except ChunkDamagedError as error:
            raise RemoteIntegrityError(
                f"{key}: the {index_type.value} index is damaged: {error}",
                remedy="run tierd verify --deep; the index can be rebuilt from the log",
            ) from error


def opened(
    content: bytes, metadata: RemoteLogSegmentMetadata, cluster_id: str, ring: KeyRing, *, key: str
) -> OpenSegment:
    """Check ``content`` and return it as the manifest of the segment.

    Raises:
        RemoteIntegrityError: the manifest is damaged, was changed, or describes another segment.
        RemoteKeyMissingError: the segment is encrypted, and the ring lacks the key.
    """
    manifest = SegmentManifest.decode(content, key=key)
    manifest.require_describes(metadata, key=key)
    cipher = None
    if manifest.encryption is not None:
        cipher = authenticated(manifest, content, SegmentBinding.of(metadata, cluster_id=cluster_id), ring, key=key)
    elif must_be_encrypted(metadata.custom_metadata):
        raise RemoteIntegrityError(
            f"{key}: the manifest says that the segment is not encrypted, the metadata says that it is",
            remedy="the object was replaced: restore the objects from versions or a replica of the bucket",
        )
    return OpenSegment(manifest, manifest.layout(), ChunkCodec(None, cipher))


def proven(content: bytes, cluster_id: str, ring: KeyRing, *, key: str) -> SegmentManifest:
    """Return the manifest ``content``, which a holder of the key ring wrote for the segment that it describes.

    The segment is encrypted: the tag of its manifest covers every field but the wrapping of its data key, and the data
    key is bound to the identity of the segment.

    Raises:
        RemoteUnauthenticatedError: the segment is not encrypted.
        RemoteIntegrityError: the manifest is damaged, was changed, or its data key is another segment's.
        RemoteKeyMissingError: the ring has not the key.
        ValueError: the ids of the manifest are no UUIDs.
    """
    manifest = SegmentManifest.decode(content, key=key)
    if manifest.encryption is None:
        raise RemoteUnauthenticatedError(
            f"{key}: the segment is not encrypted: nothing proves that a tierd with the key ring wrote it",
            remedy="find out who wrote it; a plain segment of before encryption is believed with "
            "--accept-unauthenticated of tierd rebuild-metadata and tierd repair-tier",
        )
    binding = manifest.binding()
    if binding.cluster_id != cluster_id:
        raise RemoteIntegrityError(f"{key}: the manifest is of cluster {binding.cluster_id}", remedy="run tierd verify")
    authenticated(manifest, content, binding, ring, key=key)
    return manifest


def authenticated(
    manifest: SegmentManifest, content: bytes, binding: SegmentBinding, ring: KeyRing, *, key: str
) -> SegmentCipher:
    """Return the cipher of an encrypted segment, whose manifest ``content`` was checked with it.

    Raises:
        RemoteKeyMissingError: the ring has not the key.
        RemoteIntegrityError: the manifest was changed, or is another segment's.
    """
    assert manifest.encryption is not None, "only what is encrypted has a cipher"
    try:
        wrapped = manifest.encryption.wrapped
    except ValueError as error:
        raise RemoteIntegrityError(f"{key}: {error}", remedy="restore the manifest from a version of it") from error
    cipher = SegmentCipher(ring.unwrap(wrapped, binding, key=key), binding)
    manifest.require_authentic(cipher, content, key=key)
    return cipher
