"""LogCursor: reads on in a log, for readers that follow it; whole batches whose checksums were compared."""

import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tierd.errors import CorruptRecordError, SegmentChangedError
from tierd.kernels import crc32c
from tierd.log.files.disk import DiskFile
from tierd.log.records.batch_header import CRC_START_V2, LOG_OVERHEAD_BYTES, OVERHEAD_BYTES, parse_header
from tierd.log.records.log_offset import LogOffset
from tierd.log.records.record_batch import with_data
from tierd.log.segments.log_read import CursorPlace, FetchData, LogReader

_PREFIX = struct.Struct(">qi4xbI2xi")  # base offset, length, magic, crc, last offset delta


@dataclass(frozen=True, slots=True)
class SoundBatches:
    """The whole batches at the beginning of some bytes, with right checksums.

    Attributes:
        size_bytes: size of all of them.
        next_offset: offset behind the last of them; -1 without a batch.
    """

    size_bytes: int
    next_offset: int


def check_batches(data: bytes, *, name: str, position: int = 0) -> SoundBatches:
    """Check the batches that ``data`` begins with, up to an incomplete one. Opens none of them.

    Args:
        data: bytes that begin with a batch.
        name: the file, for errors.
        position: where in the file ``data`` begins.

    Raises:
        CorruptRecordError: an impossible header, a wrong checksum, or offsets that do not ascend.
    """
    view, size, at, next_offset = memoryview(data), len(data), 0, -1
    unpack, crc_of = _PREFIX.unpack_from, crc32c
    while at + OVERHEAD_BYTES <= size:
        base, length, magic, crc, delta = unpack(data, at)
        if magic != 2 or length < OVERHEAD_BYTES - LOG_OVERHEAD_BYTES or delta < 0:
            break
        end = at + LOG_OVERHEAD_BYTES + length
        if end > size:
            return SoundBatches(at, next_offset)
        if crc_of(view[at + CRC_START_V2 : end]) != crc:
            raise CorruptRecordError(name, position + at, "wrong checksum of the batch")
        if base < next_offset:
            raise CorruptRecordError(name, position + at, f"offset {base} again")
        at, next_offset = end, base + delta + 1
    if at == size:
        return SoundBatches(at, next_offset)
    return _check_slowly(view, at, next_offset, name=name, position=position)


def _check_slowly(view: memoryview, at: int, next_offset: int, *, name: str, position: int) -> SoundBatches:
    """Go on at a legacy entry, an impossible header, or the end, which ``check_batches`` leaves to the full parser."""
    while (header := parse_header(view, at, name=name, position=position + at)) is not None:
        end = at + header.size_bytes
        if end > len(view):
            break
        if not with_data(header, view[at:end]).is_valid:
            raise CorruptRecordError(name, header.position, "wrong checksum of the batch")
        if header.last_offset < next_offset:
            raise CorruptRecordError(name, header.position, f"offset {header.last_offset} again")
        at, next_offset = end, header.last_offset + 1
    return SoundBatches(at, next_offset)


class LogCursor:
    """Reader that goes on where it stopped, in the file that it holds open. One thread; the owner closes it."""

    def __init__(self, reader: LogReader, offset: int) -> None:
        """Begin at the batch that holds ``offset`` or follows it."""
        self._reader = reader
        self._place: CursorPlace | None = None
        self._file: DiskFile | None = None
        self._read_bytes = 0  # of the last read: a batch above ``max_bytes`` is mostly followed by one of its size
        self.next_offset = offset
        """Offset of the first record that was not returned yet."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self, *, bound: LogOffset, max_bytes: int) -> memoryview:
        """Return the next whole batches, at least one; empty without a batch below ``bound``.

        Args:
            bound: exclusive end of the records that may be read, with its place.
            max_bytes: limit on the result, unless the first batch alone is larger.

        Raises:
            CorruptRecordError: a batch is damaged.
            OffsetOutOfRangeError: the log was truncated below ``next_offset``, or begins above it now.
            SegmentChangedError: the files are gone, or change again and again.
            OSError: a file cannot be read.
        """
        version = self._reader.names_version
        found = self._read_on(bound, max_bytes) or self._read_anew(bound, max_bytes)
        if not found.records:
            return memoryview(b"")
        start = found.start
        sound = check_batches(found.records, name=self._reader.name, position=start.position)
        if not sound.size_bytes:
            raise SegmentChangedError(f"{self._reader.name}: changed while it was read", remedy="read again")
        end = LogOffset(sound.next_offset, start.segment_base_offset, start.position + sound.size_bytes)
        self.next_offset, self._place = end.offset, CursorPlace(end, version)
        self._read_bytes = sound.size_bytes
        if self._file is None:
            self._file = self._reader.open_at(self._place)
        return memoryview(found.records)[: sound.size_bytes]

    def close(self) -> None:
        """Close the file; the next read opens a file again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _read_on(self, bound: LogOffset, max_bytes: int) -> FetchData | None:
        if self._file is None or self._place is None:
            return None
        return self._reader.read_on(
            self._file, self._place, max_bytes=max_bytes, bound=bound, expected_bytes=self._read_bytes
        )

    def _read_anew(self, bound: LogOffset, max_bytes: int) -> FetchData:
        self.close()
        return self._reader.read(self.next_offset, max_bytes=max_bytes, bound=bound, place=self._place)
