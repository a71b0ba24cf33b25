import struct
from dataclasses import replace
from pathlib import Path

import pytest

from tests.contracts.remote_storage import rolled
from tierd.log import Compression, NewRecord, encode_batch
from tierd.model import LogSegmentData
from tierd.remote.transform.chunk_compression import has_codec, is_compressed_already, sample_positions
from tierd.testing import checksums_of, content_of

RECORDS = [NewRecord(key=None, value=b"a value that repeats itself, " * 20, timestamp_ms=1) for _ in range(20)]


def segment_of(folder: Path, codecs: list[Compression]) -> LogSegmentData:
    """Return a log of a batch for each codec, and an index of all of them."""
    content, index = b"", b""
    for number, codec in enumerate(codecs):
        if number:
            index += struct.pack(">ii", number * 20, len(content))
        content += encode_batch(RECORDS, base_offset=number * 20, compression=codec)
    one = rolled(folder, content)
    return replace(one.data, offset_index=index, log_checksums=checksums_of(content))


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_segment_that_producers_compressed_is_not_compressed_again(tmp_path: Path, codec: Compression) -> None:
    assert is_compressed_already(segment_of(tmp_path, [codec] * 10), 3)


def test_segment_of_plain_batches_is_compressed(tmp_path: Path) -> None:
    assert not is_compressed_already(segment_of(tmp_path, [Compression.NONE] * 10), 3)


def test_a_few_plain_batches_among_compressed_ones_change_nothing(tmp_path: Path) -> None:
    zstd, none = Compression.ZSTD, Compression.NONE
    assert is_compressed_already(segment_of(tmp_path, [none] + [zstd] * 15), 3)
    assert not is_compressed_already(segment_of(tmp_path, [none] * 3 + [zstd] * 13), 3)


def test_segment_of_values_that_cannot_shrink_is_not_compressed(tmp_path: Path) -> None:
    batch = encode_batch([NewRecord(key=None, value=content_of(20_000), timestamp_ms=1)])
    assert is_compressed_already(rolled(tmp_path, batch).data, 3)


def test_empty_or_missing_log_counts_as_not_compressed(tmp_path: Path) -> None:
    empty = rolled(tmp_path, b"").data
    assert not is_compressed_already(empty, 3)
    gone = rolled(tmp_path, b"x" * 1000).data
    gone.log.unlink()
    assert not is_compressed_already(gone, 3)


def test_positions_are_spread_over_the_log_and_bounded() -> None:
    entries = b"".join(struct.pack(">ii", n, n * 4096) for n in range(1, 1000))
    positions = sample_positions(entries, 1000 * 4096)
    assert positions[0] == 0
    assert 10 <= len(positions) <= 16
    assert positions == sorted(set(positions))
    assert positions[-1] > 900 * 4096


def test_a_damaged_index_gives_only_positions_within_the_log() -> None:
    assert sample_positions(b"\xff" * 20 + struct.pack(">i", 5), 100) == [0, 5]
    assert sample_positions(struct.pack(">ii", 1, 100), 100) == [0]
    assert sample_positions(b"", 0) == []


def test_bytes_that_are_no_batch_have_no_codec() -> None:
    assert not has_codec(b"")
    assert not has_codec(b"\xff" * 100)
    legacy = bytes(16) + b"\x01" + b"\x02" + bytes(20)
    assert has_codec(legacy)
