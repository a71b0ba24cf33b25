"""Reading of a split's records as Arrow batches, which is the work of a task."""

from collections.abc import Iterator

import pyarrow as pa

from tierd.arrow import ArrowRows, Range, TimestampNotExpressibleError, WantedRecords, rows_of_pieces
from tierd.errors import BatchTooLargeError, CorruptRecordError, RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.metadata import ReadableRange
from tierd.model import TopicPartition
from tierd.pipeline.access import OpenTier
from tierd.pipeline.pipeline_errors import DataLossError, ReadOptionError
from tierd.pipeline.source.bounds import RecordBounds
from tierd.pipeline.source.local_tail import LocalTail
from tierd.pipeline.source.segment_pieces import runs_of
from tierd.pipeline.source.splits import Part, Split


def read_split(tier: OpenTier, split: Split, bounds: RecordBounds, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of ``split`` that ``bounds`` want, ascending, with the columns of ``schema``.

    Raises:
        DataLossError: a segment is gone that was there when the query was planned.
        BatchTooLargeError: a batch that is wanted unpacks to more than tierd opens.
        RemoteIntegrityError: stored data is damaged.
        RemoteStorageError: the store failed.
        LogError: the local log is damaged.
        ReadOptionError: the column timestamp cannot hold a record's timestamp.
    """
    rows = ArrowRows(schema, split.name)
    try:
        for part in split.parts:
            offsets = bounds.offsets & Range(part.start_offset, part.end_offset - 1)
            wanted = WantedRecords(offsets, bounds.timestamps_ms, split.aborted)
            if not offsets.is_empty:
                yield from _read_part(tier, split.name, part, wanted, rows)
    except TimestampNotExpressibleError as error:
        raise ReadOptionError(
            str(error),
            remedy="leave it out with a filter, or read without the column timestamp: name the others in schema()",
        ) from error


def _read_part(
    tier: OpenTier, name: TopicPartition, part: Part, wanted: WantedRecords, rows: ArrowRows
) -> Iterator[pa.RecordBatch]:
    offsets = wanted.offsets
    if isinstance(part.source, LocalTail):
        pieces = part.source.pieces(offsets.low, offsets.high + 1)
        yield from rows_of_pieces(pieces, wanted, rows, name=f"{name} on this host", position=0)
        return
    readable = ReadableRange(part.source.metadata, offsets.low, offsets.high + 1)
    log_name = str(readable.metadata.segment)
    try:
        for run in runs_of(tier, readable, RecordBounds(offsets, wanted.timestamps_ms)):
            yield from rows_of_pieces(run.pieces, wanted, rows, name=log_name, position=run.position)
    except RemoteResourceNotFoundError as error:
        raise DataLossError(
            f"segment {log_name} is gone, which was there when the query was planned: retention, or a compaction whose "
            f"grace (expire.grace) is over, removed it ({error})",
            remedy="load the data frame again and query that one: it reads what took the segment's place",
        ) from error
    except BatchTooLargeError:  # nothing is damaged, and the error's own remedy is the right one
        raise
    except CorruptRecordError as error:
        raise RemoteIntegrityError(str(error), remedy=f"run tierd verify --deep {name}") from error
