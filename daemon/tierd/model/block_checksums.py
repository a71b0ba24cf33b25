"""Checksums of a file, taken once and combined for every range that is later sent or recorded."""

from dataclasses import dataclass

CHECKSUM_BLOCK_BYTES = 1 << 20
"""Part and chunk sizes are multiples of this, so that their CRC needs no second reading of the file."""


@dataclass(frozen=True, slots=True)
class BlockChecksums:
    """CRC-32C of every whole block of ``CHECKSUM_BLOCK_BYTES`` bytes of a file, and of its shorter tail."""

    size_bytes: int
    crc32c: tuple[int, ...]  # invariant: ceil(size_bytes / CHECKSUM_BLOCK_BYTES) values

    def block_size(self, index: int) -> int:
        """Return the number of bytes in block ``index``."""
        return min(CHECKSUM_BLOCK_BYTES, self.size_bytes - index * CHECKSUM_BLOCK_BYTES)
