"""ContentDigest: a data key that is derived from a secret seed and from what is encrypted under it.

Tasks with the same seed and the same content make the same data key, and so the same objects. Tasks whose content
differs, for example by another compressor, make different data keys: no nonce is used for two contents.

::

    piece digest = SHA-256(additional data of the piece, what is encrypted: the chunk as compressed, or the index)
    data key     = HKDF-SHA256(seed, info = domain, SHA-256(nonce and digest of every piece, ascending by nonce))
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from tierd.remote.chunks import ByteView
from tierd.remote.transform.aes_gcm import derived_key
from tierd.remote.transform.binding import ArtefactKind, BoundPiece, SegmentBinding
from tierd.remote.transform.cipher import piece_digest
from tierd.remote.transform.codec import ChunkCodec, index_piece

KEY_SEED_BYTES: Final = 32
_DOMAIN: Final = b"tierd content key 1\x00"


class ContentDigest:
    """Stand-in for a segment's codec in a first pass over its content, without stored bytes. Threads may share it.

    Args:
        level: of zstd, as in the second pass.
        binding: of the segment.
    """

    def __init__(self, level: int | None, binding: SegmentBinding) -> None:
        self._codec = ChunkCodec(level, None)
        self._binding = binding
        self._pieces: dict[bytes, bytes] = {}  # nonce to digest

    @property
    def overhead_bytes(self) -> int:
        """Return the growth of a chunk: 0, because no bytes are stored."""
        return 0

    @property
    def pieces(self) -> Mapping[bytes, bytes]:
        """Return the digest of each piece by its nonce, for the cipher of the second pass."""
        return self._pieces

    def encode(self, content: ByteView, *, number: int, count: int) -> tuple[bytes, bool]:
        """Take in chunk ``number`` of ``count``; return no bytes, and whether it is compressed. Blocking."""
        stored, is_compressed = self._codec.encode(content, number=number, count=count)
        self._add(BoundPiece(ArtefactKind.LOG, number, count, len(content), is_compressed), stored)
        return b"", is_compressed

    def add_index(self, kind: ArtefactKind, content: bytes) -> None:
        """Take in an index."""
        self._add(index_piece(kind, len(content)), content)

    def data_key(self, seed: bytes) -> bytes:
        """Return the data key of the content that was taken in.

        Args:
            seed: ``KEY_SEED_BYTES`` secret random bytes.

        Raises:
            ValueError: the seed has another length.
        """
        if len(seed) != KEY_SEED_BYTES:
            raise ValueError(f"a seed of {len(seed)} bytes, not {KEY_SEED_BYTES}")
        whole = hashlib.sha256(b"".join(nonce + self._pieces[nonce] for nonce in sorted(self._pieces)))
        return derived_key(seed, _DOMAIN + whole.digest())

    def _add(self, piece: BoundPiece, content: ByteView) -> None:
        self._pieces[piece.nonce] = piece_digest(self._binding, piece, content)
