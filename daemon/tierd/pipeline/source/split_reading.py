"""Reading of a split's records as Arrow batches, which is the work of a task."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from tierd.errors import BatchTooLargeError, CorruptRecordError, RemoteIntegrityError, RemoteResourceNotFoundError
from tierd.log import AbortedTransaction, BatchHeader, BatchRun, RecordBatch, RecordColumns, iter_piece_columns
from tierd.metadata import ReadableRange
from tierd.model import TopicPartition
from tierd.pipeline.access import OpenTier
from tierd.pipeline.pipeline_errors import DataLossError
from tierd.pipeline.source.arrow_rows import ArrowRows, Chosen, Int64s, timestamp_types
from tierd.pipeline.source.bounds import Range, RecordBounds
from tierd.pipeline.source.local_tail import LocalTail
from tierd.pipeline.source.segment_pieces import runs_of
from tierd.pipeline.source.splits import Part, Split

_LEGACY_RECORDS = 1 << 13


def read_split(tier: OpenTier, split: Split, bounds: RecordBounds, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the records of ``split`` that ``bounds`` want, ascending, with the columns of ``schema``.

    Raises:
        DataLossError: a segment is gone that was there when the query was planned.
        BatchTooLargeError: a batch that is wanted unpacks to more than tierd opens.
        RemoteIntegrityError: stored data is damaged.
        RemoteStorageError: the store failed.
        LogError: the local log is damaged.
    """
    rows = ArrowRows(schema, split.name)
    for part in split.parts:
        within = RecordBounds(bounds.offsets & Range(part.start_offset, part.end_offset - 1), bounds.timestamps_ms)
        wanted = WantedRecords(within, split.aborted)
        if not within.offsets.is_empty:
            yield from _read_part(tier, split.name, part, wanted, rows)


def _read_part(
    tier: OpenTier, name: TopicPartition, part: Part, wanted: "WantedRecords", rows: ArrowRows
) -> Iterator[pa.RecordBatch]:
    offsets = wanted.bounds.offsets
    if isinstance(part.source, LocalTail):
        pieces = part.source.pieces(offsets.low, offsets.high + 1)
        yield from _rows_of(pieces, wanted, rows, name=f"{name} on this host", position=0)
        return
    readable = ReadableRange(part.source.metadata, offsets.low, offsets.high + 1)
    log_name = str(readable.metadata.segment)
    try:
        for run in runs_of(tier, readable, wanted.bounds):
            yield from _rows_of(run.pieces, wanted, rows, name=log_name, position=run.position)
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


def _rows_of(
    pieces: Iterable[bytes], wanted: "WantedRecords", rows: ArrowRows, *, name: str, position: int
) -> Iterator[pa.RecordBatch]:
    for found in iter_piece_columns(pieces, name=name, position=position, wanted=wanted.may_want):
        if isinstance(found, RecordColumns):
            yield from rows.batches(wanted.choose(found))
        else:
            yield from _legacy_rows(found, wanted, rows)


def _legacy_rows(entry: RecordBatch, wanted: "WantedRecords", rows: ArrowRows) -> Iterator[pa.RecordBatch]:
    records = [record for record in entry.records() if wanted.wants(record.offset, record.timestamp_ms)]
    for first in range(0, len(records), _LEGACY_RECORDS):
        yield rows.of_records(records[first : first + _LEGACY_RECORDS])


class WantedRecords:
    """Filter of the records that a query gets: within its bounds, no markers, no aborted transactions."""

    def __init__(self, bounds: RecordBounds, aborted: Iterable[AbortedTransaction]) -> None:
        self.bounds = bounds
        self._aborted = _by_producer(aborted)

    def may_want(self, batch: BatchHeader) -> bool:
        """Return True if a batch may hold a wanted record. A legacy entry's header does not say where it begins."""
        if batch.is_control or batch.last_offset < self.bounds.offsets.low:
            return False
        if batch.magic >= 2 and batch.base_offset > self.bounds.offsets.high:
            return False
        return batch.magic < 2 or batch.max_timestamp_ms >= self.bounds.timestamps_ms.low

    def wants(self, offset: int, timestamp_ms: int) -> bool:
        """Return True if a record that is in no transaction is within the bounds."""
        offsets, times = self.bounds.offsets, self.bounds.timestamps_ms
        return offsets.low <= offset <= offsets.high and times.low <= timestamp_ms <= times.high

    def choose(self, columns: RecordColumns) -> Chosen:
        """Return the wanted records among ``columns``."""
        runs = list(columns.runs())
        rows = self._rows(columns, runs)
        return Chosen(columns, rows, timestamp_types(runs, rows))

    def _rows(self, columns: RecordColumns, runs: list[BatchRun]) -> Int64s | None:
        """Return the indexes of the wanted records; None for all, which is the usual case."""
        offsets, times = np.asarray(columns.columns.offset), np.asarray(columns.columns.timestamp_ms)
        masks = [*_within(offsets, self.bounds.offsets), *_within(times, self.bounds.timestamps_ms)]
        hidden = [run for run in runs if run.is_control or run.producer_id in self._aborted]
        if hidden:
            masks.append(self._shown(offsets, hidden))
        return np.flatnonzero(np.logical_and.reduce(masks)) if masks else None

    def _shown(self, offsets: Int64s, hidden: list[BatchRun]) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        shown = np.ones(len(offsets), dtype=np.bool_)
        for run in hidden:
            if run.is_control:
                shown[run.first : run.end] = False
                continue
            within = offsets[run.first : run.end]
            firsts, lasts = self._aborted[run.producer_id]
            # A producer's transactions follow one another: the last that began at or below an offset decides.
            begun = np.searchsorted(firsts, within, side="right") - 1
            shown[run.first : run.end] = (begun < 0) | (within > lasts[np.maximum(begun, 0)])
        return shown


def _by_producer(aborted: Iterable[AbortedTransaction]) -> Mapping[int, tuple[Int64s, Int64s]]:
    """Return first and last offsets of each producer's aborted transactions, ascending."""
    spans: dict[int, set[tuple[int, int]]] = {}
    for each in aborted:
        spans.setdefault(each.producer_id, set()).add((each.first_offset, each.last_offset))
    return {
        producer: (np.array([f for f, _ in sorted(found)]), np.array([last for _, last in sorted(found)]))
        for producer, found in spans.items()
    }


def _within(values: Int64s, wanted: Range) -> "list[np.ndarray[tuple[int], np.dtype[np.bool_]]]":
    """Return a mask for each end of ``wanted`` that excludes a value."""
    if not len(values):
        return []
    return [
        *([values >= wanted.low] if values.min() < wanted.low else []),
        *([values <= wanted.high] if values.max() > wanted.high else []),
    ]
