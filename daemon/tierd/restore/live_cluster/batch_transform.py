"""Transform of the tier's batches to the batches that a leader of another cluster accepts; pure (DESIGN 13, trap 8).

A batch whose records all go, in CreateTime and without gaps, keeps the bytes of its records: only its header is new.
All other batches are encoded anew: those that a bound cuts, with gaps between offsets, with the timestamps of the
broker, larger than the target takes, and those of magic 0 and 1.

The transform gives the same batches for the same input, which a resumed run relies on. Its state between two batches
whose ``ends_source_batch`` is true is the next sequence number alone.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tierd.control import ProducerIdentity
from tierd.errors import InvalidRecordError
from tierd.log import (
    IS_LOG_APPEND_TIME,
    OVERHEAD_BYTES,
    AbortedTransaction,
    BatchHeader,
    Compression,
    NewRecord,
    Producer,
    Record,
    RecordBatch,
    encode_batch,
    increment_sequence,
    reissued_header,
)
from tierd.model import OffsetRange

_GATHERED_BYTES: Final = 64 << 10  # legacy records that become one batch
_GATHERED_RECORDS: Final = 4096


class AbortedRanges:
    """Lookup of aborted transactions; a producer has one transaction at a time, so its ranges do not overlap."""

    def __init__(self, transactions: Iterable[AbortedTransaction] = ()) -> None:
        """Sort the transactions; one that is given twice counts once."""
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        for each in transactions:
            self._ranges.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
        for ranges in self._ranges.values():
            ranges.sort()

    def contains(self, producer_id: int, offset: int) -> bool:
        """Return True if a transaction of the producer was aborted that has the record at ``offset``."""
        ranges = self._ranges.get(producer_id)
        if ranges is None:
            return False
        at = bisect_right(ranges, offset, key=lambda each: each[0])
        return at > 0 and offset <= ranges[at - 1][1]


class OffsetRun(NamedTuple):
    """Neighbouring records in the source, from offset ``start`` on."""

    start: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingBatch:
    """One batch to send.

    Attributes:
        header: 61 bytes.
        payload: the encoded records.
        base_sequence: of the first record.
        record_count: at least 1.
        runs: the offsets of the records in the source, ascending.
        end_offset: exclusive end of what the batch takes from the source, for the next run to begin at.
        ends_source_batch: True if a run may begin behind this batch.
        max_timestamp_ms: largest timestamp of the records.
    """

    header: bytes
    payload: bytes | memoryview = field(repr=False)
    base_sequence: int
    record_count: int
    runs: tuple[OffsetRun, ...]
    end_offset: int
    ends_source_batch: bool
    max_timestamp_ms: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the batch."""
        return OVERHEAD_BYTES + len(self.payload)

    @property
    def next_sequence(self) -> int:
        """Return the sequence number of the record that follows the batch."""
        return increment_sequence(self.base_sequence, self.record_count)


