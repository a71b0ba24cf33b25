"""Compression ratio of a topic's segments in the tier, measured on a few pieces of them."""

from collections.abc import Iterable

from tierd.cost.local_segments import Segment
from tierd.files import open_to_read
from tierd.remote import compress

_SEGMENTS = 8
_PIECE_BYTES = 1 << 20


def sampled_ratio(segments: Iterable[Segment], *, level: int) -> float:
    """Return the stored bytes per original byte under zstd at ``level``; 1.0 where nothing can be read. Blocking.

    Reads a MiB from the middle of up to eight segments, the newest ones.
    """
    before = after = 0
    for segment in sorted(segments, key=lambda segment: segment.modified_ms)[-_SEGMENTS:]:
        piece = _read_middle(segment)
        before += len(piece)
        after += len(compress(piece, level) or piece)
    return after / before if before else 1.0


def _read_middle(segment: Segment) -> bytes:
    try:
        with open_to_read(segment.path) as file:
            file.seek(max(0, (segment.size_bytes - _PIECE_BYTES) // 2))
            return file.read(_PIECE_BYTES)
    except OSError:
        return b""  # deleted since it was listed, or not ours to read
