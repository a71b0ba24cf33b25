"""CheckedBatches: successive batches of one file whose checksums were compared, without an object for each batch."""

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, overload

from tierd.errors import CorruptRecordError
from tierd.kernels import crc32c
from tierd.log.records.batch_header import CRC_START_V2, LOG_OVERHEAD_BYTES, OVERHEAD_BYTES, parse_header
from tierd.log.records.record_batch import LARGEST_OFFSET, RecordBatch, iter_batches, with_data

_HEADER: Final = struct.Struct(">qiibIhi")  # base offset, length, epoch, magic, CRC, attributes, delta of last offset


class BytesInFile(NamedTuple):
    """Bytes of a file, and their place in it."""

    data: memoryview
    position: int

    def has_some(self, start: int, end: int) -> bool:
        """Return True if some of the bytes lie between two positions in the file."""
        return self.position < end and start < self.position + len(self.data)

    def between(self, start: int, end: int) -> "BytesInFile":
        """Return those of the bytes that lie between two positions in the file."""
        data = self.data[max(start - self.position, 0) : max(end - self.position, 0)]
        return BytesInFile(data, max(start, self.position))


class CheckedBatches(Sequence[RecordBatch]):
    """Whole batches that follow one another in one file, and whose checksums were compared.

    A ``RecordBatch`` is made each time that an item is read. Offsets and bytes of many batches need none: that is half
    of the time of a walk over batches of 16 KiB. A slice refers to the same bytes, and keeps those of them in memory
    that were read together with one of its batches. The code never changes an instance.

    Attributes:
        name: the file, for errors.
        sources: bytes with the batches, which adjoin. Invariant: no batch lies across two of them.
        base_offsets: of each batch.
        last_offsets: of each batch, inclusive.
        positions: of each batch in the file, and at the end the position behind the last batch.
    """

    __slots__ = ("base_offsets", "last_offsets", "name", "positions", "sources")

    def __init__(
        self,
        name: str,
        sources: Sequence[BytesInFile],
        *,
        base_offsets: Sequence[int],
        last_offsets: Sequence[int],
        positions: Sequence[int],
    ) -> None:
        """Take what ``walk_checked`` found."""
        self.name = name
        self.sources = sources
        self.base_offsets = base_offsets
        self.last_offsets = last_offsets
        self.positions = positions

    def __len__(self) -> int:
        return len(self.base_offsets)

    @overload
    def __getitem__(self, index: int) -> RecordBatch: ...

    @overload
    def __getitem__(self, index: slice) -> "CheckedBatches": ...

    def __getitem__(self, index: int | slice) -> "RecordBatch | CheckedBatches":
        numbers = range(len(self))[index]
        if isinstance(numbers, int):
            (batch,) = self[numbers : numbers + 1]
            return batch
        if numbers.step != 1:
            raise ValueError("the batches of a slice follow one another")
        start, stop = numbers.start, max(numbers.start, numbers.stop)
        positions = self.positions[start : stop + 1]
        return CheckedBatches(
            self.name,
            [source for source in self.sources if source.has_some(positions[0], positions[-1])],
            base_offsets=self.base_offsets[start:stop],
            last_offsets=self.last_offsets[start:stop],
            positions=positions,
        )

    def __iter__(self) -> Iterator[RecordBatch]:
        for data, position in self.pieces:
            yield from iter_batches(data, name=self.name, position=position, check_crc=False)

    @property
    def size_bytes(self) -> int:
        """Return the size of all batches together."""
        return self.positions[-1] - self.positions[0]

    @property
    def pieces(self) -> list[BytesInFile]:
        """Return the bytes of all batches, in as few pieces as they lie in; each piece has whole batches."""
        start, end = self.positions[0], self.positions[-1]
        return [piece for source in self.sources if (piece := source.between(start, end)).data]

    def between(self, offset: int, end_offset: int) -> "CheckedBatches":
        """Return the batches from the first one that reaches ``offset``, up to the first one at ``end_offset``."""
        count = len(self)
        first = next((number for number, last in enumerate(self.last_offsets) if last >= offset), count)
        if first < count and max(self.base_offsets) < end_offset:
            return self[first:]
        later = islice(enumerate(self.base_offsets), first, None)
        return self[first : next((number for number, base in later if base >= end_offset), count)]

    def within(self, max_bytes: int) -> "CheckedBatches":
        """Return the first batches that are not larger than ``max_bytes`` together."""
        limit = self.positions[0] + max_bytes
        return self[: max(bisect_right(self.positions, limit) - 1, 0)]

    def followed_by(self, others: "CheckedBatches") -> "CheckedBatches":
        """Return these batches and ``others``, which begin in the same file where these end."""
        return CheckedBatches(
            self.name,
            (*self.sources, *others.sources),
            base_offsets=[*self.base_offsets, *others.base_offsets],
            last_offsets=[*self.last_offsets, *others.last_offsets],
            positions=[*self.positions[:-1], *others.positions],
        )


class _WalkedColumns(NamedTuple):
    """Columns of the batches that a walk has found so far."""

    base_offsets: list[int]
    last_offsets: list[int]
    positions: list[int]  # in the file; behind each batch its end


def walk_checked(data: bytes | memoryview, *, name: str, position: int = 0) -> CheckedBatches:
    """Find the batches of a piece of a log and compare their checksums, as ``iter_batches`` does.

    The walk stops before an incomplete batch at the end of the bytes.

    Args:
        data: bytes that begin with a batch; the result refers to them and does not copy.
        name: the file, for errors.
        position: where in the file ``data`` begins.

    Raises:
        CorruptRecordError: an impossible header, or a wrong checksum.
    """
    view = memoryview(data)
    found = _WalkedColumns([], [], [position])
    while True:
        _walk_plain(view, found, name, position)
        at = found.positions[-1] - position
        header = parse_header(view, at, name=name, position=position + at)
        if header is None or at + header.size_bytes > len(view):
            break
        with_data(header, view[at : at + header.size_bytes]).checked()
        found.base_offsets.append(header.base_offset)
        found.last_offsets.append(header.last_offset)
        found.positions.append(header.end_position)
    return CheckedBatches(
        name,
        (BytesInFile(view, position),),
        base_offsets=found.base_offsets,
        last_offsets=found.last_offsets,
        positions=found.positions,
    )


def _walk_plain(view: memoryview, found: _WalkedColumns, name: str, position: int) -> None:
    """Add the next batches to ``found``, as long as they are of magic 2, whole, and have no error in the header.

    ``parse_header`` decides about all others. The loop is written out: a call for each batch takes longer.
    """
    size_bytes, at = len(view), found.positions[-1] - position
    add_base, add_last, add_end = found.base_offsets.append, found.last_offsets.append, found.positions.append
    while size_bytes - at >= OVERHEAD_BYTES:
        base, length, _, magic, crc, _, delta = _HEADER.unpack_from(view, at)
        end = at + length + LOG_OVERHEAD_BYTES
        if magic != 2 or not at + OVERHEAD_BYTES <= end <= size_bytes:
            return
        if base < 0 or delta < 0 or base + delta > LARGEST_OFFSET:
            return
        if crc32c(view[at + CRC_START_V2 : end]) != crc:
            raise CorruptRecordError(name, position + at, "wrong checksum of the batch")
        add_base(base)
        add_last(base + delta)
        add_end(position + end)
        at = end
