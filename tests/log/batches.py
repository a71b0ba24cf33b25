"""Batches for tests: by the encoder of the log room, and others that it does not write: damaged and legacy ones.

The bytes of the encoder are compared with those of Kafka in ``test_batch_builder`` and ``test_compression``.
"""

import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import cramjam

from tierd.log import (
    ControlRecordType,
    NewRecord,
    PartitionDirectory,
    PartitionScan,
    identify_directory,
    scan_partition,
)
from tierd.log.records.batch_builder import Producer, encode_batch, encode_empty_batch, encode_end_marker
from tierd.log.records.batch_header import stamp_crc
from tierd.log.records.compression import Compression, compress, xxh32
from tierd.log.records.log_config import TimestampType

TOPIC_ID = UUID("12345678-9abc-def0-fedc-ba9876543210")
TOPIC_ID_TEXT = "EjRWeJq83vD-3LqYdlQyEA"

Row = tuple[int, bytes | None, bytes | None]  # timestamp, key, value
HeaderRow = tuple[str, bytes | None]


def lz4_frame(data: bytes, *, flags: int = 0x60, header_byte: int | None = None, block_bytes: int = 64 << 10) -> bytes:
    """Build a frame with the options that Kafka's readers know and its writers do not use."""
    head = bytes([flags, 0x40]) + (struct.pack("<Q", len(data)) if flags & 8 else b"")
    out = b"\x04\x22\x4d\x18" + head + bytes([xxh32(head) >> 8 & 0xFF if header_byte is None else header_byte])
    for at in range(0, len(data), block_bytes):
        piece = data[at : at + block_bytes]
        block = bytes(cramjam.lz4.compress_block(piece, store_size=False))
        stored = len(block) >= len(piece)
        block = piece if stored else block
        out += struct.pack("<I", len(block) | (1 << 31 if stored else 0)) + block
        out += struct.pack("<I", xxh32(block)) if flags & 0x10 else b""
    return out + struct.pack("<I", 0)


def batch(
    base_offset: int,
    rows: Sequence[Row],
    *,
    codec: Compression = Compression.NONE,
    epoch: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_ms: int | None = None,
    last_offset_delta: int | None = None,
    headers: Sequence[HeaderRow] = (),
    count: int | None = None,
) -> bytes:
    """Build a batch with consecutive offsets, or an empty one; ``last_offset_delta`` and ``count`` may be wrong."""
    producer = Producer(producer_id, producer_epoch, base_sequence)
    stamped_by = TimestampType.CREATE_TIME if log_append_ms is None else TimestampType.LOG_APPEND_TIME
    if rows:
        data = encode_batch(
            [NewRecord(key, value, timestamp_ms, tuple(headers)) for timestamp_ms, key, value in rows],
            base_offset=base_offset,
            compression=codec,
            timestamp_type=stamped_by,
            log_append_time_ms=-1 if log_append_ms is None else log_append_ms,
            producer=producer,
            is_transactional=transactional,
            is_control=control,
            leader_epoch=epoch,
        )
    else:
        data = encode_empty_batch(
            base_offset=base_offset,
            last_offset=base_offset,
            timestamp_type=stamped_by,
            producer=producer,
            is_transactional=transactional,
            is_control=control,
            leader_epoch=epoch,
        )
    return forged(data, last_offset_delta=last_offset_delta, count=count)


def forged(data: bytes, *, last_offset_delta: int | None = None, count: int | None = None) -> bytes:
    """Return the same batch with other numbers in its header and a checksum that fits them."""
    changed = bytearray(data)
    if last_offset_delta is not None:
        struct.pack_into(">i", changed, 23, last_offset_delta)
    if count is not None:
        struct.pack_into(">i", changed, 57, count)
    stamp_crc(changed)
    return bytes(changed)


def plain(base_offset: int, count: int = 1, *, timestamp_ms: int = 1000, size: int = 10, epoch: int = 0) -> bytes:
    rows: list[Row] = [(timestamp_ms + i, b"k%d" % i, b"v" * size) for i in range(count)]
    return batch(base_offset, rows, epoch=epoch)


def transactional(base_offset: int, producer_id: int, count: int = 1) -> bytes:
    rows: list[Row] = [(1000, b"k", b"v")] * count
    return batch(base_offset, rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    return encode_end_marker(
        kind=ControlRecordType.COMMIT if commit else ControlRecordType.ABORT,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=0,
        timestamp_ms=1000,
        base_offset=offset,
        leader_epoch=0,
    )


def legacy(
    magic: int, offset: int, key: bytes | None, value: bytes | None, *, timestamp_ms: int = 1000, attributes: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp_ms) if magic else b"")
    for content in (key, value):
        body += struct.pack(">i", -1 if content is None else len(content)) + (content or b"")
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    magic: int, offset: int, inner: bytes, *, codec: Compression = Compression.GZIP, log_append_ms: int | None = None
) -> bytes:
    attributes = codec | (8 if log_append_ms is not None else 0)
    return legacy(
        magic,
        offset,
        None,
        compress(codec, inner, magic=magic),
        attributes=attributes,
        timestamp_ms=log_append_ms or 1000,
    )


def make_partition(folder: Path, segments: dict[int, bytes], *, name: str = "orders-0") -> PartitionDirectory:
    """Make a partition directory with these logs and the other files of a partition."""
    path = folder / name
    path.mkdir(parents=True)
    for base, content in segments.items():
        (path / f"{base:020d}.log").write_bytes(content)
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID_TEXT}")
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    found = identify_directory(path)
    assert found is not None
    return found


def scan_of(folder: Path, segments: dict[int, bytes]) -> PartitionScan:
    return scan_partition(make_partition(folder, segments))
