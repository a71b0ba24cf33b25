import gzip
import os
import struct
import zlib
from contextlib import suppress

import cramjam
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.log.batches import compress, lz4_frame, xerial
from tierd.log.compression import Compression, PayloadError, decompress, xxh32

CODECS = list(Compression)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "data", [b"", b"a", b"abc" * 50_000, os.urandom(200_000)], ids=["empty", "one", "text", "noise"]
)
def test_what_was_compressed_comes_back(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), magic=2) == data


@pytest.mark.spec("log-format REC-51")
def test_snappy_comes_as_blocks_as_one_bare_block_and_as_streams_in_a_row() -> None:
    bare = bytes(cramjam.snappy.compress_raw(b"bare block"))
    assert decompress(Compression.SNAPPY, bare, magic=2) == b"bare block"
    streams = xerial(b"a" * 70_000) + xerial(b"b" * 3)
    assert decompress(Compression.SNAPPY, streams, magic=2) == b"a" * 70_000 + b"bbb"


@pytest.mark.spec("log-format REC-52")
def test_the_wrong_lz4_header_byte_of_magic_0_is_accepted_there_only() -> None:
    data = b"quirk" * 100
    for byte in (0x1A, 0x82):
        assert decompress(Compression.LZ4, lz4_frame(data, header_byte=byte), magic=0) == data
    assert decompress(Compression.LZ4, lz4_frame(data, header_byte=0x82), magic=1) == data
    with pytest.raises(PayloadError, match="header checksum"):
        decompress(Compression.LZ4, lz4_frame(data, header_byte=0x1A), magic=1)


@pytest.mark.spec("log-format REC-53")
@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x04\x22\x4d\x18",
        lz4_frame(b"x", flags=0xA0),
        lz4_frame(b"x", flags=0x62),
        lz4_frame(b"x", flags=0x40),
        lz4_frame(b"x")[:-4],
        lz4_frame(b"x" * 1000)[:20],
        b"\x04\x22\x4d\x18\x60\x30" + bytes(8),
    ],
    ids=["empty", "magic only", "version", "reserved", "dependent", "no end mark", "cut", "block size"],
)
def test_an_lz4_frame_that_kafka_refuses_is_refused(frame: bytes) -> None:
    with pytest.raises(PayloadError):
        decompress(Compression.LZ4, frame, magic=0)


def test_lz4_block_checksums_and_content_size_are_read() -> None:
    data = b"checked" * 20_000
    frame = lz4_frame(data, flags=0x78)
    assert decompress(Compression.LZ4, frame, magic=2) == data
    damaged = bytearray(frame)
    damaged[30] ^= 1
    with pytest.raises(PayloadError):
        decompress(Compression.LZ4, bytes(damaged), magic=2)


def test_an_lz4_block_is_never_taken_for_one_with_a_length_before_it() -> None:
    block = b"\x50\x01\x00\x00\x10Z"  # five literals; read as a length of 336 and a block, it would be "Z"
    frame = lz4_frame(b"")[:-4] + struct.pack("<I", len(block)) + block + bytes(4)
    assert decompress(Compression.LZ4, frame, magic=2) == b"\x01\x00\x00\x10Z"


def test_gzip_members_in_a_row_are_one_stream() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"a") + gzip.compress(b"b"), magic=2) == b"ab"


def test_zstd_frames_in_a_row_are_one_stream() -> None:
    compressor = zstandard.ZstdCompressor()
    assert decompress(Compression.ZSTD, compressor.compress(b"a") + compressor.compress(b"b"), magic=2) == b"ab"


@pytest.mark.spec("log-format REC-35")
@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_in_old_formats(magic: int) -> None:
    with pytest.raises(PayloadError, match="not allowed"):
        decompress(Compression.ZSTD, compress(Compression.ZSTD, b"x"), magic=magic)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_a_bomb_is_refused_before_it_goes_off(codec: Compression) -> None:
    payload = compress(codec, bytes(4 << 20))
    with pytest.raises(PayloadError, match="more than"):
        decompress(codec, payload, magic=2, max_bytes=1 << 20)
    assert len(decompress(codec, payload, magic=2, max_bytes=4 << 20)) == 4 << 20


def test_a_snappy_block_that_claims_gigabytes_is_refused() -> None:
    with pytest.raises(PayloadError, match="more than"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f\x00", magic=2)


@pytest.mark.parametrize("codec", CODECS[1:])
@given(data=st.binary(max_size=300))
@settings(max_examples=150)
@example(data=b"\x82SNAPPY\0" + bytes(8) + b"\xff\xff\xff\xff")
@example(data=b"\x04\x22\x4d\x18\x60\x70\x73" + b"\x01\x00\x00\x00\xff")
def test_any_bytes_are_decompressed_or_refused(codec: Compression, data: bytes) -> None:
    for magic in (0, 2):
        with suppress(PayloadError):
            assert len(decompress(codec, data, magic=magic, max_bytes=1 << 20)) <= 1 << 20


@pytest.mark.parametrize("codec", CODECS[1:])
@given(data=st.binary(max_size=300), at=st.integers(0, 1000), bit=st.integers(0, 7))
@settings(max_examples=150)
def test_damaged_payloads_are_decompressed_or_refused(codec: Compression, data: bytes, at: int, bit: int) -> None:
    payload = bytearray(compress(codec, data))
    payload[at % len(payload)] ^= 1 << bit
    with suppress(PayloadError):
        decompress(codec, bytes(payload), magic=2, max_bytes=1 << 20)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x02CC5D05),
        (b"a", 0x550D7456),
        (b"abc", 0x32D153FF),
        (b"Nobody inspects the spammish repetition", 0xE2293B2F),
    ],
)
def test_xxh32_agrees_with_its_published_values(data: bytes, expected: int) -> None:
    assert xxh32(data) == expected


def test_a_gzip_stream_cut_short_is_refused() -> None:
    payload = gzip.compress(os.urandom(1000))
    assert zlib.decompressobj(31).decompress(payload[:-1])
    with pytest.raises(PayloadError, match="cut short"):
        decompress(Compression.GZIP, payload[:-1], magic=2)
