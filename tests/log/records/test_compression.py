import gzip
import os
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import cramjam
import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.log.batches import lz4_frame
from tierd.log import iter_batches
from tierd.log.records.compression import Compression, PayloadError, compress, decompress, xxh32

CODECS = list(Compression)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "data", [b"", b"a", b"abc" * 50_000, os.urandom(200_000)], ids=["empty", "one", "text", "noise"]
)
def test_compressed_sample_is_decompressed_to_the_same_bytes(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), magic=2) == data


@pytest.mark.spec("log-format REC-51")
def test_snappy_bare_block_and_concatenated_streams_are_decompressed() -> None:
    bare = bytes(cramjam.snappy.compress_raw(b"bare block"))
    assert decompress(Compression.SNAPPY, bare, magic=2) == b"bare block"
    streams = compress(Compression.SNAPPY, b"a" * 70_000) + compress(Compression.SNAPPY, b"b" * 3)
    assert decompress(Compression.SNAPPY, streams, magic=2) == b"a" * 70_000 + b"bbb"


@pytest.mark.spec("log-format REC-52")
def test_wrong_lz4_header_checksum_is_accepted_in_magic_0_only() -> None:
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


def test_lz4_block_that_looks_like_a_length_and_a_block_is_decompressed() -> None:
    block = b"\x50\x01\x00\x00\x10Z"  # five literals; read as a length of 336 and a block, it would be "Z"
    frame = lz4_frame(b"")[:-4] + struct.pack("<I", len(block)) + block + bytes(4)
    assert decompress(Compression.LZ4, frame, magic=2) == b"\x01\x00\x00\x10Z"


def test_concatenated_gzip_members_are_decompressed_as_one_stream() -> None:
    assert decompress(Compression.GZIP, gzip.compress(b"a") + gzip.compress(b"b"), magic=2) == b"ab"


def test_concatenated_zstd_frames_are_decompressed_as_one_stream() -> None:
    compressor = zstandard.ZstdCompressor()
    assert decompress(Compression.ZSTD, compressor.compress(b"a") + compressor.compress(b"b"), magic=2) == b"ab"


@pytest.mark.spec("log-format REC-35")
@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_refused_in_old_formats(magic: int) -> None:
    with pytest.raises(PayloadError, match="not allowed"):
        decompress(Compression.ZSTD, compress(Compression.ZSTD, b"x"), magic=magic)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_payload_that_unpacks_above_the_limit_is_refused(codec: Compression) -> None:
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


@pytest.mark.parametrize(
    ("codec", "outside", "inside"),
    [
        (Compression.NONE, (0, 1), ()),
        (Compression.GZIP, (-2, 0, 10), (-1, 1, 9)),
        (Compression.SNAPPY, (0, 1), ()),
        (Compression.LZ4, (-1, 0, 18), (1, 8, 9, 10, 17)),
        (Compression.ZSTD, (-131_073, 23), (-131_072, -1, 0, 1, 22)),
    ],
)
def test_a_level_outside_its_range_is_refused(
    codec: Compression, outside: tuple[int, ...], inside: tuple[int, ...]
) -> None:
    data = b"levels " * 1000
    for level in outside:
        with pytest.raises(ValueError, match="has no level"):
            compress(codec, data, level=level)
    for level in inside:
        assert decompress(codec, compress(codec, data, level=level), magic=2) == data


@pytest.mark.spec("log-format REC-35")
@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_not_written_in_old_formats(magic: int) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        compress(Compression.ZSTD, b"x", magic=magic)


@pytest.mark.parametrize("codec", CODECS)
@given(
    piece=st.binary(max_size=200),
    times=st.sampled_from([0, 1, 2, 150, 1000]),
    buffer=st.sampled_from([bytes, bytearray, memoryview]),
)
@settings(max_examples=60)
def test_any_compressed_bytes_are_decompressed_to_the_same_bytes(
    codec: Compression, piece: bytes, times: int, buffer: type[bytes | bytearray | memoryview]
) -> None:
    data = piece * times
    assert decompress(codec, compress(codec, buffer(data)), magic=2) == data


