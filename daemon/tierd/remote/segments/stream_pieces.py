"""stream_pieces: the ranges in which a large range of a log is read, one after the other."""

from collections.abc import Iterator
from typing import Final

from tierd.model import ByteRange

STREAM_PIECE_BYTES: Final = 8 << 20


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
