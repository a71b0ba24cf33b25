"""CRC-32C (Castagnoli), and the arithmetic that gives the CRC of a whole from those of its parts.

The polynomial arithmetic is zlib's ``crc32_combine`` with Castagnoli's polynomial: appending ``n`` zero bytes to
a message is a linear map over GF(2), so crc(a + b) = zeros(len b)(crc a) xor crc(b).
"""

from collections.abc import Iterable
from functools import lru_cache

from crc32c import crc32c

from tierd.model import CHECKSUM_BLOCK_BYTES, BlockChecksums, ByteRange

_POLYNOMIAL_REFLECTED = 0x82F63B78

Matrix = tuple[int, ...]  # 32 columns over GF(2), column i is the image of bit i


def combine_crc32c(first: int, second: int, second_size: int) -> int:
    """Return the CRC-32C of two adjoining pieces, of which ``second`` is ``second_size`` bytes long."""
    return _apply(_zeros(second_size), first) ^ second if second_size else first


def crc32c_of_range(checksums: BlockChecksums, byte_range: ByteRange) -> int:
    """Return the CRC-32C of a range that begins at a block's start and ends at a block's end or at the file's.

    Raises:
        ValueError: the range cuts a block in two.
    """
    if byte_range.start % CHECKSUM_BLOCK_BYTES:
        raise ValueError(f"byte {byte_range.start} does not begin a checksum block")
    if byte_range.end + 1 != checksums.size_bytes and (byte_range.end + 1) % CHECKSUM_BLOCK_BYTES:
        raise ValueError(f"byte {byte_range.end} does not end a checksum block")
    first, last = byte_range.start // CHECKSUM_BLOCK_BYTES, byte_range.end // CHECKSUM_BLOCK_BYTES
    return _combine_all((checksums.crc32c[i], checksums.block_size(i)) for i in range(first, last + 1))


def crc32c_of_file(checksums: BlockChecksums) -> int:
    """Return the CRC-32C of the whole file."""
    return _combine_all((crc, checksums.block_size(i)) for i, crc in enumerate(checksums.crc32c))


def _combine_all(pieces: Iterable[tuple[int, int]]) -> int:
    total = 0
    for crc, size in pieces:
        total = combine_crc32c(total, crc, size)
    return total


def _apply(matrix: Matrix, vector: int) -> int:
    image, bit = 0, 0
    while vector:
        if vector & 1:
            image ^= matrix[bit]
        vector >>= 1
        bit += 1
    return image


def _compose(after: Matrix, before: Matrix) -> Matrix:
    return tuple(_apply(after, column) for column in before)


_ONE_ZERO_BIT: Matrix = (_POLYNOMIAL_REFLECTED, *(1 << n for n in range(31)))


@lru_cache(maxsize=64)  # whole blocks are all of one size; tails vary
def _zeros(size: int) -> Matrix:
    """Return the map that appending ``size`` zero bytes applies to a CRC, by repeated squaring."""
    power = _ONE_ZERO_BIT
    for _ in range(3):  # one bit, two, four, eight: a byte
        power = _compose(power, power)
    result: Matrix | None = None
    while size:
        if size & 1:
            result = power if result is None else _compose(power, result)
        size >>= 1
        if size:
            power = _compose(power, power)
    assert result is not None, "called with at least one byte"
    return result


__all__ = ["combine_crc32c", "crc32c", "crc32c_of_file", "crc32c_of_range"]
