"""Batches made by hand, as the specification draws them: an encoder that shares nothing with the code under test."""

import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import cramjam
import zstandard
from crc32c import crc32c

from tierd.log import PartitionDirectory, PartitionScan, identify_directory, scan_partition
from tierd.log.compression import Compression, xxh32

TOPIC_ID = UUID("12345678-9abc-def0-fedc-ba9876543210")
TOPIC_ID_TEXT = "EjRWeJq83vD-3LqYdlQyEA"

Row = tuple[int, bytes | None, bytes | None]  # timestamp, key, value
HeaderRow = tuple[str, bytes | None]


def varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[HeaderRow] = (),
) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + field(key) + field(value) + varint(len(headers))
    for name, content in headers:
        body += field(name.encode()) + field(content)
    return varint(len(body)) + body


def compress(codec: Compression, data: bytes) -> bytes:
    match codec:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            return gzip.compress(data)
        case Compression.SNAPPY:
            return xerial(data)
        case Compression.LZ4:
            return lz4_frame(data)
        case Compression.ZSTD:
            return zstandard.ZstdCompressor().compress(data)


def xerial(data: bytes, block_bytes: int = 32 << 10) -> bytes:
    out = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    for at in range(0, len(data), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + block_bytes]))
        out += struct.pack(">i", len(block)) + block
    return out


def lz4_frame(data: bytes, *, flags: int = 0x60, header_byte: int | None = None, block_bytes: int = 64 << 10) -> bytes:
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
    """A batch of magic 2 with consecutive offsets."""
    base_ms = rows[0][0] if rows else -1
    body = b"".join(record(ts - base_ms, i, key, value, headers) for i, (ts, key, value) in enumerate(rows))
    max_ms = max((ts for ts, _, _ in rows), default=-1) if log_append_ms is None else log_append_ms
    attributes = codec | (8 if log_append_ms is not None else 0) | (16 if transactional else 0) | (32 if control else 0)
    delta = max(len(rows) - 1, 0) if last_offset_delta is None else last_offset_delta
    covered = struct.pack(
        ">hiqqqhii",
        attributes,
        delta,
        base_ms,
        max_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(rows) if count is None else count,
    ) + compress(codec, body)
    return struct.pack(">qiibI", base_offset, len(covered) + 9, epoch, 2, crc32c(covered)) + covered


def plain(base_offset: int, count: int = 1, *, timestamp_ms: int = 1000, size: int = 10, epoch: int = 0) -> bytes:
    rows: list[Row] = [(timestamp_ms + i, b"k%d" % i, b"v" * size) for i in range(count)]
    return batch(base_offset, rows, epoch=epoch)


def transactional(base_offset: int, producer_id: int, count: int = 1) -> bytes:
    rows: list[Row] = [(1000, b"k", b"v")] * count
    return batch(base_offset, rows, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    rows: list[Row] = [(1000, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0))]
    return batch(offset, rows, producer_id=producer_id, producer_epoch=0, transactional=True, control=True)


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
        magic, offset, None, compress(codec, inner), attributes=attributes, timestamp_ms=log_append_ms or 1000
    )


def make_partition(folder: Path, segments: dict[int, bytes], *, name: str = "orders-0") -> PartitionDirectory:
    """A partition directory with these logs, and what belongs to every one."""
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
