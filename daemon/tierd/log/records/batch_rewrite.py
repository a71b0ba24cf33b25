"""Rewrite of a batch with fewer records, or with another base timestamp (log-format 9.6).

A rewritten batch keeps its producer fields, leader epoch, base and last offset, codec, timestamp type and flags. Its
record count, size and checksum are new.
"""

import struct
from collections.abc import Sequence
from typing import NoReturn

from tierd.errors import InvalidRecordError
from tierd.kernels import crc32c
from tierd.log.records.batch_builder import BatchBuilder, NewRecord, encode_empty_batch
from tierd.log.records.batch_header import (
    CODEC_BITS,
    CRC_POSITION_V2,
    CRC_START_V2,
    FLAGS_AT,
    HAS_DELETE_HORIZON,
    HEADER_V2,
    IS_LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    OVERHEAD_BYTES,
    BatchHeader,
    stamp_crc,
    write_header,
)
from tierd.log.records.compression import Compression, compress
from tierd.log.records.log_config import TimestampType
from tierd.log.records.new_record import Producer
from tierd.log.records.record import Record
from tierd.log.records.record_batch import RecordBatch


def rewrite_batch(
    header: BatchHeader,
    payload: bytes,
    *,
    record_count: int,
    base_timestamp_ms: int,
    max_timestamp_ms: int,
    has_delete_horizon: bool,
) -> bytearray:
    """Return the batch of magic 2 of ``header`` with other records (Kafka: MemoryRecords.buildRetainedRecordsInto).

    Args:
        header: the header before the rewrite.
        payload: the records, not compressed.
        record_count: how many there are.
        base_timestamp_ms: base of the timestamp deltas of the records: the delete horizon, if the batch has one.
        max_timestamp_ms: of the header.
        has_delete_horizon: whether ``base_timestamp_ms`` is one.

    Raises:
        ValueError: a field that does not fit its place.
    """
    out = bytearray(OVERHEAD_BYTES)
    codec = header.compression
    out += payload if codec is Compression.NONE else compress(codec, payload)
    write_header(
        out,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        leader_epoch=header.partition_leader_epoch,
        attributes=header.attributes & ~HAS_DELETE_HORIZON | (HAS_DELETE_HORIZON if has_delete_horizon else 0),
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=record_count,
    )
    return out


def decompress_batch(batch: RecordBatch) -> bytes:
    """Return a batch of magic 2 without its compression; the checksum is still that of the compressed batch.

    Raises:
        InvalidRecordError: it cannot be decompressed.
    """
    payload = batch.payload()
    header = bytearray(batch.data[:OVERHEAD_BYTES])
    struct.pack_into(">i", header, 8, OVERHEAD_BYTES - LOG_OVERHEAD_BYTES + len(payload))
    header[FLAGS_AT] &= ~CODEC_BITS
    return b"".join((header, payload))


def compress_batch(batch: memoryview, codec: Compression) -> bytearray:
    """Return an uncompressed batch of magic 2 compressed with ``codec``, with its right checksum."""
    out = bytearray(batch[:OVERHEAD_BYTES])
    out += compress(codec, batch[OVERHEAD_BYTES:])
    struct.pack_into(">i", out, 8, len(out) - LOG_OVERHEAD_BYTES)
    out[FLAGS_AT] |= codec
    stamp_crc(out)
    return out


def reissued_header(batch: RecordBatch, producer: Producer) -> bytes:
    """Return a header of 61 bytes under which ``producer`` sends the records of ``batch`` unchanged to a leader.

    The records keep their codec and timestamps. The header has base offset 0 and no leader epoch, since the leader sets
    both; it is not transactional, and it has no delete horizon. Its checksum is right for the bytes of the records.

    Args:
        batch: of magic 2, with CreateTime and as many records as offsets.
        producer: with the sequence number of the first record.
    """
    header = bytearray(OVERHEAD_BYTES)
    HEADER_V2.pack_into(
        header,
        0,
        0,
        batch.size_bytes - LOG_OVERHEAD_BYTES,
        -1,
        2,
        0,
        batch.attributes & CODEC_BITS,
        batch.last_offset - batch.base_offset,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        producer.id,
        producer.epoch,
        producer.base_sequence,
        batch.record_count,
    )
    crc = crc32c(batch.data[OVERHEAD_BYTES:], crc32c(bytes(header[CRC_START_V2:])))
    struct.pack_into(">I", header, CRC_POSITION_V2, crc)
    return bytes(header)


def empty_batch(header: BatchHeader, *, base_offset: int) -> bytes:
    """Return the header that stays of a batch without its records: 61 bytes, codec and delete horizon dropped.

    Args:
        header: header of the batch as it was; a legacy batch becomes magic 2.
        base_offset: base offset of the batch; the header of a compressed legacy batch does not have it.
    """
    return encode_empty_batch(
        base_offset=base_offset,
        last_offset=header.last_offset,
        max_timestamp_ms=header.max_timestamp_ms,
        timestamp_type=_timestamp_type(header),
        producer=Producer(header.producer_id, header.producer_epoch, header.base_sequence),
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        leader_epoch=header.partition_leader_epoch,
    )


def upgrade_batch(header: BatchHeader, records: Sequence[Record], *, delete_horizon_ms: int | None) -> bytes:
    """Return records of a legacy batch as a batch of magic 2, whose first and last offsets are theirs (KIP-724).

    Args:
        header: of the entry that held them; records of magic 0 come without a timestamp.
        records: at least one, ascending.
        delete_horizon_ms: from when on the tombstones among them may go.

    Raises:
        InvalidRecordError: offsets or timestamps that magic 2 cannot express.
    """
    try:
        builder = BatchBuilder(
            base_offset=records[0].offset,
            compression=header.compression,
            timestamp_type=_timestamp_type(header),
            log_append_time_ms=header.max_timestamp_ms,
            delete_horizon_ms=delete_horizon_ms,
        )
        for record in records:
            builder.append(NewRecord(record.key, record.value, record.timestamp_ms), offset=record.offset)
        return builder.build()
    except ValueError as error:
        _refuse(header, error)


def _refuse(header: BatchHeader, error: ValueError) -> NoReturn:
    raise InvalidRecordError(header.name, header.position, f"not to be written as magic 2: {error}") from error


def _timestamp_type(header: BatchHeader) -> TimestampType:
    is_appended = header.magic > 0 and header.attributes & IS_LOG_APPEND_TIME
    return TimestampType.LOG_APPEND_TIME if is_appended else TimestampType.CREATE_TIME