class BatchTransform:
    """Transform of the batches of one partition, fed in the order of the log."""

    def __init__(self, producer: ProducerIdentity, *, next_sequence: int, max_batch_bytes: int) -> None:
        """Begin with the sequence number of the next record.

        Args:
            producer: the producer of the outgoing batches.
            next_sequence: 0 for a new producer.
            max_batch_bytes: larger batches are sent in parts; a single record may be larger.
        """
        self._producer = producer
        self._next_sequence = next_sequence
        self._max_batch_bytes = max_batch_bytes
        self._gathered: list[Record] = []  # of legacy entries, whose codec is none
        self._gathered_bytes = 0

    def feed(self, batch: RecordBatch, aborted: AbortedRanges, wanted: OffsetRange) -> Iterator[OutgoingBatch]:
        """Yield what becomes of the next batch.

        Args:
            batch: its checksum was checked.
            aborted: the aborted transactions that overlap the batch.
            wanted: the offsets to take.

        Raises:
            InvalidRecordError: its records cannot be decoded, or not be expressed in magic 2.
        """
        if batch.magic < 2:
            yield from self._legacy(batch, wanted)
            return
        yield from self.flush()
        if batch.last_offset < wanted.start or batch.base_offset > wanted.end:
            return
        if batch.is_control or not batch.record_count:
            return
        if batch.is_transactional and aborted.contains(batch.producer_id, batch.base_offset):
            return
        is_unchanged = (
            batch.base_offset in wanted
            and batch.last_offset in wanted
            and batch.record_count == batch.last_offset - batch.base_offset + 1
            and not batch.attributes & IS_LOG_APPEND_TIME
            and batch.size_bytes <= self._max_batch_bytes
        )
        if is_unchanged:
            yield self._unchanged(batch)
        else:
            yield from self._encoded(batch, batch.compression, _wanted_records(batch, wanted), _end(batch, wanted))

    def flush(self) -> Iterator[OutgoingBatch]:
        """Yield the legacy records that were gathered; the caller does so at the end of every segment."""
        if self._gathered:
            records, self._gathered, self._gathered_bytes = self._gathered, [], 0
            yield from self._encoded(None, Compression.NONE, records, records[-1].offset + 1)

    def _legacy(self, batch: RecordBatch, wanted: OffsetRange) -> Iterator[OutgoingBatch]:
        """Gather records of single entries; records that were compressed together stay together."""
        if batch.last_offset < wanted.start:
            return
        records = _wanted_records(batch, wanted)
        if batch.compression is not Compression.NONE:
            yield from self.flush()
            yield from self._encoded(batch, batch.compression, records, _end(batch, wanted))
            return
        self._gathered += records
        self._gathered_bytes += batch.size_bytes
        if self._gathered_bytes >= _GATHERED_BYTES or len(self._gathered) >= _GATHERED_RECORDS:
            yield from self.flush()

    def _unchanged(self, batch: RecordBatch) -> OutgoingBatch:
        sequence = self._take(batch.record_count)
        producer = Producer(self._producer.id, self._producer.epoch, sequence)
        return OutgoingBatch(
            header=reissued_header(batch, producer),
            payload=batch.data[OVERHEAD_BYTES:],
            base_sequence=sequence,
            record_count=batch.record_count,
            runs=(OffsetRun(batch.base_offset, batch.record_count),),
            end_offset=batch.last_offset + 1,
            ends_source_batch=True,
            max_timestamp_ms=batch.max_timestamp_ms,
        )

    def _encoded(
        self, source: BatchHeader | None, codec: Compression, records: Sequence[Record], source_end: int
    ) -> Iterator[OutgoingBatch]:
        """Encode the records anew, in halves as long as a batch is too large."""
        if not records:
            return
        last_offset = records[-1].offset
        waiting = [records]
        while waiting:
            part = waiting.pop()
            data = self._encode(source, codec, part)
            if len(data) > self._max_batch_bytes and len(part) > 1:
                half = len(part) // 2
                waiting += (part[half:], part[:half])
                continue
            sequence = self._take(len(part))
            ends = part[-1].offset == last_offset
            yield OutgoingBatch(
                header=data[:OVERHEAD_BYTES],
                payload=memoryview(data)[OVERHEAD_BYTES:],
                base_sequence=sequence,
                record_count=len(part),
                runs=tuple(_runs(record.offset for record in part)),
                end_offset=source_end if ends else part[-1].offset + 1,
                ends_source_batch=ends,
                max_timestamp_ms=max(record.timestamp_ms for record in part),
            )

    def _encode(self, source: BatchHeader | None, codec: Compression, records: Sequence[Record]) -> bytes:
        producer = Producer(self._producer.id, self._producer.epoch, self._next_sequence)
        new = [NewRecord(each.key, each.value, each.timestamp_ms, each.headers) for each in records]
        try:
            return encode_batch(new, compression=codec, producer=producer)
        except ValueError as error:
            name, position = (source.name, source.position) if source is not None else ("legacy records", 0)
            raise InvalidRecordError(name, position, f"not to be encoded anew: {error}") from error

    def _take(self, count: int) -> int:
        sequence = self._next_sequence
        self._next_sequence = increment_sequence(sequence, count)
        return sequence


def _wanted_records(batch: RecordBatch, wanted: OffsetRange) -> list[Record]:
    return [record for record in batch.records() if record.offset in wanted]


def _end(batch: RecordBatch, wanted: OffsetRange) -> int:
    """Return the exclusive end of the offsets of ``batch`` that are wanted."""
    return min(batch.last_offset, wanted.end) + 1


def _runs(offsets: Iterable[int]) -> Iterator[OffsetRun]:
    """Yield the runs of ascending offsets."""
    start = count = -1
    for offset in offsets:
        if offset == start + count and count > 0:
            count += 1
            continue
        if count > 0:
            yield OffsetRun(start, count)
        start, count = offset, 1
    if count > 0:
        yield OffsetRun(start, count)
