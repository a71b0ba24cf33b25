"""Encodes record batches, magic 2: just what the demo writes (log-format 2.2 to 2.5).

::

    0 baseOffset i64 │ 8 length i32 │ 12 leaderEpoch i32 │ 16 magic i8 │ 17 crc u32 │ 21 attributes i16
    23 lastOffsetDelta i32 │ 27 baseTimestamp i64 │ 35 maxTimestamp i64 │ 43 producerId i64
    51 producerEpoch i16 │ 53 baseSequence i32 │ 57 recordCount i32 │ 61 records
"""

import gzip
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

import zstandard

from tierd.kernels import crc32c

_BEFORE_CRC = struct.Struct(">qiib")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_CRC = struct.Struct(">I")
_HEADER_BYTES = 61
_LENGTH_STARTS_AT = 12
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_MARKER_TYPE_AT = 8  # record length, attributes, two deltas and key length take a byte each; then version and type i16


class Codec(IntEnum):
    """Attribute bits 0 to 2."""

    NONE = 0
    GZIP = 1
    ZSTD = 4


class Marker(IntEnum):
    """How a transaction ends: the type in a control record's key."""

    ABORT = 0
    COMMIT = 1


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """One record to write."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Producer:
    """Producer fields of a batch; -1 throughout for a producer that is neither idempotent nor transactional."""

    id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What indexes and producer state need to know of a batch that lies in a segment."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    marker: Marker | None


def walk_batches(data: bytes, *, position: int = 0) -> Iterator[BatchFacts]:
    """Describe the batches in ``data``, which begins at ``position`` of its segment; stop at a torn tail."""
    at = 0
    while at + _HEADER_BYTES <= len(data):
        base_offset, length, _, _ = _BEFORE_CRC.unpack_from(data, at)
        size = length + _LENGTH_STARTS_AT
        after_crc = at + _BEFORE_CRC.size + _CRC.size
        if length <= 0 or at + size > len(data):
            return
        if crc32c(data[after_crc : at + size]) != _CRC.unpack_from(data, at + _BEFORE_CRC.size)[0]:
            return
        attributes, last_delta, _, max_timestamp, producer, epoch, sequence, _ = _AFTER_CRC.unpack_from(data, after_crc)
        marker = Marker(data[at + _HEADER_BYTES + _MARKER_TYPE_AT]) if attributes & _CONTROL else None
        yield BatchFacts(
            position=position + at,
            size_bytes=size,
            base_offset=base_offset,
            last_offset=base_offset + last_delta,
            max_timestamp_ms=max_timestamp,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=bool(attributes & _TRANSACTIONAL),
            marker=marker,
        )
        at += size


def encode_batch(
    records: Sequence[DemoRecord],
    *,
    base_offset: int,
    leader_epoch: int,
    codec: Codec = Codec.NONE,
    producer: Producer = Producer(),
) -> bytes:
    """Return one batch of at least one record, at consecutive offsets from ``base_offset`` on."""
    attributes = codec | (_TRANSACTIONAL if producer.transactional else 0)
    return _encode(records, base_offset, leader_epoch, attributes, producer)


def encode_marker(
    marker: Marker, *, base_offset: int, leader_epoch: int, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytes:
    """Return the control batch that ends a producer's transaction; it takes one offset."""
    key, value = struct.pack(">hh", 0, marker), struct.pack(">hi", 0, 0)
    producer = Producer(producer_id, producer_epoch, -1, transactional=True)
    record = DemoRecord(timestamp_ms, key, value)
    return _encode([record], base_offset, leader_epoch, _TRANSACTIONAL | _CONTROL, producer)


def _encode(
    records: Sequence[DemoRecord], base_offset: int, leader_epoch: int, attributes: int, producer: Producer
) -> bytes:
    base_timestamp = records[0].timestamp_ms
    plain = b"".join(_record(record, delta, base_timestamp) for delta, record in enumerate(records))
    body = _AFTER_CRC.pack(
        attributes,
        len(records) - 1,
        base_timestamp,
        max(record.timestamp_ms for record in records),
        producer.id,
        producer.epoch,
        producer.sequence,
        len(records),
    ) + _compressed(plain, Codec(attributes & 7))
    size = _HEADER_BYTES - _AFTER_CRC.size + len(body)
    head = _BEFORE_CRC.pack(base_offset, size - _LENGTH_STARTS_AT, leader_epoch, 2)
    return head + _CRC.pack(crc32c(body)) + body


def _compressed(plain: bytes, codec: Codec) -> bytes:
    match codec:
        case Codec.GZIP:
            return gzip.compress(plain, mtime=0)
        case Codec.ZSTD:
            return zstandard.ZstdCompressor().compress(plain)
        case Codec.NONE:
            return plain


def _record(record: DemoRecord, offset_delta: int, base_timestamp: int) -> bytes:
    headers = b"".join(_sized(name.encode()) + _sized(value) for name, value in record.headers)
    body = (
        b"\x00"
        + _varint(record.timestamp_ms - base_timestamp)
        + _varint(offset_delta)
        + _sized(record.key)
        + _sized(record.value)
        + _varint(len(record.headers))
        + headers
    )
    return _varint(len(body)) + body


def _sized(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag > 0x7F:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)
