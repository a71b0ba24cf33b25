"""RecordColumns: many records at once, without an object for each (log-format 2.3).

For what looks at all records but at few of their fields: the leader's validation, and readers in bulk. The numbers lie
in arrays; keys, values and headers stay where they are until somebody asks.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.kernels import STEP_RECORDS, Columns, RecordFault, crc32c, decode_batches, decode_records
from tierd.log.records.batch_header import CRC_START_V2, IS_LOG_APPEND_TIME, BatchHeader, parse_header
from tierd.log.records.compression import MAX_DECOMPRESSED_BYTES
from tierd.log.records.record import Header, Record, parse_headers
from tierd.log.records.record_batch import RecordBatch, with_data


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Consecutive records, of one or of several batches of magic 2.

    Attributes:
        payload: what holds them: a piece of a log, or the decompressed records of a batch.
        columns: offsets, timestamps, and where the other fields lie in ``payload``; without fault.
        batches: the one batch, or what finds the batch of a record.
    """

    payload: bytes | memoryview = field(repr=False)
    columns: Columns = field(repr=False)
    batches: "BatchHeader | _Batches"

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Record]:
        return map(self.record, range(len(self)))

    def offsets(self) -> list[int]:
        """Of every record."""
        return self.columns.offset.tolist()

    def timestamps_ms(self) -> list[int]:
        """Of every record: its own, or in a LogAppendTime batch the batch's."""
        return self.columns.timestamp_ms.tolist()

    def values(self) -> list[bytes | None]:
        """The value of every record."""
        if not len(self):
            return []
        starts, sizes = self.columns.value_start.tolist(), self.columns.value_size.tolist()
        payload, first = self.payload, 0
        if not isinstance(payload, bytes):  # slices of bytes are the cheapest, so one copy pays
            first = starts[0]
            payload = bytes(payload[first : self.columns.end])
        return [
            payload[start - first : start - first + size] if size >= 0 else None
            for start, size in zip(starts, sizes, strict=True)
        ]

    def offset(self, index: int) -> int:
        """Of the record at ``index``, counted from 0, as everywhere here."""
        return self.columns.offset[index]

    def timestamp_ms(self, index: int) -> int:
        """Its timestamp, as ``timestamps_ms``."""
        return self.columns.timestamp_ms[index]

    def key(self, index: int) -> bytes | None:
        """Its key."""
        return self._field(self.columns.key_start[index], self.columns.key_size[index])

    def value(self, index: int) -> bytes | None:
        """Its value."""
        return self._field(self.columns.value_start[index], self.columns.value_size[index])

    def headers(self, index: int) -> tuple[Header, ...]:
        """Its headers, in order."""
        count = self.columns.header_count[index]
        if not count:
            return ()
        start, end = self.columns.headers_start[index], self._end(index)
        return parse_headers(bytes(self.payload[start:end]), 0, end - start, count)[0]

    def batch(self, index: int) -> BatchHeader:
        """The batch that the record at ``index`` belongs to."""
        return self.batches if isinstance(self.batches, BatchHeader) else self.batches.of_record(index)

    def record(self, index: int) -> Record:
        """The whole record, as a consumer sees it."""
        batch = self.batch(index)
        return Record(
            self.offset(index),
            self.timestamp_ms(index),
            batch.timestamp_type,
            self.key(index),
            self.value(index),
            self.headers(index),
            batch.partition_leader_epoch,
        )

    def _field(self, start: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.payload[start : start + size])

    def _end(self, index: int) -> int:
        """Where the record at ``index`` ends at the latest."""
        return self.columns.key_start[index + 1] if index + 1 < len(self) else self.columns.end


@dataclass(frozen=True, slots=True)
class _Batches:
    """Batches of a piece of a log, whose headers are parsed when they are asked for.

    Attributes:
        position: where the piece begins in the file.
        starts: of the batches, in ``data``.
        first_records: index of each one's first record.
    """

    data: memoryview = field(repr=False)
    name: str
    position: int
    starts: memoryview = field(repr=False)
    first_records: memoryview = field(repr=False)

    def of_record(self, index: int) -> BatchHeader:
        return self._header(self.starts[bisect_right(self.first_records, index) - 1])

    def check(self, end: int) -> None:
        """Check every checksum; ``end`` is where the last batch ends."""
        data, starts = self.data, self.starts.tolist()
        for start, next_start in zip(starts, [*starts[1:], end], strict=True):
            if crc32c(data[start + CRC_START_V2 : next_start]) != int.from_bytes(data[start + 17 : start + 21], "big"):
                raise CorruptRecordError(self.name, self.position + start, "wrong checksum of the batch")

    def _header(self, start: int) -> BatchHeader:
        header = parse_header(self.data, start, name=self.name, position=self.position + start)
        assert header is not None, "the kernel found a whole batch there"
        return header


