"""The codecs of record batches, each with a limit on the decompressed size (log-format 2.5).

The frames of compressed records are byte for byte those of a broker. So is the compressed content, except with snappy.
"""

import threading
import zlib
from enum import IntEnum
from functools import lru_cache

import cramjam
import zstandard

from tierd.log.files.disk import Buffer

MAX_DECOMPRESSED_BYTES = 256 << 20
"""No batch grows beyond this; Kafka itself has no limit, so it is far above every sane ``max.message.bytes``."""

_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER_BYTES = 16
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_STORED = 1 << 31
_ZSTD_STEP_BYTES = 1 << 20
_ZSTD_LEVEL = 3
_SNAPPY_HEADER = _SNAPPY_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"  # version, lowest compatible version
_SNAPPY_BLOCK_BYTES = 32 << 10
_GZIP_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # as Java writes it: no time, unknown system
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_HEADER_MAGIC_0 = _LZ4_MAGIC + b"\x60\x40\x1a"  # its checksum is wrong, and readers of magic 0 expect that
_LZ4_BLOCK_BYTES = 64 << 10
_LZ4_FAST = 9
_LZ4_HIGHEST = 12  # of the library; Kafka's levels above it do the same


class Compression(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class PayloadError(ValueError):
    """Compressed bytes that cannot be decompressed, or would become too many."""


class PayloadTooLargeError(PayloadError):
    """Compressed bytes that would become too many; the bytes that were read are sound."""


_LEVELS = {
    Compression.GZIP: (-1, *range(1, 10)),
    Compression.LZ4: range(1, 18),
    Compression.ZSTD: range(-131_072, 23),
}


def check_level(codec: Compression, level: int | None) -> None:
    """Refuse a level that ``codec`` does not have; None, for its default, always is one.

    Raises:
        ValueError: there is no such level.
    """
    if level is not None and level not in _LEVELS.get(codec, ()):
        raise ValueError(f"{codec.name.lower()} has no level {level}")


def compress(codec: Compression, payload: Buffer, *, level: int | None = None, magic: int = 2) -> bytes:
    """Return ``payload`` as a batch of ``magic`` carries it, framed as Kafka does.

    Raises:
        ValueError: there is no such level, or ``magic`` does not allow the codec.
    """
    check_level(codec, level)
    match codec:
        case Compression.NONE:
            return bytes(payload)
        case Compression.GZIP:
            return _GZIP_HEADER + zlib.compress(payload, -1 if level is None else level, wbits=31)[len(_GZIP_HEADER) :]
        case Compression.SNAPPY:
            return _snappy(memoryview(payload))
        case Compression.LZ4:
            return _lz4(memoryview(payload), _LZ4_FAST if level is None else level, magic)
        case Compression.ZSTD:
            if magic < 2:
                raise ValueError(f"zstd is not allowed in magic {magic}")
            return _zstd(payload, _ZSTD_LEVEL if level is None else level)


def _snappy(payload: memoryview) -> bytes:
    pieces = [_SNAPPY_HEADER]
    for at in range(0, len(payload), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[at : at + _SNAPPY_BLOCK_BYTES]))
        pieces += (len(block).to_bytes(4, "big"), block)
    return b"".join(pieces)


def _lz4(payload: memoryview, level: int, magic: int) -> bytes:
    pieces: list[Buffer] = [_LZ4_HEADER if magic > 0 else _LZ4_HEADER_MAGIC_0]
    for at in range(0, len(payload), _LZ4_BLOCK_BYTES):
        plain = payload[at : at + _LZ4_BLOCK_BYTES]
        block = _lz4_compressed(plain, level)
        if len(block) < len(plain):
            pieces += (len(block).to_bytes(4, "little"), block)
        else:
            pieces += ((len(plain) | _LZ4_STORED).to_bytes(4, "little"), plain)
    pieces.append(bytes(4))
    return b"".join(pieces)


def _lz4_compressed(plain: memoryview, level: int) -> bytes:
    if level == _LZ4_FAST:  # Kafka: Lz4BlockOutputStream takes the fast compressor at its default level
        return bytes(cramjam.lz4.compress_block(plain, store_size=False))
    level = min(level, _LZ4_HIGHEST)
    return bytes(cramjam.lz4.compress_block(plain, mode="high_compression", compression=level, store_size=False))


