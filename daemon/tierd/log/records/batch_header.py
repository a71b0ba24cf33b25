"""The header of a batch (log-format 2.1, 2.2 and 2.7).

All numbers are big-endian. Magic 2, 61 bytes; ``crc`` is the CRC-32C of all bytes from the attributes on::

    0            8        12      16      17    21           23                27              35
    | baseOffset | length | epoch | magic | crc | attributes | lastOffsetDelta | baseTimestamp | maxTimestamp |
    | i64        | i32    | i32   | i8    | u32 | i16        | i32             | i64           | i64          |

    43           51              53             57            61
    | producerId | producerEpoch | baseSequence | recordCount | records ...
    | i64        | i16           | i32          | i32         |

    attributes: bits 0 to 2 codec, 3 timestamps of the leader, 4 transactional, 5 control, 6 delete horizon

Magic 0 and 1, one entry; ``crc`` is the CRC-32 of all bytes from the magic on, ``timestamp`` is in magic 1 only::

    0        8        12    16      17           18
    | offset | length | crc | magic | attributes | timestamp | keyLength, key | valueLength, value |
    | i64    | i32    | u32 | i8    | i8         | i64       | i32, bytes     | i32, bytes         |

``length`` counts the bytes behind itself.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.kernels import crc32c
from tierd.log.files.disk import Readable
from tierd.log.records.compression import Compression

HEADER_V2 = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AND_MAGIC = struct.Struct(">8xi4xB")
_LEGACY = struct.Struct(">qiIbb")  # offset, size, crc, magic, attributes

OVERHEAD_BYTES = 61
MAX_SEQUENCE = (1 << 31) - 1  # of an idempotent producer; 0 follows
LOG_OVERHEAD_BYTES = 12  # offset and length, which the length does not count
FLAGS_AT = 22  # in magic 2: the low byte of the attributes, the only one that readers look at
CODEC_BITS = 7
MAGIC_END = 17  # every format has its magic at 16
SMALLEST_LENGTH = 14
CRC_POSITION_V2 = 17
CRC_START_V2 = 21
CRC_START_LEGACY = 16
_SMALLEST = {0: 26, 1: 34, 2: OVERHEAD_BYTES}
_WINDOW_BYTES = 64 << 10
_CRC_STEP_BYTES = 1 << 20

IS_LOG_APPEND_TIME = 0x08
IS_TRANSACTIONAL = 0x10
IS_CONTROL = 0x20
HAS_DELETE_HORIZON = 0x40


@dataclass(slots=True, kw_only=True)  # not frozen: that makes one seven times slower, and there are millions
class BatchHeader:
    """Header of a batch, in Kafka's names. A field that a legacy entry lacks is -1, or a flag that is not set.

    The code never changes a header after it was parsed.

    Attributes:
        base_offset: first offset of the batch before any compaction; last offset of a compressed legacy entry.
        last_offset: inclusive, even when compaction has removed the record.
        base_timestamp_ms: base of the timestamps of the records, or the delete horizon.
        record_count: may be 0; -1 in a compressed legacy entry, whose header has no count.
        position: of the batch in its file.
        size_bytes: of the whole batch.
        name: the file, for errors.
    """

    base_offset: int
    last_offset: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int
    size_bytes: int
    name: str

    @property
    def compression(self) -> Compression:
        """Return the codec of the records.

        Raises:
            InvalidRecordError: the attributes name none.
        """
        codec = self.attributes & 7
        if codec > Compression.ZSTD:
            raise InvalidRecordError(self.name, self.position, f"codec {codec} does not exist")
        return Compression(codec)

    @property
    def timestamp_type(self) -> str:
        """Return ``CreateTime`` or ``LogAppendTime``; ``NoTimestampType`` in magic 0."""
        if self.magic == 0:
            return "NoTimestampType"
        return "LogAppendTime" if self.attributes & IS_LOG_APPEND_TIME else "CreateTime"

    @property
    def is_transactional(self) -> bool:
        """Return True for a batch of a transaction."""
        return self.magic >= 2 and bool(self.attributes & IS_TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return True for a batch of control records, which Kafka writes."""
        return self.magic >= 2 and bool(self.attributes & IS_CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return the time from which compaction may drop the batch's tombstones and markers; None if not set."""
        return self.base_timestamp_ms if self.magic >= 2 and self.attributes & HAS_DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """Return the sequence number of the last record, -1 without a producer; wraps after the largest int."""
        if self.base_sequence == -1:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset - self.base_offset)

    @property
    def end_position(self) -> int:
        """Return the position of the first byte behind the batch."""
        return self.position + self.size_bytes

    @property
    def crc_start(self) -> int:
        """Return the position in the batch of the first byte that ``crc`` covers."""
        return CRC_START_V2 if self.magic >= 2 else CRC_START_LEGACY


