"""Compression of single chunks with zstd, and the decision whether it gains anything: of a chunk, and of a segment.

In one process the same chunk at the same level gives the same bytes: there is no dictionary and no thread in zstd.
"""

import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import zstandard

from tierd.files import open_to_read
from tierd.model import LogSegmentData
from tierd.remote.chunks import ByteView

MIN_GAIN = 0.03
"""A chunk is stored as it is unless compression takes at least this part of it away."""

_TRIAL_WINDOWS = 4
_TRIAL_WINDOW_BYTES = 16 << 10

_ENTRY = struct.Struct(">ii")  # of an offset index: relative offset, position
_HEAD_BYTES = 23  # of a batch, up to the low byte of its attributes
_MAGIC_AT = 16
_ATTRIBUTES_AT = {0: 17, 1: 17, 2: 22}
_CODEC_MASK = 7

_SAMPLES = 16
_SAMPLE_BYTES = 16 << 10

_local = threading.local()  # a compressor or a decompressor must not be used by several threads at once


def compress(content: ByteView, level: int) -> bytes | None:
    """Return a zstd frame that states its content's size; None when it gains too little. Blocking, without the GIL."""
    if not content or not _promises_gain(content, level):
        return None
    frame = _compressor(level).compress(content)
    return frame if _gains(len(frame), len(content)) else None


def decompress(frame: ByteView, size_bytes: int) -> bytes | None:
    """Return the content, None when ``frame`` is not one frame of exactly ``size_bytes`` bytes.

    At most ``size_bytes`` bytes are allocated for the content, even if the frame states a larger size.
    """
    try:
        if zstandard.get_frame_parameters(frame).content_size != size_bytes:
            return None
        return _decompressor().decompress(frame, max_output_size=size_bytes, allow_extra_data=False)
    except zstandard.ZstdError:
        return None


def is_worth_compressing(samples: Sequence[ByteView], level: int) -> bool:
    """Return True if compression shrinks ``samples``, each by itself, as chunks are compressed."""
    size = sum(map(len, samples))
    return size > 0 and _gains(sum(len(_compressor(level).compress(sample)) for sample in samples), size)


def _promises_gain(content: ByteView, level: int) -> bool:
    """Return True if one of four windows shrinks: a cheap test before all of an incompressible chunk is compressed."""
    if len(content) <= 4 * _TRIAL_WINDOWS * _TRIAL_WINDOW_BYTES:
        return True
    step = (len(content) - _TRIAL_WINDOW_BYTES) // (_TRIAL_WINDOWS - 1)
    view = memoryview(content)
    windows = [view[at * step : at * step + _TRIAL_WINDOW_BYTES] for at in range(_TRIAL_WINDOWS)]
    return is_worth_compressing(windows, level)


def _gains(compressed_size: int, size: int) -> bool:
    return compressed_size <= size * (1 - MIN_GAIN)


def _compressor(level: int) -> zstandard.ZstdCompressor:
    compressors: dict[int, zstandard.ZstdCompressor] = _local.__dict__.setdefault("compressors", {})
    if level not in compressors:
        compressors[level] = zstandard.ZstdCompressor(level=level, write_content_size=True, write_checksum=False)
    return compressors[level]


def _decompressor() -> zstandard.ZstdDecompressor:
    found: zstandard.ZstdDecompressor = _local.__dict__.setdefault("decompressor", zstandard.ZstdDecompressor())
    return found


def is_compressed_already(data: LogSegmentData, level: int) -> bool:
    """Return True if zstd gains nothing: one sampled batch in eight or fewer has no codec, or no sample shrinks.

    Blocking: reads some 256 KiB. For a file that cannot be read the answer is False; the next read reports it.
    """
    samples = _read_samples(data.log, sample_positions(data.offset_index, data.log_checksums.size_bytes))
    if not samples:
        return False
    uncompressed = [sample for sample in samples if not has_codec(sample)]
    if len(uncompressed) * 8 <= len(samples):
        return True
    return not is_worth_compressing(samples, level)


def sample_positions(offset_index: bytes, size_bytes: int) -> list[int]:
    """Return positions of up to 16 batches spread over the log, ascending; the first batch is one of them."""
    whole = len(offset_index) // _ENTRY.size * _ENTRY.size
    indexed = [position for _, position in _ENTRY.iter_unpack(offset_index[:whole]) if 0 < position < size_bytes]
    positions = sorted({0, *indexed}) if size_bytes else []
    step = max(1, -(-len(positions) // _SAMPLES))
    return positions[::step]


def has_codec(batch: bytes) -> bool:
    """Return True if the batch that ``batch`` begins with was compressed by its producer; False for other bytes."""
    if len(batch) < _HEAD_BYTES or batch[_MAGIC_AT] not in _ATTRIBUTES_AT:
        return False
    return bool(batch[_ATTRIBUTES_AT[batch[_MAGIC_AT]]] & _CODEC_MASK)


def _read_samples(path: Path, positions: Sequence[int]) -> list[bytes]:
    try:
        with open_to_read(path) as file:
            samples = []
            for position in positions:
                file.seek(position)
                samples.append(file.read(_SAMPLE_BYTES))
    except OSError:
        return []
    return samples
