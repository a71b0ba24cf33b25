"""ChunkLayout: the places of the chunks of a log in its object. Arithmetic, no I/O."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from tierd.model import ByteRange


class StoredChunk(NamedTuple):
    """One chunk of the log as it is stored.

    Attributes:
        size_bytes: after the transformation.
        crc32c: of the original bytes.
    """

    size_bytes: int
    crc32c: int
    is_compressed: bool = False


@dataclass(frozen=True)
class ChunkLayout:
    """The chunks of one log, in order.

    Attributes:
        original_size: bytes of the log before the transformation.
        chunk_size: original bytes in each chunk but the last one, which has the rest.
    """

    original_size: int
    chunk_size: int
    chunks: tuple[StoredChunk, ...]  # invariant: count_chunks(original_size, chunk_size) of them

    def original_range(self, number: int) -> ByteRange:
        """Return the range of the log that chunk ``number`` holds."""
        start = number * self.chunk_size
        return ByteRange(start, min(start + self.chunk_size, self.original_size) - 1)

    def chunks_of(self, byte_range: ByteRange) -> range:
        """Return the numbers of the chunks that hold ``byte_range``, which lies within the log."""
        return range(byte_range.start // self.chunk_size, byte_range.end // self.chunk_size + 1)

    def stored_range(self, chunks: range) -> ByteRange:
        """Return the range of neighbouring chunks in the object; none of them is empty."""
        return ByteRange(self._starts[chunks.start], self._starts[chunks.stop] - 1)

    def runs(self, chunks: range, max_bytes: int) -> Iterator[range]:
        """Cut ``chunks`` into runs of neighbours with at most ``max_bytes`` stored bytes, but at least one chunk."""
        first = chunks.start
        for number in chunks:
            if number > first and self._starts[number + 1] - self._starts[first] > max_bytes:
                yield range(first, number)
                first = number
        if first < chunks.stop:
            yield range(first, chunks.stop)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return tuple(accumulate((chunk.size_bytes for chunk in self.chunks), initial=0))


def count_chunks(size_bytes: int, chunk_size: int) -> int:
    """Return the number of chunks of a log of ``size_bytes``."""
    return -(-size_bytes // chunk_size)


def original_sizes(size_bytes: int, chunk_size: int) -> Iterable[int]:
    """Return the number of original bytes of each chunk."""
    return (min(chunk_size, size_bytes - at) for at in range(0, size_bytes, chunk_size))
