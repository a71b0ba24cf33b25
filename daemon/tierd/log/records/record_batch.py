"""RecordBatch: a batch with its bytes, checked and opened (log-format 2; the legacy formats included)."""

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn, Self

from tierd.errors import BatchTooLargeError, CorruptRecordError, InvalidRecordError
from tierd.kernels import crc32c
from tierd.log.files.disk import Readable
from tierd.log.records.batch_header import (
    HEADER_V2,
    IS_LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    OVERHEAD_BYTES,
    BatchHeader,
    iter_headers,
    parse_header,
)
from tierd.log.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    Compression,
    PayloadError,
    PayloadTooLargeError,
    decompress,
)
from tierd.log.records.record import ControlRecordType, Record, RecordError, iter_raw_records, parse_control_type

_LONG_MASK = 0xFFFFFFFFFFFFFFFF
LARGEST_OFFSET = (1 << 63) - 1


@dataclass(slots=True, kw_only=True)
class RecordBatch(BatchHeader):
    """A batch and its bytes. In the legacy formats, one entry: a record, or a wrapper around several."""

    data: memoryview = field(repr=False, compare=False)  # invariant: exactly size_bytes

    @property
    def is_valid(self) -> bool:
        """Return True if the checksum of the bytes is the one in the header."""
        covered = self.data[self.crc_start :]
        return (crc32c(covered) if self.magic >= 2 else zlib.crc32(covered)) == self.crc

    def checked(self) -> Self:
        """Return the batch itself once its checksum was compared.

        Raises:
            CorruptRecordError: its checksum is wrong.
        """
        if not self.is_valid:
            raise CorruptRecordError(self.name, self.position, "wrong checksum of the batch")
        return self

    def records(self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator[Record]:
        """Decode the records, control records included, in order.

        Args:
            max_bytes: limit on the decompressed size of the batch.

        Raises:
            BatchTooLargeError: they become more than ``max_bytes``; none was yielded.
            InvalidRecordError: the records cannot be decoded; those before the fault were yielded.
        """
        return self._records_v2(max_bytes) if self.magic >= 2 else self._records_legacy(max_bytes)

    def control_type(self) -> ControlRecordType | None:
        """Return the type of a control batch; None for a batch of data, or when compaction has emptied the batch.

        Raises:
            InvalidRecordError: its record cannot be decoded.
        """
        if not self.is_control or not self.record_count:
            return None
        try:
            return parse_control_type(next(self.records()).key)
        except RecordError as error:
            self._fail(str(error), error)

    def _records_v2(self, max_bytes: int) -> Iterator[Record]:
        appended_ms = self.max_timestamp_ms if self.attributes & IS_LOG_APPEND_TIME else None
        kind, base_offset, base_ms = self.timestamp_type, self.base_offset, self.base_timestamp_ms
        payload = bytes(self.payload(max_bytes=max_bytes))
        try:
            for raw in iter_raw_records(payload, self.record_count):
                yield Record(
                    base_offset + raw.offset_delta,
                    _signed(base_ms + raw.timestamp_delta_ms) if appended_ms is None else appended_ms,
                    kind,
                    raw.key,
                    raw.value,
                    raw.headers,
                    self.partition_leader_epoch,
                )
        except RecordError as error:
            self._fail(str(error), error)

    def payload(self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes | memoryview:
        """Return the encoded records of a batch of magic 2, decompressed; a view of ``data`` without compression.

        Raises:
            BatchTooLargeError: they become more than ``max_bytes``.
            InvalidRecordError: they cannot be decompressed.
            ValueError: a legacy entry; see ``inner_entries``.
        """
        if self.magic < 2:
            raise ValueError(f"an entry of magic {self.magic} has no such payload")
        encoded = self.data[OVERHEAD_BYTES:]
        if not self.attributes & 7:
            return encoded
        if not self.record_count:
            return b""  # Kafka does not open the stream either
        try:
            return decompress(self.compression, bytes(encoded), magic=2, max_bytes=max_bytes)
        except PayloadTooLargeError as error:
            self._fail_too_large(error)
        except PayloadError as error:
            self._fail(str(error), error)

    def _records_legacy(self, max_bytes: int) -> Iterator[Record]:
        if self.compression is Compression.NONE:
            key, value = self.legacy_fields()
            yield Record(self.last_offset, self.max_timestamp_ms, self.timestamp_type, key, value)
            return
        inner = self._inner_payload(max_bytes)
        # walked twice, because the last offset is needed first, and so many objects may not fit in memory
        last = deque(self._sound_entries(inner), maxlen=1)
        if not last:
            self._fail("a compressed entry without records")
        shift = self._inner_shift(last[0].last_offset)
        appended_ms = self.max_timestamp_ms if self.attributes & IS_LOG_APPEND_TIME and self.magic == 1 else None
        for entry in self._sound_entries(inner):
            inner_key, inner_value = entry.legacy_fields()
            timestamp_ms = entry.max_timestamp_ms if appended_ms is None else appended_ms
            yield Record(entry.last_offset + shift, timestamp_ms, self.timestamp_type, inner_key, inner_value)

    def _inner_payload(self, max_bytes: int) -> bytes:
        value = self.legacy_fields()[1]
        if value is None:
            self._fail("a compressed entry without a value")
        try:
            return decompress(self.compression, value, magic=self.magic, max_bytes=max_bytes)
        except PayloadTooLargeError as error:
            self._fail_too_large(error)
        except PayloadError as error:
            self._fail(str(error), error)

    def _sound_entries(self, payload: bytes) -> Iterator["RecordBatch"]:
        for entry in self._inner_entries(payload, check_crc=True):
            # magic 0 within 1: an old cleaner wrote such entries, and Kafka still reads them
            if entry.magic > self.magic or entry.attributes & 7:
                self._fail("a compressed entry within a compressed entry, or one of another magic")
            yield entry

    def inner_entries(self, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Iterator["RecordBatch"]:
        """Return the entries within a compressed legacy entry; their checksum, magic and codec are not checked.

        Raises:
            InvalidRecordError: they cannot be decompressed or decoded.
        """
        return self._inner_entries(self._inner_payload(max_bytes), check_crc=False)

    def _inner_entries(self, payload: bytes, *, check_crc: bool) -> Iterator["RecordBatch"]:
        size = 0
        try:
            for entry in iter_batches(payload, name=self.name, position=self.position, check_crc=check_crc):
                size += entry.size_bytes
                yield entry
        except InvalidRecordError:
            raise
        except CorruptRecordError as error:
            self._fail("a damaged entry within a compressed entry", error)
        if size != len(payload):
            self._fail("an incomplete entry within a compressed entry")

    def _inner_shift(self, last_inner_offset: int) -> int:
        """Return the number to add to inner offsets (log-format 2.7).

        Inner offsets of magic 1 count from 0, and some clients sent only zeros.
        """
        if self.magic == 0 or self.last_offset == 0:
            return 0
        if self.last_offset < last_inner_offset:
            self._fail(f"offset {self.last_offset} is below its last relative offset {last_inner_offset}")
        return self.last_offset - last_inner_offset

    def legacy_fields(self) -> tuple[bytes | None, bytes | None]:
        """Return the bytes of key and value of an entry of magic 0 or 1.

        Raises:
            InvalidRecordError: they do not fill the entry.
        """
        at = 18 if self.magic == 0 else 26
        key, at = self._legacy_field(at)
        value, at = self._legacy_field(at)
        if at != self.size_bytes:
            self._fail("an entry whose fields do not fill it")
        return key, value

    def _legacy_field(self, at: int) -> tuple[bytes | None, int]:
        size = int.from_bytes(self.data[at : at + 4], "big", signed=True)
        if at + 4 > self.size_bytes or size < -1 or at + 4 + max(size, 0) > self.size_bytes:
            self._fail(f"a field of {size} bytes does not fit")
        if size == -1:
            return None, at + 4
        return bytes(self.data[at + 4 : at + 4 + size]), at + 4 + size

    def _fail_too_large(self, error: PayloadTooLargeError) -> NoReturn:
        where = f"{self.base_offset} to {self.last_offset}" if self.magic >= 2 else f"up to {self.last_offset}"
        raise BatchTooLargeError(self.name, self.position, f"the batch of offsets {where} has {error}") from error

    def _fail(self, problem: str, cause: Exception | None = None) -> NoReturn:
        raise InvalidRecordError(self.name, self.position, problem) from cause


def iter_batches(
    data: bytes | memoryview, *, name: str, position: int = 0, check_crc: bool = True
) -> Iterator[RecordBatch]:
    """Walk the batches of a piece of a log, stopping before an incomplete one at its end.

    Args:
        data: bytes that begin with a batch; the batches refer to them and do not copy.
        name: the file, for errors.
        position: where in the file ``data`` begins.
        check_crc: refuse a batch whose bytes do not have its checksum.

    Raises:
        CorruptRecordError: an impossible header, or a wrong checksum.
    """
    view = memoryview(data)
    at = 0
    while True:
        batch = _plain_batch(view, at, name, position + at)
        if batch is None:
            header = parse_header(view, at, name=name, position=position + at)
            if header is None or at + header.size_bytes > len(view):
                return
            batch = with_data(header, view[at : at + header.size_bytes])
        yield batch.checked() if check_crc else batch
        at += batch.size_bytes


def _plain_batch(view: memoryview, at: int, name: str, position: int) -> RecordBatch | None:
    """Return the batch at ``at`` if it is of magic 2, whole, and no error; for all others ``parse_header`` decides.

    The header is made as a part of the batch: a header by itself, and a batch made of it, take twice the time.
    """
    if len(view) - at < OVERHEAD_BYTES:
        return None
    base, length, epoch, magic, crc, attributes, delta, base_ts, max_ts, pid, pepoch, sequence, count = (
        HEADER_V2.unpack_from(view, at)
    )
    end = at + length + LOG_OVERHEAD_BYTES
    if magic != 2 or not at + OVERHEAD_BYTES <= end <= len(view):
        return None
    if base < 0 or delta < 0 or base + delta > LARGEST_OFFSET:
        return None
    return RecordBatch(
        base_offset=base,
        last_offset=base + delta,
        partition_leader_epoch=epoch,
        magic=magic,
        crc=crc,
        attributes=attributes & 0xFF,
        base_timestamp_ms=base_ts,
        max_timestamp_ms=max_ts,
        producer_id=pid,
        producer_epoch=pepoch,
        base_sequence=sequence,
        record_count=count,
        position=position,
        size_bytes=end - at,
        name=name,
        data=view[at:end],
    )


def with_data(header: BatchHeader, data: memoryview) -> RecordBatch:
    """Return the batch with ``header`` and the bytes ``data``."""
    return RecordBatch(  # written out, which takes half of the time of a loop over the fields
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        magic=header.magic,
        crc=header.crc,
        attributes=header.attributes,
        base_timestamp_ms=header.base_timestamp_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=header.record_count,
        position=header.position,
        size_bytes=header.size_bytes,
        name=header.name,
        data=data,
    )


def read_batch(source: Readable, header: BatchHeader) -> RecordBatch:
    """Read a batch's bytes from its open segment. Blocking.

    Raises:
        SegmentChangedError: the file became shorter.
    """
    data = source.read(header.position, header.size_bytes)
    if len(data) != header.size_bytes:
        raise source.changed()
    return with_data(header, memoryview(data))


def control_type_of(source: Readable, header: BatchHeader) -> ControlRecordType | None:
    """Return ``RecordBatch.control_type`` of a batch; only the bytes of a control batch are read. Blocking."""
    if not header.is_control or not header.record_count:
        return None
    return read_batch(source, header).control_type()


def _signed(value: int) -> int:
    """Return ``number`` wrapped to a signed 64-bit number, as Java wraps sums."""
    value &= _LONG_MASK
    return value - (1 << 64) if value >> 63 else value


__all__ = ["RecordBatch", "control_type_of", "iter_batches", "iter_headers", "read_batch", "with_data"]