def columns_of(batch: RecordBatch, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> RecordColumns:
    """Decode all records of a batch of magic 2.

    Args:
        batch: which; control batches too.
        max_bytes: what it may become when it is decompressed. The columns take up to seven times as much on top.

    Raises:
        InvalidRecordError: the records cannot be decoded, or there are more or fewer than the header says.
        ValueError: a legacy entry.
    """
    payload = batch.payload(max_bytes=max_bytes)
    return _decode(batch, payload, start=0, count=batch.record_count, left=0)


def iter_columns(
    batch: RecordBatch, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, step_records: int = STEP_RECORDS
) -> Iterator[RecordColumns]:
    """As ``columns_of``, a number of records at a time, so that the columns take little memory whatever comes.

    Raises:
        InvalidRecordError: as ``columns_of``; what came before the fault was yielded, in whole steps.
        ValueError: a legacy entry.
    """
    payload = batch.payload(max_bytes=max_bytes)
    position, left = 0, batch.record_count
    while True:
        step = min(left, step_records)
        left -= step
        found = _decode(batch, payload, start=position, count=step, left=left)
        yield found
        position = found.columns.end
        if not left:
            return


def iter_log_columns(
    data: bytes | memoryview,
    *,
    name: str,
    position: int = 0,
    check_crc: bool = True,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
    step_records: int = STEP_RECORDS,
) -> Iterator[RecordColumns]:
    """Decode the records of a piece of a log, many batches at a time where they are small and not compressed.

    Args:
        data: bytes that begin with a batch; below 2 GiB. An incomplete batch at the end is left out.
        name: the file, for errors.
        position: where in the file ``data`` begins.
        check_crc: refuse a batch whose bytes do not have its checksum.
        max_bytes: what a batch may become when it is decompressed.
        step_records: how many records to decode at a time.

    Raises:
        CorruptRecordError: an impossible header, or a wrong checksum.
        InvalidRecordError: records that cannot be decoded.
        ValueError: a legacy entry.
    """
    view, at = memoryview(data), 0
    while True:
        found = decode_batches(view, start=at, at_most=step_records)
        if found.records.end > at:
            batches = _Batches(view, name, position, found.position, found.first_record)
            if check_crc:
                batches.check(found.records.end)
            at = found.records.end
            yield RecordColumns(data, found.records, batches)
            continue
        header = parse_header(view, at, name=name, position=position + at)
        if header is None or at + header.size_bytes > len(view):
            return
        batch = with_data(header, view[at : at + header.size_bytes])
        if check_crc and not batch.is_valid:
            raise CorruptRecordError(name, batch.position, "wrong checksum of the batch")
        yield from iter_columns(batch, max_bytes=max_bytes, step_records=step_records)
        at += header.size_bytes


def _decode(batch: RecordBatch, payload: bytes | memoryview, *, start: int, count: int, left: int) -> RecordColumns:
    """Decode ``count`` records at ``start``, after which ``left`` more follow."""
    columns = decode_records(
        payload,
        count,
        base_offset=batch.base_offset,
        base_timestamp_ms=batch.base_timestamp_ms,
        append_time_ms=batch.max_timestamp_ms if batch.attributes & IS_LOG_APPEND_TIME else None,
        start=start,
        must_fill=not left,
    )
    fault = columns.fault
    if not fault:
        return RecordColumns(payload, columns, batch)
    total = batch.record_count
    if fault in (RecordFault.NEGATIVE_COUNT, RecordFault.BYTES_LEFT):
        problem = f"{fault.problem}; the header says {total}"
    else:
        problem = f"record {total - left - count + len(columns)} of {total}: {fault.problem}"
    raise InvalidRecordError(batch.name, batch.position, problem)