@pytest.mark.parametrize("codec", CODECS[:4])
@pytest.mark.parametrize("magic", [0, 1])
def test_bytes_compressed_in_old_formats_are_decompressed_to_the_same_bytes(codec: Compression, magic: int) -> None:
    data = b"old " * 50_000
    assert decompress(codec, compress(codec, data, magic=magic), magic=magic) == data


@pytest.mark.spec("log-format REC-52")
def test_lz4_header_checksum_of_magic_0_is_the_wrong_one_of_kafka() -> None:
    assert compress(Compression.LZ4, b"x", magic=0)[:7].hex() == "04224d1860401a"
    assert compress(Compression.LZ4, b"x", magic=1)[:7].hex() == "04224d18604082"


def test_an_lz4_block_that_would_not_shrink_is_stored() -> None:
    noise = os.urandom(100_000)
    frame = compress(Compression.LZ4, noise)
    assert struct.unpack_from("<I", frame, 7)[0] == 1 << 31 | 64 << 10
    assert len(frame) == 7 + 2 * 4 + len(noise) + 4


def test_snappy_blocks_hold_32_kib_each() -> None:
    payload = compress(Compression.SNAPPY, bytes(70_000))
    assert payload.startswith(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
    at, sizes = 16, []
    while at < len(payload):
        (size,) = struct.unpack_from(">i", payload, at)
        sizes.append(cramjam.snappy.decompress_raw_len(payload[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes == [32 << 10, 32 << 10, 70_000 - (64 << 10)]


def test_threads_do_not_share_a_compressor() -> None:
    pieces = [os.urandom(300) * 300 for _ in range(16)]
    with ThreadPoolExecutor(4) as threads:
        payloads = list(threads.map(partial(compress, Compression.ZSTD), pieces * 8))
    assert [decompress(Compression.ZSTD, payload, magic=2) for payload in payloads] == pieces * 8


def payloads_of(golden: Path, broker: str, codec: Compression) -> list[tuple[bytes, bytes]]:
    """Return the payloads of a golden topic with their plain bytes; the broker compressed the second half itself."""
    folder = golden / f"kafka-{broker}/clean/logdir/plain-{codec.name.lower()}-0"
    batches = [b for log in sorted(folder.glob("*.log")) for b in iter_batches(log.read_bytes(), name=str(log))]
    payloads = [bytes(b.data[61:]) for b in batches if b.compression is codec]
    return [(payload, decompress(codec, payload, magic=2)) for payload in payloads]


@pytest.mark.parametrize("broker", ["3.9.2", "4.3.1"])
@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4])
def test_gzip_and_lz4_are_written_byte_for_byte_as_a_broker_writes_them(
    golden: Path, broker: str, codec: Compression
) -> None:
    payloads = payloads_of(golden, broker, codec)
    by_broker = payloads[len(payloads) * 2 // 3 :]
    assert len(by_broker) > 10
    assert all(compress(codec, plain) == payload for payload, plain in by_broker)


@pytest.mark.parametrize("broker", ["3.9.2", "4.3.1"])
def test_zstd_is_framed_as_a_broker_frames_it(golden: Path, broker: str) -> None:
    payloads = payloads_of(golden, broker, Compression.ZSTD)
    by_broker = payloads[len(payloads) * 2 // 3 :]
    ours = [compress(Compression.ZSTD, plain) for _, plain in by_broker]
    assert [(p[:6], p[-3:]) for p in ours] == [(p[:6], p[-3:]) for p, _ in by_broker]
    # and mostly the same bytes inside, as far as two versions of the library agree
    assert sum(p == payload for p, (payload, _) in zip(ours, by_broker, strict=True)) > len(by_broker) / 2
