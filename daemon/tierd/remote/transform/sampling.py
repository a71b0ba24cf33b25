"""Whether a whole segment is compressed already: by its producers' codec, or because its records cannot shrink.

Decided once a segment, from some batches all over it, so that what gains nothing goes the short way of plain bytes.
"""

import struct
from collections.abc import Sequence
from pathlib import Path

from tierd.files import open_to_read
from tierd.model import LogSegmentData
from tierd.remote.transform.compression import is_worth_compressing

_ENTRY = struct.Struct(">ii")  # of an offset index: relative offset, position
_HEAD_BYTES = 23  # of a batch, up to the low byte of its attributes
_MAGIC_AT = 16
_ATTRIBUTES_AT = {0: 17, 1: 17, 2: 22}
_CODEC_MASK = 7

_SAMPLES = 16
_SAMPLE_BYTES = 16 << 10


def is_compressed_already(data: LogSegmentData, level: int) -> bool:
    """Whether zstd is not worth trying: at most one sampled batch in eight has no codec, or nothing sampled shrinks.

    Blocking: reads some 256 KiB. A file that cannot be read is not judged; whoever reads it next reports that.
    """
    samples = _read_samples(data.log, sample_positions(data.offset_index, data.log_checksums.size_bytes))
    if not samples:
        return False
    uncompressed = [sample for sample in samples if not has_codec(sample)]
    if len(uncompressed) * 8 <= len(samples):
        return True
    return not is_worth_compressing(samples, level)


def sample_positions(offset_index: bytes, size_bytes: int) -> list[int]:
    """Positions of up to 16 batches spread over the log, ascending; the first batch is always one of them."""
    whole = len(offset_index) // _ENTRY.size * _ENTRY.size
    indexed = [position for _, position in _ENTRY.iter_unpack(offset_index[:whole]) if 0 < position < size_bytes]
    positions = sorted({0, *indexed}) if size_bytes else []
    step = max(1, -(-len(positions) // _SAMPLES))
    return positions[::step]


def has_codec(batch: bytes) -> bool:
    """Whether the batch that ``batch`` begins with was compressed by its producer; False for what is no batch."""
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
