"""Fetch of the bytes of a remote segment that a task needs, and no others as far as indexes and manifest allow."""

from collections.abc import Generator, Iterator
from typing import NamedTuple

from tierd.arrow import Range
from tierd.errors import CorruptIndexError, RemoteIntegrityError
from tierd.log import OffsetIndex, TimeIndex
from tierd.metadata import ReadableRange
from tierd.model import IndexType, RemoteLogSegmentMetadata
from tierd.pipeline.access import AHEAD, OpenTier
from tierd.pipeline.source.bounds import RecordBounds
from tierd.pipeline.source.fetch_plan import (
    Bytes,
    ChunkTimes,
    batches_of_offsets,
    chunks_to_read,
    clipped,
    whole_batches,
)
from tierd.remote import SegmentManifest


class PieceRun(NamedTuple):
    """Consecutive pieces of a log, which begin with a batch at ``position`` and end with a whole one."""

    position: int
    pieces: Generator[bytes, None, None]


def runs_of(tier: OpenTier, readable: ReadableRange, bounds: RecordBounds, *, ahead: int = AHEAD) -> Iterator[PieceRun]:
    """Yield the runs of batches that may hold wanted records of ``readable``. Each is to be used up before the next.

    Args:
        tier: the open tier.
        readable: the segment and its offsets that are read.
        bounds: the bounds of wanted records.
        ahead: pieces that are fetched ahead.

    Raises:
        RemoteResourceNotFoundError: the segment's objects are gone.
        RemoteIntegrityError: stored data is damaged.
        RemoteStorageError: the store failed.
    """
    for start, end in fetch_plan(tier, readable, bounds):
        yield PieceRun(start, tier.pieces(readable.metadata, start, end, ahead=ahead))


def fetch_plan(tier: OpenTier, readable: ReadableRange, bounds: RecordBounds) -> list[Bytes]:
    """Return the ranges to read; indexes and manifest are read only where they may narrow the ranges.

    Raises:
        As ``runs_of``.
    """
    metadata, times = readable.metadata, bounds.timestamps_ms
    start = max(readable.start_offset, bounds.offsets.low)
    end = min(readable.end_offset, bounds.offsets.high + 1)
    if start >= end or not metadata.size_bytes or metadata.max_timestamp_ms < times.low:
        return []
    wanted = chunks_to_read(chunk_times(tier, metadata, times), times, metadata.size_bytes)
    first_time_ms = times.low if times.low > 0 else None
    is_whole = start <= metadata.start_offset and end > metadata.end_offset
    if is_whole and first_time_ms is None and wanted == [Bytes(0, metadata.size_bytes)]:
        return wanted
    if not wanted:
        return []
    if first_time_ms is not None:
        start = max(start, _first_offset_since(tier, metadata, first_time_ms))
    index = _offset_index(tier, metadata)
    limits = batches_of_offsets(index, start, end, metadata.size_bytes)
    return clipped(whole_batches(wanted, index, metadata.size_bytes), limits)


def chunk_times(tier: OpenTier, metadata: RemoteLogSegmentMetadata, times: Range) -> list[ChunkTimes]:
    """Return the chunks with their timestamps from the manifest; none, without a read, where every time is wanted."""
    return [] if times.is_all else times_of_chunks(tier.manifest(metadata))


def times_of_chunks(manifest: SegmentManifest) -> list[ChunkTimes]:
    """Return the chunks of a segment's log, with the timestamps of their records."""
    size, step = manifest.size_bytes, manifest.log.chunk_size_bytes
    return [
        ChunkTimes(Bytes(n * step, min((n + 1) * step, size)), chunk.min_timestamp_ms, chunk.max_timestamp_ms)
        for n, chunk in enumerate(manifest.log.chunks)
    ]


def _first_offset_since(tier: OpenTier, metadata: RemoteLogSegmentMetadata, timestamp_ms: int) -> int:
    """Return the first offset that may have so young a record; an entry bounds the timestamps of earlier records."""
    data = tier.read_index(metadata, IndexType.TIMESTAMP)
    name = f"{metadata.segment} timestamp index"
    try:
        entry = TimeIndex.from_bytes(data, metadata.start_offset, name).lookup(timestamp_ms - 1)
    except CorruptIndexError as error:
        raise RemoteIntegrityError(str(error), remedy=error.remedy) from error
    return metadata.start_offset if entry.timestamp_ms < 0 else entry.offset + 1


def _offset_index(tier: OpenTier, metadata: RemoteLogSegmentMetadata) -> OffsetIndex:
    data = tier.read_index(metadata, IndexType.OFFSET)
    try:
        return OffsetIndex.from_bytes(data, metadata.start_offset, f"{metadata.segment} offset index")
    except CorruptIndexError as error:
        raise RemoteIntegrityError(str(error), remedy=error.remedy) from error
