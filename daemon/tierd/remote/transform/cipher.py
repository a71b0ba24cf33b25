"""SegmentCipher: AES-256-GCM under one segment's data key, and the tag that authenticates its manifest.

Nonces are not stored: each follows from the artefact and the number of the chunk. That is safe because a data key is
random and belongs to one attempt to copy one segment, or is derived from what is encrypted (``ContentDigest``), and
because a cipher **refuses to give out two different ciphertexts for one nonce**. It remembers the tag of every piece
that it made, and a repetition must come to the same tag. With a derived data key it encrypts the pieces that the key
was derived from, and refuses others. So a file that changed between two attempts, or a compressor that gives other
bytes the second time, ends in an error instead of a nonce that is used twice.
"""

import hashlib
import hmac
import os
from collections.abc import Mapping
from typing import Self

from tierd.errors import RemoteIntegrityError
from tierd.remote.chunks import ByteView
from tierd.remote.transform.aes_gcm import KEY_BYTES, aes_gcm, expanded_key, opened
from tierd.remote.transform.binding import BoundPiece, SegmentBinding

ALGORITHM = "AES-256-GCM"
TAG_BYTES = 16
"""What encryption adds to a piece."""


class SegmentCipher:
    """Encryption and decryption of the pieces of one segment. Threads may share it."""

    def __init__(
        self, data_key: bytes, binding: SegmentBinding, *, digests: Mapping[bytes, bytes] | None = None
    ) -> None:
        """Derive two keys from ``data_key``, which is used for nothing by itself.

        Args:
            data_key: 32 bytes.
            binding: of the segment.
            digests: ``piece_digest`` of every piece by its nonce: no other piece is encrypted. None: pieces of any
                content are encrypted, because the data key is random.
        """
        self._aead = aes_gcm(expanded_key(data_key, b"tierd chunks 1"))
        self._manifest_key = expanded_key(data_key, b"tierd manifest 1")
        self._binding = binding
        self._digests = digests
        self._tags: dict[bytes, bytes] = {}  # nonce to tag of what was encrypted, 28 bytes a chunk

    @classmethod
    def new_data_key(cls) -> bytes:
        """Return a random data key."""
        return os.urandom(KEY_BYTES)

    @classmethod
    def of_new_key(cls, binding: SegmentBinding) -> tuple[bytes, Self]:
        """Return a random data key and its cipher."""
        data_key = cls.new_data_key()
        return data_key, cls(data_key, binding)

    def __repr__(self) -> str:
        return f"SegmentCipher({self._binding})"

    def encrypt(self, piece: BoundPiece, content: ByteView) -> bytes:
        """Return ciphertext and tag. Blocking, and without the GIL.

        Raises:
            RemoteIntegrityError: the piece was encrypted before, with other content, or the data key was derived from
                other content.
        """
        if self._digests is not None and self._digests.get(piece.nonce) != piece_digest(self._binding, piece, content):
            raise self._changed(piece)
        sealed = self._aead.encrypt(piece.nonce, content, self._binding.for_piece(piece))
        tag = sealed[-TAG_BYTES:]
        if self._tags.setdefault(piece.nonce, tag) != tag:
            raise self._changed(piece)
        return sealed

    def _changed(self, piece: BoundPiece) -> RemoteIntegrityError:
        return RemoteIntegrityError(
            f"{piece.kind.name.lower()} chunk {piece.number} of segment {self._binding.segment_id} is not what it "
            "was in the attempt before",
            remedy="the source changed while it was copied; the segment is copied again under another id",
        )

    def decrypt(self, piece: BoundPiece, sealed: ByteView) -> bytes | None:
        """Return the content, None when it is not exactly this piece of this segment. Blocking, and without the GIL."""
        return opened(self._aead, piece.nonce, sealed, self._binding.for_piece(piece))

    def tag_of(self, manifest: bytes) -> str:
        """Return the tag of a manifest's signed content: HMAC-SHA256, in hexadecimal digits."""
        return hmac.digest(self._manifest_key, manifest, "sha256").hex()

    def is_tag_of(self, manifest: bytes, tag: str) -> bool:
        """Return True if ``tag`` is the tag of a manifest's signed content."""
        return hmac.compare_digest(self.tag_of(manifest).encode(), tag.encode())


def piece_digest(binding: SegmentBinding, piece: BoundPiece, content: ByteView) -> bytes:
    """Return the SHA-256 of a piece: of its binding and of its bytes to encrypt. Blocking, and without the GIL."""
    digest = hashlib.sha256(binding.for_piece(piece))
    digest.update(content)
    return digest.digest()
