"""Decision whether a segment is compressed already: by its producers' codec, or because its records cannot shrink.

The decision is made once a segment, from batches all over it. A segment that would gain nothing is stored plain.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

from tierd.files import open_to_read
from tierd.model import LogSegmentData
from tierd.remote.transform.chunk_compression import is_worth_compressing

_ENTRY = struct.Struct(">ii")  # of an offset index: relative offset, position
_HEAD_BYTES = 23  # of a batch, up to the low byte of its attributes
_MAGIC_AT = 16
_ATTRIBUTES_AT = {0: 17, 1: 17, 2: 22}
_CODEC_MASK = 7

_SAMPLES = 16
_SAMPLE_BYTES = 16 << 10


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
