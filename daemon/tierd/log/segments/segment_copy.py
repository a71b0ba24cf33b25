"""Copying batches from a file into a segment, as splits do (Kafka: LogSegment.appendFromFile)."""

from tierd.log.files.disk import Readable
from tierd.log.records.batch_header import BatchHeader, iter_headers
from tierd.log.records.log_config import MAX_INT
from tierd.log.segments.log_segment import LogSegment

_CHUNK_BYTES = 1 << 20


def append_from(segment: LogSegment, source: Readable, position: int) -> int:
    """Copy whole batches from ``position`` on, chunk by chunk, while their offsets are within reach of the base.

    Returns:
        How many bytes were copied.

    Raises:
        CorruptRecordError: a header on the way is damaged.
        OSError: the disk is full or failing.
    """
    start = position
    while chunk := _chunk(segment, source, position):
        largest = max(chunk, key=lambda batch: batch.max_timestamp_ms)
        segment.append(
            [source.read(position, chunk[-1].end_position - position)],
            chunk,
            largest_offset=chunk[-1].last_offset,
            max_timestamp_ms=largest.max_timestamp_ms,
            shallow_offset=largest.last_offset,
        )
        segment.write_out()
        position = chunk[-1].end_position
    return position - start


def _chunk(segment: LogSegment, source: Readable, position: int) -> list[BatchHeader]:
    """The next batches that fit into a chunk; the first one in any case."""
    chunk: list[BatchHeader] = []
    for batch in iter_headers(source, position=position):
        is_near = 0 <= batch.last_offset - segment.base_offset <= MAX_INT
        if not is_near or (chunk and batch.end_position - position >= _CHUNK_BYTES):
            break
        chunk.append(batch)
    return chunk
