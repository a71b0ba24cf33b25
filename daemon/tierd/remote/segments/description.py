"""The artefacts of a segment as its manifest describes them: their places and checksums."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import repeat
from types import MappingProxyType

from tierd.kernels import crc32c, crc32c_of_range
from tierd.model import (
    CHECKSUM_BLOCK_BYTES,
    BlockChecksums,
    ByteRange,
    IndexType,
    LogSegmentData,
    TimestampRange,
)
from tierd.remote.segments.manifest_parts import IndexArtefact, LogArtefact, LogChunk
from tierd.remote.transform.chunk_layout import ChunkLayout, StoredChunk, count_chunks


def index_contents(data: LogSegmentData) -> Mapping[IndexType, bytes]:
    """Return the artefacts of the ``.indexes`` object in their order, without those that the segment lacks."""
    contents = {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.TRANSACTION: data.transaction_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
        IndexType.LEADER_EPOCH: data.leader_epoch_index,
        IndexType.KEY_HASHES: data.key_hashes,
    }
    return MappingProxyType({kind: content for kind, content in contents.items() if content is not None})


def plain_layout(checksums: BlockChecksums, chunk_size: int) -> ChunkLayout:
    """Return the chunks of a log that is stored as it is."""
    starts = range(0, checksums.size_bytes, chunk_size)
    ranges = [ByteRange(start, min(start + chunk_size, checksums.size_bytes) - 1) for start in starts]
    chunks = tuple(StoredChunk(r.size, crc32c_of_range(checksums, r)) for r in ranges)
    return ChunkLayout(checksums.size_bytes, chunk_size, chunks)


def describe_log(
    layout: ChunkLayout, crc: int, block_timestamps: Sequence[TimestampRange | None] | None = None
) -> LogArtefact:
    """Describe the ``.log`` object.

    Args:
        layout: as it is stored.
        crc: of the original bytes.
        block_timestamps: one for each block of ``CHECKSUM_BLOCK_BYTES`` original bytes, of which chunks are made.
    """
    timestamps: Iterable[TimestampRange | None] = repeat(None, len(layout.chunks))
    if block_timestamps is not None:
        timestamps = _of_chunks(block_timestamps, layout)
    return LogArtefact(
        size_bytes=sum(chunk.size_bytes for chunk in layout.chunks),
        crc32c=crc,
        chunk_size_bytes=layout.chunk_size,
        chunks=tuple(map(LogChunk.of, layout.chunks, timestamps)),
    )


def _of_chunks(blocks: Sequence[TimestampRange | None], layout: ChunkLayout) -> list[TimestampRange | None]:
    if len(blocks) != count_chunks(layout.original_size, CHECKSUM_BLOCK_BYTES):
        raise ValueError(f"timestamps of {len(blocks)} blocks for a log of {layout.original_size} bytes")
    step = layout.chunk_size // CHECKSUM_BLOCK_BYTES
    return [_union(blocks[number * step : (number + 1) * step]) for number in range(len(layout.chunks))]


def _union(blocks: Sequence[TimestampRange | None]) -> TimestampRange | None:
    """Return the range that covers all of them; None where one of them is not known."""
    known = [each for each in blocks if each is not None]
    return reduce(TimestampRange.union, known) if len(known) == len(blocks) else None


def describe_indexes(contents: Mapping[IndexType, bytes], growth: int) -> dict[str, IndexArtefact]:
    """Describe the ``.indexes`` object, in which every artefact is larger by ``growth`` bytes."""
    described, position = {}, 0
    for kind, content in contents.items():
        size_bytes = len(content) + growth
        described[kind.value] = IndexArtefact(position=position, size_bytes=size_bytes, crc32c=crc32c(content))
        position += size_bytes
    return described
