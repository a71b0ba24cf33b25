"""BatchBuilder: records in, the bytes of one batch of magic 2 out (log-format 2.2 to 2.4; Kafka: MemoryRecordsBuilder).

``batch_header`` draws the bytes of a batch, and ``new_record`` those of a record.
"""

import struct
from collections.abc import Sequence
from enum import Enum
from typing import TypedDict, Unpack

from tierd.log.records.batch_header import (
    HAS_DELETE_HORIZON,
    IS_CONTROL,
    IS_LOG_APPEND_TIME,
    IS_TRANSACTIONAL,
    OVERHEAD_BYTES,
    write_header,
)
from tierd.log.records.compression import Compression, check_level, compress
from tierd.log.records.log_config import MAX_INT, TimestampType
from tierd.log.records.new_record import NO_PRODUCER, NewRecord, Producer, append_record, record_size_bytes
from tierd.log.records.record import ControlRecordType

_CONTROL_KEY = struct.Struct(">hh")  # version, type
_END_MARKER_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_END_TYPES = (ControlRecordType.ABORT, ControlRecordType.COMMIT)


class BatchOptions(TypedDict, total=False):
    """Keyword arguments that ``encode_batch`` hands to ``BatchBuilder``."""

    compression: Compression
    level: int | None
    timestamp_type: TimestampType
    log_append_time_ms: int
    producer: Producer
    is_transactional: bool
    is_control: bool
    leader_epoch: int
    delete_horizon_ms: int | None
    write_limit_bytes: int


class _State(Enum):
    """``OPEN`` to ``CLOSED`` by close or build; any of them to ``ABORTED``, for good."""

    OPEN = "open"
    CLOSED = "closed"
    ABORTED = "aborted"


_OPEN = _State.OPEN