def increment_sequence(sequence: int, count: int) -> int:
    """Return the sequence number ``count`` after ``sequence`` (Kafka: DefaultRecordBatch.incrementSequence)."""
    return (sequence + count) & MAX_SEQUENCE


def parse_header(data: bytes | memoryview, at: int, *, name: str, position: int) -> BatchHeader | None:
    """Parse the header at ``at``; None when the bytes end before it does.

    Args:
        data: any bytes.
        at: where in ``data`` the batch begins.
        name: the file, for errors.
        position: where in the file the batch begins.

    Raises:
        CorruptRecordError: an impossible length or magic.
    """
    left = len(data) - at
    if left < LOG_OVERHEAD_BYTES:
        return None
    if left < MAGIC_END:
        _check_length(int.from_bytes(data[at + 8 : at + 12], "big", signed=True), name, position)
        return None
    length, magic = _LENGTH_AND_MAGIC.unpack_from(data, at)
    _check_length(length, name, position)
    smallest = _SMALLEST.get(magic)
    if smallest is None:
        raise CorruptRecordError(name, position, f"magic {magic} does not exist")
    size_bytes = length + LOG_OVERHEAD_BYTES
    if size_bytes < smallest:
        raise CorruptRecordError(name, position, f"{size_bytes} bytes are too few for a batch of magic {magic}")
    if left < smallest:
        return None
    parse = _parse_v2 if magic == 2 else _parse_legacy
    return parse(data, at, name, position)


def headers_in(data: bytes | memoryview, *, name: str, position: int = 0) -> Iterator[BatchHeader]:
    """Yield the headers of the whole batches in ``data``, from its first byte on; an incomplete last one is left out.

    Args:
        data: batches one behind the other.
        name: the file, for errors.
        position: where in the file ``data`` begins.

    Raises:
        CorruptRecordError: a header is impossible.
    """
    at, size = 0, len(data)
    while (header := parse_header(data, at, name=name, position=position + at)) is not None:
        at += header.size_bytes
        if at > size:
            return
        yield header


def _check_length(length: int, name: str, position: int) -> None:
    if length < SMALLEST_LENGTH:
        raise CorruptRecordError(name, position, f"batch length {length} is below {SMALLEST_LENGTH}")


def take_lacking(begun: bytearray, data: bytes | memoryview) -> memoryview:
    """Move the next bytes of an incomplete batch from ``data`` to ``begun``; return the rest of ``data``.

    The first call completes the length, and the next call the batch. ``parse_header`` checks the length in between. The
    caller repeats the call until the batch is complete.
    """
    known = len(begun)
    length = int.from_bytes(begun[8:12], "big") if known >= LOG_OVERHEAD_BYTES else 0
    lacking = LOG_OVERHEAD_BYTES + length - known
    begun += data[:lacking]
    return memoryview(data)[lacking:]


