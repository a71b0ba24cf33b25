"""ChunkCodec: one chunk or index to stored bytes and back. Everything here blocks and gives the GIL away."""

from dataclasses import dataclass

from tierd.kernels import crc32c
from tierd.remote.chunks import ByteView
from tierd.remote.transform.binding import ArtefactKind, BoundPiece
from tierd.remote.transform.chunk_compression import compress, decompress
from tierd.remote.transform.chunk_layout import StoredChunk
from tierd.remote.transform.cipher import TAG_BYTES, SegmentCipher


class ChunkDamagedError(ValueError):
    """Stored bytes differ from those that were stored; the caller adds their place."""


@dataclass(frozen=True, slots=True)
class ChunkCodec:
    """The steps of one segment.

    Attributes:
        level: of zstd for new chunks; None stores them uncompressed. Reading needs none.
        cipher: None where the segment is not encrypted.
    """

    level: int | None
    cipher: SegmentCipher | None

    @property
    def is_plain(self) -> bool:
        """Return True where new chunks are stored as they are."""
        return self.level is None and self.cipher is None

    @property
    def overhead_bytes(self) -> int:
        """Return the largest growth of a chunk in bytes."""
        return TAG_BYTES if self.cipher else 0

    def encode(self, content: ByteView, *, number: int, count: int) -> tuple[bytes, bool]:
        """Return the bytes to store for chunk ``number`` of ``count``, and True if they are compressed."""
        frame = None if self.level is None else compress(content, self.level)
        stored = content if frame is None else frame
        if self.cipher is None:
            return stored if isinstance(stored, bytes) else bytes(stored), frame is not None
        piece = BoundPiece(ArtefactKind.LOG, number, count, len(content), frame is not None)
        return self.cipher.encrypt(piece, stored), frame is not None

    def decode(self, stored: ByteView, chunk: StoredChunk, *, number: int, count: int, size_bytes: int) -> ByteView:
        """Return the original bytes of a chunk: ``stored`` itself for a plain chunk.

        Args:
            stored: exactly the stored bytes.
            chunk: its entry in the manifest.
            number: of the chunk.
            count: of chunks in the log.
            size_bytes: original bytes that it must have.

        Raises:
            ChunkDamagedError: the bytes are damaged; the message names the fault.
        """
        if len(stored) != chunk.size_bytes:
            raise ChunkDamagedError(f"it has {len(stored)} bytes, the manifest says {chunk.size_bytes}")
        content = self._decrypted(stored, BoundPiece(ArtefactKind.LOG, number, count, size_bytes, chunk.is_compressed))
        if chunk.is_compressed:
            unpacked = decompress(content, size_bytes)
            if unpacked is None:
                raise ChunkDamagedError(f"it is no zstd frame of {size_bytes} bytes")
            content = unpacked
        if len(content) != size_bytes or crc32c(content) != chunk.crc32c:
            raise ChunkDamagedError("it does not have the CRC-32C that is in the manifest")
        return content

    def encode_index(self, kind: ArtefactKind, content: bytes) -> bytes:
        """Return the bytes to store for an index, which is small and not compressed."""
        return content if self.cipher is None else self.cipher.encrypt(index_piece(kind, len(content)), content)

    def decode_index(self, kind: ArtefactKind, stored: bytes, stored_size: int, *, expected_crc: int) -> bytes:
        """Return the original bytes of an index, of which the manifest says that ``stored_size`` bytes are stored.

        Raises:
            ChunkDamagedError: the bytes are damaged; the message names the fault.
        """
        if len(stored) != stored_size or stored_size < self.overhead_bytes:
            raise ChunkDamagedError(f"it has {len(stored)} bytes, the manifest says {stored_size}")
        content = self._decrypted(stored, index_piece(kind, stored_size - self.overhead_bytes))
        if crc32c(content) != expected_crc:
            raise ChunkDamagedError("it does not match its checksum in the manifest")
        return bytes(content)

    def _decrypted(self, stored: ByteView, piece: BoundPiece) -> ByteView:
        if self.cipher is None:
            return stored
        content = self.cipher.decrypt(piece, stored)
        if content is None:
            raise ChunkDamagedError("it does not open: changed, moved, or of another segment")
        return content


def index_piece(kind: ArtefactKind, size_bytes: int) -> BoundPiece:
    """Return the piece that an index of ``size_bytes`` bytes is."""
    return BoundPiece(kind, 0, 1, size_bytes)