class BatchBuilder:
    """Builder of one batch, for one thread.

    A wrong argument raises ``ValueError``; a call in the wrong state raises ``RuntimeError``.
    """

    def __init__(
        self,
        *,
        base_offset: int,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time_ms: int = -1,
        producer: Producer = NO_PRODUCER,
        is_transactional: bool = False,
        is_control: bool = False,
        leader_epoch: int = -1,
        delete_horizon_ms: int | None = None,
        write_limit_bytes: int = MAX_INT,
    ) -> None:
        """Begin a batch.

        Args:
            base_offset: of the batch; the first record may lie above it.
            compression: the codec.
            level: of the codec; None for its default.
            timestamp_type: who stamps the records.
            log_append_time_ms: the timestamp of every record with the type LogAppendTime.
            producer: the producer fields.
            is_transactional: the records belong to the producer's transaction.
            is_control: the record is Kafka's own; only then are ``append_end_marker`` and ``append_control`` allowed.
            leader_epoch: -1 when the leader will stamp it.
            delete_horizon_ms: from when on compaction may drop the batch's tombstones.
            write_limit_bytes: the size beyond which there is no room; a first record is taken at any size.

        Raises:
            ValueError: a level that the codec does not have, or an offset that no record can have.
        """
        check_level(compression, level)
        if base_offset < 0:
            raise ValueError(f"base offset {base_offset} is negative")
        self._base_offset = base_offset
        self._compression = compression
        self._level = level
        self._log_append_time_ms = log_append_time_ms if timestamp_type is TimestampType.LOG_APPEND_TIME else None
        self._producer = producer
        self._is_transactional = is_transactional
        self._is_control = is_control
        self._leader_epoch = leader_epoch
        self._attributes = _attributes(timestamp_type, is_transactional=is_transactional, is_control=is_control)
        self._attributes |= HAS_DELETE_HORIZON if delete_horizon_ms is not None else 0
        self._base_timestamp_ms = delete_horizon_ms  # deltas refer to it; the first record's time otherwise
        self._write_limit_bytes = write_limit_bytes
        self._buffer = bytearray(OVERHEAD_BYTES)
        self._last_offset = base_offset - 1
        self._max_timestamp_ms = -1
        self._record_count = 0
        self._state = _State.OPEN
        self._built = b""

    @property
    def record_count(self) -> int:
        """Return the number of records that were appended."""
        return self._record_count

    @property
    def next_offset(self) -> int:
        """Return the offset that a record gets if none is given."""
        return self._last_offset + 1

    @property
    def size_bytes(self) -> int:
        """Return the size of the uncompressed batch; 0 before the first record and after ``abort``."""
        return len(self._buffer) if self._record_count else 0

    @property
    def max_timestamp_ms(self) -> int:
        """Return the largest timestamp of the records, or the append time, as the header has it; -1 for none."""
        return self._max_timestamp_ms if self._log_append_time_ms is None else self._log_append_time_ms

    @property
    def shallow_offset_of_max_timestamp(self) -> int:
        """Return the batch's last offset, which a time index stores beside the largest timestamp; -1 without one."""
        return self._last_offset if self._record_count and self.max_timestamp_ms >= 0 else -1

    def append(self, record: NewRecord, *, offset: int | None = None) -> None:
        """Append a record, at the next offset or at a later one.

        Raises:
            ValueError: an offset that is not above the last one or too far above the base, a negative timestamp
                other than -1, or a batch that is for control records.
            RuntimeError: the batch is closed or aborted.
        """
        if self._is_control:
            raise ValueError("a batch of control records takes no other")
        self._append(record, self._last_offset + 1 if offset is None else offset)

    def append_end_marker(self, kind: ControlRecordType, *, coordinator_epoch: int, timestamp_ms: int) -> None:
        """Append the marker that ends the producer's transaction (Kafka: MemoryRecordsBuilder.appendEndTxnMarker).

        Raises:
            ValueError: ``kind`` is neither ABORT nor COMMIT, or the batch is not transactional, of no producer, or not
                for control records.
        """
        if kind not in _END_TYPES:
            raise ValueError(f"{kind.name} ends no transaction")
        self.append_control(kind, _END_MARKER_VALUE.pack(0, coordinator_epoch), timestamp_ms=timestamp_ms)

    def append_control(self, kind: ControlRecordType, value: bytes, *, timestamp_ms: int) -> None:
        """Append a control record.

        Raises:
            ValueError: the batch is not for control records; ``kind`` is UNKNOWN, ends a transaction in a batch that
                has none, or is a change of leader in a batch without leader epoch.
        """
        if not self._is_control or kind is ControlRecordType.UNKNOWN:
            raise ValueError(f"no {kind.name} record in this batch")
        if kind in _END_TYPES and (self._producer.id < 0 or not self._is_transactional):
            raise ValueError(f"{kind.name} belongs to a producer's transaction")
        if kind is ControlRecordType.LEADER_CHANGE and self._leader_epoch < 0:
            raise ValueError("a change of leader has a leader epoch")
        self._append(NewRecord(_CONTROL_KEY.pack(0, kind), value, timestamp_ms), self._last_offset + 1)

    def _append(self, record: NewRecord, offset: int) -> None:
        if self._state is not _OPEN:
            raise RuntimeError(f"the batch is {self._state.value}, it takes no record")
        timestamp_ms, delta = record.timestamp_ms, offset - self._base_offset
        if offset <= self._last_offset:
            raise ValueError(f"offset {offset} is not above {self._last_offset}")
        if delta > MAX_INT:
            raise ValueError(f"offset {offset} is too far above base offset {self._base_offset}")
        if timestamp_ms < -1:
            raise ValueError(f"timestamp {timestamp_ms} is negative")
        base_ms = self._base_timestamp_ms
        if base_ms is None:
            base_ms = self._base_timestamp_ms = timestamp_ms
        append_record(self._buffer, record, timestamp_ms - base_ms, delta)
        self._last_offset = offset
        self._record_count += 1
        if timestamp_ms > self._max_timestamp_ms:  # noqa: PLR1730 - a call per record is dear
            self._max_timestamp_ms = timestamp_ms

    def has_room_for(self, record: NewRecord) -> bool:
        """Return True if the uncompressed batch stays within its write limit with ``record``."""
        if self._state is not _State.OPEN:
            return False
        if not self._record_count:
            return True
        base_ms = self._base_timestamp_ms or 0
        offset_delta = self._last_offset + 1 - self._base_offset
        size = record_size_bytes(record.timestamp_ms - base_ms, offset_delta, record.key, record.value, record.headers)
        return self._write_limit_bytes >= len(self._buffer) + size

    def close(self) -> None:
        """Take no more records and write the header. A second time does nothing.

        Raises:
            ValueError: the producer fields do not go together, or the batch is larger than any can be.
            RuntimeError: the batch is aborted.
        """
        if self._state is _State.ABORTED:
            raise RuntimeError("the batch is aborted")
        if self._state is _State.CLOSED:
            return
        self._check_producer()
        self._built = self._encode() if self._record_count else b""
        self._state = _State.CLOSED

    def build(self) -> bytes:
        """Close the builder and return the batch; empty bytes without records.

        Raises:
            ValueError: as ``close``.
            RuntimeError: as ``close``.
        """
        self.close()
        return self._built

    def abort(self) -> None:
        """Drop everything."""
        self._state = _State.ABORTED
        self._buffer, self._built, self._record_count = bytearray(), b"", 0

    def _check_producer(self) -> None:
        producer = self._producer
        if self._is_transactional and producer.id < 0:
            raise ValueError("a transactional batch has a producer")
        if producer.id >= 0 and producer.epoch < 0:
            raise ValueError(f"producer {producer.id} has no epoch")
        if producer.id >= 0 and producer.base_sequence < 0 and not self._is_control:
            raise ValueError(f"the batch of producer {producer.id} has no sequence number")

    def _encode(self) -> bytes:
        out = self._buffer
        if self._compression is not Compression.NONE:
            payload = compress(self._compression, memoryview(out)[OVERHEAD_BYTES:], level=self._level)
            out = bytearray(OVERHEAD_BYTES) + payload
        write_header(
            out,
            base_offset=self._base_offset,
            last_offset=self._last_offset,
            leader_epoch=self._leader_epoch,
            attributes=self._attributes | self._compression,
            base_timestamp_ms=self._base_timestamp_ms or 0,
            max_timestamp_ms=self.max_timestamp_ms,
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._producer.base_sequence,
            record_count=self._record_count,
        )
        return bytes(out)