def write_header(
    out: bytearray,
    *,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    attributes: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write the header of the batch of magic 2 in ``out`` into its first 61 bytes. CRC and length are computed.

    Raises:
        ValueError: a value does not fit into its field.
    """
    try:
        HEADER_V2.pack_into(
            out,
            0,
            base_offset,
            len(out) - LOG_OVERHEAD_BYTES,
            leader_epoch,
            2,
            0,
            attributes,
            last_offset - base_offset,
            base_timestamp_ms,
            max_timestamp_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            record_count,
        )
    except struct.error as error:
        raise ValueError(f"a field of the batch at offset {base_offset} is out of range: {error}") from error
    if not 0 <= base_offset <= last_offset < 1 << 63:
        raise ValueError(f"offsets {base_offset} to {last_offset} are impossible")
    stamp_crc(out)


def stamp_crc(batch: bytearray | memoryview) -> None:
    """Write the right CRC into a batch of magic 2."""
    struct.pack_into(">I", batch, CRC_POSITION_V2, crc32c(memoryview(batch)[CRC_START_V2:]))


def _parse_v2(data: bytes | memoryview, at: int, name: str, position: int) -> BatchHeader:
    base, length, epoch, magic, crc, attributes, delta, base_ts, max_ts, pid, pepoch, sequence, count = (
        HEADER_V2.unpack_from(data, at)
    )
    if base < 0 or delta < 0 or base + delta >= 1 << 63:
        raise CorruptRecordError(name, position, f"offsets {base} to {base + delta} are impossible")
    return BatchHeader(
        base_offset=base,
        last_offset=base + delta,
        partition_leader_epoch=epoch,
        magic=magic,
        crc=crc,
        attributes=attributes & 0xFF,  # Kafka's readers look at the low byte only
        base_timestamp_ms=base_ts,
        max_timestamp_ms=max_ts,
        producer_id=pid,
        producer_epoch=pepoch,
        base_sequence=sequence,
        record_count=count,
        position=position,
        size_bytes=length + LOG_OVERHEAD_BYTES,
        name=name,
    )


def _parse_legacy(data: bytes | memoryview, at: int, name: str, position: int) -> BatchHeader:
    offset, length, crc, magic, attributes = _LEGACY.unpack_from(data, at)
    if offset < 0:
        raise CorruptRecordError(name, position, f"offset {offset} is impossible")
    timestamp_ms = int.from_bytes(data[at + 18 : at + 26], "big", signed=True) if magic else -1
    return BatchHeader(
        base_offset=offset,
        last_offset=offset,
        partition_leader_epoch=-1,
        magic=magic,
        crc=crc,
        attributes=attributes & 0xFF,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=-1 if attributes & 7 else 1,
        position=position,
        size_bytes=length + LOG_OVERHEAD_BYTES,
        name=name,
    )


def iter_headers(
    source: Readable, *, position: int = 0, end: int | None = None, may_be_torn: bool = True
) -> Iterator[BatchHeader]:
    """Yield the headers of an open segment from the batch at ``position`` on, with little memory. Blocking.

    Args:
        source: the segment's log file.
        position: start of a batch.
        end: bytes of the file that count, exclusive; None for the size when the file was opened.
        may_be_torn: an incomplete batch at the end is no error, as for Kafka's readers.

    Raises:
        CorruptRecordError: a header is impossible, or a batch is incomplete and ``may_be_torn`` is false.
        SegmentChangedError: the file became shorter.
    """
    name = str(source.path)
    end = source.size_bytes if end is None else end
    window, window_start = b"", position
    while position < end:
        at = position - window_start
        header = parse_header(window, at, name=name, position=position) if at < len(window) else None
        if header is None and window_start + len(window) < end:
            window, window_start = source.read(position, min(_WINDOW_BYTES, end - position)), position
            if len(window) < min(_WINDOW_BYTES, end - position):
                raise source.changed()
            header = parse_header(window, 0, name=name, position=position)
        if header is None or header.end_position > end:
            if may_be_torn:
                return
            raise CorruptRecordError(name, position, f"an incomplete batch, {end - position} bytes")
        yield header
        position = header.end_position


def crc_matches(source: Readable, header: BatchHeader) -> bool:
    """Return true if the bytes of the batch have its checksum. They are read in steps of bounded size. Blocking.

    Raises:
        SegmentChangedError: the file became shorter.
    """
    crc, at, end = 0, header.position + header.crc_start, header.end_position
    update = crc32c if header.magic >= 2 else zlib.crc32
    while at < end:
        piece = source.read(at, min(_CRC_STEP_BYTES, end - at))
        if not piece:
            raise source.changed()
        crc = update(piece, crc)
        at += len(piece)
    return crc == header.crc
