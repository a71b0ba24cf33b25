"""Narrowing of a span by a query's filters, as far as metadata and manifests allow."""

from collections.abc import Sequence
from dataclasses import replace

from tierd.errors import DataLossError, RemoteResourceNotFoundError
from tierd.metadata import ReadableRange
from tierd.pipeline.access import OpenTier
from tierd.pipeline.source.bounds import Range, RecordBounds
from tierd.pipeline.source.fetch_plan import chunks_to_read
from tierd.pipeline.source.local_tail import LocalTail
from tierd.pipeline.source.segment_pieces import times_of_chunks
from tierd.pipeline.source.splits import Part, QuerySpan


def narrowed(tier: OpenTier, span: QuerySpan, bounds: RecordBounds) -> QuerySpan:
    """Return ``span`` without parts that cannot hold wanted records, and with the other parts cut to the offsets.

    Raises:
        DataLossError: a segment is gone meanwhile.
        RemoteStorageError: the store failed.
    """
    low, high = max(span.start_offset, bounds.offsets.low), min(span.end_offset, bounds.offsets.high + 1)
    parts = [part.cut(low, high) for part in span.parts if part.start_offset < high and part.end_offset > low]
    if not bounds.timestamps_ms.is_all:
        parts = _of_times(tier, parts, bounds.timestamps_ms)
    return replace(span, parts=tuple(parts))


def _of_times(tier: OpenTier, parts: Sequence[Part], times: Range) -> list[Part]:
    """Return the parts that may hold records of such times; manifests are read unless the metadata rules a part out."""
    remote = [
        (part, part.source.metadata)
        for part in parts
        if isinstance(part.source, ReadableRange) and part.source.metadata.max_timestamp_ms >= times.low
    ]
    try:
        manifests = tier.manifests([metadata for _, metadata in remote])
    except RemoteResourceNotFoundError as error:
        raise DataLossError(f"a segment is gone meanwhile: {error}", remedy="run the query again") from error
    kept = []
    for (part, _), manifest in zip(remote, manifests, strict=True):
        wanted = chunks_to_read(times_of_chunks(manifest), times, manifest.size_bytes)
        if wanted:
            share = sum(piece.end - piece.start for piece in wanted) / manifest.size_bytes
            kept.append(replace(part, size_bytes=max(round(part.size_bytes * share), 1)))
    return [*kept, *(part for part in parts if isinstance(part.source, LocalTail))]
