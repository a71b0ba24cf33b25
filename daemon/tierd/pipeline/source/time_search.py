"""Search for the offset of a timestamp in tier and local log, as Kafka's offsetsForTimes does (remote-tiering 15)."""

import numpy as np

from tierd.arrow import Range
from tierd.errors import BatchTooLargeError, CorruptRecordError, RemoteIntegrityError
from tierd.log import BatchHeader, RecordBatch, RecordColumns, iter_piece_columns
from tierd.metadata import ReadableRange
from tierd.pipeline.access import OpenTier
from tierd.pipeline.source.bounds import RecordBounds
from tierd.pipeline.source.partition_snapshot import PartitionSnapshot
from tierd.pipeline.source.segment_pieces import runs_of


def offset_for_time(tier: OpenTier, snapshot: PartitionSnapshot, timestamp_ms: int) -> int | None:
    """Return the offset of the first readable record that is no older than ``timestamp_ms``; None when there is none.

    Raises:
        BatchTooLargeError: a batch that may have it unpacks to more than tierd opens.
        DataLossError: a local file is gone meanwhile.
        RemoteIntegrityError: stored data is damaged.
        RemoteStorageError: the store failed.
    """
    start, end = snapshot.start_offset, snapshot.end_offset
    for readable in snapshot.readable_ranges(start, end):
        if readable.metadata.max_timestamp_ms >= timestamp_ms:
            found = _first_in(tier, readable, timestamp_ms)
            if found is not None:
                return found
    local_start = snapshot.local_start(start)
    if local_start is None or snapshot.tail is None or local_start >= end:
        return None
    local = snapshot.tail.first_since(timestamp_ms, start_offset=local_start, end_offset=end)
    return None if local is None else local.offset


def _first_in(tier: OpenTier, readable: ReadableRange, timestamp_ms: int) -> int | None:
    bounds = RecordBounds(Range(readable.start_offset, readable.end_offset - 1), Range(low=timestamp_ms))
    name = str(readable.metadata.segment)

    def may_hold(batch: BatchHeader) -> bool:
        return batch.magic < 2 or batch.max_timestamp_ms >= timestamp_ms

    try:
        for run in runs_of(tier, readable, bounds, ahead=0):
            for found in iter_piece_columns(run.pieces, name=name, position=run.position, wanted=may_hold):
                offset = _first_of(found, bounds)
                if offset is not None:
                    run.pieces.close()
                    return offset
    except BatchTooLargeError:
        raise
    except CorruptRecordError as error:
        raise RemoteIntegrityError(
            str(error), remedy=f"run tierd verify --deep {readable.metadata.segment.topic_id_partition}"
        ) from error
    return None


def _first_of(found: RecordColumns | RecordBatch, bounds: RecordBounds) -> int | None:
    offsets, times = bounds.offsets, bounds.timestamps_ms
    if not isinstance(found, RecordColumns):
        records = (r for r in found.records() if r.timestamp_ms >= times.low)
        return next((r.offset for r in records if offsets.low <= r.offset <= offsets.high), None)
    each = np.asarray(found.columns.offset)
    wanted = (np.asarray(found.columns.timestamp_ms) >= times.low) & (each >= offsets.low) & (each <= offsets.high)
    first = int(np.argmax(wanted)) if wanted.any() else None
    return None if first is None else int(each[first])