def encode_batch(records: Sequence[NewRecord], *, base_offset: int = 0, **options: Unpack[BatchOptions]) -> bytes:
    """Return one batch of ``records`` at consecutive offsets; empty bytes without records.

    Raises:
        ValueError: as ``BatchBuilder``.
    """
    builder = BatchBuilder(base_offset=base_offset, **options)
    for record in records:
        builder.append(record)
    return builder.build()


def encode_end_marker(
    *,
    kind: ControlRecordType,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """Return the control batch that ends a transaction: one offset, always 78 bytes (log-format 2.4).

    Raises:
        ValueError: ``kind`` is neither ABORT nor COMMIT, or there is no producer.
    """
    builder = BatchBuilder(
        base_offset=base_offset,
        producer=Producer(producer_id, producer_epoch),
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )
    builder.append_end_marker(kind, coordinator_epoch=coordinator_epoch, timestamp_ms=timestamp_ms)
    return builder.build()


def encode_empty_batch(
    *,
    base_offset: int,
    last_offset: int,
    max_timestamp_ms: int = -1,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    producer: Producer = NO_PRODUCER,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """Return a header alone, 61 bytes: compaction leaves it of a batch that holds a producer's state (log-format 9.6).

    Raises:
        ValueError: a field that does not fit its place.
    """
    out = bytearray(OVERHEAD_BYTES)
    write_header(
        out,
        base_offset=base_offset,
        last_offset=last_offset,
        leader_epoch=leader_epoch,
        attributes=_attributes(timestamp_type, is_transactional=is_transactional, is_control=is_control),
        base_timestamp_ms=-1,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=producer.base_sequence,
        record_count=0,
    )
    return bytes(out)


def _attributes(timestamp_type: TimestampType, *, is_transactional: bool, is_control: bool) -> int:
    return (
        (IS_LOG_APPEND_TIME if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (IS_TRANSACTIONAL if is_transactional else 0)
        | (IS_CONTROL if is_control else 0)
    )


__all__ = [
    "NO_PRODUCER",
    "BatchBuilder",
    "BatchOptions",
    "NewRecord",
    "Producer",
    "encode_batch",
    "encode_empty_batch",
    "encode_end_marker",
    "record_size_bytes",
]