def _zstd(payload: Buffer, level: int) -> bytes:
    # A stream of unknown size, flushed before it ends: as Kafka's writer does, so that the bytes are the same.
    stream = _zstd_compressor(level).compressobj()
    return stream.compress(payload) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + stream.flush()


_THREAD = threading.local()


def _zstd_compressor(level: int) -> zstandard.ZstdCompressor:
    """Return this thread's compressor for the usual level, since a new one costs more than a small batch."""
    if level != _ZSTD_LEVEL:
        return zstandard.ZstdCompressor(level=level, write_content_size=False)
    if not hasattr(_THREAD, "zstd"):
        _THREAD.zstd = zstandard.ZstdCompressor(level=level, write_content_size=False)
    compressor: zstandard.ZstdCompressor = _THREAD.zstd
    return compressor


def decompress(codec: Compression, payload: bytes, *, magic: int, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return the records that ``payload`` holds.

    Raises:
        PayloadTooLargeError: they become more than ``max_bytes``.
        PayloadError: damaged, truncated, or not allowed for ``magic``.
    """
    match codec:
        case Compression.NONE:
            return payload
        case Compression.GZIP:
            return _gunzip(payload, max_bytes)
        case Compression.SNAPPY:
            return _unsnappy(payload, max_bytes)
        case Compression.LZ4:
            return _unlz4(payload, max_bytes, verify_header=magic > 0)
        case Compression.ZSTD:
            if magic < 2:
                raise PayloadError(f"zstd is not allowed in magic {magic}")
            return _unzstd(payload, max_bytes)


def _too_large(max_bytes: int) -> PayloadTooLargeError:
    return PayloadTooLargeError(f"more than {max_bytes} bytes after decompression")


def _gunzip(payload: bytes, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    room = max_bytes
    while payload:
        stream = zlib.decompressobj(wbits=31)
        try:
            piece = stream.decompress(payload, room + 1)
        except zlib.error as error:
            raise PayloadError(f"gzip: {error}") from error
        if len(piece) > room:
            raise _too_large(max_bytes)
        if not stream.eof:
            raise PayloadError("gzip: the stream is cut short")
        pieces.append(piece)
        room -= len(piece)
        payload = stream.unused_data if stream.unused_data.startswith(b"\x1f\x8b") else b""
    return b"".join(pieces)


def _unsnappy(payload: bytes, max_bytes: int) -> bytes:
    """Decompress xerial's blocks, several such streams in a row, or one bare block."""
    if len(payload) < _SNAPPY_HEADER_BYTES or not payload.startswith(_SNAPPY_MAGIC):
        return _snappy_block(payload, max_bytes, max_bytes)
    pieces: list[bytes] = []
    room, at = max_bytes, _SNAPPY_HEADER_BYTES
    while at < len(payload):
        if payload.startswith(_SNAPPY_MAGIC[:4], at):  # a new stream begins where a length would be
            at += _SNAPPY_HEADER_BYTES
            continue
        size = int.from_bytes(payload[at : at + 4], "big")
        if at + 4 + size > len(payload):
            raise PayloadError(f"snappy: a block of {size} bytes does not fit")
        piece = _snappy_block(payload[at + 4 : at + 4 + size], room, max_bytes)
        pieces.append(piece)
        room -= len(piece)
        at += 4 + size
    return b"".join(pieces)


def _snappy_block(block: bytes, room: int, max_bytes: int) -> bytes:
    try:
        if cramjam.snappy.decompress_raw_len(block) > room:
            raise _too_large(max_bytes)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise PayloadError(f"snappy: {error}") from error


def _unlz4(payload: bytes, max_bytes: int, *, verify_header: bool) -> bytes:
    """Decompress one LZ4 frame as Kafka does.

    ::

        04224D18 | FLG BD [content size u64] HC | { size u32 (top bit: stored) block [checksum u32] }* | 0 u32 | ...

    The writer of magic 0 computed HC over the magic as well, so HC is not verified there.
    """
    if not payload.startswith(_LZ4_MAGIC) or len(payload) < 7:
        raise PayloadError("lz4: no frame begins here")
    flags, descriptor = payload[4], payload[5]
    if flags >> 6 != 1 or flags & 0b11 or not flags & 0b100000:
        raise PayloadError(f"lz4: frame flags {flags:#04x} are not supported")
    if descriptor & 0b10001111 or descriptor >> 4 < 4:
        raise PayloadError(f"lz4: block descriptor {descriptor:#04x} is not supported")
    at = 14 if flags & 0b1000 else 6
    if len(payload) <= at:
        raise PayloadError("lz4: the frame is cut short")
    if verify_header and payload[at] != _lz4_header_checksum(payload[4:at]):
        raise PayloadError("lz4: wrong header checksum")
    return _lz4_blocks(payload, at + 1, 1 << (8 + 2 * (descriptor >> 4)), max_bytes, checksums=bool(flags & 0b10000))


@lru_cache(maxsize=64)  # nearly every frame has the same two bytes, and counting takes longer than a small frame
def _lz4_header_checksum(descriptor: bytes) -> int:
    return xxh32(descriptor) >> 8 & 0xFF


def _lz4_blocks(payload: bytes, at: int, block_bytes: int, max_bytes: int, *, checksums: bool) -> bytes:
    pieces: list[bytes] = []
    room, scratch = max_bytes, bytearray(block_bytes)
    while True:
        word = int.from_bytes(payload[at : at + 4], "little")
        size, end = word & ~_LZ4_STORED, at + 4 + (word & ~_LZ4_STORED)
        if at + 4 > len(payload) or end + (4 * checksums if size else 0) > len(payload):
            raise PayloadError("lz4: the frame is cut short")
        if not size:
            return b"".join(pieces)
        block = payload[at + 4 : end]
        if checksums and int.from_bytes(payload[end : end + 4], "little") != xxh32(block):
            raise PayloadError("lz4: wrong block checksum")
        piece = block if word & _LZ4_STORED else _lz4_block(block, scratch)
        room -= len(piece)
        if len(piece) > block_bytes:
            raise PayloadError(f"lz4: a block of {len(piece)} bytes, and the frame allows {block_bytes}")
        if room < 0:
            raise _too_large(max_bytes)
        pieces.append(piece)
        at = end + 4 * checksums


def _lz4_block(block: bytes, scratch: bytearray) -> bytes:
    try:
        # Without output_len the library first takes four bytes of the block for a length, and sometimes that succeeds.
        size = cramjam.lz4.decompress_block_into(block, scratch, output_len=len(scratch))
    except cramjam.DecompressionError as error:
        raise PayloadError(f"lz4: {error}") from error
    return bytes(memoryview(scratch)[:size])


def _unzstd(payload: bytes, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    total = 0
    try:
        with zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True) as stream:
            # in steps: a single read would allocate the whole bound first
            while piece := stream.read(_ZSTD_STEP_BYTES):
                total += len(piece)
                if total > max_bytes:
                    raise _too_large(max_bytes)
                pieces.append(piece)
    except zstandard.ZstdError as error:
        raise PayloadError(f"zstd: {error}") from error
    return b"".join(pieces)


_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_WORD = 0xFFFFFFFF


def xxh32(data: bytes) -> int:
    """Return XXH32 with seed 0, the checksum of LZ4 frame headers; rarely of blocks, so plain Python is fast enough."""
    p1, p2, p3, p4, p5 = _PRIMES
    at, size = 0, len(data)
    if size >= 16:
        lanes = [(p1 + p2) & _WORD, p2, 0, -p1 & _WORD]
        while at <= size - 16:
            for lane in range(4):
                word = int.from_bytes(data[at + 4 * lane : at + 4 * lane + 4], "little")
                lanes[lane] = _rotate(lanes[lane] + word * p2, 13) * p1 & _WORD
            at += 16
        total = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True))
    else:
        total = p5
    total += size
    for start in range(at, size - size % 4, 4):
        total = _rotate(total + int.from_bytes(data[start : start + 4], "little") * p3, 17) * p4
    for byte in data[size - size % 4 :]:
        total = _rotate(total + byte * p5, 11) * p1
    total &= _WORD
    total = (total ^ total >> 15) * p2 & _WORD
    total = (total ^ total >> 13) * p3 & _WORD
    return total ^ total >> 16


def _rotate(value: int, bits: int) -> int:
    value &= _WORD
    return (value << bits | value >> (32 - bits)) & _WORD
