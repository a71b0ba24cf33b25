"""RecordColumns: many records at once, without an object for each (log-format 2.3).

For code that reads a few fields of all records: the leader's validation, and readers in bulk. The numbers are in
arrays; keys, values and headers stay in the bytes of the batch until the caller asks for them.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import add
from typing import Final, NamedTuple

from tierd.errors import CorruptRecordError, InvalidRecordError
from tierd.kernels import STEP_RECORDS, Columns, RecordFault, crc32c, decode_records
from tierd.log.records.batch_header import (
    CRC_START_V2,
    FLAGS_AT,
    IS_CONTROL,
    IS_LOG_APPEND_TIME,
    IS_TRANSACTIONAL,
    BatchHeader,
    parse_header,
)
from tierd.log.records.compression import MAX_DECOMPRESSED_BYTES
from tierd.log.records.record import Header, Record, parse_headers
from tierd.log.records.record_batch import RecordBatch

_LEADER_EPOCH_AT: Final = 12
_PRODUCER_AT: Final = 43
_RUN_FLAGS: Final = IS_LOG_APPEND_TIME | IS_TRANSACTIONAL | IS_CONTROL


class BatchRun(NamedTuple):
    """The records ``[first, end)`` of columns; transactional records of a run have one producer.

    Attributes:
        attributes: of their batches, without codec and delete horizon.
        producer_id: -1 unless they are transactional.
        leader_epoch: of their batches; -1 for batches without one.
    """

    first: int
    end: int
    attributes: int
    producer_id: int
    leader_epoch: int

    @property
    def is_log_append_time(self) -> bool:
        """Return True if the timestamps are the broker's."""
        return bool(self.attributes & IS_LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Return True if the records belong to transactions."""
        return bool(self.attributes & IS_TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Return True if the records are control records."""
        return bool(self.attributes & IS_CONTROL)


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Consecutive records, of one or of several batches of magic 2.

    Attributes:
        payload: the bytes of the records: a piece of a log, or the decompressed records of a batch.
        columns: offsets, timestamps, and the places of the other fields in ``payload``; without a fault.
        batches: the one batch, or the object that finds the batch of a record.
    """

    payload: bytes | memoryview = field(repr=False)
    columns: Columns = field(repr=False)
    batches: "BatchHeader | PieceBatches"

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[Record]:
        return map(self.record, range(len(self)))

    def offsets(self) -> list[int]:
        """Return the offset of every record."""
        return self.columns.offset.tolist()

    def timestamps_ms(self) -> list[int]:
        """Return the timestamp of every record: its own, or in a LogAppendTime batch the batch's."""
        return self.columns.timestamp_ms.tolist()

    def keys(self) -> list[bytes | None]:
        """Return the key of every record."""
        return self._fields(self.columns.key_start, self.columns.key_size)

    def values(self) -> list[bytes | None]:
        """Return the value of every record."""
        return self._fields(self.columns.value_start, self.columns.value_size)

    def offset(self, index: int) -> int:
        """Return the offset of the record at ``index``, counted from 0."""
        return self.columns.offset[index]

    def timestamp_ms(self, index: int) -> int:
        """Return the timestamp of the record at ``index``, as ``timestamps_ms`` does."""
        return self.columns.timestamp_ms[index]

    def key(self, index: int) -> bytes | None:
        """Return the key of the record at ``index``."""
        return self._field(self.columns.key_start[index], self.columns.key_size[index])

    def value(self, index: int) -> bytes | None:
        """Return the value of the record at ``index``."""
        return self._field(self.columns.value_start[index], self.columns.value_size[index])

    def headers(self, index: int) -> tuple[Header, ...]:
        """Return the headers of the record at ``index``, in order."""
        count = self.columns.header_count[index]
        if not count:
            return ()
        start, end = self.columns.headers_start[index], self._end(index)
        return parse_headers(bytes(self.payload[start:end]), 0, end - start, count)[0]

    def all_headers(self) -> list[tuple[Header, ...]]:
        """Return the headers of every record."""
        if not any(self.columns.header_count.tolist()):
            return [()] * len(self)
        return [self.headers(index) for index in range(len(self))]

    def batch(self, index: int) -> BatchHeader:
        """Return the batch that holds the record at ``index``."""
        return self.batches if isinstance(self.batches, BatchHeader) else self.batches.of_record(index)

    def runs(self) -> "Iterator[BatchRun]":
        """Return the runs of neighbouring records of like batches, ascending; every record is in exactly one run."""
        if isinstance(self.batches, BatchHeader):
            batch = self.batches
            kind = _kind(batch.attributes, batch.producer_id, batch.partition_leader_epoch)
            return iter((BatchRun(0, len(self), *kind),))
        return self.batches.runs(len(self))

    def record(self, index: int) -> Record:
        """Return the whole record at ``index``, as a consumer sees it."""
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

    def _fields(self, field_start: memoryview, field_size: memoryview) -> list[bytes | None]:
        if not len(self):
            return []
        starts, sizes = field_start.tolist(), field_size.tolist()
        payload, first = self.payload, 0
        if not isinstance(payload, bytes):  # slices of bytes are the cheapest, so one copy pays
            first = starts[0]
            payload = bytes(payload[first : self.columns.end])
        if first:
            starts = [start - first for start in starts]
        if min(sizes) >= 0:  # a loop without bytecode
            return list(map(payload.__getitem__, map(slice, starts, map(add, starts, sizes))))
        return [payload[start : start + size] if size >= 0 else None for start, size in zip(starts, sizes, strict=True)]

    def _field(self, start: int, size: int) -> bytes | None:
        return None if size < 0 else bytes(self.payload[start : start + size])

    def _end(self, index: int) -> int:
        """Return a position at which the record at ``index`` has ended."""
        return self.columns.key_start[index + 1] if index + 1 < len(self) else self.columns.end


@dataclass(frozen=True, slots=True)
class PieceBatches:
    """Batches of a piece of a log; a header is parsed when the caller asks for it.

    Attributes:
        position: position of the piece in the file.
        starts: positions of the batches in ``data``.
        first_records: index of the first record of each batch.
    """

    data: memoryview = field(repr=False)
    name: str
    position: int
    starts: memoryview = field(repr=False)
    first_records: memoryview = field(repr=False)

    def of_record(self, index: int) -> BatchHeader:
        """Return the batch that holds the record at ``index``."""
        return self._header(self.starts[bisect_right(self.first_records, index) - 1])

    def check(self, end: int) -> None:
        """Check every checksum; ``end`` is where the last batch ends."""
        data, starts = self.data, self.starts.tolist()
        for start, next_start in zip(starts, [*starts[1:], end], strict=True):
            if crc32c(data[start + CRC_START_V2 : next_start]) != int.from_bytes(data[start + 17 : start + 21], "big"):
                raise CorruptRecordError(self.name, self.position + start, "wrong checksum of the batch")

    def runs(self, record_count: int) -> Iterator[BatchRun]:
        """Yield the runs of all ``record_count`` records of the piece."""
        data, kinds = self.data, []
        for start in self.starts:
            producer = data[start + _PRODUCER_AT : start + _PRODUCER_AT + 8]
            epoch = data[start + _LEADER_EPOCH_AT : start + _LEADER_EPOCH_AT + 4]
            kinds.append(
                _kind(
                    data[start + FLAGS_AT],
                    int.from_bytes(producer, "big", signed=True),
                    int.from_bytes(epoch, "big", signed=True),
                )
            )
        firsts = self.first_records
        begun = 0
        for index, kind in enumerate(kinds):
            if index + 1 == len(kinds) or kinds[index + 1] != kind:
                end = record_count if index + 1 == len(kinds) else firsts[index + 1]
                if end > begun:
                    yield BatchRun(begun, end, *kind)
                begun = end

    def _header(self, start: int) -> BatchHeader:
        header = parse_header(self.data, start, name=self.name, position=self.position + start)
        assert header is not None, "the kernel found a whole batch there"
        return header


def columns_of(batch: RecordBatch, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> RecordColumns:
    """Decode all records of a batch of magic 2.

    Args:
        batch: which; control batches too.
        max_bytes: limit on the decompressed size. The columns take up to seven times as much besides.

    Raises:
        InvalidRecordError: the records cannot be decoded, or their number is not that of the header.
        ValueError: a legacy entry.
    """
    payload = batch.payload(max_bytes=max_bytes)
    return _decode(batch, payload, start=0, count=batch.record_count, left=0)


def iter_columns(
    batch: RecordBatch, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, step_records: int = STEP_RECORDS
) -> Iterator[RecordColumns]:
    """Yield the columns of ``columns_of`` for a limited number of records at a time, which bounds the memory.

    Raises:
        InvalidRecordError: as ``columns_of``; the whole steps before the fault were yielded.
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


def _kind(attributes: int, producer_id: int, leader_epoch: int) -> tuple[int, int, int]:
    """Return the attributes, the producer id and the leader epoch that the records of one ``BatchRun`` share."""
    return attributes & _RUN_FLAGS, producer_id if attributes & IS_TRANSACTIONAL else -1, leader_epoch


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
